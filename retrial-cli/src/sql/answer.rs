//! Runs statements and prints what they give.

use super::database::Database;
use super::mistakes;
use crate::output::{self, Format, Table, counted};
use miette::Report;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::types::ValueRef;
use serde_json::Value;
use std::fmt::Write;

/// Rows that people are shown; JSON and CSV have all.
const ROWS: usize = 1000;

/// That the answer of a script can be one JSON document, without a name twice in a row.
fn check_json(database: &Database, script: &str) -> Result<(), Report> {
    let mut batch = rusqlite::Batch::new(database.connection(), script);
    let mut asked = 0;
    // Running it will say what is wrong with a statement.
    while let Ok(Some(statement)) = batch.next() {
        let names: Vec<&str> = statement.column_names().collect();
        asked += usize::from(!names.is_empty());
        let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
        if let Some((_, name)) = twice {
            return Err(mistakes::named_twice(name));
        }
    }
    if asked > 1 { Err(mistakes::several(asked)) } else { Ok(()) }
}

/// Prints the empty line that is in CSV before each result but the first: no row is printed as one.
pub fn separate(earlier: usize, format: Format) {
    if format.csv && earlier > 0 {
        output::line("");
    }
}

/// Runs the statements of a script, and prints the rows of each.
pub fn print(database: &Database, script: &str, format: Format) -> Result<(), Report> {
    if format.json {
        check_json(database, script)?;
    }
    let mut batch = rusqlite::Batch::new(database.connection(), script);
    let (mut is_empty, mut results) = (true, 0);
    loop {
        let next = batch.next().map_err(|error| mistakes::report(script, &error))?;
        let Some(mut statement) = next else { return if is_empty { Err(mistakes::no_statement()) } else { Ok(()) } };
        is_empty = false;
        if statement.column_count() == 0 {
            // Refused by SQLite when it runs: nothing can be changed here.
            statement.raw_execute().map_err(|error| mistakes::report(script, &error))?;
            continue;
        }
        let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
        separate(results, format);
        results += 1;
        run(&mut statement, columns, format).map_err(|error| mistakes::report(script, &error))?;
    }
}

/// The rows of one statement.
pub fn ask(database: &Database, sql: &str) -> Result<Vec<Vec<Value>>, Report> {
    let ask = || {
        let mut statement = database.connection().prepare(sql)?;
        let columns = statement.column_count();
        let cells = |row: &rusqlite::Row<'_>| (0..columns).map(|column| row.get_ref(column).map(cell)).collect();
        statement.query_map([], cells)?.collect::<rusqlite::Result<_>>()
    };
    ask().map_err(|error| mistakes::report(sql, &error))
}

/// That a text is one expression over the columns of a table, for a `WHERE`.
pub fn check_condition(database: &Database, expression: &str, table: &str) -> Result<(), Report> {
    if expression.trim().is_empty() {
        return Err(mistakes::no_expression(table));
    }
    // Alone, what closes a bracket to go on behind it is no SQL; in brackets, what goes on behind a condition
    // is none. On lines of its own: a comment at its end does not reach what follows.
    let select = format!("SELECT 1 FROM {table} WHERE\n");
    for (before, after) in [(select.clone(), ""), (format!("{select}("), "\n)")] {
        database
            .connection()
            .prepare(&format!("{before}{expression}{after}"))
            .map_err(|error| mistakes::of_expression(expression, table, before.len(), &error))?;
    }
    Ok(())
}

fn run(statement: &mut rusqlite::Statement<'_>, columns: Vec<String>, format: Format) -> rusqlite::Result<()> {
    let mut rows = statement.raw_query();
    let mut printer = Printer::new(&columns, format);
    while let Some(row) = rows.next()? {
        let cells =
            (0..columns.len()).map(|column| row.get_ref(column).map(cell)).collect::<rusqlite::Result<Vec<_>>>()?;
        printer.row(cells);
    }
    printer.end();
    Ok(())
}

fn cell(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned().into(),
        ValueRef::Blob(bytes) => hex(bytes).into(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Prints rows as they come, those for people together at the end.
struct Printer<'a> {
    columns: &'a [String],
    format: Format,
    kept: Vec<Vec<Value>>,
    count: usize,
}

impl<'a> Printer<'a> {
    fn new(columns: &'a [String], format: Format) -> Self {
        if format.csv {
            output::line(output::record(columns.iter()).trim_end());
        }
        Self { columns, format, kept: Vec::new(), count: 0 }
    }

    fn row(&mut self, cells: Vec<Value>) {
        self.count += 1;
        if self.format.csv {
            output::line(output::record(cells.iter().map(output::plain)).trim_end());
        } else if self.format.json {
            let object: serde_json::Map<_, _> = self.columns.iter().cloned().zip(cells).collect();
            output::write(&format!("{}{}", if self.count == 1 { "[\n " } else { ",\n " }, Value::Object(object)));
        } else if self.count <= ROWS {
            self.kept.push(cells);
        }
    }

    fn end(self) {
        if self.format.json {
            output::write(if self.count == 0 { "[]\n" } else { "\n]\n" });
        } else if self.format.is_text() {
            if self.count == 0 {
                output::line("No rows.");
                return;
            }
            output::line(&Table::new(self.columns.to_vec(), self.kept).text());
            if self.count > ROWS {
                let more = counted((self.count - ROWS) as u64, "more row", "more rows");
                output::line(&format!("… {more}; all of them with --csv or --json"));
            }
        }
    }
}
