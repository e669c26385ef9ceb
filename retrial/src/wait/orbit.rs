//! `orbit`, the default: spin by time, a few yields, then park with a long jittered time-out and one look after it.
//!
//! The time-outs are such that all parked sessions of a mutex together retry at most `orbit_retry_rate` times a second,
//! whatever their number, and a release wakes nobody while a woken session is on its way. So waiting costs what the
//! holder can spare, from 1 to 16,384 sessions. Loses to pure spinning while every waiter has a processor of its own
//! and holding times are longer than `orbit_spin_time`.

use super::{Attempt, Scheme, Step};
use crate::params::P;
use std::time::Duration;

pub(super) struct Orbit;

/// No park is shorter than this: below it a time-out races with the wake-ups that it only has to heal.
const PARK_MIN: Duration = Duration::from_millis(10);

/// Nor any longer, whatever the count of parked sessions says.
const PARK_MAX: Duration = Duration::from_mins(1);

/// Whoever was woken out of a condition's queue while the signaller still has the mutex parks at once. To spin for it would
/// take it from the signaller at every turn: a convoy of the program's own, such as Python's interpreter lock, then changes
/// hands at every step instead of now and then (16 threads on a queue: 5 times slower, measured).
const fn comes_to_the_signaller(attempt: &Attempt<'_>) -> bool {
    attempt.from_condition && attempt.parks == 0
}

impl Scheme for Orbit {
    fn spins(&self, attempt: &Attempt<'_>) -> u32 {
        if comes_to_the_signaller(attempt) {
            return 0;
        }
        let limit = super::clamp(attempt.params.get(P::OrbitSpinTime) * 1000 / u64::from(attempt.poll_ns.max(1)));
        match (attempt.parks, attempt.woken) {
            (0, _) if attempt.failed == 0 => limit,
            (0, _) | (_, true) => limit / 8,
            (_, false) => 0,
        }
    }

    fn step(&self, attempt: &Attempt<'_>) -> Step {
        let params = attempt.params;
        let yields = attempt.parks == 0 && u64::from(attempt.failed) < params.get(P::OrbitYields);
        if yields && !comes_to_the_signaller(attempt) {
            return Step::Yield;
        }
        let share = Duration::from_secs(1) * attempt.parked.saturating_add(1) / super::clamp(params.get(P::OrbitRetryRate));
        let mean = share.clamp(PARK_MIN, PARK_MAX);
        // Uniform on 0.5 to 1.5 times the mean: jitter far wider than any holding time, so that losers do not meet again.
        let permille = 500 + u32::try_from(attempt.random % 1000).unwrap_or(0);
        Step::Park(mean / 1000 * permille)
    }

    fn throttles_wakes(&self) -> bool {
        true
    }

    fn takes_jitter(&self) -> bool {
        false
    }
}
