//! Fail points: places between two steps of a protocol where tests have a process killed.
//!
//! Without the feature `fail_points`, which nothing but tests should set, a point is no code at all.

#[cfg(feature = "fail_points")]
mod armed {
    use std::sync::atomic::{AtomicU64, Ordering};

    static PASSED: AtomicU64 = AtomicU64::new(0);
    static FATAL: AtomicU64 = AtomicU64::new(u64::MAX);

    /// Has this process die by SIGKILL at the `n`-th point from here, counted from 1.
    pub fn arm(n: u64) {
        PASSED.store(0, Ordering::SeqCst);
        FATAL.store(n, Ordering::SeqCst);
    }

    /// Points passed since [`arm`].
    #[must_use]
    pub fn passed() -> u64 {
        PASSED.load(Ordering::SeqCst)
    }

    pub(crate) fn point() {
        if PASSED.fetch_add(1, Ordering::SeqCst) + 1 == FATAL.load(Ordering::SeqCst) {
            // SAFETY: ends this process, which is what was asked for.
            unsafe { libc::raise(libc::SIGKILL) };
            loop {
                std::hint::spin_loop();
            }
        }
    }
}

#[cfg(feature = "fail_points")]
pub use armed::{arm, passed};

#[cfg(feature = "fail_points")]
pub(crate) use armed::point;

#[cfg(not(feature = "fail_points"))]
#[inline(always)]
#[allow(clippy::inline_always)]
pub(crate) const fn point() {}
