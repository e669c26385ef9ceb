//! What a session of a cell does.

use crate::board::{Board, Ledger, Missing, Span};
use crate::clock::ticks;
use crate::limits::THRONG;
use crate::load::{Random, Start, Think, Times};
use crate::peer::{Miss, Peer};
use crate::work;
use retrial::sys;
use std::time::Duration;

const STACK_BYTES: usize = 128 << 10;

/// What all sessions of a cell do.
#[derive(Debug)]
pub struct Task<'a, P> {
    pub peer: &'a P,
    pub board: &'a Board,
    /// Gets are beside each other, but for those that write.
    pub reads: bool,
    /// Gets that write, out of 10,000.
    pub writes: u64,
    /// Rounds of work in a section.
    pub section: Times,
    pub think: Think,
    pub start: Start,
    /// Ticks of a window.
    pub window: u64,
}

impl<P: Peer> Task<'_, P> {
    /// One session, in the calling thread.
    pub fn session(&self, index: u32) {
        let Some(session) = self.peer.session(index) else { return self.board.fail(Missing::Session) };
        let span = self.board.gather();
        let alone = self.rounds(&session, index, span);
        drop(session);
        self.board.finish(index, alone);
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

    /// Gives how many sections were to be alone.
    fn rounds(&self, session: &P::Session<'_>, index: u32, span: Span) -> u64 {
        let (protected, stamp) = (self.peer.protected_by(index % self.peer.copies()), u64::from(index) + 1);
        let ledger: &Ledger = &self.board.ledgers()[index as usize];
        let (mut random, mut alone) = (Random::new(u64::from(index)), 0u64);
        let (mut window, mut window_end) = (0usize, span.start_ticks + self.window);
        if self.start == Start::Spread {
            self.think.think(&mut random, span.deadline);
        }
        loop {
            let rounds = self.section.next(&mut random);
            let writes = self.writes > 0 && random.below(10_000) < self.writes;
            let shared = self.reads && !writes;
            let asked = ticks();
            if asked >= span.end_ticks {
                return alone;
            }
            ledger.ask(asked);
            let (mut given, mut intact) = (0, true);
            let got = self.peer.with(session, writes, span.deadline, || {
                given = ticks();
                let seen = protected.enter(shared, stamp);
                if rounds > 0 {
                    work::spin(rounds);
                }
                intact = protected.leave(shared, &seen);
            });
            if got == Err(Miss::TimedOut) {
                given = span.end_ticks;
            } else if got == Err(Miss::Failed) {
                given = ticks();
                ledger.failure();
            }
            if !intact {
                ledger.violation();
            }
            // Also a wait that the end cut short: without it, who starved would not be seen at all.
            ledger.answer(given.min(span.end_ticks).saturating_sub(asked));
            if got.is_ok() {
                alone += u64::from(!shared);
                if given < span.end_ticks {
                    while given >= window_end {
                        (window, window_end) = (window + 1, window_end + self.window);
                    }
                    ledger.grant(window);
                }
            } else if got == Err(Miss::TimedOut) {
                return alone;
            }
            self.think.think(&mut random, span.deadline);
        }
    }
}
