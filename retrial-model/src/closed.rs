//! Closed systems: N sessions that think, get, hold and release (MODEL.md, Closed systems).

use crate::distribution::Distribution;
use crate::error::{ModelError, allowed, from_zero, positive};
use crate::root::root;
use crate::special::gamma_upper;
use crate::spin;

/// Sessions of a recursion.
const SESSIONS: usize = 100_000;
/// Steps of the search for the share of parked holders.
const STEPS: usize = 4_000;

/// Sessions and their mean think time in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Population {
    /// N, from 1; the population that runs at one time need not be whole.
    pub sessions: f64,
    /// Z in seconds.
    pub think: f64,
    /// Whether sessions think away from the processors, as in a sleep or a call: without one, and no slower
    /// where they are too few.
    pub away: bool,
}

/// A closed system in its steady state; times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Closed {
    /// Gets per second.
    pub throughput: f64,
    /// Share of time that the mutex is held.
    pub utilization: f64,
    /// Mean wait of a get.
    pub wait: f64,
    /// Share of gets that find the mutex busy.
    pub misses: f64,
    /// Sleeps or parks per get.
    pub sleeps: f64,
    /// Yields per get.
    pub yields: f64,
    /// Mean number of sessions that run or want to.
    pub runnable: f64,
}

impl Population {
    fn check(self) -> Result<(), ModelError> {
        allowed("sessions", self.sessions, "a number from 1", self.sessions >= 1.0)?;
        from_zero("think", self.think)?;
        if self.sessions > SESSIONS as f64 {
            return Err(ModelError::TooLarge { what: "sessions", found: self.sessions, limit: SESSIONS });
        }
        Ok(())
    }

    /// Sessions that run or want to, where a get has them run for so many seconds.
    pub(crate) fn runnable(self, throughput: f64, running: f64) -> f64 {
        throughput * if self.away { running } else { self.think + running }
    }

    /// In the time of a system that runs g times as slow.
    #[must_use]
    pub fn slowed(self, g: f64) -> Self {
        if self.away { Self { think: self.think / g, ..self } } else { self }
    }

    fn whole(self) -> Result<(), ModelError> {
        self.check()?;
        allowed("sessions", self.sessions, "a whole number", self.sessions.fract() == 0.0)
    }
}

/// Spins and yields for ever (10g; scheme 0 while its 99 yields last): `W_n = U_(n-1) S_r + S L_(n-1)`,
/// `X_n = n/(Z + S + W_n)`.
///
/// A processor for each session. `limit` and `yield_time` in seconds give the yields per get, roughly. Exact
/// for exponential times; X at most 8 % too high for more regular ones, 12 % too low for a squared variation
/// of 5, from 2 to 32 sessions.
///
/// # Errors
/// Parameters out of range, an infinite S_r.
pub fn spinning(
    holding: &Distribution,
    limit: f64,
    population: Population,
    yield_time: f64,
) -> Result<Closed, ModelError> {
    population.check()?;
    from_zero("limit", limit)?;
    from_zero("yield_time", yield_time)?;
    let (mean, residual) = (holding.mean(), holding.residual_mean().ok_or(ModelError::InfiniteMoment)?);
    let Population { sessions, think, .. } = population;
    // What an arrival sees: utilization and queue of the population with one session less, between whole ones
    // in proportion.
    let (mut seen, mut state) = ((0.0, 0.0), (0.0, 0.0));
    let (mut wait, mut throughput) = (0.0, 0.0);
    let whole = sessions.floor();
    let parts = (sessions > whole).then_some(sessions);
    for n in (1..=whole as usize).map(|n| n as f64).chain(parts) {
        let arrival: (f64, f64) = if n.fract() == 0.0 {
            state
        } else {
            let share = n - whole;
            (seen.0 + (state.0 - seen.0) * share, seen.1 + (state.1 - seen.1) * share)
        };
        wait = arrival.0 * residual + mean * arrival.1;
        throughput = n / (think + mean + wait);
        if throughput * mean > 1.0 {
            throughput = 1.0 / mean;
            wait = n * mean - think - mean;
        }
        seen = arrival;
        state = (throughput * mean, throughput * wait);
    }
    let misses = seen.0;
    let round = holding.spin_time(limit) + yield_time;
    let attempts = if round > 0.0 { (wait + misses * yield_time) / round } else { misses };
    Ok(Closed {
        throughput,
        utilization: throughput * mean,
        wait,
        misses,
        sleeps: 0.0,
        yields: (attempts - misses).max(0.0),
        runnable: population.runnable(throughput, mean + wait),
    })
}

/// Pure spin without yields on fewer processors than sessions, in turns: a preempted holder keeps all others
/// waiting.
///
/// A holder loses its processor with the probability S/q and is away for (N - C)q/C, whatever the turn q:
/// `X = X_C/(1 + U_C (N - C)/C)`. X 6 to 16 % too low at N/C from 1.5 to 3.
///
/// # Errors
/// Fewer than 1 processor, parameters out of range, an infinite S_r.
pub fn preempted(
    holding: &Distribution,
    limit: f64,
    population: Population,
    processors: f64,
) -> Result<Closed, ModelError> {
    allowed("processors", processors, "a number from 1", processors >= 1.0)?;
    population.check()?;
    let Population { sessions, think, .. } = population;
    let running = spinning(holding, limit, Population { sessions: sessions.min(processors), ..population }, 0.0)?;
    let away = (sessions / processors - 1.0).max(0.0);
    let throughput = running.throughput / (1.0 + running.utilization * away);
    let mean = holding.mean();
    Ok(Closed {
        throughput,
        utilization: throughput * mean,
        wait: (sessions / throughput - think - mean).max(0.0),
        runnable: sessions,
        ..running
    })
}

/// Sleeps after every failed spin, for many sessions: `N = X(Z + S) + ΛU(Γ + kT)`, `X = 1/(S + φ/Λ)`,
/// `U = XS`.
///
/// A mean field: X up to 1.6/N too low; the exact chain is there for up to 1,000 sessions. Times in seconds.
///
/// # Errors
/// Parameters out of range.
pub fn sleeping(holding: &Distribution, limit: f64, population: Population, sleep: f64) -> Result<Closed, ModelError> {
    population.check()?;
    positive("think", population.think)?;
    from_zero("limit", limit)?;
    positive("sleep", sleep)?;
    let Population { sessions, think, .. } = population;
    let (mean, spin_time) = (holding.mean(), holding.spin_time(limit));
    // Attempts per mean holding time that find it busy, spin and sleep so long.
    let wait =
        |rate: f64| Ok::<_, ModelError>(rate * mean * (spin_time + spin::inefficiency(holding, limit, rate)? * sleep));
    let throughput = |rate: f64| rate / (rate * mean + holding.unattended(rate, limit));
    let balance = |rate: f64| wait(rate).map_or(f64::NAN, |wait| throughput(rate) * (think + mean + wait) - sessions);
    let mut high = sessions / (think + mean);
    while balance(high) < 0.0 {
        high *= 2.0;
    }
    let rate = root(0.0, high, balance);
    let (throughput, wait) = (throughput(rate), wait(rate)?);
    let k = spin::inefficiency(holding, limit, rate)?;
    Ok(Closed {
        throughput,
        utilization: throughput * mean,
        wait,
        misses: (throughput * mean).min(1.0),
        sleeps: k * rate * mean,
        yields: 0.0,
        runnable: population.runnable(throughput, mean + spin_time * rate * mean),
    })
}

/// Which steady state of a FIFO queue with hand-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branch {
    /// From a queue in which every waiter is parked: the lock convoy.
    Convoy,
    /// From a queue in which none is.
    Spinning,
}

/// FIFO, spin then park, direct hand-off: the mutex stays reserved while its next holder wakes within `wake`
/// seconds.
///
/// Service is `S + p L_w` with p the share of holders that were parked; a fixed point with two stable
/// solutions, of which a crowded mutex takes the convoy. X within 2.5 % for 2 to 32 sessions.
///
/// # Errors
/// Parameters out of range, an infinite S_r, no fixed point found.
pub fn fifo(
    holding: &Distribution,
    limit: f64,
    population: Population,
    wake: f64,
    branch: Branch,
) -> Result<Closed, ModelError> {
    population.whole()?;
    from_zero("limit", limit)?;
    from_zero("wake", wake)?;
    holding.residual_mean().ok_or(ModelError::InfiniteMoment)?;
    let Population { sessions, think, .. } = population;
    let mean = holding.mean();
    let mut parked = if branch == Branch::Convoy { 1.0 } else { 0.0 };
    for _ in 0..STEPS {
        let service = mean + wake * parked;
        let residual = (holding.second_moment() + parked * (2.0 * mean * wake + wake * wake)) / (2.0 * service);
        let (mut throughput, mut utilization, mut queue, mut misses) = (0.0_f64, 0.0, 0.0, 0.0);
        for n in (1..=sessions as usize).map(|n| n as f64) {
            let wait = utilization * residual + queue * service;
            misses = utilization;
            throughput = (n / (think + wait + service)).min(1.0 / service);
            utilization = throughput * service;
            queue = (n - throughput * (think + service)).max(0.0);
        }
        let queued = if misses > 0.0 { (sessions / throughput - think - service).max(0.0) / misses } else { 0.0 };
        let ahead = if misses > 0.0 { (queue / misses).max(1.0) } else { 1.0 };
        let next = if queued > 0.0 { misses * gamma_upper(ahead, ahead * limit / queued) } else { 0.0 };
        if (next - parked).abs() < 1e-12 {
            return Ok(Closed {
                throughput,
                utilization: throughput * mean,
                wait: sessions / throughput - think - mean,
                misses,
                sleeps: parked,
                yields: 0.0,
                runnable: population.runnable(throughput, mean + misses * limit.min(queued)),
            });
        }
        parked = 0.8 * parked + 0.2 * next;
    }
    Err(ModelError::NotSettled { what: "the share of parked holders", steps: STEPS })
}

/// A park queue with barging: a release frees the mutex and wakes one parked session, one wake-up at a time,
/// within `wake`.
///
/// The population that is awake settles where the parks per second are `1/(L_w + 1/X)`. For 2 to 32
/// sessions X is -5 to +17 % off (most where L_w is long and ∆ short beside S), W -22 to +11 % where it is above
/// S, and up to three times too long where it is below.
///
/// # Errors
/// Parameters out of range, an infinite S_r.
pub fn barging(holding: &Distribution, limit: f64, population: Population, wake: f64) -> Result<Closed, ModelError> {
    population.whole()?;
    from_zero("wake", wake)?;
    let Population { sessions, think, .. } = population;
    let awake = |active: f64| {
        let system = spinning(holding, limit, Population { sessions: active, ..population }, 0.0)?;
        let queued = if system.misses > 1e-12 { system.wait / system.misses } else { 0.0 };
        let parks = if queued > 0.0 { system.misses * (-limit / queued).exp() } else { 0.0 };
        Ok::<_, ModelError>((system, parks))
    };
    let (mut low, mut high) = (1.0, sessions);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        let (system, parks) = awake(middle)?;
        let rate = system.throughput * parks;
        let cycle = wake + 1.0 / system.throughput;
        // Too many are awake if the wake-ups cannot keep up, or if those parked make more than all.
        let crowded = (wake > 0.0 && rate * cycle > 1.0) || middle + rate * cycle > sessions;
        if crowded { high = middle } else { low = middle }
    }
    let (system, parks) = awake(low)?;
    let throughput = system.throughput;
    Ok(Closed {
        wait: sessions / throughput - think - holding.mean(),
        sleeps: parks,
        runnable: population.runnable(throughput, holding.mean() + parks * limit),
        ..system
    })
}

/// Fewer processors than sessions that want to run, shared equally: everything on them takes g times as
/// long.
///
/// `system` gives the closed system in the time of processors that are g times as slow: sleeps, and thinking
/// away from them, are g times shorter. Gives it and g.
///
/// # Errors
/// Fewer than 1 processor, and what `system` says.
pub fn shared(
    processors: f64,
    sessions: f64,
    system: impl Fn(f64) -> Result<Closed, ModelError>,
) -> Result<(Closed, f64), ModelError> {
    allowed("processors", processors, "a number from 1", processors >= 1.0)?;
    let free = system(1.0)?;
    if free.runnable <= processors {
        return Ok((free, 1.0));
    }
    let slow =
        root(1.0, sessions / processors, |g| system(g).map_or(f64::NAN, |system| system.runnable / processors - g));
    let own = system(slow)?;
    Ok((Closed { throughput: own.throughput / slow, wait: own.wait * slow, runnable: own.runnable, ..own }, slow))
}

/// Fewer processors, in turns much longer than S, with yields honoured: as many sessions take part as the
/// processors can run.
///
/// `system` gives the closed system of a population. Gives it with the wait of all sessions, and the
/// population that takes part.
///
/// # Errors
/// Fewer than 1 processor, and what `system` says.
pub fn in_turns(
    processors: f64,
    population: Population,
    mean: f64,
    system: impl Fn(Population) -> Result<Closed, ModelError>,
) -> Result<(Closed, f64), ModelError> {
    allowed("processors", processors, "a number from 1", processors >= 1.0)?;
    let all = system(population)?;
    if all.runnable <= processors {
        return Ok((all, population.sessions));
    }
    let with = |sessions: f64| system(Population { sessions, ..population });
    let active = root(1.0, population.sessions, |sessions| {
        with(sessions).map_or(f64::NAN, |system| system.runnable - processors)
    });
    let part = with(active)?;
    let wait = population.sessions / part.throughput - population.think - mean;
    Ok((Closed { wait, ..part }, active))
}
