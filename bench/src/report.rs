//! Rows of figures as text, JSON or CSV.

use serde_json::{Map, Value};

#[derive(clap::Args, Clone, Copy)]
pub struct Output {
    /// Print figures as JSON
    #[arg(long, global = true, conflicts_with = "csv")]
    json: bool,
    /// Print figures as CSV
    #[arg(long, global = true)]
    csv: bool,
}

impl Output {
    pub const fn is_text(self) -> bool {
        !self.json && !self.csv
    }
}

pub fn print(columns: &[&str], rows: &[Vec<Value>], output: Output) {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if output.json {
        let object = |row: &Vec<Value>| -> Map<String, Value> {
            columns.iter().map(|column| (*column).to_owned()).zip(row.iter().cloned()).collect()
        };
        let all: Value = rows.iter().map(object).collect();
        println!("{all:#}");
    } else if output.csv {
        println!("{}", columns.join(","));
        for row in rows {
            println!("{}", row.iter().map(|cell| format!("\"{}\"", plain(cell))).collect::<Vec<_>>().join(","));
        }
    } else {
        let mut table = comfy_table::Table::new();
        table.load_preset(comfy_table::presets::NOTHING).set_header(columns);
        for row in rows {
            table.add_row(row.iter().map(plain));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
        println!("{table}");
    }
}

/// Median, least and greatest; the values are sorted by it.
pub fn spread(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

pub fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}
