//! One look at who waits for whom, with names, and with what the kernel says of the holders.

use super::object::Object;
use super::thread::Thread;
use super::tree::{Root, Tree};
use super::unwind::Files;
use crate::blocking::Look;
use crate::naming::Names;
use retrial::views::{LocationId, PastSleep, SessionInfo, Sid, Tables, What};
use retrial::{Mode, MutexId};
use std::collections::{HashMap, HashSet};

/// Holders of which the kernel is asked, most sessions behind them first: each is some files to read.
const THREADS: usize = 64;
/// Maximum number of waiters of a mutex, the longest first, that are asked which holder they found.
const WITNESSES: usize = 64;

/// A look with all that is told of it.
pub struct Report<'t> {
    pub tables: &'t Tables,
    pub look: Look<'t>,
    pub tree: Tree,
    pub names: Names<'t>,
    pub threads: HashMap<Sid, Thread>,
    pub now_ns: u64,
    past: Vec<PastSleep>,
}

/// A mutex that a session has and others wait for.
#[derive(Clone, PartialEq, Debug)]
pub struct Holding {
    pub mutex: MutexId,
    pub name: String,
    /// What it protects.
    pub object: Option<Object>,
    /// `None` where it is not known whether the session has it still.
    pub mode: Option<Mode>,
    /// Where it was got; threads under `retrial run` do not note that.
    pub got_at: Option<String>,
    /// Where the session waited for it last, if it has waited for nothing else since.
    pub waited_at: Option<String>,
    /// How long it has had it at least: no session has got the mutex since a waiter found it there.
    pub held_s: Option<f64>,
    /// How long ago a wait under way found it there first, as far as that is still noted; it may have given
    /// the mutex back meanwhile, and got it again.
    pub seen_s: Option<f64>,
    /// Whether it is not noted any more what such a wait found at its beginning.
    pub may_be_longer: bool,
    /// Others that have it too.
    pub others: Vec<(Sid, Mode)>,
    pub waiters: usize,
}

impl<'t> Report<'t> {
    /// Of all mutexes, or of what has to do with one.
    pub fn new(tables: &'t Tables, look: Look<'t>, only: Option<MutexId>) -> Self {
        let mut tree = Tree::of(&look);
        if let Some(mutex) = only {
            tree.only(mutex);
            if tree.len() == 0 {
                tree.add_holders(mutex, look.holders(mutex).iter().map(|(sid, _)| *sid));
            }
        }
        let names = Names::new(tables);
        let now_ns = retrial::sys::now_ns();
        let past = tables.history();
        let mut report = Self { tables, look, tree, names, threads: HashMap::new(), now_ns, past };
        report.ask_for_threads();
        report
    }

    fn ask_for_threads(&mut self) {
        let mut holders: Vec<Sid> = Vec::new();
        let tops = self.tree.roots.iter().filter_map(|root| match root {
            Root::Holder(sid) | Root::Ring(sid) => Some(*sid),
            Root::Unheld(_) => None,
        });
        let blocked = self.look.sessions.iter().map(|session| session.sid).filter(|sid| self.tree.behind(*sid) > 0);
        let mut known = HashSet::new();
        holders.extend(tops.chain(blocked).filter(|sid| known.insert(*sid)).take(THREADS));
        let mut files = Files::default();
        for sid in holders {
            if let Some((pid, tid)) = self.ids(sid) {
                self.threads.insert(sid, Thread::of(pid, tid, &mut files, self.names.symbols()));
            }
        }
    }

    /// Process and thread of a session; of a guest only the thread is known, and the process found by it.
    fn ids(&self, sid: Sid) -> Option<(u32, u32)> {
        match (self.look.session(sid), sid.guest_tid()) {
            (Some(session), _) if session.dead => None,
            (Some(session), _) => Some((session.pid, session.tid)),
            // Any thread's id leads to its files.
            (None, Some(tid)) => Some((tid, tid)),
            (None, None) => None,
        }
    }

    /// What a session that is waited for has of a mutex.
    pub fn holding(&mut self, sid: Sid, mutex: MutexId) -> Holding {
        let holders = self.look.holders(mutex);
        let mode = holders.iter().find(|(holder, _)| *holder == sid).map(|(_, mode)| *mode);
        let others = holders.iter().copied().filter(|(holder, _)| *holder != sid).collect();
        let logged = self
            .look
            .session(sid)
            .and_then(|session| session.log.iter().find(|standing| standing.record.mutex == mutex));
        let location = logged.map(|standing| standing.record.location);
        let waited = self.waited_for(sid, mutex).filter(|_| location.is_none());
        let ago_s = |since_ns: u64| self.now_ns.saturating_sub(since_ns) as f64 / 1e9;
        let (held_s, seen) = (self.held_since(sid, mutex).map(ago_s), self.seen_since(sid, mutex));
        Holding {
            mutex,
            name: self.names.mutex(mutex),
            object: self.tables.mutex_info(mutex).map(|info| Object::of(self.tables, &info, &mut self.names)),
            mode,
            got_at: location.map(|location| self.names.place(location)),
            waited_at: waited.map(|location| self.names.place(location)),
            held_s,
            seen_s: seen.map(|(since_ns, _)| ago_s(since_ns)),
            may_be_longer: seen.is_none_or(|(_, may_be_longer)| may_be_longer),
            others,
            waiters: self.tree.waiters(sid, mutex).len(),
        }
    }

    /// Where a session waited for a mutex, if that was its latest wait.
    fn waited_for(&self, sid: Sid, mutex: MutexId) -> Option<LocationId> {
        let last = self.tables.event(sid, self.tables.last_run(sid))?;
        (last.mutex == mutex && last.what == What::Got).then_some(last.location)
    }

    /// When a waiter last found a session have the mutex, if no session has got it since.
    fn held_since(&self, sid: Sid, mutex: MutexId) -> Option<u64> {
        let gets = self.look.gets(&self.tables.mutex_info(mutex)?, 0)?;
        let is_it = |past: &&PastSleep| {
            past.mutex == mutex && past.gets == gets && self.look.session_behind(past.blocker) == sid
        };
        self.past.iter().filter(is_it).map(|past| past.at_ns).min()
    }

    /// When one of the waits under way first found a session have the mutex, and whether that may have been
    /// earlier: a wait of many steps overwrites its first ones.
    fn seen_since(&self, sid: Sid, mutex: MutexId) -> Option<(u64, bool)> {
        let is_it = |session: &&SessionInfo| {
            session.wait.is_some_and(|(key, ..)| key.mutex == mutex && !key.event.for_event) && !session.dead
        };
        let found = |waiter: &SessionInfo| {
            let last = self.tables.last_run(waiter.sid);
            // The wait is the last thing that happened to it.
            let runs = (waiter.first_run..=last).rev().map_while(|number| self.tables.event(waiter.sid, number));
            let mut first = None;
            for run in runs.take_while(|run| run.mutex == mutex) {
                let has_begun = run.what == What::Began;
                if self.look.session_behind(run.blocker) == sid {
                    first = Some((run.started_ns, !has_begun));
                }
                if has_begun {
                    break;
                }
            }
            first
        };
        let mut waiters: Vec<&SessionInfo> = self.look.sessions.iter().filter(is_it).collect();
        waiters.sort_by_key(|session| session.wait.map(|(_, since_ns, _)| since_ns));
        let all = waiters.into_iter().take(WITNESSES).filter_map(found);
        all.reduce(|a, b| (a.0.min(b.0), a.1 || b.1))
    }
}
