//! How many waits were how long.

use crate::sys::{AtomicU64, Ordering};

/// Buckets of a [`Histogram`]: the most that leave a session's row at six cache lines.
pub const BUCKETS: usize = 31;

/// Ended waits by their length, in buckets by powers of two of a microsecond.
///
/// The first bucket counts waits below 1 us, each further one those that are longer and below twice as much,
/// the last one all beyond 537 s.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Histogram(pub [u64; BUCKETS]);

impl Histogram {
    /// The bucket of a length in ns.
    #[must_use]
    pub const fn bucket(ns: u64) -> usize {
        let bits = (u64::BITS - (ns / 1000).leading_zeros()) as usize;
        if bits < BUCKETS { bits } else { BUCKETS - 1 }
    }

    /// The length in us below which the lengths of a bucket are; `None` of the last one.
    #[must_use]
    pub const fn end_us(bucket: usize) -> Option<u64> {
        if bucket + 1 < BUCKETS { Some(1 << bucket) } else { None }
    }

    /// Each bucket that counts something: where it begins in us, where it ends, and what it counts.
    pub fn filled(&self) -> impl Iterator<Item = (u64, Option<u64>, u64)> {
        let with_ends = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        with_ends.map(|(i, count)| {
            let begin_us = i.checked_sub(1).and_then(Self::end_us).unwrap_or(0);
            (begin_us, Self::end_us(i), *count)
        })
    }

    /// All that it counts.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// Counts a length in ns, so many times.
    pub fn count(&mut self, ns: u64, times: u64) {
        let count = &mut self.0[Self::bucket(ns)];
        *count = count.wrapping_add(times);
    }

    /// Adds what another one counts.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = mine.wrapping_add(*theirs);
        }
    }

    /// Growth since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].saturating_sub(earlier.0[i])))
    }
}

/// The same in a session's row, which has one writer.
#[derive(Default)]
#[repr(transparent)]
pub(crate) struct SharedHistogram([AtomicU64; BUCKETS]);

impl SharedHistogram {
    /// Counts a wait of so many ns. Only by the row's writer.
    pub(crate) fn count(&self, ns: u64) {
        let cell = &self.0[Histogram::bucket(ns)];
        // Relaxed, and no RMW: one writer.
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Histogram {
        Histogram(std::array::from_fn(|i| self.0[i].load(Ordering::Relaxed)))
    }

    /// Replaces what it counts. Only by its writer.
    pub(crate) fn set(&self, histogram: &Histogram) {
        for (cell, count) in self.0.iter().zip(&histogram.0) {
            cell.store(*count, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_lies_in_its_bucket() {
        for (us, bucket) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1 << 28, 29), (1 << 29, 30), (1 << 40, 30)] {
            assert_eq!(Histogram::bucket(us * 1000), bucket, "{us} us");
            assert_eq!(Histogram::bucket(us * 1000 + 999), bucket, "{us}.999 us");
        }
        assert_eq!(Histogram::bucket(u64::MAX), BUCKETS - 1);
        let mut histogram = Histogram::default();
        histogram.count(999, 1);
        histogram.count(5_000, 2);
        histogram.count(u64::MAX, 3);
        let filled: Vec<_> = histogram.filled().collect();
        assert_eq!(filled, [(0, Some(1), 1), (4, Some(8), 2), (1 << 29, None, 3)]);
        assert_eq!(histogram.total(), 6);
    }
}
