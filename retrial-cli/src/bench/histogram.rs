//! Histograms of times: each session has one of its own, and adds it at the end to the one in shared memory.
//!
//! Buckets are 1/32 of a power of two wide, so a quantile is at most 3 % too high.

use std::sync::atomic::{AtomicU64, Ordering};

const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;
/// Times from 2^41 ns (37 min) on are in the last bucket.
const TOP_BIT: u32 = 40;
pub const BUCKETS: usize = (TOP_BIT - SUB_BITS + 2) as usize * SUB;

fn bucket(ns: u64) -> usize {
    let top = ns.max(1).ilog2();
    if top < SUB_BITS {
        return ns as usize;
    }
    let shift = top - SUB_BITS;
    (((shift as usize) << SUB_BITS) + (ns >> shift) as usize).min(BUCKETS - 1)
}

/// The longest time that falls into a bucket.
const fn longest(bucket: usize) -> u64 {
    if bucket < 2 * SUB {
        return bucket as u64;
    }
    let shift = bucket / SUB - 1;
    (((bucket % SUB + SUB + 1) as u64) << shift) - 1
}

/// Times of one session.
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[u32; BUCKETS]>,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: Box::new([0; BUCKETS]), max_ns: 0 }
    }
}

impl Histogram {
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let bucket = &mut self.buckets[bucket(ns)];
        *bucket = bucket.saturating_add(1);
        self.max_ns = self.max_ns.max(ns);
    }
}

/// Times of all sessions, in shared memory.
#[repr(C)]
#[derive(Debug)]
pub struct Total {
    buckets: [AtomicU64; BUCKETS],
    max_ns: AtomicU64,
}

impl Total {
    pub fn add(&self, histogram: &Histogram) {
        for (total, own) in self.buckets.iter().zip(&*histogram.buckets) {
            if *own > 0 {
                total.fetch_add(u64::from(*own), Ordering::Relaxed);
            }
        }
        self.max_ns.fetch_max(histogram.max_ns, Ordering::Relaxed);
    }

    pub fn max_ns(&self) -> u64 {
        self.max_ns.load(Ordering::Relaxed)
    }

    /// The time that this share of all times does not exceed; `None` without any.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of a count
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let counts = || self.buckets.iter().map(|cell| cell.load(Ordering::Relaxed));
        let count: u64 = counts().sum();
        let rank = (share * count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let position = counts().position(|n| {
            seen += n;
            seen >= rank
        })?;
        Some(longest(position).min(self.max_ns()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total() -> Total {
        Total { buckets: [const { AtomicU64::new(0) }; BUCKETS], max_ns: AtomicU64::new(0) }
    }

    #[test]
    fn every_time_is_in_a_bucket_that_ends_at_most_a_32nd_later() {
        let times =
            (0..200).chain((8..41).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + (1 << (bit - 1)) + 1]));
        for ns in times {
            let end = longest(bucket(ns));
            assert!(end >= ns && end - ns <= ns / 32, "{ns} ends at {end}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_of_two_sessions_are_those_of_all_times() {
        let all = total();
        assert_eq!(all.quantile(0.5), None);
        for start in [1, 2] {
            let mut own = Histogram::default();
            (start..=1000).step_by(2).for_each(|ns| own.record(ns));
            all.add(&own);
        }
        for (share, exact) in [(0.5, 500), (0.99, 990), (1.0, 1000)] {
            let found = all.quantile(share).unwrap();
            assert!((exact..=exact + exact / 32 + 1).contains(&found), "{share}: {found}");
        }
        assert_eq!(all.max_ns(), 1000);
    }
}
