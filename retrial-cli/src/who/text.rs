//! The tree as lines, and as rows.

use super::report::{Holding, Report};
use super::thread::State;
use super::tree::{Root, Tree};
use crate::duration;
use crate::output::{counted, grouped, in_line};
use retrial::MutexId;
use retrial::views::{Key, SessionInfo, Sid};
use std::fmt::Write;
use std::time::Duration;

/// People are shown so many waiters of a mutex, and so many lines; JSON and CSV have all.
const WAITERS: usize = 10;
const LINES: usize = 200;
/// Levels that are indented.
const LEVELS: usize = 32;
/// Calls of a stack that a line has.
const CALLS: usize = 5;

/// What a line of the tree is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// A session, with the mutex that it waits for.
    Session { sid: Sid, waits: Option<MutexId> },
    /// A mutex that the session above has, or that has no known holder.
    Mutex { holder: Sid, mutex: MutexId },
    /// One of the waiters: it stands at the top, as one of the sessions that wait for each other.
    Top(Sid),
    /// So many more waiters.
    More(usize),
}

/// An item where it stands.
#[derive(Clone, Debug)]
pub struct Line {
    pub item: Item,
    /// Number of its tree, from 1.
    pub root: usize,
    /// Sessions above it.
    pub depth: usize,
    lead: String,
    last: bool,
}

impl Tree {
    /// Every line of the trees, from the top down; of the waiters of a mutex at most this many.
    pub fn lines(&self, waiters: usize) -> Lines<'_> {
        let mut open: Vec<Line> = Vec::new();
        for (number, root) in self.roots.iter().enumerate().rev() {
            let item = match *root {
                Root::Holder(sid) | Root::Ring(sid) => Item::Session { sid, waits: None },
                Root::Unheld(mutex) => Item::Mutex { holder: Sid::NONE, mutex },
            };
            open.push(Line { item, root: number + 1, depth: 0, lead: String::new(), last: true });
        }
        Lines { tree: self, open, waiters }
    }

    /// The lines for people, and how many are not shown.
    pub fn shown(&self, all: bool) -> (Vec<Line>, usize) {
        let (waiters, limit) = if all { (usize::MAX, usize::MAX) } else { (WAITERS, LINES) };
        let mut shown: Vec<Line> = self.lines(waiters).take(limit.saturating_add(1)).collect();
        let is_cut = shown.len() > limit;
        shown.truncate(limit);
        (shown, if is_cut { self.lines(waiters).count() - limit } else { 0 })
    }
}

impl Report<'_> {
    /// The trees for people, and how many lines are not shown.
    pub fn text(&mut self, all: bool) -> (Vec<String>, usize) {
        let (shown, left_out) = self.tree.shown(all);
        let mut lines = Vec::new();
        for line in &shown {
            lines.push(format!("{}{}", line.branch(), in_line(&self.words(line))));
            if let Item::Session { sid, waits } = line.item
                && let Some(stack) = self.calls(sid, waits.is_none())
            {
                lines.push(format!("{}   calls: {stack}", line.below()));
            }
        }
        (lines, left_out)
    }

    /// The calls of a holder that waits for nobody; of one in a ring those that led to its wait, as the outer
    /// ones may say where it got what it holds.
    fn calls(&mut self, sid: Sid, is_root: bool) -> Option<String> {
        if self.tree.is_deadlocked(sid) {
            let (key, ..) = self.look.session(sid)?.wait?;
            let place = self.names.place(key.location);
            return calls_from(&self.threads.get(&sid)?.stack, &place);
        }
        calls(&self.threads.get(&sid).filter(|_| is_root && self.tree.above(sid).is_none())?.stack)
    }

    fn words(&mut self, line: &Line) -> String {
        match line.item {
            Item::Session { sid, waits } => self.session(sid, waits),
            Item::Mutex { holder, mutex } if holder.is_none() => {
                let wait = counted(self.tree.waiters(holder, mutex).len() as u64, "waits", "wait");
                format!("{}: nobody is seen to hold it; {wait}", self.names.mutex(mutex))
            }
            Item::Mutex { holder, mutex } => self.holding(holder, mutex).text(),
            Item::Top(sid) => format!("session {sid}: the one above"),
            Item::More(count) => format!("… and {} more", grouped(count as u64)),
        }
    }

    fn session(&mut self, sid: Sid, waits: Option<MutexId>) -> String {
        let (session, is_root) = (self.look.session(sid), waits.is_none());
        // At the top of a ring the mutex is not above it.
        let named = |key: Key| (is_root.then(|| self.names.mutex(key.mutex)), self.names.place(key.location));
        let mut text = label(sid, session, true) + &standing(session, self.tree.is_deadlocked(sid), self.now_ns, named);
        if session.is_some_and(|session| session.wait.is_some())
            && let Some(above) = self.tree.above(sid).filter(|_| is_root)
        {
            let _ = write!(text, ", behind session {above}");
        }
        let thread = self.threads.get(&sid);
        // That a waiting session is asleep goes without saying.
        let waits = self.tree.above(sid).is_some();
        let told = thread.filter(|thread| !waits || !matches!(thread.state, State::Asleep | State::Running));
        if let Some(thread) = told {
            let _ = write!(text, ": {}", thread.text());
        }
        text
    }

    /// What to type next, about the holder that most sessions wait behind.
    pub fn next(&self, flag: &str) -> String {
        let top = self.tree.roots.iter().find_map(|root| match root {
            Root::Holder(sid) | Root::Ring(sid) => Some(*sid),
            Root::Unheld(_) => None,
        });
        let Some(sid) = top else { return format!("retrial show mutexes{flag}") };
        if self.tree.is_deadlocked(sid) {
            let pid = self.look.session(sid).map_or(0, |session| session.pid);
            return format!("gdb -p {pid} -batch -ex 'thread apply all bt'");
        }
        let Some(session) = self.look.session(sid) else { return format!("retrial ps{flag}") };
        if session.dead {
            return format!("retrial recover{flag}");
        }
        let (pid, tid) = (session.pid, session.tid);
        match self.threads.get(&sid).map_or(State::Unseen, |thread| thread.state) {
            State::Stopped => format!("kill -CONT {pid}"),
            State::Traced => format!("grep TracerPid /proc/{pid}/task/{tid}/status"),
            State::Running => format!("top -H -p {pid}, perf top -t {tid}"),
            State::Uninterruptible => format!("cat /proc/{pid}/task/{tid}/stack (as root)"),
            State::Asleep | State::Ending | State::Unseen => {
                format!("retrial trace{flag}, gdb -p {pid} -batch -ex 'thread apply all bt'")
            }
        }
    }
}

impl Line {
    /// What stands before its words: the branch that it hangs on.
    pub fn branch(&self) -> String {
        let branch = if self.depth == 0 && self.lead.is_empty() && self.root_item() {
            ""
        } else if self.last {
            "└─ "
        } else {
            "├─ "
        };
        format!("{}{branch}", self.lead)
    }

    /// What stands before the lines below it.
    pub fn below(&self) -> String {
        if self.root_item() {
            String::new()
        } else if self.lead.chars().count() >= 3 * LEVELS {
            self.lead.clone()
        } else {
            format!("{}{}", self.lead, if self.last { "   " } else { "│  " })
        }
    }

    const fn root_item(&self) -> bool {
        match self.item {
            Item::Session { waits, .. } => waits.is_none(),
            Item::Mutex { holder, .. } => holder.is_none(),
            Item::Top(_) | Item::More(_) => false,
        }
    }
}

impl Holding {
    fn text(&self) -> String {
        let mut text = self.name.clone();
        text +=
            &self.mode.map_or_else(|| ", held at its waiters' last step".into(), |mode| format!(", held in {mode}"));
        if let Some(place) = &self.got_at {
            let _ = write!(text, ", got at {place}");
        }
        if let Some(place) = &self.waited_at {
            let _ = write!(text, ", waited for last at {place}");
        }
        if let Some(s) = self.seen_s.into_iter().chain(self.held_s).reduce(f64::max) {
            let least = if self.may_be_longer { "at least " } else { "" };
            let _ = write!(text, ", had it {least}{} ago", duration::seconds(s));
        }
        let others = match self.others.as_slice() {
            [] => String::new(),
            [(sid, mode)] => format!(", also by session {sid} in {mode}"),
            many => format!(", also by {} other sessions", grouped(many.len() as u64)),
        };
        text += &others;
        text + &match self.waiters {
            0 => ": nobody waits".to_owned(),
            many => format!(": {}", counted(many as u64, "waits", "wait")),
        }
    }
}

/// A session for people: `session 3 (pid 41, tid 42, load, action fetch)`.
pub fn label(sid: Sid, session: Option<&SessionInfo>, has_action: bool) -> String {
    let Some(session) = session else {
        return match sid.guest_tid() {
            Some(tid) => format!("thread {tid} without a session"),
            None => format!("session {sid}, which has ended"),
        };
    };
    let mut text = format!("session {sid} (pid {}", session.pid);
    if session.tid != session.pid {
        let _ = write!(text, ", tid {}", session.tid);
    }
    let action = if has_action { session.action.as_str() } else { "" };
    for (what, word) in [("", session.name.as_str()), ("action ", action)] {
        if !word.is_empty() {
            let _ = write!(text, ", {what}{word}");
        }
    }
    text + ")"
}

/// What it is at: `: DEADLOCK, waits for X of m for 1.20 s at fetch`. `named`: the mutex, where that is to be
/// said, and the place.
pub fn standing(
    session: Option<&SessionInfo>,
    is_deadlocked: bool,
    now_ns: u64,
    named: impl FnOnce(Key) -> (Option<String>, String),
) -> String {
    let mut text = String::new();
    if session.is_some_and(|session| session.dead) {
        text += ": DEAD";
    }
    if is_deadlocked {
        text += ": DEADLOCK";
    }
    if let Some((key, since_ns, _)) = session.and_then(|session| session.wait) {
        let (mutex, place) = named(key);
        let of = mutex.map_or_else(String::new, |mutex| format!(" of {mutex}"));
        let waited = duration::text(Duration::from_nanos(now_ns.saturating_sub(since_ns)));
        let _ = write!(text, ", waits for {}{of} for {waited} at {place}", key.event.mode);
    }
    text
}

/// The innermost calls of a stack, innermost first.
pub fn calls(stack: &[String]) -> Option<String> {
    let shown: Vec<&str> = stack.iter().take(CALLS).map(String::as_str).collect();
    let more = if stack.len() > CALLS { " < …" } else { "" };
    (!shown.is_empty()).then(|| format!("{}{more}", shown.join(" < ")))
}

/// The same from this place on, where it is among the calls.
pub fn calls_from(stack: &[String], place: &str) -> Option<String> {
    calls(&stack[stack.iter().position(|call| call == place)?..])
}

/// The lines of [`Tree::lines`].
pub struct Lines<'r> {
    tree: &'r Tree,
    open: Vec<Line>,
    waiters: usize,
}

impl Iterator for Lines<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        let line = self.open.pop()?;
        let tree = self.tree;
        let mut below: Vec<Item> = Vec::new();
        match line.item {
            Item::Session { sid, .. } => {
                below.extend(tree.awaited(sid).iter().map(|mutex| Item::Mutex { holder: sid, mutex: *mutex }));
            }
            Item::Mutex { holder, mutex } => {
                let item = |sid: &Sid| {
                    if tree.is_top(*sid) { Item::Top(*sid) } else { Item::Session { sid: *sid, waits: Some(mutex) } }
                };
                let waiters = tree.waiters(holder, mutex);
                below.extend(waiters.iter().take(self.waiters).map(item));
                let left_out = waiters.len().saturating_sub(self.waiters);
                below.extend((left_out > 0).then_some(Item::More(left_out)));
            }
            Item::Top(_) | Item::More(_) => {}
        }
        let depth = line.depth + usize::from(matches!(line.item, Item::Session { .. }));
        let lead = line.below();
        let count = below.len();
        let made = below.into_iter().enumerate().map(|(i, item)| Line {
            item,
            root: line.root,
            depth,
            lead: lead.clone(),
            last: i + 1 == count,
        });
        let made: Vec<Line> = made.collect();
        self.open.extend(made.into_iter().rev());
        Some(line)
    }
}
