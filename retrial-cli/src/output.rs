//! One table type for everything that prints figures: text, JSON or CSV from the same rows and columns.

use clap::Args;
use miette::Diagnostic;
use retrial::views::Counter;
use retrial_model::{Measure, Profile};
use serde_json::Value;
use std::borrow::{Borrow, Cow};
use std::error::Error;
use std::fmt;
use std::io::{self, Write};

/// How figures are printed.
#[derive(Args, Clone, Copy, Default)]
pub struct Format {
    /// Print figures as JSON
    #[arg(long, global = true)]
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

/// Whether a terminal or a reader would obey the character instead of showing it: C0, DEL and C1 controls, line and paragraph
/// separators, and what reorders the text beside it.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text with `\u001b` in the place of such characters, as JSON has them: names, actions and alerts are other users' texts.
/// Everything that is printed goes through here. Ends of lines stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_obeyed(c) && c != '\n')
}

fn escaped(text: &str, is_bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_bad) {
        return text.into();
    }
    let escape = |c: char| if is_bad(c) { format!("\\u{:04x}", u32::from(c)) } else { c.into() };
    text.chars().map(escape).collect::<String>().into()
}

/// Has the texts of errors, which quote names, printed as [`printable`] makes them.
pub struct Handler(pub miette::MietteHandler);

impl miette::ReportHandler for Handler {
    fn debug(&self, error: &dyn Diagnostic, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut causes: Vec<String> = Vec::new();
        let mut next = error.source();
        while let Some(cause) = next {
            causes.push(printable(&cause.to_string()).into());
            next = cause.source();
        }
        let cause = causes.into_iter().rev().fold(None, |source, text| Some(Box::new(Cause { text, source })));
        let source = Cause { text: printable(&error.to_string()).into(), source: cause };
        self.0.debug(&Printable { error, text: source }, f)
    }
}

#[derive(Debug)]
struct Cause {
    text: String,
    source: Option<Box<Cause>>,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|cause| -> &(dyn Error + 'static) { cause })
    }
}

/// An error with texts that can be printed.
struct Printable<'a> {
    error: &'a dyn Diagnostic,
    text: Cause,
}

impl fmt::Debug for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.text, f)
    }
}

impl Error for Printable<'_> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.text.source()
    }
}

impl Diagnostic for Printable<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.error.code()
    }

    fn severity(&self) -> Option<miette::Severity> {
        self.error.severity()
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.error.help().map(|help| -> Box<dyn fmt::Display> { Box::new(printable(&help.to_string()).into_owned()) })
    }
}

/// Writes a line; see [`write`].
pub fn line(text: &str) {
    write(&format!("{}\n", printable(text)));
}

/// Writes to standard output. A closed pipe ends the command quietly, by SIGPIPE as it ends other commands; whatever else keeps it from
/// being written is an error: exit code 2.
pub fn write(text: &str) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        if error.kind() == io::ErrorKind::BrokenPipe {
            crate::signals::die_of(libc::SIGPIPE);
        }
        let help = "df -h; ls -l /proc/self/fd/1";
        let report = miette::miette!(code = "retrial::output", help = help, "cannot write to standard output: {error}");
        eprintln!("{report:?}");
        std::process::exit(2);
    }
}

/// A word of a command to type, quoted where a shell would take it for something else.
pub fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else if word.chars().any(char::is_control) {
        let escaped = word.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n").replace('\t', "\\t");
        format!("$'{escaped}'").into()
    } else {
        format!("'{}'", word.replace('\'', "'\\''")).into()
    }
}

/// A column of rows: what it is called, in which unit, and its cell of a row. Text, CSV and JSON come from one list of them.
pub struct Column<'a, R> {
    name: &'static str,
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
pub fn column<'a, R: 'a, V: Into<Value>>(name: &'static str, value: impl Fn(&R) -> V + 'a) -> Column<'a, R> {
    Column { name, title: None, unit: "", readers: Readers::All, value: Box::new(move |row| value(row).into()) }
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
        Self { name, title: None, unit: "", ..self }
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

    fn header(&self) -> Cow<'static, str> {
        if self.unit.is_empty() { self.name.into() } else { format!("{}_{}", self.name, self.unit).into() }
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
        let head = |column: &Column<'_, R>| Head {
            name: column.header(),
            title: column.title.map_or_else(|| column.header(), Cow::from),
            readers: column.readers,
        };
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
        let cell = |row: &Vec<Value>, (i, head): (usize, &Head)| (head.name.to_string(), row[i].clone());
        let object = |row| Value::Object(self.without(Readers::People).map(|column| cell(row, column)).collect());
        Value::Array(self.rows.iter().map(object).collect())
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

    /// The rows as CSV under a header.
    pub fn csv(&self) -> String {
        let row = |row: &Vec<Value>| record(self.without(Readers::People).map(|(i, _)| plain(&row[i])));
        std::iter::once(record(self.names())).chain(self.rows.iter().map(row)).collect()
    }

    pub fn print(&self, format: Format) {
        if format.json {
            line(&serde_json::to_string_pretty(&self.json()).unwrap_or_default());
        } else if format.csv {
            line(self.csv().trim_end());
        } else {
            line(&self.text());
        }
    }
}

/// Rows that are printed as they come: JSON objects, one per line, or CSV rows under one header. Nothing for people.
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
fn cell(value: &Value) -> String {
    match value {
        Value::Number(n) if n.is_f64() => short(n.as_f64().unwrap_or(0.0)),
        other => plain(other),
    }
}

/// A cell as it is, nothing for null. A text that is another user's cannot begin a line of its own.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => escaped(text, is_obeyed).into(),
        other => other.to_string(),
    }
}

/// The nearest whole number, 0 for what is below it.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a cast saturates
pub const fn whole(x: f64) -> u64 {
    x.round() as u64
}

/// With so many digits after the point.
pub fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// `1,234,567`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
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
        let json = serde_json::json!({ "name": "n0", "wait_us": null, "only_kept": 2, "perhaps": 3 });
        assert_eq!(table.json()[1], json);
        assert_eq!(table.text().lines().next().unwrap().split_whitespace().collect::<Vec<_>>(), ["name", "W", "told"]);
        assert_eq!(Table::one([("a", 1.into()), ("b", Value::Null)]).csv(), "a,b\n1,\n");
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        let controls =
            (0..0x20).chain(0x7f..0xa0).chain([0x61c, 0x200e, 0x200f]).chain(0x2028..=0x202e).chain(0x2066..=0x2069);
        for c in controls.filter_map(char::from_u32) {
            let shown = printable(&format!("a{c}b")).into_owned();
            assert_eq!(shown == format!("a{c}b"), c == '\n', "{c:?}");
            assert_eq!(plain(&format!("a{c}b").into()), format!("a\\u{:04x}b", u32::from(c)));
            // JSON stays what it says.
            let json = Value::from(format!("a{c}b"));
            assert_eq!(serde_json::from_str::<Value>(&printable(&json.to_string())).unwrap(), json);
        }
        let fine = "Grüße, κ ≤ 1 😀 «x»";
        assert!(matches!(printable(fine), Cow::Borrowed(text) if text == fine));
    }
}
