//! A page of its own: plots as inline SVG, one legend for all of them, and the figures.

use crate::measurement::Load;
use crate::row::{Key, Row, table};
use miette::Report;
use retrial_bench::chart::{self, Axis, Chart, Form, Point, Scale, Series};
use retrial_bench::output::{Table, markup};
use serde_json::Value;
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.4 sans-serif;margin:2em;max-width:1500px}
h2{margin-top:2em;border-bottom:1px solid #bbb}
.plots{display:flex;flex-wrap:wrap;gap:10px}
.legend{position:sticky;top:0;background:#fff;padding:6px 0;border-bottom:1px solid #bbb}
.legend span{margin-right:1.2em;white-space:nowrap}
.legend b{display:inline-block;min-width:1.5em;padding:0 .2em;color:#fff;text-align:center}
table{border-collapse:collapse;font-size:13px}td,th{padding:1px 8px;text-align:right;border-bottom:1px solid #eee}
td:first-child,th:first-child{text-align:left}";

/// A figure that is drawn.
struct Figure {
    title: &'static str,
    of: fn(&Row) -> Option<f64>,
    scale: Scale,
}

const FIGURES: [Figure; 5] = [
    Figure {
        title: "throughput, million gets/s (from 1/100 of the best)",
        of: |row| row.mops_per_s,
        scale: Scale::Decades(2),
    },
    Figure { title: "processor time of the workers, s/s", of: |row| row.cpu_s_per_s, scale: Scale::Linear },
    Figure { title: "fairness (Jain)", of: |row| row.jain, scale: Scale::Linear },
    Figure { title: "wait, 99 %, us", of: |row| row.wait_p99_us, scale: Scale::Decimal },
    Figure { title: "longest wait, us", of: |row| row.wait_max_us, scale: Scale::Decimal },
];

/// The page of the rows, under these lines.
pub fn of_rows(header: &[String], rows: &[Row]) -> Result<String, Report> {
    let mut peers: Vec<&str> = Vec::new();
    for row in rows {
        if !peers.contains(&row.peer.as_str()) {
            peers.push(&row.peer);
        }
    }
    let mut body = legend(&peers);
    for (title, plots) in sections(rows, &peers)? {
        let _ = write!(body, "<h2>{}</h2>\n<div class=\"plots\">\n{}</div>\n", markup(&title), plots.concat());
    }
    let _ = write!(body, "<h2>Figures</h2>\n{}", html_table(&table(rows)));
    Ok(page(header, &body))
}

/// The page of one table.
pub fn of_table(header: &[String], table: &Table) -> String {
    page(header, &html_table(table))
}

fn page(header: &[String], body: &str) -> String {
    let lines: Vec<String> = header.iter().map(|line| markup(line)).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>retrial against its peers</title>\n\
         <style>{STYLE}</style></head>\n<body><h1>retrial against its peers</h1>\n<p>{}</p>\n{body}</body></html>\n",
        lines.join("<br>\n")
    )
}

fn legend(peers: &[&str]) -> String {
    let entry = |(number, peer): (usize, &&str)| {
        let (red, green, blue) = chart::rgb(number);
        let name = markup(peer);
        format!("<span><b style=\"background:rgb({red},{green},{blue})\">{}</b> {name}</span>", number + 1)
    };
    let entries: Vec<String> = chart::colours(peers.iter().copied()).into_iter().zip(peers).map(entry).collect();
    format!("<div class=\"legend\">{}</div>\n", entries.join("\n"))
}

/// For each set of conditions its title and its plots, as they come in the rows.
fn sections(rows: &[Row], peers: &[&str]) -> Result<Vec<(String, Vec<String>)>, Report> {
    let mut sections: Vec<(Key, Vec<&Row>)> = Vec::new();
    for row in rows {
        let mut key = row.key();
        if row.load != Load::Thinking.name() {
            key.sessions = 0;
        }
        match sections.iter_mut().find(|(known, _)| *known == key) {
            Some((_, own)) => own.push(row),
            None => sections.push((key, vec![row])),
        }
    }
    let plots_of = |(key, rows): (Key, Vec<&Row>)| {
        let title = format!("{}, {}: {}", key.load, key.kind, key.conditions());
        if key.load == Load::Thinking.name() {
            let title = format!("{title}; {} sessions", key.sessions);
            return Ok((title, vec![over_time(&rows, peers)?]));
        }
        let plots: Result<Vec<String>, Report> =
            FIGURES.iter().map(|figure| against_sessions(figure, &rows, peers)).collect();
        Ok((title, plots?))
    };
    sections.into_iter().map(plots_of).collect()
}

/// A line for each peer that has points, in its colour.
fn lines(peers: &[&str], points_of: impl Fn(&str) -> Vec<(f64, f64)>) -> Vec<Series> {
    let line = |(colour, peer): (usize, &&str)| Series {
        name: (*peer).to_owned(),
        form: Form::Line,
        colour,
        points: points_of(peer).into_iter().map(Point::from).collect(),
    };
    chart::colours(peers.iter().copied())
        .into_iter()
        .zip(peers)
        .map(line)
        .filter(|line| !line.points.is_empty())
        .collect()
}

fn against_sessions(figure: &Figure, rows: &[&Row], peers: &[&str]) -> Result<String, Report> {
    let lines = lines(peers, |name| {
        let own = rows.iter().filter(|row| row.peer == name);
        let mut points: Vec<(f64, f64)> =
            own.filter_map(|row| Some((f64::from(row.sessions), (figure.of)(row)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    });
    plot(figure.title, lines, Axis::new("sessions", Scale::Binary), figure.scale)
}

fn over_time(rows: &[&Row], peers: &[&str]) -> Result<String, Report> {
    let lines = lines(peers, |name| {
        let windows = rows.iter().find(|row| row.peer == name).map_or("", |row| &row.windows_kops);
        let rates = windows.split(' ').filter_map(|text| text.parse().ok());
        rates.enumerate().map(|(window, rate)| (window as f64 + 1.0, rate)).collect()
    });
    plot("thousand gets/s", lines, Axis::new("window", Scale::Linear), Scale::Linear)
}

/// One plot, for a page with one legend for all: a line ends in the number of its peer.
fn plot(title: &str, series: Vec<Series>, x: Axis, scale: Scale) -> Result<String, Report> {
    let chart = Chart { title: title.to_owned(), x, y: Axis::new("", scale), series, legend: chart::Legend::ByNumber };
    // Within a page it needs no namespace.
    Ok(chart::svg(&[chart], 1)?.replace(" xmlns=\"http://www.w3.org/2000/svg\"", ""))
}

fn html_table(table: &Table) -> String {
    let Value::Array(rows) = table.json() else { return String::new() };
    let cell = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => markup(text),
        other => other.to_string(),
    };
    let Some(Value::Object(first)) = rows.first() else { return "<p>nothing measured</p>\n".to_owned() };
    let head: Vec<&str> = first.keys().map(String::as_str).collect();
    let mut text = format!("<table>\n<tr><th>{}</th></tr>\n", head.join("</th><th>"));
    for row in rows.iter().filter_map(Value::as_object) {
        let cells: Vec<String> = row.values().map(cell).collect();
        let _ = writeln!(text, "<tr><td>{}</td></tr>", cells.join("</td><td>"));
    }
    text + "</table>\n"
}
