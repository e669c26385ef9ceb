//! Figures of a mutex from its counters (the paper's table 4).

use crate::error::{ModelError, allowed, from_zero, positive, share};

/// What the counters of an interval say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// λ: gets; 1/s.
    pub rate: f64,
    /// ω: sleeps; 1/s.
    pub sleep_rate: f64,
    /// S: mean holding time in seconds.
    pub holding_time: f64,
    /// κ: sleeps by fresh misses.
    pub sleep_ratio: f64,
    /// k: failed spins by attempts that found the mutex busy.
    pub inefficiency: f64,
    /// Standard error of the utilization, where the number of samples is known.
    pub utilization_error: Option<f64>,
}

/// Table 4: `λ = gets/t`, `ω = sleeps/t`, `S = U/λ`, `κ = sleeps/(U gets)`, `k = κ/(1 + κU)`.
///
/// Increments of gets and sleeps over `time` seconds, and the utilization U: the share of samples that found
/// the mutex held. Every failed spin must be followed by a counted sleep that is long against S_r: off by 0.3
/// % at T = 1000 S, 3 % at 100 S, 24 % at 10 S. The standard error of U is that of `samples` independent
/// ones.
///
/// # Errors
/// Counters or a time that are not positive, a utilization outside 0 to 1, fewer than 1 sample.
pub fn figures(
    gets: f64,
    sleeps: f64,
    time: f64,
    utilization: f64,
    samples: Option<f64>,
) -> Result<Figures, ModelError> {
    positive("gets", gets)?;
    from_zero("sleeps", sleeps)?;
    positive("time", time)?;
    positive("utilization", utilization)?;
    share("utilization", utilization)?;
    if let Some(samples) = samples {
        allowed("samples", samples, "a number from 1", samples >= 1.0)?;
    }
    let sleep_ratio = sleeps / (utilization * gets);
    Ok(Figures {
        rate: gets / time,
        sleep_rate: sleeps / time,
        holding_time: utilization * time / gets,
        sleep_ratio,
        inefficiency: inefficiency(sleep_ratio, utilization)?,
        utilization_error: samples.map(|samples| (utilization * (1.0 - utilization) / samples).sqrt()),
    })
}

/// κ from k: `κ = k/(1 - kρ)`.
///
/// # Errors
/// k or ρ outside 0 to 1, or both 1: every retry fails then.
pub fn sleep_ratio(inefficiency: f64, utilization: f64) -> Result<f64, ModelError> {
    share("inefficiency", inefficiency)?;
    share("utilization", utilization)?;
    let product = inefficiency * utilization;
    if product < 1.0 {
        Ok(inefficiency / (1.0 - product))
    } else {
        Err(ModelError::NoSteadyState { utilization, limit: 1.0 })
    }
}

/// k from κ: `k = κ/(1 + κρ)`.
///
/// # Errors
/// A negative κ, ρ outside 0 to 1.
pub fn inefficiency(sleep_ratio: f64, utilization: f64) -> Result<f64, ModelError> {
    from_zero("sleep_ratio", sleep_ratio)?;
    share("utilization", utilization)?;
    Ok(sleep_ratio / (1.0 + sleep_ratio * utilization))
}
