//! The screen for programs: rows under the names of its columns.

use super::columns::{self, Shown};
use super::seen::Seen;
use super::tree;
use crate::clock::time;
use crate::output::{Column, Table};
use retrial_model::Profile;
use serde_json::{Value, json};

fn table<R>(shown: Vec<Shown<'_, R>>, rows: impl Iterator<Item = R>) -> Table {
    let columns: Vec<Column<'_, R>> = shown.into_iter().map(|shown| shown.column).collect();
    Table::of(&columns, rows)
}

/// Every mutex.
pub fn mutexes(seen: &Seen) -> Table {
    table(columns::mutexes(), (0..seen.mutexes.len()).map(|at| seen.mutex_row(at)))
}

/// All that the screen tells, and the rows that it has no room for.
pub fn json(seen: &Seen) -> Value {
    let (to, period) = (seen.to(), seen.span.period());
    let total = table(columns::figures(|total: &Profile| total), std::iter::once(seen.total.clone()));
    let pct = |share: Option<f64>| share.map(|share| 100.0 * share);
    let sessions = table(columns::sessions(), (0..seen.sessions.len()).map(|at| seen.session_row(at)));
    let waits: Vec<String> = tree::lines(seen).into_iter().map(|line| line.text).collect();
    json!({
        "instance": to.instance.name,
        "time": time(to.at.real_ns),
        "period_s": period.time_s(),
        "processors": to.load.processors,
        "busy_pct": pct(period.busy()),
        "pressure_pct": pct(period.pressed()),
        "stolen_pct": pct(period.stolen()),
        "threads_ready": to.load.runnable,
        "top_cpu_pct": pct(seen.cost),
        "alerts": to.alerts.len(),
        "total": total.json()[0],
        "mutexes": mutexes(seen).json(),
        "sessions": sessions.json(),
        "waits": waits,
    })
}
