//! The columns of the figures of cells.

use crate::cell::Cell;
use crate::outcome::{Outcome, median};
use crate::output::{Table, column, measure};
use retrial_model::Measure;

/// Rounds of a cell, under a scheme and with copies of the mutex.
pub struct Rounds<'a> {
    pub scheme: &'static str,
    pub copies: u32,
    pub cell: Cell,
    pub outcomes: &'a [Outcome],
}

/// What the cells are, the median of each measure over their rounds, and all their errors.
pub fn table<'a>(rows: impl IntoIterator<Item = Rounds<'a>>) -> Table {
    let ns = crate::duration::nanos;
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
    use crate::load::Start;
    use crate::outcome::Kind;
    use serde_json::{Value, json};
    use std::time::Duration;

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
