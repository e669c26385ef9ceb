//! `pthread`: no spin, a futex queue, a release wakes the first session, which competes again: glibc's
//! process-shared mutex. While a woken session is on its way, releases wake no other.
//!
//! Wins when thousands wait, since nobody burns a processor; a short section pays a wake-up of 15 to 30 µs.
//! Unlike glibc's, each sleep is bounded, so that a killed session's swallowed wake-up costs 10 ms, later ones up
//! to `queue_timeout`, not a hang.

use super::{Attempt, Scheme, Step};
use crate::params::P;
use crate::parking::Wakes;
use std::time::Duration;

pub(super) struct Pthread;

impl Scheme for Pthread {
    fn spins(&self, _: &Attempt<'_>) -> u32 {
        0
    }

    fn wakes(&self, _: &Attempt<'_>) -> Wakes {
        Wakes::One
    }

    fn step(&self, attempt: &Attempt<'_>) -> Step {
        Step::Park(Duration::from_millis(attempt.params.get(P::QueueTimeout)))
    }
}
