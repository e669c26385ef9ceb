//! Columns and rows: text, JSON and CSV from one list of columns.

use super::{Format, line, markup, plain, rounded, short};
use retrial::views::Counter;
use retrial_model::{Measure, Profile};
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::borrow::{Borrow, Cow};
use std::fmt::Write;

/// A column of rows: what it is called, in which unit, and its cell of a row. Text, CSV and JSON come from
/// one list of them.
pub struct Column<'a, R> {
    name: Cow<'static, str>,
    /// Heading for people, where it differs.
    title: Option<&'static str>,
    /// Appended to the name; empty for a name that says it, or a number without one.
    unit: &'static str,
    readers: Readers,
    value: Box<dyn Fn(&R) -> Value + 'a>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Readers {
    All,
    People,
    Programs,
}

/// A column with its name and cell.
pub fn column<'a, R: 'a, V: Into<Value>>(
    name: impl Into<Cow<'static, str>>,
    value: impl Fn(&R) -> V + 'a,
) -> Column<'a, R> {
    Column {
        name: name.into(),
        title: None,
        unit: "",
        readers: Readers::All,
        value: Box::new(move |row| value(row).into()),
    }
}

/// A measure in a unit; `of` gives it in its own, which is SI.
pub fn measure<'a, R: 'a>(
    measure: Measure,
    unit: &'static str,
    of: impl Fn(&R, Measure) -> Option<f64> + 'a,
) -> Column<'a, R> {
    let value = move |row: &R| of(row, measure).map(|value| value * per(unit));
    Column { unit, ..column(measure.name(), value) }.titled(measure.symbol())
}

/// A counter under its name.
pub fn counter<'a, R: 'a>(counter: Counter, of: impl Fn(&R) -> &Profile + 'a) -> Column<'a, R> {
    column(Counter::NAMES[counter as usize], move |row| of(row).figures.get(counter))
}

/// How many of a unit are in the SI unit.
pub fn per(unit: &str) -> f64 {
    match unit {
        "ms" => 1e3,
        "us" => 1e6,
        "ns" => 1e9,
        "pct" => 100.0,
        _ => 1.0,
    }
}

impl<'a, R: 'a> Column<'a, R> {
    /// With so many digits after the point.
    pub fn rounded(self, digits: i32) -> Self {
        let value = self.value;
        let cell = move |row: &R| match value(row) {
            Value::Number(number) => number.as_f64().map(|number| rounded(number, digits)).into(),
            other => other,
        };
        Self { value: Box::new(cell), ..self }
    }

    /// Another name, which says the unit.
    pub fn named(self, name: &'static str) -> Self {
        Self { name: name.into(), title: None, unit: "", ..self }
    }

    /// Another heading for people; JSON and CSV keep the name.
    pub fn titled(self, title: &'static str) -> Self {
        Self { title: Some(title), ..self }
    }

    /// In text only.
    pub fn for_people(self) -> Self {
        Self { readers: Readers::People, ..self }
    }

    /// Not in text.
    pub fn for_programs(self) -> Self {
        self.told(false)
    }

    /// In text only where people are told.
    pub fn told(self, is_told: bool) -> Self {
        Self { readers: if is_told { self.readers } else { Readers::Programs }, ..self }
    }

    /// Its cell of a row.
    pub fn value(&self, row: &R) -> Value {
        (self.value)(row)
    }

    /// Its heading for people.
    pub fn title(&self) -> Cow<'static, str> {
        self.title.map_or_else(|| self.header(), Cow::from)
    }

    /// Its name for programs, with the unit.
    pub fn header(&self) -> Cow<'static, str> {
        if self.unit.is_empty() { self.name.clone() } else { format!("{}_{}", self.name, self.unit).into() }
    }
}

/// Rows under named columns. Units are in the names (`wait_us`); cells are JSON values.
#[derive(Clone, Debug, Default)]
pub struct Table {
    heads: Vec<Head>,
    rows: Vec<Vec<Value>>,
}

/// Name and heading of a column.
#[derive(Clone, Debug)]
struct Head {
    name: Cow<'static, str>,
    title: Cow<'static, str>,
    readers: Readers,
}

/// Characters of a cell that is never wrapped.
const WRAPPED: usize = 40;

impl Table {
    /// These columns of rows.
    pub fn of<R>(columns: &[Column<'_, R>], rows: impl IntoIterator<Item = impl Borrow<R>>) -> Self {
        let cells = |row: &R| columns.iter().map(|column| (column.value)(row)).collect();
        let head =
            |column: &Column<'_, R>| Head { name: column.header(), title: column.title(), readers: column.readers };
        Self {
            heads: columns.iter().map(head).collect(),
            rows: rows.into_iter().map(|row| cells(row.borrow())).collect(),
        }
    }

    /// Rows whose columns are not known before.
    pub fn new(names: Vec<String>, rows: Vec<Vec<Value>>) -> Self {
        let head = |name: String| Head { name: name.clone().into(), title: name.into(), readers: Readers::All };
        Self { heads: names.into_iter().map(head).collect(), rows }
    }

    /// One row: a name with each cell.
    pub fn one<const N: usize>(cells: [(&'static str, Value); N]) -> Self {
        Self::of(&cells.map(|(name, cell)| column(name, move |(): &()| cell.clone())), [()])
    }

    /// Positions and heads of the columns that others than these read.
    fn without(&self, readers: Readers) -> impl Iterator<Item = (usize, &Head)> {
        self.heads.iter().enumerate().filter(move |(_, head)| head.readers != readers)
    }

    /// Names of the columns of JSON and CSV.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.without(Readers::People).map(|(_, head)| &*head.name)
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Keeps the first rows only: how many are left out.
    pub fn shorten(&mut self, to: usize) -> usize {
        let left_out = self.rows.len().saturating_sub(to);
        self.rows.truncate(to);
        left_out
    }

    /// The rows as JSON objects.
    pub fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The rows as text, numbers aligned to the right.
    pub fn text(&self) -> String {
        let shown: Vec<(usize, &Head)> = self.without(Readers::Programs).collect();
        let mut table = comfy_table::Table::new();
        table.load_preset(comfy_table::presets::NOTHING).set_header(shown.iter().map(|(_, head)| &head.title));
        // On a terminal, long texts wrap within their column; short ones stay whole.
        if table.width().is_some_and(|width| width >= 80) {
            table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
        }
        for row in &self.rows {
            table.add_row(shown.iter().map(|(i, _)| cell(&row[*i])));
        }
        for ((i, _), column) in shown.into_iter().zip(table.column_iter_mut()) {
            if self.is_of_numbers(i) {
                column.set_cell_alignment(comfy_table::CellAlignment::Right);
            }
            if self.rows.iter().all(|row| cell(&row[i]).chars().count() <= WRAPPED) {
                column.set_constraint(comfy_table::ColumnConstraint::ContentWidth);
            }
            column.set_padding((0, 2));
        }
        table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }

    fn is_of_numbers(&self, column: usize) -> bool {
        self.rows.iter().all(|row| row[column].is_number() || row[column].is_null())
    }

    /// The same rows and headings as an HTML table; cells of numbers have the class `n`.
    pub fn html(&self) -> String {
        let shown: Vec<(usize, &Head)> = self.without(Readers::Programs).collect();
        let row = |tag: &str, cells: &mut dyn Iterator<Item = (usize, Cow<'_, str>)>| {
            let mut text = "<tr>".to_owned();
            for (i, cell) in cells {
                let class = if self.is_of_numbers(i) { " class=\"n\"" } else { "" };
                let _ = write!(text, "<{tag}{class}>{}</{tag}>", markup(&cell));
            }
            text + "</tr>\n"
        };
        let head = row("th", &mut shown.iter().map(|(i, head)| (*i, head.title.clone())));
        let cells = |of: &Vec<Value>| row("td", &mut shown.iter().map(|(i, _)| (*i, cell(&of[*i]).into())));
        let rows: String = self.rows.iter().map(cells).collect();
        format!("<table>\n<thead>\n{head}</thead>\n<tbody>\n{rows}</tbody>\n</table>\n")
    }

    /// The rows as CSV under a header.
    pub fn csv(&self) -> String {
        let row = |row: &Vec<Value>| record(self.without(Readers::People).map(|(i, _)| plain(&row[i])));
        std::iter::once(record(self.names())).chain(self.rows.iter().map(row)).collect()
    }

    pub fn print(&self, format: Format) {
        if format.json {
            line(&serde_json::to_string_pretty(self).unwrap_or_default());
        } else if format.csv {
            line(self.csv().trim_end());
        } else {
            line(&self.text());
        }
    }
}

impl Serialize for Table {
    /// A list of objects, written row by row: 100,000 rows of mutexes as values took 853 MiB.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.rows.iter().map(|cells| Object { table: self, cells }))
    }
}

/// A row of a table.
struct Object<'a> {
    table: &'a Table,
    cells: &'a [Value],
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.table.without(Readers::People).map(|(i, head)| (&*head.name, &self.cells[i])))
    }
}

/// Rows that are printed as they come: JSON objects, one per line, or CSV rows under one header. Nothing for
/// people.
pub struct Stream<'a, R> {
    columns: &'a [Column<'a, R>],
    format: Format,
}

impl<'a, R> Stream<'a, R> {
    pub fn new(columns: &'a [Column<'a, R>], format: Format) -> Self {
        if format.csv {
            line(record(columns.iter().map(|column| column.header().into_owned())).trim_end());
        }
        Self { columns, format }
    }

    pub fn row(&self, row: &R) {
        let cells = self.columns.iter().map(|column| (column.value)(row));
        if self.format.json {
            let names = self.columns.iter().map(|column| column.header().into_owned());
            line(&Value::Object(names.zip(cells).collect()).to_string());
        } else if self.format.csv {
            line(record(cells.map(|cell| plain(&cell))).trim_end());
        }
    }
}

/// A line of CSV with its end.
pub fn record<T: AsRef<[u8]>>(cells: impl Iterator<Item = T>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let _ = writer.write_record(cells);
    String::from_utf8_lossy(&writer.into_inner().unwrap_or_default()).into_owned()
}

/// A cell for people: numbers short, nothing for null.
pub fn cell(value: &Value) -> String {
    match value {
        Value::Number(n) if n.is_f64() => short(n.as_f64().unwrap_or(0.0)),
        other => plain(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_csv_and_json_come_from_one_list_of_columns() {
        let us = |row: &f64, _: Measure| Some(*row).filter(|x| *x > 0.0);
        let columns = [
            column("name", |row: &f64| format!("n{row}")),
            measure(Measure::Wait, "us", us).rounded(1),
            column("only_told", |_: &f64| 1).for_people().titled("told"),
            column("only_kept", |_: &f64| 2).for_programs(),
            column("perhaps", |_: &f64| 3).told(false),
        ];
        let table = Table::of(&columns, [2e-6, 0.0]);
        assert_eq!(table.csv(), "name,wait_us,only_kept,perhaps\nn0.000002,2.0,2,3\nn0,,2,3\n");
        assert_eq!(table.names().collect::<Vec<_>>(), ["name", "wait_us", "only_kept", "perhaps"]);
        let html = "<tr><th>name</th><th class=\"n\">W</th><th class=\"n\">told</th></tr>\n</thead>\n<tbody>\n\
            <tr><td>n0.000002</td><td class=\"n\">2.00</td><td class=\"n\">1</td></tr>\n<tr><td>n0</td><td class=\"n\"></td>";
        assert!(table.html().contains(html), "{}", table.html());
        let json = serde_json::json!({ "name": "n0", "wait_us": null, "only_kept": 2, "perhaps": 3 });
        assert_eq!(table.json()[1], json);
        assert_eq!(table.text().lines().next().unwrap().split_whitespace().collect::<Vec<_>>(), ["name", "W", "told"]);
        assert_eq!(Table::one([("a", 1.into()), ("b", Value::Null)]).csv(), "a,b\n1,\n");
    }
}
