//! One isolated miss: what remains of the holding time that a request meets (MODEL.md, One miss).
//!
//! Each family gives five positive sums (`survival`, two moments of min(X, t), two of (X - t)⁺), and all else
//! follows without cancellation: `k₀ = E(X-∆)⁺/S`, `Γ = (∆ E(X-∆)⁺ + E min(X,∆)²/2)/S`,
//! `T_r = E((X-∆)⁺)²/2S`.

use crate::distribution::{Bin, Distribution, Form};
use crate::quadrature;
use crate::special::{form_factor, gamma_lower, gamma_upper, growth, ln_gamma, normal};

mod bin;

/// Below this share of its largest term a difference is replaced by an integral.
const CANCELLED: f64 = 0.05;
/// e^-this is nothing.
const NOTHING: f64 = 46.0;

/// Times `t` and `limit` in seconds, from 0; what is infinite for power tails says so.
impl Distribution {
    /// p(t) in 1/s, `None` where a part of the probability sits on single values (deterministic, sample).
    #[must_use]
    pub fn density(&self, t: f64) -> Option<f64> {
        if t < 0.0 {
            return Some(0.0);
        }
        match &self.form {
            Form::Bins(bins) => bins.iter().try_fold(0.0, |sum, bin| {
                let inside = bin.low <= t && t < bin.high;
                (bin.low < bin.high).then(|| sum + if inside { bin.weight / (bin.high - bin.low) } else { 0.0 })
            }),
            Form::Phases(phases) => Some(phases.iter().map(|p| p.weight / p.mean * (-t / p.mean).exp()).sum()),
            Form::Gamma { shape, scale } => {
                let z = t / scale;
                Some(if z == 0.0 {
                    match shape.total_cmp(&1.0) {
                        std::cmp::Ordering::Less => f64::INFINITY,
                        std::cmp::Ordering::Equal => 1.0 / scale,
                        std::cmp::Ordering::Greater => 0.0,
                    }
                } else {
                    ((shape - 1.0) * z.ln() - z - ln_gamma(*shape)).exp() / scale
                })
            }
            Form::Lognormal { mu, sigma } => Some(if t == 0.0 {
                0.0
            } else {
                let x = (t.ln() - mu) / sigma;
                (-x * x / 2.0).exp() / (t * sigma * std::f64::consts::TAU.sqrt())
            }),
            Form::Pareto { minimum, shape } => {
                Some(if t < *minimum { 0.0 } else { shape / t * (minimum / t).powf(*shape) })
            }
            Form::Lomax { scale, shape } => Some(shape / (scale + t) * (-shape * (t / scale).ln_1p()).exp()),
        }
    }

    /// Q(t) = P(X > t).
    #[must_use]
    pub fn survival(&self, t: f64) -> f64 {
        if t < 0.0 {
            return 1.0;
        }
        match &self.form {
            Form::Bins(bins) => bins.iter().map(|bin| bin.weight * bin.above(t)).sum(),
            Form::Phases(phases) => phases.iter().map(|p| p.weight * (-t / p.mean).exp()).sum(),
            Form::Gamma { shape, scale } => gamma_upper(*shape, t / scale),
            Form::Lognormal { mu, sigma } => normal((mu - t.ln()) / sigma),
            Form::Pareto { minimum, shape } => {
                if t <= *minimum {
                    1.0
                } else {
                    (minimum / t).powf(*shape)
                }
            }
            Form::Lomax { scale, shape } => (-shape * (t / scale).ln_1p()).exp(),
        }
    }

    /// E min(X, t) in seconds.
    #[must_use]
    pub fn minimum(&self, t: f64) -> f64 {
        if t <= 0.0 {
            return 0.0;
        }
        if t.is_infinite() {
            return self.mean();
        }
        match &self.form {
            Form::Bins(bins) => bins.iter().map(|bin| bin.weight * bin.minimum(t)).sum(),
            Form::Phases(phases) => phases.iter().map(|p| -p.weight * p.mean * (-t / p.mean).exp_m1()).sum(),
            Form::Gamma { shape, scale } => {
                let z = t / scale;
                self.mean() * gamma_lower(shape + 1.0, z) + part(t, gamma_upper(*shape, z))
            }
            Form::Lognormal { mu, sigma } => {
                let d = |j: f64| (mu + j * sigma * sigma - t.ln()) / sigma;
                self.mean() * normal(-d(1.0)) + part(t, normal(d(0.0)))
            }
            Form::Pareto { minimum, shape } => {
                let log = (t / minimum).ln().max(0.0);
                t.min(*minimum) + minimum * log * growth((1.0 - shape) * log)
            }
            Form::Lomax { scale, shape } => {
                let log = (t / scale).ln_1p();
                scale * log * growth((1.0 - shape) * log)
            }
        }
    }

    /// E min(X, t)² in s².
    #[must_use]
    pub fn minimum_squared(&self, t: f64) -> f64 {
        if t <= 0.0 {
            return 0.0;
        }
        if t.is_infinite() {
            return self.second_moment();
        }
        match &self.form {
            Form::Bins(bins) => bins.iter().map(|bin| bin.weight * bin.minimum_squared(t)).sum(),
            Form::Phases(phases) => {
                phases.iter().map(|p| 2.0 * p.weight * p.mean * p.mean * gamma_lower(2.0, t / p.mean)).sum()
            }
            Form::Gamma { shape, scale } => {
                let z = t / scale;
                self.second_moment() * gamma_lower(shape + 2.0, z) + part(t * t, gamma_upper(*shape, z))
            }
            Form::Lognormal { mu, sigma } => {
                let d = |j: f64| (mu + j * sigma * sigma - t.ln()) / sigma;
                self.second_moment() * normal(-d(2.0)) + part(t * t, normal(d(0.0)))
            }
            Form::Pareto { minimum, shape } => {
                let (inside, log) = (t.min(*minimum), (t / minimum).ln().max(0.0));
                inside * inside + 2.0 * minimum * minimum * log * growth((2.0 - shape) * log)
            }
            Form::Lomax { scale, shape } => {
                let log = (t / scale).ln_1p();
                if log < 0.7 || *shape > 100.0 {
                    2.0 * quadrature::integral(&[0.0, t], |x| x * self.survival(x))
                } else {
                    let sum = |power: f64| log * growth((power - shape) * log);
                    2.0 * scale * scale * (sum(2.0) - sum(1.0))
                }
            }
        }
    }

    /// E (X - t)⁺ in seconds.
    #[must_use]
    pub fn excess(&self, t: f64) -> f64 {
        if t <= 0.0 {
            return self.mean();
        }
        match &self.form {
            Form::Bins(bins) => bins.iter().map(|bin| bin.weight * bin.excess(t)).sum(),
            Form::Phases(phases) => phases.iter().map(|p| p.weight * p.mean * (-t / p.mean).exp()).sum(),
            Form::Gamma { shape, scale } => {
                let whole = self.mean() * gamma_upper(shape + 1.0, t / scale);
                let found = whole - part(t, gamma_upper(*shape, t / scale));
                if found < CANCELLED * whole { gamma_excess(*shape, *scale, t, 1) } else { found }
            }
            Form::Lognormal { mu, sigma } => {
                let d = |j: f64| (mu + j * sigma * sigma - t.ln()) / sigma;
                let whole = self.mean() * normal(d(1.0));
                let found = whole - part(t, normal(d(0.0)));
                if found < CANCELLED * whole { lognormal_excess(d(0.0), *sigma, t, 1) } else { found }
            }
            Form::Pareto { minimum, shape } => {
                let beyond = minimum / (shape - 1.0) * ((1.0 - shape) * (t / minimum).ln().max(0.0)).exp();
                beyond + (minimum - t).max(0.0)
            }
            Form::Lomax { scale, shape } => scale / (shape - 1.0) * ((1.0 - shape) * (t / scale).ln_1p()).exp(),
        }
    }

    /// E ((X - t)⁺)² in s², infinite for a power tail with a shape up to 2.
    #[must_use]
    pub fn excess_squared(&self, t: f64) -> f64 {
        if t <= 0.0 || self.second_moment().is_infinite() {
            return self.second_moment();
        }
        match &self.form {
            Form::Bins(bins) => bins.iter().map(|bin| bin.weight * bin.excess_squared(t)).sum(),
            Form::Phases(phases) => phases.iter().map(|p| 2.0 * p.weight * p.mean * p.mean * (-t / p.mean).exp()).sum(),
            Form::Gamma { shape, scale } => {
                let z = t / scale;
                let whole = self.second_moment() * gamma_upper(shape + 2.0, z);
                let found = whole - part(2.0 * t * self.mean(), gamma_upper(shape + 1.0, z))
                    + part(t * t, gamma_upper(*shape, z));
                if found < CANCELLED * whole { gamma_excess(*shape, *scale, t, 2) } else { found }
            }
            Form::Lognormal { mu, sigma } => {
                let d = |j: f64| (mu + j * sigma * sigma - t.ln()) / sigma;
                let whole = self.second_moment() * normal(d(2.0));
                let found = whole - part(2.0 * t * self.mean(), normal(d(1.0))) + part(t * t, normal(d(0.0)));
                if found < CANCELLED * whole { lognormal_excess(d(0.0), *sigma, t, 2) } else { found }
            }
            Form::Pareto { minimum, shape } => {
                let start = t.max(*minimum);
                let power = ((1.0 - shape) * (start / minimum).ln()).exp();
                let beyond = 2.0 * start * minimum * power / ((shape - 1.0) * (shape - 2.0));
                let below = (minimum - t).max(0.0);
                beyond + below * (below + 2.0 * minimum / (shape - 1.0))
            }
            Form::Lomax { scale, shape } => self.second_moment() * ((2.0 - shape) * (t / scale).ln_1p()).exp(),
        }
    }

    /// S_r = E X²/2S, the mean residual time that a miss meets, in seconds; `None` if it is infinite.
    #[must_use]
    pub fn residual_mean(&self) -> Option<f64> {
        let mean = self.second_moment() / (2.0 * self.mean());
        mean.is_finite().then_some(mean)
    }

    /// k₀ = P(R > limit): the share of spins that fail when nobody competes (eq. 4).
    #[must_use]
    pub fn inefficiency(&self, limit: f64) -> f64 {
        self.excess(limit) / self.mean()
    }

    /// Γ = E min(R, limit): mean time of a spin in seconds (eq. 4), finite also where S_r is not.
    #[must_use]
    pub fn spin_time(&self, limit: f64) -> f64 {
        (part(limit, self.excess(limit)) + self.minimum_squared(limit) / 2.0) / self.mean()
    }

    /// T_r = E (R - limit)⁺ in seconds (eq. 6), not conditioned on failure; `None` if it is infinite.
    #[must_use]
    pub fn remaining(&self, limit: f64) -> Option<f64> {
        let remaining = self.excess_squared(limit) / (2.0 * self.mean());
        remaining.is_finite().then_some(remaining)
    }

    /// E(X - t | X > t) in seconds, 0 where nothing is above t.
    #[must_use]
    pub fn mean_residual(&self, t: f64) -> f64 {
        let above = self.survival(t);
        if above > 0.0 { self.excess(t) / above } else { 0.0 }
    }

    /// `∫₀^limit e^(-rate x) Q(x) dx` in seconds: the transform of section 3. `rate` in 1/s, from 0.
    #[must_use]
    pub fn transform(&self, rate: f64, limit: f64) -> f64 {
        if limit <= 0.0 {
            return 0.0;
        }
        if rate == 0.0 {
            return self.minimum(limit);
        }
        match &self.form {
            Form::Bins(bins) => bins.iter().map(|bin| bin.weight * bin.transform(rate, limit)).sum(),
            Form::Phases(phases) => phases
                .iter()
                .map(|phase| {
                    let sum = rate + 1.0 / phase.mean;
                    -phase.weight * (-sum * limit).exp_m1() / sum
                })
                .sum(),
            Form::Gamma { shape, scale } => {
                // E e^(-rate min(X, limit)), whose distance to 1 is what counts.
                let sleeping = (-rate * limit).exp() * gamma_upper(*shape, limit / scale)
                    + (-shape * (rate * scale).ln_1p()).exp() * gamma_lower(*shape, limit * (rate + 1.0 / scale));
                if sleeping > 1.0 - CANCELLED {
                    self.transform_integral(rate, 0.0, limit)
                } else {
                    (1.0 - sleeping) / rate
                }
            }
            Form::Lognormal { .. } | Form::Lomax { .. } => self.transform_integral(rate, 0.0, limit),
            Form::Pareto { minimum, .. } => {
                let flat = limit.min(*minimum);
                let beyond = if limit > flat { self.transform_integral(rate, flat, limit) } else { 0.0 };
                flat * form_factor(rate * flat) + beyond
            }
        }
    }

    fn transform_integral(&self, rate: f64, from: f64, limit: f64) -> f64 {
        // Beyond this nothing is left.
        self.weighted(from, limit.min(from + NOTHING / rate), rate, |x| (-rate * x).exp())
    }

    /// `∫₀^limit (1 - e^(-rate x)) Q(x) dx` in seconds: what competition adds to the failures; `limit` may be
    /// infinite.
    pub(crate) fn contended(&self, rate: f64, limit: f64) -> f64 {
        if limit <= 0.0 || rate == 0.0 {
            return 0.0;
        }
        match &self.form {
            Form::Bins(bins) => bins.iter().map(|bin| bin.weight * bin.contended(rate, limit)).sum(),
            Form::Phases(phases) => phases
                .iter()
                .map(|phase| {
                    let (sum, above) = (rate + 1.0 / phase.mean, (-limit / phase.mean).exp());
                    let lost = rate * phase.mean * -(-limit / phase.mean).exp_m1() + above * (-rate * limit).exp_m1();
                    phase.weight * lost / sum
                })
                .sum(),
            _ => {
                let whole = self.minimum(limit);
                let found = whole - self.transform(rate, limit);
                let weight = |x: f64| -(-rate * x).exp_m1();
                if found < CANCELLED * whole { self.weighted(0.0, limit, rate, weight) } else { found }
            }
        }
    }

    /// `∫ Q(x) g(x) dx` over `from..to` (seconds) for a g that is not negative and changes on the scale of
    /// 1/rate.
    pub(crate) fn weighted(&self, from: f64, to: f64, rate: f64, g: impl Fn(f64) -> f64) -> f64 {
        if let Form::Bins(bins) = &self.form {
            let one = |bin: &Bin| {
                let ends = quadrature::panels(from, to.min(bin.high), [bin.low, 1.0 / rate]);
                bin.weight * quadrature::integral(&ends, |x| bin.above(x) * g(x))
            };
            return bins.iter().filter(|bin| from < bin.high).map(one).sum();
        }
        let mean = self.mean();
        let to = to.min(self.end());
        let breaks = (-8..1000).map(|octave| mean * f64::from(octave).exp2()).take_while(|x| *x < to);
        let rates = (-3..6).map(|octave| f64::from(octave).exp2() / rate);
        let ends = quadrature::panels(from, to, breaks.chain(rates).chain(self.kink()));
        quadrature::integral(&ends, |x| self.survival(x) * g(x))
    }

    /// Where the density of a continuous family jumps.
    fn kink(&self) -> Option<f64> {
        if let Form::Pareto { minimum, .. } = self.form { Some(minimum) } else { None }
    }

    /// Beyond this the probability, and the mean time, is nothing: 1e-20 of it.
    pub(crate) fn end(&self) -> f64 {
        match &self.form {
            Form::Bins(bins) => bins.last().map_or(0.0, |bin| bin.high),
            Form::Phases(phases) => NOTHING * phases.iter().fold(0.0, |end, phase| phase.mean.max(end)),
            Form::Gamma { shape, scale } => scale * (shape + 10.0 * shape.sqrt() + 2.0 * NOTHING),
            Form::Lognormal { mu, sigma } => (mu + sigma * (9.5 + 2.0 * sigma)).exp(),
            Form::Pareto { minimum: scale, shape } | Form::Lomax { scale, shape } => {
                scale * (NOTHING / (shape - 1.0)).min(600.0).exp()
            }
        }
    }

    /// P(nobody spins at a release) = E e^(-rate min(X, limit)), when attempts come at `rate` (1/s).
    #[must_use]
    pub fn unattended(&self, rate: f64, limit: f64) -> f64 {
        1.0 - rate * self.transform(rate, limit)
    }
}

/// A share of a time that may be infinite when the share is 0.
fn part(time: f64, share: f64) -> f64 {
    if share == 0.0 { 0.0 } else { time * share }
}

/// E ((X - t)⁺)^power of a gamma time far in its tail, where the closed form cancels.
fn gamma_excess(shape: f64, scale: f64, t: f64, power: i32) -> f64 {
    let z = t / scale;
    let exponent = |u: f64| (shape - 1.0) * (u / z).ln_1p() - u;
    let mut end = 64.0;
    while exponent(end) > -NOTHING {
        end *= 2.0;
    }
    let integral = quadrature::integral(&[0.0, end], |u| u.powi(power) * exponent(u).exp());
    scale.powi(power) * ((shape - 1.0) * z.ln() - z - ln_gamma(shape)).exp() * integral
}

/// The same of a lognormal time; `d` is the distance of t below the median, in σ.
fn lognormal_excess(d: f64, sigma: f64, t: f64, power: i32) -> f64 {
    let end = (d + f64::from(power) * sigma).max(0.0) + 10.0;
    let density = |v: f64| (-(v - d) * (v - d) / 2.0).exp() / std::f64::consts::TAU.sqrt();
    t.powi(power) * quadrature::integral(&[0.0, end], |v| (sigma * v).exp_m1().powi(power) * density(v))
}
