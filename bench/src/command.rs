//! The command `retrial` under which programs are measured, and the figures of their rounds.

use miette::{IntoDiagnostic, Report, WrapErr, miette};
use retrial::Address;
use retrial_bench::outcome::median;
use retrial_bench::output::rounded;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

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

/// What is measured of a program under one thing: its rounds.
pub struct Measured<R> {
    pub runs: Vec<R>,
    /// Why there are no more.
    pub failure: Option<String>,
}

impl<R> Default for Measured<R> {
    fn default() -> Self {
        Self { runs: Vec::new(), failure: None }
    }
}

impl<R> Measured<R> {
    pub fn failed(why: &str) -> Self {
        Self { runs: Vec::new(), failure: Some(why.to_owned()) }
    }

    pub fn is_begun(&self) -> bool {
        !self.runs.is_empty() || self.failure.is_some()
    }

    /// Beside those of the program as it is.
    pub fn beside<'a>(&'a self, plain: Option<&'a Self>) -> Rounds<'a, R> {
        Rounds { own: &self.runs, plain: plain.map(|plain| plain.runs.as_slice()) }
    }
}

/// Runs of a program under one thing, and those without us in the same rounds. Figures have three digits;
/// `None` where nothing was measured.
pub struct Rounds<'a, R> {
    own: &'a [R],
    plain: Option<&'a [R]>,
}

impl<R> Rounds<'_, R> {
    fn all(&self, value: impl Fn(&R) -> Option<f64>) -> Vec<f64> {
        self.own.iter().filter_map(value).collect()
    }

    pub fn middle(&self, value: impl Fn(&R) -> Option<f64>) -> Option<f64> {
        median(self.all(value)).map(|m| rounded(m, 3))
    }

    pub fn least(&self, value: impl Fn(&R) -> Option<f64>) -> Option<f64> {
        self.all(value).into_iter().reduce(f64::min).map(|m| rounded(m, 3))
    }

    pub fn most(&self, value: impl Fn(&R) -> Option<f64>) -> Option<f64> {
        self.all(value).into_iter().reduce(f64::max).map(|m| rounded(m, 3))
    }

    /// The median of the rounds' ratios to plain.
    pub fn ratio(&self, value: impl Fn(&R) -> f64) -> Option<f64> {
        let pairs = self.own.iter().zip(self.plain?);
        median(pairs.map(|(own, plain)| value(own) / value(plain)).collect()).map(|m| rounded(m, 3))
    }
}
