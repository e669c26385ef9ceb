//! Wait schemes: pure functions from "how often this wait has failed and what can be seen" to "what next".
//!
//! A wait is: spin, step, spin, step… A scheme says how long to spin and which step follows; what all of them
//! share is in [`Course`]. None of it performs anything. A new scheme is a file here, the last line of the
//! table in `schemes.rs` (instances store its position) and a row in `retrial-model/src/theory.rs`;
//! parameters of its own are in `params.rs`. The tests of the workspace find what is missing.

use crate::params::{P, Params};
use crate::parking::Wakes;
use crate::schemes::with_schemes;
use std::cell::Cell;
use std::time::Duration;

/// What to do after a failed spin. A scheme says how long a park may last, a [`Course`] how to [`Park`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<T = Duration> {
    /// Give the processor to the next thread that is ready to run.
    Yield,
    /// Sleep this long; nobody wakes the sleeper.
    Sleep(Duration),
    /// Queue for a wake-up by a releaser. The time is the watcher's until its look; others look more rarely.
    Park(T),
    /// Ask the holder to hand over at its release, and spin for that. Only a [`Course`] says so.
    Ask(Duration),
    /// The queue is full: sleep this long instead; counted apart.
    Overflow(Duration),
}

/// What a scheme sees of a wait.
#[allow(clippy::struct_excessive_bools)] // observations, each true or not
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The values in force for the mutex's type, read afresh for every step.
    pub params: &'a Params,
    /// Steps of this wait before this one.
    pub failed: u32,
    /// Parks of this wait that have ended.
    pub parks: u32,
    /// Steps since the last park ended, or since the wait began.
    pub since_park: u32,
    /// Yields and sleeps of all sessions at the mutex since this wait began, its own included; only its own
    /// where they are not counted.
    pub soft_spins: u64,
    /// Whether a release ended the last park, or came before the session slept.
    pub woken: bool,
    /// Whether the session is of the high priority class.
    pub high_priority: bool,
    /// Sessions parked on the mutex now, a hint.
    pub parked: u32,
    /// Whether `adaptive` has `pthread` in use.
    pub pthread_in_use: bool,
    /// Whether the session had better park at once, for schemes that heed it.
    pub parks_first: bool,
    /// How often the session halves `orbit_yields`: see [`Experience::yielded`].
    pub halvings: u32,
    /// Time of one poll of the word, in ns, measured on this machine when the instance was created.
    pub poll_ns: u32,
    /// A fresh random number.
    pub random: u64,
}

impl<'a> Attempt<'a> {
    /// Of a wait that begins where nobody else waits.
    #[must_use]
    pub const fn first(params: &'a Params) -> Self {
        Self {
            params,
            failed: 0,
            parks: 0,
            since_park: 0,
            soft_spins: 0,
            woken: false,
            high_priority: false,
            parked: 0,
            pthread_in_use: false,
            parks_first: false,
            halvings: 0,
            poll_ns: 30,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Number of polls that take so long on this machine.
    pub(crate) fn polls_in(&self, ns: u64) -> u32 {
        clamp(ns / u64::from(self.poll_ns.max(1)))
    }
}

/// A wait scheme.
pub trait Scheme: Sync {
    /// Polls of the word before the step of this attempt, after a first look, which there is in any case; the
    /// exchange is tried when a look finds it open.
    fn spins(&self, attempt: &Attempt<'_>) -> u32 {
        clamp(attempt.params.get(P::SpinCount))
    }

    /// What to do after the spin of this attempt failed.
    fn step(&self, attempt: &Attempt<'_>) -> Step;

    /// Whether it has the rules of `orbit`: turns, spins that back off, throttled releases, handovers.
    fn is_orbit(&self) -> bool {
        false
    }

    /// Which releases wake a session that has parked by it.
    fn wakes(&self, attempt: &Attempt<'_>) -> Wakes {
        let _ = attempt;
        if self.is_orbit() { Wakes::Enough } else { Wakes::Each }
    }

    /// Whether its sleeps take `sleep_jitter`.
    fn takes_jitter(&self) -> bool {
        true
    }

    /// Of a scheme that changes between two types: the one in use.
    fn type_in_use(&self, pthread: bool) -> Option<&'static str> {
        let _ = pthread;
        None
    }
}

mod course;
#[cfg(test)]
mod example;
mod experience;
mod park;
mod restriction;

pub use course::{Course, First, Seen, Spin, Wanted};
pub use experience::Experience;
pub use park::Park;
pub use restriction::Restriction;

macro_rules! schemes {
    ($( $number:literal => $module:ident::$scheme:ident, $name:literal, $unit:literal; )*) => {
        $( mod $module; )*

        static SCHEMES: &[&dyn Scheme] = &[ $( &$module::$scheme ),* ];
    };
}

with_schemes!(schemes);

pub use crate::schemes::{ADAPTIVE, BACKOFF, DEFAULT, NAMES, SLEEP, named, wait_time_unit};
pub use adaptive::{Adaption, Counts};

/// The scheme at this position, the default one for a position that no build knows.
#[must_use]
pub fn scheme(position: u64) -> &'static dyn Scheme {
    usize::try_from(position).ok().and_then(|i| SCHEMES.get(i)).copied().unwrap_or(SCHEMES[DEFAULT])
}

/// What views show for the scheme at this position: its name, and the type in use of one that has two.
#[must_use]
pub fn shown(position: u64, pthread_in_use: bool) -> String {
    let name = P::Scheme.format(position);
    match scheme(position).type_in_use(pthread_in_use) {
        Some(in_use) => format!("{} ({in_use})", name.to_uppercase()),
        None => name,
    }
}

/// The next random number of a generator whose state is not 0 (xorshift64*, Marsaglia 2003 and Vigna 2016).
#[inline]
#[must_use]
pub fn random(state: &Cell<u64>) -> u64 {
    let mut x = state.get();
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    state.set(x);
    x.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// A step of `duration`; a sleep of 0 is a yield.
fn sleep(duration: Duration) -> Step {
    if duration.is_zero() { Step::Yield } else { Step::Sleep(duration) }
}

const fn centiseconds(n: u64) -> Duration {
    Duration::from_millis(n * 10)
}

fn clamp(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Step::{Park, Sleep, Yield};

    /// The first `n` steps of a wait that nobody wakes.
    fn trace(scheme: &str, params: Params, n: u32, high_priority: bool) -> Vec<Step> {
        let scheme = super::scheme(named(scheme).unwrap() as u64);
        let mut parks = 0;
        (0..n)
            .map(|failed| {
                let soft_spins = u64::from(failed);
                let attempt =
                    Attempt { failed, parks, since_park: failed, soft_spins, high_priority, ..Attempt::first(&params) };
                let step = scheme.step(&attempt);
                parks += u32::from(matches!(step, Park(_)));
                step
            })
            .collect()
    }

    fn ms(n: u64) -> Step {
        Sleep(Duration::from_millis(n))
    }

    /// Runs of equal steps, as the sources print them.
    fn runs(steps: &[Step]) -> Vec<(usize, Step)> {
        steps.chunk_by(|a, b| a == b).map(|run| (run.len(), run[0])).collect()
    }

    #[test]
    fn each_row_of_the_sources_table_is_reproduced() {
        let p = Params::default();
        assert_eq!(runs(&trace("10g", p, 1000, false)), [(1000, Yield)]);
        assert_eq!(runs(&trace("patch6904068", p, 1000, false)), [(1000, ms(10))]);
        assert_eq!(runs(&trace("patch6904068", p.with(P::FirstSpare, 0), 1000, false)), [(1000, Yield)]);
        assert_eq!(runs(&trace("yield", p, 300, false)), [(99, Yield), (1, ms(1))].repeat(3));
        let two = p.with(P::YieldSleepTime, 2).with(P::YieldSleepFreq, 3);
        assert_eq!(runs(&trace("yield", two, 9, false)), [(2, Yield), (1, ms(2))].repeat(3));
        let sleeping = p.with(P::YieldMode, 1);
        assert_eq!(runs(&trace("yield", sleeping, 60, false)), [(19, ms(1)), (1, Yield)].repeat(3));
        let three = sleeping.with(P::YieldSleepTime, 3).with(P::YieldYieldFreq, 3);
        assert_eq!(runs(&trace("yield", three, 9, false)), [(2, ms(3)), (1, Yield)].repeat(3));
        assert_eq!(runs(&trace("yield", p.with(P::YieldSleepTime, 0), 1000, false)), [(1000, Yield)]);
        let patch = p.with(P::YieldSleepTime, 10).with(P::YieldSleepFreq, 0);
        assert_eq!(runs(&trace("yield", patch, 1000, false)), [(1000, ms(10))]);
        let hp = p.with(P::YieldHpMode, 1);
        assert_eq!(runs(&trace("yield", hp, 20, true)), [(19, ms(1)), (1, Yield)]);
        assert_eq!(runs(&trace("yield", hp, 100, false)), [(99, Yield), (1, ms(1))]);
        assert_eq!(runs(&trace("sleep", p, 1000, false)), [(1, Yield), (999, ms(1))]);
        assert_eq!(runs(&trace("backoff", p, 1000, false)), [(2, Yield), (998, ms(10))]);
        let growing = trace("backoff", p.with(P::WaitTime, 30), 14, false);
        let nominal: Vec<Step> = [10, 10, 30, 30, 70, 70, 150, 150, 300, 300, 300, 300].map(ms).into();
        assert_eq!(growing[..2], [Yield, Yield]);
        assert_eq!(growing[2..], nominal);
    }

    #[test]
    fn the_queueing_schemes_park() {
        let p = Params::default();
        assert_eq!(runs(&trace("latch", p, 5, false)), [(5, Park(Duration::from_millis(100)))]);
        assert_eq!(runs(&trace("pthread", p, 5, false)), [(5, Park(Duration::from_millis(100)))]);
        assert_eq!(runs(&trace("ydb", p, 130, false)), [(128, Yield), (2, Park(Duration::from_millis(100)))]);
        let yields = p.get(P::OrbitYields) as u32;
        assert!(matches!(trace("orbit", p, yields + 1, false)[yields as usize], Park(_)));
    }

    #[test]
    fn a_soft_spin_of_ydb_ends_after_so_many_of_all_sessions_together_and_a_full_queue_is_looked_at_ever_more_rarely() {
        let p = Params::default();
        let ydb = super::scheme(named("ydb").unwrap() as u64);
        let step = |soft_spins| ydb.step(&Attempt { soft_spins, failed: 1, since_park: 1, ..Attempt::first(&p) });
        assert_eq!((step(127), step(128)), (Yield, Park(Duration::from_millis(100))));
        let full = |since_park| ydb.step(&Attempt { parked: 1024, since_park, ..Attempt::first(&p) });
        assert_eq!([0, 1, 6, 7, 8].map(full), [1, 2, 64, 128, 128].map(|n| Step::Overflow(Duration::from_millis(n))));
    }

    #[test]
    fn a_scheme_is_shown_by_its_name_and_with_the_type_that_is_in_use() {
        assert_eq!(
            [false, true].map(|pthread| shown(ADAPTIVE as u64, pthread)),
            ["ADAPTIVE (YDB)", "ADAPTIVE (PTHREAD)"]
        );
        assert_eq!(shown(DEFAULT as u64, true), "orbit");
    }

    #[test]
    fn an_unknown_position_is_the_default_scheme() {
        assert!(std::ptr::eq(scheme(u64::MAX), SCHEMES[DEFAULT]));
    }
}
