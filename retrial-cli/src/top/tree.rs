//! The tree of who waits for whom, as lines.

use super::pages::{Line, Target, Tone};
use super::seen::Seen;
use crate::output::{counted, grouped};
use crate::who::text::{Item, label, standing};
use retrial::views::{Key, Sid};

/// Waiters of a mutex that are shown; the others are counted.
const WAITERS: usize = 100;
/// Lines that are made: nobody scrolls further.
const LINES: usize = 10_000;

/// Every line, from the top down.
pub fn lines(seen: &Seen) -> Vec<Line> {
    let words = |line: crate::who::text::Line| {
        let (text, tone, target) = match line.item {
            Item::Session { sid, waits } => {
                let tone = if seen.tree.is_deadlocked(sid) { Tone::Bad } else { Tone::Plain };
                (session(seen, sid, waits.is_some()), tone, Some(Target::Session(sid)))
            }
            Item::Mutex { holder, mutex } => {
                let count = seen.tree.waiters(holder, mutex).len();
                let wait = counted(count as u64, "waits", "wait");
                let name = seen.to().mutex_label(mutex);
                let text = if holder.is_none() {
                    format!("{name}: nobody is seen to hold it: {wait}")
                } else {
                    let held = seen.to().session(holder).and_then(|s| s.holds.iter().find(|held| held.mutex == mutex));
                    let mode = held.map_or_else(
                        || "held at its waiters' last step".to_owned(),
                        |held| {
                            let at = held.location.map(|at| format!(", got at {}", seen.to().place(at)));
                            format!("held in {}{}", held.mode, at.unwrap_or_default())
                        },
                    );
                    format!("{name}, {mode}: {wait}")
                };
                (text, Tone::Head, Some(Target::Mutex(mutex)))
            }
            Item::Top(sid) => (format!("session {sid}: the one above"), Tone::Bad, Some(Target::Session(sid))),
            Item::More(count) => (format!("… and {} more", grouped(count as u64)), Tone::Dim, None),
        };
        Line { text: format!("{}{text}", line.branch()), tone, target }
    };
    seen.tree.lines(WAITERS).take(LINES).map(words).collect()
}

/// `session 3 (pid 41, load), waits for X for 1.20 s at fetch`.
fn session(seen: &Seen, sid: Sid, below: bool) -> String {
    let (to, info) = (seen.to(), seen.to().session(sid).map(|session| &session.info));
    let named = |key: Key| ((!below).then(|| to.mutex_label(key.mutex)), to.place(key.location).to_owned());
    label(sid, info, false) + &standing(info, seen.tree.is_deadlocked(sid), to.at.monotonic_ns, named)
}
