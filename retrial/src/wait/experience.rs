//! What a session knows from one wait to the next: how many yields are worth their time, and how long its turn
//! has lasted.

use super::restriction::interval;
use super::{Course, First};
use crate::params::{Fairness, P, Params};
use crate::parking::LOOK_EVERY;

/// Maximum number of times that `orbit_yields` is halved. At 8 of 512 they end with what a park and a wake-up
/// cost.
const HALVINGS: u32 = 6;

/// Turns in the time from one handover to the next. A turn costs a switch and what the processor has cached; a
/// handover leaves the mutex idle as well.
const TURNS: u32 = 10;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Experience {
    /// Misses of its turn, and when that began, by the monotonic clock.
    misses: u64,
    turn_began_ns: u64,
    /// How often `orbit_yields` is halved in its next wait.
    halvings: u32,
    /// Whether a get of it has missed.
    has_waited: bool,
}

impl Experience {
    /// A get has missed: what its wait begins with. `now_ns` is asked for now and then.
    ///
    /// The first wait of a session parks at once. Thousands that begin together would each spin and yield while
    /// the holder waits for its processor behind all of them.
    #[must_use]
    pub fn first(&mut self, params: &Params, now_ns: impl FnOnce() -> u64) -> First {
        let has_waited = std::mem::replace(&mut self.has_waited, true);
        if !has_waited {
            First::Park
        } else if self.ends_turn(params, now_ns) {
            First::Yield
        } else {
            First::Spin
        }
    }

    /// Whether the session has had its turn, and is to yield before it waits.
    ///
    /// The sessions that run get the mutex by spins as long as the kernel lets them run, for milliseconds, if
    /// their sections are shorter than a spin. The others have no processor to ask for a handover on.
    fn ends_turn(&mut self, params: &Params, now_ns: impl FnOnce() -> u64) -> bool {
        self.misses += 1;
        self.misses.is_multiple_of(LOOK_EVERY)
            && params.fairness() != Fairness::Throughput
            && super::scheme(params.get(P::Scheme)).is_orbit()
            && u128::from(now_ns().saturating_sub(self.turn_began_ns))
                >= (params.handover_interval() / TURNS).as_nanos()
    }

    /// Whether its last turn began an interval or more before a wait whose first yield ended just now. The next turn
    /// has not [begun](Self::begin_turn) yet.
    #[must_use]
    pub fn was_away(&self, wait: &Course, params: &Params) -> bool {
        let away_ns = wait.started_ns().saturating_sub(self.turn_began_ns);
        wait.failed() == 1 && u128::from(away_ns) >= interval(params).as_nanos()
    }

    /// A yield has ended, and the session's next turn begins.
    pub const fn begin_turn(&mut self, now_ns: u64) {
        (self.misses, self.turn_began_ns) = (0, now_ns);
    }

    /// How often `orbit_yields` is halved.
    #[must_use]
    pub const fn halvings(&self) -> u32 {
        self.halvings
    }

    /// A wait has got the mutex, or is about to park. If it has yielded before its first park, that says what
    /// yields are worth: where they brought the mutex the next wait may yield twice as often, else half as often.
    ///
    /// Where the holder runs, a session that yields keeps no other one from its processor, and misses no
    /// release; one that parks often leaves a processor idle. Where the holder sleeps, yields burn processor
    /// time.
    pub fn yielded(&mut self, wait: &Course, got: bool) {
        if wait.has_only_yielded() {
            self.halvings = if got { self.halvings.saturating_sub(1) } else { HALVINGS.min(self.halvings + 1) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::example::{WANTED, seen};
    use super::super::{Seen, Step};
    use super::*;

    #[test]
    fn a_turn_ends_after_a_tenth_of_the_interval_at_every_sixteenth_miss_until_a_yield() {
        let params = Params::default().with(P::HandoverInterval, 1000);
        let ends = |known: &mut Experience, params: &Params, now_ns| {
            (0..32).map(|_| known.ends_turn(params, || now_ns)).filter(|ends| *ends).count()
        };
        let mut known = Experience::default();
        known.begin_turn(1_000_000);
        assert_eq!(ends(&mut known, &params, 1_099_999), 0);
        assert_eq!(ends(&mut known, &params, 1_100_000), 2, "one, and the next one sixteen misses later");
        known.begin_turn(1_100_000);
        assert_eq!(ends(&mut known, &params, 1_199_999), 0);
        for other in [params.with(P::Fairness, 0), params.with(P::Scheme, super::super::SLEEP as u64)] {
            assert_eq!(ends(&mut known, &other, u64::MAX), 0);
        }
        let mut early = Experience::default();
        assert!((0..15).all(|_| !early.ends_turn(&params, || u64::MAX)) && early.ends_turn(&params, || u64::MAX));
    }

    #[test]
    fn yields_that_do_not_bring_the_mutex_are_halved_down_to_a_64th_and_doubled_when_they_do() {
        let mut known = Experience::default();
        let params = Params::default();
        let mut wait = Course::begin(WANTED);
        known.yielded(&wait, false);
        assert_eq!(known.halvings(), 0, "the first spin");
        assert_eq!(wait.step(&seen(&params)), Step::Yield);
        let mut after = |got| {
            known.yielded(&wait, got);
            known.halvings()
        };
        assert_eq!([true, false, false, false, true, false].map(&mut after), [0, 1, 2, 3, 2, 3]);
        assert_eq!([false; 5].map(&mut after), [4, 5, 6, 6, 6]);
        assert_eq!([true; 7].map(after), [5, 4, 3, 2, 1, 0, 0]);
    }

    #[test]
    fn a_session_was_away_if_its_wait_begins_an_interval_after_its_last_turn_began() {
        let params = Params::default().with(P::HandoverInterval, 1000);
        let mut known = Experience::default();
        known.begin_turn(1_000_000);
        let wait = |steps, now_ns| {
            let mut wait = Course::begin(WANTED);
            for _ in 0..steps {
                assert_eq!(wait.step(&Seen { now_ns, ..seen(&params) }), Step::Yield);
            }
            wait
        };
        let away =
            |steps, now_ns, interval| known.was_away(&wait(steps, now_ns), &params.with(P::HandoverInterval, interval));
        assert_eq!(
            [(1, 1_999_999), (1, 2_000_000), (2, 2_000_000)].map(|(n, at)| away(n, at, 1000)),
            [false, true, false]
        );
        assert_eq!([2_999_999, 3_000_000].map(|at| away(1, at, 9999)), [false, true], "2 ms at most");
    }

    #[test]
    fn the_first_wait_of_a_session_parks_at_once() {
        let mut known = Experience::default();
        assert_eq!([(); 3].map(|()| known.first(&Params::default(), || 0)), [First::Park, First::Spin, First::Spin]);
    }
}
