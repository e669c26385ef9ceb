//! What a workload comes to: simulated with intervals, and by theory where it has a formula.

use super::recording::Holds;
use retrial_model::Distribution;
use retrial_model::sim::{Estimates, Measure, SimulationError, Workload, replicate};
use retrial_model::theory::{Theory, theory};
use std::ops::Range;

/// That an interval covers.
pub const CONFIDENCE: f64 = 0.95;

/// What a workload comes to.
#[derive(Clone, Debug)]
pub struct Prediction {
    pub estimates: Estimates,
    /// The same with holding times that are all the same, where no more than their mean is known.
    pub fixed: Option<Estimates>,
    /// What theory says, or why it says nothing.
    pub theory: Result<Theory, String>,
}

/// Simulates once for each seed, on all processors, and asks theory.
pub fn predict(workload: &Workload, seeds: &Range<u64>, holds: &Holds) -> Result<Prediction, SimulationError> {
    let simulate = |workload: &Workload| replicate(workload, seeds.clone());
    let fixed = match (holds, Distribution::deterministic(workload.hold.mean())) {
        (Holds::Mean, Ok(hold)) => Some(simulate(&Workload { hold, ..workload.clone() })?),
        _ => None,
    };
    Ok(Prediction { estimates: simulate(workload)?, fixed, theory: theory(workload) })
}

impl Prediction {
    /// The same with the simulated values of a measure multiplied by a factor.
    pub fn scaled(self, measure: Measure, factor: f64) -> Self {
        let fixed = self.fixed.map(|fixed| fixed.scaled(measure, factor));
        Self { estimates: self.estimates.scaled(measure, factor), fixed, ..self }
    }

    /// The mean over the replications; `None` where there is nothing that it could be computed from.
    pub fn mean(&self, measure: Measure) -> Option<f64> {
        self.estimates.get(measure).map(|estimate| estimate.mean)
    }

    /// Half the width of the interval.
    pub fn interval(&self, measure: Measure) -> Option<f64> {
        self.estimates.get(measure).map(|estimate| estimate.half_width(CONFIDENCE))
    }
}

/// A change against before, in percent.
pub fn percent(value: Option<f64>, of: Option<f64>) -> Option<f64> {
    Some((value? / of.filter(|of| *of > 0.0)? - 1.0) * 100.0)
}
