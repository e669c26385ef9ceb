//! How full the machine is, as the kernel says.

use retrial_bench::machine::Ticks;
use std::fs;

/// The machine at a moment. What the kernel does not tell is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Processors that this process may use.
    pub processors: usize,
    /// Time of all processors so far.
    pub ticks: Option<Ticks>,
    /// Threads that run or are ready to, on all processors.
    pub runnable: Option<u64>,
    /// Time so far in which a thread waited for a processor, in us: `some` of /proc/pressure/cpu.
    pub pressure_us: Option<u64>,
    /// Frequency of the first processor in kHz.
    pub frequency_khz: Option<u64>,
}

impl Load {
    pub fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        let runnable = read("/proc/stat").and_then(|text| number_after(&text, "procs_running "));
        let pressure_us = read("/proc/pressure/cpu").and_then(|text| number_after(text.lines().next()?, "total="));
        let frequency = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq");
        Self {
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            ticks: Ticks::now(),
            // This process is one of them.
            runnable: runnable.map(|threads| threads.saturating_sub(1)),
            pressure_us,
            frequency_khz: frequency.and_then(|text| text.trim().parse().ok()),
        }
    }

    /// Share of the processors that were busy since then, with anybody's work.
    pub fn busy_since(&self, earlier: &Self) -> Option<f64> {
        self.ticks?.busy_since(earlier.ticks?)
    }

    /// Share of the processors' time that a hypervisor gave to other machines since then.
    pub fn stolen_since(&self, earlier: &Self) -> Option<f64> {
        let (now, then) = (self.ticks?, earlier.ticks?);
        let all = now.all.checked_sub(then.all).filter(|ticks| *ticks > 0)?;
        Some(now.steal.saturating_sub(then.steal) as f64 / all as f64)
    }

    /// Share of the time in which a thread waited for a processor since then, which was `time_s` ago.
    pub fn pressed_since(&self, earlier: &Self, time_s: f64) -> Option<f64> {
        let us = self.pressure_us?.saturating_sub(earlier.pressure_us?);
        (time_s > 0.0).then(|| us as f64 / 1e6 / time_s)
    }
}

/// What a thread has spent so far, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// On a processor.
    pub cpu_ns: u64,
    /// Ready to run, in a run queue.
    pub queued_ns: u64,
}

impl Spent {
    /// Of a thread of a process, where the kernel says it.
    pub fn of(pid: u32, tid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
        let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
        Some(Self { cpu_ns: numbers.next()??, queued_ns: numbers.next()?? })
    }
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    let (_, rest) = text.split_once(name)?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_by_its_name() {
        assert_eq!(number_after("some avg10=95.23 avg60=7.00 total=1413\n", "total="), Some(1413));
        assert_eq!(number_after("btime 12\nprocs_running 5\nprocs_blocked 1\n", "procs_running "), Some(5));
        assert_eq!(number_after("procs_running x", "procs_running "), None);
    }

    #[test]
    fn shares_are_of_the_time_between() {
        let at = |busy, all, steal, pressure_us| Load {
            ticks: Some(Ticks { busy, all, steal }),
            pressure_us: Some(pressure_us),
            ..Load::default()
        };
        let (then, now) = (at(100, 1000, 10, 5_000_000), at(150, 1200, 30, 7_500_000));
        assert_eq!(now.busy_since(&then), Some(0.25));
        assert_eq!(now.stolen_since(&then), Some(0.1));
        assert_eq!(now.pressed_since(&then, 10.0), Some(0.25));
        assert_eq!(now.stolen_since(&Load::default()), None);
    }
}
