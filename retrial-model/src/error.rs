//! What a formula cannot answer.

use crate::sim::SimulationError;
use thiserror::Error;

/// Why there is no number.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A parameter outside the domain of the formula.
    #[error("{name} {value}, expected {expected}")]
    Domain {
        /// Its name.
        name: &'static str,
        /// What was found.
        value: f64,
        /// What is allowed.
        expected: &'static str,
    },
    /// More work than the mutex can do.
    #[error("utilization {utilization}, expected less than {limit}: no steady state")]
    NoSteadyState {
        /// Of the mutex by its holders.
        utilization: f64,
        /// From where on queues grow for ever.
        limit: f64,
    },
    /// The mean residual holding time is infinite, and with it the wait.
    #[error("a holding time with an infinite second moment, expected a finite one (a shape above 2)")]
    InfiniteMoment,
    /// An iteration that does not settle.
    #[error("{what} has not settled after {steps} steps, expected parameters less extreme")]
    NotSettled {
        /// What was sought.
        what: &'static str,
        /// How long.
        steps: usize,
    },
    /// A computation that would take too long or too much memory.
    #[error("{what} {found}, expected at most {limit}")]
    TooLarge {
        /// What is too many.
        what: &'static str,
        /// How many.
        found: f64,
        /// How many there may be.
        limit: usize,
    },
    /// A workload that cannot be read.
    #[error("{message}")]
    Workload {
        /// What was found and expected.
        message: String,
    },
    /// A workload that cannot be simulated.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// A result beyond the range of a double.
    #[error("{name} is {value}, expected a finite number: parameters less extreme")]
    Overflow {
        /// Of the result.
        name: &'static str,
        /// What came out.
        value: f64,
    },
}

/// A number from 0, finite.
pub(crate) fn from_zero(name: &'static str, value: f64) -> Result<(), ModelError> {
    allowed(name, value, "a number from 0", value >= 0.0)
}

/// A positive finite number.
pub(crate) fn positive(name: &'static str, value: f64) -> Result<(), ModelError> {
    allowed(name, value, "a positive number", value > 0.0)
}

/// A probability.
pub(crate) fn share(name: &'static str, value: f64) -> Result<(), ModelError> {
    allowed(name, value, "a number from 0 to 1", (0.0..=1.0).contains(&value))
}

/// A finite number that fulfils a condition.
pub(crate) fn allowed(name: &'static str, value: f64, expected: &'static str, ok: bool) -> Result<(), ModelError> {
    if ok && value.is_finite() { Ok(()) } else { Err(ModelError::Domain { name, value, expected }) }
}

/// Utilization below 1.
pub(crate) fn steady(utilization: f64) -> Result<(), ModelError> {
    from_zero("utilization", utilization)?;
    if utilization < 1.0 { Ok(()) } else { Err(ModelError::NoSteadyState { utilization, limit: 1.0 }) }
}
