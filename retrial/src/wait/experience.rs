//! What a session knows from one wait to the next: whether its yields bring it the mutex, how many are worth
//! their time, and how long its turn has lasted.

use super::{Course, First};
use crate::params::{Fairness, P, Params};
use crate::parking::LOOK_EVERY;

/// Net number of yields in vain from which a session parks at once.
const ENOUGH: u32 = 4;

/// Maximum of that number: fewer waits than two to the power of this park at once before the next trial.
const MOST: u32 = 8;

/// If others got the mutex at most this often during one yield, a section lasts about as long as a yield.
const FEW: u64 = 2;

/// Maximum number of times that `orbit_yields` is doubled. With eight times as many again, sections of 25 and
/// 50 us were no faster.
const DOUBLINGS: u32 = 3;

/// Turns in the time from one handover to the next. A turn costs a switch and what the processor has cached; a
/// handover leaves the mutex idle as well.
const TURNS: u32 = 4;

/// A yield that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Yielded {
    /// Id of the mutex.
    pub mutex: u32,
    /// Its time.
    pub took_ns: u64,
    /// Its end, by the monotonic clock.
    pub now_ns: u64,
    /// Gets of the mutex meanwhile.
    pub gets: u64,
    /// Whether the mutex is open after it.
    pub is_open: bool,
}

/// Whether yields bring a session the mutex; a new session assumes that they do.
///
/// A section in which the holder gives its processor away lasts until the processor has been through all
/// sessions that yield there: the more of them wait so, the longer each section takes. What they see is that
/// the mutex passes once or twice in each of their yields, however many the yields are. Then the next waits
/// for that mutex park at once, and the holder has its processor back at once. Where yields are useful, the
/// mutex passes many times meanwhile, or is open after a short one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Experience {
    /// The mutex that it is about: the last one with a yield in vain.
    mutex: u32,
    /// Yields in vain, less the useful ones.
    in_vain: u32,
    /// Waits to come that park at once.
    rests: u32,
    /// Misses of its turn, and when that began, by the monotonic clock.
    misses: u64,
    turn_began_ns: u64,
    /// How often `orbit_yields` is doubled in its next wait.
    doublings: u32,
    /// Whether a get of it has missed.
    has_waited: bool,
}

impl Experience {
    /// A get of this mutex has missed: what its wait begins with. `now_ns` is asked for now and then.
    ///
    /// The first wait of a session parks at once. Thousands that begin together would each spin and yield while
    /// the holder waits for its processor behind all of them.
    #[must_use]
    pub fn first(&mut self, mutex: u32, params: &Params, now_ns: impl FnOnce() -> u64) -> First {
        let has_waited = std::mem::replace(&mut self.has_waited, true);
        if self.begins(mutex) || !has_waited {
            First::Park
        } else if self.ends_turn(params, now_ns) {
            First::Yield
        } else {
            First::Spin
        }
    }

    /// Whether a wait for this mutex is to park at once.
    const fn begins(&mut self, mutex: u32) -> bool {
        let rests = self.rests != 0 && self.mutex == mutex;
        if rests {
            self.rests -= 1;
        }
        rests
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

    /// How often `orbit_yields` is doubled.
    #[must_use]
    pub const fn doublings(&self) -> u32 {
        self.doublings
    }

    /// A wait has got the mutex, or is about to park. If it has yielded before its first park, that says what
    /// yields are worth: where they brought the mutex the next wait may yield twice as often, else half as often.
    ///
    /// How long so many yields take depends on who else is ready to run, and how long a wait takes on the
    /// sections: a fixed number is too small for long sections beside idle processors, and too large for
    /// holders that sleep.
    pub fn yielded(&mut self, wait: &Course, got: bool) {
        if wait.has_only_yielded() {
            self.doublings = if got { DOUBLINGS.min(self.doublings + 1) } else { self.doublings.saturating_sub(1) };
        }
    }

    /// A yield has ended. It was in vain if it was longer than a spin: after a shorter one nobody else may
    /// have been ready to run.
    pub fn learn(&mut self, params: &Params, yielded: Yielded) {
        let Yielded { mutex, took_ns, now_ns, gets, is_open } = yielded;
        (self.misses, self.turn_began_ns) = (0, now_ns);
        let is_known = mutex == self.mutex;
        let is_long = took_ns >= params.get(P::OrbitSpinTime) * 1000;
        if gets > FEW || is_open && !is_long {
            self.in_vain = self.in_vain.saturating_sub(u32::from(is_known));
        } else if gets > 0 && is_long && !is_open && super::scheme(params.get(P::Scheme)).is_orbit() {
            let in_vain = if is_known { (self.in_vain + 1).min(MOST) } else { 1 };
            let rests = if in_vain < ENOUGH { 0 } else { (1 << in_vain) - 1 };
            *self = Self { mutex, in_vain, rests, ..*self };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Seen, Step, Wanted};
    use super::*;

    const WANTED: Wanted = Wanted {
        mode: crate::Mode::Exclusive,
        high_priority: false,
        first: First::Spin,
        doublings: 0,
        poll_ns: 30,
        soft_spins: 0,
    };
    const IN_VAIN: Yielded = Yielded { mutex: 7, took_ns: 8000, now_ns: 0, gets: 1, is_open: false };

    /// Waits in a row that park at once.
    fn rests(known: &mut Experience) -> usize {
        (0..1000).take_while(|_| known.begins(7)).count()
    }

    fn learn(known: &mut Experience, yielded: Yielded) {
        known.learn(&Params::default(), yielded);
    }

    #[test]
    fn a_session_whose_yields_are_in_vain_parks_at_once_for_longer_and_longer_and_tries_again() {
        let mut known = Experience::default();
        let after_each: Vec<usize> = (0..12)
            .map(|_| {
                learn(&mut known, IN_VAIN);
                rests(&mut known)
            })
            .collect();
        assert_eq!(after_each, [0, 0, 0, 15, 31, 63, 127, 255, 255, 255, 255, 255]);
        for (gets, took_ns) in [(3, 8000), (64, 8000), (1, 7999), (3, 0), (64, 90_000)] {
            learn(&mut known, Yielded { gets, took_ns, is_open: true, ..IN_VAIN });
        }
        learn(&mut known, Yielded { gets: 2, ..IN_VAIN });
        assert_eq!(rests(&mut known), 15, "three and one more");
    }

    #[test]
    fn a_yield_is_in_vain_only_if_it_was_long_and_the_mutex_passed_and_is_busy() {
        let mut known = Experience::default();
        for _ in 0..99 {
            for (took_ns, gets, is_open) in [(7999, 1, false), (8000, 0, false), (8000, 1, true), (8000, 64, false)] {
                learn(&mut known, Yielded { took_ns, gets, is_open, ..IN_VAIN });
            }
        }
        let published = Params::default().with(P::Scheme, super::super::SLEEP as u64);
        (0..99).for_each(|_| known.learn(&published, IN_VAIN));
        assert_eq!((rests(&mut known), known), (0, Experience::default()));
    }

    #[test]
    fn a_turn_ends_after_a_quarter_of_the_interval_at_every_sixteenth_miss_until_a_yield() {
        let params = Params::default().with(P::HandoverInterval, 1000);
        let ends = |known: &mut Experience, params: &Params, now_ns| {
            (0..32).map(|_| known.ends_turn(params, || now_ns)).filter(|ends| *ends).count()
        };
        let mut known = Experience::default();
        learn(&mut known, Yielded { now_ns: 1_000_000, ..IN_VAIN });
        assert_eq!(ends(&mut known, &params, 1_249_999), 0);
        assert_eq!(ends(&mut known, &params, 1_250_000), 2, "one, and the next one sixteen misses later");
        learn(&mut known, Yielded { now_ns: 1_250_000, ..IN_VAIN });
        assert_eq!(ends(&mut known, &params, 1_499_999), 0);
        for other in [params.with(P::Fairness, 0), params.with(P::Scheme, super::super::SLEEP as u64)] {
            assert_eq!(ends(&mut known, &other, u64::MAX), 0);
        }
        let mut early = Experience::default();
        assert!((0..15).all(|_| !early.ends_turn(&params, || u64::MAX)) && early.ends_turn(&params, || u64::MAX));
    }

    #[test]
    fn yields_that_bring_the_mutex_are_doubled_up_to_eight_times_and_halved_when_a_session_has_to_park() {
        let mut known = Experience::default();
        let params = Params::default();
        let mut wait = Course::begin(WANTED, 0);
        known.yielded(&wait, true);
        assert_eq!(known.doublings(), 0, "the first spin");
        let seen = Seen {
            params: &params,
            now_ns: 0,
            parked: 0,
            gets: 0,
            soft_spins: 0,
            on_x: true,
            restricted: false,
            pthread_in_use: false,
            random: 0,
        };
        assert_eq!(wait.step(&seen), Step::Yield);
        let mut after = |got| {
            known.yielded(&wait, got);
            known.doublings()
        };
        assert_eq!([false, true, true, true, true, false, true].map(&mut after), [0, 1, 2, 3, 3, 2, 3]);
        assert_eq!([false; 5].map(after), [2, 1, 0, 0, 0]);
    }

    #[test]
    fn the_first_wait_of_a_session_parks_at_once() {
        let mut known = Experience::default();
        let first = |mutex| known.first(mutex, &Params::default(), || 0);
        assert_eq!([7, 7, 8].map(first), [First::Park, First::Spin, First::Spin]);
    }

    #[test]
    fn what_is_learnt_is_about_one_mutex() {
        let mut known = Experience::default();
        (0..4).for_each(|_| learn(&mut known, IN_VAIN));
        learn(&mut known, Yielded { mutex: 8, gets: 64, ..IN_VAIN });
        assert_eq!((known.begins(8), rests(&mut known)), (false, 15));
        (0..4).for_each(|_| learn(&mut known, IN_VAIN));
        learn(&mut known, Yielded { mutex: 8, ..IN_VAIN });
        assert_eq!((known.begins(8), rests(&mut known)), (false, 0));
    }
}
