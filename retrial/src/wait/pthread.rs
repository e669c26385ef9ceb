//! `pthread`: no spin, a futex queue, every release wakes the first, which competes again: glibc's
//! process-shared mutex.
//!
//! Wins when thousands wait, since nobody burns a processor; a short section pays a wake-up of 15 to 30 µs.
//! Unlike glibc's, each sleep is bounded, so that a killed session's swallowed wake-up costs `queue_timeout`,
//! not a hang.

use super::{Attempt, Scheme, Step};
use crate::params::P;
use std::time::Duration;

pub(super) struct Pthread;

impl Scheme for Pthread {
    fn spins(&self, _: &Attempt<'_>) -> u32 {
        0
    }

    fn step(&self, attempt: &Attempt<'_>) -> Step {
        Step::Park(Duration::from_millis(attempt.params.get(P::QueueTimeout)))
    }
}
