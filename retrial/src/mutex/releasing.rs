//! Releases, and what they wake: see *Wake-ups* in `docs/DESIGN.md`.

use super::getting::{Aim, Getting};
use super::{ANYBODY, served};
use crate::fail;
use crate::mode::Mode;
use crate::operation_log::{Phase, Record};
use crate::parking::{self, Circumstances, Parking};
use crate::raw_mutex::RawMutex;
use crate::session::Session;
use crate::sys::protocol::{AtomicU64, fence};
use crate::sys::{self, Ordering};
use crate::word::{Kind, Sid, Word};

impl RawMutex {
    /// Gives the holder field back: the caller has it, and `word` is what stays.
    #[inline]
    pub(super) fn give_back(&self, session: &Session<'_>, word: Word) {
        // Over references the first in the queue may be one that cannot have it. A handover that has kept
        // readers out: the session that asked for it may have gone since, and no other one would get the mutex.
        if word.references() == 0
            && (word.has(Word::HANDOVER) || self.parking().concerns_releases() && self.hands_over(session))
        {
            return self.hand_over(word);
        }
        let left = self.kept_for_x(word);
        if self.leave_open(left) {
            self.wake(left);
        }
    }

    /// Any release. It is out of line and has scalars for arguments, and the fast path makes as few calls as
    /// can be: the drop of a hold is inlined then, and the hold stays in registers. Half of the time of an
    /// uncontended pair.
    #[cold]
    #[inline(never)]
    pub(super) fn end(&self, session: &Session<'_>, record: usize, mode: Mode, rest: Word) {
        match mode {
            Mode::Shared => return self.leave(session, record),
            // Beside E a reader of this thread may have left.
            Mode::Examine => self.give_back(session, self.load().give_back()),
            Mode::Exclusive | Mode::LongExclusive => self.give_back(session, rest),
        }
        session.unlog(record);
    }

    /// The rest of a release after its store.
    #[cold]
    #[inline(never)]
    pub(super) fn end_waking(&self, session: &Session<'_>, record: usize, left: Word) {
        self.wake(left);
        session.unlog(record);
    }

    /// The store of a release. Whether `wake` has to be called after it.
    #[inline]
    pub(super) fn leave_open(&self, word: Word) -> bool {
        // Release: pairs with the exchange of the next get. No RMW: nobody else changes a word whose holder
        // field is set.
        self.word.store(word.0, Ordering::Release);
        sys::barrier_here();
        fail::point();
        // Relaxed: ordered after the store by the barrier of the session that parks where none is parked. Where
        // one is, or each release has a fence, always true: `wake` has a fence and looks again.
        self.parking().concerns_releases()
    }

    #[cold]
    #[inline(never)]
    fn hands_over(&self, session: &Session<'_>) -> bool {
        parking::hands_over(self.parking(), self.gets(), || {
            let found = Circumstances { now_ns: sys::now_ns(), is_real_time: sys::is_real_time };
            (session.instance().params(Some(self.mutex_type())), found)
        })
    }

    /// The same by a session that has only moved a reference, while references stay: nobody can get a mode
    /// now that could not be got before, so that nobody is woken.
    pub(super) fn give_back_over_references(&self, word: Word) {
        let left = self.kept_for_x(word);
        fail::point();
        // Release: as in `give_back`.
        self.word.store(left.0, Ordering::Release);
        fail::point();
    }

    /// What a session in the holder field leaves: over references a session that starves for X keeps further
    /// readers out.
    pub(super) fn kept_for_x(&self, left: Word) -> Word {
        let parking = self.parking();
        let is_asked = left.references() != 0 && parking.starving().1 && parking.parked() != 0;
        // Decided by the change: the session that asked may give up meanwhile. Release: pairs with the change in
        // `try_let_readers_in`, after which that session finds the holder field taken.
        let is_kept =
            is_asked && !left.has(Word::DRAINING) && self.change(Ordering::Release, Parking::fed_for_x).starving().1;
        if is_kept { left.with(Word::HANDOVER) } else { left }
    }

    /// A session that asked to keep readers out for X wants it no more: takes its request back, and a handover
    /// over references. Whether that is done: not while a session that moves a reference or has E may have
    /// begun to keep readers out. Another session that wants X asks again when it has been woken, or looks.
    pub(crate) fn try_let_readers_in(&self) -> bool {
        // Acquire: as in `give_back_over_references` and `hand_over`.
        let parking = self.change(Ordering::AcqRel, Parking::not_for_x);
        let word = self.load();
        match word.kind() {
            // A request that was still there has begun nothing.
            Some(Kind::Moving | Kind::Examine) => parking.starving().1 && !word.has(Word::HANDOVER),
            // Of a free mutex: a session that is on its way may be the one to have it.
            None if word.has(Word::HANDOVER) && (word.references() != 0 || parking.woken() == 0) => {
                let open = word.without(Word::HANDOVER);
                let done = self.word.compare_exchange(word.0, open.0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
                fence(Ordering::SeqCst);
                if done && self.parked() != 0 {
                    self.wake_for(open);
                }
                done
            }
            _ => true,
        }
    }

    /// After the store of a release: wakes one session, unless enough are on their way and nobody drains.
    #[cold]
    #[inline(never)]
    fn wake(&self, left: Word) {
        // SeqCst: without it the look could be done before the release is visible. A woken session that parks
        // in between would see the mutex held, while this one sees it on its way.
        fence(Ordering::SeqCst);
        let parking = self.parking();
        if parking.wakes() || parking.parked() != 0 && left.has(Word::DRAINING) {
            self.wake_for(left);
        }
        // By what was known before: the last two may be on their way to sleep.
        if parking.lacks_watcher(self.gets()) {
            self.wake_one();
        }
    }

    /// Gives releases a fence of their own from now on: barriers do not reach this process. Only while the
    /// caller has the holder field: the releases before are visible by now, and later holders see the flag
    /// with the word that they get.
    pub(super) fn fence_releases(&self) {
        if !self.parking().is_fenced() {
            self.change(Ordering::Relaxed, Parking::fenced);
        }
    }

    /// Wakes the session that parked first. Whether there was one.
    fn wake_one(&self) -> bool {
        // Counted first: the woken session may have arrived before this call goes on. Acquire: pairs with the
        // announcements that are counted, whose sessions have read an older count of wake-ups than the one
        // that `post` makes.
        let then = self.change(Ordering::AcqRel, Parking::wake);
        fail::point();
        let woken = self.post(ANYBODY, 1) != 0;
        fail::point();
        if woken {
            self.change(Ordering::Relaxed, |all| all.has_woken(then, 1));
            return true;
        }
        self.change(Ordering::Relaxed, |all| all.has_woken_nobody(then));
        fence_without_barrier();
        fail::point();
        // A session may have fallen asleep since, and a release may have woken nobody because this call
        // counted one as woken.
        self.parked() != 0 && self.wake_of(ANYBODY)
    }

    /// Wakes the session that parked first among some kinds. Whether there was one. Counts one wake-up in any
    /// case. The session is not counted as on its way: a release that it cannot use must wake another one.
    pub(super) fn wake_of(&self, kinds: u32) -> bool {
        let then = self.parking();
        let woken = self.post(kinds, 1) != 0;
        if woken {
            self.change(Ordering::Relaxed, |all| all.has_woken(then, 1));
        }
        woken
    }

    /// Wakes the session that parked first among those that can have what the word says now.
    pub(super) fn wake_for(&self, left: Word) {
        match served(left) {
            0 => {}
            ANYBODY => drop(self.wake_one()),
            kinds => drop(self.wake_of(kinds)),
        }
    }

    /// Counts a wake-up and wakes up to `count` sessions of some kinds in the order in which they parked. How
    /// many there were.
    fn post(&self, kinds: u32, count: u32) -> u32 {
        // Release: a session that parks and reads the new count has its look after our store.
        self.wakes.fetch_add(1, Ordering::Release);
        fail::point();
        sys::futex_wake_kinds(&raw const self.wakes, count, kinds)
    }

    /// Wakes all parked sessions in queue order.
    pub(super) fn wake_everybody(&self) {
        let then = self.parking();
        let woken = self.post(ANYBODY, u32::MAX >> 1);
        fail::point();
        self.change(Ordering::Relaxed, |all| all.has_woken(then, woken));
    }

    /// A release that lets only the session that it wakes get the mutex, which is the session that parked first.
    #[cold]
    #[inline(never)]
    fn hand_over(&self, word: Word) {
        let word = word.without(Word::HANDOVER);
        let now = sys::now_ns();
        let asked = self.change(Ordering::Relaxed, |all| all.handed_over(now));
        let nobody = !asked.has_a_taker() || word.has(Word::DRAINING);
        let handed = if nobody { word } else { word.with(Word::HANDOVER) };
        fail::point();
        self.word.store(handed.0, Ordering::Release);
        fail::point();
        if handed == word {
            return self.wake(word);
        }
        fence(Ordering::SeqCst);
        // A session that asked for X and is not asleep yet comes out of its park at once, for `wakes` has
        // changed. A reader would not take it. One that gives up before this look has taken its request back,
        // and one that does so after it, the handover: its change of `parking` comes after those in
        // `wake_one`, and so after the store.
        let woken = self.wake_one();
        let stays = woken || asked.starving().1 && self.parking().wants_x();
        if !stays {
            // No session was asleep: any may have it.
            fail::point();
            let _ = self.word.compare_exchange(handed.0, word.0, Ordering::Release, Ordering::Relaxed);
            fence_without_barrier();
            fail::point();
            if self.parked() != 0 {
                self.wake_one();
            }
        }
    }

    /// Takes the holder field to drop a reference. Waits while another session is in it: a few instructions
    /// when that one moves a reference, as long as it likes when it holds E. `None` when nothing is left to
    /// drop: it is done already beside E of this thread, or there is no reference, as after a poke or where
    /// something else wrote into the mutex: a holder that no session of the instance can be.
    fn take_field(&self, session: &Session<'_>, record: usize) -> Option<Word> {
        let mut rounds = 0u32;
        loop {
            let word = Word(self.word.load(Ordering::Relaxed));
            if let Some(taken) = word.take_field(session.sid())
                // AcqRel: as in `exclusive`.
                && self.word.compare_exchange_weak(word.0, taken.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                return Some(taken);
            }
            let tables = &session.instance().tables;
            // By its number: the slot of a living session may not be mapped here.
            let is_no_session = word.sid().number() > tables.capacity().sessions;
            if word.references() == 0 || is_no_session {
                return None;
            }
            let holder = tables.slot(word.sid());
            if word.kind() == Some(Kind::Examine) && holder.is_some_and(|slot| slot.is_of_same_thread(session.slot)) {
                self.leave_beside_own_examiner(session, record, word);
                return None;
            }
            rounds += 1;
            Getting::new(self, session, Mode::Shared, Aim::Get).pause(rounds);
        }
    }

    /// Drops the reference of a session while another session of this very thread holds E: to wait for that
    /// one would be to wait for ever. The session takes E over for its reference, as a promotion does, and
    /// gives it back. Plain stores: the thread has the field all the time. After each of them the two records
    /// say exactly which of the two sessions has what.
    #[cold]
    fn leave_beside_own_examiner(&self, session: &Session<'_>, record: usize, word: Word) {
        if word.references() == 0 {
            return;
        }
        session.relog(record, Phase::Promoting, Mode::Shared);
        let left = word.drop_reference();
        self.word.store(left.with_sid(session.sid()).0, Ordering::Release);
        fail::point();
        session.relog(record, Phase::Held, Mode::Examine);
        self.word.store(left.0, Ordering::Release);
        fail::point();
    }

    /// Drops a reference from before a fork, in the child, where a session of the parent has the holder field: there
    /// it stays. `false`: no such session has it.
    #[cfg(feature = "lock_api")]
    pub(crate) fn leave_beside_parent(&self, session: &Session<'_>) -> bool {
        loop {
            let word = self.load();
            let holder = session.instance().tables.slot(word.sid());
            let is_here = holder.is_some_and(|slot| slot.is_of_same_process(session.slot));
            if word.sid().is_none() || word.references() == 0 || is_here {
                return false;
            }
            let left = word.drop_reference();
            // Release: what the reader did comes first.
            if self.word.compare_exchange(word.0, left.0, Ordering::Release, Ordering::Relaxed).is_ok() {
                return true;
            }
        }
    }

    pub(super) fn leave(&self, session: &Session<'_>, record: usize) {
        session.relog(record, Phase::Leaving, Mode::Shared);
        let Some(taken) = self.take_field(session, record) else { return session.unlog(record) };
        fail::point();
        session.relog(record, Phase::Left, Mode::Shared);
        let left = taken.drop_reference().give_back();
        if left.references() == 0 {
            self.give_back(session, left);
        } else {
            self.give_back_over_references(left);
        }
        session.unlog(record);
    }

    /// The same for a dead session, by the recoverer that has its lock; tries once.
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

    /// A session has died that may have been on its way: takes it off the number of those, and wakes one for it.
    pub(crate) fn pass_on_for_dead(&self) {
        self.change(Ordering::Relaxed, Parking::arrived);
        self.wake_in_place_of(Sid::NONE);
    }

    /// Wakes a session for one that was on its way, is so no longer, and may have been what a release relied on.
    pub(super) fn wake_in_place_of(&self, sid: Sid) {
        fence_without_barrier();
        if self.parked() != 0 {
            let word = self.load();
            // What another session leaves that moves the last reference is not known yet, and its own look at
            // the sessions on their way may have come before.
            let is_moved = word.kind() == Some(Kind::Moving) && word.sid() != sid;
            self.wake_for(if is_moved { Word::FREE } else { word.give_back() });
        }
    }

    pub(crate) fn wake_after_recovery(&self) {
        // The dead session may have been on its way. If it was not, one more is woken.
        self.change(Ordering::Relaxed, Parking::arrived);
        fence(Ordering::SeqCst);
        if self.parked() != 0 {
            // The dead session may have blocked sessions of any kind. Rare enough to let them all look.
            self.wake_everybody();
        }
    }

    pub(super) fn handover_is_stale(&self) -> bool {
        self.parking().handover_is_stale(sys::now_ns())
    }
}

/// Between a change that lets a session in and a look for parked ones, where no barrier of theirs orders the
/// two: the caller's process may be out of reach of barriers, too.
fn fence_without_barrier() {
    fence(Ordering::SeqCst);
}
