//! The mutex: the only place where a [`Word`] becomes an atomic operation.
//!
//! Invariants:
//!
//! 1. While the holder field is set, only the session in it changes the word. So X, LX and E are released by one plain
//!    store, and so is a reference that is added or dropped under the field.
//! 2. The operation log is written before the exchange that takes the field, and freed after the store that gives it back.
//! 3. The holder field is the only truth. `waiters` and `hints` are hints: each park has a time-out and is followed by a
//!    look, so that a wrong hint costs time, never the lock.
//!
//! No wake-up is lost although the release has no fence: the releaser stores the word, then loads `waiters`; a session
//! that parks raises `waiters`, has the kernel do a full barrier on every processor (`membarrier`), then looks at the
//! word once more. Either the releaser sees the waiter, or the waiter sees the release. Where the kernel has no such
//! barrier, `waiters` carries [`FENCED`], which sends every release through a path with a fence of its own.

mod getting;
mod hold;

use crate::aol::{LocationId, MutexId, Phase, Record};
use crate::error::{GetError, TableFull};
use crate::fail;
use crate::instance::Instance;
use crate::location::CodeLocation;
use crate::mode::Mode;
use crate::session::{LOG_RECORDS, Session};
use crate::sys::protocol::{AtomicU32, AtomicU64, fence};
use crate::sys::{self, Deadline, Futex, Ordering};
use crate::tables::{Place, TypeId};
use crate::turn::Hurdle;
use crate::wait::Release;
use crate::waiter::{Target, has_time_to_queue};
use crate::word::{Sid, Word};
use getting::{Aim, Getting, Why, waiter};
pub use hold::{Get, Hold};

/// The record that sessions share: 40 bytes of atomics, usable in any shared memory.
///
/// ```text
///  0        8         12      16     20   24     32        36
/// +--------+---------+-------+------+----+------+---------+-------+
/// |  word  | waiters | wakes | kind | id | gets | drainer | hints |
/// +--------+---------+-------+------+----+------+---------+-------+
/// ```
///
/// `kind` lies where glibc has the kind of a `pthread_mutex_t`. All bytes 0 is a free mutex without type or id.
#[repr(C)]
#[derive(Debug, Default)]
pub struct RawMutex {
    word: AtomicU64,
    /// Number of parked sessions, and the flags below.
    waiters: AtomicU32,
    /// The futex that sessions park on; counts wake-ups.
    wakes: Futex,
    /// Bits 16 to 23: mutex type.
    kind: AtomicU32,
    id: AtomicU32,
    /// First requests granted. Written by whoever has the holder field.
    gets: AtomicU64,
    /// SID of the session that waits for the references to leave.
    drainer: AtomicU32,
    /// Bits 4 to 31: time of the last handover in 16 µs; the others are the flags below.
    hints: AtomicU32,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<RawMutex>() == 40 && size_of::<RawMutex>() <= size_of::<libc::pthread_mutex_t>());

/// In `waiters`: releases have a fence of their own.
const FENCED: u32 = 1 << 31;
/// In `waiters`: the next release hands over.
const STARVING: u32 = 1 << 30;
/// In `waiters`: who asked for that wants X or LX, and readers keep it out.
const STARVING_FOR_X: u32 = 1 << 29;
const WAITERS: u32 = STARVING_FOR_X - 1;

/// In `hints`: a session that is on its way keeps releases from waking another.
const THROTTLED: u32 = 1;
/// In `hints`: a woken session is on its way.
const ON_ITS_WAY: u32 = 2;
/// In `hints`: one of the parked sessions looks by itself before long.
const WATCHED: u32 = 4;
/// In `hints`: somebody has parked again in the same wait.
const AGAIN: u32 = 8;
const FLAGS: u32 = 15;
const STAMP_SHIFT: u32 = 4;

/// Kinds of parked sessions, as bits of their futex wait: a release wakes the first that can have what it leaves.
const FOR_X: u32 = 1;
const FOR_E: u32 = 2;
const FOR_S: u32 = 4;
const TO_DRAIN: u32 = 8;
/// Beside one of these: parked again in the same wait, to be woken before the others.
const PARKED_AGAIN: u32 = 16;
const ANYBODY: u32 = u32::MAX;

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

const STAMP: u32 = u32::MAX >> STAMP_SHIFT;

/// A time in 16 µs, as `hints` has it.
const fn stamp(now_ns: u64) -> u32 {
    (now_ns >> 14) as u32 & STAMP
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

/// Whether a session may queue at once, its turn over or another's under way: not while it holds something else, for which others
/// would wait as long, and not when its time is short.
fn may_queue(session: &Session<'_>, mode: Mode, record: usize, patience: Patience) -> bool {
    let has_time = match patience {
        Patience::None => false,
        Patience::Until(deadline) => has_time_to_queue(Some(deadline)),
        Patience::Endless => true,
    };
    has_time && mode != Mode::Shared && !session.holds_beside(record)
}

#[cold]
#[inline(never)]
fn no_record<G>(session: &Session<'_>) -> GetError<G> {
    if session.is_parents() {
        GetError::Forked { owner: session.pid() }
    } else {
        GetError::LogFull { capacity: LOG_RECORDS as u32 }
    }
}

impl RawMutex {
    /// A free mutex without type and id. It works, but nobody can recover it or see its figures before
    /// [`RawMutex::register`].
    #[must_use]
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            waiters: AtomicU32::new(0),
            wakes: AtomicU32::new(0),
            kind: AtomicU32::new(0),
            id: AtomicU32::new(0),
            gets: AtomicU64::new(0),
            drainer: AtomicU32::new(0),
            hints: AtomicU32::new(0),
        }
    }

    /// The same, in a model.
    #[must_use]
    #[cfg(any(loom, shuttle))]
    pub fn new() -> Self {
        Self::default()
    }

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
        let id = instance.register_mutex(mutex_type, Place::Elsewhere, 0, name)?;
        self.adopt(instance, id, mutex_type);
        Ok(id)
    }

    pub(crate) fn adopt(&self, instance: &Instance, id: MutexId, mutex_type: TypeId) {
        self.belong(instance, mutex_type);
        self.id.store(id.0, Ordering::Release);
    }

    /// Takes the type, and the kind of release that the instance needs.
    fn belong(&self, instance: &Instance, mutex_type: TypeId) {
        self.kind.store(u32::from(mutex_type.0) << 16, Ordering::Relaxed);
        if !instance.has_barrier() {
            self.waiters.fetch_or(FENCED, Ordering::Relaxed);
        }
    }

    /// Takes an id unless it has one. Whether it took it.
    #[cfg(feature = "lock_api")]
    pub(crate) fn adopt_once(&self, instance: &Instance, id: MutexId, mutex_type: TypeId) -> bool {
        self.belong(instance, mutex_type);
        self.id.compare_exchange(0, id.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn address(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }

    /// The hold that this session forgot, from its log.
    #[cfg(feature = "lock_api")]
    pub(crate) fn resume<'a>(&'a self, session: &'a Session<'a>, mode: Mode) -> Option<Hold<'a>> {
        let records = session.slot.log.iter().map(|cell| Record::unpack(cell.load(Ordering::Relaxed)));
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

    /// Its id in the instance that it is registered with.
    #[inline]
    #[must_use]
    pub fn id(&self) -> MutexId {
        MutexId(self.id.load(Ordering::Relaxed))
    }

    /// Its type.
    #[must_use]
    pub fn mutex_type(&self) -> TypeId {
        TypeId((self.kind.load(Ordering::Relaxed) >> 16) as u8)
    }

    /// The word now.
    #[inline]
    #[must_use]
    pub fn load(&self) -> Word {
        // Acquire: whoever sees a mutex given back sees what its holder wrote.
        Word(self.word.load(Ordering::Acquire))
    }

    /// First requests granted so far.
    #[must_use]
    pub fn gets(&self) -> u64 {
        self.gets.load(Ordering::Relaxed)
    }

    /// Sessions parked now.
    #[must_use]
    pub fn parked(&self) -> u32 {
        self.waiters.load(Ordering::Relaxed) & WAITERS
    }

    /// Gets the mutex exclusively.
    ///
    /// # Errors
    ///
    /// [`GetError`]; never `Busy` or `TimedOut`.
    #[inline(always)] // out of line, the hold goes through memory: half as dear again
    #[allow(clippy::inline_always)]
    pub fn exclusive<'a>(&'a self, session: &'a Session<'a>, at: &CodeLocation) -> Get<'a> {
        let location = at.id(session.instance());
        let record = Record { phase: Phase::Getting, mode: Mode::Exclusive, location, mutex: self.id() };
        let Some(record) = session.log(record) else { return Err(no_record(session)) };
        // AcqRel: acquires what the last holder wrote (pairs with the Release in `release`), and publishes our log
        // record before our SID shows in the word. Relaxed on failure: the slow path loads again.
        let sid = session.sid().bits();
        // Expects a free word, or what no word is: then the slow path has to look at the session's turn.
        if self.word.compare_exchange(session.turn.expected(), sid, Ordering::AcqRel, Ordering::Relaxed).is_err() {
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
    #[inline(always)] // as `exclusive`
    #[allow(clippy::inline_always)]
    pub fn get<'a>(&'a self, session: &'a Session<'a>, mode: Mode, at: &CodeLocation, patience: Patience) -> Get<'a> {
        let location = at.id(session.instance());
        let record = Record { phase: Phase::Getting, mode, location, mutex: self.id() };
        if mode == Mode::Examine && session.held(self.id(), usize::MAX).is_some() {
            // E over one's own reference could neither end in X nor let the reference leave.
            return Err(GetError::Deadlock { held: Mode::Shared });
        }
        let Some(record) = session.log(record) else { return Err(no_record(session)) };
        let word = Word(self.word.load(Ordering::Relaxed));
        // A word without flags only: with any, the slow path looks why, and at the session's turn.
        if u32::try_from(word.0 | session.turn.expected()).is_ok()
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
        let hurdle = session.turn.take(self.address());
        let mut getting = Getting::new(self, session, mode, Aim::Get);
        // Though its turn be over: until the one that it has woken is here nobody else would use the mutex.
        let granted = getting.try_get(false).inspect(|granted| {
            if granted.has(Word::ATTENTION) {
                let params = session.instance().params(Some(self.mutex_type()));
                waiter(session).adapt(&getting, self.id(), &params);
            }
        });
        let granted = match granted {
            Some(granted) => Ok(granted),
            None if getting.waits_for_itself(record) => Err(Why::Deadlock),
            None => {
                getting.may_queue = may_queue(session, mode, record, patience);
                getting.over = getting.may_queue && hurdle == Some(Hurdle::Over);
                getting.wait(location, patience)
            }
        };
        if hurdle == Some(Hurdle::Timed) && granted.is_ok() {
            session.turn.time(self.gets(), sys::now_ns());
        }
        let granted = match granted {
            Ok(granted) => {
                if !session.turn.is_in_reach() {
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
        if self.waiters.load(Ordering::Relaxed) & STARVING != 0 {
            return self.hand_over(session, word);
        }
        // Release: pairs with the exchange of the next get. No RMW: nobody else changes a word whose holder field is set.
        self.word.store(word.0, Ordering::Release);
        sys::barrier_here();
        fail::point();
        // Relaxed: ordered after the store by the parking session's barrier, or by the fence in `wake`.
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.wake(session, word);
        }
    }

    /// The same by a session that has only moved a reference, while references stay: nobody can get a mode now that could
    /// not be got before, so that nobody is woken. But a starving session keeps further readers out.
    fn give_back_over_references(&self, word: Word) {
        let starving = self.waiters.load(Ordering::Relaxed);
        let word = if starving & STARVING_FOR_X != 0 && starving & WAITERS != 0 && !word.has(Word::DRAINING) {
            self.waiters.fetch_and(!(STARVING | STARVING_FOR_X), Ordering::Relaxed);
            fail::point();
            word.with(Word::HANDOVER)
        } else {
            word
        };
        // Release: as in `give_back`.
        self.word.store(word.0, Ordering::Release);
        fail::point();
    }

    /// After the store of a release: wakes one session, unless one is on its way.
    #[cold]
    #[inline(never)]
    fn wake(&self, session: &Session<'_>, left: Word) {
        if self.waiters.load(Ordering::Relaxed) & FENCED != 0 {
            // SeqCst: without it the load below could be done before the release is visible, and a session that parks in
            // between would see the mutex held while we see nobody parked.
            fence(Ordering::SeqCst);
            if self.parked() == 0 {
                return;
            }
        }
        let hints = self.hints.load(Ordering::Relaxed);
        if hints & THROTTLED != 0 && !left.has(Word::DRAINING) {
            let release = if left.references() == 0 {
                session.release_of(self.address(), || self.id(), self.mutex_type(), self.gets(), self.parked())
            } else {
                Release::Wake
            };
            // Nobody is left to a session that may never come back, unless one of them looks by itself.
            if release == Release::Stay && hints & WATCHED != 0 || hints & ON_ITS_WAY != 0 {
                return;
            }
        }
        self.wake_one(served(left));
    }

    /// Gives releases a fence of their own from now on: barriers do not reach this process. Only while the caller has the
    /// holder field: the releases before are visible by now, and later holders see the flag with the word that they get.
    fn fence_releases(&self) {
        if self.waiters.load(Ordering::Relaxed) & FENCED == 0 {
            self.waiters.fetch_or(FENCED, Ordering::Relaxed);
        }
    }

    /// Between a change that lets somebody in and a look at who is parked, where no barrier of theirs orders the two: the
    /// caller's process may be out of reach of barriers, too.
    #[allow(clippy::unused_self)]
    fn fence_without_barrier(&self) {
        fence(Ordering::SeqCst);
    }

    /// Wakes the session that parked first among some kinds. Whether there was one.
    fn wake_one(&self, kinds: u32) -> bool {
        if kinds != ANYBODY {
            // Releases go on waking the others.
            return kinds != 0 && self.post(kinds);
        }
        self.hints.fetch_or(ON_ITS_WAY, Ordering::Relaxed);
        fail::point();
        if self.post(ANYBODY) {
            return true;
        }
        self.hints.fetch_and(!ON_ITS_WAY, Ordering::Relaxed);
        self.fence_without_barrier();
        fail::point();
        // Somebody may have fallen asleep since and somebody else released, who took our word for it that one is on its way.
        self.parked() != 0 && self.post(ANYBODY)
    }

    /// Counts a wake-up and wakes the session that parked first among some kinds. Whether there was one.
    fn post(&self, kinds: u32) -> bool {
        // Release: a session that parks and reads the new count has its look after our store.
        self.wakes.fetch_add(1, Ordering::Release);
        fail::point();
        if kinds == ANYBODY && self.hints.load(Ordering::Relaxed) & AGAIN != 0 {
            if sys::futex_wake_kinds(&raw const self.wakes, 1, PARKED_AGAIN) > 0 {
                return true;
            }
            self.hints.fetch_and(!AGAIN, Ordering::Relaxed);
            fail::point();
        }
        sys::futex_wake_kinds(&raw const self.wakes, 1, kinds) > 0
    }

    /// Wakes all parked sessions in queue order.
    fn wake_everybody(&self) {
        self.wakes.fetch_add(1, Ordering::Release);
        fail::point();
        sys::futex_wake_kinds(&raw const self.wakes, u32::MAX >> 1, ANYBODY);
    }

    /// A release that lets only the session that parked first get the mutex.
    #[cold]
    #[inline(never)]
    fn hand_over(&self, session: &Session<'_>, word: Word) {
        let word = word.without(Word::HANDOVER);
        let asked = self.waiters.fetch_and(!(STARVING | STARVING_FOR_X), Ordering::Relaxed);
        // Over references the first in the queue may be one that cannot have it.
        let nobody = asked & WAITERS == 0 || word.has(Word::DRAINING) || word.references() != 0;
        let handed = if nobody { word } else { word.with(Word::HANDOVER) };
        fail::point();
        self.word.store(handed.0, Ordering::Release);
        fence(Ordering::SeqCst);
        fail::point();
        if handed == word {
            if self.parked() != 0 {
                self.wake(session, word);
            }
        } else if !self.wake_one(ANYBODY) {
            // Nobody was asleep: whoever comes may have it.
            fail::point();
            let _ = self.word.compare_exchange(handed.0, word.0, Ordering::Release, Ordering::Relaxed);
            self.fence_without_barrier();
            fail::point();
            if self.parked() != 0 {
                self.wake_one(ANYBODY);
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
                self.hand_over(session, left);
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

    /// Takes dead sessions off the count of the parked ones.
    pub(crate) fn uncount_dead(&self, dead: u32) {
        self.waiters.fetch_sub(dead, Ordering::Relaxed);
        // One of them may have been the one that watched, or was on its way.
        self.hints.fetch_and(!(WATCHED | ON_ITS_WAY), Ordering::Relaxed);
    }

    /// Whether a handover was asked for so long ago that whoever it went to must be dead or stuck.
    fn handover_is_stale(&self) -> bool {
        const LONG: u32 = 10_000_000 >> 14;
        let asked = self.hints.load(Ordering::Relaxed) >> STAMP_SHIFT;
        (stamp(sys::now_ns()).wrapping_sub(asked) & STAMP) > LONG
    }

    #[cfg(test)]
    pub(crate) fn fake(&self, word: Word, drainer: Sid) {
        self.drainer.store(drainer.number(), Ordering::Relaxed);
        self.word.store(word.0, Ordering::Release);
    }

    /// As a session that parks.
    #[cfg(test)]
    pub(crate) fn count_parked(&self) {
        self.waiters.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn drainer(&self) -> Sid {
        Sid::new(self.drainer.load(Ordering::Relaxed))
    }
}
