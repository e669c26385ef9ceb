//! A report as one file of HTML: pictures are in it as SVG, nothing is loaded and no script runs.

use super::course::{Course, charts};
use super::page::{Bar, FINDINGS, Page, Part, Picture, Share, pct};
use crate::chart::{self, Chart, Form, Series};
use crate::experiment::svg::compact;
use crate::output::markup;
use crate::recording::findings::Finding;
use miette::Report as Failure;
use std::fmt::Write;

/// Light and dark, on a screen and on A4.
const STYLE: &str = include_str!("html.css");
/// Parts of a bar that have an entry in its legend; the others are one.
const SHARES: usize = 9;
/// Narrower parts of a bar, in %, have no number in them.
const NARROWEST_NAMED: f64 = 6.0;
/// Width and height of a chart.
const CHART: (u32, u32) = (480, 230);
/// Classes of what takes time, in the order of a bar. Their places are those of the colours in `html.css`.
const CLASSES: [&str; 4] = ["Concurrency", "Holding", "Event", "Other"];

impl Page {
    pub fn html(&self) -> Result<String, Failure> {
        let title = markup(&self.title);
        // Even what would look like a script to a browser would not run.
        let policy = "default-src 'none'; style-src 'unsafe-inline'";
        let mut text = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n"
        );
        for line in &self.head {
            let _ = writeln!(text, "<p>{}</p>", markup(line));
        }
        text += "</header>\n";
        for part in &self.parts {
            text += &part.html()?;
        }
        if let Some(next) = &self.next {
            let _ = writeln!(text, "<p class=\"next\">Next: <code>{}</code></p>", markup(next));
        }
        Ok(text + "</body>\n</html>\n")
    }
}

impl Part {
    fn html(&self) -> Result<String, Failure> {
        Ok(match self {
            Self::Alarm(text) => format!("<pre class=\"alarm\">{}</pre>\n", markup(text)),
            Self::Line(text) => format!("<p>{}</p>\n", markup(text)),
            Self::Findings { found, nothing } => {
                let list = if found.is_empty() {
                    format!("<p>{}</p>\n", markup(nothing))
                } else {
                    format!("<ol>\n{}</ol>\n", found.iter().map(Finding::html).collect::<String>())
                };
                format!("<h2>{FINDINGS}</h2>\n{list}")
            }
            Self::Section { title, picture, table, nothing } => {
                let rows = if table.is_empty() {
                    format!("<p>{}</p>\n", markup(nothing))
                } else {
                    format!("<div class=\"table\">\n{}</div>\n", table.html())
                };
                format!("<h2>{}</h2>\n{}{rows}", markup(title), picture.html()?)
            }
        })
    }
}

impl Picture {
    fn html(&self) -> Result<String, Failure> {
        match self {
            Self::None => Ok(String::new()),
            Self::Bars(bars) => Ok(bars.iter().map(Bar::html).collect()),
            Self::Charts(courses) => drawn(courses),
        }
    }
}

fn drawn(courses: &[Course]) -> Result<String, Failure> {
    let charts = charts(courses);
    if charts.is_empty() {
        return Ok(String::new());
    }
    let mut text = "<div class=\"charts\">\n".to_owned();
    for chart in charts {
        let _ = write!(text, "<div>\n{}{}</div>\n", compact(&chart::inline(&chart, CHART)?), legend(&chart));
    }
    Ok(text + "</div>\n")
}

/// The names of the series of a chart, where they have any.
fn legend(chart: &Chart) -> String {
    let named: Vec<&Series> = chart.series.iter().filter(|series| !series.name.is_empty()).collect();
    let entry = |series: &&Series| {
        let (red, green, blue) = chart::rgb(series.colour);
        let dashes = if series.form == Form::Dashes { " stroke-dasharray=\"6 4\"" } else { "" };
        format!(
            "<li><svg width=\"22\" height=\"8\"><path d=\"M0,5h22\" stroke=\"rgb({red},{green},{blue})\" stroke-width=\"2\"{dashes}/></svg> {}</li>\n",
            markup(&series.name)
        )
    };
    if named.is_empty() {
        return String::new();
    }
    format!("<ul class=\"legend\">\n{}</ul>\n", named.iter().map(entry).collect::<String>())
}

impl Finding {
    fn html(&self) -> String {
        let evidence: String = self.found.evidence.iter().map(|line| format!("<li>{}</li>\n", markup(line))).collect();
        format!(
            "<li><strong>{}</strong> <span class=\"share\">{}</span>\n<ul>\n{evidence}</ul>\n\
             <p>type: <code>{}</code></p></li>\n",
            markup(&self.found.sentence),
            markup(&self.stake()),
            markup(&self.found.command),
        )
    }
}

impl Bar {
    /// The parts in the order of their classes, the largest first; what is left after the first ones is one part.
    fn drawn(&self) -> Vec<(usize, String, f64)> {
        let class = |share: &Share| CLASSES.iter().position(|class| *class == share.class).unwrap_or(CLASSES.len() - 1);
        let mut shares: Vec<&Share> = self.shares.iter().collect();
        shares.sort_by(|a, b| b.pct.total_cmp(&a.pct));
        let rest = shares.split_off(shares.len().min(SHARES));
        let mut drawn: Vec<_> = shares.iter().map(|share| (class(share), share.name.clone(), share.pct)).collect();
        if !rest.is_empty() {
            let sum = rest.iter().fold(0.0, |sum, share| sum + share.pct);
            drawn.push((CLASSES.len() - 1, format!("{} others", rest.len()), sum));
        }
        drawn.sort_by_key(|(class, ..)| *class);
        drawn
    }

    fn html(&self) -> String {
        let (mut boxes, mut legend, mut left) = (String::new(), String::new(), 0.0);
        let drawn = self.drawn();
        for (at, (class, name, share)) in drawn.iter().enumerate() {
            // Neighbours of one class differ.
            let shade = drawn[..at].iter().filter(|(of, ..)| of == class).count() % 3;
            let (name, shown) = (markup(name), pct(*share));
            let _ = writeln!(
                boxes,
                "<rect class=\"c{class} s{shade}\" x=\"{left:.3}%\" width=\"{share:.3}%\" height=\"28\">\
                 <title>{name}: {shown}</title></rect>"
            );
            if *share >= NARROWEST_NAMED {
                let _ = writeln!(boxes, "<text x=\"{:.3}%\" y=\"19\">{shown}</text>", left + share / 2.0);
            }
            let _ = writeln!(
                legend,
                "<li><svg width=\"10\" height=\"10\"><rect class=\"c{class} s{shade}\" width=\"10\" height=\"10\"/></svg> \
                 {name} <b>{shown}</b></li>"
            );
            left += share;
        }
        let name = if self.name.is_empty() { String::new() } else { format!("<h3>{}</h3>\n", markup(self.name)) };
        format!(
            "<figure>\n{name}<svg class=\"bar\" width=\"100%\" height=\"28\" role=\"img\">\n{boxes}</svg>\n\
             <ul class=\"legend\">\n{legend}</ul>\n</figure>\n"
        )
    }
}
