//! What is told of one mutex or one session, and the help, as lines.

mod figures;
mod help;
mod mutex;
mod parameters;
mod session;

use super::columns;
use super::grid::{grid, width};
use super::seen::Seen;
use retrial::views::{Sid, TypeId};
use retrial::{MutexId, P};
use std::iter::successors;

pub use parameters::scheme;

/// How a line looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tone {
    #[default]
    Plain,
    Dim,
    Head,
    Warn,
    Bad,
}

/// What a line leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    Mutex(MutexId),
    Session(Sid),
    /// A parameter of a type, or of the instance.
    Parameter(P, Option<TypeId>),
}

/// A line of a page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Line {
    pub text: String,
    pub tone: Tone,
    pub target: Option<Target>,
}

/// What fills the screen in place of the lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    Mutex(MutexId),
    Session(Sid),
    /// The parameters of the instance.
    Parameters,
    Help,
}

impl Line {
    /// Whether they are lines of one parameter, which is chosen as a whole.
    pub fn is_of(&self, other: &Self) -> bool {
        matches!(self.target, Some(Target::Parameter(..))) && self.target == other.target
    }
}

/// The line that is chosen after the one at `at`, or before it (`by` 1 or -1): the first of its parameter.
pub fn next(lines: &[Line], at: usize, by: isize) -> usize {
    let is_of = |a: usize, b: usize| a == b || lines[a].is_of(&lines[b]);
    let to = |at: usize| at.checked_add_signed(by).filter(|to| *to < lines.len());
    let Some(found) = successors(to(at), |at| to(*at)).find(|found| !is_of(*found, at)) else { return at };
    (0..=found).rev().take_while(|line| is_of(*line, found)).last().unwrap_or(found)
}

/// Rows of a section.
const ROWS: usize = 50;

impl Page {
    /// Its heading and lines. A mutex or session that has gone has none.
    pub fn lines(self, seen: &Seen, room: u16) -> (String, Vec<Line>) {
        match self {
            Self::Mutex(id) => match seen.mutex(id) {
                Some(row) => (format!("Mutex {}", row.mutex.label()), mutex::lines(seen, row, room)),
                None => (format!("Mutex #{}: it is there no more", id.0), Vec::new()),
            },
            Self::Session(sid) => match seen.session(sid) {
                Some(row) => (session::title(row), session::lines(seen, row, room)),
                None => (format!("Session {sid}: it has ended"), Vec::new()),
            },
            Self::Parameters => {
                let mut lines = Vec::new();
                parameters::list(&mut lines, seen, None, room);
                ("Parameters".to_owned(), lines.split_off(1))
            }
            Self::Help => ("Keys".to_owned(), help::lines(room)),
        }
    }
}

fn plain(text: String) -> Line {
    Line { text, ..Line::default() }
}

fn head(text: &str) -> Line {
    Line { text: text.to_owned(), tone: Tone::Head, target: None }
}

fn dim(text: &str) -> Line {
    Line { text: format!("  {text}"), tone: Tone::Dim, target: None }
}

/// A heading, and rows under columns, or a line that says that there is nothing.
fn section<R>(
    lines: &mut Vec<Line>,
    title: &str,
    columns: &[columns::Shown<'_, R>],
    rows: &[R],
    room: u16,
    target: impl Fn(&R) -> Option<Target>,
) {
    lines.push(Line::default());
    lines.push(head(title));
    if rows.is_empty() {
        return lines.push(dim("none"));
    }
    let shown = &rows[..rows.len().min(ROWS)];
    let grid = grid(columns, shown, None, room.saturating_sub(2));
    let mut heads = String::from("  ");
    for head in &grid.heads {
        heads += &" ".repeat(usize::from(head.x + 2).saturating_sub(usize::from(width(&heads))));
        heads += &head.text;
    }
    lines.push(Line { text: heads, tone: Tone::Dim, target: None });
    for (text, row) in grid.lines.iter().zip(shown) {
        lines.push(Line { text: format!("  {text}"), tone: Tone::Plain, target: target(row) });
    }
    if rows.len() > ROWS {
        lines.push(dim(&format!("… and {} more", rows.len() - ROWS)));
    }
}
