//! How many waits were how long, for people: a row of blocks, bars, and a picture.

use crate::duration;
use crate::output::{Table, column, markup, measure, short};
use retrial::views::Histogram;
use retrial_model::{Measure, Profile};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// Heights of a block, from the least to the most.
pub const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Width of the longest bar, in characters.
const BAR: usize = 30;
/// Width and height of a picture, without its labels.
const PICTURE: (f64, f64) = (220.0, 60.0);

/// Buckets from the first to the last that count something, those between without a wait too: begin and end
/// in us, and the count.
fn range(lengths: &Histogram) -> Vec<(u64, Option<u64>, u64)> {
    let filled = |i: &usize| lengths.0[*i] > 0;
    let (Some(first), Some(last)) = ((0..lengths.0.len()).find(filled), (0..lengths.0.len()).rfind(filled)) else {
        return Vec::new();
    };
    let begin_us = |i: usize| i.checked_sub(1).and_then(Histogram::end_us).unwrap_or(0);
    (first..=last).map(|i| (begin_us(i), Histogram::end_us(i), lengths.0[i])).collect()
}

/// A length for people: `4.00 us`, `1.02 ms`.
fn time(us: u64) -> String {
    if us == 0 { "0".to_owned() } else { duration::text(Duration::from_micros(us)) }
}

/// The same of an end, which the last bucket has not.
fn end(us: Option<u64>) -> String {
    us.map_or_else(|| "…".to_owned(), time)
}

fn most(range: &[(u64, Option<u64>, u64)]) -> u64 {
    range.iter().map(|(.., count)| *count).max().unwrap_or(0)
}

/// A block for each bucket, as high as its count, between the begin of the first and the end of the last.
pub fn shape(lengths: &Histogram) -> String {
    let range = range(lengths);
    let (Some(first), Some(last), most) = (range.first(), range.last(), most(&range)) else { return String::new() };
    let block = |count: u64| match count {
        0 => '·',
        // Rounded up: what is there is seen.
        _ => BLOCKS[(u128::from(count) * BLOCKS.len() as u128).div_ceil(most.into()) as usize - 1],
    };
    let blocks: String = range.iter().map(|(.., count)| block(*count)).collect();
    format!("{} {blocks} {}", time(first.0), end(last.1))
}

/// A line for each bucket: its ends, a bar, the count and its share.
pub fn bars(lengths: &Histogram) -> Vec<String> {
    let range = range(lengths);
    let (most, total) = (most(&range), lengths.total());
    let line = |(begin_us, end_us, count): &(u64, Option<u64>, u64)| {
        let width = (u128::from(*count) * BAR as u128).div_ceil(most.into()) as usize;
        let pct = short(100.0 * *count as f64 / total as f64);
        let bar = "█".repeat(width);
        format!("{:>9} to {:<9} {bar:BAR$} {count:>9} {pct:>6} %", time(*begin_us), end(*end_us))
    };
    range.iter().map(line).collect()
}

/// What is waited for, and what was counted of it.
type Waited = (String, Profile);

/// How long the waits of objects were: quantiles, and the shape.
pub fn table(rows: &[Waited]) -> Table {
    let of = |row: &Waited, measure: Measure| measure.of(&row.1);
    let ms = |which, name, title| measure(which, "ms", of).named(name).titled(title);
    let columns = [
        column("mutex", |row: &Waited| row.0.clone()).titled("of"),
        column("ended", |row: &Waited| row.1.figures.lengths.total()).titled("waits"),
        ms(Measure::RegisteredMean, "avg_wait_ms", "avg (ms)"),
        ms(Measure::RegisteredP50, "p50_wait_ms", "p50"),
        ms(Measure::RegisteredP90, "p90_wait_ms", "p90"),
        ms(Measure::RegisteredP99, "p99_wait_ms", "p99"),
        ms(Measure::RegisteredMax, "max_wait_ms", "max"),
        column("shape", |row: &Waited| shape(&row.1.figures.lengths)).titled("how many were how long").for_people(),
        column("histogram", |row: &Waited| histogram(&row.1.figures.lengths)).for_programs(),
    ];
    Table::of(&columns, rows)
}

/// Ends of the buckets in us and counts.
fn histogram(lengths: &Histogram) -> Value {
    lengths.filled().map(|(_, end_us, count)| json!([end_us, count])).collect()
}

/// The same as a small picture with a heading.
pub fn picture(name: &str, lengths: &Histogram) -> String {
    let range = range(lengths);
    let (Some(first), Some(last), most) = (range.first(), range.last(), most(&range)) else { return String::new() };
    let (width, height) = PICTURE;
    let each = width / range.len() as f64;
    let mut bars = String::new();
    for (i, (begin_us, end_us, count)) in range.iter().enumerate().filter(|(_, (.., count))| *count > 0) {
        let high = (height * *count as f64 / most as f64).max(1.0);
        let _ = writeln!(
            bars,
            "<rect class=\"c0\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{high:.1}\"><title>{} to {}: {count}</title></rect>",
            i as f64 * each,
            height - high,
            each - 1.0,
            time(*begin_us),
            end(*end_us),
        );
    }
    format!(
        "<div>\n<h3>{}</h3>\n<svg width=\"{width}\" height=\"{height}\" role=\"img\">\n{bars}</svg>\n\
         <p class=\"ends\">{} <span>{}</span></p>\n</div>\n",
        markup(name),
        time(first.0),
        end(last.1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_has_a_block_for_each_bucket_and_what_is_there_is_seen() {
        let mut lengths = Histogram::default();
        assert_eq!((shape(&lengths), bars(&lengths)), (String::new(), Vec::new()));
        lengths.count(5_000, 800);
        lengths.count(17_000, 1);
        lengths.count(33_000, 400);
        assert_eq!(shape(&lengths), "4.00 us █·▁▄ 64.0 us");
        let lines = bars(&lengths);
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0], format!("  4.00 us to 8.00 us   {}       800   66.6 %", "█".repeat(30)));
        lengths.count(u64::MAX, u64::MAX / 2);
        assert!(shape(&lengths).ends_with(" …"), "{}", shape(&lengths));
    }
}
