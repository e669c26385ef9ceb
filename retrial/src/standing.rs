//! What a session has of a mutex and what it asks for: by a record of its log and the word of the same
//! moment.

use crate::mode::Mode;
use crate::operation_log::{Phase, Record};
use crate::word::{Sid, Word};

/// What a session has of a mutex and what it asks for, by one record of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What the log says.
    pub record: Record,
    /// The mode in which the session holds the mutex.
    pub holds: Option<Mode>,
    /// The mode that it is about to get; E and X also by a conversion.
    pub asks: Option<Mode>,
    /// Whether it could not have that mode at that moment: so while it waits, and while it spins for the
    /// first time, before that is a wait. Where the word is not known, whether it waits.
    pub is_busy: bool,
    /// Whether it waits for that mode, by what the views show as its wait.
    pub waits: bool,
}

impl Record {
    /// What it means beside a word of the mutex. The log says *getting* until X, LX or E is given back, and
    /// the word which session has it. Without the word a session that does not wait has what it asked for.
    #[must_use]
    pub fn standing(self, sid: Sid, word: Option<Word>, waits: bool) -> Standing {
        let is_holder = word.map_or(!waits, |word| word.sid() == sid);
        let (holds, asks) = match (self.phase, self.mode) {
            (Phase::Getting, mode) if is_holder => (Some(mode), None),
            (Phase::Getting, mode) => (None, Some(mode)),
            (Phase::Granted | Phase::Held | Phase::Leaving, Mode::Shared) => (Some(Mode::Shared), None),
            // A word that was read later may be another session's.
            (Phase::Granted | Phase::Held | Phase::Leaving, mode) => (Some(mode).filter(|_| is_holder), None),
            (Phase::Promoting, _) if is_holder => (Some(Mode::Examine), None),
            (Phase::Promoting, _) => (Some(Mode::Shared), Some(Mode::Examine)),
            (Phase::Demoting, mode) if is_holder => (Some(mode), None),
            (Phase::Demoting, _) => (Some(Mode::Shared), None),
            // E before the field is given up and after it was taken back.
            (Phase::Draining, _) if is_holder => (word.map_or(Some(Mode::Examine), |word| word.kind()?.mode()), None),
            (Phase::Draining, _) if word.is_none_or(|word| word.has(Word::DRAINING)) => {
                (Some(Mode::Examine), Some(Mode::Exclusive))
            }
            (Phase::Draining | Phase::Left, _) => (None, None),
        };
        let granted = |word: Word| match self.phase {
            Phase::Promoting => word.promote(sid, false),
            Phase::Draining => word.drained(sid),
            _ => word.grant(sid, self.mode, false),
        };
        let is_busy = asks.is_some() && word.map_or(waits, |word| granted(word).is_none());
        Standing { record: self, holds, asks, is_busy, waits: waits && asks.is_some() }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::recorder::{At, Recorder};
    use crate::stats::{Key, WaitEvent};
    use crate::{Capacity, Class, Instance, Patience, location};
    use Mode::{Examine as E, Exclusive as X, Shared as S};

    /// What the views say of a session's only record: what it holds, what it asks for, whether that is busy.
    fn of(instance: &Instance, sid: Sid) -> (Option<Mode>, Option<Mode>, bool) {
        let log = instance.tables().session_info(sid).unwrap().log;
        let [Standing { holds, asks, is_busy, .. }] = log[..] else { panic!("{log:?}") };
        (holds, asks, is_busy)
    }

    #[test]
    fn gets_and_conversions_hold_what_the_word_says_and_ask_for_the_rest() {
        let instance = Instance::anonymous(Capacity::default()).unwrap();
        let mutex = instance.mutex("m", "t", || 0u64).unwrap();
        let [one, other] = ["one", "other"].map(|name| instance.session(name, Class::Normal).unwrap());
        let of_one = || of(&instance, one.sid());
        let location = location!().id(&instance);
        let getting = |mode| Record { phase: Phase::Getting, mode, location, mutex: mutex.id() };
        for (held, asked, is_busy) in [(None, S, false), (Some(X), S, true), (Some(S), E, false), (Some(E), X, true)] {
            let beside = held.map(|mode| mutex.get(&other, mode, location!(), Patience::None).unwrap());
            let index = one.log(getting(asked)).unwrap();
            assert_eq!(of_one(), (None, Some(asked), is_busy), "{asked} beside {held:?}");
            one.unlog(index);
            drop(beside);
        }
        let mut hold = mutex.exclusive(&one, location!()).unwrap();
        assert_eq!(of_one(), (Some(X), None, false));
        hold.share();
        assert_eq!(of_one(), (Some(S), None, false));
        let examines = mutex.examine(&other, location!()).unwrap();
        one.relog(0, Phase::Promoting, S);
        assert_eq!(of_one(), (Some(S), Some(E), true));
        drop(examines);
        assert_eq!(of_one(), (Some(S), Some(E), false));
        hold.examine(Patience::None).unwrap();
        assert_eq!(of_one(), (Some(E), None, false));
        one.relog(0, Phase::Draining, X);
        assert_eq!(of_one(), (Some(E), None, false), "before the field is given up");
        mutex.raw().fake(Word(Word::DRAINING | 1), one.sid());
        assert_eq!(of_one(), (Some(E), Some(X), true));
        mutex.raw().fake(Word(Word::DRAINING), one.sid());
        assert_eq!(of_one(), (Some(E), Some(X), false));
        mutex.raw().fake(Word(one.sid().bits()), one.sid());
        assert_eq!(of_one(), (Some(X), None, false));
    }

    #[test]
    fn a_word_of_later_says_what_is_over() {
        let (sid, mutex) = (Sid::new(1), crate::MutexId(1));
        let record = |phase, mode| Record { phase, mode, location: crate::operation_log::LocationId(0), mutex };
        let anothers = Some(Word(Sid::new(2).bits()));
        for (phase, mode) in [(Phase::Held, E), (Phase::Held, X), (Phase::Draining, X)] {
            let standing = record(phase, mode).standing(sid, anothers, false);
            assert_eq!((standing.holds, standing.asks), (None, None), "{phase:?}");
        }
        // Elsewhere: the wait says.
        let elsewhere = |phase, mode, waits| {
            let standing = record(phase, mode).standing(sid, None, waits);
            (standing.holds, standing.asks, standing.is_busy)
        };
        assert_eq!(elsewhere(Phase::Getting, X, true), (None, Some(X), true));
        assert_eq!(elsewhere(Phase::Getting, X, false), (Some(X), None, false));
        assert_eq!(elsewhere(Phase::Promoting, S, true), (Some(S), Some(E), true));
        assert_eq!(elsewhere(Phase::Draining, X, true), (Some(E), Some(X), true));
    }

    #[test]
    fn a_session_that_has_what_it_waited_for_waits_no_more() {
        let instance = Instance::anonymous(Capacity::default()).unwrap();
        let mutex = instance.mutex("m", "t", || 0u64).unwrap();
        let session = instance.session("s", Class::Normal).unwrap();
        let event = WaitEvent { mode: X, on_x: false, for_event: false };
        let key = Key { mutex: mutex.id(), location: location!().id(&instance), event };
        // A wait under way that is over by the log.
        Recorder::new(Some(&session), key, Sid::NONE).begin(0, At::Spin);
        let waits = || instance.tables().session_info(session.sid()).unwrap().wait.is_some();
        assert!(waits());
        let hold = mutex.exclusive(&session, location!()).unwrap();
        assert!(!waits());
        drop(hold);
    }
}
