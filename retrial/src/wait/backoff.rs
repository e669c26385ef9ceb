//! Scheme 2, `backoff`: two yields, then sleeps of (2^(i+1) − 1) cs, each length twice, up to
//! `mutex_wait_time` cs.
//!
//! The default of the paper. Gentle on the processor, slow to notice a release: a sleep is 10,000 spins.
//! Source: Nikolaev, "Exploring mutexes" (MEDIAS 2012), § VI.

use super::{Attempt, Scheme, Step, centiseconds};
use crate::params::P;

pub(super) struct Backoff;

impl Scheme for Backoff {
    fn step(&self, attempt: &Attempt<'_>) -> Step {
        let Some(sleeps) = attempt.failed.checked_sub(2) else { return Step::Yield };
        let nominal = (2u64 << (sleeps / 2).min(40)) - 1;
        super::sleep(centiseconds(nominal.min(attempt.params.get(P::WaitTime))))
    }
}
