//! Figures of a program under one thing, over all rounds.

use super::catalogue::Program;
use super::measure::{Run, under};
use crate::command::{self, Measured};
use serde::Serialize;
use serde_json::Value;

/// Units are in the names; a figure is the median of the rounds, a ratio the median of the rounds' ratios.
/// `None` where nothing was measured.
#[derive(Serialize)]
pub struct Row {
    program: &'static str,
    version: Option<String>,
    under: String,
    rounds: usize,
    duration_s: u32,
    pub ops_per_s: Option<f64>,
    ops_min: Option<f64>,
    ops_max: Option<f64>,
    ops_to_plain: Option<f64>,
    cpu_s_per_s: Option<f64>,
    cpu_us_per_op: Option<f64>,
    cpu_us_min: Option<f64>,
    cpu_us_max: Option<f64>,
    cpu_to_plain: Option<f64>,
    wait_p50_us: Option<f64>,
    wait_p99_us: Option<f64>,
    wait_p999_us: Option<f64>,
    /// The longest of all rounds.
    wait_max_us: Option<f64>,
    misses_pct: Option<f64>,
    /// Calls of a run.
    handled: Option<f64>,
    fallback: Option<f64>,
    observer_cpu_pct: Option<f64>,
    pub failure: Option<String>,
}

/// What tables do not show; files have all.
pub const HIDDEN: [&str; 7] =
    ["program", "version", "duration_s", "cpu_us_min", "cpu_us_max", "wait_p999_us", "observer_cpu_pct"];

impl Row {
    /// A row for each variant that was begun.
    pub fn of(
        program: &Program,
        version: Option<&str>,
        duration_s: u32,
        variants: &[Option<String>],
        measured: &[Measured<Run>],
    ) -> Vec<Self> {
        let row = |(scheme, own): (&Option<String>, &Measured<Run>)| {
            let plain = scheme.as_ref().and(measured.first());
            Self::new(program.name, version, duration_s, under(scheme.as_deref()), own, plain)
        };
        variants.iter().zip(measured).filter(|(_, m)| m.is_begun()).map(row).collect()
    }

    fn new(
        program: &'static str,
        version: Option<&str>,
        duration_s: u32,
        under: String,
        own: &Measured<Run>,
        plain: Option<&Measured<Run>>,
    ) -> Self {
        let runs = &own.runs;
        let rounds = own.beside(plain);
        let ops = |run: &Run| Some(run.ops_per_s);
        let cpu = |run: &Run| Some(run.cpu_us_per_op);
        Self {
            program,
            version: version.map(str::to_owned),
            under,
            rounds: runs.len(),
            duration_s,
            ops_per_s: rounds.middle(ops),
            ops_min: rounds.least(ops),
            ops_max: rounds.most(ops),
            ops_to_plain: rounds.ratio(|run| run.ops_per_s),
            cpu_s_per_s: rounds.middle(|run| Some(run.cpu_s_per_s)),
            cpu_us_per_op: rounds.middle(cpu),
            cpu_us_min: rounds.least(cpu),
            cpu_us_max: rounds.most(cpu),
            cpu_to_plain: rounds.ratio(|run| run.cpu_us_per_op),
            wait_p50_us: rounds.middle(|run| run.waits_us[0]),
            wait_p99_us: rounds.middle(|run| run.waits_us[1]),
            wait_p999_us: rounds.middle(|run| run.waits_us[2]),
            wait_max_us: rounds.most(|run| run.waits_us[3]),
            misses_pct: rounds.middle(misses_pct),
            handled: rounds.middle(|run| calls(run, "handled")),
            fallback: rounds.middle(|run| calls(run, "fallback")),
            observer_cpu_pct: rounds.middle(|run| run.report.as_ref()?["observer"]["cpu_pct"].as_f64()),
            failure: own.failure.clone().or_else(|| nothing(runs)),
        }
    }
}

/// Calls of all kinds.
fn calls(run: &Run, which: &str) -> Option<f64> {
    command::calls(run.report.as_ref()?, which)
}

fn misses_pct(run: &Run) -> Option<f64> {
    let number = |name: &str| run.report.as_ref()?[name].as_f64();
    number("misses").zip(number("gets")).filter(|(_, gets)| *gets > 0.0).map(|(misses, gets)| 100.0 * misses / gets)
}

/// A run in which nothing was handled shows nothing.
fn nothing(runs: &[Run]) -> Option<String> {
    let none = runs.iter().find(|run| calls(run, "handled") == Some(0.0))?;
    let why = none.report.as_ref().map(|report| &report["nothing_handled"]);
    Some(match why {
        Some(Value::String(why)) => format!("no lock was handled: {why}"),
        _ => "no lock was handled".to_owned(),
    })
}
