//! What was seen of a mutex.

use crate::output::whole;
use retrial::MutexId;
use retrial::views::MutexInfo;
use retrial_model::profile::Samples;

/// A mutex, apart from others that have its id later.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    pub id: MutexId,
    pub pid: u32,
    pub address: u64,
}

impl Identity {
    pub const fn of(info: &MutexInfo) -> Self {
        Self { id: info.id, pid: info.pid, address: info.address }
    }
}

/// What was seen of a mutex.
#[derive(Clone, Debug)]
pub struct Seen {
    pub info: MutexInfo,
    /// The same as others have registered it, of what lies in memory of several processes.
    pub others: Vec<Identity>,
    /// Gets at the latest look, of its record or noted in its entry.
    pub gets: u64,
    pub samples: u64,
    pub held: u64,
    /// Module and offset of a static one, file and offset of what is in shared memory; looked up when it is
    /// first sampled.
    pub variable: Option<String>,
    /// Whether its record has had its number.
    pub is_named: bool,
    /// What a mutex of libc's format had counted at the latest look.
    count: Option<u32>,
    /// The latest sample of the period under way, in which the mutex is sampled, and its gets then.
    pub latest: Option<(u64, u64)>,
    /// Time from each sample to the next, over all periods; the part of it that ended with a sample that
    /// found it held; and the gets meanwhile.
    sampled_ns: u64,
    busy_ns: u64,
    sampled_gets: u64,
    /// Second looks, and those of them that found the holder in a run queue.
    pub again: u64,
    pub queued: u64,
}

impl Seen {
    pub fn new(info: MutexInfo) -> Self {
        Self {
            gets: info.gets.unwrap_or(0),
            info,
            others: Vec::new(),
            samples: 0,
            held: 0,
            variable: None,
            is_named: false,
            count: None,
            latest: None,
            sampled_ns: 0,
            busy_ns: 0,
            sampled_gets: 0,
            again: 0,
            queued: 0,
        }
    }

    /// All numbers that it has.
    pub fn ids(&self) -> impl Iterator<Item = MutexId> {
        std::iter::once(self.info.id).chain(self.others.iter().map(|other| other.id))
    }

    /// Gets by the count of a mutex in libc's format, which wraps, and is 0 again when the mutex is made
    /// anew. `all` is what the program has got so far: a file may have a count from before. More than `most`
    /// are none of its gets: other things have its memory.
    pub fn gets_by(&mut self, count: u32, most: u64, all: impl FnOnce() -> u64) -> u64 {
        let more = match self.count.replace(count) {
            None if u64::from(count) > all() => 0,
            None => count,
            Some(before) => Some(count.wrapping_sub(before)).filter(|more| *more <= u32::MAX / 2).unwrap_or(count),
        };
        Some(self.gets + u64::from(more)).filter(|gets| *gets <= most).unwrap_or(self.gets)
    }

    /// Takes a sample: when, whether the mutex was held, and its gets so far.
    pub fn sample(&mut self, now_ns: u64, held: bool, gets: u64) {
        self.samples += 1;
        self.held += u64::from(held);
        if let Some((then_ns, gets_then)) = self.latest.replace((now_ns, gets)) {
            let took_ns = now_ns.saturating_sub(then_ns);
            self.sampled_ns += took_ns;
            self.busy_ns += if held { took_ns } else { 0 };
            // Fewer than before: another mutex has its memory.
            self.sampled_gets += gets.checked_sub(gets_then).unwrap_or(gets);
        }
    }

    /// Takes a second look: whether it found the holder in a run queue.
    pub fn looked_again(&mut self, is_queued: bool) {
        self.again += 1;
        self.queued += u64::from(is_queued);
    }

    /// Part of the time in ns in which it was held, in which its holder was in a run queue.
    fn queued_ns(&self) -> Option<f64> {
        (self.again > 0).then(|| self.busy_ns as f64 * self.queued as f64 / self.again as f64)
    }

    /// Mean holding time in ns by what was seen so far, without what its holders waited for a processor.
    pub fn hold_ns(&self) -> Option<u64> {
        let own_ns = self.busy_ns as f64 - self.queued_ns().unwrap_or(0.0);
        (self.sampled_gets > 0).then(|| whole(own_ns / self.sampled_gets as f64))
    }

    /// Part of the time in s in which these were held, in which their holders were in run queues.
    pub fn held_queued_s(all: &[&Self]) -> Option<f64> {
        all.iter().filter_map(|seen| seen.queued_ns()).reduce(|a, b| a + b).map(|ns| ns / 1e9)
    }

    /// What was seen of the holders of these, which have had the same number.
    pub fn samples(all: &[&Self]) -> Samples {
        let s = |of: fn(&Self) -> u64| sum(all, of) as f64 / 1e9;
        Samples {
            looks: sum(all, |seen| seen.samples),
            held: sum(all, |seen| seen.held),
            time_s: s(|seen| seen.sampled_ns),
            held_s: s(|seen| seen.busy_ns),
            gets: sum(all, |seen| seen.sampled_gets),
        }
    }

    /// Gets and seconds while it was sampled.
    pub fn while_sampled(&self) -> Option<(u64, f64)> {
        (self.sampled_gets > 0 && self.sampled_ns > 0).then(|| (self.sampled_gets, self.sampled_ns as f64 / 1e9))
    }
}

fn sum(all: &[&Seen], of: fn(&Seen) -> u64) -> u64 {
    all.iter().map(|seen| of(seen)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use retrial::views::{Place, TypeId};
    use retrial_model::{Measure, Profile};

    fn info() -> MutexInfo {
        MutexInfo {
            id: MutexId(1),
            name: String::new(),
            mutex_type: TypeId(0),
            place: Place::Process,
            address: 0,
            pid: 1,
            gets: None,
            death: None,
            pthread_in_use: false,
            switches: 0,
            one_alone: false,
        }
    }

    #[test]
    fn what_holders_wait_for_a_processor_is_no_part_of_the_mean_hold() {
        let mut seen = Seen::new(info());
        assert_eq!((seen.hold_ns(), Seen::held_queued_s(&[&seen])), (None, None));
        (0..=10).for_each(|i| seen.sample(i * 1_000, true, i * 10));
        assert_eq!((seen.hold_ns(), Seen::held_queued_s(&[&seen])), (Some(100), None));
        for is_queued in [true, false, false, true] {
            seen.looked_again(is_queued);
        }
        assert_eq!((seen.hold_ns(), Seen::held_queued_s(&[&seen])), (Some(50), Some(5e-6)));
        assert_eq!(Seen::held_queued_s(&[&seen, &Seen::new(info())]), Some(5e-6), "of those that were looked at again");
    }

    #[test]
    fn time_and_gets_between_two_periods_of_samples_are_left_out() {
        let mut seen = Seen::new(info());
        // Busy for 3 of 4 ms, with 60 gets.
        for (at_ms, held, gets) in
            [(10, false, 100), (11, true, 120), (12, true, 130), (13, false, 140), (14, true, 160)]
        {
            seen.sample(at_ms * 1_000_000, held, gets);
        }
        // Not sampled for a while, in which it was got a million times; another mutex has its memory then.
        seen.latest = None;
        for (at_ms, held, gets) in [(1000, false, 1_000_160), (1003, true, 1_000_180), (1004, true, 10)] {
            seen.sample(at_ms * 1_000_000, held, gets);
        }
        assert_eq!((seen.sampled_ns, seen.busy_ns, seen.sampled_gets), (8_000_000, 7_000_000, 90));
        let profile = Profile { samples: Seen::samples(&[&seen]), ..Profile::default() };
        let of = |measure: Measure| measure.of(&profile).unwrap();
        assert!((of(Measure::Utilization) - 0.875).abs() < 1e-12);
        assert!((of(Measure::HoldingTime) - 7e-3 / 90.0).abs() < 1e-12);
    }

    #[test]
    fn a_count_wraps_starts_over_and_may_be_from_before_the_run() {
        let looks = |counts: &[u32], all: u64| {
            let mut seen = Seen::new(info());
            for count in counts {
                seen.gets = seen.gets_by(*count, all.max(2000), || all);
            }
            seen.gets
        };
        assert_eq!(looks(&[10, 25], 100), 25);
        assert_eq!(looks(&[u32::MAX - 9, 10], u64::MAX), u64::from(u32::MAX) + 11);
        assert_eq!(looks(&[1000, 30, 50], 2000), 1050);
        assert_eq!(looks(&[500, 520], 100), 20);
        assert_eq!(looks(&[50, 1 << 30, 60], 2000), 110, "its memory was something else's for a while");
    }
}
