//! Throughput against sessions as text, both axes logarithmic.

use crate::output::short;
use std::fmt::Write;

const WIDTH: usize = 64;
const HEIGHT: usize = 16;

/// A line of the plot: its name and its points, by rising x. Points that are not above 0 are left out.
#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

struct Axis {
    low: f64,
    high: f64,
    cells: usize,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64> + Clone, cells: usize) -> Self {
        let low = values.clone().fold(f64::INFINITY, f64::min).ln();
        let high = values.fold(0.0, f64::max).ln();
        // Half a power of two at least, or a flat line would be noise blown up.
        let room = (0.35 - (high - low)).max(0.0) / 2.0;
        Self { low: low - room, high: high + room, cells }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped to the cells
    fn cell(&self, value: f64) -> usize {
        let share = ((value.ln() - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        (share * (self.cells - 1) as f64).round() as usize
    }

    fn value(&self, cell: usize) -> f64 {
        (self.low + (self.high - self.low) * cell as f64 / (self.cells - 1) as f64).exp()
    }
}

/// The letter of a line.
fn letter(index: usize) -> char {
    char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[index % 52])
}

/// Throughput against sessions, with a legend beside it. `=` is where several lines meet.
pub fn plot(title: &str, series: &[Series]) -> String {
    plot_against(title, "sessions", series)
}

/// The same against something else.
pub fn plot_against(title: &str, x: &str, series: &[Series]) -> String {
    let good = |series: &Series| series.points.iter().copied().filter(|(x, y)| *x > 0.0 && *y > 0.0).collect();
    let lines: Vec<Vec<(f64, f64)>> = series.iter().map(good).collect();
    let all = || lines.iter().flatten().copied();
    if all().next().is_none() {
        return format!("{title}\n(nothing to plot)");
    }
    let x_axis = Axis::new(all().map(|(x, _)| x), WIDTH);
    let y_axis = Axis::new(all().map(|(_, y)| y), HEIGHT);
    let mut grid = vec![[' '; WIDTH]; HEIGHT];
    for points in &lines {
        for pair in points.windows(2) {
            connect(&mut grid, &x_axis, &y_axis, pair[0], pair[1]);
        }
    }
    for (index, points) in lines.iter().enumerate() {
        for (x, y) in points {
            let cell = &mut grid[y_axis.cell(*y)][x_axis.cell(*x)];
            *cell = if matches!(*cell, ' ' | '·') { letter(index) } else { '=' };
        }
    }
    let mut text = vec![title.to_owned()];
    for (row, cells) in grid.iter().enumerate().rev() {
        let label = if row % 5 == 0 { short(y_axis.value(row)) } else { String::new() };
        let legend = series
            .get(HEIGHT - 1 - row)
            .map_or_else(String::new, |line| format!("  {} {}", letter(HEIGHT - 1 - row), line.name));
        let cells: String = cells.iter().collect();
        text.push(format!("{label:>9} |{cells}{legend}").trim_end().to_owned());
    }
    text.push(format!("{:>9} +{}", "", "-".repeat(WIDTH)));
    text.push(ticks(&x_axis, x, all().map(|(x, _)| x)));
    text.join("\n")
}

fn connect(grid: &mut [[char; WIDTH]], x_axis: &Axis, y_axis: &Axis, from: (f64, f64), to: (f64, f64)) {
    let (first, last) = (x_axis.cell(from.0), x_axis.cell(to.0));
    let row_of = |column: usize| {
        let share = (column - first) as f64 / (last - first) as f64;
        let y = (from.1.ln() * (1.0 - share) + to.1.ln() * share).exp();
        y_axis.cell(y)
    };
    for (row, column) in (first + 1..last).map(|column| (row_of(column), column)) {
        if grid[row][column] == ' ' {
            grid[row][column] = '·';
        }
    }
}

/// The values of x under their columns, as far as there is room.
fn ticks(axis: &Axis, name: &str, values: impl Iterator<Item = f64>) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let mut line = " ".repeat(11);
    for value in values {
        let column = 11 + axis.cell(value);
        if column >= line.len() {
            line.push_str(&" ".repeat(column - line.len()));
            let _ = write!(line, "{value:.0} ");
        }
    }
    format!("{}  {name}", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, points: &[(f64, f64)]) -> Series {
        Series { name: name.to_owned(), points: points.to_vec() }
    }

    #[test]
    fn the_best_line_is_on_top() {
        let text =
            plot("t", &[line("low", &[(1.0, 10.0), (64.0, 10.0)]), line("high", &[(1.0, 1000.0), (64.0, 900.0)])]);
        let row = |c: char| text.lines().position(|line| line.chars().skip(11).take(WIDTH).any(|cell| cell == c));
        assert!(row('B') < row('A'), "{text}");
        assert!(text.contains("A low") && text.contains("B high") && text.contains("64  sessions"), "{text}");
    }

    #[test]
    fn one_point_and_none_are_no_trouble() {
        assert!(plot("t", &[line("one", &[(1.0, 5.0)])]).contains("A one"));
        assert!(plot("t", &[line("none", &[(1.0, 0.0)])]).contains("nothing to plot"));
    }
}
