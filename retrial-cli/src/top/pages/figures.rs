//! Every figure that is known of a mutex or a session.

use super::{Line, head, plain};
use crate::duration;
use crate::output::short;
use crate::top::grid::{width, wrap};
use retrial::views::Counter;
use retrial_model::{Measure, Profile};

/// Width that one column of figures needs, and of its part before the descriptions.
const COLUMN: u16 = 90;
const NAMED: usize = 29;

/// Adds a section with them, two columns of them where there is room.
pub fn figures(lines: &mut Vec<Line>, profile: &Profile, room: u16) {
    lines.push(Line::default());
    lines.push(head(&format!("Figures of {} s", short(profile.time_s))));
    let count = usize::from(room / COLUMN).max(1);
    let each = room / count as u16;
    let texts = texts(profile, each.saturating_sub(2));
    let height = texts.iter().map(Vec::len).sum::<usize>().div_ceil(count);
    // A column is full once it is as high as that: a figure stays in one column.
    let mut columns: Vec<Vec<String>> = vec![Vec::new()];
    for text in texts {
        if columns.last().is_some_and(|column| column.len() >= height) {
            columns.push(Vec::new());
        }
        if let Some(last) = columns.last_mut() {
            last.extend(text);
        }
    }
    let rows = columns.iter().map(Vec::len).max().unwrap_or(0);
    for row in 0..rows {
        let mut line = String::new();
        for (column, x) in columns.iter().zip((0..).step_by(usize::from(each))) {
            let Some(text) = column.get(row) else { continue };
            line += &" ".repeat(x - usize::from(width(&line)).min(x));
            line += text;
        }
        lines.push(plain(line));
    }
}

/// What is known: value, symbol and description, each in as many lines as it needs.
fn texts(profile: &Profile, room: u16) -> Vec<Vec<String>> {
    let text = |value: &str, name: &str, about: &str| {
        wrap(&format!("{value:>16}  {name:9}  {about}"), room, &" ".repeat(NAMED))
    };
    let gets = profile.gets.map(|gets| text(&format!("{gets}    "), "gets", "Gets in this time."));
    let measures = Measure::ALL.iter().filter_map(|measure| {
        let value = measure.of(profile)?;
        let value = match measure.unit() {
            "s" => time(value),
            unit => format!("{} {unit:3}", short(value)),
        };
        Some(text(&value, measure.symbol(), measure.description()))
    });
    // The longest wait is among the measures.
    let counters = Counter::ALL.iter().filter(|counter| !matches!(counter, Counter::MaxNs)).filter_map(|counter| {
        let value = profile.figures.get(*counter);
        let (name, about) = (Counter::NAMES[*counter as usize], Counter::DESCRIPTIONS[*counter as usize]);
        (value > 0).then(|| match name.strip_suffix("_ns") {
            Some(name) => text(&time(value as f64 / 1e9), name, about),
            None => text(&format!("{value}    "), name, about),
        })
    });
    gets.into_iter().chain(measures).chain(counters).collect()
}

/// A time with its unit, which takes as much room as that of a rate.
fn time(value_s: f64) -> String {
    let text = duration::seconds(value_s);
    let (value, unit) = text.split_once(' ').unwrap_or((&text, ""));
    format!("{value} {unit:3}")
}
