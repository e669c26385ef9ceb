//! A row of figures: a peer under a load, over all rounds. One type for tables, JSON, CSV and pages.

use crate::measurement::{Load, Measurement, was_away};
use miette::{IntoDiagnostic, Report, WrapErr, miette};
use retrial_bench::cell::Cell;
use retrial_bench::load::Start;
use retrial_bench::outcome::{Outcome, median};
use retrial_bench::output::rounded;
use retrial_bench::output::{Table, column};
use retrial_model::Measure;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::Path;
use std::time::Duration;

/// Units are in the names; `None` where nothing was measured, and `note` says why.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Row {
    pub load: String,
    pub kind: String,
    pub sessions: u32,
    pub cs_ns: u64,
    pub think_ns: u64,
    pub writes_percent: f64,
    pub hogs: u32,
    pub start: String,
    pub peer: String,
    pub rounds: u32,
    pub duration_ms: u64,
    /// Median, least and greatest of the rounds.
    pub mops_per_s: Option<f64>,
    pub mops_min: Option<f64>,
    pub mops_max: Option<f64>,
    /// Median of the rounds' ratios to the best peer of the group.
    pub to_best: Option<f64>,
    /// Of the workers.
    pub cpu_s_per_s: Option<f64>,
    pub cpu_us_per_get: Option<f64>,
    pub jain: Option<f64>,
    pub wait_p50_us: Option<f64>,
    pub wait_p99_us: Option<f64>,
    pub wait_p999_us: Option<f64>,
    /// The greatest of all rounds.
    pub wait_max_us: Option<f64>,
    pub first_window_mops: Option<f64>,
    pub last_window_mops: Option<f64>,
    /// In thousand gets per second.
    pub windows_kops: String,
    /// Sessions that still waited when the measurement was given up after its end: the most of all rounds.
    pub waiting: u32,
    pub errors: u64,
    pub note: String,
}

/// What a group of rows has in common.
#[derive(Clone, PartialEq, Debug)]
pub struct Key {
    pub load: String,
    pub kind: String,
    pub sessions: u32,
    pub cs_ns: u64,
    pub think_ns: u64,
    pub writes_percent: f64,
    pub hogs: u32,
    pub start: String,
}

pub const fn start_name(start: Start) -> &'static str {
    match start {
        Start::Together => "together",
        Start::Spread => "spread",
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Key {
    pub fn new(load: Load, cell: &Cell) -> Self {
        Self {
            load: load.name().to_owned(),
            kind: cell.kind.name().to_owned(),
            sessions: cell.sessions,
            cs_ns: ns(cell.cs),
            think_ns: ns(cell.think),
            writes_percent: cell.writes as f64 / 100.0,
            hogs: cell.hogs,
            start: start_name(cell.start).to_owned(),
        }
    }

    /// For people.
    pub fn title(&self) -> String {
        let Self { sessions, kind, .. } = self;
        format!("{sessions} {kind}, {}", self.conditions())
    }

    /// The same but for sessions and kind.
    pub fn conditions(&self) -> String {
        let text = |ns| retrial_bench::duration::text(Duration::from_nanos(ns));
        let mut parts = vec![format!("sections of {}, {} between", text(self.cs_ns), text(self.think_ns))];
        if self.load == Load::Readers.name() {
            parts.push(format!("{} % writers", self.writes_percent));
        }
        if self.load == Load::Thinking.name() {
            parts.push(format!("started {}", self.start));
        }
        if self.hogs > 0 {
            parts.push(format!("beside {} hogs", self.hogs));
        }
        parts.join(", ")
    }
}

impl Row {
    pub fn key(&self) -> Key {
        Key {
            load: self.load.clone(),
            kind: self.kind.clone(),
            sessions: self.sessions,
            cs_ns: self.cs_ns,
            think_ns: self.think_ns,
            writes_percent: self.writes_percent,
            hogs: self.hogs,
            start: self.start.clone(),
        }
    }

    fn blank(key: Key, peer: &str, duration: Duration) -> Self {
        let Key { load, kind, sessions, cs_ns, think_ns, writes_percent, hogs, start } = key;
        let duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let peer = peer.to_owned();
        let blank = Self::default();
        Self { load, kind, sessions, cs_ns, think_ns, writes_percent, hogs, start, peer, duration_ms, ..blank }
    }

    /// The rows of a group, without those of which nothing is known.
    pub fn group(key: &Key, duration: Duration, measurements: &[Measurement]) -> Vec<Self> {
        let best = measurements.iter().max_by(|a, b| a.median_ops().total_cmp(&b.median_ops()));
        let rows = measurements.iter().filter(|m| !m.outcomes.is_empty() || m.impossible.is_some());
        rows.map(|m| Self::blank(key.clone(), m.peer.name, duration).filled(m, best)).collect()
    }

    fn filled(mut self, measurement: &Measurement, best: Option<&Measurement>) -> Self {
        let outcomes = &measurement.outcomes;
        let measured = |measure: Measure, scale: f64| -> Vec<f64> {
            outcomes.iter().filter_map(|outcome| Some(outcome.get(measure)? * scale)).collect()
        };
        let digits = |value: Option<f64>| value.map(significant);
        let middle = |measure: Measure, scale: f64| digits(median(measured(measure, scale)));
        let mops = measured(Measure::Throughput, 1e-6);
        self.rounds = u32::try_from(outcomes.len()).unwrap_or(u32::MAX);
        self.mops_per_s = digits(median(mops.clone()));
        self.mops_min = digits(mops.iter().copied().reduce(f64::min));
        self.mops_max = digits(mops.iter().copied().reduce(f64::max));
        self.to_best = best.and_then(|best| ratio(outcomes, &best.outcomes)).map(significant);
        self.cpu_s_per_s = middle(Measure::BusyProcessors, 1.0);
        self.cpu_us_per_get = middle(Measure::ProcessorPerGet, 1e6);
        self.jain = middle(Measure::Fairness, 1.0);
        self.wait_p50_us = middle(Measure::WaitP50, 1e6);
        self.wait_p99_us = middle(Measure::WaitP99, 1e6);
        self.wait_p999_us = middle(Measure::WaitP999, 1e6);
        self.wait_max_us = digits(measured(Measure::WaitMax, 1e6).into_iter().reduce(f64::max));
        let windows = windows(outcomes);
        self.first_window_mops = digits(windows.first().map(|ops| ops / 1e6));
        self.last_window_mops = digits(windows.last().map(|ops| ops / 1e6));
        if windows.len() > 1 {
            let kops: Vec<String> = windows.iter().map(|ops| retrial_bench::output::short(ops / 1e3)).collect();
            self.windows_kops = kops.join(" ");
        }
        self.waiting = outcomes.iter().map(|outcome| outcome.waiting).max().unwrap_or(0);
        self.errors = outcomes.iter().map(|outcome| outcome.errors).sum();
        self.note = note(measurement, Duration::from_millis(self.duration_ms));
        self
    }
}

/// What has to be known about the figures of a row.
fn note(measurement: &Measurement, duration: Duration) -> String {
    let outcomes = &measurement.outcomes;
    if let Some(why) = &measurement.impossible {
        return format!("not measured: {why}");
    }
    let mut notes: Vec<String> = outcomes.iter().flat_map(|outcome| &outcome.complaints).take(1).cloned().collect();
    let away = outcomes.iter().filter(|outcome| was_away(outcome, duration));
    if let Some(stall) = away.map(|outcome| outcome.stall).max() {
        notes.push(format!("the machine was away for {}", retrial_bench::duration::text(stall)));
    }
    let waiting = outcomes.iter().map(|outcome| outcome.waiting).max().unwrap_or(0);
    if waiting > 0 {
        notes.push(format!("{waiting} still waited after the end"));
    }
    notes.join("; ")
}

/// Four digits, and no more than six after the point.
fn significant(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    #[allow(clippy::cast_possible_truncation)] // a power of ten
    let magnitude = value.abs().log10().floor() as i32;
    rounded(value, (3 - magnitude).clamp(0, 6))
}

/// Median of the ratios within each round.
fn ratio(own: &[Outcome], best: &[Outcome]) -> Option<f64> {
    let rate = |outcome: &Outcome| outcome.get(Measure::Throughput);
    let pairs = own.iter().zip(best).filter_map(|(own, best)| rate(own).zip(rate(best)));
    median(pairs.filter(|(_, best)| *best > 0.0).map(|(own, best)| own / best).collect())
}

/// Gets per second in each window: median of the rounds.
fn windows(outcomes: &[Outcome]) -> Vec<f64> {
    let count = outcomes.iter().map(|outcome| outcome.windows.len()).max().unwrap_or(0);
    let middle = |i: usize| median(outcomes.iter().filter_map(|outcome| outcome.windows.get(i).copied()).collect());
    (0..count).filter_map(middle).collect()
}

/// Rows as a table: a column for each field.
pub fn table<R: Serialize>(rows: &[R]) -> Table {
    of(rows, |_, _| true)
}

/// The same for people: without these columns, and without those that have nothing in them.
pub fn shown<R: Serialize>(rows: &[R], hidden: &[&str]) -> Table {
    of(rows, |name, rows| !hidden.contains(&name) && rows.iter().any(|row| !row[name].is_null()))
}

fn of<R: Serialize>(rows: &[R], is_shown: impl Fn(&str, &[Value]) -> bool) -> Table {
    let rows: Vec<Value> = rows.iter().map(|row| serde_json::to_value(row).unwrap_or_default()).collect();
    let fields = rows.first().and_then(Value::as_object).into_iter().flat_map(Map::keys);
    let fields = fields.filter(|name| is_shown(name, &rows));
    let columns: Vec<_> = fields.map(|name| column(name.clone(), move |row: &Value| row[name].clone())).collect();
    Table::of(&columns, &rows)
}

/// Rows as CSV, under their header or going on below it.
pub fn csv<R: Serialize>(rows: &[R], header: bool) -> Result<Vec<u8>, Report> {
    let cell = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (index, row) in rows.iter().enumerate() {
        // The crate itself writes no flattened fields.
        let Value::Object(row) = serde_json::to_value(row).into_diagnostic()? else { continue };
        if header && index == 0 {
            writer.write_record(row.keys()).into_diagnostic()?;
        }
        writer.write_record(row.values().map(cell)).into_diagnostic()?;
    }
    writer.into_inner().into_diagnostic()
}

/// The rows of a file that [`csv()`] wrote, perhaps cut off in the last line.
pub fn read(path: &Path) -> Result<Vec<Row>, Report> {
    let text = std::fs::read(path).into_diagnostic().wrap_err_with(|| format!("{} cannot be read", path.display()))?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let rows: Result<Vec<Row>, csv::Error> = csv::Reader::from_reader(&text[..whole]).deserialize().collect();
    rows.map_err(|error| {
        miette!(
            code = "bench::csv",
            help = "name another file with --csv, or remove this one",
            "{} is no file of this command: {error}",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Vec<Row> {
        let key = Key {
            load: "contended".to_owned(),
            kind: "threads".to_owned(),
            sessions: 64,
            cs_ns: 100,
            think_ns: 300,
            writes_percent: 0.0,
            hogs: 0,
            start: "together".to_owned(),
        };
        let blank = Row::blank(key, "a, \"quoted\" peer", Duration::from_millis(500));
        let measured = Row { rounds: 3, mops_per_s: Some(1.25), jain: Some(0.999), ..blank.clone() };
        vec![measured, Row { note: "not measured: no memory,\nat all".to_owned(), ..blank }]
    }

    #[test]
    fn rows_come_back_from_csv_as_they_were() {
        let path = std::env::temp_dir().join(format!("bench-rows-{}.csv", std::process::id()));
        let rows = some();
        let mut text = csv(&rows[..1], true).unwrap();
        text.extend(csv(&rows[1..], false).unwrap());
        std::fs::write(&path, &text).unwrap();
        assert_eq!(read(&path).unwrap(), rows);
        // What was killed while it wrote has its whole lines.
        text.extend(b"contended,threads,6");
        std::fs::write(&path, &text).unwrap();
        assert_eq!(read(&path).unwrap(), rows);
        std::fs::write(&path, "a,b\n1,2\n").unwrap();
        assert!(read(&path).is_err());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn people_see_what_is_not_hidden_and_has_something_in_it() {
        let names = |table: &Table| table.names().map(str::to_owned).collect::<Vec<_>>();
        let all = names(&table(&some()));
        assert_eq!((all.len(), all[0].as_str(), all[27].as_str()), (28, "load", "note"));
        let shown = names(&shown(&some(), &["load", "errors"]));
        assert_eq!((shown[0].as_str(), shown.last().map(String::as_str)), ("kind", Some("note")));
        assert!(shown.contains(&"jain".to_owned()) && !shown.contains(&"wait_p50_us".to_owned()), "{shown:?}");
    }

    #[test]
    fn figures_have_four_digits() {
        for (value, expected) in [(123_456.7, 123_457.0), (1.234_56, 1.235), (0.000_123_456, 0.000_123), (0.0, 0.0)] {
            assert!((significant(value) - expected).abs() < 1e-12, "{value}: {}", significant(value));
        }
    }
}
