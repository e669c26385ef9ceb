//! A mutex held: released when dropped, converted between modes without letting anybody in between.

use super::Patience;
use super::getting::{Aim, Getting, Why};
use crate::error::{ConvertError, Death, GetError, OwnerDied};
use crate::fail;
use crate::mode::Mode;
use crate::operation_log::{LocationId, Phase, Record};
use crate::raw_mutex::RawMutex;
use crate::session::Session;
use crate::sys::protocol::fence;
use crate::sys::{self, Ordering};
use crate::waiter::Target;
use crate::word::Word;
use std::time::Duration;

/// A mutex held by a session; given back when dropped.
#[derive(Debug)]
#[must_use = "the mutex is given back at once otherwise"]
pub struct Hold<'a> {
    pub(super) mutex: &'a RawMutex,
    pub(super) session: &'a Session<'a>,
    pub(super) record: u32,
    pub(super) mode: Mode,
    /// What the release of X or LX leaves in the word: a constant on the fast path, which then needs no load.
    pub(super) rest: Word,
}

/// What a get of a raw mutex gives.
pub type Get<'a> = Result<Hold<'a>, GetError<Hold<'a>>>;

impl<'a> Hold<'a> {
    /// What the caller of a get is told instead. Inlined, and its calls give scalars: a call that wrote the
    /// result through a pointer would keep the fast path's hold in memory too.
    #[inline(always)]
    #[allow(clippy::inline_always)]
    pub(super) fn refuse(self, why: Why) -> Get<'a> {
        if why == Why::OwnerDied {
            let death = self.death();
            return Err(GetError::OwnerDied(OwnerDied { guard: self, death }));
        }
        let (held, owner) = (self.held_already(), self.session.pid());
        // Not held: there is nothing to give back.
        std::mem::forget(self);
        Err(match why {
            Why::Busy => GetError::Busy,
            Why::Deadlock => GetError::Deadlock { held },
            Why::Forked => GetError::Forked { owner },
            _ => GetError::TimedOut,
        })
    }

    #[cold]
    #[inline(never)]
    fn death(&self) -> Option<Death> {
        self.session.instance().tables.death(self.mutex.id())
    }

    #[cold]
    #[inline(never)]
    fn held_already(&self) -> Mode {
        self.session.held(self.mutex.id(), self.record as usize).unwrap_or(self.mode)
    }

    /// The mode in which the mutex is held.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The mutex.
    #[must_use]
    pub const fn mutex(&self) -> &'a RawMutex {
        self.mutex
    }

    /// Declares the data consistent after the death of a holder: the next get is an ordinary one.
    ///
    /// A holder of S cannot: it may look, and other readers may look at the same time.
    pub fn consistent(&mut self) {
        if self.mode != Mode::Shared && !self.session.is_forked() {
            let word = Word(self.mutex.word.load(Ordering::Relaxed));
            self.mutex.word.store(word.without(Word::POISONED).0, Ordering::Relaxed);
            self.rest = self.rest.without(Word::POISONED);
            if word.has(Word::POISONED) {
                let instance = self.session.instance();
                let name = instance.tables.mutex_label(self.mutex.id());
                instance.alert_line(format_args!("session {} declared {name} consistent", self.session.sid()));
            }
        }
    }

    /// S → E: turns the reference into E. Waits like a get of E.
    ///
    /// # Errors
    ///
    /// `Busy` and `TimedOut`; `Deadlock` when another session that has E waits without a deadline for this
    /// reference to leave.
    /// The mutex is still held shared.
    ///
    /// # Panics
    ///
    /// Unless the mode is S.
    pub fn examine(&mut self, patience: Patience) -> Result<(), ConvertError> {
        assert_eq!(self.mode, Mode::Shared, "only S becomes E");
        let session = self.session;
        if session.is_forked() {
            return Err(ConvertError::Forked { owner: session.pid() });
        }
        if session.held_beside(self.mutex.id()) > 1 {
            return Err(ConvertError::Deadlock { held: Mode::Shared });
        }
        session.relog(self.record as usize, Phase::Promoting, Mode::Shared);
        let result = self.convert(Aim::Promote, Mode::Examine, patience);
        fail::point();
        match result {
            Ok(_) => {
                self.mutex.count_get();
                session.relog(self.record as usize, Phase::Held, Mode::Examine);
                self.mode = Mode::Examine;
                self.rest = self.mutex.load().released();
                Ok(())
            }
            Err(ConvertError::Forked { owner }) => Err(ConvertError::Forked { owner }),
            Err(error) => {
                session.relog(self.record as usize, Phase::Held, Mode::Shared);
                Err(error)
            }
        }
    }

    /// E → X: waits until the last reference has left; meanwhile readers may leave, and none may come.
    ///
    /// # Errors
    ///
    /// `Busy` and `TimedOut`, with the mutex still held in E.
    ///
    /// # Panics
    ///
    /// Unless the mode is E.
    pub fn upgrade(&mut self, patience: Patience) -> Result<(), ConvertError> {
        assert_eq!(self.mode, Mode::Examine, "only E becomes X");
        let (mutex, session) = (self.mutex, self.session);
        if session.is_forked() {
            return Err(ConvertError::Forked { owner: session.pid() });
        }
        session.relog(self.record as usize, Phase::Draining, Mode::Exclusive);
        mutex.drained_by(session.sid(), patience == Patience::Endless);
        fail::point();
        let word = Word(mutex.word.load(Ordering::Relaxed));
        mutex.word.store(word.drain().0, Ordering::Release);
        fail::point();
        // SeqCst: pairs with a parking session's barrier or fence. A session that waits for E with a
        // reference is told that this cannot end.
        fence(Ordering::SeqCst);
        if mutex.parked() != 0 {
            mutex.wake_everybody();
        }
        let result = self.convert(Aim::Drain, Mode::Exclusive, patience);
        if let Err(ConvertError::Forked { owner }) = result {
            return Err(ConvertError::Forked { owner });
        }
        fail::point();
        let mode = if result.is_ok() {
            mutex.count_get();
            Mode::Exclusive
        } else {
            // Back to E: the drain is ours, so that only a reader that leaves can be in the way.
            let back = Getting::new(mutex, session, Mode::Examine, Aim::TakeBack);
            let mut rounds = 0;
            while back.try_get(true).is_none() {
                rounds += 1;
                back.pause(rounds);
            }
            Mode::Examine
        };
        session.relog(self.record as usize, Phase::Held, mode);
        self.mode = mode;
        self.rest = mutex.load().released();
        result.map(|_| ())
    }

    fn convert(&self, aim: Aim, mode: Mode, patience: Patience) -> Result<Word, ConvertError> {
        let getting = Getting::new(self.mutex, self.session, mode, aim);
        if let Some(got) = getting.try_get(false) {
            return Ok(got);
        }
        getting.wait(self.location(), patience).map_err(|why| match why {
            Why::Busy => ConvertError::Busy,
            Why::Deadlock => ConvertError::Deadlock { held: self.mode },
            Why::Forked => ConvertError::Forked { owner: self.session.pid() },
            Why::TimedOut | Why::OwnerDied => ConvertError::TimedOut,
        })
    }

    /// Where it was got.
    pub(super) fn location(&self) -> LocationId {
        Record::unpack(self.session.slot.log[self.record as usize].load(Ordering::Relaxed))
            .map_or(LocationId(0), |record| record.location)
    }

    /// X, LX or E → S, without letting anybody in between.
    ///
    /// # Panics
    ///
    /// When the mode is S already.
    pub fn share(&mut self) {
        assert_ne!(self.mode, Mode::Shared, "S is S already");
        let (mutex, session) = (self.mutex, self.session);
        if session.is_forked() {
            return;
        }
        session.relog(self.record as usize, Phase::Demoting, self.mode);
        let word = Word(mutex.word.load(Ordering::Relaxed));
        let left = word.give_back().add_reference();
        // From X a session that gives up meanwhile would not know.
        let left = if self.mode == Mode::Examine { mutex.kept_for_x(left) } else { left };
        mutex.word.store(left.0, Ordering::Release);
        fail::point();
        session.relog(self.record as usize, Phase::Held, Mode::Shared);
        self.mode = Mode::Shared;
        fence(Ordering::SeqCst);
        if mutex.parked() != 0 {
            // Readers may come in now; the first woken lets in the next.
            mutex.wake_for(left);
        }
    }
}

impl Getting<'_> {
    /// Waits a little, the longer the more `rounds` were in vain, for a session that moves a reference: that
    /// takes it a few instructions, or as long as it is off its processor. A real-time thread has to sleep
    /// then: one of lower priority never runs beside yields.
    pub(super) fn pause(&self, rounds: u32) {
        match rounds {
            0..256 => sys::spin_loop(),
            256..272 => sys::yield_now(),
            _ => {
                self.look_after_blocker(sys::now_ns(), true);
                sys::sleep(Duration::from_micros(u64::from(rounds.min(1000))));
            }
        }
    }
}

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.session.is_forked() {
            // A child of fork has the memory of the hold, not the hold.
            return;
        }
        if matches!(self.mode, Mode::Shared | Mode::Examine) || self.mutex.parking().concerns_releases() {
            return self.mutex.end(self.session, self.record as usize, self.mode, self.rest);
        }
        if self.mutex.leave_open(self.rest) {
            return self.mutex.end_waking(self.session, self.record as usize, self.rest);
        }
        self.session.unlog(self.record as usize);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::instance::Instance;
    use crate::segment::Capacity;
    use crate::session::Class;
    use crate::sys::Deadline;

    /// How often a thread of this process has gone to sleep.
    fn sleeps(tid: u32) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    }

    #[test]
    fn who_takes_an_upgrade_back_sleeps_beside_one_that_does_not_run() {
        let instance = Instance::anonymous(Capacity { sessions: 4, ..Capacity::default() }).unwrap();
        let mutex = instance.mutex("m", "test", || 0u64).unwrap();
        let raw = mutex.raw();
        let reader = instance.session("reader", Class::Normal).unwrap();
        let examiner = instance.session("examiner", Class::Normal).unwrap();
        let mover = instance.session("mover", Class::Normal).unwrap();
        // SAFETY: of the mutex's instance.
        let get = |session, mode| unsafe { raw.get(session, mode, crate::location!(), Patience::None) }.unwrap();
        let reads = get(&reader, Mode::Shared);
        let mut examines = get(&examiner, Mode::Examine);
        let (tid, moves) = (sys::tid(), mover.sid().bits() | 3 << 56);
        // Long enough for the other thread to begin, also where other tests use the processors.
        let deadline = Deadline::after(Duration::from_secs(2));
        let slept = std::thread::scope(|scope| {
            let helper = scope.spawn(move || {
                // A session that has lost its processor while it moves a reference.
                while !raw.load().has(Word::DRAINING) {
                    assert!(deadline.left().is_some(), "no session drains");
                    std::thread::yield_now();
                }
                raw.word.fetch_or(moves, Ordering::AcqRel);
                // Until the deadline it parks; then it takes E back.
                while deadline.left().is_some() {
                    std::thread::yield_now();
                }
                let (before, patience) = (sleeps(tid), Deadline::after(Duration::from_secs(10)));
                let slept = loop {
                    let slept = sleeps(tid) - before;
                    // More than a park or two that were under way.
                    if slept >= 20 || patience.left().is_none() {
                        break slept;
                    }
                };
                raw.word.fetch_and(!moves, Ordering::AcqRel);
                slept
            });
            let upgraded = examines.upgrade(Patience::Until(deadline));
            assert!(matches!(upgraded, Err(ConvertError::TimedOut)), "{upgraded:?}");
            helper.join().unwrap()
        });
        assert!(slept >= 20, "slept {slept} times");
        assert_eq!((examines.mode(), raw.load().sid()), (Mode::Examine, examiner.sid()));
        drop(examines);
        drop(reads);
        assert_eq!(raw.load(), Word::FREE);
    }

    #[test]
    fn a_reader_leaves_beside_another_session_of_its_thread_that_examines() {
        let instance = Instance::anonymous(Capacity { sessions: 4, ..Capacity::default() }).unwrap();
        let mutex = instance.mutex("m", "test", || 0u64).unwrap();
        let raw = mutex.raw();
        let sessions = ["reads", "reads too", "examines"].map(|name| instance.session(name, Class::Normal).unwrap());
        // SAFETY: of the mutex's instance.
        let get = |session, mode| unsafe { raw.get(session, mode, crate::location!(), Patience::None) }.unwrap();
        for upgrades in [false, true] {
            let (first, second) = (get(&sessions[0], Mode::Shared), get(&sessions[1], Mode::Shared));
            let mut examines = get(&sessions[2], Mode::Examine);
            drop(first);
            assert_eq!((raw.load().sid(), raw.load().references()), (sessions[2].sid(), 1));
            assert!(!sessions[0].records().iter().any(|record| record.load(Ordering::Relaxed) != 0));
            drop(second);
            assert!(!upgrades || examines.upgrade(Patience::None).is_ok());
            drop(examines);
            assert_eq!(raw.load(), Word::FREE);
        }
    }
}
