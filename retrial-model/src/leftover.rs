//! Losers of a release that spin on to their own limit (discipline B; MODEL.md, Spins against others).
//!
//! What competes at a release are the requests of this holding time and the leftovers of earlier ones. There
//! is no closed form: a mean field takes the number of competitors as Poisson and finds the mean leftover
//! with which it reproduces itself.

use crate::distribution::Distribution;
use crate::error::{ModelError, allowed, from_zero, positive, steady};
use crate::special::{lag, ramp};

/// Cells of the spin limit.
const CELLS: usize = 300;
/// Steps of the search for the mean field.
const STEPS: usize = 1_000;

/// Attempts of an open system whose losers spin on, in its steady state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpinningOn {
    /// Λ: fresh requests and retries; 1/s.
    pub attempt_rate: f64,
    /// k: failed spins by attempts that found the mutex busy.
    pub inefficiency: f64,
    /// Γ: mean time of a spin in seconds, over all holding times that it lasts.
    pub spin_time: f64,
    /// ℓ: mean number of spinners left after an acquisition.
    pub leftover: f64,
}

/// k to the first order in Λ: `k₀ + Λ/2S E[Y ∫ Q from ∆ - Y to ∆]`, Y = min(X, ∆).
///
/// `attempt_rate` in 1/s, `limit` in seconds, from 0. Within 1 % where k₀ dominates (ρ up to 0.1, ∆ up to S);
/// of no use where k₀ goes to 0.
///
/// # Errors
/// A limit or rate that is negative or not finite.
pub fn linear(holding: &Distribution, limit: f64, attempt_rate: f64) -> Result<f64, ModelError> {
    from_zero("limit", limit)?;
    from_zero("attempt_rate", attempt_rate)?;
    let kinks = holding.kinks();
    let breaks: Vec<f64> = kinks.iter().flat_map(|x| [*x, limit - x]).chain([limit]).filter(|x| *x > 0.0).collect();
    let beyond = holding.excess(limit);
    // The integral of Q as a difference of excesses: both are small where it is.
    let lost = |x: f64| x.min(limit) * (holding.excess(limit - x.min(limit)) - beyond);
    let lost: f64 = holding.nodes(&breaks).into_iter().map(|(x, weight)| weight * lost(x)).sum();
    Ok(holding.inefficiency(limit) + attempt_rate * lost / (2.0 * holding.mean()))
}

/// The open system with fresh requests at `rate` (1/s), sleeps much longer than S and spread: a mean field.
///
/// `m(x) = ℓ s(x) + Λ min(x,∆)` competitors at a release after x, s the share of leftovers that still spin.
/// Off by up to 1.4 % in k for ∆ up to S, 4.6 % up to 2 S, 8 % up to 5 S for holding times that vary at least
/// as an exponential one.
///
/// # Errors
/// No steady state from ρ = 1 on; a limit above 5 S, or above 2 S for times that vary less than exponential
/// ones, where it fails (Erlang-4 at 5 S: -30 %); a mean field that does not settle.
pub fn open(holding: &Distribution, limit: f64, rate: f64) -> Result<SpinningOn, ModelError> {
    positive("limit", limit)?;
    positive("rate", rate)?;
    let mean = holding.mean();
    let utilization = rate * mean;
    steady(utilization)?;
    // What a computation has brought to the border is not beyond it.
    let longest = mean * (1.0 + 1e-9);
    if holding.second_moment() < (2.0 - 1e-9) * mean * mean {
        allowed("limit", limit, "at most twice the mean of a holding time so regular", limit <= 2.0 * longest)?;
    }
    allowed("limit", limit, "at most 5 mean holding times", limit <= 5.0 * longest)?;
    let grid = Grid::new(holding, limit);
    let mut field = Field { inefficiency: holding.inefficiency(limit), left: 0.0, seen: 0.0, survival: vec![] };
    field.survival = grid.cells.iter().map(|cell| 1.0 - cell.at / limit).collect();
    for _ in 0..STEPS {
        let attempt_rate = rate / (1.0 - field.inefficiency * utilization);
        let (next, spin_time) = grid.next(&field, attempt_rate);
        let change = (next.inefficiency - field.inefficiency).abs() + (next.left - field.left).abs();
        if change + (next.seen - field.seen).abs() < 1e-11 {
            let (inefficiency, leftover) = (next.inefficiency, next.left);
            return Ok(SpinningOn { attempt_rate, inefficiency, spin_time, leftover });
        }
        let half = |a: f64, b: f64| f64::midpoint(a, b);
        field = Field {
            inefficiency: half(field.inefficiency, next.inefficiency),
            left: half(field.left, next.left),
            seen: half(field.seen, next.seen),
            survival: next.survival,
        };
    }
    Err(ModelError::NotSettled { what: "the mean number of leftovers", steps: STEPS })
}

/// What one sweep takes from the sweep before.
struct Field {
    inefficiency: f64,
    /// ℓ: mean leftover after any acquisition.
    left: f64,
    /// The same as a loser sees it: others that lost with it.
    seen: f64,
    /// s by cells: share of leftovers that still spin at a release.
    survival: Vec<f64>,
}

/// The holding times up to the limit, by cells of the same length.
struct Grid {
    step: f64,
    mean: f64,
    limit: f64,
    cells: Vec<Cell>,
    /// At the ends of the cells: Q and k₀.
    above: Vec<f64>,
    alone: Vec<f64>,
}

/// Holding times within a cell: their probability, at the mean of them.
struct Cell {
    weight: f64,
    at: f64,
}

impl Grid {
    fn new(holding: &Distribution, limit: f64) -> Self {
        let step = limit / CELLS as f64;
        let ends: Vec<f64> = (0..=CELLS).map(|i| i as f64 * step).collect();
        let mut above: Vec<f64> = ends.iter().map(|x| holding.survival(*x)).collect();
        above[0] = 1.0;
        let cell = |i: usize| {
            let weight = above[i] - above[i + 1];
            let (from, to) = (ends[i], ends[i + 1]);
            let time = from * above[i] - to * above[i + 1] + holding.minimum(to) - holding.minimum(from);
            // Of next to nothing the mean is only rounding.
            let at = if weight > 1e-9 { (time / weight).clamp(from, to) } else { f64::midpoint(from, to) };
            Cell { weight, at }
        };
        let cells = (0..CELLS).map(cell).collect();
        let alone = ends.iter().map(|x| holding.inefficiency(*x)).collect();
        Self { step, mean: holding.mean(), limit, cells, above, alone }
    }

    /// The field that follows from a field, and Γ.
    fn next(&self, field: &Field, rate: f64) -> (Field, f64) {
        let (tail, tail_others) = (self.above[CELLS], rate * self.limit);
        let others = |before: f64| {
            let cells = self.cells.iter().zip(&field.survival);
            cells.map(move |(cell, survival)| before * survival + rate * cell.at).collect::<Vec<f64>>()
        };
        let (met, met_again) = (others(field.left), others(field.seen));
        // A release has Poisson many spinners, one of which gets it: E(n - 1)⁺ are left.
        let each = || self.cells.iter().zip(&met);
        let left = each().map(|(cell, m)| cell.weight * left(*m)).sum::<f64>() + tail * left(tail_others);
        // Requests meet holding times by their length; beyond the limit they must come in its last part.
        let met_by = |f: &dyn Fn(f64) -> f64| {
            each().map(|(cell, m)| cell.weight * cell.at * f(*m)).sum::<f64>() + tail * self.limit * f(tail_others)
        };
        let lost = met_by(&lose);
        let seen = if lost > 0.0 { (met_by(&left_with) / lost).max(0.0) } else { 0.0 };

        let again: Vec<f64> = self.cells.iter().zip(met_again).map(|(cell, m)| cell.weight * lose(m)).collect();
        let on = self.renewed(&again);
        // ∫ over each cell of 1/S P(release after t, lost).
        let mut beyond = tail * lose(tail_others);
        let mut losses = vec![0.0; CELLS];
        for (i, (cell, m)) in each().enumerate().rev() {
            let here = cell.weight * lose(*m);
            losses[i] = (beyond * self.step + here * (cell.at - i as f64 * self.step)) / self.mean;
            beyond += here;
        }
        let spins = |j: usize| {
            let after = (0..j).map(|i| losses[i] * f64::midpoint(on[j - i], on[j - i - 1]));
            self.alone[j] + after.sum::<f64>()
        };
        let spins: Vec<f64> = (0..=CELLS).map(spins).collect();
        let mut time = vec![0.0; CELLS + 1];
        for j in 0..CELLS {
            time[j + 1] = time[j] + f64::midpoint(spins[j], spins[j + 1]) * self.step;
        }
        let spin_time = time[CELLS];
        let survival = self.cells.iter().map(|cell| self.between(&time, self.limit - cell.at) / spin_time).collect();
        (Field { inefficiency: spins[CELLS], left, seen, survival }, spin_time)
    }

    /// By ends of cells: a loser still spins, when it loses the release of a cell with the probability in
    /// `again`.
    fn renewed(&self, again: &[f64]) -> Vec<f64> {
        let mut on = vec![1.0; CELLS + 1];
        for j in 1..=CELLS {
            let (mut known, mut own) = (self.above[j], 0.0);
            for (i, again) in again[..j].iter().enumerate() {
                // The rest of the time after a release in cell i ends between j - i - 1 and j - i.
                let share = self.cells[i].at / self.step - i as f64;
                known += again * share * on[j - i - 1];
                if i == 0 {
                    own = again * (1.0 - share);
                } else {
                    known += again * (1.0 - share) * on[j - i];
                }
            }
            on[j] = known / (1.0 - own);
        }
        on
    }

    /// A value between those at the ends of the cells.
    fn between(&self, values: &[f64], x: f64) -> f64 {
        let place = (x / self.step).clamp(0.0, CELLS as f64);
        let i = (place as usize).min(CELLS - 1);
        values[i] + (values[i + 1] - values[i]) * (place - i as f64)
    }
}

/// 1 - F₁(m): a spinner loses a release against Poisson many others with the mean m.
fn lose(m: f64) -> f64 {
    m * ramp(m)
}

/// E(n - 1)⁺ of a Poisson number with the mean m.
fn left(m: f64) -> f64 {
    m * m * ramp(m)
}

/// E[(n - 1) n/(n + 1)] of a Poisson number with the mean m: others left with a spinner that lost.
fn left_with(m: f64) -> f64 {
    2.0 * m * lag(m)
}
