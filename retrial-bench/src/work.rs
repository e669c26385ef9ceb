//! Busy work of a known length: arithmetic, not clock reads, so that a section can be shorter than a look at
//! the clock.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Does so many rounds of arithmetic, each of which needs the result of the one before.
#[inline(never)]
pub fn spin(rounds: u64) {
    let mut x = black_box(0x9e37_79b9_u64);
    for _ in 0..rounds {
        x = x.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ (x >> 7);
    }
    black_box(x);
}

/// How fast the arithmetic is on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    rounds_per_ns: f64,
}

impl Work {
    /// Measures it, in about 50 ms.
    pub fn calibrate() -> Self {
        const ROUNDS: u32 = 10_000;
        let fastest = (0..200).map(|_| {
            let start = Instant::now();
            spin(u64::from(ROUNDS));
            let took = start.elapsed();
            // Spread out, so that not all are beside the same neighbour on the core.
            std::thread::sleep(Duration::from_micros(150));
            took
        });
        // The least: all others were interrupted or slowed down.
        let ns = fastest.min().unwrap_or(Duration::ZERO).as_nanos().max(1);
        Self { rounds_per_ns: f64::from(ROUNDS) / ns as f64 }
    }

    /// Rounds that take this long.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 24 h are 2^47 rounds
    pub fn rounds(self, time: Duration) -> u64 {
        (time.as_nanos() as f64 * self.rounds_per_ns).round() as u64
    }
}
