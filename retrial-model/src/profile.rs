//! What was counted, timed and sampled over an interval: one type for mutex, simulator, bench and recordings.
//!
//! The mutex's statistics ([`Profile::of`]), the simulator, the bench and recordings fill it. Everything in
//! it is a sum over the interval, so that parts of a whole add up and two snapshots have a difference. What
//! follows from the sums is in
//! [`Measure`](crate::Measure) alone.

use retrial::sys::{Clock, clock_ns};
use retrial::views::{Counter, Figures, Key, MutexInfo, Sid, Tables};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A mutex, a mutex at a location, a session or an instance over an interval. What could not be seen is
/// absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    /// Length of the interval in s.
    pub time_s: f64,
    /// Gets. They are counted by mutex and by session, not by location.
    pub gets: Option<u64>,
    /// Gets of all mutexes of the same type.
    pub gets_of_type: Option<u64>,
    /// Gets of each session, where all of them are known.
    pub gets_by_session: Vec<u64>,
    /// Sessions seen at the mutex: with it, waiting for it, or missing it.
    pub sessions: Option<u32>,
    /// The counters of the library.
    #[serde(with = "by_name")]
    pub figures: Figures,
    /// Who held it.
    pub samples: Samples,
    /// Part of the time in s in which it was held according to the samples, in which its holder was in a run
    /// queue.
    pub held_queued_s: Option<f64>,
    /// Time from requests to gets in s, summed over the sessions: the part of it within the interval, also of
    /// waits under way.
    pub waiting_s: Option<f64>,
    /// The same of the gets within the interval, from their requests on.
    pub waited_s: Option<f64>,
    /// Times from request to get in s.
    pub waits: Option<Waits>,
    /// Processor time of the sessions in s, all they do included.
    pub cpu_s: Option<f64>,
    /// Part of it spent spinning, where that is known.
    pub spin_cpu_s: Option<f64>,
    /// Part of it spent in nothing but waiting: spins, and yields while no other session was ready.
    pub waiting_cpu_s: Option<f64>,
    /// Time of the sessions in run queues in s.
    pub queued_s: Option<f64>,
    /// Time in s in which sessions were asleep, and neither held nor wanted a mutex, summed over them.
    pub away_s: Option<f64>,
    /// Processors that the sessions may use.
    pub processors: Option<f64>,
    /// Share of these, or of the machine's, that was busy, with the work of any process.
    pub busy: Option<f64>,
    /// Processor time in s that others took on these; the observer is none of them.
    pub others_s: Option<f64>,
}

/// What an observer saw of the holders. All 0: there was no observer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Samples {
    /// Looks at the holder, and looks that found one. 0 where every hold was timed, as in the simulator.
    pub looks: u64,
    /// Looks that found a holder.
    pub held: u64,
    /// Time in s that the looks stand for, once for each mutex.
    pub time_s: f64,
    /// Part of that time in which the mutex was held.
    pub held_s: f64,
    /// Gets in that time.
    pub gets: u64,
}

/// Times from request to get in s that this share of the gets does not exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waits {
    /// Half of the gets.
    pub p50_s: f64,
    /// 99 of 100.
    pub p99_s: f64,
    /// 999 of 1000.
    pub p999_s: f64,
    /// All of them.
    pub max_s: f64,
}

/// The parts that the time of a registered wait adds up from.
pub const WAIT_PARTS: [Counter; 4] = [Counter::SpinNs, Counter::YieldNs, Counter::SleptNs, Counter::OverNs];

impl Profile {
    /// What the sessions of an instance have counted since it was created, added up by whatever `by` makes of
    /// a row: the mutex, the mutex and the location, the session, or nothing for the whole instance. Gets are
    /// not in the rows: see [`Self::of_mutex`] and `Tables::session_gets`.
    pub fn of<K: Ord>(tables: &Tables, by: impl Fn(Sid, Key) -> Option<K>) -> BTreeMap<K, Self> {
        Self::of_rows(&tables.figures(), age_s(tables), by)
    }

    /// The same of waits for events: semaphores, barriers and conditions, which nobody holds. They have waits
    /// and their time only.
    pub fn of_events<K: Ord>(tables: &Tables, by: impl Fn(Sid, Key) -> Option<K>) -> BTreeMap<K, Self> {
        Self::of_rows(&tables.event_figures(), age_s(tables), by)
    }

    /// The same of rows that were read before, which have counted for `time_s`.
    pub fn of_rows<K: Ord>(
        rows: &[(Sid, Key, Figures)],
        time_s: f64,
        by: impl Fn(Sid, Key) -> Option<K>,
    ) -> BTreeMap<K, Self> {
        let mut profiles: BTreeMap<K, Self> = BTreeMap::new();
        for (sid, key, figures) in rows {
            if let Some(key) = by(*sid, *key) {
                profiles.entry(key).or_insert_with(|| Self { time_s, ..Self::default() }).figures.add(figures);
            }
        }
        profiles
    }

    /// The same of one mutex with its gets, where its record can be read or its entry has them. `rows`: what
    /// [`Self::of`] gave.
    #[must_use]
    pub fn of_mutex(tables: &Tables, mutex: &MutexInfo, rows: Option<&Self>) -> Self {
        let gets = tables.mutex_state(mutex.id).map_or(mutex.gets, |state| Some(state.gets));
        Self { gets, ..rows.cloned().unwrap_or_else(|| Self { time_s: age_s(tables), ..Self::default() }) }
    }

    /// Growth since an earlier snapshot of the same. The longest wait is known where the earlier one had none as long;
    /// quantiles have no difference.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |now: Option<f64>, then: Option<f64>| Some((now? - then.unwrap_or(0.0)).max(0.0));
        let fewer = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then.unwrap_or(0)));
        let then = |i: usize| earlier.gets_by_session.get(i).copied().unwrap_or(0);
        Self {
            time_s: self.time_s - earlier.time_s,
            gets: fewer(self.gets, earlier.gets),
            gets_of_type: fewer(self.gets_of_type, earlier.gets_of_type),
            gets_by_session: self
                .gets_by_session
                .iter()
                .enumerate()
                .map(|(i, now)| now.saturating_sub(then(i)))
                .collect(),
            sessions: self.sessions,
            figures: {
                let mut growth = self.figures.since(&earlier.figures);
                let longest = &mut growth.counters[Counter::MaxNs as usize];
                *longest = if *longest > earlier.figures.get(Counter::MaxNs) { *longest } else { 0 };
                growth
            },
            samples: self.samples.since(&earlier.samples),
            held_queued_s: less(self.held_queued_s, earlier.held_queued_s),
            waiting_s: less(self.waiting_s, earlier.waiting_s),
            waited_s: less(self.waited_s, earlier.waited_s),
            waits: None,
            cpu_s: less(self.cpu_s, earlier.cpu_s),
            spin_cpu_s: less(self.spin_cpu_s, earlier.spin_cpu_s),
            waiting_cpu_s: less(self.waiting_cpu_s, earlier.waiting_cpu_s),
            queued_s: less(self.queued_s, earlier.queued_s),
            away_s: less(self.away_s, earlier.away_s),
            processors: self.processors,
            busy: self.busy,
            others_s: less(self.others_s, earlier.others_s),
        }
    }

    /// Adds another mutex, location or session of the same interval. Sums with a part that is not known are
    /// not known; the same sessions may be at both, so their number and their processor time are not sums.
    pub fn add(&mut self, other: &Self) {
        *self = Self {
            time_s: self.time_s.max(other.time_s),
            gets: self.gets.zip(other.gets).map(|(a, b)| a + b),
            figures: {
                self.figures.add(&other.figures);
                self.figures
            },
            samples: self.samples.and(&other.samples),
            waiting_s: self.waiting_s.zip(other.waiting_s).map(|(a, b)| a + b),
            waited_s: self.waited_s.zip(other.waited_s).map(|(a, b)| a + b),
            processors: self.processors.or(other.processors),
            busy: self.busy.or(other.busy),
            others_s: self.others_s.or(other.others_s),
            ..Self::default()
        };
    }

    /// All parts of a whole together, as [`Self::add`] says; nothing of nothing.
    pub fn sum<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let add = |mut sum: Self, part: Self| {
            sum.add(&part);
            sum
        };
        parts.into_iter().cloned().reduce(add).unwrap_or_default()
    }

    /// The value of a counter.
    #[must_use]
    pub fn count(&self, counter: Counter) -> f64 {
        self.figures.get(counter) as f64
    }

    /// Steps that left the processor, as the sources count sleeps.
    #[must_use]
    pub fn sleeps(&self) -> f64 {
        self.figures.sleeps() as f64
    }

    /// Spins that failed: each is followed by a step that leaves the processor, or by giving up.
    #[must_use]
    pub fn failed(&self) -> f64 {
        self.sleeps() + self.count(Counter::GaveUp)
    }

    /// Tries that found the mutex busy: one whose spin failed is one, also if its first look found the mutex
    /// free and it lost the race.
    #[must_use]
    pub fn busy_tries(&self) -> f64 {
        self.count(Counter::Busy).max(self.failed())
    }

    /// First requests: gets, and waits that gave up. A miss is one, too, also while its wait is under way.
    #[must_use]
    pub fn requests(&self) -> Option<f64> {
        Some((self.gets? as f64 + self.count(Counter::GaveUp)).max(self.count(Counter::Misses)))
    }

    /// Time of all registered waits in s, from their first failed spin on; waits under way are in it.
    #[must_use]
    pub fn registered_s(&self) -> f64 {
        WAIT_PARTS.iter().map(|part| self.count(*part)).sum::<f64>() / 1e9
    }

    /// Time of first spins in s, also of those that end with the mutex, which no counter has.
    #[must_use]
    pub fn first_spins_s(&self) -> Option<f64> {
        self.waiting_s.map(|waiting| (waiting - self.registered_s()).max(0.0))
    }

    /// Share of the time in which a session that could run did: the others were in its processor's queue.
    /// Yields and late wake-ups, which are part of the waits, do not count.
    #[must_use]
    pub fn running(&self) -> f64 {
        let (Some(cpu_s), Some(queued_s)) = (self.cpu_s, self.queued_s) else { return 1.0 };
        let waits_s = (self.count(Counter::YieldNs) + self.count(Counter::OverNs)) / 1e9;
        let queued_s = (queued_s - waits_s).max(0.0);
        if cpu_s > 0.0 { cpu_s / (cpu_s + queued_s) } else { 1.0 }
    }

    /// Processor time of spins in s: where it was not measured, by the time in spins and the share of it that
    /// was not run queue; at least so much where first spins are not known.
    #[must_use]
    pub fn spins_s(&self) -> Option<f64> {
        self.spin_cpu_s.or_else(|| {
            let spins_s = self.first_spins_s().unwrap_or(0.0) + self.count(Counter::SpinNs) / 1e9;
            Some((spins_s * self.running()).min(self.cpu_s?))
        })
    }
}

impl Samples {
    /// So many looks over an interval with so many gets.
    #[must_use]
    pub fn over(looks: u64, held: u64, time_s: f64, gets: u64) -> Self {
        if looks == 0 {
            return Self::default();
        }
        Self { looks, held, time_s, held_s: time_s * held as f64 / looks as f64, gets }
    }

    /// What was seen since an earlier snapshot of the same.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            looks: self.looks.saturating_sub(earlier.looks),
            held: self.held.saturating_sub(earlier.held),
            time_s: (self.time_s - earlier.time_s).max(0.0),
            held_s: (self.held_s - earlier.held_s).max(0.0),
            gets: self.gets.saturating_sub(earlier.gets),
        }
    }

    /// Both together.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            looks: self.looks + other.looks,
            held: self.held + other.held,
            time_s: self.time_s + other.time_s,
            held_s: self.held_s + other.held_s,
            gets: self.gets + other.gets,
        }
    }
}

/// Time in s since an instance was created.
fn age_s(tables: &Tables) -> f64 {
    clock_ns(Clock::Realtime).saturating_sub(tables.created_ns()) as f64 / 1e9
}

/// Counters as a map from their names; of the waits by their length those that there are.
mod by_name {
    use retrial::views::{BUCKETS, Counter, Figures, Histogram};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::collections::BTreeMap;

    pub(super) fn serialize<S: Serializer>(figures: &Figures, serializer: S) -> Result<S::Ok, S::Error> {
        let counters = Counter::NAMES.iter().map(|name| (*name).to_owned()).zip(figures.counters);
        let lengths = figures.lengths.0.into_iter().enumerate().filter(|(_, count)| *count > 0);
        serializer.collect_map(counters.chain(lengths.map(|(bucket, count)| (of_bucket(bucket), count))))
    }

    fn of_bucket(bucket: usize) -> String {
        Histogram::end_us(bucket).map_or_else(|| "waits_longer".to_owned(), |end| format!("waits_below_{end}_us"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Figures, D::Error> {
        let mut figures = Figures::default();
        for (name, value) in BTreeMap::<String, u64>::deserialize(deserializer)? {
            if let Some(bucket) = (0..BUCKETS).find(|bucket| of_bucket(*bucket) == name) {
                figures.lengths.0[bucket] = value;
                continue;
            }
            let position = Counter::NAMES.iter().position(|known| *known == name);
            let position = position.ok_or_else(|| {
                D::Error::custom(format!("counter `{name}`, expected one of {}", Counter::NAMES.join(", ")))
            })?;
            figures.counters[position] = value;
        }
        Ok(figures)
    }
}
