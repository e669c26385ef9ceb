//! Mean waits of the open system (MODEL.md, Waits).

use crate::distribution::Distribution;
use crate::error::{ModelError, from_zero, positive, share, steady};
use crate::spin;

/// Mean wait of a get and what it is made of. Times in seconds, all per get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waits {
    /// M: attempts that found the mutex busy.
    pub misses: f64,
    /// W: all.
    pub wait: f64,
    /// W_s: its spin part.
    pub spinning: f64,
    /// W_orb: its sleep part.
    pub sleeping: f64,
    /// Sleeps.
    pub sleeps: f64,
    /// W_o: what the wait interface registers, all but first spins.
    pub registered: f64,
    /// w_o: the same per registered wait; `None` if there are none.
    pub per_registered: Option<f64>,
}

/// What a mutex with random spins and sleeps is described by, however k and Γ were found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Orbit {
    /// ρ, from 0, below 1.
    pub utilization: f64,
    /// k, 0 to 1.
    pub inefficiency: f64,
    /// Γ in seconds.
    pub spin_time: f64,
    /// S_r in seconds.
    pub residual_mean: f64,
    /// T in seconds.
    pub sleep: f64,
}

impl Orbit {
    /// k of the open system with sleeps much longer than S, and Γ without competition.
    ///
    /// # Errors
    /// No steady state, an infinite S_r, a parameter out of range.
    pub fn new(holding: &Distribution, limit: f64, rate: f64, sleep: f64) -> Result<Self, ModelError> {
        let attempts = spin::open(holding, limit, rate)?;
        let orbit = Self {
            utilization: rate * holding.mean(),
            inefficiency: attempts.inefficiency,
            spin_time: holding.spin_time(limit),
            residual_mean: holding.residual_mean().ok_or(ModelError::InfiniteMoment)?,
            sleep,
        };
        orbit.check()?;
        Ok(orbit)
    }

    fn check(&self) -> Result<(), ModelError> {
        steady(self.utilization)?;
        share("inefficiency", self.inefficiency)?;
        from_zero("spin_time", self.spin_time)?;
        positive("residual_mean", self.residual_mean)?;
        from_zero("sleep", self.sleep)?;
        if self.sleep == 0.0 { positive("spin_time, as there is no sleep,", self.spin_time) } else { Ok(()) }
    }

    /// The wait with exponential sleeps after every failed spin, exact for the true k and Γ:
    /// `M = ρ(T + S_r)/(T(1 - kρ) + (1 - ρ)Γ)`, `W = (kT + Γ)M`.
    ///
    /// # Errors
    /// No steady state, a parameter out of range.
    pub fn waits(&self) -> Result<Waits, ModelError> {
        self.check()?;
        let Self { utilization: rho, inefficiency: k, spin_time, residual_mean, sleep } = *self;
        let misses = rho * (sleep + residual_mean) / (sleep * (1.0 - k * rho) + (1.0 - rho) * spin_time);
        Ok(self.with(misses, spin_time * misses, k * sleep * misses))
    }

    /// The paper's (11)–(14): misses by a geometric number of retries, which is right for T much longer than
    /// S_r only.
    ///
    /// `W_s = ρΓ/(1 - kρ)`, `W_orb = k/(1 - kρ) [ρ(T + S_r) - (1 - ρ)W_s]`.
    ///
    /// # Errors
    /// No steady state, a parameter out of range.
    pub fn waits_paper(&self) -> Result<Waits, ModelError> {
        self.check()?;
        let Self { utilization: rho, inefficiency: k, spin_time, residual_mean, sleep } = *self;
        let misses = rho / (1.0 - k * rho);
        let spinning = spin_time * misses;
        let sleeping = k / (1.0 - k * rho) * (rho * (sleep + residual_mean) - (1.0 - rho) * spinning);
        Ok(self.with(misses, spinning, sleeping))
    }

    fn with(&self, misses: f64, spinning: f64, sleeping: f64) -> Waits {
        // All but the first spins of fresh misses; first spins as the difference would cancel for small k.
        let registered = sleeping + (spinning - self.utilization * self.spin_time).max(0.0);
        let registrations = self.inefficiency * self.utilization;
        Waits {
            misses,
            wait: spinning + sleeping,
            spinning,
            sleeping,
            sleeps: self.inefficiency * misses,
            registered,
            per_registered: (registrations > 0.0).then(|| registered / registrations),
        }
    }
}

/// The busy-time identity (the paper's 13): `W = (ρ S_r + W_idle)/(1 - ρ)`, for any scheme with Poisson
/// arrivals.
///
/// `idle_wait`: mean wait per get while the mutex was free; 0 gives the wait of the M/G/1 queue. Seconds.
///
/// # Errors
/// No steady state, a parameter out of range.
pub fn identity(utilization: f64, residual_mean: f64, idle_wait: f64) -> Result<f64, ModelError> {
    steady(utilization)?;
    positive("residual_mean", residual_mean)?;
    from_zero("idle_wait", idle_wait)?;
    Ok((utilization * residual_mean + idle_wait) / (1.0 - utilization))
}
