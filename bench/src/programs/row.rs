//! Figures of a program under one thing, over all rounds.

use super::catalogue::Program;
use super::measure::under;
use crate::command::{Measured, Reported, Run, Speed};
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
    #[serde(flatten)]
    pub speed: Speed,
    wait_p50_us: Option<f64>,
    wait_p99_us: Option<f64>,
    wait_p999_us: Option<f64>,
    /// The longest of all rounds.
    wait_max_us: Option<f64>,
    #[serde(flatten)]
    reported: Reported,
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
        measured: &[Measured],
    ) -> Vec<Self> {
        let row = |(scheme, own): (&Option<String>, &Measured)| {
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
        own: &Measured,
        plain: Option<&Measured>,
    ) -> Self {
        let runs = &own.runs;
        Self {
            program,
            version: version.map(str::to_owned),
            under,
            rounds: runs.len(),
            duration_s,
            speed: Speed::of(own, plain),
            wait_p50_us: own.middle(|run| run.waits_us[0]),
            wait_p99_us: own.middle(|run| run.waits_us[1]),
            wait_p999_us: own.middle(|run| run.waits_us[2]),
            wait_max_us: own.most(|run| run.waits_us[3]),
            reported: Reported::of(own),
            observer_cpu_pct: own.middle(|run| run.report.as_ref()?["observer"]["cpu_pct"].as_f64()),
            failure: own.failure.clone().or_else(|| nothing(runs)),
        }
    }
}

/// A run in which nothing was handled shows nothing.
fn nothing(runs: &[Run]) -> Option<String> {
    let none = runs.iter().find(|run| run.calls("handled") == Some(0.0))?;
    let why = none.report.as_ref().map(|report| &report["nothing_handled"]);
    Some(match why {
        Some(Value::String(why)) => format!("no lock was handled: {why}"),
        _ => "no lock was handled".to_owned(),
    })
}
