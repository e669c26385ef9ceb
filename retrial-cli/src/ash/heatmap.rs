//! Samples by time: how many sessions held and waited in each part of a period.

use super::question::Group;
use crate::clock::time;
use crate::duration;
use crate::lengths::BLOCKS;
use crate::output::{Column, Table, column, measure, short};
use crate::recording::history;
use retrial_model::Measure;
use serde_json::Value;
use std::ops::Range;
use std::time::Duration;

/// Most parts of a period, and fewest rounds of samples in each: fewer say little.
const CELLS: u64 = 60;
const ROUNDS: u64 = 4;

/// The parts of a period, by the real-time clock in ns.
pub struct Axis {
    from_ns: u64,
    /// Length of a part.
    pub cell_ns: u64,
    /// How long each part was sampled, in s.
    sampled_s: Vec<f64>,
}

impl Axis {
    /// Of a period that was sampled in these times, so many in all.
    pub fn new(period_ns: Range<u64>, sampled: &[Range<u64>], rounds: u64) -> Self {
        let sampled_ns: u64 = sampled.iter().map(|part| part.end.saturating_sub(part.start)).sum();
        let length_ns = period_ns.end.saturating_sub(period_ns.start).max(1);
        let round_ns = sampled_ns / rounds.max(1);
        let cell_ns = length_ns.div_ceil(CELLS).max(ROUNDS * round_ns);
        // The last one has what is left over: alone, a moment would be a cell of its own.
        let cells = usize::try_from(length_ns / cell_ns).unwrap_or(1).max(1);
        let mut axis = Self { from_ns: period_ns.start, cell_ns, sampled_s: vec![0.0; cells] };
        for part in sampled {
            let length_s = part.end.saturating_sub(part.start) as f64 / 1e9;
            for (cell, share) in axis.shares(part) {
                axis.sampled_s[cell] += share * length_s;
            }
        }
        axis
    }

    fn begin_ns(&self, cell: usize) -> u64 {
        self.from_ns + cell as u64 * self.cell_ns
    }

    fn cells(&self) -> Range<usize> {
        0..self.sampled_s.len()
    }

    /// The cells that a time lies in, each with its share of it. What is outside of the period is in the
    /// first or the last cell.
    fn shares(&self, time_ns: &Range<u64>) -> Vec<(usize, f64)> {
        let last_ns = self.begin_ns(self.cells().end) - 1;
        let cell = |at_ns: u64| {
            let cell = (at_ns.clamp(self.from_ns, last_ns) - self.from_ns) / self.cell_ns;
            usize::try_from(cell).unwrap_or(self.cells().end - 1)
        };
        let (begin, end) = (time_ns.start, time_ns.end.max(time_ns.start + 1));
        let (first, last) = (cell(begin), cell(end - 1));
        let share = |at: usize| {
            let from_ns = if at == first { begin } else { self.begin_ns(at) };
            let to_ns = if at == last { end } else { self.begin_ns(at + 1) };
            (at, (to_ns - from_ns) as f64 / (end - begin) as f64)
        };
        (first..=last).map(share).collect()
    }
}

/// Time of sessions that were in one state, and between which moments it was.
pub struct Stretch {
    pub between_ns: Range<u64>,
    pub holds: bool,
    pub time_s: f64,
}

/// A group over the period.
struct Row {
    all: Group,
    cells: Vec<Group>,
}

/// Groups over the period, those with most time first.
pub struct Heatmap {
    axis: Axis,
    rows: Vec<Row>,
}

impl Heatmap {
    /// Of the groups that are shown and the rest of them, each with its stretches of time.
    pub fn new(axis: Axis, groups: Vec<(Group, Vec<Stretch>)>, top: usize) -> Self {
        let row = |(all, stretches): (Group, Vec<Stretch>)| {
            let mut times = vec![[0.0; 2]; axis.cells().end];
            for stretch in stretches {
                for (cell, share) in axis.shares(&stretch.between_ns) {
                    times[cell][usize::from(!stretch.holds)] += share * stretch.time_s;
                }
            }
            let cell = |(times, sampled_s): ([f64; 2], &f64)| Group::new(Vec::new(), 0, times, *sampled_s);
            Row { cells: times.into_iter().zip(&axis.sampled_s).map(cell).collect(), all }
        };
        let mut rows: Vec<Row> = groups.into_iter().map(row).collect();
        rows.sort_by(|a, b| b.all.time_s().total_cmp(&a.all.time_s()));
        if rows.len() > top + 1 {
            let rest = rows.split_off(top);
            let sum = |group: &dyn Fn(&Row) -> Group| Group::sum(&rest.iter().map(group).collect::<Vec<_>>());
            let cells = axis.cells().map(|cell| sum(&|row: &Row| row.cells[cell].clone())).collect();
            rows.push(Row { all: sum(&|row: &Row| row.all.clone()), cells });
        }
        Self { axis, rows }
    }

    /// Most sessions in a cell.
    fn most(&self) -> f64 {
        let cells = self.rows.iter().flat_map(|row| &row.cells);
        cells.filter_map(|cell| cell.measure(Measure::Active)).fold(0.0, f64::max)
    }

    /// What the cells mean.
    pub fn legend(&self) -> String {
        format!(
            "each cell is {}, {} is {} sessions, · none, blank not sampled",
            duration::text(Duration::from_nanos(self.axis.cell_ns)),
            BLOCKS[BLOCKS.len() - 1],
            short(self.most())
        )
    }

    /// For people: a line for each group.
    pub fn lines(&self, by: &[&'static history::Column], total_s: f64) -> Table {
        let most = self.most();
        let shade = |cell: &Group| match cell.measure(Measure::Active) {
            None => ' ',
            Some(sessions) if sessions <= 0.0 => '·',
            Some(sessions) => {
                let step = (sessions / most * BLOCKS.len() as f64).ceil().clamp(1.0, BLOCKS.len() as f64);
                BLOCKS[crate::output::whole(step) as usize - 1]
            }
        };
        let mut columns: Vec<Column<'_, Row>> = Vec::new();
        for (position, by) in by.iter().enumerate() {
            columns.push(column(by.short, move |row: &Row| row.all.text(position)));
        }
        columns.push(column("over_time", move |row: &Row| row.cells.iter().map(shade).collect::<String>()));
        columns.push(measure(Measure::Active, "", |row: &Row, measure| row.all.measure(measure)).titled("sessions"));
        columns.push(column("share_pct", move |row: &Row| 100.0 * row.all.time_s() / total_s).titled("%"));
        Table::of(&columns, &self.rows)
    }

    /// For programs: a row for each cell of each group.
    pub fn cells(&self, by: &[&'static history::Column]) -> Table {
        type Cell<'h> = (usize, &'h Row);
        let cell_s = self.axis.cell_ns as f64 / 1e9;
        let mut columns: Vec<Column<'_, Cell<'_>>> =
            vec![column("time", |cell: &Cell<'_>| time(self.axis.begin_ns(cell.0)))];
        columns.push(column("cell_s", move |_: &Cell<'_>| cell_s));
        columns.push(column("sampled_s", |cell: &Cell<'_>| self.axis.sampled_s[cell.0]));
        for (position, by) in by.iter().enumerate() {
            let value = move |cell: &Cell<'_>| cell.1.all.values.get(position).cloned().unwrap_or(Value::Null);
            columns.push(column(by.short, value));
        }
        columns.push(column("groups", |cell: &Cell<'_>| cell.1.all.groups));
        let of = |cell: &Cell<'_>, measure| cell.1.cells[cell.0].measure(measure);
        columns.push(measure(Measure::Active, "", of).named("active_sessions"));
        let cells = self.axis.cells().flat_map(|cell| self.rows.iter().map(move |row| (cell, row)));
        Table::of(&columns, cells.collect::<Vec<Cell<'_>>>())
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // a period that was sampled once
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn heatmap(top: usize) -> Heatmap {
        // A minute, of which the second half was sampled.
        let axis = Axis::new(0..60 * S, &[30 * S..60 * S], 3000);
        let group = |name: &str, holds, between_ns: Range<u64>, time_s| {
            let times = if holds { [time_s, 0.0] } else { [0.0, time_s] };
            (Group::new(vec![name.into()], 1, times, 30.0), vec![Stretch { between_ns, holds, time_s }])
        };
        let groups = vec![
            group("one", true, 30 * S..60 * S, 30.0),
            // Two sessions for two and a half seconds.
            group("two", false, 40 * S..42 * S + S / 2, 5.0),
            group("three", false, 59 * S..61 * S, 1.0),
        ];
        Heatmap::new(axis, groups, top)
    }

    fn active(heatmap: &Heatmap, row: usize, cell: usize) -> Option<f64> {
        heatmap.rows[row].cells[cell].measure(Measure::Active)
    }

    #[test]
    fn no_cell_is_a_moment_that_was_left_over() {
        let axis = Axis::new(0..S + 3, &[0..S + 3], 100);
        let lengths_s = axis.sampled_s.clone();
        assert_eq!((axis.cell_ns, lengths_s.len()), (S / 25, 25));
        assert!(lengths_s.iter().all(|length_s| *length_s > 0.039), "{lengths_s:?}");
    }

    #[test]
    fn time_is_in_the_cells_that_it_lies_in() {
        let heatmap = heatmap(5);
        assert_eq!(heatmap.axis.cell_ns, S);
        assert_eq!(
            (active(&heatmap, 0, 29), active(&heatmap, 0, 30), active(&heatmap, 0, 59)),
            (None, Some(1.0), Some(1.0))
        );
        let two: Vec<_> = (39..44).map(|cell| active(&heatmap, 1, cell).unwrap()).collect();
        assert_eq!(two, [0.0, 2.0, 2.0, 1.0, 0.0]);
        // What lasts beyond the end is in the last cell, so that the parts add up.
        assert_eq!(active(&heatmap, 2, 59), Some(1.0));
        for row in &heatmap.rows {
            assert!((row.cells.iter().map(Group::time_s).sum::<f64>() - row.all.time_s()).abs() < 1e-9);
        }
    }

    #[test]
    fn there_are_some_rounds_in_each_cell() {
        let cells = |rounds| Axis::new(0..60 * S, &[0..60 * S], rounds).cells().end;
        assert_eq!([1, 4, 40, 240, 1_000_000].map(cells), [1, 1, 10, 60, 60]);
        assert_eq!(Axis::new(5..5, &[], 0).cells().end, 1);
    }

    #[test]
    fn the_rest_is_one_line_and_shades_are_of_the_fullest_cell() {
        let heatmap = heatmap(1);
        assert_eq!((heatmap.rows.len(), heatmap.rows[1].all.groups), (2, 2));
        assert!((active(&heatmap, 1, 40).unwrap() - 2.0).abs() < 1e-9);
        let by = [&history::COLUMNS[3]];
        let text = heatmap.lines(&by, 36.0).text();
        let lines: Vec<&str> = text.lines().collect();
        let blank = " ".repeat(30);
        assert!(lines[1].contains(&format!("{blank}{}", "▄".repeat(30))), "{text}");
        assert!(lines[2].contains(&format!("{blank}··········██▄················▄")), "{text}");
        assert!(lines[2].starts_with("2 others"), "{text}");
    }
}
