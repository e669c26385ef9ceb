//! `adaptive`: `ydb` below a load threshold, `pthread` above it, with hysteresis.
//!
//! The rule is `YottaDB` r2.04's, with its thresholds as parameters. Four repairs: the way back looks at
//! misses per check *and* lets quiet time count as checks, so that it is taken at zero load too; it is not
//! taken while more sessions are parked than the way there allows; the way there is not the longer the fewer
//! gets an overload leaves; and the live type decides.

use super::{Attempt, Scheme, Step, pthread::Pthread, ydb::Ydb};
use crate::params::{P, Params};
use crate::parking::Wakes;
use crate::schemes;

pub(super) struct Adaptive;

impl Adaptive {
    fn in_use(attempt: &Attempt<'_>) -> &'static dyn Scheme {
        if attempt.pthread_in_use { &Pthread } else { &Ydb }
    }
}

impl Scheme for Adaptive {
    fn spins(&self, attempt: &Attempt<'_>) -> u32 {
        Self::in_use(attempt).spins(attempt)
    }

    fn step(&self, attempt: &Attempt<'_>) -> Step {
        Self::in_use(attempt).step(attempt)
    }

    fn wakes(&self, attempt: &Attempt<'_>) -> Wakes {
        Self::in_use(attempt).wakes(attempt)
    }

    fn type_in_use(&self, pthread: bool) -> Option<&'static str> {
        Some(if pthread { "PTHREAD" } else { "YDB" })
    }
}

impl Params {
    /// Whether the scheme has the soft spins of `ydb`, which end after so many of all sessions together.
    #[must_use]
    pub const fn counts_soft_spins(&self) -> bool {
        self.is_adaptive() || self.get(P::Scheme) == schemes::YDB as u64
    }

    /// Whether `adaptive` is the scheme.
    #[must_use]
    pub const fn is_adaptive(&self) -> bool {
        self.get(P::Scheme) == schemes::ADAPTIVE as u64
    }
}

/// What the controller of `adaptive` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// Successful gets.
    pub gets: u64,
    /// Gets whose first try failed.
    pub misses: u64,
    /// Parks.
    pub queue_sleeps: u64,
    /// The time, in ns.
    pub now_ns: u64,
}

/// The controller's state: the type in use and how many checks in a row spoke for the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Adaption {
    /// Whether `pthread` is in use; `ydb` otherwise.
    pub pthread_in_use: bool,
    /// Checks in a row that spoke for a switch.
    pub streak: u64,
}

impl Adaption {
    /// Time that counts as one check, in ns, while `ydb` is in use and while `pthread` is.
    const YDB_NS: u64 = 10_000_000;
    const PTHREAD_NS: u64 = 1_000_000_000;

    /// The state after what was counted since the `last` check, with so many sessions `parked`; `None` while
    /// no check is due.
    ///
    /// A check is due every `adaptive_check_every` gets, and every second while `pthread` is in use, or every
    /// 10 ms while `ydb` is: an overload of it leaves so few gets that between two of them the load may have
    /// come and gone.
    #[must_use]
    pub fn check(self, last: &Counts, now: &Counts, parked: u32, params: &Params) -> Option<Self> {
        let growth = |of: fn(&Counts) -> u64| of(now).saturating_sub(of(last));
        let by_gets = growth(|counts| counts.gets) / params.get(P::CheckEvery);
        let check_ns = if self.pthread_in_use { Self::PTHREAD_NS } else { Self::YDB_NS };
        let checks = by_gets.max(growth(|counts| counts.now_ns) / check_ns);
        if checks == 0 {
            return None;
        }
        let speaks_for_switch = if self.pthread_in_use {
            growth(|counts| counts.misses) / checks < params.get(P::PthreadThreshold)
                && u64::from(parked) <= params.get(P::YdbThreshold)
        } else {
            (growth(|counts| counts.queue_sleeps) / checks).saturating_add(u64::from(parked)) > params.get(P::YdbThreshold)
        };
        let streak = if speaks_for_switch { self.streak.saturating_add(checks) } else { 0 };
        Some(if streak >= params.get(P::Streak) {
            Self { pthread_in_use: !self.pthread_in_use, streak: 0 }
        } else {
            Self { streak, ..self }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADED: Counts = Counts { gets: 1024, misses: 1000, queue_sleeps: 2000, now_ns: 1 };

    fn check(state: Adaption, counted: Counts) -> Option<Adaption> {
        state.check(&Counts::default(), &counted, 0, &Params::default())
    }

    #[test]
    fn sixteen_loaded_checks_in_a_row_switch() {
        let mut state = Adaption::default();
        for _ in 0..15 {
            state = check(state, LOADED).unwrap();
            assert!(!state.pthread_in_use);
        }
        assert!(check(state, LOADED).unwrap().pthread_in_use);
    }

    #[test]
    fn one_quiet_check_resets_the_streak() {
        let state = Adaption { pthread_in_use: false, streak: 15 };
        let quiet = Counts { gets: 1024, ..Counts::default() };
        assert_eq!(check(state, quiet).unwrap().streak, 0);
    }

    #[test]
    fn quiet_time_alone_goes_back() {
        let state = Adaption { pthread_in_use: true, streak: 0 };
        let silence = Counts { gets: 1, now_ns: 16 * Adaption::PTHREAD_NS, ..Counts::default() };
        assert!(!check(state, silence).unwrap().pthread_in_use);
    }

    #[test]
    fn time_stands_in_for_gets_that_an_overload_does_not_leave() {
        let after = |pthread_in_use, now_ns| {
            let counted = Counts { gets: 1, misses: 0, queue_sleeps: 40_000, now_ns };
            let state = Adaption { pthread_in_use, streak: 0 };
            state.check(&Counts::default(), &counted, 1024, &Params::default())
        };
        assert_eq!(after(false, Adaption::YDB_NS - 1), None);
        assert_eq!(after(false, 15 * Adaption::YDB_NS).unwrap().streak, 15);
        assert!(after(false, 16 * Adaption::YDB_NS).unwrap().pthread_in_use);
        assert_eq!(after(true, Adaption::PTHREAD_NS - 1), None);
    }

    #[test]
    fn the_way_back_is_not_taken_while_more_sessions_are_parked_than_the_way_there_allows() {
        let state = Adaption { pthread_in_use: true, streak: 15 };
        let few_misses = Counts { gets: 1024, ..Counts::default() };
        let back = |parked| state.check(&Counts::default(), &few_misses, parked, &Params::default()).unwrap();
        assert_eq!(back(1025), Adaption { streak: 0, ..state });
        assert!(!back(1024).pthread_in_use);
    }
}
