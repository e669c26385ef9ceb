//! What the runs of a scheme come to.

use super::PLAIN;
use super::workload::Workload;
use crate::command::{self, Measured};
use miette::{Report, miette};
use serde::Serialize;
use serde_json::Value;

/// What tables do not show; files have all.
pub const HIDDEN: [&str; 4] = ["workload", "duration_s", "cpu_s_per_s", "gets_per_op"];

/// A scheme with so many processes. Units are in the names; a figure is the median of the rounds, a ratio the
/// median of the rounds' ratios. `None` where nothing was measured.
#[derive(Serialize)]
pub struct Row {
    workload: &'static str,
    processes: u32,
    under: String,
    rounds: usize,
    duration_s: u32,
    ops_per_s: Option<f64>,
    ops_min: Option<f64>,
    ops_max: Option<f64>,
    ops_to_plain: Option<f64>,
    cpu_s_per_s: Option<f64>,
    cpu_us_per_op: Option<f64>,
    cpu_us_min: Option<f64>,
    cpu_us_max: Option<f64>,
    cpu_to_plain: Option<f64>,
    gets_per_op: Option<f64>,
    misses_pct: Option<f64>,
    /// Calls on mutexes of a run.
    handled: Option<f64>,
    fallback: Option<f64>,
    pub failure: Option<String>,
}

/// What is measured of a workload.
pub struct Load {
    pub workload: &'static Workload,
    pub processes: u32,
    pub seconds: u32,
}

/// What a run came to.
pub struct Run {
    pub operations: u64,
    pub elapsed_s: f64,
    /// Of the processes while they worked.
    pub cpu_s: f64,
    /// What `retrial run` reports.
    pub report: Option<Value>,
}

impl Run {
    /// From what each process said: operations, begin and end in µs, processor time in ns.
    pub fn of(processes: &[Vec<u64>]) -> Result<Self, Report> {
        let (mut operations, mut begin, mut end, mut cpu_ns) = (0, u64::MAX, 0, 0);
        for numbers in processes {
            let [own, from, to, ns] = numbers[..] else {
                return Err(miette!(code = "bench::gtm", "a process says {numbers:?}, expected four numbers"));
            };
            operations += own;
            begin = begin.min(from);
            end = end.max(to);
            cpu_ns += ns;
        }
        let elapsed_s = end.saturating_sub(begin).max(1) as f64 / 1e6;
        Ok(Self { operations, elapsed_s, cpu_s: cpu_ns as f64 / 1e9, report: None })
    }

    fn ops_per_s(&self) -> f64 {
        self.operations as f64 / self.elapsed_s
    }

    fn cpu_us_per_op(&self) -> f64 {
        self.cpu_s * 1e6 / self.operations as f64
    }
}

impl Row {
    pub fn new(load: &Load, scheme: &str, own: &Measured<Run>, plain: Option<&Measured<Run>>) -> Self {
        let rounds = own.beside(plain);
        let calls = |which: &str| rounds.middle(|run| command::calls(run.report.as_ref()?, which));
        let figure = |run: &Run, name: &str| run.report.as_ref()?[name].as_f64();
        let ops = |run: &Run| Some(run.ops_per_s());
        let cpu = |run: &Run| Some(run.cpu_us_per_op());
        Self {
            workload: load.workload.name,
            processes: load.processes,
            under: if scheme == PLAIN { PLAIN.to_owned() } else { format!("retrial {scheme}") },
            rounds: own.runs.len(),
            duration_s: load.seconds,
            ops_per_s: rounds.middle(ops),
            ops_min: rounds.least(ops),
            ops_max: rounds.most(ops),
            ops_to_plain: rounds.ratio(Run::ops_per_s),
            cpu_s_per_s: rounds.middle(|run| Some(run.cpu_s / run.elapsed_s)),
            cpu_us_per_op: rounds.middle(cpu),
            cpu_us_min: rounds.least(cpu),
            cpu_us_max: rounds.most(cpu),
            cpu_to_plain: rounds.ratio(Run::cpu_us_per_op),
            gets_per_op: rounds.middle(|run| Some(figure(run, "gets")? / run.operations as f64)),
            misses_pct: rounds.middle(|run| Some(100.0 * figure(run, "misses")? / figure(run, "gets")?)),
            handled: calls("handled"),
            fallback: calls("fallback"),
            failure: own.failure.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_from_the_first_begin_to_the_last_end() {
        let run = Run::of(&[vec![20, 1_000_000, 3_000_000, 500], vec![40, 1_500_000, 4_000_000, 700]]).unwrap();
        assert_eq!((run.operations, run.elapsed_s, run.cpu_s), (60, 3.0, 1.2e-6));
        assert!(Run::of(&[vec![1, 2, 3]]).is_err());
    }
}
