//! A mutex held: released when dropped, converted between modes without letting anybody in between.

use super::getting::{Aim, Getting, Why};
use super::{FOR_E, FOR_S, Patience, RawMutex};
use crate::aol::{LocationId, Phase, Record};
use crate::error::{Death, GetError, OwnerDied};
use crate::fail;
use crate::mode::Mode;
use crate::session::Session;
use crate::sys::protocol::fence;
use crate::sys::{self, Ordering};
use crate::waiter::Target;
use crate::word::Word;

/// A mutex held by a session; given back when dropped.
#[derive(Debug)]
#[must_use = "the mutex is given back at once otherwise"]
pub struct Hold<'a> {
    pub(super) mutex: &'a RawMutex,
    pub(super) session: &'a Session<'a>,
    pub(super) record: u32,
    pub(super) mode: Mode,
    /// What the release of X, LX or E leaves in the word: a constant on the fast path, which then needs no load.
    pub(super) rest: Word,
}

/// What a get of a raw mutex gives.
pub type Get<'a> = Result<Hold<'a>, GetError<Hold<'a>>>;

impl<'a> Hold<'a> {
    /// What the caller of a get is told instead. Inlined, and its calls give scalars: a call that wrote the result through
    /// a pointer would keep the fast path's hold in memory too.
    #[inline(always)]
    #[allow(clippy::inline_always)]
    pub(super) fn refuse(self, why: Why) -> Get<'a> {
        if why == Why::OwnerDied {
            let death = self.death();
            return Err(GetError::OwnerDied(OwnerDied { guard: self, death }));
        }
        let held = self.held_already();
        // Not held: there is nothing to give back.
        std::mem::forget(self);
        Err(match why {
            Why::Busy => GetError::Busy,
            Why::Deadlock => GetError::Deadlock { held },
            _ => GetError::TimedOut,
        })
    }

    #[cold]
    #[inline(never)]
    fn death(&self) -> Option<Death> {
        self.session.instance().death(self.mutex.id())
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
    /// S cannot: it may look, and somebody else may look at the same time.
    pub fn consistent(&mut self) {
        if self.mode != Mode::Shared && !self.session.is_parents() {
            let word = Word(self.mutex.word.load(Ordering::Relaxed));
            self.mutex.word.store(word.without(Word::POISONED).0, Ordering::Relaxed);
            self.rest = self.rest.without(Word::POISONED);
            if word.has(Word::POISONED) {
                let instance = self.session.instance();
                let name = instance.mutex_label(self.mutex.id());
                instance.alert_line(format_args!("session {} declared {name} consistent", self.session.sid()));
            }
        }
    }

    /// S → E: turns the reference into E. Waits like a get of E.
    ///
    /// # Errors
    ///
    /// `Busy` and `TimedOut`; `Deadlock` when another session that has E waits for this reference to leave. The mutex is still
    /// held shared.
    ///
    /// # Panics
    ///
    /// Unless the mode is S.
    pub fn examine(&mut self, patience: Patience) -> Result<(), GetError<()>> {
        assert_eq!(self.mode, Mode::Shared, "only S becomes E");
        let session = self.session;
        if session.is_parents() {
            return Err(GetError::Forked { owner: session.pid() });
        }
        if session.held_beside(self.mutex.id()) > 1 {
            return Err(GetError::Deadlock { held: Mode::Shared });
        }
        session.relog(self.record as usize, Phase::Promoting, Mode::Shared);
        let result = self.convert(Aim::Promote, Mode::Examine, patience);
        fail::point();
        match result {
            Ok(_) => {
                session.relog(self.record as usize, Phase::Held, Mode::Examine);
                self.mode = Mode::Examine;
                self.rest = self.mutex.load().released();
                Ok(())
            }
            Err(error) => {
                session.relog(self.record as usize, Phase::Held, Mode::Shared);
                Err(error)
            }
        }
    }

    /// E → X: waits until the last reference has left; new references are refused meanwhile, and readers may leave.
    ///
    /// # Errors
    ///
    /// `Busy` and `TimedOut`, with the mutex still held in E.
    ///
    /// # Panics
    ///
    /// Unless the mode is E.
    pub fn upgrade(&mut self, patience: Patience) -> Result<(), GetError<()>> {
        assert_eq!(self.mode, Mode::Examine, "only E becomes X");
        let (mutex, session) = (self.mutex, self.session);
        if session.is_parents() {
            return Err(GetError::Forked { owner: session.pid() });
        }
        session.relog(self.record as usize, Phase::Draining, Mode::Exclusive);
        mutex.drainer.store(session.sid().number(), Ordering::Relaxed);
        fail::point();
        let word = Word(mutex.word.load(Ordering::Relaxed));
        mutex.word.store(word.drain().0, Ordering::Release);
        fail::point();
        // SeqCst: pairs with a parking session's barrier or fence. Who waits for E with a reference is to be told that this
        // cannot end.
        fence(Ordering::SeqCst);
        if mutex.parked() != 0 {
            mutex.wake_everybody();
        }
        let result = self.convert(Aim::Drain, Mode::Exclusive, patience);
        fail::point();
        let mode = if result.is_ok() {
            Mode::Exclusive
        } else {
            // Back to E: the drain is ours, so that only a reader that leaves can be in the way.
            let back = Getting::new(mutex, session, Mode::Examine, Aim::TakeBack);
            while back.try_get(true).is_none() {
                back.look_after_blocker();
                sys::yield_now();
            }
            Mode::Examine
        };
        session.relog(self.record as usize, Phase::Held, mode);
        self.mode = mode;
        self.rest = mutex.load().released();
        result.map(|_| ())
    }

    fn convert(&self, aim: Aim, mode: Mode, patience: Patience) -> Result<Word, GetError<()>> {
        let getting = Getting::new(self.mutex, self.session, mode, aim);
        if let Some(got) = getting.try_get(false) {
            return Ok(got);
        }
        let location = Record::unpack(self.session.slot.log[self.record as usize].load(Ordering::Relaxed))
            .map_or(LocationId(0), |record| record.location);
        getting.wait(location, patience).map_err(|why| match why {
            Why::Busy => GetError::Busy,
            Why::Deadlock => GetError::Deadlock { held: self.mode },
            Why::TimedOut | Why::OwnerDied => GetError::TimedOut,
        })
    }

    /// X, LX or E → S, without letting anybody in between.
    ///
    /// # Panics
    ///
    /// When the mode is S already.
    pub fn share(&mut self) {
        assert_ne!(self.mode, Mode::Shared, "S is S already");
        let (mutex, session) = (self.mutex, self.session);
        if session.is_parents() {
            return;
        }
        session.relog(self.record as usize, Phase::Demoting, self.mode);
        let word = Word(mutex.word.load(Ordering::Relaxed));
        mutex.word.store(word.give_back().add_reference().0, Ordering::Release);
        fail::point();
        session.relog(self.record as usize, Phase::Held, Mode::Shared);
        self.mode = Mode::Shared;
        fence(Ordering::SeqCst);
        if mutex.parked() != 0 {
            // Readers may come in now; the first woken lets in the next.
            mutex.wake_of(FOR_S | FOR_E);
        }
    }
}

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.session.is_parents() {
            // A child of fork has the memory of the hold, not the hold.
            return;
        }
        if self.mode == Mode::Shared {
            return self.mutex.leave(self.session, self.record as usize);
        }
        self.mutex.give_back(self.rest);
        self.session.unlog(self.record as usize);
    }
}
