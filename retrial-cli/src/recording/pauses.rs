//! Uneven pauses between samples.

use crate::duration::nanos;
use retrial::sys::{now_ns, thread_cpu_ns};
use retrial::wait;
use std::cell::Cell;
use std::time::Duration;

/// Mean time between two samples of a live view, and the least number of times that it is as long as one takes.
const SAMPLE: Duration = Duration::from_millis(10);
const SAMPLE_TIMES: u64 = 100;

/// Pauses of a given mean length, so uneven that no rhythm of the program's is met at always the same point.
pub struct Pauses {
    random: Cell<u64>,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { random: Cell::new(now_ns() | 1) }
    }
}

impl Pauses {
    /// The next pause: half to one and a half times the mean. Both in ns.
    pub fn next(&self, mean_ns: u64) -> u64 {
        mean_ns / 2 + wait::random(&self.random) % mean_ns.max(1)
    }

    /// Takes a sample, and gives the pause after it: of this mean, or of so many times what the sample took where that
    /// is more. All in ns. What it took is its processor time: on busy processors it comes late as well.
    pub fn after(&self, mean_ns: u64, times: u64, sample: impl FnOnce()) -> u64 {
        let before_ns = thread_cpu_ns();
        sample();
        let took_ns = thread_cpu_ns() - before_ns;
        self.next(mean_ns.max(took_ns * times))
    }

    /// The same for a live view.
    pub fn after_live(&self, sample: impl FnOnce()) -> Duration {
        Duration::from_nanos(self.after(nanos(SAMPLE), SAMPLE_TIMES, sample))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_uneven_about_their_mean() {
        let pauses = Pauses { random: Cell::new(7) };
        let all: Vec<u64> = (0..10_000).map(|_| pauses.next(1000)).collect();
        let mean = all.iter().sum::<u64>() as f64 / all.len() as f64;
        assert!((mean - 1000.0).abs() < 20.0, "{mean}");
        assert!(all.iter().all(|pause| (500..1500).contains(pause)));
        assert!(all.iter().any(|pause| *pause < 600) && all.iter().any(|pause| *pause > 1400));
    }

    #[test]
    fn a_sample_that_came_late_is_followed_by_no_longer_pause_one_that_took_processor_time_is() {
        let pauses = Pauses { random: Cell::new(7) };
        assert!(pauses.after_live(|| std::thread::sleep(2 * SAMPLE)) < 2 * SAMPLE);
        let took = Duration::from_millis(1);
        let busy = || {
            let begin_ns = thread_cpu_ns();
            while Duration::from_nanos(thread_cpu_ns() - begin_ns) < took {}
        };
        assert!(pauses.after_live(busy) >= took * SAMPLE_TIMES as u32 / 2);
    }
}
