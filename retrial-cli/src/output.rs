//! One table type for everything that prints figures: text, JSON or CSV from the same rows and columns.

use clap::Args;
use serde_json::{Map, Value};
use std::io::{self, Write};

/// How figures are printed.
#[derive(Args, Clone, Copy, Default)]
pub struct Format {
    /// Print figures as JSON
    #[arg(long, global = true, conflicts_with = "csv")]
    pub json: bool,
    /// Print figures as CSV
    #[arg(long, global = true)]
    pub csv: bool,
}

impl Format {
    /// Whether a person reads it: notes, hints and `Next:` lines are for them only.
    pub const fn is_text(self) -> bool {
        !self.json && !self.csv
    }

    /// Prints a line for people; nothing in JSON and CSV.
    pub fn say(self, text: &str) {
        if self.is_text() {
            line(text);
        }
    }
}

/// Writes a line; a closed pipe ends the program quietly, as other commands do.
pub fn line(text: &str) {
    if writeln!(io::stdout(), "{text}").is_err() {
        std::process::exit(0);
    }
}

/// Rows under named columns. Units are in the names (`wait_us`); cells are JSON values.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Vec<Value>>,
}

impl Table {
    pub fn new(columns: &[&'static str]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<Value>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell for each column");
        self.rows.push(cells);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows as JSON objects.
    pub fn json(&self) -> Value {
        let object = |row: &Vec<Value>| -> Map<String, Value> {
            self.columns.iter().map(|c| (*c).to_owned()).zip(row.iter().cloned()).collect()
        };
        Value::Array(self.rows.iter().map(object).map(Value::Object).collect())
    }

    /// The rows as text, numbers aligned to the right.
    pub fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_preset(comfy_table::presets::NOTHING).set_header(&self.columns);
        for row in &self.rows {
            table.add_row(row.iter().map(cell));
        }
        for (i, column) in table.column_iter_mut().enumerate() {
            if self.rows.iter().any(|row| row[i].is_number()) {
                column.set_cell_alignment(comfy_table::CellAlignment::Right);
            }
            column.set_padding((0, 2));
        }
        table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }

    pub fn print(&self, format: Format) {
        if format.json {
            line(&serde_json::to_string_pretty(&self.json()).unwrap_or_default());
        } else if format.csv {
            let mut writer = csv::Writer::from_writer(Vec::new());
            let _ = writer.write_record(&self.columns);
            for row in &self.rows {
                let _ = writer.write_record(row.iter().map(plain));
            }
            let bytes = writer.into_inner().unwrap_or_default();
            line(String::from_utf8_lossy(&bytes).trim_end());
        } else {
            line(&self.text());
        }
    }
}

/// A cell for people: numbers short, nothing for null.
fn cell(value: &Value) -> String {
    match value {
        Value::Number(n) if n.is_f64() => short(n.as_f64().unwrap_or(0.0)),
        other => plain(other),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Three significant digits without an exponent: `1234`, `12.3`, `0.0123`.
pub fn short(x: f64) -> String {
    let magnitude = x.abs();
    if magnitude >= 100.0 || magnitude == 0.0 {
        format!("{x:.0}")
    } else if magnitude >= 10.0 {
        format!("{x:.1}")
    } else if magnitude >= 1.0 {
        format!("{x:.2}")
    } else if magnitude >= 0.1 {
        format!("{x:.3}")
    } else {
        format!("{x:.4}")
    }
}
