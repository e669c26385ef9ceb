//! Fail points: places between two steps of a protocol where tests have a process killed, or a thread die.
//!
//! Without the feature `fail_points`, which nothing but tests should set, a point is no code at all.

#[cfg(feature = "fail_points")]
mod armed {
    use std::cell::Cell;
    use std::panic::{self, AssertUnwindSafe};
    use std::sync::atomic::{AtomicU64, Ordering};

    static PASSED: AtomicU64 = AtomicU64::new(0);
    static FATAL: AtomicU64 = AtomicU64::new(u64::MAX);

    thread_local! {
        /// Points left to this thread, when it is to die at one.
        static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
        static DEAD: Cell<bool> = const { Cell::new(false) };
    }

    /// What a thread that dies unwinds with.
    struct Dies;

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

    /// Runs `prepare` and `deed` on a thread of their own, which dies at the `n`-th point of `deed`, counted
    /// from 1: nothing that it drops on its way out has any effect, and the kernel marks the locks that it
    /// holds. `None` when it died.
    ///
    /// # Panics
    ///
    /// When one of the two panics for another reason.
    pub fn die_at<P, R: Send>(
        n: u64,
        prepare: impl FnOnce() -> P + Send,
        deed: impl FnOnce(P) -> R + Send,
    ) -> Option<R> {
        let mortal = || {
            let prepared = prepare();
            LEFT.set(Some(n));
            let result = panic::catch_unwind(AssertUnwindSafe(|| deed(prepared)));
            LEFT.set(None);
            result
        };
        match std::thread::scope(|scope| scope.spawn(mortal).join()).and_then(|result| result) {
            Ok(result) => Some(result),
            Err(payload) if payload.is::<Dies>() => None,
            Err(payload) => panic::resume_unwind(payload),
        }
    }

    /// Whether the calling thread is on its way out.
    #[must_use]
    pub fn is_dead() -> bool {
        DEAD.get()
    }

    /// A point: for crates that have protocols of their own on top.
    pub fn point() {
        match LEFT.get() {
            None => {}
            Some(1) => {
                LEFT.set(None);
                DEAD.set(true);
                panic::resume_unwind(Box::new(Dies));
            }
            Some(left) => LEFT.set(Some(left - 1)),
        }
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
pub use armed::{arm, die_at, is_dead, passed, point};

#[cfg(not(feature = "fail_points"))]
#[inline(always)]
#[allow(clippy::inline_always)]
pub(crate) const fn point() {}

#[cfg(not(feature = "fail_points"))]
#[inline(always)]
#[allow(clippy::inline_always)]
pub(crate) const fn is_dead() -> bool {
    false
}
