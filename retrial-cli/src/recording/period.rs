//! What happened to an instance between two snapshots, or since it was created.

use super::snapshot::{Alert, Mutex, Parameter, Session, Snapshot};
use retrial::views::{Key, Sid, TypeId};
use retrial_model::Profile;
use retrial_model::profile::Samples;
use std::collections::{BTreeMap, HashMap};

/// From one snapshot of an instance to a later one.
#[derive(Clone, Copy, Debug)]
pub struct Period<'s> {
    /// Nothing: since the instance was created.
    from: Option<&'s Snapshot>,
    pub to: &'s Snapshot,
}

impl<'s> Period<'s> {
    pub const fn since_creation(to: &'s Snapshot) -> Self {
        Self { from: None, to }
    }

    /// Between two snapshots. When the earlier one is of another instance, which had the name before, since
    /// the creation of this one.
    pub fn between(from: &'s Snapshot, to: &'s Snapshot) -> Self {
        Self { from: Some(from).filter(|from| from.instance == to.instance), to }
    }

    pub const fn from(&self) -> Option<&'s Snapshot> {
        self.from
    }

    /// Its length in s.
    pub fn time_s(&self) -> f64 {
        self.from.map_or_else(
            || self.to.age_s(),
            |from| self.to.at.monotonic_ns.saturating_sub(from.at.monotonic_ns) as f64 / 1e9,
        )
    }

    /// What sessions counted of mutexes, added up by whatever `by` makes of a row: the mutex, the mutex and
    /// the location, the session, or nothing for the whole instance. Without gets, which are not in the rows.
    ///
    /// Sessions that have departed meanwhile are under [`Sid::NONE`] with all that they did in the period.
    pub fn of<K: Ord>(&self, by: impl Fn(Sid, Key) -> Option<K>) -> BTreeMap<K, Profile> {
        self.sums(|sid, key| (!key.event.for_event).then(|| by(sid, key)).flatten())
    }

    /// The same of waits for events: semaphores, barriers and conditions, which nobody holds.
    pub fn of_events<K: Ord>(&self, by: impl Fn(Sid, Key) -> Option<K>) -> BTreeMap<K, Profile> {
        self.sums(|sid, key| key.event.for_event.then(|| by(sid, key)).flatten())
    }

    fn sums<K: Ord>(&self, by: impl Fn(Sid, Key) -> Option<K>) -> BTreeMap<K, Profile> {
        let claimed = claims(self.to);
        let own = |claimed: &HashMap<Sid, u64>, sid: Sid| if claimed.contains_key(&sid) { sid } else { Sid::NONE };
        let mut sums = Profile::of_rows(&self.to.rows, self.time_s(), |sid, key| by(own(&claimed, sid), key));
        let Some(from) = self.from else { return sums };
        // Another session may have the SID of one that has departed.
        let mut staying = claims(from);
        staying.retain(|sid, claimed_ns| claimed.get(sid) == Some(claimed_ns));
        let earlier = Profile::of_rows(&from.rows, 0.0, |sid, key| by(own(&staying, sid), key));
        for (key, profile) in &mut sums {
            if let Some(earlier) = earlier.get(key) {
                *profile = profile.since(earlier);
            }
        }
        sums
    }

    /// Every mutex that is there at the end, with what was counted, got and sampled of it. Not what is waited
    /// for without being held.
    pub fn mutexes(&self) -> Vec<(&'s Mutex, Profile)> {
        let mut counted = self.of(|_, key| Some(key.mutex));
        let held = self.to.mutexes.iter().filter(|mutex| !mutex.is_event);
        held.map(|mutex| (mutex, self.with_gets(mutex, counted.remove(&mutex.info.id)))).collect()
    }

    /// One mutex.
    pub fn mutex(&self, mutex: &Mutex) -> Profile {
        let counted = self.of(|_, key| (key.mutex == mutex.info.id).then_some(()));
        self.with_gets(mutex, counted.into_values().next())
    }

    fn with_gets(&self, mutex: &Mutex, counted: Option<Profile>) -> Profile {
        let profile = counted.unwrap_or_else(|| Profile { time_s: self.time_s(), ..Profile::default() });
        let then = self.from.and_then(|from| from.mutex(mutex.info.id)?.gets).unwrap_or(0);
        let gets = mutex.gets.map(|gets| gets.saturating_sub(then));
        Profile { gets, samples: self.samples(mutex), ..profile }
    }

    /// What an observer saw of a mutex's holders.
    fn samples(&self, mutex: &Mutex) -> Samples {
        let earlier = self.from.and_then(|from| from.mutex(mutex.info.id));
        mutex.samples.since(&earlier.map_or_else(Samples::default, |earlier| earlier.samples))
    }

    /// Every session that is there at the end, with what it counted, and its gets where sessions count them.
    pub fn sessions(&self) -> Vec<(&'s Session, Profile)> {
        let mut counted = self.of(|sid, _| Some(sid));
        let counts =
            |session: &Session| Profile { gets: Some(session.gets).filter(|gets| *gets > 0), ..Profile::default() };
        let of = |session: &'s Session| {
            let info = &session.info;
            let then = self.from.and_then(|from| from.session_begun(info.sid, info.claimed_ns)).map(counts);
            let gets = counts(session).since(&then.unwrap_or_default()).gets;
            (session, Profile { gets, ..counted.remove(&info.sid).unwrap_or_else(|| self.empty()) })
        };
        self.to.sessions.iter().map(of).collect()
    }

    /// All mutexes together, waits for events left out: the utilization is the mean of those that were
    /// sampled, the holding time that of their gets.
    pub fn total(&self) -> Profile {
        let counted = self.of(|_, _| Some(()));
        let mut total = counted.into_values().next().unwrap_or_else(|| self.empty());
        let then = self.from.and_then(Snapshot::gets).unwrap_or(0);
        total.gets = self.to.gets().map(|gets| gets.saturating_sub(then));
        let running = self.to.sessions.iter().filter(|session| !session.info.dead).count();
        total.sessions = u32::try_from(running).ok();
        total.busy = self.busy();
        let held = self.to.mutexes.iter().filter(|mutex| !mutex.is_event);
        total.samples = held.map(|mutex| self.samples(mutex)).fold(Samples::default(), |sum, of| sum.and(&of));
        total
    }

    /// The mutexes of each type together.
    pub fn types(&self) -> BTreeMap<TypeId, Profile> {
        let mut types: BTreeMap<TypeId, Profile> = BTreeMap::new();
        for (mutex, profile) in self.mutexes() {
            types.entry(mutex.info.mutex_type).and_modify(|sum| sum.add(&profile)).or_insert(profile);
        }
        types
    }

    /// Processor time of the threads of the sessions that were there all the time, and their time in run
    /// queues, in s, where the kernel says them.
    pub fn processors(&self) -> Option<(f64, f64)> {
        let from = self.from?;
        let mut sum = None;
        for session in &self.to.sessions {
            let earlier = from.session_begun(session.info.sid, session.info.claimed_ns);
            let Some((then, now)) = earlier.and_then(|then| then.spent.zip(session.spent)) else { continue };
            let (cpu_s, queued_s) = sum.unwrap_or((0.0, 0.0));
            let s = |now: u64, then: u64| now.saturating_sub(then) as f64 / 1e9;
            sum = Some((cpu_s + s(now.cpu_ns, then.cpu_ns), queued_s + s(now.queued_ns, then.queued_ns)));
        }
        sum
    }

    fn empty(&self) -> Profile {
        Profile { time_s: self.time_s(), ..Profile::default() }
    }

    /// Share of the machine's processors that were busy, with anybody's work. Not known since the creation.
    pub fn busy(&self) -> Option<f64> {
        self.to.load.busy_since(&self.from?.load)
    }

    /// Share of the time in which some thread waited for a processor. Not known since the creation.
    pub fn pressed(&self) -> Option<f64> {
        self.to.load.pressed_since(&self.from?.load, self.time_s())
    }

    /// Share of the processors' time that a hypervisor gave to others. Not known since the creation.
    pub fn stolen(&self) -> Option<f64> {
        self.to.load.stolen_since(&self.from?.load)
    }

    /// The value of a parameter at the begin, where that was another one.
    pub fn changed_from(&self, now: &Parameter) -> Option<String> {
        let then = self.from?.params.iter().find(|then| (then.parameter, then.of) == (now.parameter, now.of))?;
        (then.value != now.value).then(|| then.parameter.format(then.value))
    }

    /// The alerts that came in it, oldest first.
    pub fn alerts(&self) -> impl DoubleEndedIterator<Item = &'s Alert> {
        let from_ns = self.from.map_or(0, |from| from.at.real_ns);
        self.to.alerts.iter().filter(move |alert| alert.at_ns >= from_ns)
    }
}

/// The sessions of a snapshot by their SIDs, and when each was claimed. Rows of other SIDs are of sessions
/// that have departed, until the next claim adds them to those of [`Sid::NONE`].
fn claims(snapshot: &Snapshot) -> HashMap<Sid, u64> {
    snapshot.sessions.iter().map(|session| (session.info.sid, session.info.claimed_ns)).collect()
}
