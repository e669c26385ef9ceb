//! A session that waits for a mutex: what the slow path looks at, tries, and parks on.

use super::{ANYBODY, BESIDE_OWN, FOR_E, FOR_S, FOR_X, Patience, TO_DRAIN, served};
use crate::fail;
use crate::mode::Mode;
use crate::operation_log::LocationId;
use crate::parking::{Announced, Circumstances, Found, HANDOVER_LASTS, Parked, Parking, Parks};
use crate::raw_mutex::RawMutex;
use crate::session::Session;
use crate::slot::Slot;
use crate::sys::protocol::fence;
use crate::sys::{self, Ordering};
use crate::wait::Park;
use crate::waiter::{Ended, Target, Waiter, Want};
use crate::word::{Kind, Sid, Word};
use std::cell::Cell;
use std::time::Duration;

/// Why a get is not an ordinary hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Busy,
    TimedOut,
    Deadlock,
    Forked,
    OwnerDied,
}

/// Maximum park where a release may wake nobody: one that moves a reference, or one that no barrier reached.
const BRIEFLY: Duration = Duration::from_millis(1);

/// A session that wants a mutex in a mode.
pub(super) struct Getting<'a> {
    pub(super) mutex: &'a RawMutex,
    pub(super) session: &'a Session<'a>,
    pub(super) mode: Mode,
    pub(super) aim: Aim,
    pub(super) parks: Parks,
    /// Whether it has asked for a handover that keeps readers out.
    pub(super) asked_for_x: Cell<bool>,
    /// The holder and the gets so far at its last look after the blocker.
    seen: Cell<(Sid, u64)>,
}

/// How the mode is to be reached.
#[derive(Clone, Copy)]
pub(super) enum Aim {
    /// By a get.
    Get,
    /// S → E.
    Promote,
    /// E → X, once the references have left.
    Drain,
    /// E, again, after a drain that took too long.
    TakeBack,
}

impl<'a> Getting<'a> {
    pub(super) fn new(mutex: &'a RawMutex, session: &'a Session<'a>, mode: Mode, aim: Aim) -> Self {
        let seen = Cell::new((mutex.load().sid(), mutex.gets()));
        Self { mutex, session, mode, aim, parks: Parks::default(), asked_for_x: Cell::new(false), seen }
    }

    #[inline(always)] // with a call a poll takes a tenth longer
    #[allow(clippy::inline_always)]
    fn grant(&self, word: Word, handed: bool) -> Option<Word> {
        let sid = self.session.sid();
        // Over references it is for X, once these have left.
        let handed = handed && word.references() == 0 || word.has(Word::HANDOVER) && self.may_take_handover(word);
        match self.aim {
            Aim::Get => word.grant(sid, self.mode, handed),
            Aim::Promote => word.promote(sid, handed),
            Aim::Drain => word.drained(sid),
            Aim::TakeBack => word.without(Word::DRAINING).grant(sid, Mode::Examine, true),
        }
    }

    /// Whether the session may take what was handed over to another. A handover over references waits for
    /// this session's to leave; the session that was handed a free mutex may be dead.
    fn may_take_handover(&self, word: Word) -> bool {
        self.has_reference() || word.references() == 0 && self.mutex.handover_is_stale()
    }

    /// Whether the session holds the mutex shared while it waits.
    fn has_reference(&self) -> bool {
        match self.aim {
            Aim::Promote => true,
            Aim::Get => self.mode == Mode::Shared && self.session.held_beside(self.mutex.id()) > 1,
            Aim::Drain | Aim::TakeBack => false,
        }
    }

    /// Whether the session that drains is dead: then this one takes the drain back.
    fn drainer_is_dead(&self) -> bool {
        self.session.instance().tables.slot(self.mutex.drainer()).is_some_and(Slot::is_unattended)
    }

    /// The kind of session that a release has to wake.
    fn kind(&self) -> u32 {
        match (self.aim, self.mode) {
            (Aim::Drain, _) => TO_DRAIN,
            _ if self.has_reference() => BESIDE_OWN,
            (_, Mode::Shared) => FOR_S,
            (_, Mode::Examine) => FOR_E,
            (_, Mode::Exclusive | Mode::LongExclusive) => FOR_X,
        }
    }

    /// Whether the session has the mutex in a way that keeps it from getting it; `record` is of this get.
    pub(super) fn waits_for_itself(&self, record: usize) -> bool {
        let word = self.mutex.load();
        // What it had would show in the word.
        let may_have = word.references() != 0 || word.sid() == self.session.sid();
        let held = if may_have { self.session.held(self.mutex.id(), record) } else { None };
        held.is_some_and(|held| held != Mode::Shared || self.mode != Mode::Shared)
    }

    /// The slow path after a first try has failed.
    pub(super) fn wait(&self, location: LocationId, patience: Patience) -> Result<Word, Why> {
        let mutex = self.mutex;
        let deadline = match patience {
            Patience::None => {
                // One look at the blocker, or the first try after a death would never succeed.
                self.look_after_blocker(sys::now_ns(), true);
                return self.try_briefly().ok_or(Why::Busy);
            }
            Patience::Until(deadline) => Some(deadline),
            Patience::Endless => None,
        };
        let want =
            Want { mutex: mutex.id(), mutex_type: mutex.mutex_type(), location, mode: self.mode, from_queue: false };
        Waiter::of(self.session).wait(self, want, deadline).map_err(|why| match why {
            Ended::TimedOut => Why::TimedOut,
            Ended::Deadlock => Why::Deadlock,
            Ended::Forked => Why::Forked,
        })
    }

    /// Tries while a session moves a reference: a few instructions. Takes what was handed to the dead.
    fn try_briefly(&self) -> Option<Word> {
        for _ in 0..128 {
            let handed =
                self.mode != Mode::Shared && self.mutex.load().has(Word::HANDOVER) && self.mutex.handover_is_stale();
            if let Some(granted) = self.try_get(handed) {
                return Some(granted);
            }
            let word = self.mutex.load();
            if word.kind() != Some(Kind::Moving) && self.grant(word, handed).is_none() {
                return None;
            }
            sys::spin_loop();
        }
        None
    }

    /// Is on its way no longer. Wakes another session, if releases may have left that to it and `passes`.
    fn pass_on(&self, passes: bool) {
        let mutex = self.mutex;
        if self.parks.end(|to| mutex.change(Ordering::Relaxed, to)) && passes {
            mutex.wake_in_place_of(self.session.sid());
        }
    }
}

impl Target for Getting<'_> {
    type Got = Word;

    #[inline(always)] // as `grant`
    #[allow(clippy::inline_always)]
    fn is_open(&self, handed: bool) -> bool {
        let word = Word(self.mutex.word.load(Ordering::Relaxed));
        self.grant(word, handed).is_some()
    }

    fn try_get(&self, handed: bool) -> Option<Word> {
        let word = Word(self.mutex.word.load(Ordering::Relaxed));
        let granted = self.grant(word, handed)?;
        // AcqRel: as in `exclusive`.
        self.mutex.word.compare_exchange(word.0, granted.0, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        Some(granted)
    }

    fn park(&self, how: Park) -> Parked<Word> {
        let mutex = self.mutex;
        // Acquire: pairs with the Release of the count in `post`. Before the announcement: a release that
        // counts this session changes `wakes` after this, and the kernel does not let it sleep.
        let seen = mutex.wakes.load(Ordering::Acquire);
        // SeqCst: before the last look below, where releases have a fence.
        let mut announced = self.parks.announce(how.wakes, |to| mutex.change(Ordering::SeqCst, to));
        let Announced { watches, answers, .. } = announced;
        // While this is set, its get has not got the mutex, whatever the word says.
        self.session.slot.parked_on.store(mutex.id().0, Ordering::Release);
        fail::point();
        let asks = announced.needs_barrier() && !mutex.parking().is_fenced();
        // The kernel refuses it: releases have a fence of their own from the next one on. The one under way
        // may not see this session.
        let refused = asks && !self.session.instance().barrier(mutex.id());
        if refused {
            mutex.change(Ordering::SeqCst, Parking::fenced);
        }
        if !asks || refused {
            // SeqCst: pairs with the fence of a release beside parked sessions.
            fence(Ordering::SeqCst);
        }
        let word = Word(mutex.word.load(Ordering::Relaxed));
        let parked = if self.grant(word, how.handed).is_some() || self.is_hopeless() {
            Parked::Looked
        } else {
            // A reference that is being moved wakes nobody when it is done.
            let moving = word.kind() == Some(Kind::Moving);
            let handed_over = word.sid().is_none() && word.has(Word::HANDOVER) && word.references() == 0;
            let longest = if moving || refused {
                BRIEFLY
            } else if handed_over {
                HANDOVER_LASTS
            } else {
                Duration::MAX
            };
            let look = how.lasts(watches);
            announced.is_brief = longest < look;
            // A session that parked between our announcement and our barrier looked without one. A release in
            // that window may have woken nobody: this session passes on what it left to other kinds, and what
            // it was woken for itself.
            let others = if answers && word.sid().is_none() { served(word) } else { 0 };
            let passed_on = others != 0 && others != ANYBODY;
            if passed_on {
                mutex.wake_of(others);
            }
            // Our own wake-up does not count.
            let seen = seen.wrapping_add(u32::from(passed_on));
            match sys::futex_wait_as(&mutex.wakes, seen, look.min(longest), self.kind()) {
                sys::Woken::Yes => Parked::Woken,
                sys::Woken::Changed => Parked::Looked,
                // It answers again in the next park, see `Announced::answers`.
                sys::Woken::TimedOut if (moving || refused) && answers => Parked::Looked,
                sys::Woken::TimedOut => Parked::TimedOut,
            }
        };
        // A signal's handler has forked: what is announced is the parent's, and the parent takes it back.
        if self.session.is_forked() {
            return Parked::Looked;
        }
        fail::point();
        self.session.slot.parked_on.store(0, Ordering::Release);
        fail::point();
        let word = Word(mutex.word.load(Ordering::Relaxed));
        let found = match self.grant(word, false) {
            _ if word.has(Word::HANDOVER) => Found::HandedOver,
            Some(_) => Found::Open,
            None => Found::Busy,
        };
        self.parks.come_back(announced, &parked, found, |to| mutex.change(Ordering::Release, to));
        fail::point();
        parked
    }

    fn steps_aside(&self) {
        self.pass_on(true);
    }

    fn ended(&self, got: bool) {
        let mutex = self.mutex;
        // A woken reader lets the next one in as well. A session that gives up passes on what was left to it.
        self.pass_on(self.mode == Mode::Shared || !got);
        // What another session has asked for is left to it.
        if self.asked_for_x.get() {
            self.session.instance().let_readers_in(mutex);
        }
    }

    fn ask_for_handover(&self, now_ns: u64, interval: Duration) -> bool {
        let for_x = matches!(self.mode, Mode::Exclusive | Mode::LongExclusive);
        let change = |to: &dyn Fn(Parking) -> Parking| self.mutex.change(Ordering::Relaxed, to);
        let found = Circumstances { now_ns, is_real_time: sys::is_real_time };
        let asked = found.ask(self.mutex.parking(), interval, for_x, change);
        if asked && for_x {
            self.asked_for_x.set(true);
        }
        asked
    }

    fn parked(&self) -> u32 {
        self.mutex.parked()
    }

    fn blocker(&self) -> (Sid, bool) {
        let word = self.mutex.load();
        (word.sid(), word.is_exclusive())
    }

    fn look_after_blocker(&self, now_ns: u64, always: bool) {
        let instance = self.session.instance();
        instance.collect_debts(self.mutex);
        let word = self.mutex.load();
        // A mutex that passes is not held by the dead. Among thousands of processes each look is at another
        // page, which the kernel has to map.
        let seen = (word.sid(), self.mutex.gets());
        let has_passed = self.seen.replace(seen) != seen && word.is_exclusive() && !always;
        if !has_passed && let Some(slot) = instance.tables.slot(word.sid()) {
            instance.ask_for_thread(slot, now_ns);
            if slot.is_unattended() {
                instance.recover_with(word.sid(), Some(self.mutex));
            }
        }
        // The word does not say whose the references are.
        let for_x = matches!(self.mode, Mode::Exclusive | Mode::LongExclusive);
        let kept_out = word.has(Word::DRAINING) || word.has(Word::HANDOVER);
        if word.references() > 0 && (for_x || kept_out) || word.has(Word::DRAINING) {
            instance.sweep(Some(self.mutex), now_ns);
        }
    }

    fn is_hopeless(&self) -> bool {
        // The drainer waits for the references to leave: a session that has one would wait for itself. With a
        // deadline the drainer gives up, and this session waits for a mutex in E.
        self.mutex.drains_endlessly() && self.has_reference() && !self.drainer_is_dead()
    }

    fn gets(&self) -> u64 {
        self.mutex.gets()
    }

    fn set_attention(&self, on: bool) {
        let word = Word(self.mutex.word.load(Ordering::Relaxed));
        if word.has(Word::ATTENTION) != on {
            let word = if on { word.with(Word::ATTENTION) } else { word.without(Word::ATTENTION) };
            // The caller has the holder field.
            self.mutex.word.store(word.0, Ordering::Relaxed);
        }
    }

    fn wake_all(&self) {
        self.mutex.wake_everybody();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
