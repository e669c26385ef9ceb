//! The mutex: the only place where a [`Word`] becomes an atomic operation.
//!
//! Invariants:
//!
//! 1. While the holder field is set, only the thread of the session in it changes the word. So X, LX and E are
//!    released by one plain store, and so is a reference that is added or dropped under the field.
//! 2. The operation log is written before the exchange that takes the field, and freed after the store that
//!    gives it back.
//! 3. The holder field is the only truth. `parking` is hints: each park has a time-out and is followed by a
//!    look, so that a wrong hint costs time, never the lock.
//!
//! No wake-up is lost although the release of a mutex for which nobody is parked has no fence
//! (`docs/DESIGN.md`, *Wake-ups*): the first session that parks has the kernel do a barrier on the processors
//! of the others. Where it has none, `parking` is *fenced*, which sends every release through a path with a fence.

mod getting;
mod hold;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod inlined;
mod releasing;
mod waiting;

use crate::entries::TypeId;
use crate::error::{GetError, TableFull};
use crate::fail;
use crate::instance::Instance;
use crate::location::CodeLocation;
use crate::mode::Mode;
use crate::operation_log::{LocationId, MutexId, Phase, Record};
use crate::raw_mutex::RawMutex;
use crate::session::Session;
use crate::slot::LOG_RECORDS;
use crate::sys::{Deadline, Ordering};
use crate::waiter::{Target, Waiter};
use crate::word::Word;
use getting::{Aim, Getting, Why};
pub use hold::{Get, Hold};
use std::time::Duration;

/// Kinds of parked sessions, as bits of their futex wait: a release wakes the first that can have it.
const FOR_X: u32 = 1;
const FOR_E: u32 = 2;
const FOR_S: u32 = 4;
const TO_DRAIN: u32 = 8;
/// Sessions that have a reference: another S, or E.
const BESIDE_OWN: u32 = 16;
const ANYBODY: u32 = u32::MAX;

/// The kinds of sessions that can have a mutex once its word is this.
const fn served(left: Word) -> u32 {
    match (left.has(Word::DRAINING), left.references()) {
        (true, 0) => TO_DRAIN,
        (true, _) => 0,
        (false, 0) => ANYBODY,
        // A handover over references keeps out all others.
        (false, _) if left.has(Word::HANDOVER) => BESIDE_OWN,
        (false, _) => FOR_E | FOR_S | BESIDE_OWN,
    }
}

/// How long a get may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// One try.
    None,
    /// Until then.
    Until(Deadline),
    /// For ever.
    Endless,
}

impl Patience {
    /// So long from now.
    #[must_use]
    pub fn within(time: Duration) -> Self {
        Self::Until(Deadline::after(time))
    }
}

#[cold]
#[inline(never)]
fn no_record<G>(session: &Session<'_>) -> GetError<G> {
    if session.is_forked() {
        GetError::Forked { owner: session.pid() }
    } else {
        GetError::LogFull { capacity: LOG_RECORDS as u32 }
    }
}

impl RawMutex {
    /// Makes a mutex in memory of the user's own known to an instance.
    ///
    /// # Errors
    ///
    /// [`TableFull`].
    ///
    /// # Safety
    ///
    /// Only sessions of this instance get the mutex, and it is registered once. After the death of a session
    /// its instance gives back what its log names, by the mutex's number in that instance: the log of a
    /// session of another one would name another mutex.
    pub unsafe fn register(&self, instance: &Instance, mutex_type: TypeId, name: &str) -> Result<MutexId, TableFull> {
        let id = instance.register_mutex(mutex_type, self.address(), name)?;
        self.adopt(id, mutex_type, !instance.tables.has_barrier());
        Ok(id)
    }

    pub(crate) fn address(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }

    /// The hold of this mutex in a mode that a session has forgotten ([`std::mem::forget`]), from the
    /// session's log. For languages that keep no guards.
    ///
    /// # Safety
    ///
    /// The session's instance is the mutex's. The session has forgotten the hold: two holds of one get would
    /// release the mutex twice, which may be another session's by then.
    #[must_use]
    pub unsafe fn resume<'a>(&'a self, session: &'a Session<'a>, mode: Mode) -> Option<Hold<'a>> {
        let records = session.records().iter().map(|cell| Record::unpack(cell.load(Ordering::Relaxed)));
        let found = records
            .enumerate()
            .find(|(_, record)| record.is_some_and(|record| record.mutex == self.id() && record.mode == mode));
        let rest = if mode == Mode::Shared { Word::FREE } else { self.load().released() };
        found.map(|(record, _)| Hold { mutex: self, session, record: record as u32, mode, rest })
    }

    /// A hold of which no session of this process has a record: a child of fork has the memory of its
    /// parent's. `None` when the session's log is full.
    #[cfg(feature = "lock_api")]
    pub(crate) fn inherit<'a>(&'a self, session: &'a Session<'a>, mode: Mode) -> Option<Hold<'a>> {
        session.log(Record { phase: Phase::Held, mode, location: LocationId(0), mutex: self.id() })?;
        // SAFETY: the record was written above.
        unsafe { self.resume(session, mode) }
    }

    /// Gets the mutex exclusively.
    ///
    /// # Errors
    ///
    /// [`GetError`]; never `Busy`, and `TimedOut` only of a session that [gives up](Session::ask_while_waiting).
    ///
    /// # Safety
    ///
    /// A mutex that is registered is got by sessions of that instance only, of the same [`Instance`]. One
    /// that never will be may be got by any session: then nobody recovers it.
    #[inline(always)] // out of line, the hold goes through memory: half as dear again
    #[allow(clippy::inline_always)]
    pub unsafe fn exclusive<'a>(&'a self, session: &'a Session<'a>, at: &CodeLocation) -> Get<'a> {
        let location = at.id(session.instance());
        let record = Record { phase: Phase::Getting, mode: Mode::Exclusive, location, mutex: self.id() };
        let Some(record) = session.log(record) else { return Err(no_record(session)) };
        // AcqRel: acquires what the last holder wrote (pairs with the Release in `release`), and publishes
        // our log record before our SID shows in the word. Relaxed on failure: the slow path loads again.
        let sid = session.sid().bits();
        // Expects a free word; of a session out of reach of barriers what no word is, so that the slow path
        // fences the releases.
        if self.word.compare_exchange(session.expected(), sid, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            let (rest, why) = self.get_slow(session, Mode::Exclusive, location, record, Patience::Endless);
            let hold = Hold { mutex: self, session, record: record as u32, mode: Mode::Exclusive, rest };
            return if let Some(why) = why { hold.refuse(why) } else { Ok(hold) };
        }
        fail::point();
        self.count_get();
        Ok(Hold { mutex: self, session, record: record as u32, mode: Mode::Exclusive, rest: Word::FREE })
    }

    /// Gets the mutex in a mode, as long as the patience lasts.
    ///
    /// # Errors
    ///
    /// [`GetError`].
    ///
    /// # Safety
    ///
    /// As for [`RawMutex::exclusive`].
    #[inline(always)] // as `exclusive`
    #[allow(clippy::inline_always)]
    pub unsafe fn get<'a>(
        &'a self,
        session: &'a Session<'a>,
        mode: Mode,
        at: &CodeLocation,
        patience: Patience,
    ) -> Get<'a> {
        // SAFETY: the caller's.
        unsafe { self.get_at(session, mode, at.id(session.instance()), patience) }
    }

    /// The same, at a location that was registered with the instance.
    ///
    /// # Errors
    ///
    /// [`GetError`].
    ///
    /// # Safety
    ///
    /// As for [`RawMutex::exclusive`].
    #[inline(always)] // as `exclusive`
    #[allow(clippy::inline_always)]
    pub unsafe fn get_at<'a>(
        &'a self,
        session: &'a Session<'a>,
        mode: Mode,
        location: LocationId,
        patience: Patience,
    ) -> Get<'a> {
        let record = Record { phase: Phase::Getting, mode, location, mutex: self.id() };
        if mode == Mode::Examine
            && !session.is_forked()
            && let Some(held) = session.held(self.id(), usize::MAX)
        {
            // E over one's own reference could neither end in X nor let the reference leave.
            return Err(GetError::Deadlock { held });
        }
        let Some(record) = session.log(record) else { return Err(no_record(session)) };
        let word = Word(self.word.load(Ordering::Relaxed));
        // A word without flags only: with any, the slow path looks why.
        if u32::try_from(word.0 | session.expected()).is_ok()
            && let Some(granted) = word.grant(session.sid(), mode, false)
            // AcqRel: as in `exclusive`.
            && self.word.compare_exchange(word.0, granted.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            self.finish_get(session, record, granted, mode);
            return Ok(Hold { mutex: self, session, record: record as u32, mode, rest: granted.released() });
        }
        let (rest, why) = self.get_slow(session, mode, location, record, patience);
        let hold = Hold { mutex: self, session, record: record as u32, mode, rest };
        if let Some(why) = why { hold.refuse(why) } else { Ok(hold) }
    }

    #[inline]
    fn count_get(&self) {
        // No RMW: only the session in the holder field counts. Wraps: others write this memory too.
        self.gets.store(self.gets.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Completes a grant: S gives the holder field back, once the log says that the reference is counted.
    #[inline]
    fn finish_get(&self, session: &Session<'_>, record: usize, granted: Word, mode: Mode) {
        fail::point();
        self.count_get();
        if mode == Mode::Shared {
            session.relog(record, Phase::Granted, mode);
            self.give_back_over_references(granted.give_back());
            session.relog(record, Phase::Held, mode);
        }
    }

    /// What the release will leave, and why this is no ordinary hold: two registers, so that the fast path
    /// has its hold in registers too.
    #[cold]
    #[inline(never)]
    fn get_slow(
        &self,
        session: &Session<'_>,
        mode: Mode,
        location: LocationId,
        record: usize,
        patience: Patience,
    ) -> (Word, Option<Why>) {
        let getting = Getting::new(self, session, mode, Aim::Get);
        let granted = getting.try_get(false).inspect(|granted| {
            if granted.has(Word::ATTENTION) {
                Waiter::of(session).adapt(&getting, self.id(), self.mutex_type());
            }
        });
        let granted = match granted {
            Some(granted) => Ok(granted),
            None if getting.waits_for_itself(record) => Err(Why::Deadlock),
            None => getting.wait(location, patience),
        };
        let granted = match granted {
            Ok(granted) => {
                if !session.is_in_reach() {
                    self.fence_releases();
                }
                granted
            }
            Err(why) => {
                if why != Why::Forked {
                    session.unlog(record);
                }
                return (Word::FREE, Some(why));
            }
        };
        // Loaded: `adapt` may have changed a flag since the grant.
        let now = Word(self.word.load(Ordering::Relaxed));
        self.finish_get(session, record, now, mode);
        let rest = if mode == Mode::Shared { Word::FREE } else { now.released() };
        (rest, granted.has(Word::POISONED).then_some(Why::OwnerDied))
    }
}
