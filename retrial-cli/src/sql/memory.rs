//! `x$ksmmem`: the words of a live instance's memory.

use retrial::Observer;
use rusqlite::types::Value;
use rusqlite::vtab::{Context, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConnection, VTabCursor};
use rusqlite::{Connection, Result, ffi};
use std::borrow::Cow;
use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::sync::Arc;

const NAME: &str = "x$ksmmem";
const DOC: &str =
    "The words of a live instance's memory, each as it is when the query comes to it; nothing of a recording";
const COLUMNS: [(&str, &str, &str, &str); 3] = [
    ("addr", "TEXT", "", "Offset in the instance, in hex"),
    ("indx", "INTEGER", "", "Number of the word, from 0"),
    ("ksmmmval", "TEXT", "", "The word in hex"),
];
const INDX: c_int = 1;
const WORD: u64 = 8;

/// What the table is, for whoever describes tables.
pub fn described<T>(
    of: impl FnOnce(&'static str, &'static str, Vec<(&'static str, &'static str, &'static str, &'static str)>) -> T,
) -> T {
    of(NAME, DOC, COLUMNS.to_vec())
}

/// Makes it a table of a connection.
pub fn register(connection: &Connection, observer: Option<Arc<Observer>>) -> Result<()> {
    const MODULE: Module<'_, Table> = Module::eponymous_only_module();
    connection.create_module(NAME, &MODULE, Some(observer))
}

#[repr(C)]
struct Table {
    /// First, as `SQLite` has it.
    base: ffi::sqlite3_vtab,
    observer: Option<Arc<Observer>>,
}

// SAFETY: a struct of C's layout that begins with its base.
unsafe impl<'vtab> VTab<'vtab> for Table {
    type Aux = Option<Arc<Observer>>;
    type Cursor = Cursor<'vtab>;

    fn connect(
        _: &mut VTabConnection,
        aux: Option<&Self::Aux>,
        _: &[u8],
        _: &[u8],
        _: &[u8],
        _: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let sql = c"CREATE TABLE x (addr TEXT, indx INTEGER, ksmmmval TEXT)";
        let table = Self { base: ffi::sqlite3_vtab::default(), observer: aux.cloned().flatten() };
        Ok((Cow::Borrowed(sql), table))
    }

    /// One word is found at once by its number.
    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let is_one = |constraint: &rusqlite::vtab::IndexConstraint<'_>| {
            constraint.column() == INDX
                && constraint.is_usable()
                && constraint.operator() == IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ
        };
        let one = info.constraints().position(|constraint| is_one(&constraint));
        if let Some(one) = one {
            info.constraint_usage(one).set_argv_index(1);
            info.set_idx_num(1);
            info.set_estimated_cost(1.0);
            info.set_estimated_rows(1);
        } else {
            info.set_estimated_cost(1e9);
        }
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<Cursor<'vtab>> {
        let base = ffi::sqlite3_vtab_cursor::default();
        Ok(Cursor { base, observer: self.observer.clone(), word: 0, end: 0, table: PhantomData })
    }
}

#[repr(C)]
struct Cursor<'vtab> {
    /// First, as `SQLite` has it.
    base: ffi::sqlite3_vtab_cursor,
    observer: Option<Arc<Observer>>,
    word: u64,
    end: u64,
    table: PhantomData<&'vtab Table>,
}

// SAFETY: a struct of C's layout that begins with its base.
unsafe impl VTabCursor for Cursor<'_> {
    fn filter(&mut self, one: c_int, _: Option<&str>, values: &Filters<'_>) -> Result<()> {
        let words = self.observer.as_ref().map_or(0, |observer| observer.tables().len_bytes() as u64 / WORD);
        (self.word, self.end) = (0, words);
        if one == 1 {
            let wanted: Option<i64> = values.get(0).unwrap_or(None);
            let wanted = wanted.and_then(|wanted| u64::try_from(wanted).ok()).filter(|wanted| *wanted < words);
            (self.word, self.end) = wanted.map_or((0, 0), |wanted| (wanted, wanted + 1));
        }
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.word += 1;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.word >= self.end
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        let offset = self.word * WORD;
        let cell = match column {
            0 => Value::Text(format!("{offset:#010x}")),
            INDX => Value::Integer(self.word.cast_signed()),
            _ => {
                // SAFETY: mapped read-only, and this process has no guard of a mutex of the instance.
                let words = self.observer.as_ref().and_then(|observer| unsafe { observer.tables().peek(offset, 1) });
                words.map_or(Value::Null, |words| Value::Text(format!("{:016x}", words[0])))
            }
        };
        context.set_result(&cell)
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.word.cast_signed())
    }
}
