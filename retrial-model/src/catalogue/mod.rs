//! The formulas that can be called by name, as data.

mod simulation;
mod spins;
mod systems;
mod tuning;
mod waits;

pub use simulation::simulated;

use crate::error::ModelError;
use crate::function::{CallError, Field, Function, Parameter, Unit};

/// A result of a run: values in the order of the declared fields.
type Results = Result<Vec<Option<f64>>, ModelError>;

/// All of them, in the order of the list.
pub fn functions() -> impl Iterator<Item = &'static Function> {
    [spins::FUNCTIONS, waits::FUNCTIONS, systems::FUNCTIONS, tuning::FUNCTIONS, simulation::FUNCTIONS]
        .into_iter()
        .flatten()
}

impl Function {
    /// The function of a name.
    ///
    /// # Errors
    /// There is none; the error names those that there are.
    pub fn named(name: &str) -> Result<&'static Self, CallError> {
        functions().find(|function| function.name == name).ok_or_else(|| {
            let expected = functions().map(|function| function.name).collect::<Vec<_>>().join(", ");
            CallError::Function { found: name.to_owned(), expected }
        })
    }
}

const fn required(name: &'static str, unit: Unit, meaning: &'static str) -> Parameter {
    Parameter { name, unit, default: None, meaning }
}

const fn optional(name: &'static str, unit: Unit, default: &'static str, meaning: &'static str) -> Parameter {
    Parameter { name, unit, default: Some(default), meaning }
}

const fn field(name: &'static str, unit: &'static str, meaning: &'static str) -> Field {
    Field { name, unit, meaning }
}

const DIST: Parameter = required("dist", Unit::Distribution, "holding time, as exponential:mean=1us");
const LIMIT: Parameter = required("limit", Unit::Seconds, "spin limit ∆: spin count times the time of a poll");
const RATE: Parameter = required("rate", Unit::PerSecond, "fresh requests λ, Poisson");
const ATTEMPTS: Parameter = required("attempt_rate", Unit::PerSecond, "attempts Λ: fresh requests and retries");
const SLEEP: Parameter = required("sleep", Unit::Seconds, "mean sleep T after a failed spin, exponential");
const UTILIZATION: Parameter = required("utilization", Unit::Number, "share of time that the mutex is held, ρ");
const INEFFICIENCY: Parameter = required("k", Unit::Number, "failed spins by attempts that found the mutex busy");
const K: Field = field("k", "1", "failed spins by attempts that found the mutex busy");
const GAMMA: Field = field("spin_time", "s", "mean time of a spin, Γ");
const WAIT: Field = field("wait", "s", "mean wait of a get, W");
