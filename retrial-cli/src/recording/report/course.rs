//! How the load of a period went from snapshot to snapshot.

use super::Report;
use crate::chart::{Axis, Chart, Form, Legend, Point, Scale, Series};
use crate::clock;
use crate::page::CLASSES;
use retrial_model::Measure;

/// Maximum number of parts that a period is drawn in.
pub const PARTS: usize = 60;

/// A part of a period: its ends by the real-time clock, and the figures that are drawn.
#[derive(Clone)]
pub struct Step {
    ends_ns: [u64; 2],
    figures: Vec<Option<f64>>,
}

/// The parts of a period, oldest first.
pub struct Course {
    /// In the legend; empty where there is one course.
    pub name: &'static str,
    pub steps: Vec<Step>,
}

/// What sessions of the first classes are doing. The chart shows how many do so, on the mean.
const DOING: [&str; 3] = ["waiting for mutexes", "holding", "waiting for events"];
const OTHERS: [(&str, Measure); 2] = [("gets per second", Measure::Throughput), ("miss ratio ρ", Measure::MissRatio)];

impl Step {
    pub fn of(report: &Report) -> Self {
        let (period, time) = (report.period(), report.time());
        let total = period.total();
        let of_class = |class: &&str| {
            let shares = time.shares().filter(|share| share.class == *class);
            Some(shares.fold(0.0, |sum, share| sum + share.pct) / 100.0 * time.all_s / period.time_s())
        };
        let mut figures: Vec<Option<f64>> = CLASSES[..DOING.len()].iter().map(of_class).collect();
        figures.extend(OTHERS.iter().map(|(_, measure)| measure.of(&total)));
        figures.push(period.busy().map(|busy| 100.0 * busy));
        let to_ns = report.span.to.at.real_ns;
        Self { ends_ns: [report.begin_ns().unwrap_or(to_ns), to_ns], figures }
    }
}

/// Charts of the load of one period, or of several that begin together.
pub fn charts(courses: &[Course]) -> Vec<Chart> {
    let titles = ["sessions"].into_iter().chain(OTHERS.iter().map(|(name, _)| *name)).chain(["processors busy (%)"]);
    let figures = [0..DOING.len(), 3..4, 4..5, 5..6];
    let longest_ns = courses.iter().map(Course::length_ns).max().unwrap_or(0);
    let (unit, unit_ns) = unit(longest_ns);
    let name = match courses {
        // The time of the day, without the date.
        [course] => format!("{unit} after {}", &clock::time(course.begin_ns())[11..19]),
        _ => format!("{unit} after the begin"),
    };
    let chart = |(title, figures): (&str, std::ops::Range<usize>)| {
        let drawn = figures.clone().flat_map(|figure| courses.iter().enumerate().map(move |(i, of)| (figure, i, of)));
        let series = drawn.flat_map(|(figure, number, course)| {
            let class = DOING.get(figure).copied().unwrap_or_default();
            let name = format!("{class} {}", course.name).trim().to_owned();
            let line = move |(at, points)| Series {
                name: if at == 0 { name.clone() } else { String::new() },
                form: if number == 0 { Form::Line } else { Form::Dashes },
                colour: if figure < DOING.len() { figure } else { 0 },
                points,
            };
            course.lines(figure, unit_ns).into_iter().enumerate().map(line)
        });
        let series: Vec<Series> = series.collect();
        Chart {
            title: title.to_owned(),
            x: Axis { ends: Some((0.0, longest_ns as f64 / unit_ns as f64)), ..Axis::new(name.clone(), Scale::Linear) },
            y: Axis::new("", Scale::Linear),
            legend: Legend::ByColour,
            series,
        }
    };
    titles.zip(figures).map(chart).filter(|chart| !chart.series.is_empty()).collect()
}

/// The unit of an axis as long as this, in ns.
const fn unit(length_ns: u64) -> (&'static str, u64) {
    match length_ns / 1_000_000_000 {
        0..600 => ("s", 1_000_000_000),
        600..36_000 => ("min", 60_000_000_000),
        _ => ("h", 3_600_000_000_000),
    }
}

impl Course {
    fn begin_ns(&self) -> u64 {
        self.steps.first().map_or(0, |step| step.ends_ns[0])
    }

    fn length_ns(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.ends_ns[1].saturating_sub(self.begin_ns()))
    }

    /// A figure at both ends of each part, as it is a mean of all of it: a line for all parts in a row in
    /// which it is known. Nothing of what never was above 0.
    fn lines(&self, figure: usize, unit_ns: u64) -> Vec<Vec<Point>> {
        let x = |at_ns: u64| at_ns.saturating_sub(self.begin_ns()) as f64 / unit_ns as f64;
        if self.steps.iter().all(|step| step.figures[figure].is_none_or(|y| y <= 0.0)) {
            return Vec::new();
        }
        let runs = self.steps.chunk_by(|a, b| a.figures[figure].is_some() == b.figures[figure].is_some());
        let line = |run: &[Step]| {
            let known = run.iter().filter_map(|step| Some((step.ends_ns, step.figures[figure]?)));
            known.flat_map(|(ends_ns, y)| ends_ns.map(|at_ns| (x(at_ns), y).into())).collect()
        };
        runs.map(line).filter(|line: &Vec<Point>| !line.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_a_gap_and_the_axis_is_as_long_as_the_period() {
        const S: u64 = 1_000_000_000;
        let step = |(at, miss_ratio): (u64, Option<f64>)| Step {
            ends_ns: [at * S, (at + 1) * S],
            figures: vec![Some(0.0), Some(0.0), Some(0.0), None, miss_ratio, None],
        };
        let steps = (7..12).zip([Some(0.5), None, Some(0.25), Some(0.0), None]).map(step).collect();
        let charts = charts(&[Course { name: "", steps }]);
        assert_eq!(charts.len(), 1);
        let lines: Vec<Vec<(f64, f64)>> =
            charts[0].series.iter().map(|line| line.points.iter().map(|point| (point.x, point.y)).collect()).collect();
        assert_eq!(lines, [vec![(0.0, 0.5), (1.0, 0.5)], vec![(2.0, 0.25), (3.0, 0.25), (3.0, 0.0), (4.0, 0.0)]]);
        assert_eq!((charts[0].x.name.as_str(), charts[0].x.ends), ("s after 00:00:07", Some((0.0, 5.0))));
    }
}
