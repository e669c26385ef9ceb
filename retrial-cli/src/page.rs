//! What a report says, in its order: text and HTML are made of the same parts.

mod html;

pub use html::check_name;

use crate::output::{Table, short};
use crate::recording::findings::Finding;
use crate::recording::report::Course;
use retrial_model::Profile;

/// A report to be shown.
pub struct Page {
    pub title: String,
    /// Lines under the title.
    pub head: Vec<String>,
    pub parts: Vec<Part>,
    /// What to type next.
    pub next: Option<String>,
}

/// A part of it.
pub enum Part {
    /// What nothing ends by itself.
    Alarm(String),
    Findings {
        found: Vec<Finding>,
        nothing: String,
    },
    Section {
        title: &'static str,
        picture: Picture,
        table: Table,
        nothing: &'static str,
    },
    /// Lines of text.
    Lines(String),
}

/// What HTML has above a table.
pub enum Picture {
    None,
    Bars(Vec<Bar>),
    Charts(Vec<Course>),
    /// How long the waits of each were.
    Lengths(Vec<(String, Profile)>),
    /// Flame graphs, as SVG.
    Flames([String; 2]),
}

/// A time in shares that add up to 100 %.
pub struct Bar {
    pub name: &'static str,
    pub shares: Vec<Share>,
}

/// Classes of what takes time, in the order of a bar; the last is the time elsewhere.
pub const CLASSES: [&str; 4] = ["Concurrency", "Holding", "Event", "Other"];

/// What a share of the time went to.
pub struct Share {
    pub name: String,
    pub class: &'static str,
    pub pct: f64,
}

impl Page {
    pub fn text(&self) -> String {
        let head = [std::slice::from_ref(&self.title), &self.head].concat().join("\n");
        let parts = self.parts.iter().map(Part::text);
        let next = self.next.iter().map(|next| format!("Next: {next}"));
        std::iter::once(head).chain(parts).chain(next).collect::<Vec<_>>().join("\n\n")
    }
}

impl Part {
    /// A table under its title, or what is said where it is empty.
    pub const fn section(title: &'static str, table: Table, nothing: &'static str) -> Self {
        Self::Section { title, picture: Picture::None, table, nothing }
    }

    /// The same with a picture above it.
    pub const fn pictured(title: &'static str, picture: Picture, table: Table) -> Self {
        Self::Section { title, picture, table, nothing: "None." }
    }

    fn text(&self) -> String {
        match self {
            Self::Alarm(text) | Self::Lines(text) => text.clone(),
            Self::Findings { found, nothing } => {
                let found: Vec<String> = found.iter().enumerate().map(|(i, finding)| finding.text(i + 1)).collect();
                let found = if found.is_empty() { nothing.clone() } else { found.join("\n") };
                format!("{FINDINGS}\n{found}")
            }
            Self::Section { title, table, nothing, .. } => {
                let rows = if table.is_empty() { (*nothing).to_owned() } else { table.text() };
                format!("{title}\n{rows}")
            }
        }
    }
}

pub const FINDINGS: &str = "FINDINGS, MOST TIME AT STAKE FIRST";

/// A share of time for people.
pub fn pct(pct: f64) -> String {
    format!("{} %", short(pct))
}
