//! What the rules look at: plain data, of a recording or of a live instance.

use crate::blocking::Deadlock;
use crate::output::quoted;
use crate::recording::Period;
use crate::recording::snapshot::{Mutex, Session, Snapshot};
use crate::recording::store::Holder;
use retrial::views::{Counter, LocationId};
use retrial::{Mode, MutexId};
use retrial_model::Profile;

/// Where a period was read from, for the commands to type.
#[derive(Clone, Debug)]
pub enum Source {
    /// A recording, as its name is typed.
    File(String),
    Live,
}

/// A session that others waited for, by samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// With mode and place where these were the same all the time.
    pub holder: Holder,
    pub mutex: MutexId,
    /// Sessions that waited for it, the time of all of them, and the longest time that one wait was kept by
    /// it, in ns.
    pub waiters: u64,
    pub time_ns: u64,
    pub longest_ns: u64,
}

/// A period and what is known of it.
pub struct Evidence<'e> {
    pub period: Period<'e>,
    pub source: Source,
    /// Time of all sessions together in s.
    pub all_s: f64,
    /// Who was waited for longest, longest first, in the time that was sampled.
    pub blockers: Vec<Blocker>,
    /// The period in times of what was sampled: sampled times are to be multiplied by it.
    pub scale: f64,
    pub total: Profile,
    /// Mutexes that were waited for, the longest first.
    pub mutexes: Vec<(&'e Mutex, Profile)>,
    pub deadlocks: Vec<Deadlock>,
}

impl<'e> Evidence<'e> {
    pub fn new(
        period: Period<'e>,
        source: Source,
        all_s: f64,
        blockers: Vec<Blocker>,
        scale: f64,
        deadlocks: Vec<Deadlock>,
    ) -> Self {
        let mut mutexes = period.mutexes();
        let is_waited_for = |mutex: &Mutex| blockers.iter().any(|blocker| blocker.mutex == mutex.info.id);
        mutexes.retain(|(mutex, profile)| profile.registered_s() > 0.0 || is_waited_for(mutex));
        mutexes.sort_by(|(_, a), (_, b)| b.registered_s().total_cmp(&a.registered_s()));
        Self { total: period.total(), mutexes, deadlocks, period, source, all_s, blockers, scale }
    }

    pub const fn to(&self) -> &'e Snapshot {
        self.period.to
    }

    pub fn mutex(&self, id: MutexId) -> Option<&(&'e Mutex, Profile)> {
        self.mutexes.iter().find(|(mutex, _)| mutex.info.id == id)
    }

    /// A command on the instance.
    pub fn on_instance(&self, command: &str) -> String {
        format!("retrial {command} -i {}", quoted(&self.to().instance.name))
    }

    /// Who waits for whom: now, or in a recording.
    pub fn who(&self, mutex: Option<&Mutex>) -> String {
        match (&self.source, mutex) {
            (Source::Live, Some(mutex)) => self.on_mutex("who", mutex),
            (Source::Live, None) => self.on_instance("who"),
            (Source::File(_), Some(mutex)) => {
                let condition = quoted(&format!("mutex_id = {}", mutex.info.id.0)).into_owned();
                self.ash(&format!("--waiters --where {condition} --by blocker,holder_location,session,location"))
            }
            (Source::File(_), None) => self.ash("--waiters --by session,mutex,blocker,holder_location"),
        }
    }

    /// Advice is measured anew, which a recording's instance may not be there for: of a file, its samples.
    pub fn advise(&self, mutex: &Mutex) -> String {
        match self.source {
            Source::Live => self.on_mutex("advise", mutex),
            Source::File(_) => self.who(Some(mutex)),
        }
    }

    /// A command about one of its mutexes.
    pub fn on_mutex(&self, command: &str, mutex: &Mutex) -> String {
        let name = if mutex.name.is_empty() { format!("#{}", mutex.info.id.0) } else { mutex.name.clone() };
        format!("{} --mutex {}", self.on_instance(command), quoted(&name))
    }

    /// Groups of the samples of this period.
    pub fn ash(&self, arguments: &str) -> String {
        match &self.source {
            Source::File(file) => format!("retrial ash {file} -i {} {arguments}", quoted(&self.to().instance.name)),
            Source::Live => format!("{} {arguments}", self.on_instance("ash")),
        }
    }

    /// Time in s that sessions have waited for a mutex: as it was counted, or with first spins as it was
    /// sampled.
    pub fn waited_s(&self, mutex: MutexId) -> f64 {
        let counted_s = self.mutex(mutex).map_or(0.0, |(_, profile)| profile.registered_s());
        let of_mutex = self.blockers.iter().filter(|blocker| blocker.mutex == mutex);
        let sampled_ns: u64 = of_mutex.map(|blocker| blocker.time_ns).sum();
        counted_s.max(sampled_ns as f64 / 1e9 * self.scale)
    }

    /// How something is held, and where: ` in X at place`.
    pub fn held_text(&self, mode: Option<Mode>, location: Option<LocationId>) -> String {
        let mode = mode.map_or_else(String::new, |mode| format!(" in {}", mode.name()));
        mode + &location.map_or_else(String::new, |at| format!(" at {}", self.to().place(at)))
    }

    /// A holder for people: number, name, process; also of a session that has ended meanwhile.
    pub fn holder_text(&self, holder: &Holder) -> String {
        let before = || self.period.from().and_then(|from| holder.session(from));
        match (holder.session(self.to()), before()) {
            (Some(session), _) => session_text(session),
            (None, _) if holder.pid == 0 => format!("session {}", holder.sid),
            (None, Some(ended)) if !ended.info.name.is_empty() => {
                format!("session {} ({}, pid {}, has ended)", holder.sid, ended.info.name, holder.pid)
            }
            (None, _) => format!("session {} (pid {}, has ended)", holder.sid, holder.pid),
        }
    }

    /// Waits of a period at each place: the place, its waits and their time in s, longest first.
    pub fn places(&self) -> Vec<(LocationId, u64, f64)> {
        let of = self.period.of(|_, key| Some(key.location));
        let mut places: Vec<_> = of
            .into_iter()
            .map(|(location, profile)| (location, profile.figures.get(Counter::Waits), profile.registered_s()))
            .filter(|(_, _, s)| *s > 0.0)
            .collect();
        places.sort_by(|a, b| b.2.total_cmp(&a.2));
        places
    }
}

/// A session for people: number, name, process.
pub fn session_text(session: &Session) -> String {
    let info = &session.info;
    let name = if info.name.is_empty() { String::new() } else { format!("{}, ", info.name) };
    format!("session {} ({name}pid {})", info.sid, info.pid)
}
