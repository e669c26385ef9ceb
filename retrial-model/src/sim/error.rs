//! Why a workload cannot be simulated.

use thiserror::Error;

/// Without hundreds of digits.
fn number(found: f64) -> String {
    if found.abs() < 1e15 { found.to_string() } else { format!("{found:e}") }
}

/// Why a workload cannot be simulated to its end.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// A value of the workload out of its range.
    #[error("{name} is {}, expected {expected}", number(*found))]
    Parameter {
        /// Its name.
        name: &'static str,
        /// What was found.
        found: f64,
        /// What is allowed.
        expected: &'static str,
    },
    /// Sessions ask for more than all the time of the mutex.
    #[error("no steady state: sessions ask for the mutex {utilization} of the time, expected less than 1")]
    Utilization {
        /// Arrival rate times mean holding time.
        utilization: f64,
    },
    /// Sessions come faster than they get the mutex.
    #[error(
        "no steady state: {sessions} sessions are there after {after} s, {gets} have got the mutex; at most {limit} may be there"
    )]
    Population {
        /// Sessions that are there.
        sessions: u32,
        /// The workload's `sessions_max`.
        limit: u32,
        /// Time since the start, in s.
        after: f64,
        /// Gets since the start.
        gets: u64,
    },
    /// More events than allowed.
    #[error("{events} events in the first {after} s, expected no more until the end")]
    Events {
        /// The workload's `events_max`.
        events: u64,
        /// Time since the start, in s.
        after: f64,
    },
}

/// Whether a value is in its range.
pub(super) fn check(
    name: &'static str,
    value: f64,
    range: std::ops::RangeInclusive<f64>,
    expected: &'static str,
) -> Result<(), SimulationError> {
    let fits = range.contains(&value);
    if fits { Ok(()) } else { Err(SimulationError::Parameter { name, found: value, expected }) }
}
