//! Who is parked, by address of the futex: what a release looks at after its store.
//!
//! After that store nothing of the mutex may be touched, for its next holder may free it. So what the release
//! needs to know is here, in memory of our own. Addresses share spots: what is in one is a hint. A wrong hint
//! costs a wake-up too many. [`PARKED_AT`] spares the wake-ups of a mutex at whose spot threads are parked
//! for others: each is a system call, in which the kernel goes through all that wait in the process (48 us
//! with 16,000 threads).
//!
//! No wake-up is lost although the release has no fence. The releaser stores the word, then loads `parking`.
//! The first thread that parks, and a woken one that parks again, announces itself there, has the kernel do a
//! full barrier on every processor of the process, and only then lets the kernel compare the word. Either the
//! releaser sees the thread, or the kernel sees the release. Counts are never set to 0 here, because addresses
//! share spots.

use crate::instance::{Type, instance};
use retrial::interposer::{Park, Parked};
pub(crate) use retrial::parking::Parks;
use retrial::parking::{self, Announced, Circumstances, Found, HANDOVER_LASTS, Parking};
use retrial::sys;
use retrial::views::Params;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;

const SPOTS: usize = 1024;

/// Whether a thread has waited for itself. Few programs have such threads.
static OWN_WAITERS: AtomicBool = AtomicBool::new(false);

/// Whether a release that looks closer has to wake threads that wait for themselves.
pub(crate) fn have_own_waiters() -> bool {
    OWN_WAITERS.load(Ordering::Relaxed)
}

/// The hints for the addresses that share it.
pub(crate) struct Spot {
    /// A [`Parking`]. Threads that park at all these addresses are counted together.
    parking: AtomicU64,
    /// The futex at which all of them are parked; [`SEVERAL`] when there is more than one.
    futex: AtomicUsize,
}

/// In place of an address.
const SEVERAL: usize = 1;

/// Tries of a thread to fall asleep while others get and release the mutex, which changes the futex.
const TRIES: u32 = 16;

/// Number of threads that are parked, or about to be, by address in a finer table than that of the spots. Too
/// many after a fork and after a jump out of a wait, never too few.
static PARKED_AT: [AtomicU32; ADDRESSES] = [const { AtomicU32::new(0) }; ADDRESSES];

const ADDRESSES: usize = 1 << ADDRESS_BITS;
const ADDRESS_BITS: u32 = 16;

static ALL: [Spot; SPOTS] = [const { Spot { parking: AtomicU64::new(0), futex: AtomicUsize::new(0) } }; SPOTS];

/// The spot of a futex.
#[inline]
pub(crate) fn at(address: usize) -> &'static Spot {
    &ALL[(scattered(address) >> 54) % SPOTS]
}

/// Multiplicative hashing, Knuth 6.4; objects are aligned to 8 bytes.
#[inline]
const fn scattered(address: usize) -> usize {
    (address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The number of threads that are parked at this address.
fn parked_at(address: usize) -> &'static AtomicU32 {
    &PARKED_AT[scattered(address) >> (usize::BITS - ADDRESS_BITS)]
}

/// Forgets all that are parked: in the child of a fork no thread is.
pub(crate) fn forget() {
    for spot in &ALL {
        // Looked at first: a page that is not written is not copied.
        if spot.parking().concerns_releases() || spot.parking().woken() != 0 {
            spot.change(Ordering::Relaxed, Parking::forgotten);
        }
    }
}

/// Has every release do a fence, where the kernel cannot do a barrier for the threads that park.
pub(crate) fn fence_all() {
    for spot in &ALL {
        spot.change(Ordering::SeqCst, Parking::fenced);
    }
}

impl Spot {
    #[inline]
    fn parking(&self) -> Parking {
        Parking(self.parking.load(Ordering::Relaxed))
    }

    /// Changes what is known of the parked. What it was before.
    fn change(&self, order: Ordering, to: impl Fn(Parking) -> Parking) -> Parking {
        let changed = self.parking.fetch_update(order, Ordering::Relaxed, |all| Some(to(Parking(all)).0));
        Parking(changed.unwrap_or_else(|before| before))
    }

    /// Whether a release has to look closer.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        // Relaxed: ordered after the release's store by the parking thread's barrier, or by the fence in
        // `wake_after`.
        self.parking().concerns_releases()
    }

    /// Threads parked at this spot.
    pub(crate) fn parked(&self) -> u32 {
        self.parking().parked()
    }

    /// Whether the release of the futex at `address` after so many gets hands over.
    #[cold]
    #[inline(never)]
    pub(crate) fn hands_over(&self, address: usize, gets: u64) -> bool {
        let (parking, futex) = (self.parking(), self.futex.load(Ordering::Relaxed));
        let found = || {
            let params = instance().map_or_else(Params::default, |all| all.params(Some(Type::Mutex.id())));
            (params, Circumstances { now_ns: sys::now_ns(), is_real_time: sys::is_real_time })
        };
        // Threads that wait at other addresses could not take it.
        if futex == address && parking::hands_over(parking, gets, found) {
            let now = sys::now_ns();
            // By what it was then: one that asked is awake, or about to come out of its park.
            let before = self.change(Ordering::Relaxed, |all| all.handed_over(now));
            return before.has_a_taker();
        }
        // Releases come here for fences too: without a request nothing is written that others read.
        if parking != parking.fed() && (futex == SEVERAL || !parking.has_a_taker()) {
            self.change(Ordering::Relaxed, Parking::fed);
        }
        false
    }

    /// Whether all that are parked here are so at this address, the last time that any was.
    pub(crate) fn is_of(&self, address: usize) -> bool {
        self.futex.load(Ordering::Relaxed) == address
    }

    /// A thread asks for a handover, unless one did so within `interval`.
    pub(crate) fn ask_for_handover(&self, now_ns: u64, interval: Duration) -> bool {
        let found = Circumstances { now_ns, is_real_time: sys::is_real_time };
        found.ask(self.parking(), interval, true, |to| self.change(Ordering::Relaxed, to))
    }

    /// A thread that asked has the mutex, or gives up.
    pub(crate) fn asks_no_more(&self) {
        self.change(Ordering::Relaxed, Parking::not_for_x);
    }

    /// Whether a handover of the futex at `address` is binding: a woken thread is on its way. A release that
    /// finds no thread asleep cannot take the handover back, since the mutex may be gone.
    pub(crate) fn is_awaited(&self, address: usize) -> bool {
        let parking = self.parking();
        parking.woken() != 0
            && self.futex.load(Ordering::Relaxed) == address
            && !parking.handover_is_stale(sys::now_ns())
    }

    /// Has each release at this spot from now on look for threads that wait for themselves. Whether those
    /// under way do by now.
    pub(crate) fn expect_own_waiters(&self) -> bool {
        OWN_WAITERS.store(true, Ordering::Relaxed);
        // A flag that has releases look closer, for good.
        self.change(Ordering::SeqCst, Parking::fenced);
        sys::barrier_in_process()
    }

    /// Wakes a thread that waits on the futex at `address`, unless enough woken ones are on their way; a
    /// release that `hands_over` wakes one in any case. Called after the release: the object may be gone.
    #[cold]
    #[inline(never)]
    pub(crate) fn wake_after(&self, address: usize, hands_over: bool) {
        self.fence_without_barrier();
        if self.wakes(address, hands_over) {
            self.wake_one(address);
        }
    }

    /// Whether this release wakes a thread.
    fn wakes(&self, address: usize, hands_over: bool) -> bool {
        let parking = self.parking();
        if parking.parked() == 0 {
            return false;
        }
        if self.is_of(address) {
            return hands_over || parking.wakes();
        }
        // Those on their way may be on it to another address. SeqCst: pairs with the count in `park`. A thread
        // that was not the first here has no barrier.
        fence(Ordering::SeqCst);
        parked_at(address).load(Ordering::Relaxed) != 0
    }

    fn fence_without_barrier(&self) {
        if self.parking().is_fenced() {
            // SeqCst: the store of the release is seen by a thread that parks after the next load.
            fence(Ordering::SeqCst);
        }
    }

    fn wake_one(&self, address: usize) {
        let wake = |address: usize| sys::futex_wake(address as *const AtomicU32, 1, true) > 0;
        // A thread on its way counts where all are parked at its address: releases of others do not count on it.
        let counts = self.is_of(address);
        let then = if counts { self.change(Ordering::AcqRel, Parking::wake) } else { self.parking() };
        if wake(address) {
            self.change(Ordering::Relaxed, |all| all.has_woken(then, 1));
            return;
        }
        // At this address no thread sleeps; at others some may.
        if counts {
            self.change(Ordering::Relaxed, Parking::arrived);
        }
        self.fence_without_barrier();
        // A thread may have fallen asleep since, and a release may have woken none because this call counted
        // one as woken: a release of the address at which all are parked by now.
        let all_at = self.futex.load(Ordering::Relaxed);
        let again = if matches!(all_at, 0 | SEVERAL) { address } else { all_at };
        if self.parked() != 0 && wake(again) {
            self.change(Ordering::Relaxed, |all| all.has_woken(then, 1));
        }
    }

    /// The wait of a thread that parked here has ended. If it gives up, it passes on what releases may have
    /// left to it.
    pub(crate) fn ended(&self, address: usize, got: bool, parks: &Parks) {
        let owes = parks.end(|to| self.change(Ordering::Relaxed, to));
        if owes && !got && self.parked() != 0 {
            self.wake_one(address);
        }
    }

    /// Notes where a thread has announced a park.
    fn note(&self, address: usize, is_first: bool) {
        let before =
            if is_first { self.futex.swap(address, Ordering::Relaxed) } else { self.futex.load(Ordering::Relaxed) };
        // SeqCst: of two threads at two addresses one sees the other.
        fence(Ordering::SeqCst);
        let parking = self.parking();
        // Beside the first one others may have announced parks at other addresses since, and be on their way.
        if before != address && !(is_first && parking.parked() <= 1 && parking.woken() == 0) {
            self.futex.store(SEVERAL, Ordering::Relaxed);
        }
    }

    /// Waits while a `look` at what the futex holds does not find it open to the thread.
    pub(crate) fn park<G>(
        &self,
        futex: &AtomicU32,
        look: impl Fn(u32) -> Found,
        how: Park,
        parks: &Parks,
    ) -> Parked<G> {
        let address = futex.as_ptr().addr();
        let parked_at = parked_at(address);
        // SeqCst: before the look below. Pairs with the fence in `wakes`.
        let beside = parked_at.fetch_add(1, Ordering::SeqCst);
        // SeqCst: the same, where releases have a fence of their own.
        let mut announced = parks.announce(how.wakes, |to| self.change(Ordering::SeqCst, to));
        self.note(address, announced.is_first());
        let Announced { watches, answers, .. } = announced;
        // Releases beside parked threads of the same address have no fence here. The first one here may not be
        // the first at the spot, whose look is at another address.
        if (answers || beside == 0) && !self.parking().is_fenced() && !sys::barrier_in_process() {
            fence_all();
        }
        let longest = |seen: u32| match look(seen) {
            Found::Open => None,
            Found::HandedOver if how.handed => None,
            // A release that finds no thread asleep does not take the handover back, and the thread that it is
            // for may have no processor.
            Found::HandedOver => Some(HANDOVER_LASTS),
            Found::Busy => Some(Duration::MAX),
        };
        // Beside others of its mutex it may have to look for one that is on its way and has no processor.
        let lasts = if announced.is_first() || !self.is_of(address) {
            how.lasts_in_process(watches)
        } else {
            how.lasts(watches)
        };
        let (parked, is_brief) = Self::sleep(futex, longest, lasts);
        announced.is_brief = is_brief;
        parked_at.fetch_sub(1, Ordering::Relaxed);
        let found = look(futex.load(Ordering::Relaxed));
        parks.come_back(announced, &parked, found, |to| self.change(Ordering::Relaxed, to));
        parked
    }

    /// Sleeps until it is woken, or for so long, and at most for what a look at the futex allows; `None`: not
    /// at all. Whether that was for less.
    fn sleep<G>(futex: &AtomicU32, longest: impl Fn(u32) -> Option<Duration>, timeout: Duration) -> (Parked<G>, bool) {
        for _ in 0..TRIES {
            // Acquire: a thread that finds it open finds what its holder did.
            let seen = futex.load(Ordering::Acquire);
            let Some(longest) = longest(seen) else { break };
            let is_brief = longest < timeout;
            match sys::futex_wait(futex, seen, Some(timeout.min(longest)), true) {
                sys::Woken::Yes => return (Parked::Woken, is_brief),
                sys::Woken::TimedOut => return (Parked::TimedOut, is_brief),
                sys::Woken::Changed => {}
            }
        }
        (Parked::Looked, false)
    }

    /// Wakes all threads that wait on the futex, in queue order.
    pub(crate) fn wake_all(&self, futex: &AtomicU32) {
        let then = self.parking();
        let woken = sys::futex_wake(futex, u32::MAX >> 1, true);
        self.change(Ordering::Relaxed, |all| all.has_woken(then, woken));
    }
}
