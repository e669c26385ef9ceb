//! The same as `kernel.rs`, in a model: loom explores every interleaving and every value that a load may see,
//! shuttle many random schedules. A lost wake-up is a deadlock here, since nobody's time runs out by itself.

use super::{Clock, Ordering, Taken, Woken};
use std::cell::Cell;
use std::time::Duration;

#[cfg(loom)]
use loom::{hint, sync, thread, thread_local};
#[cfg(shuttle)]
use shuttle::{hint, sync, thread, thread_local};

pub(crate) use hint::spin_loop;
use protocol::{AtomicU32, fence};
pub use thread::yield_now;

/// The atomics on which the protocols between sessions run, and their fence.
pub mod protocol {
    #[cfg(loom)]
    pub use super::counted::{AtomicU32, AtomicU64};
    pub use super::sync::atomic::fence;
    #[cfg(shuttle)]
    pub use super::sync::atomic::{AtomicU32, AtomicU64};
}

/// Atomics of loom, each behind a count of its accesses.
///
/// loom 0.7 remembers one access of each atomic only: a thread that loads and then stores hides that another
/// one had loaded (its issues 166 and 392), and most interleavings of a load and an exchange are never run.
/// Every access moves the count, so that all accesses of one atomic are tried in every order; the value
/// itself is loaded as weakly as before.
#[cfg(loom)]
mod counted {
    use super::Ordering;

    macro_rules! counted {
        ($name:ident $number:ty) => {
            /// As in std.
            #[derive(Debug, Default)]
            pub struct $name {
                accesses: loom::sync::atomic::AtomicU32,
                value: loom::sync::atomic::$name,
            }

            #[allow(dead_code, missing_docs, clippy::missing_errors_doc)] // each has the whole set of std's
            impl $name {
                fn value(&self) -> &loom::sync::atomic::$name {
                    self.accesses.fetch_add(1, Ordering::Relaxed);
                    &self.value
                }

                pub fn load(&self, order: Ordering) -> $number {
                    self.value().load(order)
                }

                pub fn store(&self, new: $number, order: Ordering) {
                    self.value().store(new, order);
                }

                pub fn swap(&self, new: $number, order: Ordering) -> $number {
                    self.value().swap(new, order)
                }

                pub fn fetch_add(&self, n: $number, order: Ordering) -> $number {
                    self.value().fetch_add(n, order)
                }

                pub fn fetch_sub(&self, n: $number, order: Ordering) -> $number {
                    self.value().fetch_sub(n, order)
                }

                pub fn fetch_and(&self, bits: $number, order: Ordering) -> $number {
                    self.value().fetch_and(bits, order)
                }

                pub fn fetch_or(&self, bits: $number, order: Ordering) -> $number {
                    self.value().fetch_or(bits, order)
                }

                pub fn compare_exchange(
                    &self,
                    old: $number,
                    new: $number,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$number, $number> {
                    self.value().compare_exchange(old, new, success, failure)
                }

                pub fn fetch_max(&self, n: $number, order: Ordering) -> $number {
                    self.value().fetch_max(n, order)
                }

                pub fn try_update(
                    &self,
                    success: Ordering,
                    failure: Ordering,
                    change: impl FnMut($number) -> Option<$number>,
                ) -> Result<$number, $number> {
                    self.value().fetch_update(success, failure, change)
                }

                pub fn compare_exchange_weak(
                    &self,
                    old: $number,
                    new: $number,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$number, $number> {
                    self.compare_exchange(old, new, success, failure)
                }
            }
        };
    }

    counted!(AtomicU32 u32);
    counted!(AtomicU64 u64);
}

// All threads of a model run in turn on its thread of the system, so that tests run beside each other.
std::thread_local! {
    /// Whether the kernel of this model has a barrier everywhere.
    pub(crate) static HAS_BARRIER: Cell<bool> = const { Cell::new(true) };

    /// Time of the model, in ns: it passes with sleeps alone, so that one schedule gives one run.
    pub(crate) static NOW: Cell<u64> = const { Cell::new(0) };

    /// Whether the waiter that queued last is woken first, as one of a higher priority is.
    #[cfg(test)]
    pub(crate) static LATEST_FIRST: Cell<bool> = const { Cell::new(false) };
}

thread_local! {
    /// Whether barriers reach the thread, as they reach the threads of a process that has registered.
    static IN_REACH: Cell<bool> = Cell::new(true);
}

/// Puts the calling thread of the model out of the reach of barriers; it has none either.
#[cfg(all(loom, test))]
pub(crate) fn leave_reach() {
    IN_REACH.with(|in_reach| in_reach.set(false));
}

fn has_barrier() -> bool {
    HAS_BARRIER.get() && IN_REACH.with(Cell::get)
}

/// Lets so many ns of the model pass.
pub(crate) fn pass(ns: u64) {
    NOW.set(NOW.get() + ns);
}

/// Time of the model.
#[must_use]
pub fn clock_ns(_: Clock) -> u64 {
    pass(1);
    1_000_000_000 + NOW.get()
}

/// The same.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    clock_ns(Clock::Monotonic)
}

/// Lets time pass.
pub fn sleep(duration: Duration) {
    pass(duration.as_nanos() as u64);
    yield_now();
}

/// A word that sessions wait on, and its waiters.
#[derive(Debug, Default)]
pub(crate) struct Futex {
    value: AtomicU32,
    queue: sync::Mutex<Queue>,
    woken: sync::Condvar,
}

fn latest_first() -> bool {
    #[cfg(test)]
    return LATEST_FIRST.get();
    #[cfg(not(test))]
    false
}

#[derive(Debug, Default)]
struct Queue {
    given: u32,
    /// First in, first out: tickets of the waiters, with their kinds.
    waiting: Vec<(u32, u32)>,
    /// Tickets of those whose time has run out.
    timed_out: Vec<u32>,
}

impl std::ops::Deref for Futex {
    type Target = AtomicU32;

    fn deref(&self) -> &AtomicU32 {
        &self.value
    }
}

/// Longer waits are healed by their time-outs only, and are not timed here: a waiter that is not woken waits
/// for ever.
const HEALING: Duration = Duration::from_millis(5);

/// Waits while the word is `expected`, as a waiter of some kinds.
pub(crate) fn futex_wait_as(word: &Futex, expected: u32, timeout: Duration, kinds: u32) -> Woken {
    if timeout < HEALING {
        sleep(timeout);
        return Woken::TimedOut;
    }
    sleep_on(word, expected, kinds)
}

fn sleep_on(word: &Futex, expected: u32, kinds: u32) -> Woken {
    let mut queue = word.queue.lock().unwrap();
    // Relaxed: ordered by the queue's lock, as in the kernel.
    if word.load(Ordering::Relaxed) == expected {
        let mine = queue.given;
        queue.given += 1;
        queue.waiting.push((mine, kinds));
        while queue.waiting.iter().any(|(ticket, _)| *ticket == mine) {
            queue = word.woken.wait(queue).unwrap();
        }
        return if queue.timed_out.contains(&mine) { Woken::TimedOut } else { Woken::Yes };
    }
    Woken::Changed
}

/// Has the time of all who sleep on the word run out.
#[cfg(test)]
pub(crate) fn time_out(word: &Futex) {
    let mut queue = word.queue.lock().unwrap();
    let all = std::mem::take(&mut queue.waiting);
    queue.timed_out.extend(all.into_iter().map(|(ticket, _)| ticket));
    word.woken.notify_all();
}

/// `futex_wait_as` without an end.
pub(crate) fn futex_wait_private(word: &Futex, expected: u32, kinds: u32) {
    sleep_on(word, expected, kinds);
}

/// Wakes waiters of a model's one process.
pub(crate) fn futex_wake_private(word: *const Futex, count: u32, kinds: u32) {
    futex_wake_kinds(word, count, kinds);
}

/// Wakes up to `count` waiters of these kinds in the order in which they queued.
#[allow(clippy::not_unsafe_ptr_arg_deref)] // in a model, nothing is unmapped
pub(crate) fn futex_wake_kinds(word: *const Futex, count: u32, kinds: u32) -> u32 {
    // SAFETY: mutexes outlive the sessions of a model.
    let word = unsafe { &*word };
    let mut queue = word.queue.lock().unwrap();
    let mut woken = 0;
    if latest_first() {
        queue.waiting.reverse();
    }
    queue.waiting.retain(|(_, theirs)| {
        let stays = woken == count || theirs & kinds == 0;
        woken += u32::from(!stays);
        stays
    });
    if latest_first() {
        queue.waiting.reverse();
    }
    word.woken.notify_all();
    woken
}

/// The light side of an asymmetric fence. Both sides are a fence in a model: what ISO P1202R5 says of the
/// pair is what it says of two fences.
pub fn barrier_here() {
    if has_barrier() {
        fence(Ordering::SeqCst);
    }
}

/// The heavy side.
#[allow(clippy::must_use_candidate)]
pub fn barrier_in_process() -> bool {
    let has = has_barrier();
    if has {
        fence(Ordering::SeqCst);
    }
    has
}

/// The same.
pub(crate) fn barrier_beyond() -> bool {
    barrier_in_process()
}

/// A lock that says when its owner is dead.
#[derive(Debug, Default)]
pub(crate) struct RobustLock(AtomicU32);

impl RobustLock {
    const FREE: u32 = 0;
    const HELD: u32 = 1;
    const OWNER_DIED: u32 = 2;

    pub(crate) fn init(&self) {
        self.0.store(Self::FREE, Ordering::Relaxed);
    }

    pub(crate) fn try_take(&self) -> Taken {
        let take = |from| self.0.compare_exchange(from, Self::HELD, Ordering::AcqRel, Ordering::Acquire);
        match take(Self::FREE) {
            Ok(_) => Taken::Yes,
            Err(Self::OWNER_DIED) if take(Self::OWNER_DIED).is_ok() => Taken::FromDead,
            Err(_) => Taken::No,
        }
    }

    pub(crate) fn give_up(&self) {
        self.0.store(Self::FREE, Ordering::Release);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.owner() != 0
    }

    pub(crate) fn owner(&self) -> u32 {
        self.0.load(Ordering::Acquire) & Self::HELD
    }

    /// In a model no thread is gone unnoticed.
    pub(crate) fn owner_is_gone(&self, _: u32) -> bool {
        false
    }

    /// What the kernel does when the owner's thread ends.
    #[cfg(all(test, loom))]
    pub(crate) fn owner_dies(&self) {
        self.0.store(Self::OWNER_DIED, Ordering::Release);
    }
}
