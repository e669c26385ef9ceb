//! Waiting in small steps, of which Ctrl-C, a limit and a machine that was away are seen.

use retrial_bench::cell::Stopped;
use retrial_bench::signals;
use std::thread;
use std::time::{Duration, Instant};

/// How exactly the end of anything is seen.
pub const STEP: Duration = Duration::from_millis(5);

pub struct Pace {
    /// Steps, not time: one during which all was stopped counts once.
    left: u128,
    last: Instant,
    /// The longest step: much more than [`STEP`] if the machine was away.
    pub stall: Duration,
}

impl Pace {
    /// Waits at most so long.
    pub fn new(limit: Duration) -> Self {
        Self { left: limit.as_millis() / STEP.as_millis(), last: Instant::now(), stall: Duration::ZERO }
    }

    /// Waits a step; `false` when there have been too many. Ctrl-C is an error.
    pub fn step(&mut self) -> Result<bool, Stopped> {
        if signals::received().is_some() {
            return Err(Stopped::Interrupted);
        }
        thread::sleep(STEP);
        let now = Instant::now();
        self.stall = self.stall.max(now - self.last);
        self.last = now;
        self.left = self.left.saturating_sub(1);
        Ok(self.left > 0)
    }
}
