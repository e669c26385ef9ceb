//! What was measured of a mutex over an interval, and the figures that follow from it.

use retrial::views::{Counter, Figures};
use serde::{Deserialize, Serialize};

/// A mutex over an interval. What could not be seen is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    pub interval_s: f64,
    /// Sessions seen at the mutex: with it, waiting for it, or missing it.
    pub sessions: Option<u32>,
    pub gets: u64,
    #[serde(with = "by_name")]
    pub figures: Figures,
    /// Share of the samples with a holder, and how many there were.
    pub utilization: Option<f64>,
    pub samples: u64,
    /// Mean number of sessions between their request and their get.
    pub waiting: Option<f64>,
    /// Processor time of these sessions, all they do included, and their time in run queues.
    pub cpu_s: Option<f64>,
    pub queued_s: Option<f64>,
    /// Share of the machine's processors that were busy, with anybody's work.
    pub busy: Option<f64>,
    /// Share of the gets of all mutexes of the type that were of this one.
    pub share_of_type: f64,
}

impl Measured {
    pub fn count(&self, counter: Counter) -> f64 {
        self.figures.get(counter) as f64
    }

    /// λ.
    pub fn gets_per_s(&self) -> f64 {
        self.gets as f64 / self.interval_s
    }

    /// ρ.
    pub fn miss_ratio(&self) -> f64 {
        ratio(self.count(Counter::Misses), self.gets as f64)
    }

    /// Share of the time that the mutex is held: sampled, or what arrivals saw.
    pub fn utilization(&self) -> f64 {
        self.utilization.unwrap_or_else(|| self.miss_ratio())
    }

    /// S in s, as far as it is known from the utilization, and whether it is an upper bound: no sample of n found the mutex held, and the
    /// utilization is below 3/n at 95 %.
    pub fn hold_s(&self) -> (f64, bool) {
        let utilization = self.utilization();
        if utilization > 0.0 || self.samples == 0 {
            return (ratio(utilization, self.gets_per_s()), false);
        }
        (ratio(3.0 / self.samples as f64, self.gets_per_s()), true)
    }

    /// Spins that failed.
    pub fn failed(&self) -> f64 {
        self.figures.sleeps() as f64 + self.count(Counter::GaveUp)
    }

    /// k, counted; `None` where nothing was found busy.
    pub fn spin_inefficiency(&self) -> Option<f64> {
        let busy = self.count(Counter::Busy);
        (busy > 0.0).then(|| self.failed() / busy)
    }

    /// κ.
    pub fn sleep_ratio(&self) -> Option<f64> {
        let misses = self.count(Counter::Misses);
        (misses > 0.0).then(|| self.figures.sleeps() as f64 / misses)
    }

    pub fn sleeps_per_s(&self) -> f64 {
        self.figures.sleeps() as f64 / self.interval_s
    }

    /// Time of all waits from their first failed spin on, in s. Waits under way are in it.
    pub fn registered_s(&self) -> f64 {
        let parts = [Counter::SpinNs, Counter::YieldNs, Counter::SleptNs, Counter::OverNs];
        parts.iter().map(|part| self.count(*part)).sum::<f64>() / 1e9
    }

    /// W in s, by Little's law; where nobody has counted who waits, without first spins.
    pub fn wait_s(&self) -> f64 {
        let all_s = self.waiting.map_or(0.0, |waiting| waiting * self.interval_s);
        ratio(all_s.max(self.registered_s()), self.gets as f64)
    }

    /// Time of first spins in s, also of those that end with the mutex, which no counter has.
    pub fn first_spins_s(&self) -> Option<f64> {
        self.waiting.map(|waiting| (waiting * self.interval_s - self.registered_s()).max(0.0))
    }

    /// Share of the time in which a session that could run did: the others were in its processor's queue. Yields and late wake-ups,
    /// which are part of the waits, do not count.
    pub fn running(&self) -> f64 {
        let (Some(cpu_s), Some(queued_s)) = (self.cpu_s, self.queued_s) else { return 1.0 };
        let waits_s = (self.count(Counter::YieldNs) + self.count(Counter::OverNs)) / 1e9;
        let queued_s = (queued_s - waits_s).max(0.0);
        if cpu_s > 0.0 { cpu_s / (cpu_s + queued_s) } else { 1.0 }
    }

    /// Processors that spin.
    pub fn spinning_cpus(&self) -> Option<f64> {
        let spins_s = self.first_spins_s()? + self.count(Counter::SpinNs) / 1e9;
        Some((spins_s * self.running()).min(self.cpu_s?) / self.interval_s)
    }

    /// Mean length of a sleep or park, in s.
    pub fn sleep_s(&self) -> f64 {
        let time = self.count(Counter::SleptNs) + self.count(Counter::OverNs);
        ratio(time / 1e9, self.count(Counter::Sleeps) + self.count(Counter::Parks))
    }

    /// Mean number of sessions asleep or parked.
    pub fn asleep(&self) -> f64 {
        (self.count(Counter::SleptNs) + self.count(Counter::OverNs)) / 1e9 / self.interval_s
    }

    /// Processors that the sessions use.
    pub fn cpus(&self) -> Option<f64> {
        self.cpu_s.map(|cpu| cpu / self.interval_s)
    }
}

/// The nearest whole number, 0 for what is below it.
#[allow(clippy::cast_sign_loss)] // a cast saturates
pub const fn whole(x: f64) -> u64 {
    x.round() as u64
}

/// The quotient, 0 where there is none.
pub fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// Counters as a map from their names.
mod by_name {
    use retrial::views::{Counter, Figures};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::collections::BTreeMap;

    pub(super) fn serialize<S: Serializer>(figures: &Figures, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Counter::NAMES.iter().zip(figures.0))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Figures, D::Error> {
        let mut figures = Figures::default();
        for (name, value) in BTreeMap::<String, u64>::deserialize(deserializer)? {
            let position = Counter::NAMES.iter().position(|known| *known == name);
            let position = position.ok_or_else(|| {
                D::Error::custom(format!("counter `{name}`, expected one of {}", Counter::NAMES.join(", ")))
            })?;
            figures.0[position] = value;
        }
        Ok(figures)
    }
}
