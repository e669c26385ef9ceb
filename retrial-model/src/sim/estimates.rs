//! Replications of a run with other seeds, in parallel, and what they say together.

use super::error::SimulationError;
use super::workload::Workload;
use crate::measure::Measure;
use rayon::prelude::*;
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::ops::Range;

/// Mean of a measure over independent replications.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Standard deviation of one replication.
    pub deviation: f64,
    /// Replications, from 2.
    pub replications: usize,
}

impl Estimate {
    /// Of the values of independent replications; `None` of fewer than two.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        (values.len() > 1).then(|| Self::new(values))
    }

    fn new(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self { mean, deviation: (squares / (n - 1.0)).sqrt(), replications: values.len() }
    }

    /// Half the width of the interval around the mean that covers the true value with this probability (0.95,
    /// 0.99): Student's t.
    #[must_use]
    pub fn half_width(&self, confidence: f64) -> f64 {
        let n = self.replications;
        student(confidence, n as u32 - 1) * self.deviation / (n as f64).sqrt()
    }

    /// Whether the value lies within that interval.
    #[must_use]
    pub fn covers(&self, value: f64, confidence: f64) -> bool {
        (value - self.mean).abs() <= self.half_width(confidence)
    }
}

/// What replications of a workload say together.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimates {
    /// Events of all replications.
    pub events: u64,
    by_measure: Vec<Option<Estimate>>,
}

impl Estimates {
    /// The estimate of a measure, from the replications that have it; `None` with fewer than two of these.
    #[must_use]
    pub fn get(&self, measure: Measure) -> Option<Estimate> {
        self.by_measure[measure as usize]
    }

    /// The same with the values of a measure multiplied by a factor.
    #[must_use]
    pub fn scaled(mut self, measure: Measure, factor: f64) -> Self {
        if let Some(estimate) = &mut self.by_measure[measure as usize] {
            estimate.mean *= factor;
            estimate.deviation *= factor;
        }
        self
    }
}

/// Simulates a workload once for each seed, on the threads of rayon's pool. The estimates do not depend on
/// their number.
///
/// # Errors
///
/// [`SimulationError`] of the first seed that fails; `Parameter` when there are less than two seeds.
///
/// # Panics
///
/// When a simulation does: a broken invariant of the simulator.
pub fn replicate(workload: &Workload, seeds: Range<u64>) -> Result<Estimates, SimulationError> {
    let count = seeds.end.saturating_sub(seeds.start);
    if count < 2 {
        return Err(SimulationError::Parameter { name: "seeds", found: count as f64, expected: "at least 2" });
    }
    let run = |seed| super::run(workload, seed).map(|outcome| (outcome.events, outcome.profile));
    let results: Vec<_> = seeds.into_par_iter().map(run).collect();
    let runs = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let estimate = |measure: &Measure| {
        let values: Vec<f64> = runs.iter().filter_map(|(_, profile)| measure.of(profile)).collect();
        Estimate::of(&values)
    };
    Ok(Estimates {
        events: runs.iter().map(|(events, _)| events).sum(),
        by_measure: Measure::ALL.iter().map(estimate).collect(),
    })
}

/// The t with P(|T| ≤ t) = confidence, for Student's distribution.
fn student(confidence: f64, freedom: u32) -> f64 {
    let distribution = StudentsT::new(0.0, 1.0, freedom.into()).expect("there is a degree of freedom");
    distribution.inverse_cdf(f64::midpoint(1.0, confidence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (confidence, freedom, expected) in [
            (0.95, 1, 12.706),
            (0.95, 2, 4.303),
            (0.95, 5, 2.571),
            (0.99, 10, 3.169),
            (0.99, 29, 2.756),
            (0.95, 120, 1.980),
        ] {
            let found = student(confidence, freedom);
            assert!((found - expected).abs() < 5e-4, "{confidence} {freedom}: {found}, expected {expected}");
        }
    }

    #[test]
    fn an_interval_is_that_of_the_textbook() {
        let estimate = Estimate::new(&[1.0, 2.0, 3.0, 4.0]);
        // 3.182 * 1.2910 / 2.
        assert!((estimate.half_width(0.95) - 2.0542).abs() < 1e-3);
        assert!(estimate.covers(4.5, 0.95) && !estimate.covers(4.6, 0.95));
    }
}
