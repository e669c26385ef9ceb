//! A workload and how it was found, as a file.

use crate::calibration;
use crate::output::whole;
use miette::{Report, miette};
use retrial::P;
use retrial::views::{Counter, Figures, Params};
use retrial_bench::errors::directory;
use retrial_model::profile::Samples;
use retrial_model::sim::{Arrivals, Machine, Workload};
use retrial_model::{Distribution, Profile};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

/// What is known of the holding times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// Their distribution was given.
    Given,
    /// Their mean alone: exponential times stand for them, and beside these times that are all the same.
    Mean,
    /// So many were timed from outside.
    Timed(u64),
}

/// A workload and how it was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// What it is of, for people.
    pub of: String,
    /// Where it was measured: instance, mutex as `#ID`, type; for commands to type.
    pub instance: Option<String>,
    pub mutex: Option<String>,
    pub mutex_type: Option<String>,
    pub holds: Holds,
    pub workload: Workload,
    pub measured: Option<Profile>,
    /// What was supposed on the way.
    pub notes: Vec<String>,
}

impl Recording {
    /// A description.
    pub fn described(workload: Workload) -> Self {
        Self {
            of: "the workload described".to_owned(),
            instance: None,
            mutex: None,
            mutex_type: None,
            holds: Holds::Given,
            workload,
            measured: None,
            notes: Vec::new(),
        }
    }

    /// Reads a recording, a report of `retrial run`, or a workload alone. `sessions`: of a report, which does
    /// not say how many there were; `mutex`: of a report, the one that is meant.
    pub fn read(path: &Path, sessions: Option<u32>, mutex: Option<&str>) -> Result<Self, Report> {
        let file = path.display();
        let wrong = |found: String| {
            miette!(
                code = "retrial::predict::file",
                help = format!("retrial what-if --record {file}, or: retrial run --report {file} -- PROGRAM"),
                "{file}: {found}; expected a recording of what-if, a report of run, or a workload, as JSON"
            )
        };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let value: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if value.get("busiest").is_some() {
            return report(&value, sessions, mutex).map_err(wrong);
        }
        if value.get("arrivals").is_some() {
            return serde_json::from_value(value).map(Self::described).map_err(|error| wrong(error.to_string()));
        }
        serde_json::from_value(value).map_err(|error| wrong(error.to_string()))
    }

    pub fn write(&self, path: &Path) -> Result<(), Report> {
        let text = serde_json::to_string_pretty(self).expect("numbers and texts") + "\n";
        std::fs::write(path, text).map_err(|error| {
            let directory = directory(path);
            miette!(
                code = "retrial::predict::record",
                help = format!("ls -ld {0}; df {0}", directory.display()),
                "cannot write {}: {error}",
                path.display()
            )
        })
    }
}

fn count(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or(0)
}

/// Time of the waits of a mutex of a report.
fn wait_ns(row: &Value) -> f64 {
    row["wait_ms"].as_f64().unwrap_or(0.0) * 1e6
}

/// The counters of a mutex of a report, as far as it has them.
fn figures(row: &Value) -> Figures {
    let mut figures = Figures::default();
    for counter in
        [Counter::Misses, Counter::SpinGets, Counter::Waits, Counter::Yields, Counter::Sleeps, Counter::Parks]
    {
        figures.counters[counter as usize] = count(row, Counter::NAMES[counter as usize]);
    }
    let gave_up = count(row, "gave_up");
    figures.counters[Counter::GaveUp as usize] = gave_up;
    let k = row["k"].as_f64().unwrap_or(0.0);
    if k > 0.0 {
        figures.counters[Counter::Busy as usize] = whole((figures.sleeps() + gave_up) as f64 / k);
    }
    let parts = [
        ("spin_pct", Counter::SpinNs),
        ("yield_pct", Counter::YieldNs),
        ("slept_pct", Counter::SleptNs),
        ("oversleep_pct", Counter::OverNs),
    ];
    for (name, counter) in parts {
        figures.counters[counter as usize] = whole(row[name].as_f64().unwrap_or(0.0) / 100.0 * wait_ns(row));
    }
    figures
}

/// From the JSON report of a run: rates, counters and the holding time of one of its busiest mutexes.
fn report(report: &Value, sessions: Option<u32>, mutex: Option<&str>) -> Result<Recording, String> {
    let rows = report["busiest"].as_array().ok_or("`busiest` is no list")?;
    let title = |row: &Value| row["mutex"].as_str().unwrap_or_default().to_owned();
    let is_meant = |row: &&Value| match mutex {
        None => row["holding_us"].is_number(),
        Some(name) => {
            title(row) == name || title(row).split_once(' ').is_some_and(|(id, rest)| id == name || rest == name)
        }
    };
    let row = rows.iter().find(is_meant).ok_or_else(|| match mutex {
        None => "no mutex whose holding time was measured".to_owned(),
        Some(name) => {
            format!("no mutex `{name}`, there are {}", rows.iter().map(title).collect::<Vec<_>>().join(", "))
        }
    })?;
    let number = |value: &Value, name: &str| value[name].as_f64().ok_or_else(|| format!("no number `{name}`"));
    let (hold_s, rate) = (number(row, "holding_us")? / 1e6, number(row, "gets_per_s")?);
    let interval_s = number(report, "elapsed_s")?;
    let figures = figures(row);
    let mut notes = vec!["parameters other than the scheme at their defaults: a report does not say them".to_owned()];
    let hold = Distribution::exponential(hold_s).map_err(|error| error.to_string())?;
    let wait_s = wait_ns(row) / 1e9 / (rate * interval_s) + rate * hold_s * hold.residual_mean().unwrap_or(0.0);
    let arrivals = if let Some(sessions) = sessions {
        let think = think(f64::from(sessions) / rate - hold_s - wait_s, hold_s);
        Arrivals::Closed { sessions, think, on_processor: true }
    } else {
        notes.push(
            "how many threads there were a report does not say: sessions that come from outside at the rate measured, each for one get; \
             with sessions=N they are N that think between two gets"
                .to_owned(),
        );
        Arrivals::Open { rate }
    };
    let scheme = report["scheme"].as_str().unwrap_or_default();
    let position = retrial::wait::named(scheme).ok_or_else(|| format!("scheme `{scheme}`"))?;
    let (utilization, looks) = (row["utilization"].as_f64().unwrap_or(0.0), count(row, "samples"));
    let held_s = utilization * interval_s;
    let held = whole(utilization * looks as f64);
    // Of the gets in the time of the samples a report says the quotient alone.
    let samples = Samples { looks, held, time_s: interval_s, held_s, gets: whole(held_s / hold_s) };
    let mut workload = Workload::new(arrivals, hold, 1.0);
    (workload.warm_up, workload.duration) = spans(rate);
    workload.params = Params::default().with(P::Scheme, position as u64);
    workload.machine = Machine::from(&calibration::load().unwrap_or_default());
    workload.machine.processors = report["machine"]["cpus"].as_u64().and_then(|cpus| u32::try_from(cpus).ok());
    Ok(Recording {
        of: format!("{} of `{}`", title(row), report["command"].as_str().unwrap_or_default()),
        instance: None,
        mutex: None,
        mutex_type: None,
        holds: Holds::Mean,
        workload,
        measured: Some(Profile {
            time_s: interval_s,
            gets: Some(count(row, "gets")),
            gets_of_type: Some(whole(number(report, "gets")?)),
            sessions,
            figures,
            samples,
            busy: report["machine_busy_pct"].as_f64().map(|busy| busy / 100.0),
            ..Profile::default()
        }),
        notes,
    })
}

/// Seconds of the virtual clock before anything is counted, and those that are counted: enough gets for a
/// narrow interval, and many of the longest sleeps.
pub fn spans(gets_per_s: f64) -> (f64, f64) {
    const GETS: f64 = 200_000.0;
    let counted = (GETS / gets_per_s.max(1.0)).clamp(0.3, 5.0);
    (counted / 10.0, counted)
}

/// Think times: exponential. What is not above 0 by the figures is taken for a hundredth of the holding time.
pub fn think(mean_s: f64, hold_s: f64) -> Distribution {
    let mean_s = mean_s.max(hold_s / 100.0);
    Distribution::exponential(mean_s).expect("a positive time")
}
