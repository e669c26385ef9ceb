//! Scheme 1, `sleep`: one yield, then sleeps of `mutex_wait_time` ms for ever.
//!
//! Cheap while few wait; a thousand sleepers at 1 ms use more than a processor for their wake-ups alone.
//! Source: Nikolaev, "Exploring mutexes" (MEDIAS 2012), § VI.

use super::{Attempt, Scheme, Step};
use crate::params::P;
use std::time::Duration;

pub(super) struct Sleep;

impl Scheme for Sleep {
    fn step(&self, attempt: &Attempt<'_>) -> Step {
        match attempt.failed {
            0 => Step::Yield,
            _ => super::sleep(Duration::from_millis(attempt.params.get(P::WaitTime))),
        }
    }
}
