//! What happens in one holding time: which sessions ask, which sleep at its end, and for how long.

use super::NOTHING;
use crate::distribution::Distribution;
use crate::quadrature::{nodes, panels};
use crate::special::{gamma_lower, ln_factorial};

/// A holding time of the sum that stands for its distribution, and what happens in it.
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) weight: f64,
    /// b(x): a sleeper at its begin sleeps at its end.
    pub(super) asleep: f64,
    /// ∫₀ˣ b.
    pub(super) asleep_time: f64,
    /// ∫ b over 0 to x - ∆: the same for requests that come during it, by their rate.
    pub(super) fresh_asleep: f64,
}

pub(super) fn points(holding: &Distribution, limit: f64, wake: f64) -> Vec<Point> {
    let breaks: Vec<f64> = (0..9).map(|j| limit * f64::from(j).max(0.5)).filter(|x| *x > 0.0).collect();
    let point = |(x, weight)| {
        let (asleep, asleep_time) = asleep(x, limit, wake);
        Point { x, weight, asleep, asleep_time, fresh_asleep: self::asleep(x - limit, limit, wake).1 }
    };
    holding.nodes(&breaks).into_iter().map(point).collect()
}

/// b(x) and its integral from 0: the share of time asleep of a session that sleeps at 0 while the mutex stays
/// busy.
///
/// After j spins that failed: `b(x) = Σ_j [ν(x - j∆)]^j/j! e^(-ν(x - j∆))`.
fn asleep(x: f64, limit: f64, wake: f64) -> (f64, f64) {
    if x <= 0.0 {
        return (1.0, 0.0);
    }
    if limit == 0.0 {
        return (1.0, x);
    }
    let (mut share, mut time) = (0.0, 0.0);
    for j in 0_u32.. {
        let z = wake * (x - f64::from(j) * limit);
        if z < 0.0 {
            break;
        }
        share += (times(j as usize, z.ln()) - z - ln_factorial(j as usize)).exp();
        let part = gamma_lower(f64::from(j) + 1.0, z);
        time += part;
        if f64::from(j) > z && part < NOTHING * time {
            break;
        }
    }
    (share, time / wake)
}

/// b(x) alone.
pub(crate) fn share_asleep(x: f64, limit: f64, wake: f64) -> f64 {
    // After n rounds of a sleep and a spin the ends of sleeps are spread over √n T; once that is two rounds,
    // how it began is forgotten to e^(-8π²).
    let round = 1.0 / wake + limit;
    let (rounds, share) = (x / round, 1.0 / (wake * round));
    if rounds > 100.0 && rounds * share * share > 4.0 {
        return share;
    }
    let (mut share, mut before) = (0.0, 0.0);
    for j in 0_u32.. {
        let z = wake * (x - f64::from(j) * limit);
        if z < 0.0 || (f64::from(j) > z && before < NOTHING * share) {
            break;
        }
        before = (times(j as usize, z.ln()) - z - ln_factorial(j as usize)).exp();
        share += before;
    }
    share
}

/// Times at which a session that thinks at 0 asks, before `rest`, with their probabilities: what follows
/// until then is smooth between.
pub(crate) fn requests(rest: f64, limit: f64, think: f64, wake: f64) -> Vec<(f64, f64)> {
    if rest <= 0.0 {
        return Vec::new();
    }
    let kinks = (1..40).map(|j| rest - f64::from(j) * limit);
    let scales = (-2..6).map(|octave| f64::from(octave).exp2());
    let breaks = kinks.chain(scales.flat_map(|scale| [scale * think, rest - scale / wake]));
    nodes(&panels(0.0, rest, breaks)).map(|(u, width)| (u, (-u / think).exp() / think * width)).collect()
}

/// ∫₀^y of the integral of b.
pub(super) fn twice(y: f64, limit: f64, wake: f64) -> f64 {
    if y <= 0.0 {
        return 0.0;
    }
    if limit == 0.0 {
        return y * y / 2.0;
    }
    let mut sum = 0.0;
    for j in 0_u32.. {
        let (u, order) = (y - f64::from(j) * limit, f64::from(j) + 1.0);
        if u <= 0.0 {
            break;
        }
        let part = u * gamma_lower(order, wake * u) - order / wake * gamma_lower(order + 1.0, wake * u);
        sum += part;
        if f64::from(j) > wake * u && part < NOTHING * sum {
            break;
        }
    }
    sum / wake
}

/// n ln x, which is 0 for n = 0 whatever x is.
pub(crate) fn times(n: usize, ln: f64) -> f64 {
    if n == 0 { 0.0 } else { n as f64 * ln }
}

pub(super) fn power(x: f64, n: usize) -> f64 {
    times(n, x.ln()).exp()
}

/// What becomes of a session that thinks at the begin of a holding time.
pub(super) struct Thinker {
    /// x/Z.
    pub(super) rate_time: f64,
    /// Probability that it has asked.
    pub(super) left: f64,
    /// Probability that it sleeps at the end.
    pub(super) asleep: f64,
    /// Mean time asleep in the holding time.
    pub(super) asleep_time: f64,
}

impl Thinker {
    pub(super) fn new(x: f64, limit: f64, think: f64, wake: f64) -> Self {
        let (mut share, mut time) = (0.0, 0.0);
        let rest = x - limit;
        for (u, density) in requests(rest, limit, think, wake) {
            let (asleep, asleep_time) = asleep(rest - u, limit, wake);
            share += density * asleep;
            time += density * asleep_time;
        }
        Self { rate_time: x / think, left: -(-x / think).exp_m1(), asleep: share, asleep_time: time }
    }
}
