//! Holding, think and sleep times as data: a family with its parameters, checked once.

use crate::quantity;
use rand::Rng;
use rand_distr::{Distribution as _, Exp1, Gamma, OpenClosed01, StandardNormal, StandardUniform};
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use thiserror::Error;

mod form;

pub(crate) use form::{Bin, Form};
use form::{form, moments, running};

/// A family of positive random times with its parameters, as written by the user. Seconds.
///
/// In JSON `{"type": "erlang", "stages": 4, "mean": 1e-6}`; a number may be a text with a unit (`"1us"`).
/// In a shell `erlang:stages=4,mean=1us`, lists with slashes: `histogram:edges=0us/1us/5us,weights=3/1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Family {
    /// Always the same.
    Deterministic {
        /// Seconds.
        #[serde(deserialize_with = "quantity::time")]
        mean: f64,
    },
    /// Density `e^(-t/mean)/mean`.
    Exponential {
        /// Seconds.
        #[serde(deserialize_with = "quantity::time")]
        mean: f64,
    },
    /// Sum of `stages` exponential times of the same mean.
    Erlang {
        /// Whole number from 1.
        #[serde(deserialize_with = "quantity::plain")]
        stages: f64,
        /// Of the sum; seconds.
        #[serde(deserialize_with = "quantity::time")]
        mean: f64,
    },
    /// Density proportional to `t^(shape-1) e^(-t shape/mean)`.
    Gamma {
        /// Positive; the variance is mean²/shape.
        #[serde(deserialize_with = "quantity::plain")]
        shape: f64,
        /// Seconds.
        #[serde(deserialize_with = "quantity::time")]
        mean: f64,
    },
    /// One of several exponential times, drawn with these probabilities.
    Hyperexponential {
        /// Scaled to a sum of 1.
        #[serde(deserialize_with = "quantity::plains")]
        probabilities: Vec<f64>,
        /// Of each; seconds.
        #[serde(deserialize_with = "quantity::times")]
        means: Vec<f64>,
    },
    /// Its logarithm is normal.
    Lognormal {
        /// The median, e^µ; seconds.
        #[serde(deserialize_with = "quantity::time")]
        median: f64,
        /// Standard deviation of the natural logarithm.
        #[serde(deserialize_with = "quantity::plain")]
        sigma: f64,
    },
    /// Pareto of the first kind: P(X > t) = (minimum/t)^shape from the minimum on.
    Pareto {
        /// Seconds.
        #[serde(deserialize_with = "quantity::time")]
        minimum: f64,
        /// More than 1; up to 2 the second moment is infinite.
        #[serde(deserialize_with = "quantity::plain")]
        shape: f64,
    },
    /// Pareto of the second kind: P(X > t) = (1 + t/scale)^-shape.
    Lomax {
        /// Seconds.
        #[serde(deserialize_with = "quantity::time")]
        scale: f64,
        /// More than 1; up to 2 the second moment is infinite.
        #[serde(deserialize_with = "quantity::plain")]
        shape: f64,
    },
    /// Equal density from low to high.
    Uniform {
        /// Seconds, may be 0.
        #[serde(deserialize_with = "quantity::time")]
        low: f64,
        /// Seconds.
        #[serde(deserialize_with = "quantity::time")]
        high: f64,
    },
    /// A measured histogram: equal density within each bin.
    Histogram {
        /// Ascending, one more than there are weights; seconds.
        #[serde(deserialize_with = "quantity::times")]
        edges: Vec<f64>,
        /// Counts or probabilities of the bins, scaled to a sum of 1.
        #[serde(deserialize_with = "quantity::plains")]
        weights: Vec<f64>,
    },
    /// Measured values, each as likely as the others.
    Sample {
        /// Seconds.
        #[serde(deserialize_with = "quantity::times")]
        values: Vec<f64>,
    },
}

/// Names of the families, as in [`Family`].
pub const FAMILIES: [&str; 11] = [
    "deterministic",
    "exponential",
    "erlang",
    "gamma",
    "hyperexponential",
    "lognormal",
    "pareto",
    "lomax",
    "uniform",
    "histogram",
    "sample",
];

/// Parameters that are no distribution.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum DistributionError {
    /// A parameter out of its range.
    #[error("{name} {value}, expected {expected}")]
    Parameter {
        /// Its name.
        name: &'static str,
        /// What was found.
        value: f64,
        /// What is allowed.
        expected: &'static str,
    },
    /// Lists that do not fit each other.
    #[error("{found} {name}, expected {expected}")]
    Length {
        /// Of what.
        name: &'static str,
        /// How many were found.
        found: usize,
        /// How many there must be.
        expected: String,
    },
    /// Not the description of a family.
    #[error("{0}")]
    Text(String),
}

/// A checked distribution of a positive time with a finite mean. Seconds throughout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Family", into = "Family")]
pub struct Distribution {
    family: Family,
    pub(crate) form: Form,
    /// Running sums of the weights of the form, for samples.
    sums: Vec<f64>,
    mean: f64,
    second: f64,
}

impl Distribution {
    /// Checks the parameters.
    ///
    /// # Errors
    /// A parameter out of range, lists of different lengths, a mean that is not a positive finite number.
    pub fn new(family: Family) -> Result<Self, DistributionError> {
        let form = form(&family)?;
        let sums = match &form {
            Form::Bins(bins) => running(bins.iter().map(|bin| bin.weight)),
            Form::Phases(phases) => running(phases.iter().map(|phase| phase.weight)),
            _ => Vec::new(),
        };
        let (mean, second) = moments(&form);
        if !(mean > 0.0 && mean.is_finite()) {
            return Err(DistributionError::Parameter {
                name: "mean",
                value: mean,
                expected: "a positive time within the range of a double",
            });
        }
        Ok(Self { family, form, sums, mean, second })
    }

    /// A constant time.
    ///
    /// # Errors
    /// As for [`Distribution::new`].
    pub fn deterministic(mean: f64) -> Result<Self, DistributionError> {
        Self::new(Family::Deterministic { mean })
    }

    /// An exponential time.
    ///
    /// # Errors
    /// As for [`Distribution::new`].
    pub fn exponential(mean: f64) -> Result<Self, DistributionError> {
        Self::new(Family::Exponential { mean })
    }

    /// The family and its parameters.
    #[must_use]
    pub const fn family(&self) -> &Family {
        &self.family
    }

    /// E X in seconds.
    #[must_use]
    pub const fn mean(&self) -> f64 {
        self.mean
    }

    /// E X² in s², infinite for a power tail with a shape up to 2.
    #[must_use]
    pub const fn second_moment(&self) -> f64 {
        self.second
    }

    /// A random time in seconds.
    pub fn sample(&self, rng: &mut impl Rng) -> f64 {
        let one: f64 = match &self.form {
            Form::Bins(_) | Form::Phases(_) => 1.0,
            Form::Gamma { shape, scale } => Gamma::new(*shape, *scale).map_or(self.mean, |gamma| gamma.sample(rng)),
            Form::Lognormal { .. } => StandardNormal.sample(rng),
            Form::Pareto { .. } | Form::Lomax { .. } => OpenClosed01.sample(rng),
        };
        match &self.form {
            Form::Bins(bins) => {
                let bin = bins[self.draw(rng)];
                if bin.low < bin.high {
                    let share: f64 = StandardUniform.sample(rng);
                    bin.low + share * (bin.high - bin.low)
                } else {
                    bin.low
                }
            }
            Form::Phases(phases) => {
                let exponential: f64 = Exp1.sample(rng);
                phases[self.draw(rng)].mean * exponential
            }
            Form::Gamma { .. } => one,
            Form::Lognormal { mu, sigma } => (mu + sigma * one).exp(),
            Form::Pareto { minimum, shape } => minimum * one.powf(-1.0 / shape),
            Form::Lomax { scale, shape } => scale * (-one.ln() / shape).exp_m1(),
        }
    }

    /// The index of a bin or phase, with its probability.
    fn draw(&self, rng: &mut impl Rng) -> usize {
        let last = self.sums.len() - 1;
        if last == 0 {
            return 0;
        }
        let share: f64 = StandardUniform.sample(rng);
        self.sums.partition_point(|sum| *sum <= share).min(last)
    }
}

impl TryFrom<Family> for Distribution {
    type Error = DistributionError;

    fn try_from(family: Family) -> Result<Self, DistributionError> {
        Self::new(family)
    }
}

impl From<Distribution> for Family {
    fn from(distribution: Distribution) -> Self {
        distribution.family
    }
}

impl FromStr for Distribution {
    type Err = DistributionError;

    /// `family:name=value,…`, times with units, lists with slashes.
    fn from_str(text: &str) -> Result<Self, DistributionError> {
        let (family, parameters) = text.trim().split_once(':').unwrap_or((text.trim(), ""));
        if !FAMILIES.contains(&family) {
            let expected = FAMILIES.join(", ");
            return Err(DistributionError::Text(format!("distribution `{family}`, expected one of {expected}")));
        }
        let mut object = serde_json::Map::new();
        object.insert("type".into(), family.into());
        for parameter in parameters.split(',').filter(|parameter| !parameter.trim().is_empty()) {
            let (name, value) = parameter.split_once('=').ok_or_else(|| {
                DistributionError::Text(format!("`{}` of {family}, expected name=value", parameter.trim()))
            })?;
            let name = name.trim();
            let is_list = matches!(name, "probabilities" | "means" | "edges" | "weights" | "values");
            let value = if is_list { value.split('/').collect::<Vec<_>>().into() } else { value.into() };
            object.insert(name.to_owned(), value);
        }
        serde_json::from_value(object.into()).map_err(|error| DistributionError::Text(format!("{family}: {error}")))
    }
}
