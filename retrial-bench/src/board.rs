//! What the sessions of a cell and their parent share beside the mutex: the start, the end and the results.
//!
//! Results are there at any moment, so that a cell ends in time whatever its sessions still wait for.

use crate::clock::Clock;
use crate::histogram::Histogram;
use crate::process::{Shared, Zeroed};
use retrial::sys;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Parts of the time of a cell that are counted apart, at most.
pub const WINDOWS: usize = 64;

/// What a session has done so far. Written by nobody else.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Ledger {
    /// Ticks of the request that it waits for, 0 while it does not.
    asked: AtomicU64,
    /// Sections in which somebody else was.
    violations: AtomicU64,
    /// Gets that ended with an error.
    failures: AtomicU64,
    /// Sections that nobody else may be in, also after the end. There once it has come to its own end.
    alone: AtomicU64,
    /// Gets granted in time, by window.
    granted: [AtomicU64; WINDOWS],
    /// In ticks.
    pub waits: Histogram,
}

/// Adds one to what only we write.
#[inline]
fn bump(cell: &AtomicU64) {
    cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

impl Ledger {
    #[inline]
    pub fn ask(&self, asked: u64) {
        self.asked.store(asked, Ordering::Relaxed);
    }

    /// The wait has ended.
    #[inline]
    pub fn answer(&self, waited: u64) {
        self.asked.store(0, Ordering::Relaxed);
        self.waits.record(waited);
    }

    #[inline]
    pub fn grant(&self, window: usize) {
        bump(&self.granted[window.min(WINDOWS - 1)]);
    }

    #[cold]
    pub fn violation(&self) {
        bump(&self.violations);
    }

    #[cold]
    pub fn failure(&self) {
        bump(&self.failures);
    }

    pub fn asked(&self) -> Option<u64> {
        Some(self.asked.load(Ordering::Relaxed)).filter(|asked| *asked != 0)
    }

    pub fn violations(&self) -> u64 {
        self.violations.load(Ordering::Relaxed)
    }

    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    pub fn alone(&self) -> u64 {
        self.alone.load(Ordering::Relaxed)
    }

    /// Gets granted in this window.
    pub fn granted(&self, window: usize) -> u64 {
        self.granted[window].load(Ordering::Relaxed)
    }

    /// Gets granted in time.
    pub fn ops(&self) -> u64 {
        (0..WINDOWS).map(|window| self.granted(window)).sum()
    }
}

/// Written while the sessions gather and when they leave.
#[repr(C, align(64))]
#[derive(Debug)]
struct Gate {
    ready: AtomicU32,
    finished: AtomicU32,
    /// Futex: 0 until the sessions may go.
    go: AtomicU32,
    /// `errno` of a thread that could not be made, and how many there were then.
    no_thread: AtomicU32,
    threads: AtomicU32,
    /// 1 and more: a session could not be had, see [`Board::fail`].
    no_session: AtomicU32,
}

/// Written once, before the sessions may go.
#[repr(C, align(64))]
#[derive(Debug)]
struct Times {
    /// By the monotonic clock, in ns.
    start: AtomicU64,
    end: AtomicU64,
    /// By the counter.
    start_ticks: AtomicU64,
    end_ticks: AtomicU64,
}

#[repr(C)]
#[derive(Debug)]
struct Common {
    gate: Gate,
    times: Times,
}

// SAFETY: atomics.
unsafe impl Zeroed for Common {}
// SAFETY: atomics.
unsafe impl Zeroed for Ledger {}

/// Why a session did not come about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// The system made no thread: how many there were, and `errno`.
    Thread(u32, i32),
    /// The peer gave no session.
    Session,
}

/// When a cell begins and ends, for its sessions.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub deadline: sys::Deadline,
    pub start_ticks: u64,
    pub end_ticks: u64,
}

#[derive(Debug)]
pub struct Board {
    common: Shared<Common>,
    ledgers: Shared<Ledger>,
}

impl Board {
    pub fn new(sessions: u32) -> io::Result<Self> {
        Ok(Self { common: Shared::zeroed(1)?, ledgers: Shared::zeroed(sessions as usize)? })
    }

    fn common(&self) -> &Common {
        &self.common[0]
    }

    /// By the number of the session.
    pub fn ledgers(&self) -> &[Ledger] {
        &self.ledgers
    }

    /// Called by a session that is ready: waits for the start.
    pub fn gather(&self) -> Span {
        let (gate, times) = (&self.common().gate, &self.common().times);
        gate.ready.fetch_add(1, Ordering::AcqRel);
        // Acquire: pairs with the Release in `start`, so that the times are there.
        while gate.go.load(Ordering::Acquire) == 0 {
            sys::futex_wait(&gate.go, 0, None, false);
        }
        let start = sys::Deadline { clock: sys::Clock::Monotonic, at_ns: times.start.load(Ordering::Relaxed) };
        while let Some(left) = start.left() {
            sys::sleep(left);
        }
        Span {
            deadline: sys::Deadline { at_ns: times.end.load(Ordering::Relaxed), ..start },
            start_ticks: times.start_ticks.load(Ordering::Relaxed),
            end_ticks: times.end_ticks.load(Ordering::Relaxed),
        }
    }

    pub fn ready(&self) -> u32 {
        self.common().gate.ready.load(Ordering::Acquire)
    }

    /// Lets the sessions begin together after `delay`, for `duration`. Gives the time of the end.
    pub fn start(&self, delay: Duration, duration: Duration, clock: Clock) -> sys::Deadline {
        let (gate, times) = (&self.common().gate, &self.common().times);
        let start = sys::Deadline::after(delay);
        let duration_ns = crate::duration::nanos(duration);
        let end = sys::Deadline { at_ns: start.at_ns.saturating_add(duration_ns), ..start };
        let start_ticks = clock.at(start);
        times.start.store(start.at_ns, Ordering::Relaxed);
        times.end.store(end.at_ns, Ordering::Relaxed);
        times.start_ticks.store(start_ticks, Ordering::Relaxed);
        times.end_ticks.store(start_ticks + clock.ticks_in(duration), Ordering::Relaxed);
        gate.go.store(1, Ordering::Release);
        sys::futex_wake(&raw const gate.go, u32::MAX >> 1, false);
        end
    }

    pub fn end_ticks(&self) -> u64 {
        self.common().times.end_ticks.load(Ordering::Relaxed)
    }

    /// Called last by a session: so many sections were to be alone.
    pub fn finish(&self, index: u32, alone: u64) {
        self.ledgers[index as usize].alone.store(alone, Ordering::Relaxed);
        // Release: the parent looks at the ledgers once all have come here.
        self.common().gate.finished.fetch_add(1, Ordering::AcqRel);
    }

    pub fn finished(&self) -> u32 {
        self.common().gate.finished.load(Ordering::Acquire)
    }

    /// Called when a session cannot come about.
    pub fn fail(&self, missing: Missing) {
        let gate = &self.common().gate;
        match missing {
            Missing::Session => gate.no_session.store(1, Ordering::Release),
            Missing::Thread(threads, errno) => {
                gate.threads.store(threads, Ordering::Relaxed);
                gate.no_thread.store(errno.unsigned_abs().max(1), Ordering::Release);
            }
        }
    }

    pub fn missing(&self) -> Option<Missing> {
        let gate = &self.common().gate;
        match gate.no_thread.load(Ordering::Acquire) {
            0 => (gate.no_session.load(Ordering::Acquire) != 0).then_some(Missing::Session),
            errno => Some(Missing::Thread(gate.threads.load(Ordering::Relaxed), errno.cast_signed())),
        }
    }
}
