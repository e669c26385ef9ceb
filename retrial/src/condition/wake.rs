//! The wake-up that a signaller owes.

use super::EVERYBODY;
use crate::sys::{self, Futex};

/// A wake-up that is owed: by address, since the condition may be gone when it comes. All zeros is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wake {
    pub(super) sequence: *const Futex,
    pub(super) count: u32,
    pub(super) bits: u32,
}

impl Default for Wake {
    fn default() -> Self {
        Self { sequence: std::ptr::null(), count: 0, bits: 0 }
    }
}

impl Wake {
    /// Whether it wakes a waiter.
    #[inline]
    #[must_use]
    pub const fn is_owed(self) -> bool {
        self.count != 0
    }

    /// Wakes.
    #[cold]
    #[inline(never)]
    pub fn now(self) {
        sys::futex_wake_private(self.sequence, self.count, self.bits);
    }

    /// This one and a later one of the same thread in one, if they are for the same waiters.
    #[must_use]
    pub fn and(self, later: Self) -> Option<Self> {
        // Signals for two groups stay two wake-ups: one for both might find two waiters of the older group,
        // for whom wake-ups of other threads are under way.
        let is_same = self.sequence == later.sequence && self.bits == later.bits;
        is_same.then(|| Self { count: self.count.saturating_add(later.count).min(EVERYBODY), ..self })
    }
}
