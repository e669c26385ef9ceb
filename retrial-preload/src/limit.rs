//! Until when a call may wait, as its caller says it.

use libc::{c_int, clockid_t, timespec};
use retrial::sys::{Clock, Deadline};

/// How long a call may wait.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    /// For ever.
    Endless,
    /// Until a moment that has not been looked at: a lock that is free is taken whatever it says.
    Until(clockid_t, *const timespec),
}

impl Limit {
    /// The deadline, `None` for endless.
    ///
    /// # Errors
    ///
    /// `EINVAL` for what is no moment, or a clock that is not to be waited by.
    ///
    /// # Safety
    ///
    /// The moment is readable.
    pub(crate) unsafe fn deadline(self) -> Result<Option<Deadline>, c_int> {
        let Self::Until(clock, at) = self else { return Ok(None) };
        let clock = clock_of(clock).ok_or(libc::EINVAL)?;
        // SAFETY: the caller's.
        let at = unsafe { *at };
        let nsec = u64::try_from(at.tv_nsec).ok().filter(|nsec| *nsec < 1_000_000_000).ok_or(libc::EINVAL)?;
        // Before the epoch is long ago.
        let at_ns = match u64::try_from(at.tv_sec) {
            Ok(sec) => sec.saturating_mul(1_000_000_000).saturating_add(nsec),
            Err(_) => 0,
        };
        Ok(Some(Deadline { clock, at_ns }))
    }
}

/// The clocks that libc waits by.
pub(crate) fn clock_of(clock: clockid_t) -> Option<Clock> {
    match clock {
        libc::CLOCK_REALTIME => Some(Clock::Realtime),
        libc::CLOCK_MONOTONIC => Some(Clock::Monotonic),
        _ => None,
    }
}
