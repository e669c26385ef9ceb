//! How much of the processors was used of late, as Linux averages it: what was 32 periods of 1,024 us ago counts
//! half (*per-entity load tracking*, `kernel/sched/pelt.c`).

use super::{NS, Time};

const PERIOD: Time = 1_024_000 * NS;
const HALF_LIFE: f64 = (32 * PERIOD) as f64;

#[derive(Debug, Default)]
pub(super) struct Utilization {
    /// Processors that are in use, and since when.
    running: u32,
    since: Time,
    /// Beginning of the current period, and processor time used in it.
    begin: Time,
    used: Time,
    /// Mean number of processors in use, times its weight: what was before the beginning counts nothing.
    mean: f64,
    weight: f64,
}

impl Utilization {
    /// From now on one more processor is in use, or one less.
    pub(super) fn change(&mut self, more: bool, now: Time) {
        self.used += Time::from(self.running) * (now - self.since);
        self.since = now;
        self.running = if more { self.running + 1 } else { self.running - 1 };
        let passed = now - self.begin;
        if passed >= PERIOD {
            let kept = (-(passed as f64) / HALF_LIFE).exp2();
            self.mean = self.mean * kept + self.used as f64 / passed as f64 * (1.0 - kept);
            self.weight = self.weight * kept + (1.0 - kept);
            (self.begin, self.used) = (now, 0);
        }
    }

    /// Mean number of processors in use; 0 in the first period.
    pub(super) fn mean(&self) -> f64 {
        if self.weight > 0.0 { self.mean / self.weight } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_32_periods_ago_counts_half() {
        let mut used = Utilization::default();
        let mut now = 0;
        // All of one processor, and then a quarter of it.
        let mut run = |used: &mut Utilization, periods: u64, part: u64| {
            for _ in 0..periods {
                used.change(true, now);
                used.change(false, now + PERIOD * part / 4);
                now += PERIOD;
            }
            used.change(true, now);
            used.change(false, now);
        };
        assert!(used.mean() == 0.0);
        run(&mut used, 1000, 4);
        assert!((used.mean() - 1.0).abs() < 1e-6, "{}", used.mean());
        run(&mut used, 32, 1);
        assert!((used.mean() - 0.625).abs() < 0.01, "{}", used.mean());
    }

    #[test]
    fn the_beginning_is_no_time_without_use() {
        let mut used = Utilization::default();
        used.change(true, 0);
        used.change(true, 0);
        used.change(false, 2 * PERIOD);
        assert!((used.mean() - 2.0).abs() < 1e-9, "{}", used.mean());
    }
}
