//! What a family is made of, for the formulas: several families share one form.

use super::{DistributionError, Family};

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Form {
    /// Uniform bins and atoms (bins of no width).
    Bins(Vec<Bin>),
    /// Mixture of exponentials.
    Phases(Vec<Phase>),
    /// Gamma with shape and scale.
    Gamma { shape: f64, scale: f64 },
    /// e to the normal (mu, sigma).
    Lognormal { mu: f64, sigma: f64 },
    /// Power tail from a minimum.
    Pareto { minimum: f64, shape: f64 },
    /// Power tail from 0.
    Lomax { scale: f64, shape: f64 },
}

/// Equal density from low to high, or an atom where they are the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bin {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) weight: f64,
}

/// An exponential branch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Phase {
    pub(crate) weight: f64,
    pub(crate) mean: f64,
}

/// The form of a family, when its parameters are in their ranges.
pub(super) fn form(family: &Family) -> Result<Form, DistributionError> {
    Ok(match family {
        Family::Deterministic { mean } => {
            positive("mean", *mean)?;
            Form::Bins(vec![Bin { low: *mean, high: *mean, weight: 1.0 }])
        }
        Family::Exponential { mean } => {
            positive("mean", *mean)?;
            Form::Phases(vec![Phase { weight: 1.0, mean: *mean }])
        }
        Family::Erlang { stages, mean } => {
            let whole = (1.0..=1e4).contains(stages) && stages.fract() == 0.0;
            check("stages", *stages, "a whole number from 1 to 10000", whole)?;
            positive("mean", *mean)?;
            Form::Gamma { shape: *stages, scale: mean / stages }
        }
        Family::Gamma { shape, mean } => {
            check("shape", *shape, "a number from 0.001 to 10000", (1e-3..=1e4).contains(shape))?;
            positive("mean", *mean)?;
            Form::Gamma { shape: *shape, scale: mean / shape }
        }
        Family::Hyperexponential { probabilities, means } => phases(probabilities, means)?,
        Family::Lognormal { median, sigma } => {
            positive("median", *median)?;
            check("sigma", *sigma, "a number from 0.0001 to 10", (1e-4..=10.0).contains(sigma))?;
            Form::Lognormal { mu: median.ln(), sigma: *sigma }
        }
        Family::Pareto { minimum, shape } => {
            positive("minimum", *minimum)?;
            check("shape", *shape, "a number above 1: no mean otherwise", *shape > 1.0)?;
            Form::Pareto { minimum: *minimum, shape: *shape }
        }
        Family::Lomax { scale, shape } => {
            positive("scale", *scale)?;
            check("shape", *shape, "a number above 1: no mean otherwise", *shape > 1.0)?;
            Form::Lomax { scale: *scale, shape: *shape }
        }
        Family::Uniform { low, high } => {
            check("low", *low, "no negative number", *low >= 0.0)?;
            check("high", *high, "more than low", high > low)?;
            Form::Bins(vec![Bin { low: *low, high: *high, weight: 1.0 }])
        }
        Family::Histogram { edges, weights } => histogram(edges, weights)?,
        Family::Sample { values } => sample(values)?,
    })
}

fn phases(probabilities: &[f64], means: &[f64]) -> Result<Form, DistributionError> {
    length("means", means.len(), probabilities.len(), "the probabilities")?;
    means.iter().try_for_each(|mean| positive("mean", *mean))?;
    let weights = shares("probabilities", probabilities)?;
    Ok(Form::Phases(weights.into_iter().zip(means).map(|(weight, mean)| Phase { weight, mean: *mean }).collect()))
}

fn histogram(edges: &[f64], weights: &[f64]) -> Result<Form, DistributionError> {
    length("edges", edges.len(), weights.len() + 1, "the weights")?;
    check("edges", edges[0], "no negative number", edges[0] >= 0.0)?;
    edges.windows(2).try_for_each(|pair| check("edges", pair[1], "ascending numbers", pair[1] > pair[0]))?;
    let bins = shares("weights", weights)?.into_iter().zip(edges.windows(2));
    let bins = bins.map(|(weight, edges)| Bin { low: edges[0], high: edges[1], weight });
    Ok(Form::Bins(bins.filter(|bin| bin.weight > 0.0).collect()))
}

fn sample(values: &[f64]) -> Result<Form, DistributionError> {
    if values.is_empty() {
        return Err(DistributionError::Length { name: "values", found: 0, expected: "at least 1".into() });
    }
    values.iter().try_for_each(|value| check("value", *value, "no negative number", *value >= 0.0))?;
    let weight = 1.0 / values.len() as f64;
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Ok(Form::Bins(sorted.into_iter().map(|value| Bin { low: value, high: value, weight }).collect()))
}

fn check(name: &'static str, value: f64, expected: &'static str, ok: bool) -> Result<(), DistributionError> {
    // No comparison holds for NaN, and an infinite parameter is none.
    if ok && value.is_finite() { Ok(()) } else { Err(DistributionError::Parameter { name, value, expected }) }
}

fn positive(name: &'static str, value: f64) -> Result<(), DistributionError> {
    check(name, value, "a positive number", value > 0.0)
}

/// The shares of weights that are not negative and not all 0.
fn shares(name: &'static str, weights: &[f64]) -> Result<Vec<f64>, DistributionError> {
    weights.iter().try_for_each(|weight| check(name, *weight, "no negative number", *weight >= 0.0))?;
    let sum: f64 = weights.iter().sum();
    check(name, sum, "a positive sum", sum > 0.0)?;
    Ok(weights.iter().map(|weight| weight / sum).collect())
}

fn length(name: &'static str, found: usize, expected: usize, of: &str) -> Result<(), DistributionError> {
    if found == expected {
        Ok(())
    } else {
        Err(DistributionError::Length { name, found, expected: format!("{expected} for {of}") })
    }
}

/// Running sums.
pub(super) fn running(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect()
}

/// E X and E X².
pub(super) fn moments(form: &Form) -> (f64, f64) {
    match form {
        Form::Bins(bins) => (
            bins.iter().map(|bin| bin.weight * f64::midpoint(bin.low, bin.high)).sum(),
            bins.iter()
                .map(|bin| bin.weight * (bin.low * bin.low + bin.low * bin.high + bin.high * bin.high) / 3.0)
                .sum(),
        ),
        Form::Phases(phases) => (
            phases.iter().map(|phase| phase.weight * phase.mean).sum(),
            phases.iter().map(|phase| 2.0 * phase.weight * phase.mean * phase.mean).sum(),
        ),
        Form::Gamma { shape, scale } => (shape * scale, shape * (shape + 1.0) * scale * scale),
        Form::Lognormal { mu, sigma } => ((mu + sigma * sigma / 2.0).exp(), (2.0 * mu + 2.0 * sigma * sigma).exp()),
        Form::Pareto { minimum, shape } => (
            shape * minimum / (shape - 1.0),
            if *shape > 2.0 { shape * minimum * minimum / (shape - 2.0) } else { f64::INFINITY },
        ),
        Form::Lomax { scale, shape } => (
            scale / (shape - 1.0),
            if *shape > 2.0 { 2.0 * scale * scale / ((shape - 1.0) * (shape - 2.0)) } else { f64::INFINITY },
        ),
    }
}
