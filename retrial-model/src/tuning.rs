//! The best spin limit and the best number of hot copies (MODEL.md, Tuning).

use crate::distribution::{Distribution, Form};
use crate::error::{ModelError, allowed, from_zero, positive, share};
use crate::root::root;
use crate::spin;
use crate::wait::Orbit;

/// Points of the search on a logarithmic scale; a minimum between two that both are higher would be missed.
const GRID: usize = 600;
/// Bins that are searched one by one.
const BINS: usize = 5_000;
/// Copies that are tried.
const COPIES: usize = 100_000;

/// A spin limit and what a miss costs with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimum {
    /// Seconds; `None`: spin until the mutex is free.
    pub limit: Option<f64>,
    /// Γ + b k in seconds.
    pub cost: f64,
    /// Without any spin: b.
    pub cost_without: f64,
}

/// Mean cost of one miss in units of 1 + c: `Γ(∆) + b k(∆)` seconds, k at `attempt_rate` (1/s; 0: without
/// competition).
///
/// # Errors
/// A limit, b or rate that is negative or not finite.
pub fn cost(holding: &Distribution, limit: f64, b: f64, attempt_rate: f64) -> Result<f64, ModelError> {
    from_zero("b", b)?;
    Ok(holding.spin_time(limit) + b * spin::inefficiency(holding, limit, attempt_rate)?)
}

/// The spin limit with the least [`cost`]: spin on while `m(∆) e^(Λ∆) < b`, m the mean residual holding time.
///
/// `b` is the cost of going to sleep in seconds: `(T + c c_sw)/(1 + c)` with a sleep T, the CPU time c_sw of
/// two switches and the price c of a CPU second against one of waiting; `c_sw + L_w/c` where the releaser
/// wakes the sleeper within L_w.
///
/// # Errors
/// b not positive, a negative rate, a histogram or sample of more than 5,000 bins.
pub fn limit(holding: &Distribution, b: f64, attempt_rate: f64) -> Result<Optimum, ModelError> {
    positive("b", b)?;
    from_zero("attempt_rate", attempt_rate)?;
    let mut best = Optimum { limit: Some(0.0), cost: b, cost_without: b };
    let mut see = |limit: Option<f64>, cost: f64| {
        // Nearly equal costs: the first one, with less CPU time.
        if cost < best.cost * (1.0 - 1e-13) {
            (best.limit, best.cost) = (limit, cost);
        }
    };
    for limit in turning_points(holding, b, attempt_rate)? {
        see(Some(limit), cost(holding, limit, b, attempt_rate)?);
    }
    let end = holding.end();
    match &holding.form {
        // Spinning to the longest is spinning to the end.
        Form::Bins(_) => see(Some(end), cost(holding, end, b, attempt_rate)?),
        _ => {
            if let Some(residual_mean) = holding.residual_mean() {
                see(None, residual_mean + b * spin::floor(holding, attempt_rate)?);
            }
        }
    }
    Ok(best)
}

/// Where the cost changes from falling to rising.
fn turning_points(holding: &Distribution, b: f64, attempt_rate: f64) -> Result<Vec<f64>, ModelError> {
    let excess = |x: f64| {
        let above = holding.survival(x);
        let growth = (attempt_rate * x).min(700.0).exp();
        if above > 0.0 { holding.excess(x) / above * growth - b } else { -b }
    };
    if let Form::Bins(bins) = &holding.form {
        if bins.len() > BINS {
            return Err(ModelError::TooLarge { what: "bins", found: bins.len() as f64, limit: BINS });
        }
        let mut points = Vec::new();
        for bin in bins {
            points.extend([bin.low, bin.high]);
            let inside = bin.high - (bin.high - bin.low) * 1e-9;
            if excess(bin.low) < 0.0 && excess(inside) >= 0.0 {
                points.push(root(bin.low, inside, excess));
            }
        }
        return Ok(points);
    }
    if let (Form::Phases(phases), true) = (&holding.form, attempt_rate > 0.0)
        && let [only] = phases.as_slice()
    {
        return Ok(if b > only.mean { vec![(b / only.mean).ln() / attempt_rate] } else { Vec::new() });
    }
    if let (Form::Lomax { scale, shape }, true) = (&holding.form, attempt_rate == 0.0) {
        return Ok(vec![((shape - 1.0) * b - scale).max(0.0)]);
    }
    if let (Form::Pareto { minimum, shape }, true) = (&holding.form, attempt_rate == 0.0) {
        return Ok(vec![*minimum, ((shape - 1.0) * b).max(*minimum)]);
    }
    // To the last bits of m: beyond 1e-12 above the end nothing is left to decide.
    let (low, high) = (holding.mean() * 1e-6, holding.end());
    let ratio = (high / low).powf(1.0 / GRID as f64);
    let grid: Vec<f64> = (0..=GRID).map(|i| low * ratio.powi(i as i32)).collect();
    let crossings = grid.windows(2).filter(|pair| excess(pair[0]) < 0.0 && excess(pair[1]) >= 0.0);
    Ok(crossings.map(|pair| root(pair[0], pair[1], excess)).collect())
}

/// A number of copies and what it costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Copies {
    /// Of the continuous optimum, or the whole number where it was searched.
    pub best: f64,
    /// The best whole number.
    pub copies: f64,
    /// Mean number of waiting sessions at the whole number, and the cost of the copies in the same unit.
    pub cost: f64,
}

/// The number of equal copies with the least `λ W(ρ/m) + c m` for `W(r) = a r/(1 - b r)`:
/// `m* = bρ + √(λaρ/c)`.
///
/// `a` in seconds; M/G/1: a = S_r, b = 1; retrial with a frozen k: a = kT + Γ, b = k. `copy_cost` in waiting
/// sessions per copy.
///
/// # Errors
/// Parameters out of range; b above 1.
pub fn copies(rate: f64, utilization: f64, a: f64, b: f64, copy_cost: f64) -> Result<Copies, ModelError> {
    positive("rate", rate)?;
    positive("utilization", utilization)?;
    positive("a", a)?;
    share("b", b)?;
    positive("copy_cost", copy_cost)?;
    let best = b * utilization + (rate * a * utilization / copy_cost).sqrt();
    // Each copy needs a steady state.
    let least = if utilization < 1.0 { 1.0 } else { utilization.floor() + 1.0 };
    let cost = |m: f64| rate * a * utilization / (m - b * utilization) + copy_cost * m;
    let (floor, ceil) = (best.floor().max(least), best.ceil().max(least));
    let copies = if cost(floor) <= cost(ceil) { floor } else { ceil };
    Ok(Copies { best, copies, cost: cost(copies) })
}

/// What a mutex with copies does, all copies together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shared {
    /// ρ of each copy.
    pub utilization: f64,
    /// k of each copy.
    pub inefficiency: f64,
    /// Sleeps per second of all copies.
    pub sleep_rate: f64,
    /// Mean wait of a get in seconds.
    pub wait: f64,
    /// Mean number of waiting sessions of all copies.
    pub waiting: f64,
}

/// The open system with `copies` of a mutex, equal shares; a share `all` of the requests takes every copy (0:
/// none).
///
/// Each copy has `λ((1 - f)/m + f)` with its own k: it falls with the copies, so that a frozen k asks for too
/// many of them.
///
/// # Errors
/// No steady state of a copy, an infinite S_r, a parameter out of range.
pub fn shared(
    holding: &Distribution,
    limit: f64,
    rate: f64,
    sleep: f64,
    copies: f64,
    all: f64,
) -> Result<Shared, ModelError> {
    positive("rate", rate)?;
    allowed("copies", copies, "a whole number from 1", copies >= 1.0 && copies.fract() == 0.0)?;
    share("all", all)?;
    let one = rate * ((1.0 - all) / copies + all);
    let orbit = Orbit::new(holding, limit, one, sleep)?;
    let waits = orbit.waits()?;
    Ok(Shared {
        utilization: orbit.utilization,
        inefficiency: orbit.inefficiency,
        sleep_rate: copies * one * waits.sleeps,
        wait: waits.wait,
        waiting: copies * one * waits.wait,
    })
}

/// What a mutex with copies of unequal shares does, all copies together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unequal {
    /// ρ of the busiest copy.
    pub utilization: f64,
    /// Sleeps per second of all copies.
    pub sleep_rate: f64,
    /// Mean wait of a get in seconds.
    pub wait: f64,
    /// Mean number of waiting sessions of all copies.
    pub waiting: f64,
    /// 1/Σ w²: as many equal copies would do the same at low load.
    pub copies: f64,
}

/// The open system with copies that take the `shares` of the requests (scaled to a sum of 1): `Σ λ w W(ρ w)`.
///
/// # Errors
/// No steady state of a copy, an infinite S_r, no positive share, a parameter out of range.
pub fn unequal(
    holding: &Distribution,
    limit: f64,
    rate: f64,
    sleep: f64,
    shares: &[f64],
) -> Result<Unequal, ModelError> {
    positive("rate", rate)?;
    shares.iter().try_for_each(|share| from_zero("share", *share))?;
    let sum: f64 = shares.iter().sum();
    positive("sum of the shares", sum)?;
    let mut all = Unequal { utilization: 0.0, sleep_rate: 0.0, wait: 0.0, waiting: 0.0, copies: 0.0 };
    let mut squares = 0.0;
    for share in shares.iter().map(|share| share / sum).filter(|share| *share > 0.0) {
        let orbit = Orbit::new(holding, limit, rate * share, sleep)?;
        let waits = orbit.waits()?;
        all.utilization = all.utilization.max(orbit.utilization);
        all.sleep_rate += rate * share * waits.sleeps;
        all.wait += share * waits.wait;
        squares += share * share;
    }
    all.waiting = rate * all.wait;
    all.copies = 1.0 / squares;
    Ok(all)
}

/// The number of copies with the least cost `λW + c m`, with the k that each number of copies has.
///
/// `copy_cost` in waiting sessions per copy.
///
/// # Errors
/// As for [`shared`]; more than 100,000 copies.
pub fn best_copies(
    holding: &Distribution,
    limit: f64,
    rate: f64,
    sleep: f64,
    all: f64,
    copy_cost: f64,
) -> Result<Copies, ModelError> {
    positive("copy_cost", copy_cost)?;
    let mut best: Option<Copies> = None;
    for copies in (1..=COPIES).map(|copies| copies as f64) {
        if let Some(best) = best
            && copy_cost * copies > best.cost
        {
            return Ok(best);
        }
        match shared(holding, limit, rate, sleep, copies, all) {
            Ok(shared) => {
                let cost = shared.waiting + copy_cost * copies;
                if best.is_none_or(|best| cost < best.cost) {
                    best = Some(Copies { best: copies, copies, cost });
                }
            }
            // With more copies each has less to do, unless all are taken by each request.
            Err(ModelError::NoSteadyState { .. }) if rate * all * holding.mean() < 1.0 => {}
            Err(error) => return Err(error),
        }
    }
    Err(ModelError::TooLarge { what: "copies", found: COPIES as f64 + 1.0, limit: COPIES })
}

/// A spin limit for an unknown holding time at the place `quantile` (0 to 1) of its random law:
/// `b ln(1 + u(e - 1))` seconds.
///
/// Drawn with a uniform u it costs at most e/(e - 1) of what a clairvoyant pays; b itself (u = 1) at most
/// twice.
///
/// # Errors
/// b not positive, a quantile outside 0 to 1.
pub fn unknown(b: f64, quantile: f64) -> Result<f64, ModelError> {
    positive("b", b)?;
    share("quantile", quantile)?;
    Ok(b * (quantile * (std::f64::consts::E - 1.0)).ln_1p())
}
