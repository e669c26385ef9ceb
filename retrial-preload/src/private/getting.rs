//! A thread that wants a private mutex: what it looks at, how it parks, and how it waits for itself.

use super::{AWAITED, HELD, LOCK, OWN, PrivateMutex, SID};
use crate::foreign::Sort;
use crate::spots::{self, Parks, Spot};
use crate::thread::Thread;
use retrial::interposer::{Park, Parked, Target};
use retrial::parking::Found;
use retrial::views::{Sid, Word};
use retrial::{Mode, sys};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A futex that no thread wakes.
static NEVER: AtomicU32 = AtomicU32::new(AWAITED as u32);

/// Interval between two looks at a mutex that was got past this library: no release wakes this thread.
const NAP: Duration = Duration::from_millis(1);

/// Waits for a release that finds libc's lock awaited, at most until `end` by the monotonic clock: whether
/// that has not passed.
fn wait_at_libcs(lock: &AtomicU32, end: Option<&libc::timespec>, kinds: u32) -> bool {
    let (op, end) =
        (libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG, end.map_or(std::ptr::null(), std::ptr::from_ref));
    // SAFETY: the lock is a live aligned 32-bit word and `end` null or readable; the second address is not
    // used.
    let rc = unsafe { libc::syscall(libc::SYS_futex, lock.as_ptr(), op, AWAITED as u32, end, 0usize, kinds) };
    rc == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ETIMEDOUT)
}

/// A thread that wants a mutex.
pub(super) struct Getting<'a> {
    mutex: &'a PrivateMutex,
    me: u64,
    /// What its parks have to tell the next one.
    parks: Parks,
    /// Whether the thread has the mutex already, of a sort that does not say so.
    is_own: bool,
    /// The mutex's number when the wait began, `None` of sorts without.
    number: Option<u32>,
    /// Whether the memory was seen to be another mutex, which is not looked at again.
    is_gone: Cell<bool>,
    /// Whether it has asked for a handover.
    has_asked: Cell<bool>,
}

impl<'a> Getting<'a> {
    pub(super) fn new(mutex: &'a PrivateMutex, sort: Sort, thread: &Thread) -> Self {
        // `me` first: it finds out.
        let me = thread.me();
        let word = mutex.word.load(Ordering::Relaxed);
        Self {
            mutex,
            me,
            parks: Parks::default(),
            is_own: !sort.knows_owner() && word & LOCK != 0 && word & SID == me,
            number: (sort != Sort::Recursive).then(|| mutex.depth.load(Ordering::Relaxed)),
            is_gone: Cell::new(false),
            has_asked: Cell::new(false),
        }
    }

    /// Whether the memory has become another mutex since the wait began.
    fn is_gone(&self) -> bool {
        let is_gone = || self.number.is_some_and(|number| self.mutex.depth.load(Ordering::Relaxed) != number);
        if !self.is_gone.get() && is_gone() {
            self.is_gone.set(true);
        }
        self.is_gone.get()
    }

    /// Waits for a mutex that this thread holds, as libc does: for a release by another thread. A release
    /// that does not find [`AWAITED`] in the word yet finds the spot busy; or its store is visible to the
    /// exchange here.
    fn park_beside_oneself(&self, timeout: Duration) -> Parked<Word> {
        let lock = self.mutex.libcs();
        let end = Duration::from_nanos(sys::now_ns()).checked_add(timeout).map(|end| libc::timespec {
            tv_sec: end.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: end.subsec_nanos().into(),
        });
        if !self.spot().expect_own_waiters() {
            // The kernel has no barrier: releases have a fence from now on, and those under way are done
            // after a nap.
            spots::fence_all();
            sys::sleep(timeout.min(NAP));
        }
        // Acquire: what its last holder did (pairs with the Release in `release`).
        while self.is_gone() || lock.swap(AWAITED as u32, Ordering::Acquire) != 0 {
            // A mutex that is new in the same memory is not looked at, and the old one will never be
            // released.
            let lock = if self.is_gone() { &NEVER } else { lock };
            if !wait_at_libcs(lock, end.as_ref(), OWN) {
                return Parked::TimedOut;
            }
        }
        // The lower half is this thread's, so the word is: a plain store.
        let word = self.mutex.word.load(Ordering::Relaxed) & !SID | self.me;
        self.mutex.word.store(word, Ordering::Relaxed);
        Parked::Got(Word(word))
    }

    fn spot(&self) -> &'static Spot {
        spots::at(self.mutex.futex())
    }

    /// Whether no handover keeps it from this thread, which may take one if it is `handed`.
    fn may_have(&self, word: Word, handed: bool) -> bool {
        handed || !word.has(Word::HANDOVER) || !self.spot().is_awaited(self.mutex.futex())
    }
}

impl Target for Getting<'_> {
    type Got = Word;

    fn is_open(&self, handed: bool) -> bool {
        let word = Word(self.mutex.word.load(Ordering::Relaxed));
        !self.is_gone() && word.0 & LOCK == 0 && self.may_have(word, handed)
    }

    fn try_get(&self, handed: bool) -> Option<Word> {
        if self.is_gone() {
            return None;
        }
        let word = Word(self.mutex.word.load(Ordering::Relaxed));
        // An unlock by libc's call leaves the name of its holder.
        let left = if word.0 & LOCK == 0 { word.without(SID) } else { word };
        let handed = self.may_have(left, handed);
        let granted = left.grant(Sid::new((self.me >> 32) as u32), Mode::Exclusive, handed)?;
        let granted = Word(granted.0 | HELD);
        // Acquire: as in `lock`.
        self.mutex.word.compare_exchange(word.0, granted.0, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(granted)
    }

    fn park(&self, how: Park) -> Parked<Word> {
        if self.is_own {
            return self.park_beside_oneself(how.left);
        }
        // A mutex that is gone has no word to read: no release wakes this thread.
        let word = if self.is_gone() { HELD } else { self.mutex.word.load(Ordering::Relaxed) };
        if word & SID == 0 && word & LOCK != 0 {
            self.ended(true);
            sys::sleep(if self.is_gone() { how.timeout.min(how.left) } else { how.left.min(NAP) });
            return Parked::TimedOut;
        }
        let look = |holder_field: u32| {
            let word = Word(u64::from(holder_field) << 32);
            match word.0 & SID {
                0 if self.may_have(word, false) => Found::Open,
                0 => Found::HandedOver,
                _ => Found::Busy,
            }
        };
        self.spot().park(self.mutex.futex_word(), look, how, &self.parks)
    }

    fn ended(&self, got: bool) {
        self.spot().ended(self.mutex.futex(), got, &self.parks);
        if self.has_asked.take() {
            self.spot().asks_no_more();
        }
    }

    fn steps_aside(&self) {
        self.spot().ended(self.mutex.futex(), false, &self.parks);
    }

    fn parks_at_once(&self) -> bool {
        self.is_own
    }

    fn ask_for_handover(&self, now_ns: u64, interval: Duration) -> bool {
        let asked = self.spot().ask_for_handover(now_ns, interval);
        if asked {
            self.has_asked.set(true);
        }
        asked
    }

    fn knows_its_parked(&self) -> bool {
        self.spot().is_of(self.mutex.futex())
    }

    fn parked(&self) -> u32 {
        self.spot().parked()
    }

    fn blocker(&self) -> (Sid, bool) {
        (Word(self.mutex.word.load(Ordering::Relaxed)).sid(), true)
    }

    fn gets(&self) -> u64 {
        self.mutex.gets.load(Ordering::Relaxed)
    }

    fn set_attention(&self, on: bool) {
        let word = Word(self.mutex.word.load(Ordering::Relaxed));
        let word = if on { word.with(Word::ATTENTION) } else { word.without(Word::ATTENTION) };
        // The caller is the holder; libc's waiters change the other half.
        self.mutex.futex_word().store((word.0 >> 32) as u32, Ordering::Relaxed);
    }

    fn wake_all(&self) {
        self.spot().wake_all(self.mutex.futex_word());
    }
}
