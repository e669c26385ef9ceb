//! Who is parked, by address of the futex: what a release looks at after its store.
//!
//! After that store nothing of the mutex may be touched, for its next holder may free it. So what the release needs to
//! know is here, in memory of our own. Addresses share spots: what is in one is a hint, of which a wrong one costs a
//! wake-up too many, never one too few.
//!
//! No wake-up is lost although the release has no fence. The releaser stores the word, then loads `parked`; a thread that
//! parks raises `parked`, has the kernel do a full barrier on every processor, and only then lets the kernel compare
//! the word. Either the releaser sees the thread, or the kernel sees the release.

use retrial::wait::Release;
use retrial::{Park, Parked, sys};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use std::time::Duration;

const SPOTS: usize = 1024;

/// In `parked`: every release on every processor has seen the spot in use since it was free.
const ANNOUNCED: u32 = 1 << 31;
/// In `parked`, for good: the kernel has no such barrier, each release has a fence of its own.
const FENCED: u32 = 1 << 30;
/// In `parked`: who parked last waits by a scheme with which a release wakes nobody while a woken thread is on its way.
const THROTTLED: u32 = 1 << 29;
const COUNT: u32 = THROTTLED - 1;

/// The hints for the addresses that share it.
pub(crate) struct Spot {
    parked: AtomicU32,
    /// The futex that a thread was woken on and is on its way to; 0 when nobody is.
    on_its_way: AtomicUsize,
    /// The futex at which one of the parked threads looks by itself before long; 0 when nobody does.
    watched: AtomicUsize,
}

/// Looks at a mutex that is in use but was free just now, before a thread that would queue beside its user takes it.
const TRIES: u32 = 16;

static ALL: [Spot; SPOTS] =
    [const { Spot { parked: AtomicU32::new(0), on_its_way: AtomicUsize::new(0), watched: AtomicUsize::new(0) } };
        SPOTS];

/// The spot of a futex.
#[inline]
pub(crate) fn at(address: usize) -> &'static Spot {
    // Multiplicative hashing, Knuth 6.4; objects are aligned to 8 bytes.
    &ALL[((address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) % SPOTS]
}

/// Forgets all who are parked: in the child of a fork nobody is.
pub(crate) fn forget() {
    for spot in &ALL {
        // Looked at first: a page that is not written is not copied.
        if spot.parked.load(Ordering::Relaxed) & !FENCED != 0 {
            spot.parked.fetch_and(FENCED, Ordering::Relaxed);
        }
        for futex in [&spot.on_its_way, &spot.watched] {
            if futex.load(Ordering::Relaxed) != 0 {
                futex.store(0, Ordering::Relaxed);
            }
        }
    }
}

/// Has every release do a fence, where the kernel cannot do it for those who park.
pub(crate) fn fence_all() {
    for spot in &ALL {
        spot.parked.fetch_or(FENCED, Ordering::SeqCst);
    }
}

impl Spot {
    /// Whether a release has to look closer.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        // Relaxed: ordered after the release's store by the parking thread's barrier, or by the fence in `wake_after`.
        self.parked.load(Ordering::Relaxed) != 0
    }

    /// Threads parked at this spot.
    pub(crate) fn parked(&self) -> u32 {
        self.parked.load(Ordering::Relaxed) & COUNT
    }

    /// Wakes one of those who wait on the futex at `address`, after a release of what it is part of, unless one is on its way or
    /// the release is to `decide` otherwise; the object may be gone.
    #[cold]
    #[inline(never)]
    pub(crate) fn wake_after(&self, address: usize, decide: impl FnOnce(&Self) -> Release) {
        let mut parked = self.parked.load(Ordering::Relaxed);
        if parked & FENCED != 0 {
            // SeqCst: the store of the release is seen by whoever parks after this load.
            fence(Ordering::SeqCst);
            parked = self.parked.load(Ordering::Relaxed);
        }
        if parked & COUNT == 0 {
            return;
        }
        if parked & THROTTLED != 0 {
            // Nobody is left to a thread that may never come back, unless one of them looks by itself.
            let stays = decide(self) == Release::Stay && self.watched.load(Ordering::Relaxed) == address;
            if stays || self.on_its_way.load(Ordering::Relaxed) == address {
                return;
            }
        }
        self.wake_one(address);
    }

    fn wake_one(&self, address: usize) {
        self.on_its_way.store(address, Ordering::Relaxed);
        let wake = || sys::futex_wake(address as *const AtomicU32, 1, true) > 0;
        if wake() {
            return;
        }
        self.nobody_is_on_its_way(address);
        if self.parked.load(Ordering::Relaxed) & FENCED != 0 {
            fence(Ordering::SeqCst);
        }
        // Somebody may have fallen asleep since and somebody else released, who took our word for it that one is on its way.
        if self.parked() != 0 {
            wake();
        }
    }

    fn nobody_is_on_its_way(&self, address: usize) {
        let _ = self.on_its_way.compare_exchange(address, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Says that a woken thread has what it was woken for, or has given up: then the next one is woken in its place.
    pub(crate) fn woken_is_done(&self, address: usize, got: bool) {
        self.nobody_is_on_its_way(address);
        if !got && self.parked() != 0 {
            self.wake_one(address);
        }
    }

    /// Waits while `is_busy` says so of what the futex holds. `watched`: whether the thread was the one that looked by itself when it
    /// was last parked in the same wait.
    pub(crate) fn park<G>(
        &self,
        futex: &AtomicU32,
        is_busy: impl Fn(u32) -> bool,
        how: Park,
        watched: &Cell<bool>,
    ) -> Parked<G> {
        let address = futex.as_ptr() as usize;
        let had_watched = watched.take();
        // SeqCst: before the look below, where releases have a fence of their own.
        let before = self.parked.fetch_add(1, Ordering::SeqCst);
        match (before & THROTTLED != 0, how.throttle) {
            (false, true) => drop(self.parked.fetch_or(THROTTLED, Ordering::Relaxed)),
            (true, false) => drop(self.parked.fetch_and(!THROTTLED, Ordering::Relaxed)),
            _ => {}
        }
        // Not the same twice if there are others: looking costs it its place in the queue.
        let may_watch = how.throttle && !had_watched;
        let watches =
            may_watch && self.watched.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        // It may be we who are on our way; if not, a wake-up too many is the price.
        let came_back = self.on_its_way.compare_exchange(address, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        if before & FENCED == 0 && (before & ANNOUNCED == 0 || came_back) {
            if !sys::barrier_everywhere() {
                fence_all();
            }
            self.parked.fetch_or(ANNOUNCED, Ordering::Relaxed);
        }
        let is_watched = watches || self.watched.load(Ordering::Relaxed) == address;
        let timeout = how.lasts(watches, how.throttle && before & COUNT != 0 && !is_watched);
        let tries = if how.queues { TRIES } else { 0 };
        let ended = self.sleep(futex, is_busy, timeout, tries);
        // In one step: were it free and announced for a moment, a release in it would wake nobody, and who parks next would
        // take itself for announced.
        // None: the child of a fork from within a park has forgotten us.
        self.parked.update(Ordering::Relaxed, Ordering::Relaxed, |parked| match parked & COUNT {
            0 | 1 => parked & FENCED,
            _ => parked - 1,
        });
        if !ended {
            // Whoever was on its way may never arrive.
            self.nobody_is_on_its_way(address);
            watched.set(watches);
        }
        if watches || !ended && timeout >= Park::UNWATCHED {
            let _ = self.watched.compare_exchange(address, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        if ended { Parked::Woken } else { Parked::TimedOut }
    }

    /// Sleeps until it is woken: true, or for so long: false. Not while it is not busy, unless somebody watches and it does so in the
    /// first `tries`.
    fn sleep(&self, futex: &AtomicU32, is_busy: impl Fn(u32) -> bool, timeout: Duration, tries: u32) -> bool {
        for left in (0..=tries).rev() {
            // Acquire: who finds it open finds what its holder did, and whether that still watched before.
            let seen = futex.load(Ordering::Acquire);
            let is_watched = || self.watched.load(Ordering::Relaxed) == futex.as_ptr().addr();
            if !is_busy(seen) && (left == 0 || !is_watched()) {
                return true;
            }
            match sys::futex_wait(futex, seen, Some(timeout), true) {
                sys::Woken::Changed if left != 0 => {}
                woken => return woken != sys::Woken::TimedOut,
            }
        }
        true
    }

    /// After giving up what it had watched: whoever has released since may have taken it for watching still.
    pub(crate) fn gave_up_watching(&self, address: usize, is_open: impl Fn() -> bool) {
        if !sys::barrier_everywhere() {
            fence(Ordering::SeqCst);
        }
        if is_open() && self.parked() != 0 {
            self.wake_one(address);
        }
    }

    /// Wakes all who wait on the futex, in queue order.
    pub(crate) fn wake_all(futex: &AtomicU32) {
        sys::futex_wake(futex, u32::MAX >> 1, true);
    }
}
