//! Random numbers of a simulation, each kind from a stream of its own: two schemes see the same arrivals and
//! holding times.

use super::{Time, time};
use crate::distribution::Distribution;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

/// See the module.
#[derive(Debug)]
pub(super) struct Streams {
    arrivals: Xoshiro256PlusPlus,
    holds: Xoshiro256PlusPlus,
    thinks: Xoshiro256PlusPlus,
    waits: Xoshiro256PlusPlus,
    races: Xoshiro256PlusPlus,
    copies: Xoshiro256PlusPlus,
    interrupts: Xoshiro256PlusPlus,
}

/// One of `0..below`, all equally likely.
fn below(random: &mut Xoshiro256PlusPlus, below: usize) -> usize {
    ((u128::from(random.next_u64()) * below as u128) >> 64) as usize
}

/// Exponential with mean 1.
fn exponential(random: &mut Xoshiro256PlusPlus) -> f64 {
    let uniform = ((random.next_u64() >> 11) + 1) as f64 * 2f64.powi(-53);
    -uniform.ln()
}

fn draw(distribution: &Distribution, random: &mut Xoshiro256PlusPlus) -> Time {
    time(distribution.sample(random))
}

impl Streams {
    pub(super) fn new(seed: u64) -> Self {
        let mut first = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut next = || Xoshiro256PlusPlus::from_rng(&mut first);
        let (arrivals, holds, thinks, waits) = (next(), next(), next(), next());
        Self { arrivals, holds, thinks, waits, races: next(), copies: next(), interrupts: next() }
    }

    /// Time to the next arrival of a Poisson process of `rate` (1/s).
    pub(super) fn until_arrival(&mut self, rate: f64) -> Time {
        time(exponential(&mut self.arrivals) / rate)
    }

    pub(super) fn hold(&mut self, distribution: &Distribution) -> Time {
        draw(distribution, &mut self.holds)
    }

    pub(super) fn think(&mut self, distribution: &Distribution) -> Time {
        draw(distribution, &mut self.thinks)
    }

    /// An exponential sleep of this mean.
    pub(super) fn sleep(&mut self, mean: Time) -> Time {
        (exponential(&mut self.waits) * mean as f64) as Time
    }

    /// An exponential time of an interruption, or to the next one, of this mean.
    pub(super) fn interrupt(&mut self, mean: Time) -> Time {
        (exponential(&mut self.interrupts) * mean as f64) as Time
    }

    /// One of `0..processors` to be interrupted, all equally likely.
    pub(super) fn interrupted(&mut self, processors: u32) -> u32 {
        below(&mut self.interrupts, processors as usize) as u32
    }

    /// What a scheme sees.
    pub(super) fn wait(&mut self) -> u64 {
        self.waits.next_u64()
    }

    /// One of `0..racing`, all equally likely.
    pub(super) fn race(&mut self, racing: usize) -> usize {
        below(&mut self.races, racing)
    }

    /// One of `0..copies`, all equally likely.
    pub(super) fn copy(&mut self, copies: u32) -> u32 {
        below(&mut self.copies, copies as usize) as u32
    }
}
