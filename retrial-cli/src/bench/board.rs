//! What the sessions of a cell and their parent share beside the instance: the start, the stop and the results.

use super::check::Guarded;
use super::histogram::Total;
use super::process::Shared;
use retrial::sys;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// What a session says at its end.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Result {
    /// Sections done.
    pub ops: AtomicU64,
    /// Of these, those that nobody else may be in.
    pub alone: AtomicU64,
    /// Sections in which somebody else was.
    pub violations: AtomicU64,
    /// Gets that ended with an error.
    pub failures: AtomicU64,
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

/// Read by all in every round, written once.
#[repr(C, align(64))]
#[derive(Debug)]
struct Times {
    /// By the monotonic clock, in ns, as the others.
    start: AtomicU64,
    deadline: AtomicU64,
    /// 0 until it is over.
    stopped: AtomicU64,
}

#[repr(C)]
#[derive(Debug)]
pub struct Common {
    gate: Gate,
    times: Times,
    guarded: Guarded,
    waits: Total,
}

// SAFETY: atomics and a mutex record, of which any bytes are a value and 0 is a fresh one.
unsafe impl super::process::Zeroed for Common {}
// SAFETY: atomics.
unsafe impl super::process::Zeroed for Result {}

/// Why a session did not come about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// The system made no thread: how many there were, and `errno`.
    Thread(u32, i32),
    /// The instance gave no session.
    Session,
}

#[derive(Debug)]
pub struct Board {
    common: Shared<Common>,
    results: Shared<Result>,
}

impl Board {
    pub fn new(sessions: u32) -> io::Result<Self> {
        Ok(Self { common: Shared::new(1)?, results: Shared::new(sessions as usize)? })
    }

    fn common(&self) -> &Common {
        &self.common[0]
    }

    pub fn guarded(&self) -> &Guarded {
        &self.common().guarded
    }

    pub fn waits(&self) -> &Total {
        &self.common().waits
    }

    pub fn results(&self) -> &[Result] {
        &self.results
    }

    /// Called by a session that is ready: waits for the start, and gives the deadline.
    pub fn gather(&self) -> sys::Deadline {
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
        sys::Deadline { at_ns: times.deadline.load(Ordering::Relaxed), ..start }
    }

    pub fn ready(&self) -> u32 {
        self.common().gate.ready.load(Ordering::Acquire)
    }

    /// Lets the sessions begin together after `delay`, for `duration`. Gives the time of the end.
    pub fn start(&self, delay: Duration, duration: Duration) -> sys::Deadline {
        let (gate, times) = (&self.common().gate, &self.common().times);
        let (start, end) = (sys::Deadline::after(delay), sys::Deadline::after(delay + duration));
        times.start.store(start.at_ns, Ordering::Relaxed);
        times.deadline.store(end.at_ns, Ordering::Relaxed);
        gate.go.store(1, Ordering::Release);
        sys::futex_wake(&raw const gate.go, u32::MAX >> 1, false);
        end
    }

    #[inline]
    pub fn is_over(&self) -> bool {
        self.common().times.stopped.load(Ordering::Relaxed) != 0
    }

    /// Ends it; the first to do so says when that was.
    pub fn stop(&self) {
        let stopped = &self.common().times.stopped;
        let _ = stopped.compare_exchange(0, sys::now_ns(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Seconds from start to stop.
    pub fn interval_s(&self) -> f64 {
        let times = &self.common().times;
        let stopped = times.stopped.load(Ordering::Relaxed);
        stopped.saturating_sub(times.start.load(Ordering::Relaxed)) as f64 / 1e9
    }

    pub fn finish(&self) {
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
