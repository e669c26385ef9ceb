//! What a cell comes to in one round.

use retrial_model::{Measure, Profile};
use std::time::Duration;

/// How sessions run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Kind {
    /// Threads of one process
    Threads,
    /// Processes with one thread
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

/// A cell of one round: what was measured unless it went wrong, and what was wrong.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub measured: Option<Profile>,
    /// Gets per second in each window.
    pub windows: Vec<f64>,
    /// Sessions that still waited when the cell was given up after its end.
    pub waiting: u32,
    /// The most by which the parent, which sleeps meanwhile, woke up late: the machine was away, or too many
    /// computed.
    pub stall: Duration,
    pub errors: u64,
    pub complaints: Vec<String>,
}

impl Outcome {
    /// A measure, where the cell has it.
    pub fn get(&self, measure: Measure) -> Option<f64> {
        measure.of(self.measured.as_ref()?)
    }
}

pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], upper) } else { upper })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }
}
