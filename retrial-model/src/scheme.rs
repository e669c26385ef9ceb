//! Wait schemes in the open system: yields before the first sleep, growing sleeps (MODEL.md, Schemes).

use crate::distribution::Distribution;
use crate::error::{ModelError, allowed, from_zero, positive, share, steady};
use crate::spin;

/// The first spins of a miss, up to the first sleep, and the later attempts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prefix {
    /// ρ, below 1.
    pub utilization: f64,
    /// k_c: all first spins fail.
    pub all_fail: f64,
    /// Γ_c: their mean duration in seconds, with the yields between them.
    pub duration: f64,
    /// k of later attempts.
    pub inefficiency: f64,
    /// Γ of later attempts in seconds.
    pub spin_time: f64,
    /// S_r in seconds.
    pub residual_mean: f64,
    /// T in seconds.
    pub sleep: f64,
}

impl Prefix {
    /// `yields` yields of `yield_time` seconds before the first sleep, at low load:
    /// `k_c = k₀((c + 1)∆ + c y)`.
    ///
    /// With yields a rival's first spins are not counted: low ρ. Without yields it is the wait of the open
    /// system.
    ///
    /// # Errors
    /// No steady state, an infinite S_r, parameters out of range.
    pub fn new(
        holding: &Distribution,
        limit: f64,
        rate: f64,
        sleep: f64,
        yields: f64,
        yield_time: f64,
    ) -> Result<Self, ModelError> {
        whole("yields", yields)?;
        from_zero("yield_time", yield_time)?;
        let attempts = spin::open(holding, limit, rate)?;
        let span = (yields + 1.0) * limit + yields * yield_time;
        Ok(Self {
            utilization: rate * holding.mean(),
            all_fail: if yields == 0.0 { attempts.inefficiency } else { holding.inefficiency(span) },
            duration: holding.spin_time(span),
            inefficiency: attempts.inefficiency,
            spin_time: holding.spin_time(limit),
            residual_mean: holding.residual_mean().ok_or(ModelError::InfiniteMoment)?,
            sleep,
        })
    }

    /// `W_c = ρ [(Γ_c + k_c T)(T + Γ) + (Γ + kT)(S_r - Γ_c)]/(T(1 - kρ) + Γ(1 - ρ))` in seconds.
    ///
    /// Exact for exponential sleeps, given the true k_c, Γ_c, k and Γ.
    ///
    /// # Errors
    /// No steady state, parameters out of range.
    pub fn wait(&self) -> Result<f64, ModelError> {
        let Self { utilization, all_fail, duration, inefficiency: k, spin_time, residual_mean, sleep } = *self;
        steady(utilization)?;
        share("all_fail", all_fail)?;
        share("k", k)?;
        from_zero("spin_time", spin_time)?;
        from_zero("duration", duration)?;
        positive("residual_mean", residual_mean)?;
        positive("sleep", sleep)?;
        let first = (duration + all_fail * sleep) * (sleep + spin_time);
        let later = (spin_time + k * sleep) * (residual_mean - duration);
        Ok(utilization * (first + later) / (sleep * (1.0 - k * utilization) + spin_time * (1.0 - utilization)))
    }

    /// Sleeps per get when they are long: `ρ k_c/(1 - kρ)`.
    #[must_use]
    pub fn sleeps(&self) -> f64 {
        self.utilization * self.all_fail / (1.0 - self.inefficiency * self.utilization)
    }
}

/// The paper's wait with c yields before the sleep: `kρ/(1 - kρ) (k^c T + T_r)` seconds; 0: patch 6904068, 1
/// and 2 the schemes.
///
/// T_r in seconds as `remaining`. Off by -53 to +36 % with the right k.
///
/// # Errors
/// No steady state, parameters out of range.
pub fn wait_paper(
    utilization: f64,
    inefficiency: f64,
    remaining: f64,
    sleep: f64,
    yields: f64,
) -> Result<f64, ModelError> {
    steady(utilization)?;
    share("k", inefficiency)?;
    from_zero("remaining", remaining)?;
    from_zero("sleep", sleep)?;
    whole("yields", yields)?;
    let product = inefficiency * utilization;
    Ok(product / (1.0 - product) * (inefficiency.powf(yields) * sleep + remaining))
}

/// Growing sleeps `T₁, T₂, …` (seconds, each longer than S_r, the last for ever):
/// `W ≈ ρ k_c Σ (kρ)^(i-1) T_i`.
///
/// # Errors
/// No sleeps, no steady state, parameters out of range.
pub fn wait_backoff(utilization: f64, all_fail: f64, inefficiency: f64, sleeps: &[f64]) -> Result<f64, ModelError> {
    steady(utilization)?;
    share("all_fail", all_fail)?;
    share("k", inefficiency)?;
    allowed("sleeps", sleeps.len() as f64, "at least 1", !sleeps.is_empty())?;
    sleeps.iter().try_for_each(|sleep| from_zero("sleep", *sleep))?;
    let retry = inefficiency * utilization;
    let (mut sum, mut reach) = (0.0, 1.0);
    for sleep in sleeps {
        sum += reach * sleep;
        reach *= retry;
    }
    sum += reach / (1.0 - retry) * sleeps[sleeps.len() - 1];
    Ok(utilization * all_fail * sum)
}

pub(crate) fn whole(name: &'static str, value: f64) -> Result<(), ModelError> {
    allowed(name, value, "a whole number from 0", value >= 0.0 && value.fract() == 0.0)
}
