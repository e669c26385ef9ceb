//! What is counted during a run.

use super::Time;
use retrial::views::{COUNTERS, Counter, Histogram};

/// What a processor is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    Think,
    Hold,
    Spin,
    Yield,
    /// The waker's own calls, and barriers.
    Call,
    /// Switches from one session to another, and an idle processor's way back.
    Switch,
}

pub(super) const USES: usize = 6;

/// Buckets of an octave of waiting times.
const BUCKETS: usize = 8;

/// Sums over the time that is counted. Times in ps.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// Begin of the time that is counted.
    pub(super) since: Time,
    pub(super) counters: [u64; COUNTERS],
    pub(super) gets: u64,
    pub(super) releases: u64,
    /// Parts of the waits from their first failed spin on.
    pub(super) spin: u128,
    pub(super) yields: u128,
    pub(super) slept: u128,
    pub(super) over: u128,
    pub(super) longest: Time,
    /// Waits by that length, in ns.
    pub(super) lengths: Histogram,
    /// Time from requests to gets.
    pub(super) wait: u128,
    /// Longest of these.
    pub(super) wait_max: Time,
    waits: [u64; 64 * BUCKETS],
    /// Time that the mutex was held, and the sum over sessions of the time that they waited within the time
    /// counted.
    pub(super) busy: u128,
    pub(super) waiting_time: u128,
    waiting: u32,
    waiting_since: Time,
    pub(super) processor: [u128; USES],
    /// Switches from one session to another, and between the types of `adaptive`.
    pub(super) switches: u64,
    pub(super) type_switches: u64,
}

impl Tally {
    pub(super) fn new(since: Time, waiting: u32) -> Self {
        Self {
            since,
            counters: [0; COUNTERS],
            gets: 0,
            releases: 0,
            spin: 0,
            yields: 0,
            slept: 0,
            over: 0,
            longest: 0,
            lengths: Histogram::default(),
            wait: 0,
            wait_max: 0,
            waits: [0; 64 * BUCKETS],
            busy: 0,
            waiting_time: 0,
            waiting,
            waiting_since: since,
            processor: [0; USES],
            switches: 0,
            type_switches: 0,
        }
    }

    /// The same from now on, with the sessions that wait already.
    pub(super) fn again(&self, now: Time) -> Self {
        Self::new(now, self.waiting)
    }

    pub(super) fn count(&mut self, counter: Counter) {
        self.counters[counter as usize] += 1;
    }

    /// The part of a time until now that is counted.
    pub(super) fn part(&self, from: Time, now: Time) -> u128 {
        u128::from(now.saturating_sub(from.max(self.since)))
    }

    pub(super) fn used(&mut self, used: Use, from: Time, now: Time) {
        self.processor[used as usize] += self.part(from, now);
    }

    /// Counts the time up to now for the sessions that wait.
    pub(super) fn settle(&mut self, now: Time) {
        self.waiting_time += u128::from(now - self.waiting_since) * u128::from(self.waiting);
        self.waiting_since = now;
    }

    pub(super) fn requested(&mut self, now: Time) {
        self.settle(now);
        self.waiting += 1;
    }

    pub(super) fn got(&mut self, requested: Time, now: Time) {
        self.settle(now);
        self.waiting -= 1;
        self.gets += 1;
        let wait = now - requested;
        self.wait += u128::from(wait);
        self.wait_max = self.wait_max.max(wait);
        self.waits[bucket(wait)] += 1;
    }

    /// Waiting time that this share of the gets did not exceed, up to an eighth too long; in ps.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let total: u64 = self.waits.iter().sum();
        let rank = (share * total as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        let reached = self.waits.iter().position(|count| {
            below += count;
            below >= rank
        });
        reached.map_or(0.0, upper)
    }
}

/// A bucket for each time below 8 ps, and eight an octave above.
fn bucket(time: Time) -> usize {
    match time.checked_ilog2() {
        None | Some(0..3) => time as usize,
        Some(octave) => (octave as usize - 2) * BUCKETS + (time >> (octave - 3)) as usize % BUCKETS,
    }
}

fn upper(bucket: usize) -> f64 {
    let (octave, part) = (bucket / BUCKETS, bucket % BUCKETS);
    if octave == 0 { part as f64 } else { (BUCKETS + part + 1) as f64 * 2f64.powi(octave as i32 - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_below_the_upper_end_of_its_bucket() {
        for time in (0..2000).chain((11..64).map(|bits| (1 << bits) + 12345 % (1 << bits))) {
            let upper = upper(bucket(time));
            assert!(time as f64 <= upper && upper <= time as f64 * 1.13 + 1.0, "{time} {upper}");
        }
        assert!(bucket(u64::MAX) < 64 * BUCKETS);
    }

    #[test]
    fn only_the_time_that_is_counted_counts() {
        let mut tally = Tally::new(0, 0);
        tally.requested(10);
        let mut tally = tally.again(100);
        assert_eq!((tally.part(50, 130), tally.part(110, 130)), (30, 20));
        tally.got(10, 160);
        assert_eq!((tally.waiting_time, tally.wait), (60, 150));
    }
}
