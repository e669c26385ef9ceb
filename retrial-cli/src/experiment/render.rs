//! What was found, for people and programs: tables, charts, the page.

use super::claims::{Verdict, number, place, verdicts};
use super::lab::ANY;
use super::machine::{ENGINE, EXADATA, HERE, Machine, SOCKETS, T2000, T5240};
use super::quantities::{Found, How, Quantity, Row};
use super::{Experiment, Findings, svg};
use crate::chart::{self, Axis, Chart, Form, Legend, Point, Scale, Series};
use crate::output::{Table, column, short};
use miette::Report;
use serde_json::{Value, json};
use std::fmt::Write;

/// An experiment that was done.
pub struct Done {
    pub experiment: &'static Experiment,
    pub findings: Findings,
    pub verdicts: Vec<Verdict>,
}

/// Every figure of every experiment in a row of its own, for CSV.
pub fn figures(done: &[Done]) -> Table {
    type Figure<'a> = (&'a Done, &'a Row, Quantity, Found);
    let columns = [
        column("experiment", |(done, ..): &Figure<'_>| done.experiment.name),
        column("load", |(_, row, ..): &Figure<'_>| row.load),
        column("line", |(_, row, ..): &Figure<'_>| row.line),
        column("x_name", |(done, ..): &Figure<'_>| done.experiment.x),
        column("x", |(_, row, ..): &Figure<'_>| row.x),
        column("how", |(_, row, ..): &Figure<'_>| row.how.name()),
        column("machine", |(_, row, ..): &Figure<'_>| row.machine),
        column("quantity", |(.., quantity, _): &Figure<'_>| quantity.name()),
        column("value", |(.., found): &Figure<'_>| found.middle),
        column("spread", |(.., found): &Figure<'_>| (found.high - found.low) / 2.0),
    ];
    let of = |(done, row)| move |(quantity, found): &(Quantity, Found)| (done, row, *quantity, *found);
    let rows = done.iter().flat_map(|done| done.findings.rows.iter().map(move |row| (done, row)));
    Table::of(&columns, rows.flat_map(|(done, row): (&Done, &Row)| row.values.iter().map(of((done, row)))))
}

impl Done {
    pub fn new(experiment: &'static Experiment, findings: Findings, here: &Machine) -> Self {
        let verdicts = verdicts(experiment.claims, &findings.rows, &machines(here), experiment.x_scale);
        Self { experiment, findings, verdicts }
    }

    /// Every figure with its least and greatest value over the runs.
    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            let mut object = json!({ "load": row.load, "line": row.line, self.experiment.x: row.x, "how": row.how.name(), "machine": row.machine });
            for (quantity, found) in &row.values {
                object[quantity.name()] = json!(found.middle);
                object[format!("{}_range", quantity.name())] = json!([found.low, found.high]);
            }
            object
        };
        let verdict = |verdict: &Verdict| {
            json!({ "says": verdict.says, "load": verdict.load, "how": verdict.how.name(), "machine": verdict.machine,
                "agrees": verdict.agrees, "found": verdict.found })
        };
        let tables: serde_json::Map<String, Value> =
            self.findings.tables.iter().map(|(title, table)| (title.clone(), table.json())).collect();
        json!({
            "name": self.experiment.name,
            "source": self.experiment.source,
            "rows": self.findings.rows.iter().map(row).collect::<Vec<_>>(),
            "claims": self.verdicts.iter().map(verdict).collect::<Vec<_>>(),
            "tables": tables,
            "notes": self.findings.notes,
        })
    }

    /// Title, table, claims.
    pub fn text(&self) -> String {
        let Experiment { name, source, shows, .. } = self.experiment;
        let mut text = format!("{name} ({source}): {shows}\n");
        // Curves are for the chart.
        let rows: Vec<&Row> = self.findings.rows.iter().filter(|row| row.machine != ANY).collect();
        if !rows.is_empty() {
            let _ = writeln!(text, "\n{}", self.table(&rows).text());
        }
        for (title, table) in &self.findings.tables {
            let _ = writeln!(text, "\n{title}\n{}", table.text());
        }
        text.push('\n');
        for note in &self.findings.notes {
            let _ = writeln!(text, "note: {note}");
        }
        for verdict in &self.verdicts {
            let _ = writeln!(text, "{}", verdict.line());
        }
        text
    }

    fn table(&self, rows: &[&Row]) -> Table {
        let has_loads = rows.iter().any(|row| !row.load.is_empty());
        let mut columns = vec![
            column("line", |row: &Row| row.line),
            column(self.experiment.x, |row: &Row| self.experiment.named(row.x)),
            column("how", |row: &Row| row.how.name()),
            column("machine", |row: &Row| row.machine),
        ];
        columns.extend(has_loads.then(|| column("load", |row: &Row| row.load)));
        let figure = |quantity: Quantity| column(quantity.name(), move |row: &Row| Some(row.get(quantity)?.middle));
        columns.extend(self.experiment.quantities.iter().copied().map(figure));
        Table::of(&columns, rows.iter().copied())
    }

    /// Loads and machines in the order of the rows.
    fn groups(&self) -> Vec<(&'static str, &'static str)> {
        distinct(self.findings.rows.iter().filter(|row| row.machine != ANY).map(|row| (row.load, row.machine)))
    }

    /// All charts in one picture: a row for each load and machine.
    ///
    /// # Errors
    ///
    /// When it cannot be drawn.
    pub fn svg(&self) -> Result<Option<String>, Report> {
        let Experiment { charts, together, .. } = self.experiment;
        let mut groups: Vec<(Option<&str>, Option<&str>)> =
            self.groups().into_iter().map(|(load, machine)| (Some(load), Some(machine))).collect();
        if *together {
            groups = vec![(None, None)];
        }
        let all = groups.into_iter().flat_map(|group| charts.iter().filter_map(move |of| self.chart(group, *of)));
        let all: Vec<Chart> = all.collect();
        if all.is_empty() {
            return Ok(None);
        }
        chart::svg(&all, charts.len().max(2)).map(|text| Some(svg::compact(&text)))
    }

    /// A figure of a load on a machine, or of all.
    fn chart(
        &self,
        (load, machine): (Option<&str>, Option<&str>),
        (quantity, scale): (Quantity, Scale),
    ) -> Option<Chart> {
        let is_in = |row: &Row| {
            load.is_none_or(|load| load == row.load) && machine.is_none_or(|machine| machine == row.machine)
        };
        let own = |row: &&Row| is_in(row) || row.machine == ANY;
        let rows: Vec<&Row> = self.findings.rows.iter().filter(own).filter(|row| row.get(quantity).is_some()).collect();
        rows.iter().any(|row| is_in(row)).then_some(())?;
        let series = if self.experiment.together { ways(&rows, quantity) } else { self.series(&rows, quantity) };
        let place = [load.unwrap_or_default(), machine.unwrap_or_default()].into_iter().filter(|part| !part.is_empty());
        let place = place.collect::<Vec<_>>().join(", ");
        let numbers = || distinct(rows.iter().map(|row| format!("{} {}", number(row.x), row.line))).join(", ");
        Some(Chart {
            title: if place.is_empty() { quantity.title().to_owned() } else { format!("{place}: {}", forms(&rows)) },
            x: Axis::new(
                if self.experiment.together { numbers() } else { self.experiment.x.to_owned() },
                self.experiment.x_scale,
            ),
            y: Axis::new(quantity.title(), scale),
            series,
            legend: Legend::Beside,
        })
    }

    /// Each line in its colour.
    fn series(&self, rows: &[&Row], quantity: Quantity) -> Vec<Series> {
        let lines = distinct(self.findings.rows.iter().map(|row| row.line));
        let colours = chart::colours(lines.iter().copied());
        let mut named: Vec<&str> = Vec::new();
        let of = |(line, how): (&'static str, How)| {
            let own = rows.iter().filter(|row| (row.line, row.how) == (line, how));
            let mut points = points(own.copied(), quantity);
            if lines.len() > CLEAR {
                for point in &mut points {
                    point.interval = None;
                }
            }
            let form = match how {
                How::Measured | How::Published => Form::Points,
                How::Simulated => Form::Line,
                How::Predicted => Form::Dashes,
            };
            let is_new = !named.contains(&line);
            named.push(line);
            let name = if is_new { line.to_owned() } else { String::new() };
            let colour = lines.iter().position(|known| *known == line).map_or(0, |line| colours[line]);
            Series { name, form, colour, points }
        };
        keys(rows).into_iter().map(of).collect()
    }

    /// A section of the page.
    pub fn markdown(&self, has_picture: bool) -> String {
        let Experiment { name, source, shows, text, .. } = self.experiment;
        let mut page = format!("## {name}\n\n*{source}: {shows}*\n\n{text}\n");
        if has_picture {
            let _ = writeln!(page, "\n![{shows}]({PICTURES}/{name}.svg)");
        }
        for note in &self.findings.notes {
            let _ = writeln!(page, "\n{note}");
        }
        if !self.verdicts.is_empty() {
            page.push_str("\n| what the source says | | |\n|---|---|---|\n");
            for group in self.verdicts.chunk_by(|a, b| a.says == b.says && a.load == b.load) {
                for (index, verdict) in group.iter().enumerate() {
                    let load = if verdict.load.is_empty() { String::new() } else { format!("{}: ", verdict.load) };
                    let says = if index == 0 { format!("{load}{}", verdict.says) } else { String::new() };
                    let agrees = if verdict.agrees { "agrees" } else { "**does not agree**" };
                    let machine = if verdict.machine == ANY { String::new() } else { format!(", {}", verdict.machine) };
                    let _ =
                        writeln!(page, "| {says} | {agrees}: {}{machine} | {} |", verdict.how.name(), verdict.found);
                }
            }
        }
        for (load, machine) in self.groups() {
            let own = |row: &&Row| row.load == load && row.machine == machine;
            let rows: Vec<&Row> = self.findings.rows.iter().filter(own).collect();
            page.push_str(&self.tables(load, machine, &rows));
        }
        for (title, table) in &self.findings.tables {
            let _ = writeln!(page, "\n{title}\n\n```text\n{}\n```", table.text());
        }
        page
    }

    /// The figures of a load on a machine: a table for each, with a row for each line and way and a column
    /// for each x; one list where the x are too many, or each has a line of its own.
    fn tables(&self, load: &str, machine: &str, rows: &[&Row]) -> String {
        let mut xs: Vec<f64> = rows.iter().map(|row| row.x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let load = if load.is_empty() { String::new() } else { format!("{load}, ") };
        let quantities = self.experiment.quantities;
        let value =
            |row: &Row, quantity: Quantity| row.get(quantity).map_or_else(String::new, |found| short(found.middle));
        if self.experiment.together || xs.len() > COLUMNS_MAX {
            let names: Vec<&str> = quantities.iter().map(|quantity| quantity.title()).collect();
            let place = format!("{load}{machine}");
            let title = [&[&*place, self.experiment.x, ""], &names[..]].concat();
            let row = |row: &&Row| {
                let figures: Vec<String> = quantities.iter().map(|quantity| value(row, *quantity)).collect();
                [&[row.line.to_owned(), number(row.x), row.how.name().to_owned()], &figures[..]].concat()
            };
            return markdown_table(&title, rows.iter().map(row));
        }
        let of = |quantity: &Quantity| {
            let rows: Vec<&Row> = rows.iter().copied().filter(|row| row.get(*quantity).is_some()).collect();
            let numbers: Vec<String> = xs.iter().map(|x| place(self.experiment.x_scale, *x)).collect();
            let title = [&[format!("{load}{machine}: {}", quantity.title()), String::new()], &numbers[..]].concat();
            let row = |(line, how): (&'static str, How)| {
                let at = |x: &f64| rows.iter().find(|row| (row.line, row.how, row.x) == (line, how, *x));
                let cells: Vec<String> =
                    xs.iter().map(|x| at(x).map_or_else(String::new, |row| value(row, *quantity))).collect();
                [&[line.to_owned(), how.name().to_owned()], &cells[..]].concat()
            };
            if rows.is_empty() { String::new() } else { markdown_table(&title, keys(&rows).into_iter().map(row)) }
        };
        quantities.iter().map(of).collect()
    }
}

fn markdown_table<T: AsRef<str>>(title: &[T], rows: impl Iterator<Item = Vec<String>>) -> String {
    let title: Vec<&str> = title.iter().map(AsRef::as_ref).collect();
    let mut text = format!("\n| {} |\n|{}\n", title.join(" | "), "---|".repeat(title.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// Most lines of a chart in which their spreads can be told apart.
const CLEAR: usize = 6;

/// Most columns of a table of the page.
const COLUMNS_MAX: usize = 16;

/// The directory of the pictures beside the page.
pub const PICTURES: &str = "experiments";

/// What there is, once each, in its order.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut known, one| {
        if !known.contains(&one) {
            known.push(one);
        }
        known
    })
}

/// Lines and ways in the order of the rows.
fn keys(rows: &[&Row]) -> Vec<(&'static str, How)> {
    distinct(rows.iter().map(|row| (row.line, row.how)))
}

/// What is drawn how, of what is there.
fn forms(rows: &[&Row]) -> String {
    let is_there = |how: How| rows.iter().any(|row| row.how == how);
    let forms = [
        (How::Measured, "points: measured"),
        (How::Published, "points: published"),
        (How::Simulated, "lines: simulated"),
        (How::Predicted, "dashes: predicted"),
    ];
    forms.into_iter().filter(|(how, _)| is_there(*how)).map(|(_, form)| form).collect::<Vec<_>>().join(", ")
}

/// Each way and machine in its colour, as points.
fn ways(rows: &[&Row], quantity: Quantity) -> Vec<Series> {
    let of = |(colour, (how, machine)): (usize, (How, &'static str))| {
        let own = rows.iter().filter(|row| (row.how, row.machine) == (how, machine));
        let points = points(own.copied(), quantity);
        Series { name: format!("{}, {machine}", how.name()), form: Form::Points, colour, points }
    };
    distinct(rows.iter().map(|row| (row.how, row.machine))).into_iter().enumerate().map(of).collect()
}

/// By rising x. What is simulated is drawn as lines, without its spread.
fn points<'a>(rows: impl Iterator<Item = &'a Row>, quantity: Quantity) -> Vec<Point> {
    let point = |row: &Row| {
        let found = row.get(quantity)?;
        let interval = (found.low < found.high && row.how != How::Simulated).then_some((found.low, found.high));
        Some(Point { x: row.x, y: found.middle, interval })
    };
    let mut points: Vec<Point> = rows.filter_map(point).collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    points
}

/// This machine and those of the sources.
fn machines(here: &Machine) -> [&Machine; 6] {
    [here, &EXADATA, &T2000, &T5240, &SOCKETS, &ENGINE]
}

/// The page: what was done where, and a section for each experiment. `pictures`: whether each has one.
pub fn page(done: &[Done], here: &Machine, title: &str, pictures: &[bool]) -> String {
    let mut page = format!(
        "# The experiments of the sources\n\n{INTRODUCTION}\n\n{title}\n\n| machine | processors | costs |\n|---|---|---|\n"
    );
    let used = |machine: &&&Machine| {
        machine.name == HERE || done.iter().any(|done| done.findings.rows.iter().any(|row| row.machine == machine.name))
    };
    for Machine { name, processors, from, .. } in machines(here).iter().filter(used) {
        let _ = writeln!(page, "| {name} | {processors} | {from} |");
    }
    let all = || done.iter().flat_map(|done| &done.verdicts);
    if all().next().is_some() {
        page.push_str(
            "\nStatements of the sources that the figures agree with, of all that they could be held against:\n\n",
        );
        page.push_str("| experiment | source | measured | simulated, here | simulated, their machine | predicted |\n|---|---|---|---|---|---|\n");
        for Done { experiment, verdicts, .. } in done {
            let count = |is_in: &dyn Fn(&&Verdict) -> bool| {
                let own: Vec<&Verdict> = verdicts.iter().filter(is_in).collect();
                let agree = own.iter().filter(|verdict| verdict.agrees).count();
                if own.is_empty() { String::new() } else { format!("{agree} of {}", own.len()) }
            };
            let Experiment { name, source, .. } = experiment;
            let _ = writeln!(
                page,
                "| [{name}](#{name}) | {source} | {} | {} | {} | {} |",
                count(&|v| v.how == How::Measured),
                count(&|v| v.how == How::Simulated && v.machine == HERE),
                count(&|v| v.how == How::Simulated && v.machine != HERE),
                count(&|v| v.how == How::Predicted)
            );
        }
    }
    for (done, has_picture) in done.iter().zip(pictures) {
        let _ = write!(page, "\n{}", done.markdown(*has_picture));
    }
    page
}

const INTRODUCTION: &str = "\
The figures and tables of the five documents that retrial comes from, done again: measured on the machine at hand, simulated for it and for \
the machine of the source, and predicted by theory where it has a formula. 000 is A. Nikolaev, *Exploring mutexes, the Oracle RDBMS \
retrial spinlocks* (2012); 001 his blog on scheme 0 (2011); 002 the case of a T5240; 003 the one of hot copies (HammerDB); 004 \
YottaDB's critical sections (2025). This page is written by `retrial experiment all --out DIR`, also what agrees and what does not: \
each statement of a source is held against the figures by a rule, which can be too strict or too lax, and the figures that decided \
stand beside it.

Measurements are medians of rounds that interleave, simulations of several seeds; both with their least and greatest value in the \
pictures' bars (of what was measured), in `--json` and in `--csv`. The library's own schemes are measured and simulated, not Oracle's or YottaDB's code. The loads \
are chosen, since the sources do not say how long their sections and what lies between them take. \
Those of spin-count, marked, hot-copies and granularity, and the margins of some rules, were chosen after a first look, where the first choice showed \
nothing (nobody slept, or a straight line had no points): that these agree says less. The simulator knows one cost of a cache \
line's way between processors; where a machine has several sockets it is that of a far line.";
