//! The figures of a cell, and their columns.

use super::cell::Cell;
use crate::output::{Table, column, measure};
use retrial_model::{Measure, Profile};
use std::time::Duration;

/// How the sessions of a cell run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Threads,
    Processes,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Processes => "processes",
        }
    }
}

/// A cell of one round: what was measured unless it went wrong, and what was wrong.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub measured: Option<Profile>,
    /// Gets per second in each window.
    pub windows: Vec<f64>,
    /// Sessions that still waited when the cell was given up after its end.
    pub waiting: u32,
    /// The most by which the parent, which sleeps meanwhile, woke up late: the machine was away, or too many computed.
    pub stall: Duration,
    pub errors: u64,
    pub complaints: Vec<String>,
}

impl Outcome {
    /// A measure, where the cell has it.
    pub fn get(&self, measure: Measure) -> Option<f64> {
        measure.of(self.measured.as_ref()?)
    }
}

pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], upper) } else { upper })
}

/// Rounds of a cell, under a scheme and with copies of the mutex.
pub struct Rounds<'a> {
    pub scheme: &'static str,
    pub copies: u32,
    pub cell: Cell,
    pub outcomes: &'a [Outcome],
}

/// What the cells are, the median of each measure over their rounds, and all their errors.
pub fn table<'a>(rows: impl IntoIterator<Item = Rounds<'a>>) -> Table {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let middle = |row: &Rounds<'_>, measure: Measure| {
        median(row.outcomes.iter().filter_map(|outcome| outcome.get(measure)).collect())
    };
    let columns = [
        column("scheme", |row: &Rounds<'_>| row.scheme),
        column("sessions", |row: &Rounds<'_>| row.cell.sessions),
        column("copies", |row: &Rounds<'_>| row.copies),
        column("kind", |row: &Rounds<'_>| row.cell.kind.name()),
        column("cs_ns", |row: &Rounds<'_>| ns(row.cell.cs)),
        column("think_ns", |row: &Rounds<'_>| ns(row.cell.think)),
        measure(Measure::Throughput, "", middle).named("ops_per_s").rounded(1),
        measure(Measure::BusyProcessors, "", middle).named("cpu_s_per_s").rounded(4),
        measure(Measure::Fairness, "", middle).named("jain").rounded(4),
        measure(Measure::WaitP50, "us", middle).titled("wait_p50_us").rounded(3),
        measure(Measure::WaitP99, "us", middle).titled("wait_p99_us").rounded(3),
        measure(Measure::WaitP999, "us", middle).titled("wait_p999_us").rounded(3),
        measure(Measure::WaitMax, "us", middle).titled("wait_max_us").rounded(3),
        measure(Measure::SpinInefficiency, "", middle).named("k").rounded(4),
        measure(Measure::SleepRatio, "", middle).named("kappa").rounded(4),
        measure(Measure::SleepsPerS, "", middle).named("sleeps_per_s").rounded(1),
        column("errors", |row: &Rounds<'_>| row.outcomes.iter().map(|outcome| outcome.errors).sum::<u64>()),
    ];
    Table::of(&columns, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::load::Start;
    use serde_json::{Value, json};

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn a_cell_that_went_wrong_has_errors_and_no_figures() {
        let stuck = Outcome { errors: 3, ..Outcome::default() };
        let cell = Cell {
            sessions: 2,
            kind: Kind::Threads,
            cs: Duration::from_nanos(100),
            think: Duration::ZERO,
            writes: 0,
            hogs: 0,
            start: Start::Together,
        };
        let outcomes = [stuck.clone(), stuck];
        let table = table([Rounds { scheme: "orbit", copies: 1, cell, outcomes: &outcomes }]).json();
        assert_eq!((&table[0]["errors"], &table[0]["cs_ns"]), (&json!(6), &json!(100)));
        assert_eq!((&table[0]["ops_per_s"], &table[0]["jain"]), (&Value::Null, &Value::Null));
    }
}
