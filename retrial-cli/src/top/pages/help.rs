//! The keys and the columns.

use super::{Line, head, plain};
use crate::top::columns;
use crate::top::grid::wrap;

const KEYS: &[(&str, &str)] = &[
    ("1 2 3, Tab", "mutexes, sessions, the tree of who waits for whom"),
    ("↑ ↓ PgUp PgDn Home End, j k", "choose a row"),
    ("Enter", "open what is chosen: a mutex, a session, a parameter to change"),
    ("Esc, Backspace", "back"),
    ("< >, ← →", "sort by the column to the left, to the right"),
    ("r", "sort in the other direction"),
    ("/", "filter by a text in names and places; Esc takes it back"),
    ("e", "show semaphores, barriers and conditions among the mutexes"),
    ("f, Space", "freeze the screen; again: go on"),
    ("p", "parameters of the instance"),
    ("u", "undo the last change of a parameter"),
    ("?", "this help"),
    ("q, Ctrl-C", "end; Ctrl-Z stops, `fg` goes on"),
];

/// Keys, then what each column is.
pub fn lines(room: u16) -> Vec<Line> {
    let named = |name: &str, about: &str, indent: usize| {
        wrap(&format!("{name:indent$} {about}"), room, &" ".repeat(indent + 1)).into_iter().map(plain)
    };
    let mut lines: Vec<Line> = KEYS.iter().flat_map(|(keys, does)| named(keys, does, 28)).collect();
    let mutexes = columns::mutexes().into_iter().map(|shown| (shown.column.title(), shown.about)).collect();
    let sessions = columns::sessions().into_iter().map(|shown| (shown.column.title(), shown.about)).collect();
    let lists: [(&str, Vec<_>); 2] = [("Columns of mutexes", mutexes), ("Columns of sessions", sessions)];
    for (title, columns) in lists {
        lines.push(Line::default());
        lines.push(head(title));
        lines.extend(columns.iter().flat_map(|(name, about)| named(name, about, 10)));
    }
    lines
}
