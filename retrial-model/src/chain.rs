//! Discipline A exactly: at a release one of the spinners gets the mutex, the others sleep (MODEL.md, Exact chain).
//!
//! At an acquisition nobody spins, so with exponential sleeps the number of sleepers at acquisitions is a
//! Markov chain for any holding time. It goes down by one at most, and so its stationary probabilities follow
//! from the flow over each level: sums of positive terms only.

use crate::distribution::Distribution;
use crate::error::{ModelError, allowed, from_zero, positive, steady};
use crate::quadrature::{nodes, panels};
use crate::special::{gamma_lower, ln_factorial};

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

/// The open system: fresh requests at `rate` (1/s, Poisson), spin limit and mean exponential sleep in seconds.
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
    // Nobody counts requests in holding times that never are.
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

/// The closed system: `sessions` that think for an exponential time of mean `think`, each with a processor of its own.
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
    let points = points(holding, limit, wake);
    let thinkers: Vec<Thinker> = points.iter().map(|point| Thinker::new(point.x, limit, think, wake)).collect();
    let both = || points.iter().zip(&thinkers);
    let thinker_misses: f64 = both().map(|(point, t)| point.weight * (t.left + wake * t.asleep_time)).sum();
    let thinker_spins: f64 = both().map(|(point, t)| point.weight * (point.x - think * t.left - t.asleep_time)).sum();
    let asleep: f64 = points.iter().map(|point| point.weight * point.asleep_time).sum();
    let busy = points.iter().map(|point| point.weight * point.x).sum::<f64>();
    let mut chain = Levels::default();
    let (mut idle, mut unattended, mut orbit_first) = (Vec::new(), Vec::new(), Vec::new());
    let (mut misses, mut spins) = (Vec::new(), Vec::new());
    for i in 0..n {
        let m = n - 1 - i;
        // By the number j that still think at the release: all cases, and those without a spinner.
        let (mut all, mut alone) = (vec![0.0; m + 1], vec![0.0; m + 1]);
        for (point, thinker) in both() {
            let sleeping = point.weight * power(point.asleep, i);
            for j in 0..=m {
                let ways = ln_factorial(m) - ln_factorial(j) - ln_factorial(m - j) - thinker.rate_time * j as f64;
                all[j] += point.weight * (ways + times(m - j, thinker.left.ln())).exp();
                alone[j] += sleeping * (ways + times(m - j, thinker.asleep.ln())).exp();
            }
        }
        // above[d]: probability of more than i + d - 1 sleepers at the next acquisition.
        let mut up = vec![0.0; m + 2];
        let (mut down, mut wait, mut woken) = (0.0, 0.0, 0.0);
        for j in 0..=m {
            let thinking = (j as f64 + 1.0) / think;
            let rate = thinking + (n - 1 - j) as f64 * wake;
            let first = alone[j] * thinking / rate;
            wait += alone[j] / rate;
            woken += alone[j] - first;
            up[m - j] += first;
            if m > j {
                up[m - j - 1] += all[j] - first;
            } else {
                down += all[j] - first;
            }
        }
        idle.push(wait);
        orbit_first.push(woken);
        unattended.push(alone.iter().sum());
        misses.push(m as f64 * thinker_misses + i as f64 * wake * asleep);
        spins.push(m as f64 * thinker_spins + i as f64 * (busy - asleep));
        for d in (0..=m).rev() {
            up[d] += up[d + 1];
        }
        chain.push(down, up.split_off(1));
    }
    let levels = chain.probabilities();
    let mean = |values: &[f64]| levels.iter().zip(values).map(|(p, value)| p * value).sum::<f64>();
    let misses = mean(&misses);
    let sleeps = (misses - 1.0 + mean(&unattended)).max(0.0);
    let spinning = mean(&spins);
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

/// A holding time of the sum that stands for its distribution, and what happens in it.
struct Point {
    x: f64,
    weight: f64,
    /// b(x): a sleeper at its begin sleeps at its end.
    asleep: f64,
    /// ∫₀ˣ b.
    asleep_time: f64,
    /// ∫ b over 0 to x - ∆: the same for requests that come during it, by their rate.
    fresh_asleep: f64,
}

fn points(holding: &Distribution, limit: f64, wake: f64) -> Vec<Point> {
    let breaks: Vec<f64> = (0..9).map(|j| limit * f64::from(j).max(0.5)).filter(|x| *x > 0.0).collect();
    let point = |(x, weight)| {
        let (asleep, asleep_time) = asleep(x, limit, wake);
        Point { x, weight, asleep, asleep_time, fresh_asleep: self::asleep(x - limit, limit, wake).1 }
    };
    holding.nodes(&breaks).into_iter().map(point).collect()
}

/// b(x) and its integral from 0: the share of time asleep of a session that sleeps at 0 while the mutex stays busy.
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
fn twice(y: f64, limit: f64, wake: f64) -> f64 {
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

fn power(x: f64, n: usize) -> f64 {
    times(n, x.ln()).exp()
}

/// What becomes of a session that thinks at the begin of a holding time.
struct Thinker {
    /// x/Z.
    rate_time: f64,
    /// Probability that it has asked.
    left: f64,
    /// Probability that it sleeps at the end.
    asleep: f64,
    /// Mean time asleep in the holding time.
    asleep_time: f64,
}

impl Thinker {
    fn new(x: f64, limit: f64, think: f64, wake: f64) -> Self {
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

/// A row of the open chain: from one number of sleepers to the next.
struct Row {
    /// Probability of one less.
    down: f64,
    /// By d: probability of more than d more.
    above: Vec<f64>,
    /// Mean idle time.
    idle: f64,
    /// Probability that nobody spins at the release.
    unattended: f64,
    /// And that a sleeper is then the first.
    orbit_first: f64,
}

/// The rows of the open chain, in order.
struct OpenRows {
    rate: f64,
    wake: f64,
    /// By requests in a holding time: their probability.
    requests: Vec<f64>,
    /// By holding time: b, its power so far, and by requests the weight with which all of them sleep at its end.
    points: Vec<(f64, f64, Vec<f64>)>,
    sleepers: usize,
}

impl OpenRows {
    fn new(points: &[Point], rate: f64, wake: f64, arrivals: usize) -> Self {
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

    fn next(&mut self) -> Row {
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
            // With no sleeper and no request nobody but the next request can come.
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
