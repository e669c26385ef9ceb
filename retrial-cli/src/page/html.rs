//! A report as one file of HTML: pictures are in it as SVG, nothing is loaded and no script runs.

use super::{Bar, CLASSES, FINDINGS, Page, Part, Picture, Share, pct};
use crate::chart::{self, Chart, Form, Series};
use crate::experiment::svg::compact;
use crate::lengths;
use crate::output::{counted, markup};
use crate::recording::findings::Finding;
use crate::recording::report::{Course, charts};
use miette::{Report as Failure, miette};
use std::fmt::Write;
use std::path::Path;

/// Light and dark, on a screen and on A4.
const STYLE: &str = include_str!("html.css");
/// Parts of a bar that have an entry in its legend; the others are one.
const SHARES: usize = 9;
/// Narrower parts of a bar, in %, have no number in them.
const NARROWEST_NAMED: f64 = 6.0;
/// Width and height of a chart.
const CHART: (u32, u32) = (480, 230);

/// That a file is meant to be a page: a recording or a program in its place is not to be written over.
pub fn check_name(file: &Path, example: &'static str) -> Result<(), Failure> {
    if file.extension().is_some_and(|end| end.eq_ignore_ascii_case("html") || end.eq_ignore_ascii_case("htm")) {
        return Ok(());
    }
    Err(miette!(
        code = "retrial::report::html",
        help = example,
        "--html {}, expected a name that ends in .html",
        file.display()
    ))
}

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
            Self::Lines(text) => format!("<p class=\"lines\">{}</p>\n", markup(text)),
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
            Self::Bars(bars) => {
                let order = order(bars);
                Ok(bars.iter().map(|bar| bar.html(&order)).collect())
            }
            Self::Charts(courses) => drawn(courses),
            Self::Lengths(waited) => {
                let each = waited.iter().map(|(name, profile)| lengths::picture(name, &profile.figures.lengths));
                let all: String = each.collect();
                Ok(if all.is_empty() { all } else { format!("<div class=\"lengths\">\n{all}</div>\n") })
            }
            Self::Flames(graphs) => Ok(format!("<figure>\n{}</figure>\n", graphs.join("</figure>\n<figure>\n"))),
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
        let evidence = self.found.evidence.iter().fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "<li>{}</li>", markup(line));
            text
        });
        format!(
            "<li><strong>{}</strong> <span class=\"share\">{}</span>\n<ul>\n{evidence}</ul>\n\
             <p>type: <code>{}</code></p></li>\n",
            markup(&self.found.sentence),
            markup(&self.stake()),
            markup(&self.found.command),
        )
    }
}

/// The names in the bars, those of most time first.
fn order(bars: &[Bar]) -> Vec<&str> {
    let mut sums: Vec<(&str, f64)> = Vec::new();
    for share in bars.iter().flat_map(|bar| &bar.shares) {
        match sums.iter_mut().find(|(name, _)| *name == share.name) {
            Some((_, sum)) => *sum += share.pct,
            None => sums.push((&share.name, share.pct)),
        }
    }
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    sums.into_iter().map(|(name, _)| name).collect()
}

impl Bar {
    /// The parts in the order of their classes, whose places are those of the colours in `html.css`, then in
    /// this one; what is left after the first ones is one part.
    fn drawn(&self, order: &[&str]) -> Vec<(usize, String, f64)> {
        let class = |share: &Share| CLASSES.iter().position(|class| *class == share.class).unwrap_or(CLASSES.len() - 1);
        let place = |share: &Share| order.iter().position(|name| *name == share.name).unwrap_or(order.len());
        let (first, rest): (Vec<&Share>, Vec<&Share>) = self.shares.iter().partition(|share| place(share) < SHARES);
        let mut drawn: Vec<_> = first.iter().map(|share| (class(share), place(share), share)).collect();
        drawn.sort_by_key(|(class, place, _)| (*class, *place));
        let mut drawn: Vec<_> =
            drawn.into_iter().map(|(class, _, share)| (class, share.name.clone(), share.pct)).collect();
        if !rest.is_empty() {
            let sum = rest.iter().fold(0.0, |sum, share| sum + share.pct);
            drawn.push((CLASSES.len() - 1, counted(rest.len() as u64, "other", "others"), sum));
        }
        drawn
    }

    fn html(&self, order: &[&str]) -> String {
        let (mut boxes, mut legend, mut left) = (String::new(), String::new(), 0.0);
        let drawn = self.drawn(order);
        for (class, name, share) in &drawn {
            // The same has the same shade in each bar.
            let shade = order.iter().position(|of| of == name).unwrap_or(0) % 3;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_part_of_its_own_is_among_the_others() {
        let share = |at: usize| Share {
            name: format!("event {at}"),
            class: if at == 0 { "Holding" } else { "Concurrency" },
            pct: if at == 0 { 78.0 } else { 2.0 },
        };
        let bars = [Bar { name: "", shares: (0..12).map(share).collect() }];
        let drawn = bars[0].drawn(&order(&bars));
        assert_eq!(drawn.len(), SHARES + 1);
        assert_eq!(drawn[SHARES - 1], (1, "event 0".to_owned(), 78.0));
        assert_eq!(drawn[SHARES], (3, "3 others".to_owned(), 6.0));
        let sum = drawn.iter().fold(0.0, |sum, (.., share)| sum + share);
        assert!((sum - 100.0).abs() < 1e-9, "{drawn:?}");
    }
}
