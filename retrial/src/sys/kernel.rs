//! What sessions do to each other through the kernel: give way, sleep, wait and wake, find out who is dead.

use super::{Clock, Errno, Taken, Woken, calls_are_limited, error, interposed::robust_calls, membarrier};
use crate::fail;
use crate::probes;
pub(crate) use std::hint::spin_loop;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use std::time::Duration;

/// The atomics on which the protocols between sessions run, and their fence: those of a model under `--cfg
/// loom` and `--cfg shuttle`. All others are figures and tables.
pub mod protocol {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, fence};
}

/// A word that sessions wait on.
pub(crate) type Futex = AtomicU32;

/// Time of a clock, in ns since its epoch.
#[inline]
#[must_use]
pub fn clock_ns(clock: Clock) -> u64 {
    let id = match clock {
        Clock::Monotonic => libc::CLOCK_MONOTONIC,
        Clock::Realtime => libc::CLOCK_REALTIME,
    };
    read_clock(id)
}

/// Processor time used by the calling thread, in ns.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read_clock(id: libc::clockid_t) -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `time` is writable, and these clocks exist on every Linux.
    let rc = unsafe { libc::clock_gettime(id, time.as_mut_ptr()) };
    debug_assert_eq!(rc, 0);
    // SAFETY: the call above has filled it.
    let time = unsafe { time.assume_init() };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(duration.subsec_nanos().cast_signed()),
    }
}

/// Gives the processor to the next thread that is ready to run.
pub fn yield_now() {
    if calls_are_limited() {
        return sleep(Duration::from_nanos(1));
    }
    // SAFETY: has no preconditions and cannot fail on Linux.
    unsafe { libc::sched_yield() };
}

/// Sleeps by the raw system call, which is no cancellation point; a signal may end it early.
pub fn sleep(duration: Duration) {
    if calls_are_limited() {
        // A futex that no other thread knows of.
        futex_wait(&AtomicU32::new(0), 0, Some(duration), true);
        return;
    }
    let _errno = Errno::keep();
    let time = timespec(duration);
    let time: *const libc::timespec = &raw const time;
    // SAFETY: `time` is readable for the call, and no remainder is asked for.
    unsafe { libc::syscall(libc::SYS_clock_nanosleep, libc::CLOCK_MONOTONIC, 0, time, 0usize) };
}

/// Waits while the futex word is `expected`, for `timeout` at most. `private` means that all waiters share
/// one address space.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>, private: bool) -> Woken {
    let _errno = Errno::keep();
    let time = timeout.map(timespec);
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let op = libc::FUTEX_WAIT | if private { libc::FUTEX_PRIVATE_FLAG } else { 0 };
    // SAFETY: `word` is a live aligned 32-bit word and `time` null or readable.
    let rc = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, expected, time) };
    woken(rc)
}

fn woken(rc: libc::c_long) -> Woken {
    match (rc, error()) {
        (0, _) => Woken::Yes,
        (_, libc::ETIMEDOUT) => Woken::TimedOut,
        _ => Woken::Changed,
    }
}

/// Wakes up to `count` waiters in the order in which they queued.
///
/// Takes an address, not a reference: the object may be unmapped by the time of the call, and the kernel then
/// says so. Returns how many there were.
#[allow(clippy::not_unsafe_ptr_arg_deref)] // the kernel does not trust it either
pub fn futex_wake(word: *const AtomicU32, count: u32, private: bool) -> u32 {
    let _errno = Errno::keep();
    let op = libc::FUTEX_WAKE | if private { libc::FUTEX_PRIVATE_FLAG } else { 0 };
    // SAFETY: a wake only hashes the address; a bad one gives an error.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word, op, count) };
    probes::wake(word.addr(), count, woken);
    u32::try_from(woken).unwrap_or(0)
}

/// Waits while a shared futex word is `expected`, for `timeout` at most, as a waiter of some kinds.
pub(crate) fn futex_wait_as(word: &Futex, expected: u32, timeout: Duration, kinds: u32) -> Woken {
    let _errno = Errno::keep();
    // By its end on the monotonic clock: so this call has it.
    let end = timespec(Duration::from_nanos(clock_ns(Clock::Monotonic)).saturating_add(timeout));
    let (op, end): (_, *const libc::timespec) = (libc::FUTEX_WAIT_BITSET, &raw const end);
    // SAFETY: `word` is a live aligned 32-bit word and `end` readable; the second address is not used.
    let rc = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, expected, end, 0usize, kinds) };
    woken(rc)
}

/// Wakes up to `count` waiters of a shared futex word that are of one of these kinds, in the order in which
/// they queued.
///
/// Takes an address for the same reason as [`futex_wake`]. Returns how many there were.
pub(crate) fn futex_wake_kinds(word: *const Futex, count: u32, kinds: u32) -> u32 {
    wake_bits(word, libc::FUTEX_WAKE_BITSET, count, kinds)
}

/// Waits while a futex word of this process alone is `expected`, as a waiter of some kinds.
pub(crate) fn futex_wait_private(word: &Futex, expected: u32, kinds: u32) {
    let _errno = Errno::keep();
    let (op, never) = (libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG, std::ptr::null::<libc::timespec>());
    // SAFETY: `word` is a live aligned 32-bit word; the second address is not used.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, expected, never, 0usize, kinds) };
}

/// The same as `futex_wake_kinds` for a futex word of this process alone.
pub fn futex_wake_private(word: *const Futex, count: u32, kinds: u32) {
    wake_bits(word, libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG, count, kinds);
}

fn wake_bits(word: *const Futex, op: libc::c_int, count: u32, bits: u32) -> u32 {
    let _errno = Errno::keep();
    // SAFETY: a wake only hashes the address; a bad one gives an error. Time and second address are not used.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word, op, count, 0usize, 0usize, bits) };
    probes::wake(word.addr(), count, woken);
    u32::try_from(woken).unwrap_or(0)
}

/// The other side of [`barrier_in_process`] and [`barrier_beyond`], which costs nothing here: the compiler keeps
/// what is before it before it.
#[inline]
pub fn barrier_here() {
    compiler_fence(Ordering::SeqCst);
}

/// A full memory barrier on every processor that runs this process; none where it has one thread. Whether the kernel
/// did it.
#[allow(clippy::must_use_candidate)] // a refusal was found out when the instance was created
pub fn barrier_in_process() -> bool {
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

/// A full memory barrier on the processors that run another registered process. Whether the kernel did it.
///
/// Linux misses some. A processor keeps whether the process that it runs has registered, forgets it when a thread
/// ends there, and learns it again only when it comes to another process: a caller has to look again some time.
#[must_use]
pub fn barrier_beyond() -> bool {
    membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED)
}

/// A robust process-shared pthread mutex: the kernel marks it when the thread that holds it dies, whatever
/// way, in whatever PID namespace, and whatever process has its PID afterwards. Never waited for.
#[repr(C, align(64))]
pub(crate) struct RobustLock(std::cell::UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex is made for use by many threads; it is only touched by pthread calls and as
// atomics.
unsafe impl Sync for RobustLock {}

impl RobustLock {
    const OWNER_DIED: u32 = 0x4000_0000;
    const TID: u32 = 0x3fff_ffff;
    /// The kind of what `init` makes, in glibc's format: robust and process-shared.
    pub(crate) const KIND: u32 = 16 | 128;

    /// Makes it usable, free.
    pub(crate) fn init(&self) {
        let mut attr = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        // SAFETY: `attr` is writable.
        let rc = unsafe { libc::pthread_mutexattr_init(attr.as_mut_ptr()) };
        assert_eq!(rc, 0, "a mutex attribute can be made");
        // SAFETY: `attr` was made above.
        unsafe { libc::pthread_mutexattr_setrobust(attr.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST) };
        // SAFETY: as above.
        unsafe { libc::pthread_mutexattr_setpshared(attr.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED) };
        // SAFETY: the memory is a mutex's and nobody uses it yet: the caller holds the lock that guards
        // claims.
        let rc = unsafe { (robust_calls().init)(self.0.get(), attr.as_ptr()) };
        assert_eq!(rc, 0, "a robust process-shared mutex can be made");
        assert_eq!(self.kind(), Self::KIND, "a robust process-shared mutex is in glibc's format");
    }

    /// Its kind, which glibc has at 16.
    pub(crate) fn kind(&self) -> u32 {
        let kind = self.0.get().cast::<AtomicU32>().wrapping_add(4);
        // SAFETY: inside of the mutex and aligned; nobody changes it while the lock is in use.
        unsafe { &*kind }.load(Ordering::Relaxed)
    }

    /// Takes it if it is free or its owner is dead.
    pub(crate) fn try_take(&self) -> Taken {
        // What another program wrote here is not for libc: glibc goes by the kind. For some kinds it ends the
        // process because of the other fields, or takes the mutex for the caller's.
        if self.kind() != Self::KIND {
            return Taken::No;
        }
        // Nor a lock that a living thread has. Libc first tells the kernel that this thread is about to have
        // the lock. A kill right then would have the kernel mark it as a dead thread's, although its owner,
        // with the same thread id in another PID namespace, lives.
        if self.is_held() {
            return Taken::No;
        }
        // SAFETY: `init` was called before the lock could be reached.
        match unsafe { (robust_calls().trylock)(self.0.get()) } {
            0 => Taken::Yes,
            libc::EOWNERDEAD => {
                // SAFETY: we hold it.
                unsafe { (robust_calls().consistent)(self.0.get()) };
                Taken::FromDead
            }
            _ => Taken::No,
        }
    }

    /// Gives it up. Only by the thread that holds it.
    pub(crate) fn give_up(&self) {
        if fail::is_dead() {
            return;
        }
        // SAFETY: the caller holds it.
        unsafe { (robust_calls().unlock)(self.0.get()) };
    }

    /// Whether a living thread holds it: one load.
    pub(crate) fn is_held(&self) -> bool {
        self.owner() != 0
    }

    /// The id of the living thread that holds it, or 0. The futex word is the kernel's format for robust
    /// locks: the owner's thread id, and a bit that the kernel sets when the owner dies.
    #[inline]
    pub(crate) fn owner(&self) -> u32 {
        let word = super::Observed::acquire(self.futex_word());
        if word & Self::OWNER_DIED == 0 { word & Self::TID } else { 0 }
    }

    /// Does what the kernel should have done: marks it as left by the thread `tid`, which is known to be
    /// gone. Whether it was that thread's.
    pub(crate) fn owner_is_gone(&self, tid: u32) -> bool {
        let word = self.futex_word().load(Ordering::Relaxed);
        let marked = word & !Self::TID | Self::OWNER_DIED;
        let is_its = word & Self::OWNER_DIED == 0 && word & Self::TID == tid;
        // AcqRel: the next owner has seen what the dead one did.
        is_its && self.futex_word().compare_exchange(word, marked, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn futex_word(&self) -> &AtomicU32 {
        let word: *const AtomicU32 = self.0.get().cast();
        // SAFETY: a pthread mutex of glibc and of the kernel's robust format starts with its futex word,
        // which is aligned and only changed atomically.
        unsafe { &*word }
    }
}
