//! A page of its own: plots as inline SVG, one legend for all of them, and the figures.

use crate::plan::Load;
use crate::row::{COLUMNS, Key, Row, table};
use miette::{IntoDiagnostic, Report};
use plotters::prelude::*;
use retrial_cli::output::{Table, short};
use serde_json::Value;
use std::fmt::Write;
use std::ops::Range;

const WIDTH: u32 = 580;
const HEIGHT: u32 = 400;
/// Decades of a logarithmic axis below the greatest value of a figure whose lowest values tell little: these lie at the bottom.
const DECADES: f64 = 2.0;

const STYLE: &str = "body{font:15px/1.4 sans-serif;margin:2em;max-width:1500px}
h2{margin-top:2em;border-bottom:1px solid #bbb}
.plots{display:flex;flex-wrap:wrap;gap:10px}
.legend{position:sticky;top:0;background:#fff;padding:6px 0;border-bottom:1px solid #bbb}
.legend span{margin-right:1.2em;white-space:nowrap}
.legend b{display:inline-block;min-width:1.5em;padding:0 .2em;color:#fff;text-align:center}
table{border-collapse:collapse;font-size:13px}td,th{padding:1px 8px;text-align:right;border-bottom:1px solid #eee}
td:first-child,th:first-child{text-align:left}";

/// How values are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scale {
    Linear,
    Logarithmic,
    /// The same, down to [`DECADES`] below the top.
    Top,
}

impl Scale {
    /// Where a value lies; nowhere when it has no logarithm.
    fn place(self, value: f64) -> Option<f64> {
        match self {
            Self::Linear => Some(value),
            Self::Logarithmic | Self::Top => Some(value.log10()).filter(|place| place.is_finite()),
        }
    }

    /// The value at a place.
    fn value(self, place: f64) -> f64 {
        if self == Self::Linear { place } else { 10f64.powf(place) }
    }

    /// The axis for places between these.
    fn range(self, (low, high): (f64, f64)) -> Range<f64> {
        match self {
            Self::Linear => 0.0..(high * 1.05).max(0.01),
            Self::Logarithmic => padded((low, high)),
            Self::Top => padded((low.max(high - DECADES), high)),
        }
    }
}

/// With a little room on both sides.
fn padded((low, high): (f64, f64)) -> Range<f64> {
    let room = ((high - low) * 0.05).max(0.05);
    low - room..high + room
}

/// How many labels an axis has: none between whole numbers, but when these are few.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a few decades
fn labels(range: &Range<f64>, least: usize) -> usize {
    let whole = (range.end - range.start) as usize + 1;
    if whole < least { 6 } else { whole.min(12) }
}

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
        scale: Scale::Top,
    },
    Figure { title: "processor time of the workers, s/s", of: |row| row.cpu_s_per_s, scale: Scale::Linear },
    Figure { title: "fairness (Jain)", of: |row| row.jain, scale: Scale::Linear },
    Figure { title: "wait, 99 %, us", of: |row| row.wait_p99_us, scale: Scale::Logarithmic },
    Figure { title: "longest wait, us", of: |row| row.wait_max_us, scale: Scale::Logarithmic },
];

/// A line: which peer, by its number, and its points.
struct Line {
    peer: usize,
    points: Vec<(f64, f64)>,
}

/// A colour for each peer, as far from those before it as can be.
fn colour(peer: usize) -> HSLColor {
    let hue = (peer as f64 * 0.381_966) % 1.0;
    HSLColor(hue, 0.75, if peer.is_multiple_of(2) { 0.38 } else { 0.5 })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

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
        let _ = write!(body, "<h2>{}</h2>\n<div class=\"plots\">\n{}</div>\n", escaped(&title), plots.concat());
    }
    let _ = write!(body, "<h2>Figures</h2>\n{}", html_table(&table(rows, &COLUMNS)));
    Ok(page(header, &body))
}

/// The page of one table.
pub fn of_table(header: &[String], table: &Table) -> String {
    page(header, &html_table(table))
}

fn page(header: &[String], body: &str) -> String {
    let lines: Vec<String> = header.iter().map(|line| escaped(line)).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>retrial against its peers</title>\n\
         <style>{STYLE}</style></head>\n<body><h1>retrial against its peers</h1>\n<p>{}</p>\n{body}</body></html>\n",
        lines.join("<br>\n")
    )
}

fn legend(peers: &[&str]) -> String {
    let entry = |(number, peer): (usize, &&str)| {
        let (red, green, blue) = colour(number).rgb();
        let name = escaped(peer);
        format!("<span><b style=\"background:rgb({red},{green},{blue})\">{}</b> {name}</span>", number + 1)
    };
    let entries: Vec<String> = peers.iter().enumerate().map(entry).collect();
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

fn lines(peers: &[&str], points_of: impl Fn(&str) -> Vec<(f64, f64)>) -> Vec<Line> {
    let all = peers.iter().enumerate().map(|(peer, name)| Line { peer, points: points_of(name) });
    all.filter(|line| !line.points.is_empty()).collect()
}

fn against_sessions(figure: &Figure, rows: &[&Row], peers: &[&str]) -> Result<String, Report> {
    let lines = lines(peers, |name| {
        let own = rows.iter().filter(|row| row.peer == name);
        let mut points: Vec<(f64, f64)> =
            own.filter_map(|row| Some((f64::from(row.sessions).log2(), (figure.of)(row)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    });
    plot(figure.title, &lines, figure.scale, "sessions", &|x| format!("{:.0}", x.exp2()))
}

fn over_time(rows: &[&Row], peers: &[&str]) -> Result<String, Report> {
    let lines = lines(peers, |name| {
        let windows = rows.iter().find(|row| row.peer == name).map_or("", |row| &row.windows_kops);
        let rates = windows.split(' ').filter_map(|text| text.parse().ok());
        rates.enumerate().map(|(window, rate)| (window as f64 + 1.0, rate)).collect()
    });
    plot("thousand gets/s", &lines, Scale::Linear, "window", &|x| format!("{x:.0}"))
}

/// One plot as SVG. A line ends in the number of its peer.
fn plot(
    title: &str,
    lines: &[Line],
    scale: Scale,
    x_name: &str,
    x_label: &dyn Fn(&f64) -> String,
) -> Result<String, Report> {
    let mut drawn: Vec<(usize, Vec<(f64, f64)>)> = lines
        .iter()
        .map(|line| (line.peer, line.points.iter().filter_map(|(x, y)| Some((*x, scale.place(*y)?))).collect()))
        .collect();
    let range = |of: fn(&(f64, f64)) -> f64| {
        let values = drawn.iter().flat_map(|(_, points)| points).map(of);
        let ends = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        if ends.0 <= ends.1 { ends } else { (0.0, 1.0) }
    };
    let (x_range, y_range) = (padded(range(|point| point.0)), scale.range(range(|point| point.1)));
    for (_, y) in drawn.iter_mut().flat_map(|(_, points)| points) {
        *y = y.max(y_range.start);
    }
    let y_label = |y: &f64| short(scale.value(*y));
    let x_labels = labels(&x_range, 1);
    let y_labels = labels(&y_range, if scale == Scale::Linear { usize::MAX } else { 4 });
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 15))
            .margin(8)
            .x_label_area_size(32)
            .y_label_area_size(52)
            .build_cartesian_2d(x_range, y_range)
            .into_diagnostic()?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(x_name)
            .x_labels(x_labels)
            .y_labels(y_labels)
            .x_label_formatter(x_label)
            .y_label_formatter(&y_label);
        mesh.light_line_style(TRANSPARENT).draw().into_diagnostic()?;
        for (peer, points) in &drawn {
            let style = colour(*peer).stroke_width(2);
            chart.draw_series(LineSeries::new(points.iter().copied(), style)).into_diagnostic()?;
            let font = ("sans-serif", 11).into_font().color(&colour(*peer));
            let end = points.last().map(|point| Text::new((peer + 1).to_string(), *point, font));
            chart.draw_series(end).into_diagnostic()?;
        }
        area.present().into_diagnostic()?;
    }
    // Within a page it needs no namespace.
    Ok(svg.replace(" xmlns=\"http://www.w3.org/2000/svg\"", ""))
}

fn html_table(table: &Table) -> String {
    let Value::Array(rows) = table.json() else { return String::new() };
    let cell = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => escaped(text),
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
