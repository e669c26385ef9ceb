//! `patch6904068`: sleeps of `first_spare_parameter` cs for ever; 0 turns it into `10g`, live.
//!
//! Frees the processor at the price of 10 ms per miss that its spin does not resolve.
//! Source: Nikolaev, "Exploring mutexes" (MEDIAS 2012), § IV.

use super::{Attempt, Scheme, Step, centiseconds};
use crate::params::P;

pub(super) struct Patch;

impl Scheme for Patch {
    fn step(&self, attempt: &Attempt<'_>) -> Step {
        super::sleep(centiseconds(attempt.params.get(P::FirstSpare)))
    }
}
