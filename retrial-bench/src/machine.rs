//! The machine that figures were measured on, and how full it was.

use crate::process::{children_cpu, own_cpu};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// Its processors and system.
#[derive(Clone, Debug)]
pub struct Machine {
    pub cpu: String,
    /// Processors that we may use.
    pub cpus: usize,
    pub kernel: String,
}

impl Machine {
    pub fn here() -> Self {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = info.lines().find(|line| line.starts_with(name))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: field("model name").or_else(|| field("CPU part")).unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim().to_owned(),
        }
    }

    pub fn text(&self) -> String {
        format!("{}, {} CPUs, Linux {}", self.cpu, self.cpus, self.kernel)
    }

    /// The same with the governor of the processors' clock, where there is one: the header of figures.
    pub fn line() -> String {
        let governor = fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").unwrap_or_default();
        let governor = if governor.is_empty() { governor } else { format!(", governor {}", governor.trim()) };
        format!("{}{governor}", Self::here().text())
    }

    pub fn json(&self) -> Value {
        json!({ "cpu": self.cpu, "cpus": self.cpus, "kernel": self.kernel })
    }
}

/// Ticks of all processors, or of one, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    pub busy: u64,
    pub all: u64,
    /// Those that a hypervisor gave to other machines while a processor of this one had work to do; they are
    /// busy ones, too.
    pub steal: u64,
}

impl Ticks {
    pub fn now() -> Option<Self> {
        Self::of(fs::read_to_string("/proc/stat").ok()?.lines().next()?)
    }

    /// Those of each processor so far, by its number.
    pub fn of_each() -> BTreeMap<usize, Self> {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let number = |line: &str| line.strip_prefix("cpu")?.split_once(' ')?.0.parse().ok();
        stat.lines().filter_map(|line| Some((number(line)?, Self::of(line)?))).collect()
    }

    fn of(line: &str) -> Option<Self> {
        let ticks: Vec<u64> = line.split_whitespace().skip(1).map_while(|t| t.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guests are counted in user already.
        let counted = ticks.get(..8)?;
        let all: u64 = counted.iter().sum();
        Some(Self { busy: all - counted[3] - counted[4], all, steal: counted[7] })
    }

    /// Share of the time that was busy since then, with anybody's work.
    pub fn busy_since(self, earlier: Self) -> Option<f64> {
        let all = self.all.checked_sub(earlier.all).filter(|ticks| *ticks > 0)?;
        Some(self.busy.saturating_sub(earlier.busy) as f64 / all as f64)
    }
}

/// What others take of the processors, from a point in time on.
pub struct Others {
    began: Instant,
    ticks: Ticks,
    own: Duration,
}

impl Others {
    /// From now on; `None` where the kernel does not say how busy it is.
    pub fn from_now() -> Option<Self> {
        Some(Self { began: Instant::now(), ticks: Ticks::now()?, own: own_cpu() + children_cpu() })
    }

    /// Their share of all processors so far, with what a hypervisor gave to other machines. Of this process's
    /// children those have to have ended that took much.
    pub fn share(&self) -> Option<f64> {
        let busy = Ticks::now()?.busy_since(self.ticks)?;
        let own = (own_cpu() + children_cpu()).saturating_sub(self.own);
        Some(beside(busy, own, self.began.elapsed() * u32::try_from(Ticks::of_each().len()).ok()?))
    }
}

/// What is left of the busy share of so much processor time beside our own.
fn beside(busy: f64, own: Duration, all: Duration) -> f64 {
    (busy - own.as_secs_f64() / all.as_secs_f64().max(1e-9)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_take_is_what_is_busy_less_our_own() {
        let s = Duration::from_secs;
        assert!((beside(0.75, s(2), s(8)) - 0.5).abs() < 1e-9);
        // The kernel's ticks are coarse.
        assert!(beside(0.2, s(2), s(8)).abs() < 1e-9);
        assert!(Others::from_now().unwrap().share().is_none_or(|share| (0.0..=1.0).contains(&share)));
    }
}
