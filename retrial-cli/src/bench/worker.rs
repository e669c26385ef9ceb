//! What a session of a cell does.

use super::board::{Board, Missing};
use super::histogram::Histogram;
use super::load::{Random, Think, Times};
use super::work;
use retrial::{Class, GetError, Instance, Mode, Patience, Session, SessionError, location, sys};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Gets between two that are timed, when a section is too short to time all.
const SAMPLE_EVERY: u64 = 16;
/// From this section on, every get is timed.
const TIME_ALL: Duration = Duration::from_micros(1);
/// Threads that may be on their way to a session at a time.
const THRONG: u32 = 64;
const STACK_BYTES: usize = 128 << 10;

/// What all sessions of a cell do.
#[derive(Debug)]
pub struct Task<'a> {
    pub instance: &'a Instance,
    pub board: &'a Board,
    pub mode: Mode,
    /// Gets in X instead, out of 10,000.
    pub writes: u64,
    /// Rounds of work in a section.
    pub section: Times,
    pub think: Think,
    /// Every so many gets one is timed.
    pub time_every: u64,
}

/// Every so many gets one is timed, for sections of this length.
pub fn time_every(section: Duration) -> u64 {
    if section >= TIME_ALL { 1 } else { SAMPLE_EVERY }
}

impl Task<'_> {
    /// One session, in the calling thread.
    pub fn session(&self, index: u32) {
        // Set again because a kernel need not hand it on to a child.
        let _ = sys::register_for_barriers();
        let session = loop {
            match self.instance.session("bench", Class::Normal) {
                Ok(session) => break session,
                Err(SessionError::Stuck) => {}
                Err(_) => return self.board.fail(Missing::Session),
            }
        };
        let deadline = self.board.gather();
        // The modes apart, so that each has its own fast path.
        match self.mode {
            Mode::Shared => self.rounds(&session, index, Mode::Shared, deadline),
            Mode::Exclusive => self.rounds(&session, index, Mode::Exclusive, deadline),
            Mode::LongExclusive => self.rounds(&session, index, Mode::LongExclusive, deadline),
            Mode::Examine => self.rounds(&session, index, Mode::Examine, deadline),
        }
        drop(session);
        self.board.finish();
    }

    /// So many sessions, as threads of the calling process.
    pub fn threads(&self, sessions: u32) {
        std::thread::scope(|scope| {
            for index in 0..sessions {
                while index.saturating_sub(self.board.ready()) >= THRONG && self.board.missing().is_none() {
                    sys::sleep(Duration::from_micros(100));
                }
                let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
                if let Err(error) = thread.spawn_scoped(scope, move || self.session(index)) {
                    self.board.fail(Missing::Thread(index, error.raw_os_error().unwrap_or(libc::EAGAIN)));
                    return;
                }
            }
        });
    }

    #[inline(always)] // each mode with a fast path of its own
    #[allow(clippy::inline_always)]
    fn rounds(&self, session: &Session<'_>, index: u32, mode: Mode, deadline: sys::Deadline) {
        let (board, guarded, stamp) = (self.board, self.board.guarded(), u64::from(index) + 1);
        let (mut waits, mut random) = (Histogram::default(), Random::new(u64::from(index)));
        let (mut turn, mut ops, mut alone, mut violations, mut failures) = (0u64, 0u64, 0u64, 0u64, 0u64);
        while !board.is_over() {
            let rounds = self.section.next(&mut random);
            let mode = if self.writes > 0 && random.below(10_000) < self.writes { Mode::Exclusive } else { mode };
            let timed = turn % self.time_every == 0;
            turn += 1;
            let asked = if timed { sys::now_ns() } else { 0 };
            let got = guarded.mutex.get(session, mode, location!("bench"), Patience::Until(deadline));
            let given = if timed { sys::now_ns() } else { 0 };
            match got {
                Ok(hold) => {
                    let seen = guarded.enter(mode, stamp);
                    if rounds > 0 {
                        work::spin(rounds);
                    }
                    violations += u64::from(!guarded.leave(mode, &seen));
                    drop(hold);
                    ops += 1;
                    alone += u64::from(mode != Mode::Shared);
                }
                Err(GetError::TimedOut) => board.stop(),
                Err(GetError::OwnerDied(mut died)) => {
                    failures += 1;
                    died.guard.consistent();
                }
                Err(_) => failures += 1,
            }
            if timed {
                // Also a wait that the end cut short: without it, who starved would not be seen at all.
                waits.record(given - asked);
            }
            self.think.think(&mut random, deadline);
        }
        let result = &board.results()[index as usize];
        result.ops.store(ops, Ordering::Relaxed);
        result.alone.store(alone, Ordering::Relaxed);
        result.violations.store(violations, Ordering::Relaxed);
        result.failures.store(failures, Ordering::Relaxed);
        board.waits().add(&waits);
    }
}
