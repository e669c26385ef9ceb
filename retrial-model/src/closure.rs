//! A closed system whose sessions yield before they sleep: the multinomial closure (MODEL.md, Closed
//! systems).
//!
//! At an acquisition the other N - 1 sessions are taken as independent, each with the same probabilities of
//! thinking, sleeping, or having lost the release with some spins left. What becomes of them in one holding
//! time and the idle time after it must give those probabilities again. A yield counts with the spin before
//! it: a session that yields at a release takes part in the race.

use crate::chain::{requests, share_asleep, times};
use crate::closed::{Closed, Population};
use crate::distribution::Distribution;
use crate::error::{ModelError, allowed, from_zero, positive};
use crate::quadrature::{nodes, panels};
use crate::root::root;
use crate::scheme::whole;
use crate::special::ln_factorial;

/// Sessions; more have the mean field of [`sleeping`](crate::closed::sleeping).
const SESSIONS: usize = 1_000;
/// Yields before the first sleep.
const YIELDS: usize = 10;
/// Steps of the search for the shares of the sessions that lost.
const STEPS: usize = 1_000;
/// A share below this is nothing.
const NOTHING: f64 = 1e-18;

/// Where a session can be at an acquisition; from `LOST` on it has lost the release, with 1, 2, … spins left.
const THINKS: usize = 0;
const SLEEPS: usize = 1;
const LOST: usize = 2;

/// And at a release: in a spin after a sleep, or in a first spin with 0, 1, … more to come.
const SPINS: usize = 2;
const FIRST: usize = 3;

/// `yields` yields of `yield_time` before the first sleep, then sleeps only; all times exponential but the
/// holding time.
///
/// A processor for each session; losers of a release take their next step at once. Times in seconds. Exact
/// for two sessions without yields.
///
/// # Errors
/// A number of sessions that is not whole, or above 1,000; more than 10 yields; times out of range; sleeps of
/// less than a tenth of the spin limit; shares that do not settle.
pub fn closed(
    holding: &Distribution,
    limit: f64,
    population: Population,
    sleep: f64,
    yields: f64,
    yield_time: f64,
) -> Result<Closed, ModelError> {
    let Population { sessions, think, .. } = population;
    allowed("sessions", sessions, "a whole number from 1", sessions >= 1.0 && sessions.fract() == 0.0)?;
    if sessions > SESSIONS as f64 {
        return Err(ModelError::TooLarge { what: "sessions", found: sessions, limit: SESSIONS });
    }
    positive("limit", limit)?;
    positive("think", think)?;
    positive("sleep", sleep)?;
    allowed("sleep", sleep, "at least a tenth of the spin limit", sleep * 10.0 >= limit)?;
    whole("yields", yields)?;
    allowed("yields", yields, "at most 10", yields <= YIELDS as f64)?;
    from_zero("yield_time", yield_time)?;
    let mean = holding.mean();
    if sessions == 1.0 {
        let throughput = 1.0 / (think + mean);
        let (utilization, runnable) = (throughput * mean, population.runnable(throughput, mean));
        return Ok(Closed { throughput, utilization, wait: 0.0, misses: 0.0, sleeps: 0.0, yields: 0.0, runnable });
    }
    let waits = Waits { limit, block: limit + yield_time, yields: yields as usize, think, wake: 1.0 / sleep };
    let cycle = Cycle::new(holding, &waits, sessions as usize - 1);
    let shares = cycle.settled()?;
    let next = cycle.next(&shares);
    let throughput = 1.0 / (mean + next.idle);
    let per_get = |of: &[f64]| cycle.others * shares.iter().zip(of).map(|(share, value)| share * value).sum::<f64>();
    let (spinning, wait) = (per_get(&cycle.spinning), sessions / throughput - think - mean);
    Ok(Closed {
        throughput,
        utilization: throughput * mean,
        wait: wait.max(0.0),
        misses: cycle.others * shares[THINKS] * cycle.asked,
        sleeps: ((wait - spinning) / sleep).max(0.0),
        yields: per_get(&cycle.yields),
        runnable: population.runnable(throughput, mean + spinning),
    })
}

/// How a session waits.
struct Waits {
    limit: f64,
    /// A spin and the yield after it.
    block: f64,
    yields: usize,
    think: f64,
    /// 1/T.
    wake: f64,
}

impl Waits {
    /// All spins and yields up to the first sleep.
    fn first(&self) -> f64 {
        self.block * self.yields as f64 + self.limit
    }

    /// Where what becomes of a session jumps or bends: ends of first spins, and of the first spins after a
    /// sleep.
    fn breaks(&self) -> Vec<f64> {
        let ends = (0..=self.yields).map(|blocks| self.block * blocks as f64).chain([self.first()]);
        ends.flat_map(|end| [end, end + self.limit, end + 2.0 * self.limit]).filter(|x| *x > 0.0).collect()
    }

    /// Probability that a session that fell asleep so long ago sleeps now.
    fn asleep(&self, since: f64) -> f64 {
        share_asleep(since, self.limit, self.wake)
    }

    /// By where it is at the begin of a holding time that lasts so long already: where it is now.
    fn ends(&self, x: f64) -> Vec<Vec<f64>> {
        let states = FIRST + self.yields + 1;
        let mut ends = vec![vec![0.0; states]; LOST + self.yields];
        let thinker = &mut ends[THINKS];
        thinker[THINKS] = (-x / self.think).exp();
        for spin in 0..=self.yields {
            let begun = x - self.block * spin as f64;
            if begun > 0.0 {
                let over = (begun - if spin < self.yields { self.block } else { self.limit }).max(0.0);
                thinker[FIRST + self.yields - spin] =
                    (-over / self.think).exp() * -(-(begun - over) / self.think).exp_m1();
            }
        }
        let rest = x - self.first();
        let asked = requests(rest, self.limit, self.think, self.wake).into_iter();
        thinker[SLEEPS] = asked.map(|(u, chance)| chance * self.asleep(rest - u)).sum();
        thinker[SPINS] = (1.0 - thinker.iter().sum::<f64>()).max(0.0);
        ends[SLEEPS][SLEEPS] = self.asleep(x);
        ends[SLEEPS][SPINS] = 1.0 - ends[SLEEPS][SLEEPS];
        for left in 1..=self.yields {
            let loser = &mut ends[LOST + left - 1];
            let since = x - self.block * left as f64;
            if since < 0.0 {
                let spin = ((x / self.block) as usize).min(left - 1);
                loser[FIRST + left - 1 - spin] = 1.0;
            } else {
                loser[SLEEPS] = self.asleep(since);
                loser[SPINS] = 1.0 - loser[SLEEPS];
            }
        }
        ends
    }

    /// Yields begun within a holding time, by where a session is at its begin.
    fn yields(&self, x: f64) -> Vec<f64> {
        let asked = |spin: usize| -(-(x - self.block * spin as f64 - self.limit).max(0.0) / self.think).exp_m1();
        let begun = |left: usize| (0..left).filter(|spin| x >= self.block * *spin as f64).count() as f64;
        let thinker = (0..self.yields).map(asked).sum();
        [thinker, 0.0].into_iter().chain((1..=self.yields).map(begun)).collect()
    }
}

/// One holding time, as a sum over its distribution, and the idle time after it.
struct Cycle {
    /// Sessions but the holder: N - 1.
    others: f64,
    /// By how many of them think while the rest sleep: the logarithm of the number of ways, the chance that a
    /// thinker is the first to come, and the mean time until a session does.
    idle: Vec<(f64, f64, f64)>,
    /// By holding time: its weight, and where sessions are at its end.
    points: Vec<(f64, Vec<Vec<f64>>)>,
    /// By where a session is at the begin: its time in spins and yields, and its number of yields.
    spinning: Vec<f64>,
    yields: Vec<f64>,
    /// The probability that a thinking session asks.
    asked: f64,
}

/// At the next acquisition.
struct Next {
    shares: Vec<f64>,
    idle: f64,
}

impl Cycle {
    fn new(holding: &Distribution, waits: &Waits, others: usize) -> Self {
        let breaks = waits.breaks();
        let held: Vec<(f64, f64)> =
            holding.nodes(&breaks).into_iter().filter(|(_, weight)| *weight > NOTHING).collect();
        let end = holding.end();
        let octaves = (-8..1000).map(|octave| holding.mean() * f64::from(octave).exp2()).take_while(|x| *x < end);
        let ends = panels(0.0, end, breaks.into_iter().chain(holding.kinks()).chain(octaves));
        let mut spinning = vec![0.0; LOST + waits.yields];
        let above = nodes(&ends).map(|(x, width)| (x, width * holding.survival(x)));
        for (x, weight) in above.filter(|(_, weight)| *weight > NOTHING * holding.mean()) {
            for (sum, ends) in spinning.iter_mut().zip(waits.ends(x)) {
                *sum += weight * ends[SPINS..].iter().sum::<f64>();
            }
        }
        let mut yields = vec![0.0; LOST + waits.yields];
        for (x, weight) in &held {
            for (sum, begun) in yields.iter_mut().zip(waits.yields(*x)) {
                *sum += weight * begun;
            }
        }
        let asked = held.iter().map(|(x, weight)| -weight * (-x / waits.think).exp_m1()).sum();
        let points = held.into_iter().map(|(x, weight)| (weight, waits.ends(x))).collect();
        let idle = (0..=others).map(|j| {
            let ways = ln_factorial(others) - ln_factorial(j) - ln_factorial(others - j);
            let thinkers = (j as f64 + 1.0) / waits.think;
            let rate = thinkers + (others - j) as f64 * waits.wake;
            (ways, thinkers / rate, 1.0 / rate)
        });
        Self { others: others as f64, idle: idle.collect(), points, spinning, yields, asked }
    }

    /// The shares that give themselves again: those that lost for each share that sleeps, and among these the
    /// right one.
    fn settled(&self) -> Result<Vec<f64>, ModelError> {
        let off = |asleep: f64| match self.lost(asleep) {
            Ok(shares) => self.next(&shares).shares[SLEEPS] - asleep,
            Err(_) => f64::NAN,
        };
        self.lost(root(0.0, 1.0, off))
    }

    fn lost(&self, asleep: f64) -> Result<Vec<f64>, ModelError> {
        let mut shares = vec![0.0; self.spinning.len()];
        shares[SLEEPS] = asleep;
        shares[THINKS] = 1.0 - asleep;
        for _ in 0..STEPS {
            let next = self.next(&shares).shares;
            let mut change = 0.0_f64;
            for (share, next) in shares.iter_mut().zip(next).skip(LOST) {
                change = change.max((next - *share).abs());
                *share = 0.3 * *share + 0.7 * next;
            }
            let lost: f64 = shares[LOST..].iter().sum();
            let scale = ((1.0 - asleep) / lost).min(1.0);
            shares[LOST..].iter_mut().for_each(|share| *share *= scale);
            shares[THINKS] = (1.0 - asleep - lost).max(0.0);
            if change < 1e-14 {
                return Ok(shares);
            }
        }
        Err(ModelError::NotSettled { what: "the share of those that lost a release", steps: STEPS })
    }

    fn next(&self, shares: &[f64]) -> Next {
        let mut next = vec![0.0; shares.len()];
        let mut idle = 0.0;
        for (weight, ends) in &self.points {
            let end = |state: usize| shares.iter().zip(ends).map(|(share, ends)| share * ends[state]).sum::<f64>();
            let (thinks, asleep) = (end(THINKS), end(SLEEPS));
            let racing: Vec<f64> = (SPINS..ends[THINKS].len()).map(end).collect();
            let spins = racing.iter().sum::<f64>().min(1.0);
            let alone = (1.0 - spins).powf(self.others);
            // One of the spinning sessions gets it, the others lose.
            let lost = (self.others * spins - (1.0 - alone)).max(0.0);
            let each = if spins > 0.0 { lost / spins } else { 0.0 };
            let (first, wait) = if alone * weight > NOTHING { self.race(thinks, asleep) } else { (0.0, 0.0) };
            idle += weight * alone * wait;
            // The session that has released thinks.
            next[THINKS] += weight * (self.others * thinks + 1.0 - alone * first);
            next[SLEEPS] += weight * (self.others * asleep + each * (racing[0] + racing[1]) - alone * (1.0 - first));
            for (next, racing) in next[LOST..].iter_mut().zip(&racing[2..]) {
                *next += weight * each * racing;
            }
        }
        Next { shares: next.into_iter().map(|count| count / self.others).collect(), idle }
    }

    /// No session spins: the probability that a thinker comes before the sleepers, and the mean time until
    /// one comes.
    fn race(&self, thinks: f64, asleep: f64) -> (f64, f64) {
        let (thinks, asleep) = (thinks / (thinks + asleep), asleep / (thinks + asleep));
        let (ln_thinks, ln_asleep) = (thinks.ln(), asleep.ln());
        let (mut first, mut wait) = (0.0, 0.0);
        // The terms of the binomial sum that are not nothing; 25 more for the tail of a rare event.
        let (mean, spread) = (self.others * thinks, 9.0 * (self.others * thinks * asleep).sqrt() + 25.0);
        let from = (mean - spread).max(0.0) as usize;
        let likely = self.idle.iter().enumerate().take((mean + spread) as usize + 1).skip(from);
        for (j, (ways, thinker, time)) in likely {
            let chance = (ways + times(j, ln_thinks) + times(self.idle.len() - 1 - j, ln_asleep)).exp();
            first += chance * thinker;
            wait += chance * time;
        }
        (first, wait)
    }
}
