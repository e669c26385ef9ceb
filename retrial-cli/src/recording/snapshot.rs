//! One moment of an instance as plain data.

use super::state::{Load, Spent};
use crate::blocking::held_text;
use crate::naming;
use retrial::views::{Figures, Key, LocationId, MutexInfo, PastSleep, SessionInfo, Sid, Tables, TypeId, WaitEvent};
use retrial::{Capacity, Mode, MutexId, P, wait};
use retrial_model::profile::Samples;
use std::collections::BTreeMap;

/// When something was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// By the real-time clock, in ns.
    pub real_ns: u64,
    /// By the monotonic clock, by which waits begin, in ns.
    pub monotonic_ns: u64,
}

/// Which instance. One that went away and came back under the same name is another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// As the user says it: a name, or a path.
    pub name: String,
    /// When it was created, by the real-time clock, in ns.
    pub created_ns: u64,
    /// Device and inode of its file; 0 where it has none any more.
    pub device: u64,
    pub inode: u64,
}

/// An instance at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    pub at: Moment,
    pub instance: Identity,
    /// Not read back: the default in a snapshot that was read from a recording.
    pub capacity: Capacity,
    /// By SID.
    pub sessions: Vec<Session>,
    /// By number; semaphores, barriers and conditions too, which are waited for without being held.
    pub mutexes: Vec<Mutex>,
    pub types: BTreeMap<TypeId, String>,
    /// What places in the code are called, functions and lines where the program's files say them.
    pub places: BTreeMap<LocationId, String>,
    /// What each session has counted of each mutex, place and event since the instance was created, waits
    /// under way up to now; that of departed sessions under [`Sid::NONE`].
    pub rows: Vec<(Sid, Key, Figures)>,
    /// The values in force of the instance, and of each type those that it has of its own.
    pub params: Vec<Parameter>,
    /// The alerts that the instance still has, oldest first.
    pub alerts: Vec<Alert>,
    /// The last sleep for each pair of mutex and blocking session.
    pub history: Vec<PastSleep>,
    /// Deaths of holders so far.
    pub recoveries: u64,
    /// Gets that sessions have counted rather than mutexes, as those under `retrial run` do, with those of
    /// departed ones.
    pub session_gets: u64,
    pub load: Load,
}

/// A session, what it holds and what keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    pub info: SessionInfo,
    pub state: State,
    pub holds: Vec<Held>,
    /// While it waits: the holders of what it waits for, and their modes where they are known.
    pub blockers: Vec<(Sid, Option<Mode>)>,
    /// Gets that it has counted itself, as sessions under `retrial run` do.
    pub gets: u64,
    /// What its thread has spent, where the kernel says it.
    pub spent: Option<Spent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    Waiting,
    /// Waits in a ring of sessions that wait for each other.
    Deadlocked,
    Dead,
}

impl State {
    pub const ALL: [Self; 4] = [Self::Running, Self::Waiting, Self::Deadlocked, Self::Dead];

    /// Of a session; one that waits for an event waits, too.
    pub const fn of(session: &SessionInfo, is_deadlocked: bool) -> Self {
        match session.wait {
            _ if session.dead => Self::Dead,
            _ if is_deadlocked => Self::Deadlocked,
            Some(_) => Self::Waiting,
            None => Self::Running,
        }
    }

    /// As the views show it.
    pub const fn name(self) -> &'static str {
        ["running", "waiting", "DEADLOCK", "DEAD"][self as usize]
    }
}

/// What a session holds, and where it got it, which sessions under `retrial run` do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub mutex: MutexId,
    pub mode: Mode,
    pub location: Option<LocationId>,
}

/// A mutex, or something else that is waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct Mutex {
    pub info: MutexInfo,
    /// Its name, or that of the static variable which it is; empty where neither is known.
    pub name: String,
    /// Whether it is waited for without being held: a semaphore, a barrier, a condition.
    pub is_event: bool,
    /// Gets so far, where they are counted and can be read.
    pub gets: Option<u64>,
    /// Its word for people; empty where it cannot be read.
    pub word: String,
    pub is_poisoned: bool,
    /// Sessions parked, where that is known.
    pub parked: Option<u32>,
    pub holders: Vec<(Sid, Mode)>,
    /// What an observer has seen of its holders since it began to look; nothing where nobody looks again and
    /// again.
    pub samples: Samples,
}

impl Mutex {
    /// What commands take it by, and what it is: `accounts`, `#7 lock (memcached)`, `#7`.
    pub fn label(&self) -> String {
        naming::label(self.info.id, &self.name, self.info.place)
    }
}

/// A parameter in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub parameter: P,
    /// Of this type's own, or of the instance.
    pub of: Option<TypeId>,
    pub value: u64,
    /// Whether somebody has set it; else it is the default.
    pub is_set: bool,
}

/// A line of the alert log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// From 1.
    pub number: u64,
    /// By the real-time clock, in ns.
    pub at_ns: u64,
    pub text: String,
}

/// The class of a wait event.
pub const fn wait_class(event: WaitEvent) -> &'static str {
    if event.for_event { "Event" } else { "Concurrency" }
}

impl Snapshot {
    /// One snapshot of an instance. Those who take several use a [`Taker`](super::Taker), which looks names
    /// up once.
    pub fn of(tables: &Tables) -> Self {
        super::Taker::new(tables).snapshot()
    }

    /// Time since the instance was created, in s.
    pub fn age_s(&self) -> f64 {
        self.at.real_ns.saturating_sub(self.instance.created_ns) as f64 / 1e9
    }

    /// What a session holds, for people: `m X, n S`.
    pub fn held_text(&self, session: &Session) -> String {
        held_text(session.holds.iter().map(|held| (held.mutex, held.mode)), |mutex| self.mutex_label(mutex))
    }

    pub fn session(&self, sid: Sid) -> Option<&Session> {
        let position = self.sessions.binary_search_by_key(&sid, |session| session.info.sid).ok()?;
        Some(&self.sessions[position])
    }

    /// The session of this SID, if it is the one that began then: successive sessions have one SID.
    pub fn session_begun(&self, sid: Sid, claimed_ns: u64) -> Option<&Session> {
        self.session(sid).filter(|session| session.info.claimed_ns == claimed_ns)
    }

    pub fn mutex(&self, id: MutexId) -> Option<&Mutex> {
        let position = self.mutexes.binary_search_by_key(&id, |mutex| mutex.info.id).ok()?;
        Some(&self.mutexes[position])
    }

    /// What a mutex is called; also one that is gone, by its number.
    pub fn mutex_label(&self, id: MutexId) -> String {
        self.mutex(id).map_or_else(|| format!("#{}", id.0), Mutex::label)
    }

    pub fn type_name(&self, mutex_type: TypeId) -> &str {
        self.types.get(&mutex_type).map_or("", String::as_str)
    }

    /// The same; `unknown` where the row was shared by several mutexes, or the mutex is gone.
    pub fn maybe_type(&self, mutex_type: Option<TypeId>) -> &str {
        mutex_type.map_or("unknown", |mutex_type| self.type_name(mutex_type))
    }

    /// The type of a mutex; `None` of one that is gone, and of what found no row of its own.
    pub fn type_of(&self, mutex: MutexId) -> Option<TypeId> {
        self.mutex(mutex).map(|mutex| mutex.info.mutex_type)
    }

    /// What that type is called.
    pub fn type_name_of(&self, mutex: MutexId) -> &str {
        self.maybe_type(self.type_of(mutex))
    }

    pub fn place(&self, location: LocationId) -> &str {
        self.places.get(&location).map_or("unknown", String::as_str)
    }

    /// The name of a wait event.
    pub fn event_name(&self, key: Key) -> String {
        key.event.name(self.type_name_of(key.mutex))
    }

    /// The value in force of a parameter, for a type or the instance.
    pub fn param(&self, p: P, of: Option<TypeId>) -> u64 {
        let find = |of| self.params.iter().find(|row| row.parameter == p && row.of == of);
        of.and_then(|_| find(of)).or_else(|| find(None)).map_or(p.row().default, |row| row.value)
    }

    /// How sessions wait for a mutex; under `adaptive` with the type in use.
    pub fn scheme(&self, mutex: &Mutex) -> String {
        wait::shown(self.param(P::Scheme, Some(mutex.info.mutex_type)), mutex.info.pthread_in_use)
    }

    /// Gets of all mutexes; `None` where those of some are not known.
    pub fn gets(&self) -> Option<u64> {
        if self.session_gets > 0 {
            return Some(self.session_gets);
        }
        self.mutexes.iter().filter(|mutex| !mutex.is_event).map(|mutex| mutex.gets).sum()
    }
}
