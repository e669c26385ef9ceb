//! What the parent and its workers share beside the instance: memory that outlives whoever writes to it.

use std::fmt::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Mutexes that workers use at most.
pub(crate) const MUTEXES: usize = 3;
/// Workers at a time at most.
pub(crate) const WORKERS: usize = 4096;

const NONE: u32 = 0;
const WRITING: u32 = 1;
const WRITTEN: u32 = 2;

/// What the workers of one place have done, one after the other: one writes at a time.
#[repr(C, align(64))]
pub(crate) struct Tally {
    /// SID of the session while it surely lives, 0 otherwise.
    pub(crate) sid: AtomicU32,
    /// 1 while the worker surely has the mutex in X, LX or E, so that its death must be told.
    pub(crate) inside: [AtomicU32; MUTEXES],
    /// 1 while the worker is in a `recover_all`.
    pub(crate) recovering: AtomicU32,
    /// Gets that gave the mutex, in any mode.
    pub(crate) gets: [AtomicU64; MUTEXES],
    /// Increments that are finished.
    pub(crate) increments: [AtomicU64; MUTEXES],
    /// Times that X, LX or E was had with the flag *poisoned*.
    pub(crate) told: [AtomicU64; MUTEXES],
    /// Times that the flag was taken back.
    pub(crate) repairs: [AtomicU64; MUTEXES],
    /// Sessions that a `recover_all` of a worker recovered.
    pub(crate) recovered: AtomicU64,
    /// Conversions of a mode that succeeded.
    pub(crate) conversions: AtomicU64,
    /// Gets that ended without the mutex, as they may.
    pub(crate) refusals: AtomicU64,
}

/// Adds to a counter that nobody else writes now.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Tally {
    /// Gets of all mutexes.
    pub(crate) fn gets(&self) -> u64 {
        self.gets.iter().map(|gets| gets.load(Ordering::Relaxed)).sum()
    }
}

#[repr(C)]
pub(crate) struct Board {
    /// 1 when the workers are to end, each after a few gets more.
    pub(crate) stop: AtomicU32,
    failed: AtomicU32,
    text: [AtomicU8; 2048],
    pub(crate) tallies: [Tally; WORKERS],
}

impl Board {
    /// The board, of which a process has one; what it forks shares it.
    pub(crate) fn get() -> &'static Self {
        static BOARD: OnceLock<&'static Board> = OnceLock::new();
        BOARD.get_or_init(|| {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Self>(), protection, flags, -1, 0) };
            assert_ne!(at, libc::MAP_FAILED, "memory for the board");
            // SAFETY: just mapped for good, as long as a board and aligned to a page; zeros are a board.
            unsafe { &*at.cast::<Self>() }
        })
    }

    /// Makes it ready for the next crew. There must be no worker.
    pub(crate) fn clear(&self) {
        self.stop.store(0, Ordering::SeqCst);
        for tally in &self.tallies {
            let states = tally.inside.iter().chain([&tally.sid, &tally.recovering]);
            states.for_each(|state| state.store(0, Ordering::Relaxed));
            let counts = [&tally.gets, &tally.increments, &tally.told, &tally.repairs].into_iter().flatten();
            let others = [&tally.recovered, &tally.conversions, &tally.refusals];
            counts.chain(others).for_each(|count| count.store(0, Ordering::Relaxed));
        }
    }

    /// Whether workers are to end.
    pub(crate) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0
    }

    /// Sum of a count over all places.
    pub(crate) fn sum(&self, count: impl Fn(&Tally) -> &AtomicU64) -> u64 {
        self.tallies.iter().map(|tally| count(tally).load(Ordering::Relaxed)).sum()
    }

    /// Writes why something failed, if nothing has before.
    pub(crate) fn fail(&self, why: impl fmt::Display) {
        if self.failed.compare_exchange(NONE, WRITING, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            let _ = write!(Text { board: self, at: 0 }, "{why}");
            self.failed.store(WRITTEN, Ordering::SeqCst);
        }
    }

    /// Why something failed.
    pub(crate) fn failure(&self) -> Option<String> {
        if self.failed.load(Ordering::SeqCst) != WRITTEN {
            return None;
        }
        let bytes = self.text.iter().map(|byte| byte.load(Ordering::Relaxed)).take_while(|byte| *byte != 0);
        Some(String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned())
    }
}

/// Writes to the board without allocating; what does not fit is left out.
struct Text<'a> {
    board: &'a Board,
    at: usize,
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for (to, byte) in self.board.text[self.at..].iter().zip(text.bytes()) {
            to.store(byte, Ordering::Relaxed);
            self.at += 1;
        }
        Ok(())
    }
}
