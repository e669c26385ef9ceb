//! `orbit`, the default: spin for about what a yield to another session costs; yield and look, up to
//! `orbit_yields` times, fewer where that does [not bring the mutex](super::Experience::yielded); then park.
//!
//! A release wakes one parked session, unless [`enough`](crate::parking::Parking::enough) woken ones are on
//! their way: these spin and yield in their turn. So some sessions are active and take turns at the
//! mutex, and the others sleep, whatever their number. A session that has waited for long and was woken in
//! vain has the mutex handed to it. Parked sessions look by themselves so rarely that the number of them
//! costs nothing. Loses to schemes that never sleep while holding times are long and each waiter has a
//! processor of its own.

use super::{Attempt, Scheme, Step};
use crate::params::P;
use std::time::Duration;

pub(super) struct Orbit;

/// Time to the first look of the watcher.
const WATCH_EVERY: Duration = Duration::from_millis(10);

/// Maximum factor by which the looks of a wait grow apart. Thousands of sessions that each watch a mutex of
/// their own would fill a processor with looks otherwise (2,000: one of two, measured).
const WATCH_TIMES: u32 = 16;

/// Time to the first look of the watcher, in a wait of so many parks.
pub(super) fn watch_after(parks: u32) -> Duration {
    WATCH_EVERY * parks.saturating_add(1).min(WATCH_TIMES)
}

/// A session parks at once, without a spin, in three cases.
///
/// It was woken out of a condition's queue: other sessions of the same broadcast are before it, and each that
/// spins takes the processor from them (32 threads, again and again: 0.84 of the rounds, measured).
///
/// It is the session's [first wait](super::Experience::first).
///
/// One session is to be active alone: see [`Restriction`](super::Restriction).
const fn queues(attempt: &Attempt<'_>) -> bool {
    attempt.parks_first && attempt.parks == 0
}

impl Scheme for Orbit {
    fn spins(&self, attempt: &Attempt<'_>) -> u32 {
        let limit = attempt.polls_in(attempt.params.get(P::OrbitSpinTime) * 1000);
        match attempt.since_park {
            _ if queues(attempt) => 0,
            // After a look of its own.
            0 if attempt.parks > 0 && !attempt.woken => 0,
            0 => limit,
            _ => limit / 4,
        }
    }

    fn step(&self, attempt: &Attempt<'_>) -> Step {
        let looked = attempt.parks > 0 && !attempt.woken && attempt.since_park == 0;
        let yields = attempt.params.get(P::OrbitYields).div_ceil(1 << attempt.halvings);
        let yielded = u64::from(attempt.since_park) >= yields;
        if queues(attempt) || looked || yielded {
            return Step::Park(watch_after(attempt.parks));
        }
        Step::Yield
    }

    fn is_orbit(&self) -> bool {
        true
    }

    fn takes_jitter(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Params;

    #[test]
    fn a_session_spins_and_yields_before_its_first_park_and_after_each_wake_up_and_parks_at_once_after_a_look() {
        let params = Params::default();
        let yields = u32::try_from(params.get(P::OrbitYields)).unwrap();
        let attempt = |parks, woken, since_park| Attempt { parks, since_park, woken, ..Attempt::first(&params) };
        let park = |parks: u32| Step::Park(WATCH_EVERY * (parks + 1));
        for (parks, woken) in [(0, false), (1, true), (7, true)] {
            assert_eq!(Orbit.spins(&attempt(parks, woken, 0)) / 4, Orbit.spins(&attempt(parks, woken, 1)));
            assert!((0..yields).all(|n| Orbit.step(&attempt(parks, woken, n)) == Step::Yield));
            assert_eq!(Orbit.step(&attempt(parks, woken, yields)), park(parks));
        }
        let halved = |n| Orbit.step(&Attempt { halvings: 6, ..attempt(0, false, n) });
        assert_eq!((halved(yields / 64 - 1), halved(yields / 64)), (Step::Yield, park(0)), "they bring nothing");
        let few = params.with(P::OrbitYields, 3);
        let one = |since_park| Orbit.step(&Attempt { since_park, halvings: 6, ..Attempt::first(&few) });
        assert_eq!((one(0), one(1)), (Step::Yield, park(0)), "one at least");
        assert_eq!(Orbit.spins(&attempt(1, false, 0)), 0);
        assert_eq!((Orbit.step(&attempt(1, false, 0)), Orbit.step(&attempt(99, false, 0))), (park(1), park(15)));
        let signalled = Attempt { parks_first: true, ..attempt(0, false, 0) };
        assert_eq!((Orbit.spins(&signalled), Orbit.step(&signalled)), (0, park(0)));
    }
}
