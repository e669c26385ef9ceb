//! Views as `SQLite`'s virtual tables: cells are computed when a query asks for them.

use super::computed::{self, Computed};
use super::database::{HISTORIES, History};
use super::memory;
use crate::recording::store::schema;
use crate::recording::views::{self, Rows, View};
use crate::recording::{Scene, history};
use rusqlite::types::Value;
use rusqlite::vtab::{Filters, IndexInfo};
use rusqlite::{Connection, Result};
use std::collections::HashMap;
use std::ffi::c_int;
use std::fmt::Write;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the statement under way sees.
#[derive(Default)]
pub struct Sight {
    scene: Mutex<Arc<Scene>>,
    /// The rows of the views that it has asked for.
    rows: Mutex<HashMap<&'static str, Arc<dyn Rows>>>,
}

impl Sight {
    /// From now on statements see this.
    pub fn set(&self, scene: Arc<Scene>) {
        *lock(&self.scene) = scene;
        lock(&self.rows).clear();
    }

    pub fn scene(&self) -> Arc<Scene> {
        Arc::clone(&lock(&self.scene))
    }

    fn rows(&self, view: &View) -> Arc<dyn Rows> {
        let known = lock(&self.rows).get(view.name).map(Arc::clone);
        known.unwrap_or_else(|| {
            let rows = view.rows(&self.scene());
            lock(&self.rows).insert(view.name, Arc::clone(&rows));
            rows
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A view, of what the statement under way sees.
struct Seen {
    view: View,
    sight: Arc<Sight>,
}

/// Makes the views tables of a connection.
pub fn register(connection: &Connection, sight: &Arc<Sight>) -> Result<()> {
    views::all()
        .into_iter()
        .try_for_each(|view| computed::register(connection, view.name, Seen { view, sight: Arc::clone(sight) }))
}

impl Computed for Seen {
    type Rows = Arc<dyn Rows>;

    fn columns(&self) -> &[schema::Column] {
        &self.view.heads
    }

    fn plan(&self, info: &mut IndexInfo) {
        let count = self.sight.rows(&self.view).count();
        info.set_estimated_rows(i64::try_from(count).unwrap_or(i64::MAX));
        info.set_estimated_cost(count as f64);
    }

    fn rows(&self, _: c_int, _: &Filters<'_>) -> (Self::Rows, Range<usize>) {
        let rows = self.sight.rows(&self.view);
        let count = rows.count();
        (rows, 0..count)
    }

    fn cell(rows: &Self::Rows, row: usize, column: usize) -> Value {
        rows.cell(row, column)
    }
}

/// A table or view as it is described: its name, what it is, and its columns.
struct Described {
    name: &'static str,
    doc: &'static str,
    columns: Vec<schema::Column>,
}

fn described() -> Vec<Described> {
    let of_view = |view: View| Described { name: view.name, doc: view.doc, columns: view.heads };
    let of_table =
        |table: &schema::Table| Described { name: table.name, doc: table.doc, columns: table.columns.clone() };
    let of_history = |history: &History| {
        let column = |column: &history::Column| {
            let history::Column { kind, unit, doc, .. } = *column;
            schema::Column { name: (history.named)(column), kind, unit, doc }
        };
        Described { name: history.name, doc: history.doc, columns: history::COLUMNS.iter().map(column).collect() }
    };
    let mut all: Vec<Described> = views::all().into_iter().map(of_view).collect();
    all.extend(HISTORIES.iter().map(of_history));
    all.push(Described { name: memory::NAME, doc: memory::DOC, columns: memory::COLUMNS.to_vec() });
    all.extend(schema::TABLES.iter().map(of_table));
    all
}

/// The tables and views, and their columns.
pub fn names() -> Vec<(&'static str, Vec<&'static str>)> {
    described()
        .into_iter()
        .map(|table| (table.name, table.columns.iter().map(|column| column.name).collect()))
        .collect()
}

/// A column of what there is: the table or view and what that is, the column, its kind, unit and meaning.
pub type Column = [&'static str; 6];

/// Every column; of one table or view only, when a name is given.
pub fn columns(only: Option<&str>) -> Vec<Column> {
    let is_meant = |table: &Described| only.is_none_or(|only| only.eq_ignore_ascii_case(table.name));
    let of = |table: Described| {
        let column = move |of: schema::Column| [table.name, table.doc, of.name, of.kind.name(), of.unit, of.doc];
        table.columns.into_iter().map(column)
    };
    described().into_iter().filter(is_meant).flat_map(of).collect()
}

/// What there is, each with its columns and their units; of one only, when a name is given.
pub fn describe(only: Option<&str>) -> Option<String> {
    let mut text = String::new();
    for table in described() {
        if only.is_some_and(|only| !only.eq_ignore_ascii_case(table.name)) {
            continue;
        }
        let _ = writeln!(text, "{}: {}", table.name, table.doc);
        let widest = table.columns.iter().map(|column| column.name.len()).max().unwrap_or(0);
        for schema::Column { name, kind, unit, doc } in table.columns {
            let unit = if unit.is_empty() { "-" } else { unit };
            let _ = writeln!(text, "  {name:widest$}  {:7}  {unit:6}  {doc}", kind.name());
        }
        text.push('\n');
    }
    (!text.is_empty()).then(|| text.trim_end().to_owned())
}
