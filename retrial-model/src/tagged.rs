//! First spins and yields of a miss under competition (MODEL.md, Schemes): a tagged session among Poisson
//! attempts of others.
//!
//! The state is the age of the holding time and the number of rivals that lost together with the tagged
//! session and so come back in step with it. A spin ends at the limit (age and rivals stay), or at a release
//! (won, or lost to one of the others: a fresh holding time). During a yield the mutex can be released, left
//! idle, and taken by others.

use crate::distribution::Distribution;
use crate::error::{ModelError, allowed, from_zero, positive, steady};
use crate::scheme::{Prefix, whole};
use crate::special::ln_factorial;
use crate::spin;

/// Cells of the shorter of spin limit and yield, and at most of the limit: as many from there on as fit both
/// best.
const CELLS: f64 = 24.0;
const CELLS_MOST: f64 = 192.0;
/// Cells of holding times and yields; what is beyond does not end within the spins.
const AGES: usize = 20_000;
/// Rivals in step, and others at a release; more are as these.
const RIVALS: usize = 10;
const OTHERS: usize = 2 * RIVALS + 2;
/// Yields before the first sleep.
const YIELDS: usize = 100;
/// Steps of the search for the rate of attempts.
const STEPS: usize = 200;
/// Holding times above this have next to no probability.
const RARE: f64 = 1e-7;
/// A share below this is nothing.
const NOTHING: f64 = 1e-18;

/// An open system with yields before the first sleep, under competition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yielding {
    /// The spins up to the first sleep, and those after.
    pub prefix: Prefix,
    /// Λ: all attempts; 1/s.
    pub attempt_rate: f64,
    /// Yields per get.
    pub yields: f64,
    /// Mean time of a miss in its yields while the mutex was free; seconds.
    pub idle: f64,
}

/// `yields` yields of `yield_time` seconds before the first sleep, none before later ones; sleeps much longer
/// than S and spread.
///
/// Λ is found from itself: λ(1 + failed spins per get). `rate` in 1/s, `limit` in seconds.
///
/// # Errors
/// No steady state, an infinite S_r, parameters out of range, more than 100 yields, a yield far longer than
/// the limit.
pub fn open(
    holding: &Distribution,
    limit: f64,
    rate: f64,
    sleep: f64,
    yields: f64,
    yield_time: f64,
) -> Result<Yielding, ModelError> {
    positive("limit", limit)?;
    positive("rate", rate)?;
    positive("sleep", sleep)?;
    whole("yields", yields)?;
    allowed("yields", yields, "at most 100", yields <= YIELDS as f64)?;
    from_zero("yield_time", yield_time)?;
    let utilization = rate * holding.mean();
    steady(utilization)?;
    let residual_mean = holding.residual_mean().ok_or(ModelError::InfiniteMoment)?;
    let grid = Grid::new(holding, limit, yield_time, yields as usize)?;
    let mut attempt_rate = spin::open(holding, limit, rate)?.attempt_rate;
    for _ in 0..STEPS {
        let first = grid.first(attempt_rate, yields as usize);
        let inefficiency = spin::inefficiency(holding, limit, attempt_rate)?;
        let prefix = Prefix {
            utilization,
            all_fail: first.all_fail,
            duration: first.spinning + first.yields * yield_time,
            inefficiency,
            spin_time: holding.spin_time(limit),
            residual_mean,
            sleep,
        };
        let sleeps = prefix.sleeps();
        // Failed spins: those before a yield, before the first sleep, and before later ones.
        let next = rate * (1.0 + utilization * first.yields + sleeps);
        if (next - attempt_rate).abs() < 1e-9 * next {
            return Ok(Yielding { prefix, attempt_rate, yields: utilization * first.yields, idle: first.idle });
        }
        attempt_rate = 0.4 * attempt_rate + 0.6 * next;
    }
    Err(ModelError::NotSettled { what: "the rate of attempts", steps: STEPS })
}

impl Yielding {
    /// W in seconds: that of the prefix, whose identity counts the idle time of yields with the rest of the
    /// residual time.
    ///
    /// # Errors
    /// No steady state, parameters out of range.
    pub fn wait(&self) -> Result<f64, ModelError> {
        let busy = Prefix { residual_mean: self.prefix.residual_mean + self.idle, ..self.prefix };
        busy.wait()
    }
}

/// Shares and times of one miss up to its first sleep.
#[derive(Default)]
struct First {
    all_fail: f64,
    spinning: f64,
    yields: f64,
    idle: f64,
}

/// By rivals and age: the share of misses whose holding time has this age, over its probability to get so
/// old.
type Cohorts = Vec<Vec<f64>>;

/// Holding times in cells of the same length.
struct Grid {
    step: f64,
    /// Cells of the limit and of a yield.
    limit: usize,
    pause: usize,
    /// Q at the ends of the cells.
    above: Vec<f64>,
    /// At first: by age, and the share of misses whose holding time does not end within the grid.
    begin: Vec<f64>,
    endless: f64,
}

/// At a given rate of attempts: how a release goes.
struct Races {
    /// By cells of the limit, and one more for all beyond: the probabilities of 0, 1, … others.
    others: Vec<Vec<f64>>,
    /// By cells of a yield: another release-free start of a holding time after one at 0.
    renewals: Vec<f64>,
    /// The probability that an idle mutex is taken within a cell.
    taken: f64,
}

impl Grid {
    fn new(holding: &Distribution, limit: f64, yield_time: f64, yields: usize) -> Result<Self, ModelError> {
        let misfit = |cells: &usize| {
            let pause = yield_time / limit * *cells as f64;
            (pause - pause.round()).abs()
        };
        let least = if yield_time > 0.0 { CELLS * (limit / yield_time).max(1.0) } else { CELLS };
        let least = least.min(CELLS_MOST) as usize;
        let cells = (least..=2 * least).min_by(|a, b| misfit(a).total_cmp(&misfit(b))).unwrap_or(least);
        let step = limit / cells as f64;
        let pause = (yield_time / step).round();
        let length = cells as f64 + pause;
        let moved = length * (yields as f64 + 1.0);
        if moved > 10.0 * AGES as f64 || pause > AGES as f64 / 10.0 {
            return Err(ModelError::TooLarge { what: "cells of a yield", found: pause, limit: AGES / 10 });
        }
        let ages = (0..AGES).take_while(|i| holding.survival(*i as f64 * step) > RARE).count();
        let n = ages + moved as usize + 2;
        let mut above: Vec<f64> = (0..=n).map(|i| holding.survival(i as f64 * step)).collect();
        above[0] = 1.0;
        // The age that a request finds, at the nearer end of its cell: exactly its share, and its mean.
        let (mean, mut begin) = (holding.mean(), vec![0.0; n + 1]);
        for i in 0..ages {
            let share = (holding.excess(i as f64 * step) - holding.excess((i + 1) as f64 * step)) / mean;
            // At an age that no holding time reaches there is no session.
            let older = if above[i + 1] > 0.0 { share / 2.0 } else { 0.0 };
            begin[i] += share - older;
            begin[i + 1] += older;
        }
        Ok(Self {
            step,
            limit: cells,
            pause: pause as usize,
            above,
            begin,
            endless: holding.inefficiency(ages as f64 * step),
        })
    }

    fn first(&self, rate: f64, yields: usize) -> First {
        let races = self.races(rate);
        let mut ages = vec![vec![0.0; self.begin.len()]; RIVALS + 1];
        ages[0].clone_from(&self.begin);
        let mut first = First::default();
        let limit = self.limit as f64 * self.step;
        for spin in 0..=yields {
            let (late, lost, time) = self.spin(&ages, &races);
            let fail = self.endless + sum(&late) + lost.iter().sum::<f64>();
            first.spinning += time + self.endless * limit;
            first.all_fail = fail;
            if spin == yields || fail < 1e-15 {
                break;
            }
            first.yields += fail;
            let (next, idle) = self.pause(&late, &lost, &races);
            ages = next;
            first.idle += idle;
        }
        first
    }

    fn races(&self, rate: f64) -> Races {
        let others = (0..=self.limit).map(|i| {
            let mean = rate * self.step * (i as f64 + 0.5).min(self.limit as f64);
            let chance = |n: usize| (n as f64 * mean.ln() - mean - ln_factorial(n)).exp();
            (0..OTHERS).map(chance).collect::<Vec<f64>>()
        });
        let others: Vec<Vec<f64>> = others.collect();
        let taken = -(-rate * self.step).exp_m1();
        let mut renewals = vec![0.0; self.pause + 1];
        let mut idle = 0.0;
        for (i, renewal) in renewals.iter_mut().skip(1).enumerate() {
            let released = self.above[i] - self.above[i + 1];
            let alone = others[i.min(self.limit)][0];
            idle += released * alone;
            *renewal = released * (1.0 - alone) + idle * taken;
            idle -= idle * taken;
        }
        Races { others, renewals, taken }
    }

    /// Up to the oldest that is more than nothing.
    fn cohorts(&self, ages: &Cohorts) -> Cohorts {
        let one = |ages: &Vec<f64>| {
            let reach = ages.iter().rposition(|share| *share > NOTHING).map_or(0, |oldest| oldest + 1);
            let over = ages[..reach].iter().zip(&self.above);
            over.map(|(share, above)| if *share > NOTHING { share / above } else { 0.0 }).collect()
        };
        ages.iter().map(one).collect()
    }

    /// Those whose spin reaches the limit, by rivals and age; those that lose a release, by rivals; the mean
    /// time of the spin.
    fn spin(&self, ages: &Cohorts, races: &Races) -> (Cohorts, Vec<f64>, f64) {
        let n = self.above.len() - 1;
        let (mut late, mut lost, mut time) = (vec![vec![0.0; n + 1]; RIVALS + 1], vec![0.0; RIVALS + 1], 0.0);
        for (rivals, cohorts) in self.cohorts(ages).iter().enumerate() {
            let mut spinning = 0.0;
            let mut released = vec![0.0; self.limit + 1];
            for j in 0..n.min(cohorts.len() + self.limit) {
                spinning += cohorts.get(j).unwrap_or(&0.0);
                if j >= self.limit {
                    spinning = (spinning - cohorts[j - self.limit]).max(0.0);
                    late[rivals][j] = cohorts[j - self.limit] * self.above[j];
                }
                released[j.min(self.limit)] += spinning * (self.above[j] - self.above[j + 1]);
                time += spinning * f64::midpoint(self.above[j], self.above[j + 1]) * self.step;
            }
            for (released, others) in released.iter().zip(&races.others) {
                for (n, chance) in others.iter().enumerate() {
                    let all = rivals + n;
                    if all > 0 {
                        lost[(all - 1).min(RIVALS)] += released * chance * all as f64 / (all as f64 + 1.0);
                    }
                }
            }
        }
        (late, lost, time)
    }

    /// By rivals and age at the end of a yield, and the mean time in it that the mutex was free.
    fn pause(&self, late: &Cohorts, lost: &[f64], races: &Races) -> (Cohorts, f64) {
        let (n, pause) = (self.above.len() - 1, self.pause);
        let mut ages = vec![vec![0.0; n + 1]; RIVALS + 1];
        let mut idle_time = 0.0;
        for (rivals, cohorts) in self.cohorts(late).iter().enumerate() {
            if lost[rivals] <= NOTHING && cohorts.is_empty() {
                continue;
            }
            // By cells of the yield: those in their holding time still, starts of others.
            let held = |t: usize| cohorts.iter().zip(&self.above[t..]).map(|(share, above)| share * above).sum::<f64>();
            let old: Vec<f64> = (0..=pause).map(held).collect();
            let mut starts = vec![0.0; pause + 1];
            starts[0] = lost[rivals];
            let mut idle = 0.0;
            let beyond = races.others[self.limit][0];
            for t in 1..=pause {
                // At so many releases no other session spins; releases of holding times above the limit are
                // alike.
                let mut alone = (old[t - 1] - old[t]) * beyond;
                for age in (t - 1)..self.limit.min(cohorts.len() + t - 1) {
                    let released = cohorts[age + 1 - t] * (self.above[age] - self.above[age + 1]);
                    alone += released * (races.others[age][0] - beyond);
                }
                idle += alone;
                starts[t] += old[t - 1] - old[t] - alone + idle * races.taken;
                idle -= idle * races.taken;
            }
            for t in 1..=pause {
                starts[t] += (0..t).map(|s| starts[s] * races.renewals[t - s]).sum::<f64>();
            }
            let all = lost[rivals] + old[0];
            for (t, old) in old.iter().enumerate().skip(1) {
                let new = (0..=t).map(|s| starts[s] * self.above[t - s]).sum::<f64>();
                let half = if t == pause { 0.5 } else { 1.0 };
                idle_time += (all - old - new).max(0.0) * self.step * half;
            }
            for (share, (cohort, above)) in
                ages[rivals][pause..].iter_mut().zip(cohorts.iter().zip(&self.above[pause..]))
            {
                *share += cohort * above;
            }
            for (t, share) in starts.iter().enumerate() {
                ages[rivals][pause - t] += share * self.above[pause - t];
            }
            let busy: f64 = ages[rivals].iter().sum();
            // Of an idle mutex one of those in step gets it; a rival's holding time is fresh.
            if rivals > 0 {
                let next = (all - busy).max(0.0) * rivals as f64 / (rivals as f64 + 1.0);
                ages[rivals - 1][0] += next;
            }
        }
        (ages, idle_time)
    }
}

fn sum(values: &Cohorts) -> f64 {
    values.iter().flatten().sum()
}
