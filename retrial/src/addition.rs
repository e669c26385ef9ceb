//! The note of the row that is being added to those of the departed: see [`crate::departed`].

use crate::histogram::SharedHistogram;
use crate::stats::{COUNTERS, Figures};
use crate::sys::{AtomicU64, Observed as _, Ordering};

/// See the module.
#[repr(C)]
pub(crate) struct Addition {
    /// Which one: the session's number above 32 bits, and the position of its row. 0: the note is not in
    /// force.
    pub(crate) from: AtomicU64,
    /// Notes that were taken back.
    pub(crate) done: AtomicU64,
    /// Position of the row of slot 0 that it is added to.
    to: AtomicU64,
    /// What the row of slot 0 has afterwards.
    sums: [AtomicU64; COUNTERS],
    lengths: SharedHistogram,
}

impl Addition {
    /// The session and the position of the row that is added, while the note is in force.
    pub(crate) fn from(&self) -> Option<(u64, u64)> {
        // Acquire: pairs with the fence of the step before the note was in force; the rest is of this row.
        let from = self.from.acquire();
        (from != 0).then_some((from >> 32, from & 0xffff_ffff))
    }

    /// How many notes were taken back, and which one is in force: a reader that finds the same before and
    /// after has read each row once. The caller has a fence between the rows and the second look.
    pub(crate) fn state(&self) -> (u64, Option<(u64, u64)>) {
        // The number last: a note that the first look does not see any more is counted in the second.
        let from = self.from();
        (self.done.acquire(), from)
    }

    /// Notes that the row of slot 0 at this position has these figures afterwards.
    pub(crate) fn note(&self, to: usize, sum: &Figures) {
        for (cell, value) in self.sums.iter().zip(&sum.counters) {
            cell.store(*value, Ordering::Relaxed);
        }
        self.lengths.set(&sum.lengths);
        self.to.store(to as u64, Ordering::Relaxed);
    }

    /// The position of the row of slot 0 that it is added to, and what this row has afterwards.
    pub(crate) fn to(&self) -> (u64, Figures) {
        let counters = std::array::from_fn(|i| self.sums[i].load(Ordering::Relaxed));
        (self.to.load(Ordering::Relaxed), Figures { counters, lengths: self.lengths.read() })
    }
}
