//! What a session learns from its yields, from one wait to the next.

use crate::params::{P, Params};

/// Net number of yields in vain from which a session rests.
const ENOUGH: u32 = 4;

/// Maximum of that number: a session rests for fewer than two to the power of this many waits.
const MOST: u32 = 8;

/// Gets of the mutex by others during one yield, at most, that say that sections last as long as a yield.
const FEW: u64 = 2;

/// Whether yields bring a session the mutex; a new one takes it that they do.
///
/// A section in which the holder gives its processor away lasts until the processor has been through all
/// sessions that yield there: the more of them wait so, the longer each section takes. What they see is that
/// the mutex passes once or twice in each of their yields, however many the yields are. Then the next
/// waits park at once, and the holder has its processor back at once. Where yields are useful, the mutex passes
/// many times meanwhile or is open.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Experience {
    /// Yields in vain, less the useful ones.
    in_vain: u32,
    /// Waits to come without yields.
    rests: u32,
}

impl Experience {
    /// A wait begins. Whether it is to park at once.
    #[must_use]
    pub const fn begins(&mut self) -> bool {
        let rests = self.rests != 0;
        self.rests = self.rests.saturating_sub(1);
        rests
    }

    /// A yield has ended that took so long, with so many gets of the mutex meanwhile. It was in vain if it was
    /// longer than a spin: after a shorter one nobody else may have been ready to run.
    pub fn yielded(&mut self, params: &Params, took_ns: u64, gets: u64, is_open: bool) {
        if gets > FEW {
            self.in_vain = self.in_vain.saturating_sub(1);
        } else if gets > 0 && !is_open && took_ns >= params.get(P::OrbitSpinTime) * 1000 {
            self.in_vain = if self.in_vain < MOST { self.in_vain + 1 } else { MOST };
            if self.in_vain >= ENOUGH {
                self.rests = (1 << self.in_vain) - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIN_NS: u64 = 8000;

    /// Waits in a row that park at once.
    fn rests(experience: &mut Experience) -> u32 {
        (0..1000).take_while(|_| experience.begins()).count().try_into().unwrap()
    }

    #[test]
    fn a_session_whose_yields_are_in_vain_rests_for_longer_and_longer_and_tries_again() {
        let mut experience = Experience::default();
        let after_each: Vec<u32> = (0..12)
            .map(|_| {
                experience.yielded(&Params::default(), SPIN_NS, 1, false);
                rests(&mut experience)
            })
            .collect();
        assert_eq!(after_each, [0, 0, 0, 15, 31, 63, 127, 255, 255, 255, 255, 255]);
        for _ in 0..5 {
            experience.yielded(&Params::default(), SPIN_NS, 3, false);
        }
        experience.yielded(&Params::default(), SPIN_NS, 2, false);
        assert_eq!(rests(&mut experience), 15, "three and one more");
    }

    #[test]
    fn a_yield_is_in_vain_only_if_it_was_long_and_the_mutex_passed_and_is_busy() {
        let mut experience = Experience::default();
        for _ in 0..99 {
            experience.yielded(&Params::default(), SPIN_NS - 1, 1, false);
            experience.yielded(&Params::default(), SPIN_NS, 0, false);
            experience.yielded(&Params::default(), SPIN_NS, 1, true);
            experience.yielded(&Params::default(), SPIN_NS, 64, false);
        }
        assert_eq!((rests(&mut experience), experience), (0, Experience::default()));
    }
}
