//! What the rules look at: plain data, of a recording or of a live instance.

use crate::blocking::Deadlock;
use crate::output::quoted;
use crate::recording::snapshot::{Mutex, Snapshot};
use crate::recording::{Period, deadlocks::deadlocks};
use retrial::views::{Counter, LocationId, Sid};
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
    pub sid: Sid,
    pub mutex: MutexId,
    /// Where it got it, if that was the same place all the time.
    pub location: Option<LocationId>,
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
    /// Processor time of the sessions' threads, and their time in run queues, in s, where the kernel says
    /// them.
    pub processors: Option<(f64, f64)>,
}

impl<'e> Evidence<'e> {
    pub fn new(period: Period<'e>, source: Source, all_s: f64, blockers: Vec<Blocker>, scale: f64) -> Self {
        let mut mutexes = period.mutexes();
        mutexes.retain(|(_, profile)| profile.registered_s() > 0.0);
        mutexes.sort_by(|(_, a), (_, b)| b.registered_s().total_cmp(&a.registered_s()));
        Self {
            total: period.total(),
            mutexes,
            deadlocks: deadlocks(period.to),
            processors: processors(period),
            period,
            source,
            all_s,
            blockers,
            scale,
        }
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

    /// Time in s that sessions have waited for a mutex.
    pub fn waited_s(&self, mutex: MutexId) -> f64 {
        self.mutex(mutex).map_or(0.0, |(_, profile)| profile.registered_s())
    }

    /// What a session has, and where: ` in X at place`.
    pub fn held_text(&self, sid: Sid, mutex: MutexId, location: Option<LocationId>) -> String {
        let held = self.to().session(sid).and_then(|session| session.holds.iter().find(|held| held.mutex == mutex));
        let mode = held.map_or_else(String::new, |held| format!(" in {}", Mode::name(held.mode)));
        let place = held.and_then(|held| held.location).or(location);
        mode + &place.map_or_else(String::new, |at| format!(" at {}", self.to().place(at)))
    }

    /// A session for people: number, name, process.
    pub fn session_text(&self, sid: Sid) -> String {
        match self.to().session(sid) {
            Some(session) if !session.info.name.is_empty() => {
                format!("session {sid} ({}, pid {})", session.info.name, session.info.pid)
            }
            Some(session) => format!("session {sid} (pid {})", session.info.pid),
            None => format!("session {sid}"),
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

/// Growth of the processor time and of the time in run queues of the sessions that were there all the time.
fn processors(period: Period<'_>) -> Option<(f64, f64)> {
    let from = period.from()?;
    let mut sum = None;
    for session in &period.to.sessions {
        let earlier = from.session(session.info.sid).filter(|then| then.info.claimed_ns == session.info.claimed_ns);
        let Some((then, now)) = earlier.and_then(|then| then.spent.zip(session.spent)) else { continue };
        let (cpu_s, queued_s) = sum.unwrap_or((0.0, 0.0));
        let s = |now: u64, then: u64| now.saturating_sub(then) as f64 / 1e9;
        sum = Some((cpu_s + s(now.cpu_ns, then.cpu_ns), queued_s + s(now.queued_ns, then.queued_ns)));
    }
    sum
}
