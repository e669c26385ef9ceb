//! Discipline A exactly: at a release one of the spinners gets the mutex, the others sleep (MODEL.md, Exact
//! chain).
//!
//! At an acquisition no session spins, so with exponential sleeps the number of sleepers at acquisitions is a
//! Markov chain for any holding time. It goes down by one at most, and so its stationary probabilities follow
//! from the flow over each level: sums of positive terms only.

use crate::distribution::Distribution;
use crate::error::{ModelError, allowed, from_zero, positive, steady};
use holding::{Point, points, twice};
use rows::{ClosedRows, OpenRows};

mod holding;
mod rows;

pub(crate) use holding::{requests, share_asleep, times};

/// Sleepers at an acquisition.
const STATES: usize = 50_000;
/// Requests during one holding time.
const ARRIVALS: usize = 4_000;
/// Sessions of a closed system.
const SESSIONS: usize = 1_000;
/// Probabilities below this, relative to the largest, are nothing.
const NOTHING: f64 = 1e-18;

/// What the chain says, per get; times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// k: failed spins by attempts that found the mutex busy.
    pub inefficiency: f64,
    /// Γ: mean time of a spin.
    pub spin_time: f64,
    /// M: attempts that found the mutex busy.
    pub misses: f64,
    /// Sleeps.
    pub sleeps: f64,
    /// W: spins and sleeps.
    pub wait: f64,
    /// W_s: spins.
    pub spinning: f64,
    /// W_idle: part of the sleeps while the mutex is free; of an open system.
    pub idle_wait: f64,
    /// Mean number of sleepers at an acquisition.
    pub sleepers: f64,
    /// Gets per second.
    pub throughput: f64,
}

/// The open system: fresh requests at `rate` (1/s, Poisson), spin limit and mean exponential sleep in
/// seconds.
///
/// Exact for any holding time with a finite second moment. A limit of 0 is the classical M/G/1 retrial queue.
///
/// # Errors
/// No steady state from ρ = 1 on, an infinite second moment, more than 50,000 sleepers or 4,000 requests in
/// one holding time.
pub fn open(holding: &Distribution, limit: f64, rate: f64, sleep: f64) -> Result<Steady, ModelError> {
    from_zero("limit", limit)?;
    positive("rate", rate)?;
    positive("sleep", sleep)?;
    steady(rate * holding.mean())?;
    holding.residual_mean().ok_or(ModelError::InfiniteMoment)?;
    let points = points(holding, limit, 1.0 / sleep);
    // Holding times that have no probability need no count of their requests.
    let longest = points.iter().filter(|point| point.weight > 1e-17).fold(0.0, |max, point| point.x.max(max));
    let arrivals = rate * longest + 12.0 * (rate * longest + 1.0).sqrt() + 20.0;
    if arrivals > ARRIVALS as f64 {
        return Err(ModelError::TooLarge {
            what: "requests during one holding time",
            found: arrivals,
            limit: ARRIVALS,
        });
    }
    let mut rows = OpenRows::new(&points, rate, 1.0 / sleep, arrivals as usize);
    let mut chain = Levels::default();
    let (mut idle, mut unattended, mut orbit_first) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let row = rows.next();
        idle.push(row.idle);
        unattended.push(row.unattended);
        orbit_first.push(row.orbit_first);
        if chain.push(row.down, row.above) {
            break;
        }
        if idle.len() == STATES {
            return Err(ModelError::TooLarge { what: "sleepers", found: STATES as f64 + 1.0, limit: STATES });
        }
    }
    let levels = chain.probabilities();
    let mean = |values: &[f64]| levels.iter().zip(values).map(|(p, value)| p * value).sum::<f64>();
    let sleepers = levels.iter().enumerate().map(|(i, p)| p * i as f64).sum::<f64>();
    let over = |f: &dyn Fn(&Point) -> f64| points.iter().map(|point| point.weight * f(point)).sum::<f64>();
    let asleep = over(&|point| point.asleep_time);
    // Two times in sleep after a first spin: of requests that came in the first x - ∆ of a holding time.
    let fresh = over(&|point| twice(point.x - limit, limit, 1.0 / sleep));
    let misses = rate * holding.mean() + rate * fresh / sleep + sleepers * asleep / sleep;
    let spinning = rate * (holding.second_moment() / 2.0 - fresh) + sleepers * (holding.mean() - asleep);
    // Where no spin lasts, what is left of the differences is rounding.
    let spinning = spinning.clamp(0.0, limit * misses);
    let sleeps = misses - 1.0 + mean(&unattended);
    Ok(Steady {
        inefficiency: sleeps / misses,
        spin_time: spinning / misses,
        misses,
        sleeps,
        wait: spinning + sleep * sleeps,
        spinning,
        idle_wait: sleep * mean(&orbit_first),
        sleepers,
        throughput: 1.0 / (holding.mean() + mean(&idle)),
    })
}

/// The closed system: `sessions` that think for an exponential time of mean `think`, each with a processor of
/// its own.
///
/// Exact for any holding time; times in seconds.
///
/// # Errors
/// A number of sessions that is not whole, or above 1,000; times out of range.
pub fn closed(holding: &Distribution, limit: f64, sessions: f64, think: f64, sleep: f64) -> Result<Steady, ModelError> {
    from_zero("limit", limit)?;
    positive("think", think)?;
    positive("sleep", sleep)?;
    allowed("sessions", sessions, "a whole number from 1", sessions >= 1.0 && sessions.fract() == 0.0)?;
    if sessions > SESSIONS as f64 {
        return Err(ModelError::TooLarge { what: "sessions", found: sessions, limit: SESSIONS });
    }
    let n = sessions as usize;
    let wake = 1.0 / sleep;
    let rows = ClosedRows::new(points(holding, limit, wake), limit, n, think, wake);
    let thinker_misses = rows.mean(|_, thinker| thinker.left + wake * thinker.asleep_time);
    let thinker_spins = rows.mean(|point, thinker| point.x - think * thinker.left - thinker.asleep_time);
    let asleep = rows.mean(|point, _| point.asleep_time);
    let busy = rows.mean(|point, _| point.x);
    let mut chain = Levels::default();
    let (mut idle, mut unattended, mut orbit_first) = (Vec::new(), Vec::new(), Vec::new());
    let (mut misses, mut spins) = (Vec::new(), Vec::new());
    for i in 0..n {
        let row = rows.row(i);
        idle.push(row.idle);
        orbit_first.push(row.orbit_first);
        unattended.push(row.unattended);
        let thinkers = (n - 1 - i) as f64;
        misses.push(thinkers * thinker_misses + i as f64 * wake * asleep);
        spins.push(thinkers * thinker_spins + i as f64 * (busy - asleep));
        chain.push(row.down, row.above);
    }
    let levels = chain.probabilities();
    let mean = |values: &[f64]| levels.iter().zip(values).map(|(p, value)| p * value).sum::<f64>();
    let misses = mean(&misses);
    if !misses.is_finite() {
        return Err(ModelError::Overflow { name: "misses", value: misses });
    }
    let sleeps = (misses - 1.0 + mean(&unattended)).max(0.0);
    let spinning = mean(&spins).clamp(0.0, limit * misses);
    let ratio = |value: f64| if misses > 0.0 { value / misses } else { 0.0 };
    let throughput = 1.0 / (holding.mean() + mean(&idle));
    Ok(Steady {
        inefficiency: ratio(sleeps),
        spin_time: ratio(spinning),
        misses,
        sleeps,
        wait: spinning + sleep * sleeps,
        spinning,
        idle_wait: sleep * mean(&orbit_first),
        sleepers: levels.iter().enumerate().map(|(i, p)| p * i as f64).sum(),
        throughput,
    })
}

/// Stationary probabilities of a chain that goes down by one at most.
#[derive(Default)]
struct Levels {
    weights: Vec<f64>,
    above: Vec<Vec<f64>>,
    sum: f64,
    flow: f64,
}

impl Levels {
    /// Adds the next state. True when all others are improbable.
    fn push(&mut self, down: f64, above: Vec<f64>) -> bool {
        let level = if self.weights.is_empty() { 1.0 } else { self.flow / down };
        self.weights.push(level);
        self.sum += level;
        self.above.push(above);
        let last = self.weights.len() - 1;
        // Upwards over this level, from each state that reaches as far.
        self.flow = (0..=last)
            .rev()
            .map_while(|j| (last - j < ARRIVALS.max(SESSIONS)).then(|| (j, self.above[j].get(last - j))))
            .map(|(j, above)| self.weights[j] * above.copied().unwrap_or(0.0))
            .sum();
        if self.sum > 1e250 {
            // The first states are as nothing beside the later ones.
            let scale = 1.0 / self.sum;
            self.weights.iter_mut().for_each(|level| *level *= scale);
            (self.sum, self.flow) = (1.0, self.flow * scale);
        }
        let weight = (last + 1) as f64;
        level * weight < NOTHING * self.sum && self.flow * weight < NOTHING * self.sum
    }

    fn probabilities(&self) -> Vec<f64> {
        self.weights.iter().map(|level| level / self.sum).collect()
    }
}
