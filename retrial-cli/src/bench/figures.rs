//! The figures of a cell, and their columns.

use super::cell::Cell;
use retrial::views::{Counter, Figures};
use serde_json::{Value, json};
use std::time::Duration;

pub const COLUMNS: [&str; 17] = [
    "scheme",
    "sessions",
    "copies",
    "kind",
    "cs_ns",
    "think_ns",
    "ops_per_s",
    "cpu_s_per_s",
    "jain",
    "wait_p50_us",
    "wait_p99_us",
    "wait_p999_us",
    "wait_max_us",
    "k",
    "kappa",
    "sleeps_per_s",
    "errors",
];

/// How the sessions of a cell run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Threads,
    Processes,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Processes => "processes",
        }
    }
}

/// What was measured, in the units of the columns.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Measured {
    pub ops_per_s: f64,
    pub cpu_s_per_s: f64,
    pub jain: f64,
    pub wait_p50_us: f64,
    pub wait_p99_us: f64,
    pub wait_p999_us: f64,
    pub wait_max_us: f64,
}

impl Measured {
    const fn list(&self) -> [f64; 7] {
        [
            self.ops_per_s,
            self.cpu_s_per_s,
            self.jain,
            self.wait_p50_us,
            self.wait_p99_us,
            self.wait_p999_us,
            self.wait_max_us,
        ]
    }

    /// The median of each figure by itself; `None` of nothing.
    pub fn median(rounds: &[Self]) -> Option<Self> {
        let middle = |i: usize| median(rounds.iter().map(|round| round.list()[i]).collect());
        Some(Self {
            ops_per_s: middle(0)?,
            cpu_s_per_s: middle(1)?,
            jain: middle(2)?,
            wait_p50_us: middle(3)?,
            wait_p99_us: middle(4)?,
            wait_p999_us: middle(5)?,
            wait_max_us: middle(6)?,
        })
    }
}

/// What sessions have counted of their waits, and in which time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Counted {
    pub figures: Figures,
    pub time: Duration,
}

impl Counted {
    /// k: share of the tries that found the mutex busy whose spin failed.
    pub fn spin_inefficiency(&self) -> Option<f64> {
        self.sleeps_for_each(Counter::Busy)
    }

    /// κ: yields, sleeps and parks for a miss.
    pub fn sleep_ratio(&self) -> Option<f64> {
        self.sleeps_for_each(Counter::Misses)
    }

    pub fn sleeps_per_s(&self) -> f64 {
        self.figures.sleeps() as f64 / self.time.as_secs_f64()
    }

    fn sleeps_for_each(&self, counter: Counter) -> Option<f64> {
        let count = self.figures.get(counter);
        (count > 0).then(|| self.figures.sleeps() as f64 / count as f64)
    }
}

/// A cell of one round: what was measured unless it went wrong, and what was wrong.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub measured: Option<Measured>,
    /// Gets per second in each window.
    pub windows: Vec<f64>,
    /// Sessions that still waited when the cell was given up after its end.
    pub waiting: u32,
    /// The most by which the parent, which sleeps meanwhile, woke up late: the machine was away, or too many computed.
    pub stall: Duration,
    /// What the sessions had counted at the end, where they count.
    pub counted: Option<Counted>,
    pub errors: u64,
    pub complaints: Vec<String>,
}

pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], upper) } else { upper })
}

/// Jain's index of fairness: 1 when all have the same, 1/n when one has all.
///
/// Jain, Chiu, Hawe, *A quantitative measure of fairness* (1984): `(Σx)² / (n Σx²)`.
pub fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|x| *x as f64).sum();
    let squares: f64 = shares.iter().map(|x| (*x as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// A row: what the cell is and how many copies of the mutex it has, the median of its rounds, and all their errors.
pub fn row(scheme: &str, copies: u32, cell: &Cell, rounds: &[Outcome]) -> Vec<Value> {
    let measured: Vec<Measured> = rounds.iter().filter_map(|round| round.measured).collect();
    let errors: u64 = rounds.iter().map(|round| round.errors).sum();
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let mut cells = vec![json!(scheme), json!(cell.sessions), json!(copies), json!(cell.kind.name())];
    cells.extend([json!(ns(cell.cs)), json!(ns(cell.think))]);
    match Measured::median(&measured) {
        Some(measured) => {
            let digits = [1, 4, 4, 3, 3, 3, 3];
            cells.extend(measured.list().into_iter().zip(digits).map(|(value, digits)| json!(rounded(value, digits))));
        }
        None => cells.extend([const { Value::Null }; 7]),
    }
    let counted: Vec<Counted> = rounds.iter().filter_map(|round| round.counted).collect();
    let middle = |of: &dyn Fn(&Counted) -> Option<f64>, digits| {
        median(counted.iter().filter_map(of).collect()).map_or(Value::Null, |value| json!(rounded(value, digits)))
    };
    cells.extend([
        middle(&Counted::spin_inefficiency, 4),
        middle(&Counted::sleep_ratio, 4),
        middle(&|counted| Some(counted.sleeps_per_s()), 1),
    ]);
    cells.push(json!(errors));
    cells
}

pub fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::load::Start;

    #[test]
    fn jain_is_1_for_equals_and_1_over_n_for_one_alone() {
        assert!((jain(&[5, 5, 5, 5]) - 1.0).abs() < 1e-12);
        assert!((jain(&[5, 0, 0, 0]) - 0.25).abs() < 1e-12);
        assert!((jain(&[0, 0]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let stuck = Outcome { errors: 3, ..Outcome::default() };
        let cell = Cell {
            sessions: 2,
            kind: Kind::Threads,
            cs: Duration::from_nanos(100),
            think: Duration::ZERO,
            writes: 0,
            hogs: 0,
            start: Start::Together,
        };
        let cells = row("orbit", 1, &cell, &[stuck.clone(), stuck]);
        assert_eq!(cells.len(), COLUMNS.len());
        assert_eq!(cells.last(), Some(&json!(6)));
        assert_eq!((&cells[4], &cells[6]), (&json!(100), &Value::Null));
    }
}
