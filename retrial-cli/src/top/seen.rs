//! What is drawn: an instance over a period, with profiles by mutex and session, and the tree of who waits
//! for whom.

use crate::recording::{Mutex, Session, Snapshot, Span, State, deadlocks};
use crate::who::thread::Thread;
use crate::who::tree::{Tree, Wait};
use retrial::MutexId;
use retrial::views::Sid;
use retrial_model::Profile;
use std::collections::HashMap;

/// An instance over a period.
#[derive(Default)]
pub struct Seen {
    pub span: Span,
    /// All mutexes together.
    pub total: Profile,
    /// What was counted of each mutex of the later snapshot, in its order; what is waited for without being
    /// held, too.
    pub mutexes: Vec<Profile>,
    /// The same of each session.
    pub sessions: Vec<Profile>,
    pub tree: Tree,
    /// Sessions that wait for a mutex.
    pub waiters: HashMap<MutexId, u32>,
    /// Share of a processor that this program took since it looked before.
    pub cost: Option<f64>,
    /// What the kernel says of the session that was asked about.
    pub thread: Option<(Sid, Thread)>,
}

/// A mutex, or something else that is waited for, for a column.
#[derive(Clone, Copy)]
pub struct MutexRow<'s> {
    pub to: &'s Snapshot,
    pub mutex: &'s Mutex,
    pub profile: &'s Profile,
    pub waiters: u32,
}

/// A session, for a column.
#[derive(Clone, Copy)]
pub struct SessionRow<'s> {
    pub to: &'s Snapshot,
    pub session: &'s Session,
    pub profile: &'s Profile,
}

impl Seen {
    pub fn new(span: Span, cost: Option<f64>) -> Self {
        let period = span.period();
        let to = &span.to;
        let mut awaited = period.of_events(|_, key| Some(key.mutex));
        let mut held = period.mutexes().into_iter();
        let of = |mutex: &Mutex| {
            if mutex.is_event {
                awaited
                    .remove(&mutex.info.id)
                    .unwrap_or_else(|| Profile { time_s: period.time_s(), ..Profile::default() })
            } else {
                // The same mutexes in the same order.
                held.next().map(|(_, profile)| profile).unwrap_or_default()
            }
        };
        let mutexes = to.mutexes.iter().map(of).collect();
        let sessions = period.sessions().into_iter().map(|(_, profile)| profile).collect();
        let mut waiters: HashMap<MutexId, u32> = HashMap::new();
        for session in to.sessions.iter().filter(|session| session.state != State::Dead) {
            if let Some((key, ..)) = session.info.wait {
                *waiters.entry(key.mutex).or_default() += 1;
            }
        }
        let (total, tree) = (period.total(), tree(to));
        Self { span, total, mutexes, sessions, tree, waiters, cost, thread: None }
    }

    pub const fn to(&self) -> &Snapshot {
        &self.span.to
    }

    pub fn mutex_row(&self, position: usize) -> MutexRow<'_> {
        let mutex = &self.to().mutexes[position];
        let waiters = self.waiters.get(&mutex.info.id).copied().unwrap_or(0);
        MutexRow { to: self.to(), mutex, profile: &self.mutexes[position], waiters }
    }

    pub fn session_row(&self, position: usize) -> SessionRow<'_> {
        let session = &self.to().sessions[position];
        SessionRow { to: self.to(), session, profile: &self.sessions[position] }
    }

    pub fn mutex(&self, id: MutexId) -> Option<MutexRow<'_>> {
        let position = self.to().mutexes.binary_search_by_key(&id, |mutex| mutex.info.id).ok()?;
        Some(self.mutex_row(position))
    }

    pub fn session(&self, sid: Sid) -> Option<SessionRow<'_>> {
        let position = self.to().sessions.binary_search_by_key(&sid, |session| session.info.sid).ok()?;
        Some(self.session_row(position))
    }
}

/// The tree of the waits of a snapshot.
fn tree(to: &Snapshot) -> Tree {
    let waits = to.sessions.iter().filter(|session| session.state != State::Dead).filter_map(|session| {
        let (key, since_ns, _) = session.info.wait.filter(|(key, ..)| !key.event.for_event)?;
        let holders: Vec<Sid> = session.blockers.iter().map(|(sid, _)| *sid).collect();
        Some(Wait { sid: session.info.sid, mutex: key.mutex, since_ns, holders })
    });
    let rings = deadlocks(to).into_iter().flat_map(|found| found.links);
    let rings = rings.map(|link| (link.sid, link.holder)).collect();
    Tree::new(waits.collect(), &rings)
}
