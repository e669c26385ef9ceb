//! The command `retrial` under which programs are measured, and the figures of their rounds.

use miette::{IntoDiagnostic, Report, WrapErr, miette};
use retrial::Address;
use retrial_bench::outcome::median;
use retrial_bench::output::rounded;
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The one that was named, or the one beside this program.
pub fn retrial(named: Option<&Path>) -> Result<PathBuf, Report> {
    let beside = std::env::current_exe().unwrap_or_default().with_file_name("retrial");
    let path = named.unwrap_or(&beside);
    path.canonicalize().ok().filter(|path| path.is_file()).ok_or_else(|| {
        miette!(
            code = "bench::retrial",
            help = "cargo build --release, or name it with --retrial PATH",
            "no command {}",
            path.display()
        )
    })
}

/// Has the kernel end what the command starts when the calling thread ends, also by a kill or an abort.
pub fn ends_with_this_thread(command: &mut Command) {
    let follow = || {
        // SAFETY: takes numbers only; it cannot fail with this signal.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
        Ok(())
    };
    // SAFETY: nothing but a system call is made between fork and exec.
    unsafe { command.pre_exec(follow) };
}

/// The name of an instance; removed at the end, when `retrial run` was killed.
pub struct Instance(pub Address);

impl Instance {
    pub fn unused(what: &str) -> Result<Self, Report> {
        Address::new(&format!("bench-{what}-{}", std::process::id())).map(Self).into_diagnostic()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0.path());
    }
}

/// What `retrial run` reports.
pub fn report(path: &Path) -> Result<Value, Report> {
    let wrong = || format!("the report of retrial run, {}", path.display());
    let text = fs::read(path).into_diagnostic().wrap_err_with(wrong)?;
    serde_json::from_slice(&text).into_diagnostic().wrap_err_with(wrong)
}

/// Calls of all kinds, by a column of that report.
pub fn calls(report: &Value, which: &str) -> Option<f64> {
    Some(report["calls"].as_array()?.iter().filter_map(|kind| kind[which].as_f64()).sum())
}

/// What a run came to.
pub struct Run {
    pub operations: f64,
    pub ops_per_s: f64,
    /// Of the program, user and system.
    pub cpu_s_per_s: f64,
    pub cpu_us_per_op: f64,
    /// Waits in µs as the load printed them: median, 99 of 100, 999 of 1000, longest.
    pub waits_us: [Option<f64>; 4],
    /// What `retrial run` reports.
    pub report: Option<Value>,
}

impl Run {
    /// A figure of the report.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.report.as_ref()?[name].as_f64()
    }

    pub fn calls(&self, which: &str) -> Option<f64> {
        calls(self.report.as_ref()?, which)
    }

    fn misses_pct(&self) -> Option<f64> {
        let (misses, gets) = (self.figure("misses")?, self.figure("gets")?);
        (gets > 0.0).then(|| 100.0 * misses / gets)
    }
}

/// What is measured of a program under one thing: its rounds. Figures have three digits; `None` where nothing
/// was measured.
#[derive(Default)]
pub struct Measured {
    pub runs: Vec<Run>,
    /// Why there are no more.
    pub failure: Option<String>,
}

impl Measured {
    pub fn failed(why: &str) -> Self {
        Self { runs: Vec::new(), failure: Some(why.to_owned()) }
    }

    pub fn is_begun(&self) -> bool {
        !self.runs.is_empty() || self.failure.is_some()
    }

    fn all(&self, value: impl Fn(&Run) -> Option<f64>) -> Vec<f64> {
        self.runs.iter().filter_map(value).collect()
    }

    pub fn middle(&self, value: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        median(self.all(value)).map(|m| rounded(m, 3))
    }

    fn least(&self, value: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        self.all(value).into_iter().reduce(f64::min).map(|m| rounded(m, 3))
    }

    pub fn most(&self, value: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        self.all(value).into_iter().reduce(f64::max).map(|m| rounded(m, 3))
    }

    /// The median of the rounds' ratios to those of the program as it is.
    fn ratio(&self, plain: Option<&Self>, value: impl Fn(&Run) -> f64) -> Option<f64> {
        let pairs = self.runs.iter().zip(&plain?.runs);
        median(pairs.map(|(own, plain)| value(own) / value(plain)).collect()).map(|m| rounded(m, 3))
    }
}

/// Columns of how fast the runs were, and of the processor time that they took.
#[derive(Serialize)]
pub struct Speed {
    pub ops_per_s: Option<f64>,
    ops_min: Option<f64>,
    ops_max: Option<f64>,
    ops_to_plain: Option<f64>,
    cpu_s_per_s: Option<f64>,
    cpu_us_per_op: Option<f64>,
    cpu_us_min: Option<f64>,
    cpu_us_max: Option<f64>,
    cpu_to_plain: Option<f64>,
}

impl Speed {
    pub fn of(own: &Measured, plain: Option<&Measured>) -> Self {
        let ops = |run: &Run| Some(run.ops_per_s);
        let cpu = |run: &Run| Some(run.cpu_us_per_op);
        Self {
            ops_per_s: own.middle(ops),
            ops_min: own.least(ops),
            ops_max: own.most(ops),
            ops_to_plain: own.ratio(plain, |run| run.ops_per_s),
            cpu_s_per_s: own.middle(|run| Some(run.cpu_s_per_s)),
            cpu_us_per_op: own.middle(cpu),
            cpu_us_min: own.least(cpu),
            cpu_us_max: own.most(cpu),
            cpu_to_plain: own.ratio(plain, |run| run.cpu_us_per_op),
        }
    }
}

/// Columns of what `retrial run` reports.
#[derive(Serialize)]
pub struct Reported {
    misses_pct: Option<f64>,
    /// Calls of a run.
    handled: Option<f64>,
    fallback: Option<f64>,
}

impl Reported {
    pub fn of(own: &Measured) -> Self {
        Self {
            misses_pct: own.middle(Run::misses_pct),
            handled: own.middle(|run| run.calls("handled")),
            fallback: own.middle(|run| run.calls("fallback")),
        }
    }
}
