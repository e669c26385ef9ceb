//! Histograms of times, in any unit: each session has one of its own in shared memory, and the parent adds
//! them up.
//!
//! Buckets are 1/32 of a power of two wide, so a quantile is at most 3 % too high.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;
/// Times from 2^44 on are in the last bucket: an hour and more, by a counter of 3 GHz.
const TOP_BIT: u32 = 43;
pub const BUCKETS: usize = (TOP_BIT - SUB_BITS + 2) as usize * SUB;

fn bucket(time: u64) -> usize {
    let top = time.max(1).ilog2();
    if top < SUB_BITS {
        return time as usize;
    }
    let shift = top - SUB_BITS;
    (((shift as usize) << SUB_BITS) + (time >> shift) as usize).min(BUCKETS - 1)
}

/// The longest time that falls into a bucket.
const fn longest(bucket: usize) -> u64 {
    if bucket < 2 * SUB {
        return bucket as u64;
    }
    let shift = bucket / SUB - 1;
    (((bucket % SUB + SUB + 1) as u64) << shift) - 1
}

/// Times of one session, in memory that outlives it. Zeroed bytes are an empty one.
#[repr(C)]
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU32; BUCKETS],
    max: AtomicU64,
}

impl Histogram {
    /// Called by the session only.
    #[inline]
    pub fn record(&self, time: u64) {
        let bucket = &self.buckets[bucket(time)];
        bucket.store(bucket.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        if time > self.max.load(Ordering::Relaxed) {
            self.max.store(time, Ordering::Relaxed);
        }
    }
}

/// Times of all sessions.
#[derive(Clone, Debug)]
pub struct Total {
    buckets: Vec<u64>,
    max: u64,
}

impl Default for Total {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], max: 0 }
    }
}

impl Total {
    pub fn add(&mut self, histogram: &Histogram) {
        for (total, own) in self.buckets.iter_mut().zip(&histogram.buckets) {
            *total += u64::from(own.load(Ordering::Relaxed));
        }
        self.max = self.max.max(histogram.max.load(Ordering::Relaxed));
    }

    /// Adds a single one.
    pub fn record(&mut self, time: u64) {
        self.buckets[bucket(time)] += 1;
        self.max = self.max.max(time);
    }

    pub const fn max(&self) -> u64 {
        self.max
    }

    /// The time that this share of all times does not exceed; `None` without any.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of a count
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let count: u64 = self.buckets.iter().sum();
        let rank = (share * count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let position = self.buckets.iter().position(|n| {
            seen += n;
            seen >= rank
        })?;
        Some(longest(position).min(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_a_bucket_that_ends_at_most_a_32nd_later() {
        let times =
            (0..200).chain((8..44).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + (1 << (bit - 1)) + 1]));
        for time in times {
            let end = longest(bucket(time));
            assert!(end >= time && end - time <= time / 32, "{time} ends at {end}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_of_two_sessions_are_those_of_all_times() {
        let mut all = Total::default();
        assert_eq!(all.quantile(0.5), None);
        for start in [1, 2] {
            let own = Histogram { buckets: [const { AtomicU32::new(0) }; BUCKETS], max: AtomicU64::new(0) };
            (start..1000).step_by(2).for_each(|time| own.record(time));
            all.add(&own);
        }
        all.record(1000);
        for (share, exact) in [(0.5, 500), (0.99, 990), (1.0, 1000)] {
            let found = all.quantile(share).unwrap();
            assert!((exact..=exact + exact / 32 + 1).contains(&found), "{share}: {found}");
        }
        assert_eq!(all.max(), 1000);
    }
}
