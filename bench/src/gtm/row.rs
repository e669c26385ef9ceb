//! What the runs of a scheme come to.

use super::PLAIN;
use super::workload::Workload;
use crate::command::{Measured, Reported, Run, Speed};
use miette::{Report, miette};
use serde::Serialize;

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
    #[serde(flatten)]
    speed: Speed,
    gets_per_op: Option<f64>,
    #[serde(flatten)]
    reported: Reported,
    pub failure: Option<String>,
}

/// What is measured of a workload.
pub struct Load {
    pub workload: &'static Workload,
    pub processes: u32,
    pub seconds: u32,
}

/// From what each process said, which is operations, begin and end in µs, and processor time in ns: what a
/// run came to, and its operations.
pub fn run(processes: &[Vec<u64>]) -> Result<(Run, u64), Report> {
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
    let (elapsed_s, cpu_s) = (end.saturating_sub(begin).max(1) as f64 / 1e6, cpu_ns as f64 / 1e9);
    let run = Run {
        operations: operations as f64,
        ops_per_s: operations as f64 / elapsed_s,
        cpu_s_per_s: cpu_s / elapsed_s,
        cpu_us_per_op: cpu_s * 1e6 / operations as f64,
        waits_us: [None; 4],
        report: None,
    };
    Ok((run, operations))
}

impl Row {
    pub fn new(load: &Load, scheme: &str, own: &Measured, plain: Option<&Measured>) -> Self {
        Self {
            workload: load.workload.name,
            processes: load.processes,
            under: if scheme == PLAIN { PLAIN.to_owned() } else { format!("retrial {scheme}") },
            rounds: own.runs.len(),
            duration_s: load.seconds,
            speed: Speed::of(own, plain),
            gets_per_op: own.middle(|run| Some(run.figure("gets")? / run.operations)),
            reported: Reported::of(own),
            failure: own.failure.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_from_the_first_begin_to_the_last_end() {
        let processes = [vec![20, 1_000_000, 3_000_000, 500], vec![40, 1_500_000, 4_000_000, 700]];
        let (found, operations) = run(&processes).unwrap();
        assert_eq!((operations, found.ops_per_s, found.cpu_s_per_s), (60, 20.0, 1.2e-6 / 3.0));
        assert!(run(&[vec![1, 2, 3]]).is_err());
    }
}
