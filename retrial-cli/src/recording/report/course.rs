//! How the load of a period went from snapshot to snapshot.

use super::Report;
use crate::chart::{Axis, Chart, Form, Legend, Scale, Series};
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

/// Mean number of sessions at what takes time; the one that is left out is the time elsewhere.
const CLASSES: [(&str, &str); 3] =
    [("Concurrency", "waiting for mutexes"), ("Holding", "holding"), ("Event", "waiting for events")];
const OTHERS: [(&str, Measure); 2] = [("gets per second", Measure::Throughput), ("miss ratio ρ", Measure::MissRatio)];

impl Step {
    pub fn of(report: &Report) -> Self {
        let (period, time) = (report.period(), report.time());
        let total = period.total();
        let of_class = |(class, _)| {
            let shares = time.shares().filter(|share| share.class == class);
            Some(shares.fold(0.0, |sum, share| sum + share.pct) / 100.0 * time.all_s / period.time_s())
        };
        let mut figures: Vec<Option<f64>> = CLASSES.into_iter().map(of_class).collect();
        figures.extend(OTHERS.iter().map(|(_, measure)| measure.of(&total)));
        figures.push(period.busy().map(|busy| 100.0 * busy));
        let to_ns = report.span.to.at.real_ns;
        Self { ends_ns: [report.begin_ns().unwrap_or(to_ns), to_ns], figures }
    }
}

/// Charts of the load of one period, or of several that begin together.
pub(super) fn charts(courses: &[Course]) -> Vec<Chart> {
    let titles = ["sessions"].into_iter().chain(OTHERS.iter().map(|(name, _)| *name)).chain(["processors busy (%)"]);
    let figures = [0..CLASSES.len(), 3..4, 4..5, 5..6];
    let longest_ns = courses.iter().map(Course::length_ns).max().unwrap_or(0);
    let chart = |(title, figures): (&str, std::ops::Range<usize>)| {
        let drawn = figures.clone().flat_map(|figure| courses.iter().enumerate().map(move |(i, of)| (figure, i, of)));
        let series = drawn.map(|(figure, number, course)| {
            let class = CLASSES.get(figure).map_or("", |(_, name)| name);
            Series {
                name: format!("{class} {}", course.name).trim().to_owned(),
                form: if number == 0 { Form::Line } else { Form::Dashes },
                colour: if figure < CLASSES.len() { figure } else { 0 },
                points: course.points(figure, unit(longest_ns).1),
            }
        });
        let series: Vec<Series> = series.filter(|series| series.points.iter().any(|point| point.y > 0.0)).collect();
        Chart {
            title: title.to_owned(),
            x: Axis::new(unit(longest_ns).0, Scale::Linear),
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

    /// A figure at both ends of each part: it is a mean of all of it.
    fn points(&self, figure: usize, unit_ns: u64) -> Vec<crate::chart::Point> {
        let x = |at_ns: u64| at_ns.saturating_sub(self.begin_ns()) as f64 / unit_ns as f64;
        let known = self.steps.iter().filter_map(|step| Some((step.ends_ns, step.figures[figure]?)));
        known.flat_map(|(ends_ns, y)| ends_ns.map(|at_ns| (x(at_ns), y).into())).collect()
    }
}
