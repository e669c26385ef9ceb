//! What came of a run, for people and for programs.

use super::crew::{Outcome, Plan};
use crate::output::{self, Column, Format, Table, column, counted, counter, measure};
use crate::recording::{Period, Snapshot};
use retrial::views::{Counter, Key, LocationId, TypeId, WaitEvent};
use retrial_model::{Measure, Profile};
use serde_json::Value;

/// A figure and its name.
type Cell = (&'static str, Value);

/// Prints what was executed, what was waited for, and what is wrong.
pub fn print(plan: &Plan, outcome: &Outcome, seen: (&Snapshot, &Snapshot), format: Format) {
    let period = Period::between(seen.0, seen.1);
    let run = figures(plan, outcome, period);
    let waits = waits(period, outcome.elapsed.as_secs_f64() * f64::from(plan.sessions));
    if format.json {
        let mut rows = run.json();
        rows[0]["waits"] = waits.json();
        output::json(&rows);
        return;
    }
    let sessions = counted(plan.sessions.into(), "session", "sessions");
    format.say(&format!(
        "{}: {sessions} ({}) for {:.2} s, {:?} of work in an execution",
        plan.name,
        plan.kind.name(),
        outcome.elapsed.as_secs_f64(),
        plan.run,
    ));
    run.print(format);
    if waits.is_empty() {
        format.say("\nNobody waited.");
    } else {
        format.say(&format!("\n{}", waits.text()));
    }
    if !outcome.wrong.is_empty() {
        format.say("");
    }
    for what in &outcome.wrong {
        format.say(&format!("WRONG: {what}"));
    }
}

/// The figures of a run, in one row.
fn figures(plan: &Plan, outcome: &Outcome, period: Period<'_>) -> Table {
    let waited = period.of(|_, _| Some(())).into_values().next().unwrap_or_default();
    let (elapsed_s, cpu_s) = (outcome.elapsed.as_secs_f64(), outcome.cpu.as_secs_f64());
    let of_processors = 100.0 * cpu_s / (elapsed_s * period.to.load.processors as f64);
    let count = |counter: Counter| waited.figures.get(counter);
    let told: [Cell; 7] = [
        ("executed", outcome.executed.into()),
        ("executions_per_s", (outcome.executed as f64 / elapsed_s).into()),
        ("misses", count(Counter::Misses).into()),
        ("total_waits", count(Counter::Waits).into()),
        ("wait_s", waited.registered_s().into()),
        ("cpu_s", cpu_s.into()),
        ("cpu_pct", of_processors.into()),
    ];
    // Said in words above the table.
    let said: [Cell; 4] = [
        ("load", plan.name.clone().into()),
        ("sessions", plan.sessions.into()),
        ("kind", plan.kind.name().into()),
        ("elapsed_s", elapsed_s.into()),
    ];
    let column_of = |(name, cell): Cell| column(name, move |(): &()| cell.clone());
    let mut columns: Vec<_> = said.map(column_of).into_iter().map(Column::for_programs).collect();
    columns.extend(told.map(column_of));
    columns.extend(outcome.counts.iter().map(|(name, count)| column_of((name, (*count).into()))));
    columns.push(column_of(("killed", outcome.killed.into())).told(plan.kills > 0));
    columns.push(column_of(("wrong", outcome.wrong.join("; ").into())).for_programs());
    Table::of(&columns, [()])
}

/// Waits by event and location, as the instance counted them, those that took longest first; each with its
/// share of the sessions' time, all of which is `all_s`.
pub fn waits(period: Period<'_>, all_s: f64) -> Table {
    type Row = ((Option<TypeId>, WaitEvent, LocationId), Profile);
    let to = period.to;
    let by = |_, key: Key| Some((to.type_of(key.mutex), key.event, key.location));
    let mut rows: Vec<Row> = period.of(by).into_iter().collect();
    rows.retain(|(_, profile)| profile.figures.get(Counter::Misses) > 0 || profile.registered_s() > 0.0);
    rows.sort_by(|(_, a), (_, b)| b.registered_s().total_cmp(&a.registered_s()));
    let of = |row: &Row, measure: Measure| measure.of(&row.1);
    let columns = [
        column("event", |((of, event, _), _): &Row| event.name(to.maybe_type(*of))),
        column("location", |row: &Row| to.place(row.0.2).to_owned()),
        counter(Counter::Misses, |row: &Row| &row.1),
        counter(Counter::Waits, |row: &Row| &row.1),
        measure(Measure::Registered, "ms", of).named("wait_ms"),
        measure(Measure::RegisteredMean, "us", of).named("average_wait_us"),
        column("pct_session_time", |row: &Row| 100.0 * row.1.registered_s() / all_s),
    ];
    Table::of(&columns, rows)
}
