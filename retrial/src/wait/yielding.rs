//! Scheme 0, `yield`: yields with a sleep now and then, or sleeps with a yield now and then (11.2.0.2.2).
//!
//! Wins while processors are free and holding times short; burns a processor per waiter in a long hold.
//! Source: Nikolaev, "Mutex waits. Part II" (2011), §§ II–IV.

use super::{Attempt, Scheme, Step};
use crate::params::P;
use std::time::Duration;

pub(super) struct Yield;

impl Scheme for Yield {
    fn step(&self, attempt: &Attempt<'_>) -> Step {
        let params = attempt.params;
        let nap = super::sleep(Duration::from_millis(params.get(P::YieldSleepTime)));
        let mode = if attempt.high_priority { P::YieldHpMode } else { P::YieldMode };
        let last_of = |every: u64| every != 0 && (u64::from(attempt.failed) + 1).is_multiple_of(every);
        if params.get(mode) == 0 {
            let every = params.get(P::YieldSleepFreq).max(1);
            if last_of(every) { nap } else { Step::Yield }
        } else if last_of(params.get(P::YieldYieldFreq)) {
            Step::Yield
        } else {
            nap
        }
    }
}
