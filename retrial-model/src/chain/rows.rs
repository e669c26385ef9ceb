//! The rows of the chain: how many sessions sleep at the next acquisition, by how many sleep at this one.

use super::holding::{Point, Thinker, power, times};
use crate::special::ln_factorial;

/// From one number of sleepers at an acquisition to the next.
pub(super) struct Row {
    /// Probability of one less.
    pub(super) down: f64,
    /// By d: probability of more than d more.
    pub(super) above: Vec<f64>,
    /// Mean idle time.
    pub(super) idle: f64,
    /// Probability that nobody spins at the release.
    pub(super) unattended: f64,
    /// And that a sleeper is then the first.
    pub(super) orbit_first: f64,
}

/// The rows of the open chain, in order.
pub(super) struct OpenRows {
    rate: f64,
    wake: f64,
    /// By requests in a holding time: their probability.
    requests: Vec<f64>,
    /// By holding time: b, its power so far, and by requests the weight with which all of them sleep at its
    /// end.
    points: Vec<(f64, f64, Vec<f64>)>,
    sleepers: usize,
}

impl OpenRows {
    pub(super) fn new(points: &[Point], rate: f64, wake: f64, arrivals: usize) -> Self {
        let mut requests = vec![0.0; arrivals + 1];
        let points = points.iter().map(|point| {
            let poisson = |mean: f64, a: usize| (times(a, mean.ln()) - rate * point.x - ln_factorial(a)).exp();
            for (a, sum) in requests.iter_mut().enumerate() {
                *sum += point.weight * poisson(rate * point.x, a);
            }
            let mut asleep: Vec<f64> =
                (0..=arrivals).map(|a| point.weight * poisson(rate * point.fresh_asleep, a)).collect();
            let some = asleep.iter().rposition(|weight| *weight > 1e-25).map_or(0, |last| last + 1);
            asleep.truncate(some);
            (point.asleep, 1.0, asleep)
        });
        let points = points.collect();
        Self { rate, wake, requests, points, sleepers: 0 }
    }

    pub(super) fn next(&mut self) -> Row {
        let mut alone = vec![0.0; self.requests.len()];
        for (share, power, weights) in &mut self.points {
            for (sum, weight) in alone.iter_mut().zip(weights.iter()) {
                *sum += *power * weight;
            }
            *power *= *share;
        }
        let (mut idle, mut orbit_first) = (0.0, 0.0);
        // above[d] = Σ first[a > d] + Σ rest[a > d + 1].
        let mut above = vec![0.0; alone.len()];
        let (mut firsts, mut rests, mut rest_before) = (0.0, 0.0, 0.0);
        let mut down = 0.0;
        for a in (0..alone.len()).rev() {
            let total = self.rate + (self.sleepers + a) as f64 * self.wake;
            let first = alone[a] * self.rate / total;
            let rest = (self.requests[a] - first).max(0.0);
            idle += alone[a] / total;
            orbit_first += alone[a] - first;
            above[a] = firsts + rests;
            firsts += first;
            rests += rest_before;
            rest_before = rest;
            down = rest;
        }
        let row = Row {
            // With no sleeper and no request only the next request can come.
            down: if self.sleepers == 0 { 0.0 } else { down },
            above,
            idle,
            unattended: alone.iter().sum(),
            orbit_first,
        };
        self.sleepers += 1;
        row
    }
}

/// The rows of the closed chain of `sessions` sessions.
pub(super) struct ClosedRows {
    points: Vec<(Point, Thinker)>,
    sessions: usize,
    think: f64,
    wake: f64,
}

impl ClosedRows {
    pub(super) fn new(points: Vec<Point>, limit: f64, sessions: usize, think: f64, wake: f64) -> Self {
        let thinks = |point: Point| {
            let thinker = Thinker::new(point.x, limit, think, wake);
            (point, thinker)
        };
        Self { points: points.into_iter().map(thinks).collect(), sessions, think, wake }
    }

    /// Mean over the holding times.
    pub(super) fn mean(&self, f: impl Fn(&Point, &Thinker) -> f64) -> f64 {
        self.points.iter().map(|(point, thinker)| point.weight * f(point, thinker)).sum()
    }

    /// Of `sleepers` at an acquisition.
    pub(super) fn row(&self, sleepers: usize) -> Row {
        let thinkers = self.sessions - 1 - sleepers;
        let (all, alone) = self.still_thinking(sleepers, thinkers);
        // above[d]: probability of more than d - 1 sleepers more at the next acquisition.
        let mut above = vec![0.0; thinkers + 2];
        let (mut down, mut idle, mut orbit_first) = (0.0, 0.0, 0.0);
        for j in 0..=thinkers {
            let thinking = (j as f64 + 1.0) / self.think;
            let rate = thinking + (self.sessions - 1 - j) as f64 * self.wake;
            let first = alone[j] * thinking / rate;
            idle += alone[j] / rate;
            orbit_first += alone[j] - first;
            above[thinkers - j] += first;
            if thinkers > j {
                above[thinkers - j - 1] += all[j] - first;
            } else {
                down += all[j] - first;
            }
        }
        for d in (0..=thinkers).rev() {
            above[d] += above[d + 1];
        }
        Row { down, above: above.split_off(1), idle, unattended: alone.iter().sum(), orbit_first }
    }

    /// By the number of `thinkers` that still think at the release: the probability, in all cases and in
    /// those without a spinner.
    fn still_thinking(&self, sleepers: usize, thinkers: usize) -> (Vec<f64>, Vec<f64>) {
        let (mut all, mut alone) = (vec![0.0; thinkers + 1], vec![0.0; thinkers + 1]);
        for (point, thinker) in &self.points {
            let sleeping = point.weight * power(point.asleep, sleepers);
            for j in 0..=thinkers {
                let ways = ln_factorial(thinkers) - ln_factorial(j) - ln_factorial(thinkers - j);
                let ways = ways - thinker.rate_time * j as f64;
                all[j] += point.weight * (ways + times(thinkers - j, thinker.left.ln())).exp();
                alone[j] += sleeping * (ways + times(thinkers - j, thinker.asleep.ln())).exp();
            }
        }
        (all, alone)
    }
}
