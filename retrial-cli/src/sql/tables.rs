//! Views as `SQLite`'s virtual tables: cells are computed when a query asks for them.

use crate::recording::Scene;
use crate::recording::history::COLUMNS;
use crate::recording::views::{self, Rows, View};
use rusqlite::types::Value;
use rusqlite::vtab::{Context, Filters, IndexInfo, Module, VTab, VTabConnection, VTabCursor};
use rusqlite::{Connection, Result, ffi};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int};
use std::fmt::Write;
use std::marker::PhantomData;
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

/// Makes the views tables of a connection.
pub fn register(connection: &Connection, sight: &Arc<Sight>) -> Result<()> {
    const MODULE: Module<'_, Table> = Module::eponymous_only_module();
    for view in views::all() {
        let name = view.name;
        connection.create_module(name, &MODULE, Some((Arc::new(view), Arc::clone(sight))))?;
    }
    Ok(())
}

#[repr(C)]
struct Table {
    /// First, as `SQLite` has it.
    base: ffi::sqlite3_vtab,
    view: Arc<View>,
    sight: Arc<Sight>,
}

// SAFETY: a struct of C's layout that begins with its base.
unsafe impl<'vtab> VTab<'vtab> for Table {
    type Aux = (Arc<View>, Arc<Sight>);
    type Cursor = Cursor<'vtab>;

    fn connect(
        _: &mut VTabConnection,
        aux: Option<&Self::Aux>,
        _: &[u8],
        _: &[u8],
        _: &[u8],
        _: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let (view, sight) = aux.ok_or_else(|| rusqlite::Error::ModuleError("no view".to_owned()))?;
        let columns = view.heads.iter().map(|head| format!("\"{}\" {}", head.name, head.kind.name()));
        let sql = format!("CREATE TABLE x ({})", columns.collect::<Vec<_>>().join(", "));
        let sql = CString::new(sql)?;
        let table = Self { base: ffi::sqlite3_vtab::default(), view: Arc::clone(view), sight: Arc::clone(sight) };
        Ok((Cow::Owned(sql), table))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let count = self.sight.rows(&self.view).count();
        info.set_estimated_rows(i64::try_from(count).unwrap_or(i64::MAX));
        info.set_estimated_cost(count as f64);
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<Cursor<'vtab>> {
        let rows = self.sight.rows(&self.view);
        Ok(Cursor { base: ffi::sqlite3_vtab_cursor::default(), rows, row: 0, table: PhantomData })
    }
}

#[repr(C)]
struct Cursor<'vtab> {
    /// First, as `SQLite` has it.
    base: ffi::sqlite3_vtab_cursor,
    rows: Arc<dyn Rows>,
    row: usize,
    table: PhantomData<&'vtab Table>,
}

// SAFETY: a struct of C's layout that begins with its base.
unsafe impl VTabCursor for Cursor<'_> {
    fn filter(&mut self, _: c_int, _: Option<&str>, _: &Filters<'_>) -> Result<()> {
        self.row = 0;
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.row += 1;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.row >= self.rows.count()
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        let cell: Value = usize::try_from(column).map_or(Value::Null, |column| self.rows.cell(self.row, column));
        context.set_result(&cell)
    }

    fn rowid(&self) -> Result<i64> {
        Ok(i64::try_from(self.row).unwrap_or(i64::MAX))
    }
}

/// A table or view as it is described: its name, what it is, and its columns.
struct Described {
    name: &'static str,
    doc: &'static str,
    /// Name, type, unit and what it is.
    columns: Vec<(&'static str, &'static str, &'static str, &'static str)>,
}

fn described() -> Vec<Described> {
    let of_view = |view: View| Described {
        name: view.name,
        doc: view.doc,
        columns: view.heads.iter().map(|head| (head.name, head.kind.name(), head.unit, head.doc)).collect(),
    };
    let of_table = |table: &crate::recording::store::schema::Table| Described {
        name: table.name,
        doc: table.doc,
        columns: table
            .columns
            .iter()
            .map(|column| (column.name, column.kind.name(), column.unit, column.doc))
            .collect(),
    };
    let mut all: Vec<Described> = views::all().into_iter().map(of_view).collect();
    all.extend(super::database::HISTORIES.iter().map(|history| {
        Described {
            name: history.name,
            doc: history.doc,
            columns: COLUMNS
                .iter()
                .map(|column| ((history.named)(column), column.kind.name(), column.unit, column.doc))
                .collect(),
        }
    }));
    all.push(super::memory::described(|name, doc, columns| Described { name, doc, columns }));
    all.extend(crate::recording::store::schema::TABLES.iter().map(of_table));
    all
}

/// The tables and views, and their columns.
pub fn names() -> Vec<(&'static str, Vec<&'static str>)> {
    described().into_iter().map(|table| (table.name, table.columns.iter().map(|column| column.0).collect())).collect()
}

/// What there is, each with its columns and their units; of one only, when a name is given.
pub fn describe(only: Option<&str>) -> Option<String> {
    let mut text = String::new();
    for table in described() {
        if only.is_some_and(|only| !only.eq_ignore_ascii_case(table.name)) {
            continue;
        }
        let _ = writeln!(text, "{}: {}", table.name, table.doc);
        let widest = table.columns.iter().map(|column| column.0.len()).max().unwrap_or(0);
        for (name, kind, unit, doc) in table.columns {
            let unit = if unit.is_empty() { "-" } else { unit };
            let _ = writeln!(text, "  {name:widest$}  {kind:7}  {unit:6}  {doc}");
        }
        text.push('\n');
    }
    (!text.is_empty()).then(|| text.trim_end().to_owned())
}
