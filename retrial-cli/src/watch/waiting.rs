//! Waits between two looks of a watch, by samples.

use crate::recording::store::{Rounds, Sample};
use retrial::MutexId;
use std::collections::HashMap;

/// Time of waits that samples between two looks found, by mutex, and the time that these samples are of.
#[derive(Default)]
pub struct Waiting {
    waits_ns: HashMap<MutexId, u64>,
    time_ns: u64,
}

impl Waiting {
    pub fn of(samples: &[Sample], rounds: Rounds) -> Self {
        let mut waits_ns: HashMap<MutexId, u64> = HashMap::new();
        for sample in samples.iter().filter(|sample| sample.waits && !sample.for_event) {
            *waits_ns.entry(sample.mutex).or_default() += sample.length_ns;
        }
        Self { waits_ns, time_ns: rounds.length_ns }
    }

    /// Mean number of sessions that waited for these mutexes; `None` where nobody looked.
    pub fn share(&self, mutexes: impl Iterator<Item = MutexId>) -> Option<f64> {
        let waits_ns: u64 = mutexes.filter_map(|mutex| self.waits_ns.get(&mutex)).sum();
        (self.time_ns > 0).then(|| waits_ns as f64 / self.time_ns as f64)
    }
}
