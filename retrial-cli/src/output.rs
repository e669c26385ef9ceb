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
    /// Headings for people, where they differ from the columns' names.
    titles: Vec<&'static str>,
    rows: Vec<Vec<Value>>,
}

/// Characters of a cell that is never wrapped.
const WRAPPED: usize = 40;

impl Table {
    pub fn new(columns: &[&'static str]) -> Self {
        Self { columns: columns.to_vec(), titles: columns.to_vec(), rows: Vec::new() }
    }

    /// Other headings for people; JSON and CSV keep the columns' names.
    pub fn titled(mut self, titles: &[&'static str]) -> Self {
        assert_eq!(titles.len(), self.columns.len(), "a heading for each column");
        self.titles = titles.to_vec();
        self
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
        table.load_preset(comfy_table::presets::NOTHING).set_header(&self.titles);
        // On a terminal, long texts wrap within their column; short ones stay whole.
        if table.width().is_some_and(|width| width >= 80) {
            table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
        }
        for row in &self.rows {
            table.add_row(row.iter().map(cell));
        }
        for (i, column) in table.column_iter_mut().enumerate() {
            if self.rows.iter().all(|row| row[i].is_number() || row[i].is_null()) {
                column.set_cell_alignment(comfy_table::CellAlignment::Right);
            }
            if self.rows.iter().all(|row| cell(&row[i]).chars().count() <= WRAPPED) {
                column.set_constraint(comfy_table::ColumnConstraint::ContentWidth);
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

/// Rows that are printed as they come: JSON objects, one per line, or CSV rows under one header. Nothing for people.
pub struct Stream {
    columns: &'static [&'static str],
    format: Format,
}

impl Stream {
    pub fn new(columns: &'static [&'static str], format: Format) -> Self {
        let stream = Self { columns, format };
        if format.csv {
            Self::record(columns.iter().map(|column| (*column).to_owned()));
        }
        stream
    }

    pub fn row(&self, cells: Vec<Value>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell for each column");
        if self.format.json {
            let object: Map<String, Value> = self.columns.iter().map(|c| (*c).to_owned()).zip(cells).collect();
            line(&Value::Object(object).to_string());
        } else if self.format.csv {
            Self::record(cells.iter().map(plain));
        }
    }

    fn record(cells: impl Iterator<Item = String>) {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let _ = writer.write_record(cells);
        line(String::from_utf8_lossy(&writer.into_inner().unwrap_or_default()).trim_end());
    }
}

/// A cell for people: numbers short, nothing for null.
fn cell(value: &Value) -> String {
    match value {
        Value::Number(n) if n.is_f64() => short(n.as_f64().unwrap_or(0.0)),
        other => plain(other),
    }
}

/// A cell as it is, nothing for null.
pub fn plain(value: &Value) -> String {
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
