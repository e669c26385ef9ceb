//! What the sessions of a cell do: how long they hold the mutex, and how long they stay away from it.

use crate::work::{self, Work};
use retrial::sys;
use std::cell::Cell;
use std::time::Duration;

/// How times are spread about their mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Distribution {
    /// Every time is the mean
    #[default]
    Fixed,
    /// Exponential: most are short, some are long
    Exponential,
}

/// What sessions do first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Start {
    /// All ask at once
    #[default]
    Together,
    /// They think, as between two gets
    Spread,
}

const STEPS: usize = 1024;

/// Times of a given mean and distribution, in any unit, drawn in a few instructions.
#[derive(Clone, Debug)]
pub struct Times {
    mean: u64,
    /// Quantiles of the exponential distribution of mean 1, in 1/65536.
    quantiles: Option<Box<[u64]>>,
}

impl Times {
    pub fn new(mean: u64, distribution: Distribution) -> Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // at most 7.6 * 65536
        let quantile = |i: usize| (-((i as f64 + 0.5) / STEPS as f64).ln() * 65_536.0).round() as u64;
        let quantiles = match distribution {
            Distribution::Exponential if mean > 0 => Some((0..STEPS).map(quantile).collect()),
            _ => None,
        };
        Self { mean, quantiles }
    }

    /// The next time; a fixed one takes no random number.
    #[inline]
    pub fn next(&self, random: &mut Random) -> u64 {
        match &self.quantiles {
            None => self.mean,
            Some(quantiles) => {
                let scaled = u128::from(self.mean) * u128::from(quantiles[random.below(STEPS as u64) as usize]);
                u64::try_from(scaled >> 16).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Random numbers of a session.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `limit`, which is at most 2^32.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        ((retrial::wait::random(Cell::from_mut(&mut self.0)) >> 32) * limit) >> 32
    }
}

/// What a session does between two gets.
#[derive(Clone, Debug)]
pub enum Think {
    /// Asks again at once.
    Nothing,
    /// Computes, for rounds of [`work::spin`].
    Busy(Times),
    /// Sleeps, for ns: from 1 ms on.
    Asleep(Times),
}

impl Think {
    pub fn new(mean: Duration, distribution: Distribution, work: Work) -> Self {
        if mean.is_zero() {
            Self::Nothing
        } else if mean < Duration::from_millis(1) {
            Self::Busy(Times::new(work.rounds(mean), distribution))
        } else {
            Self::Asleep(Times::new(crate::duration::nanos(mean), distribution))
        }
    }

    /// Thinks, not past the deadline when asleep.
    #[inline]
    pub fn think(&self, random: &mut Random, deadline: sys::Deadline) {
        match self {
            Self::Nothing => {}
            Self::Busy(times) => work::spin(times.next(random)),
            Self::Asleep(times) => {
                let time = Duration::from_nanos(times.next(random));
                sys::sleep(time.min(deadline.left().unwrap_or_default()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_times_have_the_mean_asked_for() {
        let (times, mut random) = (Times::new(1000, Distribution::Exponential), Random::new(7));
        let sum: u64 = (0..100_000).map(|_| times.next(&mut random)).sum();
        assert!((980..=1020).contains(&(sum / 100_000)), "seed 7: mean {}", sum / 100_000);
    }

    #[test]
    fn fixed_times_are_the_mean() {
        let (times, mut random) = (Times::new(1000, Distribution::Fixed), Random::new(7));
        assert_eq!((times.next(&mut random), times.next(&mut random)), (1000, 1000));
    }
}
