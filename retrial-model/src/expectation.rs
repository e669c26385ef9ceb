//! Nodes and weights for means over a distribution: E g(X) as a sum.

use crate::distribution::{Distribution, Form};
use crate::quadrature::{nodes, panels};

/// Weights below this are nothing.
const NOTHING: f64 = 1e-22;
/// e^-this is nothing, too.
const FAR: f64 = 46.0;

impl Distribution {
    /// (value, weight) such that `E g(X) = Σ weight g(value)` for functions that are smooth between `breaks`
    /// (seconds).
    ///
    /// Each family in the variable in which its density is smooth: the logarithm of a gamma time, the normal
    /// one of a lognormal.
    pub(crate) fn nodes(&self, breaks: &[f64]) -> Vec<(f64, f64)> {
        let mut found = Vec::new();
        match &self.form {
            Form::Bins(bins) => {
                for bin in bins {
                    if bin.low == bin.high {
                        found.push((bin.low, bin.weight));
                    } else {
                        let density = bin.weight / (bin.high - bin.low);
                        let ends = panels(bin.low, bin.high, breaks.iter().copied());
                        found.extend(nodes(&ends).map(|(x, width)| (x, density * width)));
                    }
                }
            }
            Form::Phases(phases) => {
                for phase in phases {
                    let ends = panels(0.0, FAR, octaves(32.0).chain(breaks.iter().map(|x| x / phase.mean)));
                    found.extend(nodes(&ends).map(|(w, width)| (w * phase.mean, phase.weight * (-w).exp() * width)));
                }
            }
            Form::Gamma { shape, scale } => {
                let top = (shape + 10.0 * shape.sqrt() + 2.0 * FAR).ln();
                let bottom = shape.ln() - (2.0 * FAR / shape).sqrt() - FAR / shape - 1.0;
                let fine = (1.5 / shape.sqrt()).min(1.0);
                // Below, the density is e^(shape v), and a function of e^v is constant.
                let mut ends = vec![];
                let mut end = top;
                while end > bottom {
                    ends.push(end);
                    end -= if end > -6.0 { fine } else { (2.0 / shape).max(fine) };
                }
                let ends = panels(bottom, top, ends.into_iter().chain(breaks.iter().map(|x| (x / scale).ln())));
                let peak = crate::special::ln_gamma(*shape);
                let density = |v: f64| (shape * v - v.exp() - peak).exp();
                found.extend(nodes(&ends).map(|(v, width)| (v.exp() * scale, density(v) * width)));
            }
            Form::Lognormal { mu, sigma } => {
                let step = (1.0 / sigma).min(1.0);
                let (bottom, top) = (-9.5, 9.5 + 2.0 * sigma);
                let ends = (1..).map(|i| bottom + f64::from(i) * step).take_while(|end| *end < top);
                let ends = panels(bottom, top, ends.chain(breaks.iter().map(|x| (x.ln() - mu) / sigma)));
                let density = |v: f64| (-v * v / 2.0).exp() / std::f64::consts::TAU.sqrt();
                found.extend(nodes(&ends).map(|(v, width)| ((mu + sigma * v).exp(), density(v) * width)));
            }
            Form::Pareto { minimum: scale, shape } | Form::Lomax { scale, shape } => {
                let from_zero = matches!(self.form, Form::Lomax { .. });
                // The mean must be met, too: E X beyond the end is as nothing.
                let top = FAR * shape / (shape - 1.0);
                let step = (shape / 2.0).min(4.0);
                let ends = (1..).map(|i| f64::from(i) * step).take_while(|end| *end < top);
                let place = |x: &f64| shape * if from_zero { (x / scale).ln_1p() } else { (x / scale).ln() };
                let ends = panels(0.0, top, ends.chain(octaves(step)).chain(breaks.iter().map(place)));
                let value = |w: f64| scale * if from_zero { (w / shape).exp_m1() } else { (w / shape).exp() };
                found.extend(nodes(&ends).map(|(w, width)| (value(w), (-w).exp() * width)));
            }
        }
        found.retain(|(x, weight)| weight * (1.0 + x / self.mean()) > NOTHING);
        found
    }

    /// Where the density jumps or single values have a probability; in seconds.
    pub(crate) fn kinks(&self) -> Vec<f64> {
        match &self.form {
            Form::Bins(bins) => bins.iter().flat_map(|bin| [bin.low, bin.high]).collect(),
            Form::Pareto { minimum, .. } => vec![*minimum],
            _ => Vec::new(),
        }
    }
}

/// Halves down from `top`, for what changes quickly near 0.
fn octaves(top: f64) -> impl Iterator<Item = f64> {
    (0..14).map(move |octave| top * f64::from(-octave).exp2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_over_nodes_are_those_of_the_closed_forms() {
        for text in [
            "deterministic:mean=1us",
            "exponential:mean=3s",
            "erlang:stages=40,mean=1us",
            "gamma:shape=0.05,mean=1us",
            "gamma:shape=2.5,mean=1us",
            "gamma:shape=5000,mean=1us",
            "hyperexponential:probabilities=1/2,means=1ns/1ms",
            "lognormal:median=1us,sigma=0.1",
            "lognormal:median=1us,sigma=2.5",
            "pareto:minimum=1us,shape=2.5",
            "pareto:minimum=1us,shape=1.3",
            "lomax:scale=1us,shape=3",
            "uniform:low=0,high=2us",
            "histogram:edges=0/1us/3us/9us,weights=5/0/2",
            "sample:values=3us/1us/1us",
        ] {
            let dist: Distribution = text.parse().unwrap();
            for limit in [0.01, 0.6, 1.7, 30.0].map(|limit| limit * dist.mean()) {
                let nodes = dist.nodes(&[limit]);
                let mean = |g: &dyn Fn(f64) -> f64| nodes.iter().map(|(x, weight)| weight * g(*x)).sum::<f64>();
                let rate = 2.0 / dist.mean();
                for (found, expected) in [
                    (mean(&|_| 1.0), 1.0),
                    (mean(&|x| x), dist.mean()),
                    (mean(&|x| x.min(limit)), dist.minimum(limit)),
                    (mean(&|x| (-rate * x.min(limit)).exp()), dist.unattended(rate, limit)),
                ] {
                    assert!((found / expected - 1.0).abs() < 1e-11, "{text} {limit:e}: {found:e} {expected:e}");
                }
            }
        }
    }
}
