//! A look for people: the trees, the deadlocks in words, what else is waited for.

use super::futex::kind_text;
use super::look::{Futex, Holder, Look, Looker, Waiting, What};
use super::place::{Place, Places, label, trouble};
use super::rwlock::{self, Rwlock};
use crate::blocking::{Link, remedy};
use crate::output::{counted, grouped};
use crate::who::text::{Item, Line, calls, calls_from};
use crate::who::thread::{State, Thread};
use crate::who::tree::Root;
use retrial::MutexId;
use retrial::views::Sid;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// Holders of which the kernel is asked; and groups of waits for events that people are shown.
const HOLDERS: usize = 64;
const EVENTS: usize = 10;

/// A look with what the kernel says of the holders.
pub struct Told<'a> {
    pub looker: &'a Looker,
    pub look: &'a Look,
    pub places: &'a mut Places,
    pub threads: HashMap<u32, Thread>,
}

impl<'a> Told<'a> {
    pub fn new(looker: &'a Looker, look: &'a Look, places: &'a mut Places) -> Self {
        let mut told = Self { looker, look, places, threads: HashMap::new() };
        for futex in look.futexes.iter().filter(|futex| futex.waiters > 0).take(HOLDERS) {
            let (pid, tid) = match futex.what {
                What::Mutex { holder: Holder::Thread(tid), .. } => (looker.process.pid, tid),
                What::Mutex { holder: Holder::Other { tid, pid }, .. } => (pid, tid),
                // Asked of those that wait for each other alone.
                What::End(tid) if look.tree.is_deadlocked(Sid::guest(tid)) => (looker.process.pid, tid),
                _ => continue,
            };
            let thread = told.places.thread(pid, tid);
            // A thread that has given it back meanwhile was not seen to have it.
            if matches!(futex.what, What::End(_)) || looker.is_still(futex) {
                told.threads.insert(tid, thread);
            }
        }
        told
    }

    /// Lines of the trees, and how many are left out.
    pub fn trees(&mut self, all: bool) -> (Vec<String>, usize) {
        let (shown, left_out) = self.look.tree.shown(all);
        let mut lines = Vec::new();
        for line in &shown {
            lines.push(format!("{}{}", line.branch(), self.words(line)));
            let Item::Session { sid, waits } = line.item else { continue };
            lines.extend(self.calls(sid, waits.is_none()).map(|stack| format!("{}   calls: {stack}", line.below())));
        }
        (lines, left_out)
    }

    /// As those of `retrial who`.
    fn calls(&mut self, sid: Sid, is_root: bool) -> Option<String> {
        let tid = sid.guest_tid()?;
        if self.look.tree.is_deadlocked(sid) {
            let sleeper = self.look.wait(tid)?.sleeper.clone();
            let place = self.places.wait(&self.looker.process, &sleeper).at?;
            return calls_from(&self.threads.get(&tid)?.stack, &place);
        }
        calls(&self.threads.get(&tid).filter(|_| is_root && self.look.tree.above(sid).is_none())?.stack)
    }

    fn words(&mut self, line: &Line) -> String {
        match line.item {
            Item::Session { sid, waits } => self.thread(sid, waits),
            Item::Mutex { holder, mutex } => {
                let waiters = self.look.tree.waiters(holder, mutex).len();
                if let Some(Futex { what: What::End(_), .. }) = self.look.futex(mutex) {
                    return format!("its end: {}", counted(waiters as u64, "waits", "wait"));
                }
                let held = if holder.is_none() { "no thread has it at this moment" } else { "held" };
                format!("{}, {held}: {}", self.mutex(mutex), counted(waiters as u64, "waits", "wait"))
            }
            Item::Top(sid) => format!("thread {}: the one above", sid.guest_tid().unwrap_or(0)),
            Item::More(count) => format!("… and {} more", grouped(count as u64)),
        }
    }

    /// A mutex by its name, and its kind where that is not the usual one.
    fn mutex(&mut self, mutex: MutexId) -> String {
        let Some(futex) = self.look.futex(mutex) else { return String::new() };
        let name = self.places.mutex(&self.looker.process, futex.address);
        match futex.what {
            What::Mutex { kind: Some(0 | 0x100 | 0x200), .. } | What::Event => name,
            What::Mutex { kind, .. } => format!("{name} ({})", kind_text(kind)),
            What::End(tid) => format!("the end of {}", label(&self.looker.process, tid, None)),
        }
    }

    fn thread(&mut self, sid: Sid, waits: Option<MutexId>) -> String {
        let tid = sid.guest_tid().unwrap_or(0);
        let mut text = self.label(tid);
        if self.look.tree.is_deadlocked(sid) {
            text += ": DEADLOCK";
        }
        let above = self.look.tree.above(sid);
        let waited = self.look.wait(tid).cloned();
        if let Some(waiting) = &waited {
            let place = self.places.wait(&self.looker.process, &waiting.sleeper);
            let of = match self.look.mutex(waiting.address).filter(|_| waits.is_none()) {
                Some(mutex) => format!(" for {}", self.mutex(mutex)),
                None if waits.is_none() => self.event(waiting, &place),
                None => String::new(),
            };
            let _ = write!(text, ", waits{of}{}", self::text(&place));
            if let Some(above) = above.and_then(Sid::guest_tid).filter(|_| waits.is_none()) {
                let _ = write!(text, ", behind thread {above}");
            }
        }
        let thread = self.threads.get(&tid);
        // That a waiting thread is asleep goes without saying.
        let told = thread.filter(|thread| above.is_none() || !matches!(thread.state, State::Asleep | State::Running));
        if let Some(thread) = told.filter(|thread| thread.state != State::Unseen) {
            let _ = write!(text, ": {}", thread.text());
        }
        if let Some(trouble) = self.held(tid).and_then(|futex| trouble(&self.looker.process, &futex)) {
            let _ = write!(text, ": {trouble}");
        }
        text
    }

    /// What a holder waits for itself, if that is no mutex.
    fn event(&mut self, waiting: &Waiting, place: &Place) -> String {
        match self.look.waits_for(waiting.sleeper.tid).map(|futex| futex.what) {
            Some(What::End(tid)) => format!(" for the end of {}", label(&self.looker.process, tid, None)),
            _ if place.call.as_deref().is_some_and(rwlock::is_call) => {
                format!(" for {}", self.event_at(waiting.address, place))
            }
            _ => " for an event".to_owned(),
        }
    }

    /// What is waited for at a futex that is no mutex: a rwlock with those that have it, or an event.
    fn event_at(&mut self, futex: u64, place: &Place) -> String {
        let process = &self.looker.process;
        let call = place.call.as_deref().filter(|call| rwlock::is_call(call));
        let Some(rwlock) = call.and_then(|call| Rwlock::of(process.pid, call, futex)) else {
            let what = if call.is_some() { "a rwlock" } else { "an event" };
            return format!("{what} at {}", self.places.mutex(process, futex));
        };
        let held = match rwlock {
            // Another PID namespace has other numbers.
            Rwlock { writer, .. } if writer != 0 && !process.is_nested => label(process, writer, None),
            Rwlock { writer: 0, readers, .. } => counted(readers.into(), "reader", "readers"),
            _ => "a writer".to_owned(),
        };
        format!("the rwlock {}, held by {held}", self.places.mutex(process, rwlock.address))
    }

    /// A mutex that a thread has and others wait for.
    fn held(&self, tid: u32) -> Option<Futex> {
        let is_its = |futex: &&Futex| matches!(futex.what, What::Mutex { holder, .. } if holder.tid() == Some(tid));
        self.look.futexes.iter().find(|futex| futex.waiters > 0 && is_its(futex)).copied()
    }

    fn label(&self, tid: u32) -> String {
        let other = self.held(tid).and_then(|futex| match futex.what {
            What::Mutex { holder: Holder::Other { pid, .. }, .. } => Some(pid),
            _ => None,
        });
        label(&self.looker.process, tid, other)
    }

    /// Threads that wait for each other, in words.
    pub fn deadlock(&mut self, links: &[Link]) -> String {
        let mut text = match links.len() {
            1 => "DEADLOCK: a thread waits for itself".to_owned(),
            many => format!("DEADLOCK: {many} threads wait for each other"),
        };
        let (mut joins, mut mutexes) = (false, BTreeMap::new());
        text += ", and go on only if a deadline or another thread's unlock ends a wait";
        for link in links {
            let place = self.look.wait(link.tid).map(|waiting| waiting.sleeper.clone());
            let place = place.map(|sleeper| self.places.wait(&self.looker.process, &sleeper)).unwrap_or_default();
            let holder = link.holder.guest_tid().unwrap_or(0);
            let by = if holder == link.tid { "itself".to_owned() } else { format!("thread {holder}") };
            let (label, mutex) = (self.label(link.tid), self.mutex(link.mutex));
            let is_end = matches!(self.look.futex(link.mutex), Some(Futex { what: What::End(_), .. }));
            let by = if is_end { String::new() } else { format!(", held by {by}") };
            let _ = write!(text, "\n  {label} waits for {mutex}{}{by}", self::text(&place));
            joins |= is_end;
            mutexes.extend((!is_end).then_some((link.mutex, mutex)));
        }
        let held: Vec<&str> = mutexes.values().map(String::as_str).collect();
        let remedy = match held.as_slice() {
            _ if !joins => remedy(mutexes.iter().map(|(mutex, name)| (*mutex, name.as_str()))),
            [] => "it does not happen if threads do not join each other".to_owned(),
            held => format!("it does not happen if {} is released before the thread is joined", held.join(" and ")),
        };
        text + "\n  " + &remedy
    }

    /// What is waited for and is no mutex: a line for each.
    pub fn events(&mut self, all: bool) -> Vec<String> {
        let events = self.look.events();
        let shown = if all { events.len() } else { EVENTS };
        let mut lines = Vec::new();
        for futex in events.iter().take(shown) {
            let waiting = self.look.waits.iter().find(|waiting| waiting.address == futex.address).cloned();
            let Some(waiting) = waiting else { continue };
            let place = self.places.wait(&self.looker.process, &waiting.sleeper);
            let first = label(&self.looker.process, waiting.sleeper.tid, None);
            let who = match futex.waiters {
                1 => format!("{first} waits"),
                many => format!("{first} and {} more wait", grouped(many as u64 - 1)),
            };
            let of = match futex.what {
                What::End(tid) => format!("the end of {}", label(&self.looker.process, tid, None)),
                _ => self.event_at(futex.address, &place),
            };
            lines.push(format!("{who} for {of}{}", self::text(&place)));
        }
        if let Some(more) = events.len().checked_sub(shown).filter(|more| *more > 0) {
            lines.push(format!("… and {} more", grouped(more as u64)));
        }
        lines
    }

    /// How many wait for what.
    pub fn summary(&self) -> String {
        let events = self.look.waiting_for_events() as u64;
        let mutexes = self.look.waits.len() as u64 - events;
        let waits = counted(mutexes, "thread waits for a mutex", "threads wait for a mutex");
        let all = counted(self.look.threads as u64, "thread", "threads");
        format!("{waits}, {} for an event, of {all}.", grouped(events))
    }

    /// What to type next, about the thread that most wait behind.
    pub fn next(&self) -> String {
        let pid = self.looker.process.pid;
        let top = self.look.tree.roots.iter().find_map(|root| match root {
            Root::Holder(sid) | Root::Ring(sid) => sid.guest_tid(),
            Root::Unheld(_) => None,
        });
        match top.map(|tid| (tid, self.threads.get(&tid).map_or(State::Unseen, |thread| thread.state))) {
            None => format!("retrial attach {pid} --for 10s"),
            Some((_, State::Stopped)) => format!("kill -CONT {pid}"),
            Some((tid, State::Running)) => format!("top -H -p {pid}, perf top -t {tid}"),
            Some((tid, State::Uninterruptible)) => format!("cat /proc/{pid}/task/{tid}/stack (as root)"),
            Some(_) => format!("retrial attach {pid} --for 10s, gdb -p {pid} -batch -ex 'thread apply all bt'"),
        }
    }
}

/// ` in pthread_mutex_lock at work (a.c:6)`, as far as it is known.
fn text(place: &Place) -> String {
    let part =
        |word: &str, name: &Option<String>| name.as_ref().map_or(String::new(), |name| format!(" {word} {name}"));
    format!("{}{}", part("in", &place.call), part("at", &place.at))
}
