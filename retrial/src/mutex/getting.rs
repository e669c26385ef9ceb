//! A session that waits for a mutex: what the slow path looks at, tries, and parks on.

use super::{
    AGAIN, ANYBODY, FENCED, FLAGS, FOR_E, FOR_S, FOR_X, ON_ITS_WAY, PARKED_AGAIN, Patience, RawMutex, STAMP,
    STAMP_SHIFT, STARVING, STARVING_FOR_X, THROTTLED, TO_DRAIN, WAITERS, WATCHED, served, stamp,
};
use crate::aol::LocationId;
use crate::fail;
use crate::mode::Mode;
use crate::session::{Session, Slot};
use crate::sys::protocol::fence;
use crate::sys::{self, Ordering};
use crate::turn::Turn;
use crate::waiter::{Ended, Park, Parked, Target, Waiter, Want};
use crate::word::{Kind, Sid, Word};
use std::cell::Cell;
use std::time::Duration;

/// Why a get is not an ordinary hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Busy,
    TimedOut,
    Deadlock,
    OwnerDied,
}

/// Whoever parks again goes before so many others at most: to find it the kernel looks through the whole queue, which among 16,384
/// took two thirds of all processor time.
const GOES_FIRST_AMONG: u32 = 1024;

pub(super) fn waiter<'a>(session: &'a Session<'a>) -> Waiter<'a> {
    Waiter { instance: session.instance(), session: Some(session) }
}

/// A session that wants a mutex in a mode.
pub(super) struct Getting<'a> {
    pub(super) mutex: &'a RawMutex,
    pub(super) session: &'a Session<'a>,
    pub(super) mode: Mode,
    pub(super) aim: Aim,
    /// Whether its turn is over.
    pub(super) over: bool,
    /// Whether it may queue at once.
    pub(super) may_queue: bool,
    /// The gets of the mutex when it had watched in vain.
    pub(super) watched: Cell<Option<u64>>,
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
    pub(super) const fn new(mutex: &'a RawMutex, session: &'a Session<'a>, mode: Mode, aim: Aim) -> Self {
        Self { mutex, session, mode, aim, over: false, may_queue: false, watched: Cell::new(None) }
    }

    fn grant(&self, word: Word, handed: bool) -> Option<Word> {
        let sid = self.session.sid();
        // A handover over references waits for ours to leave: we must not wait for it.
        let handed = handed || word.has(Word::HANDOVER) && self.has_reference();
        match self.aim {
            Aim::Get => word.grant(sid, self.mode, handed),
            Aim::Promote => word.promote(sid, handed),
            Aim::Drain => word.drained(sid),
            Aim::TakeBack => word.without(Word::DRAINING).grant(sid, Mode::Examine, true),
        }
    }

    /// Whether the session holds the mutex shared while it waits.
    fn has_reference(&self) -> bool {
        match self.aim {
            Aim::Promote => true,
            Aim::Get => self.mode == Mode::Shared && self.session.held_beside(self.mutex.id()) > 1,
            Aim::Drain | Aim::TakeBack => false,
        }
    }

    /// The kind of session that a release has to wake.
    const fn kind(&self) -> u32 {
        match (self.aim, self.mode) {
            (Aim::Drain, _) => TO_DRAIN,
            (_, Mode::Shared) => FOR_S,
            (_, Mode::Examine) => FOR_E,
            (_, Mode::Exclusive | Mode::LongExclusive) => FOR_X,
        }
    }

    /// Whether the session has the mutex already, in a way that keeps it from getting it: its `record` is of this get.
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
                self.look_after_blocker();
                return self.try_briefly().ok_or(Why::Busy);
            }
            Patience::Until(deadline) => Some(deadline),
            Patience::Endless => None,
        };
        let want = Want {
            mutex: mutex.id(),
            mutex_type: mutex.mutex_type(),
            location,
            mode: self.mode,
            from_queue: false,
            queues: self.over,
            may_queue: self.may_queue,
        };
        waiter(self.session).wait(self, want, deadline).map_err(|why| match why {
            Ended::TimedOut => Why::TimedOut,
            Ended::Deadlock => Why::Deadlock,
        })
    }

    /// Tries as long as somebody moves a reference, which takes a few instructions, and takes what was handed to the dead.
    fn try_briefly(&self) -> Option<Word> {
        for _ in 0..128 {
            let handed = self.mutex.load().has(Word::HANDOVER) && self.mutex.handover_is_stale();
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
}

impl Target for Getting<'_> {
    type Got = Word;

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
        let hints = mutex.hints.load(Ordering::Relaxed);
        let came_back = how.woken && hints & ON_ITS_WAY != 0;
        if came_back {
            mutex.hints.fetch_and(!ON_ITS_WAY, Ordering::Relaxed);
        }
        let throttled = if how.throttle { THROTTLED } else { 0 };
        // One of those who are parked looks every millisecond, for what no release has seen to. Not the same again if there are
        // others: looking costs it its place in the queue; nor if nobody has got the mutex since. Until the next one parks or times
        // out nobody watches; then releases wake.
        let seen_by_watch = self.watched.take();
        let may_watch = how.throttle && seen_by_watch.is_none_or(|gets| mutex.parked() == 0 && gets != mutex.gets());
        let watches = may_watch && mutex.hints.fetch_or(WATCHED, Ordering::Relaxed) & WATCHED == 0;
        let goes_first = how.again && mutex.parked() < GOES_FIRST_AMONG;
        let again = if goes_first { AGAIN } else { 0 };
        if hints & (THROTTLED | again) != throttled | again {
            mutex.hints.fetch_and(!THROTTLED, Ordering::Relaxed);
            mutex.hints.fetch_or(throttled | again, Ordering::Relaxed);
        }
        // Acquire: pairs with the Release of the count in `wake_one`.
        let seen = mutex.wakes.load(Ordering::Acquire);
        // SeqCst: before the last look below, in the fallback without a barrier everywhere.
        let before = mutex.waiters.fetch_add(1, Ordering::SeqCst);
        fail::point();
        // A death in between leaves a count too many: releases then look for somebody to wake. Never one too few.
        self.session.slot.parked_on.store(mutex.id().0, Ordering::Release);
        fail::point();
        let first = before & (FENCED | WAITERS) == 0;
        let mut refused = false;
        if before & FENCED != 0 {
            fence(Ordering::SeqCst);
        } else if first || came_back {
            // The first to park: from here on every release on every processor sees us. Later ones find the count raised.
            if !sys::barrier_everywhere() {
                // The kernel refuses it: releases have a fence of their own from the next one on. The one under way may
                // not see this session.
                mutex.waiters.fetch_or(FENCED, Ordering::SeqCst);
                fence(Ordering::SeqCst);
                refused = true;
            }
        }
        let word = Word(mutex.word.load(Ordering::Relaxed));
        // Its turn is over, and somebody was parked before: whoever that is leaves the queue, has its look and sees us after it. Not
        // beside references: they may be in the other's way, not in ours, and wake nobody when they go.
        let leaves = how.queues && (before & WAITERS != 0 || watches) && word.references() == 0;
        let parked = if self.grant(word, how.handed).is_some() && !leaves || self.is_hopeless() {
            Parked::Woken
        } else {
            // A reference that is being moved wakes nobody when it is done.
            let moving = word.kind() == Some(Kind::Moving);
            // Whoever is on its way may be dead, and then nobody looks but we.
            let unwatched = how.throttle && before & WAITERS != 0 && hints & WATCHED == 0;
            let timeout = how.lasts(moving || watches || refused, unwatched);
            // What we were woken for is not for us any more, but it may be for another kind.
            // Who parked between our count and our barrier looked without one: what was released meanwhile is for us to pass on.
            let answers = how.woken || came_back || first;
            let others = if answers && word.sid().is_none() { served(word) } else { 0 };
            let passed_on = others != 0 && others != ANYBODY;
            if passed_on {
                mutex.post(others);
            }
            // Our own wake-up does not count.
            let seen = seen.wrapping_add(u32::from(passed_on));
            let kinds = self.kind() | if goes_first { PARKED_AGAIN } else { 0 };
            match sys::futex_wait_as(&mutex.wakes, seen, timeout, kinds) {
                sys::Woken::Yes | sys::Woken::Changed => Parked::Woken,
                // What it was woken for is still to be looked at, or passed on.
                sys::Woken::TimedOut if moving && answers => Parked::Woken,
                sys::Woken::TimedOut => Parked::TimedOut,
            }
        };
        fail::point();
        self.session.slot.parked_on.store(0, Ordering::Release);
        fail::point();
        mutex.waiters.fetch_sub(1, Ordering::Release);
        fail::point();
        let timed_out = parked == Parked::TimedOut;
        if timed_out || watches {
            self.watched.set((timed_out && watches).then(|| mutex.gets()));
            // Whoever was on its way may be dead; whoever watched is, or late, where the mutex is found open or nobody has looked for long.
            let unwatched = watches || how.timeout >= Park::UNWATCHED || self.is_open(true);
            let over = if timed_out { ON_ITS_WAY } else { 0 } | if unwatched { WATCHED } else { 0 };
            mutex.hints.fetch_and(!over, Ordering::Relaxed);
        }
        parked
    }

    fn may_take_handover_at_deadline(&self) -> bool {
        let word = self.mutex.load();
        self.mode != Mode::Shared || word.references() == 0 || self.mutex.handover_is_stale()
    }

    fn gave_up(&self) {
        if self.watched.take().is_some() {
            // Whoever has released since may have taken us for watching still.
            if !sys::barrier_everywhere() {
                fence(Ordering::SeqCst);
            }
            let word = self.mutex.load();
            if self.grant(word, true).is_some() && self.mutex.parked() != 0 {
                self.mutex.wake_one(served(word));
            }
        }
        if matches!(self.mode, Mode::Exclusive | Mode::LongExclusive) {
            self.mutex.waiters.fetch_and(!STARVING_FOR_X, Ordering::Relaxed);
        }
        let word = self.mutex.load();
        let over_references = word.sid().is_none() && word.references() != 0 && word.has(Word::HANDOVER);
        if over_references && matches!(self.mode, Mode::Exclusive | Mode::LongExclusive) {
            let open = word.without(Word::HANDOVER);
            if self.mutex.word.compare_exchange(word.0, open.0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                fence(Ordering::SeqCst);
                if self.mutex.parked() != 0 {
                    self.mutex.wake_one(served(open));
                }
            }
        }
    }

    fn woken_is_done(&self, got: bool) {
        self.mutex.hints.fetch_and(!ON_ITS_WAY, Ordering::Relaxed);
        self.mutex.fence_without_barrier();
        let waiting = self.mutex.parked() != 0;
        // A woken reader lets the next one in as well; who gives up passes the wake-up on.
        if waiting && (self.mode == Mode::Shared || !got) {
            self.mutex.wake_one(served(self.mutex.load().give_back()));
        }
    }

    fn ask_for_handover(&self, now_ns: u64, interval: Duration) {
        let mutex = self.mutex;
        let hints = mutex.hints.load(Ordering::Relaxed);
        let now = stamp(now_ns);
        let since = now.wrapping_sub(hints >> STAMP_SHIFT) & STAMP;
        if u128::from(since) << 14 >= interval.as_nanos() {
            // Not if the flags have changed since: set again, ON_ITS_WAY would keep releases from waking anybody.
            let stamped = mutex.hints.compare_exchange(
                hints,
                now << STAMP_SHIFT | hints & FLAGS,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if stamped.is_ok() {
                let keeps_readers_out = matches!(self.mode, Mode::Exclusive | Mode::LongExclusive);
                let asked = if keeps_readers_out { STARVING | STARVING_FOR_X } else { STARVING };
                mutex.waiters.fetch_or(asked, Ordering::Relaxed);
            }
        }
    }

    fn parked(&self) -> u32 {
        self.mutex.parked()
    }

    fn turn(&self) -> Option<(&Turn, u64)> {
        Some((&self.session.turn, self.mutex.address()))
    }

    fn blocker(&self) -> (Sid, bool) {
        let word = self.mutex.load();
        (word.sid(), word.is_exclusive())
    }

    fn look_after_blocker(&self) {
        let instance = self.session.instance();
        instance.collect_debts(self.mutex);
        let word = self.mutex.load();
        if word.sid().is_none() {
            let kept_out = word.has(Word::DRAINING) || word.has(Word::HANDOVER);
            let blocked = word.references() > 0 && (self.mode != Mode::Shared || kept_out) || word.has(Word::DRAINING);
            if blocked {
                instance.sweep(Some(self.mutex));
            }
        } else if instance.slot(word.sid()).is_some_and(Slot::is_dead) {
            instance.recover(word.sid(), Some(self.mutex));
        }
    }

    fn is_hopeless(&self) -> bool {
        // A drainer waits for the references to leave. Who holds one and waits to be let in would wait for itself.
        self.mutex.load().has(Word::DRAINING) && self.has_reference()
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
