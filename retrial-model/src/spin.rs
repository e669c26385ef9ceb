//! Spins against others: form factors, k at a rate of attempts, k of an open system (MODEL.md, Concurrency).

use crate::distribution::Distribution;
use crate::error::{ModelError, allowed, from_zero, positive, share, steady};
use crate::root::root;
use crate::special::{form_factor, form_factor_paper, ramp};

/// Attempts of an open system in its steady state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attempts {
    /// Λ: fresh requests and retries; 1/s.
    pub attempt_rate: f64,
    /// k: failed spins by attempts that found the mutex busy.
    pub inefficiency: f64,
    /// κ: sleeps by fresh misses.
    pub sleep_ratio: f64,
    /// P(nobody spins at a release).
    pub unattended: f64,
}

/// k of attempts that come at random at `attempt_rate` (1/s), when the losers of a release sleep (discipline
/// A).
///
/// `k_A = k₀ + 1/S ∫₀^∆ (1 - e^(-Λx)) Q(x) dx`, which is `1 - L(Λ,∆)/S`: the paper's (8)–(10) with the form
/// factor of a tagged request. Exact for Poisson attempts. `limit` in seconds from 0.
///
/// # Errors
/// A limit or rate that is negative or not finite.
pub fn inefficiency(holding: &Distribution, limit: f64, attempt_rate: f64) -> Result<f64, ModelError> {
    from_zero("limit", limit)?;
    from_zero("attempt_rate", attempt_rate)?;
    Ok((holding.excess(limit) + holding.contended(attempt_rate, limit)) / holding.mean())
}

/// The floor of k under discipline A that no spin limit goes below: `1 - (1 - E e^(-ΛX))/(ΛS)`.
///
/// # Errors
/// A rate that is negative or not finite.
pub fn floor(holding: &Distribution, attempt_rate: f64) -> Result<f64, ModelError> {
    from_zero("attempt_rate", attempt_rate)?;
    Ok(holding.contended(attempt_rate, f64::INFINITY) / holding.mean())
}

/// k as the paper has it (eq. 9, with its form factor and the rate of fresh requests).
///
/// `k = k₀ + 1/S ∫₀^∆ Q(x) d/dx[x (1 - F_c(λx))] dx`. Too small by half of its contention part; for
/// comparison.
///
/// # Errors
/// A limit or rate that is negative or not finite.
pub fn inefficiency_paper(holding: &Distribution, limit: f64, rate: f64) -> Result<f64, ModelError> {
    from_zero("limit", limit)?;
    from_zero("rate", rate)?;
    // d/dx[x (1 - F_c(y))] at y = λx, without the difference.
    let slope = |x: f64| {
        let y = rate * x;
        form_factor_paper(y) * y * ramp(y) / form_factor(y)
    };
    Ok(holding.inefficiency(limit) + holding.weighted(0.0, limit, rate, slope) / holding.mean())
}

/// The linear law `k ≈ k₀ + a ρ/(2S²) E min(X,∆)²`: `a` is 1, and 1/2 for the paper's form factor.
///
/// Only for Λ min(∆, S) far below 1: up to +18 % at ρ = 0.05, +37 % at 0.1.
///
/// # Errors
/// A negative limit or a utilization outside 0 to 1.
pub fn inefficiency_linear(holding: &Distribution, limit: f64, utilization: f64, a: f64) -> Result<f64, ModelError> {
    from_zero("limit", limit)?;
    steady(utilization)?;
    from_zero("a", a)?;
    let (mean, squared) = (holding.mean(), holding.minimum_squared(limit));
    Ok(holding.inefficiency(limit) + a * utilization * squared / (2.0 * mean * mean))
}

/// The open system with fresh requests at `rate` (1/s): Λ with `Λ = λ/(1 - kρ)`, `k = k_A(∆; Λ)`.
///
/// The limit of long sleeps with any spread much wider than S: k is within 1.7 S_r/T of the exact one for T ≥
/// 10 S.
///
/// # Errors
/// No steady state from ρ = 1 on; a limit or rate out of range.
pub fn open(holding: &Distribution, limit: f64, rate: f64) -> Result<Attempts, ModelError> {
    from_zero("limit", limit)?;
    positive("rate", rate)?;
    let utilization = rate * holding.mean();
    steady(utilization)?;
    let idle = 1.0 - utilization;
    let balance = |attempts: f64| attempts * idle + rate * (attempts * holding.transform(attempts, limit) - 1.0);
    let attempt_rate = root(rate, rate / idle, balance);
    let inefficiency = inefficiency(holding, limit, attempt_rate)?;
    Ok(Attempts {
        attempt_rate,
        inefficiency,
        sleep_ratio: inefficiency / (1.0 - inefficiency * utilization),
        unattended: attempt_rate * idle / rate,
    })
}

/// Spins of one miss at a multiple of a spin limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaled {
    /// k₀ at the multiple.
    pub inefficiency: f64,
    /// What Γ grows by; seconds.
    pub more_time: f64,
    /// τ of the tail; seconds.
    pub tail: f64,
}

/// The scaling rule: `k₀(n∆) = C (k₀/C)ⁿ` and `Γ(n∆) - Γ(∆) = τ(k₀ - k₀(n∆))`, where the tail of X is
/// exponential from ∆ on.
///
/// With `k₀ = C e^(-∆/τ)` measured at `limit` (seconds); C = 1 for an exponential time: a double limit
/// squares k₀. This is without competition: under it k does not fall below its [`floor`].
///
/// # Errors
/// A limit or k₀ that is not positive, C not above k₀, a factor below 1.
pub fn scaled(inefficiency: f64, limit: f64, factor: f64, constant: f64) -> Result<Scaled, ModelError> {
    positive("limit", limit)?;
    positive("k0", inefficiency)?;
    share("k0", inefficiency)?;
    allowed("constant", constant, "a number above k0", constant > inefficiency)?;
    allowed("factor", factor, "a number from 1", factor >= 1.0)?;
    let falls = (constant / inefficiency).ln();
    let tail = limit / falls;
    let lost = -(falls * (1.0 - factor)).exp_m1();
    let scaled = inefficiency * (falls * (1.0 - factor)).exp();
    Ok(Scaled { inefficiency: scaled, more_time: tail * inefficiency * lost, tail })
}
