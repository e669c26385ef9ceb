//! The processor's counter of time, which is read in a fraction of what the kernel's clock takes: every wait
//! is timed.

use retrial::sys;
use std::time::Duration;

/// The counter, the same on all processors.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has it.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: reads a register that Linux lets everybody read.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }
}

/// How fast the counter is.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    ns_per_tick: f64,
}

impl Clock {
    /// Compares it with the kernel's clock for 20 ms.
    pub fn calibrate() -> Self {
        let (from, from_ns) = Self::both();
        std::thread::sleep(Duration::from_millis(20));
        let (to, to_ns) = Self::both();
        Self { ns_per_tick: (to_ns - from_ns) as f64 / to.saturating_sub(from).max(1) as f64 }
    }

    /// Both at one moment: the pair, of several, that was read fastest.
    fn both() -> (u64, u64) {
        let pair = |_| {
            let (before, ns, after) = (ticks(), sys::now_ns(), ticks());
            (after.wrapping_sub(before), u64::midpoint(before, after), ns)
        };
        let (_, ticks, ns) = (0..16).map(pair).min().unwrap_or_default();
        (ticks, ns)
    }

    pub fn ns(self, ticks: u64) -> f64 {
        ticks as f64 * self.ns_per_tick
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a year of ticks is 2^57
    pub fn ticks_in(self, time: Duration) -> u64 {
        (time.as_nanos() as f64 / self.ns_per_tick) as u64
    }

    /// What the counter shows at a moment to come.
    pub fn at(self, deadline: sys::Deadline) -> u64 {
        let (now, now_ns) = Self::both();
        now + self.ticks_in(Duration::from_nanos(deadline.at_ns.saturating_sub(now_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_times_are_each_others_inverse() {
        let clock = Clock::calibrate();
        let ns = clock.ns(clock.ticks_in(Duration::from_secs(3)));
        assert!((ns - 3e9).abs() < 100.0, "{ns}");
        let ahead = clock.at(sys::Deadline::after(Duration::from_hours(1)));
        assert!(ahead > ticks() + clock.ticks_in(Duration::from_mins(50)));
    }
}
