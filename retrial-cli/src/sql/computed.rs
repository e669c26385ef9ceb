//! Virtual tables of `SQLite`: cells are computed when a query asks for them.

use crate::recording::store::schema::Column;
use rusqlite::types::Value;
use rusqlite::vtab::{Context, Filters, IndexInfo, Module, VTab, VTabConnection, VTabCursor};
use rusqlite::{Connection, Result, ffi};
use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// A table whose cells are computed.
pub trait Computed: Send + Sync + 'static {
    /// What a query reads.
    type Rows;

    fn columns(&self) -> &[Column];

    /// Says what a query costs, and which of its conditions [`Computed::rows`] is to be given.
    fn plan(&self, info: &mut IndexInfo);

    /// What a query by this plan reads, and which of its rows.
    fn rows(&self, plan: c_int, values: &Filters<'_>) -> (Self::Rows, Range<usize>);

    fn cell(rows: &Self::Rows, row: usize, column: usize) -> Value;
}

/// Makes it a table of a connection.
pub fn register<C: Computed>(connection: &Connection, name: &str, computed: C) -> Result<()> {
    connection.create_module(name, const { &Module::<Table<C>>::eponymous_only_module() }, Some(Arc::new(computed)))
}

#[repr(C)]
struct Table<C> {
    /// First, as `SQLite` has it.
    base: ffi::sqlite3_vtab,
    computed: Arc<C>,
}

// SAFETY: a struct of C's layout that begins with its base.
unsafe impl<'vtab, C: Computed> VTab<'vtab> for Table<C> {
    type Aux = Arc<C>;
    type Cursor = Cursor<'vtab, C>;

    fn connect(
        _: &mut VTabConnection,
        aux: Option<&Self::Aux>,
        _: &[u8],
        _: &[u8],
        _: &[u8],
        _: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let computed = aux.ok_or_else(|| rusqlite::Error::ModuleError("no table".to_owned()))?;
        let columns = computed.columns().iter().map(|column| format!("\"{}\" {}", column.name, column.kind.name()));
        let sql = CString::new(format!("CREATE TABLE x ({})", columns.collect::<Vec<_>>().join(", ")))?;
        let table = Self { base: ffi::sqlite3_vtab::default(), computed: Arc::clone(computed) };
        Ok((Cow::Owned(sql), table))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        self.computed.plan(info);
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<Cursor<'vtab, C>> {
        let base = ffi::sqlite3_vtab_cursor::default();
        Ok(Cursor { base, computed: Arc::clone(&self.computed), rows: None, left: 0..0, table: PhantomData })
    }
}

#[repr(C)]
struct Cursor<'vtab, C: Computed> {
    /// First, as `SQLite` has it.
    base: ffi::sqlite3_vtab_cursor,
    computed: Arc<C>,
    /// `None` before the query has its plan.
    rows: Option<C::Rows>,
    /// Its first is the row that the cursor is at.
    left: Range<usize>,
    table: PhantomData<&'vtab Table<C>>,
}

// SAFETY: a struct of C's layout that begins with its base.
unsafe impl<C: Computed> VTabCursor for Cursor<'_, C> {
    fn filter(&mut self, plan: c_int, _: Option<&str>, values: &Filters<'_>) -> Result<()> {
        let (rows, left) = self.computed.rows(plan, values);
        (self.rows, self.left) = (Some(rows), left);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.left.next();
        Ok(())
    }

    fn eof(&self) -> bool {
        self.left.is_empty()
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        let cell = self.rows.as_ref().zip(usize::try_from(column).ok());
        context.set_result(cell.map_or(Value::Null, |(rows, column)| C::cell(rows, self.left.start, column)))
    }

    fn rowid(&self) -> Result<i64> {
        Ok(i64::try_from(self.left.start).unwrap_or(i64::MAX))
    }
}
