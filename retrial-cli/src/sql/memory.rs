//! `x$ksmmem`: the words of a live instance's memory.

use super::computed::{self, Computed};
use crate::recording::store::schema::{Column, int, text};
use retrial::Observer;
use rusqlite::types::Value;
use rusqlite::vtab::{Filters, IndexConstraint, IndexConstraintOp, IndexInfo};
use rusqlite::{Connection, Result};
use std::ffi::c_int;
use std::ops::Range;
use std::sync::Arc;

pub const NAME: &str = "x$ksmmem";
pub const DOC: &str =
    "The words of a live instance's memory, each as it is when the query comes to it; nothing of a recording";
pub const COLUMNS: [Column; 3] = [
    text("addr", "Offset in the instance, in hex"),
    int("indx", "", "Number of the word, from 0"),
    text("ksmmmval", "The word in hex"),
];
const INDX: c_int = 1;
const WORD: usize = 8;

/// The words of an instance, or of none.
struct Memory {
    observer: Option<Arc<Observer>>,
}

/// Makes it a table of a connection.
pub fn register(connection: &Connection, observer: Option<Arc<Observer>>) -> Result<()> {
    computed::register(connection, NAME, Memory { observer })
}

/// The plan of a query for one word, by its number.
const ONE: c_int = 1;

impl Computed for Memory {
    type Rows = Option<Arc<Observer>>;

    fn columns(&self) -> &[Column] {
        &COLUMNS
    }

    fn plan(&self, info: &mut IndexInfo) {
        let is_one = |constraint: &IndexConstraint<'_>| {
            constraint.column() == INDX
                && constraint.is_usable()
                && constraint.operator() == IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ
        };
        let one = info.constraints().position(|constraint| is_one(&constraint));
        if let Some(one) = one {
            info.constraint_usage(one).set_argv_index(1);
            info.set_idx_num(ONE);
            info.set_estimated_cost(1.0);
            info.set_estimated_rows(1);
        } else {
            info.set_estimated_cost(1e9);
        }
    }

    fn rows(&self, plan: c_int, values: &Filters<'_>) -> (Self::Rows, Range<usize>) {
        let words = self.observer.as_ref().map_or(0, |observer| observer.tables().len_bytes() / WORD);
        let wanted = || usize::try_from(values.get::<Option<i64>>(0).ok()??).ok().filter(|wanted| *wanted < words);
        let range = match plan {
            ONE => wanted().map_or(0..0, |wanted| wanted..wanted + 1),
            _ => 0..words,
        };
        (self.observer.clone(), range)
    }

    fn cell(observer: &Self::Rows, word: usize, column: usize) -> Value {
        let offset = (word * WORD) as u64;
        match column {
            0 => Value::Text(format!("{offset:#010x}")),
            1 => Value::Integer(i64::try_from(word).unwrap_or(i64::MAX)),
            _ => {
                // SAFETY: mapped read-only, and this process has no guard of a mutex of the instance.
                let words = observer.as_ref().and_then(|observer| unsafe { observer.tables().peek(offset, 1) });
                words.map_or(Value::Null, |words| Value::Text(format!("{:016x}", words[0])))
            }
        }
    }
}
