//! The mutex: the only place where a [`Word`] becomes an atomic operation.
//!
//! Invariants:
//!
//! 1. While the holder field is set, only the session in it changes the word. So X, LX and E are released by one plain
//!    store, and so is a reference that is added or dropped under the field.
//! 2. The operation log is written before the exchange that takes the field, and freed after the store that gives it back.
//! 3. The holder field is the only truth. `parking` is hints: each park has a time-out and is followed by a look, so that a wrong
//!    hint costs time, never the lock.
//!
//! No wake-up is lost although the release has no fence: the releaser stores the word, then loads `parking`; a session that parks
//! announces itself in `parking`, has the kernel do a full barrier on every processor (`membarrier`), then looks at the word once
//! more. Either the releaser sees the waiter, or the waiter sees the release. Where the kernel has no such barrier, `parking` is
//! *fenced*, which sends every release through a path with a fence of its own.

mod getting;
mod hold;

use crate::entries::TypeId;
use crate::error::{GetError, TableFull};
use crate::fail;
use crate::instance::Instance;
use crate::location::CodeLocation;
use crate::mode::Mode;
use crate::operation_log::{LocationId, MutexId, Phase, Record};
use crate::parking::{self, Parking};
use crate::raw_mutex::RawMutex;
use crate::session::Session;
use crate::slot::LOG_RECORDS;
use crate::sys::protocol::{AtomicU64, fence};
use crate::sys::{self, Deadline, Ordering};
use crate::waiter::Target;
use crate::word::{Sid, Word};
use getting::{Aim, Getting, Why, waiter};
pub use hold::{Get, Hold};
use std::time::Duration;

/// Kinds of parked sessions, as bits of their futex wait: a release wakes the first that can have what it leaves.
const FOR_X: u32 = 1;
const FOR_E: u32 = 2;
const FOR_S: u32 = 4;
const TO_DRAIN: u32 = 8;
/// Beside one of these: has waited for longer than a handover to each of the parked sessions takes.
const OVERDUE: u32 = 16;
const ANYBODY: u32 = u32::MAX;

/// Most parked sessions among which the kernel is asked to find an overdue one: it looks through the queue.
const OVERDUE_AMONG: u32 = 1024;

/// The kinds of sessions that can have a mutex once its word is this.
const fn served(left: Word) -> u32 {
    match (left.has(Word::DRAINING), left.references()) {
        (true, 0) => TO_DRAIN,
        (true, _) => 0,
        (false, 0) => ANYBODY,
        // A handover over references keeps readers out.
        (false, _) if left.has(Word::HANDOVER) => FOR_E,
        (false, _) => FOR_E | FOR_S,
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
    /// Only sessions of this instance get the mutex, and it is registered once. After the death of a session its instance gives back
    /// what its log names, by the mutex's number in that instance: the log of a session of another one would name somebody else's.
    pub unsafe fn register(&self, instance: &Instance, mutex_type: TypeId, name: &str) -> Result<MutexId, TableFull> {
        let id = instance.register_mutex(mutex_type, self.address(), name)?;
        self.adopt(id, mutex_type, !instance.tables.has_barrier());
        Ok(id)
    }

    pub(crate) fn address(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }

    /// The hold that this session forgot, from its log.
    #[cfg(feature = "lock_api")]
    pub(crate) fn resume<'a>(&'a self, session: &'a Session<'a>, mode: Mode) -> Option<Hold<'a>> {
        let records = session.records().iter().map(|cell| Record::unpack(cell.load(Ordering::Relaxed)));
        let found = records
            .enumerate()
            .find(|(_, record)| record.is_some_and(|record| record.mutex == self.id() && record.mode == mode));
        let rest = if mode == Mode::Shared { Word::FREE } else { self.load().released() };
        found.map(|(record, _)| Hold { mutex: self, session, record: record as u32, mode, rest })
    }

    /// A hold of which no session of this process has a record: a child of fork has the memory of its parent's. `None` when
    /// the session's log is full.
    #[cfg(feature = "lock_api")]
    pub(crate) fn inherit<'a>(&'a self, session: &'a Session<'a>, mode: Mode) -> Option<Hold<'a>> {
        session.log(Record { phase: Phase::Held, mode, location: LocationId(0), mutex: self.id() })?;
        self.resume(session, mode)
    }

    /// Gets the mutex exclusively.
    ///
    /// # Errors
    ///
    /// [`GetError`]; never `Busy` or `TimedOut`.
    ///
    /// # Safety
    ///
    /// A mutex that is registered is got by sessions of that instance only, of the same [`Instance`]. One that never will be may be
    /// got by any session: then nobody recovers it.
    #[inline(always)] // out of line, the hold goes through memory: half as dear again
    #[allow(clippy::inline_always)]
    pub unsafe fn exclusive<'a>(&'a self, session: &'a Session<'a>, at: &CodeLocation) -> Get<'a> {
        let location = at.id(session.instance());
        let record = Record { phase: Phase::Getting, mode: Mode::Exclusive, location, mutex: self.id() };
        let Some(record) = session.log(record) else { return Err(no_record(session)) };
        // AcqRel: acquires what the last holder wrote (pairs with the Release in `release`), and publishes our log
        // record before our SID shows in the word. Relaxed on failure: the slow path loads again.
        let sid = session.sid().bits();
        // Expects a free word; of a session out of reach of barriers what no word is, so that the slow path fences the releases.
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
        let location = at.id(session.instance());
        let record = Record { phase: Phase::Getting, mode, location, mutex: self.id() };
        if mode == Mode::Examine && session.held(self.id(), usize::MAX).is_some() {
            // E over one's own reference could neither end in X nor let the reference leave.
            return Err(GetError::Deadlock { held: Mode::Shared });
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
        // No RMW: only whoever has the holder field counts. Wraps: the count is in memory that others write too.
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

    /// What the release will leave, and why this is no ordinary hold: two registers, so that the fast path has its hold in
    /// registers too.
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
                let params = session.instance().params(Some(self.mutex_type()));
                waiter(session).adapt(&getting, self.id(), &params);
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
                session.unlog(record);
                return (Word::FREE, Some(why));
            }
        };
        // Loaded: `adapt` may have changed a flag since the grant.
        let now = Word(self.word.load(Ordering::Relaxed));
        self.finish_get(session, record, now, mode);
        let rest = if mode == Mode::Shared { Word::FREE } else { now.released() };
        (rest, granted.has(Word::POISONED).then_some(Why::OwnerDied))
    }

    /// Gives the holder field back: the caller has it, and `word` is what stays.
    #[inline]
    fn give_back(&self, session: &Session<'_>, word: Word) {
        if self.parking().concerns_releases() && self.hands_over(session) {
            return self.hand_over(word);
        }
        // Release: pairs with the exchange of the next get. No RMW: nobody else changes a word whose holder field is set.
        self.word.store(word.0, Ordering::Release);
        sys::barrier_here();
        fail::point();
        // Relaxed: ordered after the store by the parking session's barrier, or by the fence in `wake`.
        if self.parking().concerns_releases() {
            self.wake(word);
        }
    }

    #[cold]
    #[inline(never)]
    fn hands_over(&self, session: &Session<'_>) -> bool {
        let params = || session.instance().params(Some(self.mutex_type()));
        parking::hands_over(self.parking(), self.gets(), params)
    }

    /// The same by a session that has only moved a reference, while references stay: nobody can get a mode now that could
    /// not be got before, so that nobody is woken. But a starving session keeps further readers out.
    fn give_back_over_references(&self, word: Word) {
        let parking = self.parking();
        let word = if parking.starving().1 && parking.parked() != 0 && !word.has(Word::DRAINING) {
            self.change(Ordering::Relaxed, Parking::fed);
            fail::point();
            word.with(Word::HANDOVER)
        } else {
            word
        };
        // Release: as in `give_back`.
        self.word.store(word.0, Ordering::Release);
        fail::point();
    }

    /// After the store of a release: wakes one session, unless enough are on their way.
    #[cold]
    #[inline(never)]
    fn wake(&self, left: Word) {
        if self.parking().is_fenced() {
            // SeqCst: without it the look could be done before the release is visible. A session that parks in between would see the
            // mutex held while this one sees nobody parked.
            fence(Ordering::SeqCst);
        }
        let parking = self.parking();
        if parking.wakes() || parking.parked() != 0 && left.has(Word::DRAINING) {
            self.wake_for(left);
        }
    }

    /// Gives releases a fence of their own from now on: barriers do not reach this process. Only while the caller has the
    /// holder field: the releases before are visible by now, and later holders see the flag with the word that they get.
    fn fence_releases(&self) {
        if !self.parking().is_fenced() {
            self.change(Ordering::Relaxed, Parking::fenced);
        }
    }

    /// Between a change that lets somebody in and a look at who is parked, where no barrier of theirs orders the two: the
    /// caller's process may be out of reach of barriers, too.
    #[allow(clippy::unused_self)]
    fn fence_without_barrier(&self) {
        fence(Ordering::SeqCst);
    }

    /// Wakes the session that parked first. Whether there was one.
    fn wake_one(&self) -> bool {
        // Counted first: the woken session may have arrived before this call goes on. Acquire: pairs with the announcements that are
        // counted, whose sessions have read an older count of wake-ups than the one that `post` makes.
        let then = self.change(Ordering::AcqRel, Parking::wake);
        fail::point();
        let woken = self.post(ANYBODY, 1) != 0;
        fail::point();
        if woken {
            self.change(Ordering::Relaxed, |all| all.has_woken(then, 1));
            return true;
        }
        self.change(Ordering::Relaxed, |all| all.has_woken_nobody(then));
        self.fence_without_barrier();
        fail::point();
        // A session may have fallen asleep since, and a release may have woken nobody because this call counted one as woken.
        self.parked() != 0 && self.wake_of(ANYBODY)
    }

    /// Wakes the session that parked first among some kinds. Whether there was one. Makes one wake-up in any case. Releases go on waking
    /// others meanwhile: it is not counted as on its way, so that no release is left to a session that cannot have what it leaves.
    fn wake_of(&self, kinds: u32) -> bool {
        let then = self.parking();
        let woken = self.post(kinds, 1) != 0;
        if woken {
            self.change(Ordering::Relaxed, |all| all.has_woken(then, 1));
        }
        woken
    }

    /// Wakes the session that parked first among those that can have what the word says now.
    fn wake_for(&self, left: Word) {
        match served(left) {
            0 => {}
            ANYBODY => drop(self.wake_one()),
            kinds => drop(self.wake_of(kinds)),
        }
    }

    /// Counts a wake-up and wakes up to `count` sessions of some kinds in the order in which they parked. How many there were.
    fn post(&self, kinds: u32, count: u32) -> u32 {
        // Release: a session that parks and reads the new count has its look after our store.
        self.wakes.fetch_add(1, Ordering::Release);
        fail::point();
        sys::futex_wake_kinds(&raw const self.wakes, count, kinds)
    }

    /// Wakes all parked sessions in queue order.
    fn wake_everybody(&self) {
        let then = self.parking();
        let woken = self.post(ANYBODY, u32::MAX >> 1);
        fail::point();
        self.change(Ordering::Relaxed, |all| all.has_woken(then, woken));
    }

    /// A release that lets only the session that it wakes get the mutex: the first overdue one, or else the one that parked first.
    #[cold]
    #[inline(never)]
    fn hand_over(&self, word: Word) {
        let word = word.without(Word::HANDOVER);
        let now = sys::now_ns();
        let asked = self.change(Ordering::Relaxed, |all| all.handed_over(now));
        // Over references the first in the queue may be one that cannot have it.
        let nobody = asked.parked() == 0 || word.has(Word::DRAINING) || word.references() != 0;
        let handed = if nobody { word } else { word.with(Word::HANDOVER) };
        fail::point();
        self.word.store(handed.0, Ordering::Release);
        fence(Ordering::SeqCst);
        fail::point();
        if handed == word {
            return self.wake(word);
        }
        let has_woken = asked.parked() <= OVERDUE_AMONG && self.wake_of(OVERDUE) || self.wake_one();
        if !has_woken {
            // Nobody was asleep: whoever comes may have it.
            fail::point();
            let _ = self.word.compare_exchange(handed.0, word.0, Ordering::Release, Ordering::Relaxed);
            self.fence_without_barrier();
            fail::point();
            if self.parked() != 0 {
                self.wake_one();
            }
        }
    }

    /// Takes the holder field to drop a reference. Waits while another session is in it: a few instructions when that one
    /// moves a reference, as long as it likes when it holds E. `None` when there is no reference: then somebody has dropped
    /// ours who had no right to, and there is nothing to wait for.
    fn take_field(&self, session: &Session<'_>) -> Option<Word> {
        let mut rounds = 0u32;
        loop {
            let word = Word(self.word.load(Ordering::Relaxed));
            if let Some(taken) = word.take_field(session.sid())
                // AcqRel: as in `exclusive`.
                && self.word.compare_exchange_weak(word.0, taken.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                return Some(taken);
            }
            if word.sid().is_none() && word.references() == 0 {
                return None;
            }
            rounds += 1;
            Getting::new(self, session, Mode::Shared, Aim::Get).pause(rounds);
        }
    }

    fn leave(&self, session: &Session<'_>, record: usize) {
        session.relog(record, Phase::Leaving, Mode::Shared);
        let Some(taken) = self.take_field(session) else { return session.unlog(record) };
        fail::point();
        session.relog(record, Phase::Left, Mode::Shared);
        let left = taken.drop_reference().give_back();
        if left.references() == 0 {
            if left.has(Word::HANDOVER) {
                // It kept readers out. Whoever asked for it may have gone since: nobody else would get the mutex then.
                self.hand_over(left);
            } else {
                self.give_back(session, left);
            }
        } else {
            self.give_back_over_references(left);
        }
        session.unlog(record);
    }

    /// The same for a dead session, by whoever has its lock; tries once.
    pub(crate) fn try_leave(&self, sid: Sid, log: &AtomicU64, record: Record) -> bool {
        let relog = |phase| log.store(Record { phase, mode: Mode::Shared, ..record }.pack(), Ordering::Release);
        relog(Phase::Leaving);
        let word = self.load();
        let Some(taken) = word.take_field(sid) else { return false };
        // AcqRel: as in `exclusive`.
        if self.word.compare_exchange(word.0, taken.0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        fail::point();
        relog(Phase::Left);
        fail::point();
        // Everybody is woken after a recovery: a handover is over.
        self.word.store(taken.drop_reference().give_back().without(Word::HANDOVER).0, Ordering::Release);
        true
    }

    /// Gives the holder field back that a dead session left; the caller has that session's lock.
    pub(crate) fn give_back_for_dead(&self, reference: bool, poison: bool) {
        let word = self.load();
        let word = if reference && word.references() > 0 { word.drop_reference() } else { word };
        let free = word.give_back().without(Word::HANDOVER);
        let free = if poison { free.with(Word::POISONED) } else { free };
        self.word.store(free.0, Ordering::Release);
    }

    /// Takes a dead session's request to drain back. Whether that is done.
    pub(crate) fn stop_draining(&self) -> bool {
        let word = self.load();
        if !word.sid().is_none() {
            return false;
        }
        let free = word.without(Word::DRAINING).with(Word::POISONED);
        self.word.compare_exchange(word.0, free.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn wake_after_recovery(&self) {
        fence(Ordering::SeqCst);
        if self.parked() != 0 {
            // Whoever the dead one blocked: readers, a drainer, anybody. Rare enough to let them all look.
            self.wake_everybody();
        }
    }

    fn handover_is_stale(&self) -> bool {
        self.parking().handover_is_stale(sys::now_ns())
    }
}
