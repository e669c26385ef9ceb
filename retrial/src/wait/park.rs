//! How a session parks.

use crate::parking::Wakes;
use std::time::Duration;

/// How a session parks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Park {
    /// Time-out if it becomes the watcher.
    pub watch: Duration,
    /// Time-out beside a watcher.
    pub timeout: Duration,
    /// Time to its deadline.
    pub left: Duration,
    /// Time-out where parked sessions do not know of each other, in locks of libc's formats; the least one where
    /// none of them dies alone.
    pub alone: Duration,
    /// Whether releases need wake nobody while enough woken sessions are on their way.
    pub wakes: Wakes,
    /// Whether it may take what was handed over.
    pub handed: bool,
    /// Asks the next release to hand over, unless a session did so within this time.
    pub asks: Option<Duration>,
}

impl Park {
    /// With this time-out, beside a watcher or not.
    #[must_use]
    pub const fn lasting(time: Duration) -> Self {
        Self { watch: time, timeout: time, left: time, alone: time, wakes: Wakes::Each, handed: true, asks: None }
    }

    /// Longest sleep where parked sessions do not know of each other.
    #[must_use]
    pub fn lasts_alone(&self) -> Duration {
        self.left.min(self.alone)
    }

    /// Longest sleep.
    #[must_use]
    pub fn lasts(&self, watches: bool) -> Duration {
        self.left.min(if watches { self.watch } else { self.timeout })
    }

    /// Longest sleep where all sessions are of one process, in which none dies alone.
    #[must_use]
    pub fn lasts_in_process(&self, watches: bool) -> Duration {
        let look = self.lasts(watches);
        // Schemes of the publications look as their parameters say.
        if self.wakes == Wakes::Enough { look.max(self.lasts_alone()) } else { look }
    }
}
