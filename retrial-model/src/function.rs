//! A formula that can be called by name, with parameters that are text or JSON: for the shell, for batches,
//! for lists.

use crate::distribution::Distribution;
use crate::error::ModelError;
use crate::quantity;
use serde::{Deserialize as _, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

/// A formula with everything that a list, a single call and a batch say of it.
#[derive(Debug, Serialize)]
pub struct Function {
    /// What it is called by.
    pub name: &'static str,
    /// What it gives, in one line.
    pub summary: &'static str,
    /// In the symbols of the model.
    pub formula: &'static str,
    /// Where it holds, and how far it is off elsewhere.
    pub domain: &'static str,
    /// The paper's equation, or the name of the theorem.
    pub source: &'static str,
    /// What it takes.
    pub parameters: &'static [Parameter],
    /// What it gives.
    pub results: &'static [Field],
    #[serde(skip)]
    pub(crate) run: fn(&Inputs) -> Result<Vec<Option<f64>>, ModelError>,
}

/// A parameter of a [`Function`].
#[derive(Debug, Serialize)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it is measured in.
    pub unit: Unit,
    /// What stands for it when it is not given: a value, nothing (`""`), or nothing does.
    pub default: Option<&'static str>,
    /// What it means.
    pub meaning: &'static str,
}

/// How a parameter is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// A family with its parameters, see [`Distribution`].
    #[serde(rename = "distribution")]
    Distribution,
    /// Seconds, or a text as `1us`.
    #[serde(rename = "s")]
    Seconds,
    /// Events per second, or a text as `0.2/us`.
    #[serde(rename = "1/s")]
    PerSecond,
    /// A number without a unit.
    #[serde(rename = "1")]
    Number,
    /// A name.
    #[serde(rename = "text")]
    Text,
}

impl Unit {
    /// As in the list.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Distribution => "distribution",
            Self::Seconds => "s",
            Self::PerSecond => "1/s",
            Self::Number => "1",
            Self::Text => "text",
        }
    }
}

/// A result of a [`Function`].
#[derive(Debug, Serialize)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// What it is measured in; `1` for ratios and counts.
    pub unit: &'static str,
    /// What it means, and what its absence means.
    pub meaning: &'static str,
}

/// Why a call gave no result.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum CallError {
    /// No function of this name.
    #[error("function `{found}`, expected one of {expected}")]
    Function {
        /// The name.
        found: String,
        /// The names that there are.
        expected: String,
    },
    /// No parameter of this name.
    #[error("parameter `{found}` of {function}, expected {expected}")]
    Parameter {
        /// Which was called.
        function: &'static str,
        /// The name.
        found: String,
        /// The names that it has.
        expected: String,
    },
    /// A parameter without a value.
    #[error("{function} without {name}, expected {meaning}")]
    Missing {
        /// Which was called.
        function: &'static str,
        /// Of the parameter.
        name: &'static str,
        /// What it is.
        meaning: &'static str,
    },
    /// A value that is no number, time, rate or distribution.
    #[error("{name}: {message}")]
    Value {
        /// Of the parameter.
        name: &'static str,
        /// What was found and expected.
        message: String,
    },
    /// The formula has no answer.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// The values of a call, checked and in SI units.
#[derive(Debug)]
pub(crate) struct Inputs {
    values: Vec<(&'static str, Option<Input>)>,
}

#[derive(Debug)]
enum Input {
    Number(f64),
    Distribution(Box<Distribution>),
    Text(String),
}

impl Inputs {
    fn get(&self, name: &str) -> Option<&Input> {
        let found = self.values.iter().find(|(known, _)| *known == name);
        found.expect("a function reads the parameters that it declares").1.as_ref()
    }

    /// A parameter that may be absent.
    pub(crate) fn optional(&self, name: &str) -> Option<f64> {
        match self.get(name) {
            Some(Input::Number(value)) => Some(*value),
            _ => None,
        }
    }

    /// A parameter with a value or a default.
    pub(crate) fn number(&self, name: &str) -> f64 {
        self.optional(name).expect("a number that was declared as required")
    }

    /// A distribution that may be absent.
    pub(crate) fn optional_distribution(&self, name: &str) -> Option<&Distribution> {
        match self.get(name) {
            Some(Input::Distribution(distribution)) => Some(distribution),
            _ => None,
        }
    }

    /// A distribution.
    pub(crate) fn distribution(&self, name: &str) -> &Distribution {
        self.optional_distribution(name).expect("a distribution that was declared as required")
    }

    /// A text; empty when it is absent.
    pub(crate) fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Some(Input::Text(text)) => text,
            _ => "",
        }
    }
}

impl Function {
    /// Calculates. Parameters by name: numbers in SI units, texts with units, distributions as objects or
    /// texts.
    ///
    /// Gives the results by name; null where the meaning of the field says so.
    ///
    /// # Errors
    /// Unknown, missing or wrong parameters; no answer within the domain of the formula.
    ///
    /// # Panics
    /// A function that gives other results than it declares, which is a mistake in the catalogue.
    pub fn call(&self, parameters: &Map<String, Value>) -> Result<Map<String, Value>, CallError> {
        let inputs = self.inputs(parameters)?;
        let results = (self.run)(&inputs)?;
        assert_eq!(results.len(), self.results.len(), "{} gives the results that it declares", self.name);
        let named = self.results.iter().zip(results).map(|(field, value)| match value {
            Some(value) if !value.is_finite() => Err(ModelError::Overflow { name: field.name, value }.into()),
            value => Ok((field.name.to_owned(), value.into())),
        });
        named.collect()
    }

    /// The values of a call: those that were given, defaults for the others.
    pub(crate) fn inputs(&self, parameters: &Map<String, Value>) -> Result<Inputs, CallError> {
        if let Some(found) = parameters.keys().find(|key| !self.parameters.iter().any(|known| known.name == **key)) {
            let expected = self.parameters.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
            return Err(CallError::Parameter { function: self.name, found: found.clone(), expected });
        }
        let values =
            self.parameters.iter().map(|known| Ok((known.name, self.input(known, parameters.get(known.name))?)));
        Ok(Inputs { values: values.collect::<Result<_, CallError>>()? })
    }

    fn input(&self, known: &'static Parameter, given: Option<&Value>) -> Result<Option<Input>, CallError> {
        let default = || known.default.map(Value::from);
        let Some(value) = given.filter(|value| !value.is_null()).cloned().or_else(default) else {
            return Err(CallError::Missing { function: self.name, name: known.name, meaning: known.meaning });
        };
        if value == "" && known.default == Some("") {
            return Ok(None);
        }
        known.unit.read(&value).map(Some).map_err(|message| CallError::Value { name: known.name, message })
    }
}

impl Unit {
    fn read(self, value: &Value) -> Result<Input, String> {
        let read = match self {
            Self::Distribution => {
                let distribution = match value {
                    Value::String(text) => text.parse().map_err(|error: crate::DistributionError| error.to_string()),
                    value => Distribution::deserialize(value).map_err(|error| error.to_string()),
                };
                return distribution.map(|distribution| Input::Distribution(Box::new(distribution)));
            }
            Self::Text => {
                let text = value.as_str().ok_or_else(|| format!("{value}, expected a text"))?;
                return Ok(Input::Text(text.to_owned()));
            }
            Self::Seconds => quantity::seconds,
            Self::PerSecond => quantity::rate,
            Self::Number => quantity::number,
        };
        match value {
            Value::Number(number) => number.as_f64().ok_or_else(|| format!("number {number}, expected a double")),
            Value::String(text) => read(text),
            other => Err(format!("{other}, expected a number or a text")),
        }
        .map(Input::Number)
    }
}
