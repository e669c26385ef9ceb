//! Everything asked of the kernel and of libc, and the atomics: libc calls and their `unsafe` are nowhere else, but for
//! mappings, which are in `segment.rs`.

use crate::fail;
use std::mem::MaybeUninit;
use std::time::Duration;

#[cfg(not(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("retrial runs on Linux with glibc on x86-64 and aarch64: it relies on robust futexes in glibc's format");

use std::sync::atomic::AtomicBool;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence, fence};

/// A clock of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`.
    Monotonic,
    /// `CLOCK_REALTIME`.
    Realtime,
}

/// A moment by one of the clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadline {
    /// The clock it is read from.
    pub clock: Clock,
    /// Nanoseconds since the clock's epoch.
    pub at_ns: u64,
}

impl Deadline {
    /// `timeout` from now, by the monotonic clock.
    #[must_use]
    pub fn after(timeout: Duration) -> Self {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Self { clock: Clock::Monotonic, at_ns: now_ns().saturating_add(timeout_ns) }
    }

    /// The time left, `None` when it has passed.
    #[must_use]
    pub fn left(self) -> Option<Duration> {
        if DEADLINES_OVER.load(Ordering::Relaxed) {
            return None;
        }
        match self.at_ns.checked_sub(clock_ns(self.clock)) {
            None | Some(0) => None,
            Some(left) => Some(Duration::from_nanos(left)),
        }
    }
}

/// Whether every deadline of this process has passed.
static DEADLINES_OVER: AtomicBool = AtomicBool::new(false);

/// Ends the waits of this process that have a deadline, now and later ones: each takes one more step and gives up.
///
/// Safe to call in a signal handler; for a command that is told to stop while it waits.
pub fn end_deadlines() {
    DEADLINES_OVER.store(true, Ordering::Relaxed);
}

/// Time of the monotonic clock, in ns.
#[inline]
#[must_use]
pub fn now_ns() -> u64 {
    clock_ns(Clock::Monotonic)
}

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

/// Keeps `errno` as it was: the lock calls of C leave it alone, and the interposer is called in their place.
struct Errno(i32);

impl Errno {
    fn keep() -> Self {
        Self(errno())
    }
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: always callable.
        let location = unsafe { libc::__errno_location() };
        // SAFETY: the location is this thread's own and always valid.
        unsafe { *location = self.0 };
    }
}

/// Gives the processor to whoever is ready to run.
pub fn yield_now() {
    // SAFETY: has no preconditions and cannot fail on Linux.
    unsafe { libc::sched_yield() };
}

/// Sleeps by the raw system call, which is no cancellation point; a signal may end it early.
pub fn sleep(duration: Duration) {
    let _errno = Errno::keep();
    let time = timespec(duration);
    let time: *const libc::timespec = &raw const time;
    // SAFETY: `time` is readable for the call, and no remainder is asked for.
    unsafe { libc::syscall(libc::SYS_clock_nanosleep, libc::CLOCK_MONOTONIC, 0, time, 0usize) };
}

/// Why a futex wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// Somebody woke us, or the word had changed, or a signal came.
    Yes,
    /// The time has passed.
    TimedOut,
}

/// Waits while the futex word is `expected`, for `timeout` at most. `private` means that all waiters share one address space.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>, private: bool) -> Woken {
    let _errno = Errno::keep();
    let time = timeout.map(timespec);
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let op = libc::FUTEX_WAIT | if private { libc::FUTEX_PRIVATE_FLAG } else { 0 };
    // SAFETY: `word` is a live aligned 32-bit word and `time` null or readable.
    let rc = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, expected, time) };
    if rc == -1 && errno() == libc::ETIMEDOUT { Woken::TimedOut } else { Woken::Yes }
}

/// Wakes up to `count` waiters in the order in which they queued.
///
/// Takes an address, not a reference: the object may be unmapped by the time of the call, and the kernel then says so.
/// Returns how many there were.
#[allow(clippy::not_unsafe_ptr_arg_deref)] // the kernel does not trust it either
pub fn futex_wake(word: *const AtomicU32, count: u32, private: bool) -> u32 {
    let _errno = Errno::keep();
    let op = libc::FUTEX_WAKE | if private { libc::FUTEX_PRIVATE_FLAG } else { 0 };
    // SAFETY: a wake only hashes the address; a bad one gives an error.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word, op, count) };
    u32::try_from(woken).unwrap_or(0)
}

/// Makes this process a target of [`barrier_everywhere`]. Whether the kernel can.
#[must_use]
pub fn register_for_barriers() -> bool {
    let _errno = Errno::keep();
    // SAFETY: takes no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0 }
}

/// A full memory barrier on every processor that runs a registered process. Whether the kernel did it.
#[allow(clippy::must_use_candidate)] // a refusal was found out when the instance was created
pub fn barrier_everywhere() -> bool {
    let _errno = Errno::keep();
    // SAFETY: takes no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0 }
}

static FORKS: AtomicU32 = AtomicU32::new(0);

/// How often this process has come out of a fork: sessions of another generation are the parent's.
#[inline]
pub(crate) fn generation() -> u32 {
    // Relaxed: changed before the child's only thread returns from the fork. A dead thread is like a child of fork: it has
    // the memory of its sessions, but none of them.
    FORKS.load(Ordering::Relaxed).wrapping_add(u32::from(fail::is_dead()))
}

/// Has forks counted in children, from the first call on.
pub(crate) fn count_forks() {
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only counts.
        let rc = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        assert_eq!(rc, 0, "a fork handler can be registered");
    });
}

/// The calling thread's id in its own PID namespace.
#[must_use]
pub fn tid() -> u32 {
    // SAFETY: cannot fail.
    u32::try_from(unsafe { libc::syscall(libc::SYS_gettid) }).unwrap_or(0)
}

/// The calling process's id in its own PID namespace.
#[must_use]
pub fn pid() -> u32 {
    std::process::id()
}

/// The effective user.
#[must_use]
pub fn euid() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether the calling thread is scheduled by a real-time policy.
#[must_use]
pub fn is_real_time() -> bool {
    // SAFETY: 0 is the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
    policy == libc::SCHED_FIFO || policy == libc::SCHED_RR
}

/// Fills pages of a mapping with memory now. Whether there was enough; an older kernel fills them when they are touched.
///
/// # Safety
///
/// `address` and `len` are whole pages of a live mapping.
pub(crate) unsafe fn populate(address: *mut u8, len: usize) -> bool {
    let _errno = Errno::keep();
    // SAFETY: the caller's.
    let rc = unsafe { libc::madvise(address.cast(), len, libc::MADV_POPULATE_WRITE) };
    rc == 0 || errno() == libc::EINVAL
}

/// The functions behind the session locks: libc's, or what an interposer found behind itself.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct RobustCalls {
    pub init: unsafe extern "C" fn(*mut libc::pthread_mutex_t, *const libc::pthread_mutexattr_t) -> i32,
    pub trylock: unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> i32,
    pub unlock: unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> i32,
    pub consistent: unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> i32,
}

static ROBUST_CALLS: std::sync::OnceLock<RobustCalls> = std::sync::OnceLock::new();

/// Has the session locks use these functions; only the first call counts, and only one before the first session.
pub fn set_robust_calls(calls: RobustCalls) {
    let _ = ROBUST_CALLS.set(calls);
}

fn robust_calls() -> &'static RobustCalls {
    ROBUST_CALLS.get_or_init(|| RobustCalls {
        init: libc::pthread_mutex_init,
        trylock: libc::pthread_mutex_trylock,
        unlock: libc::pthread_mutex_unlock,
        consistent: libc::pthread_mutex_consistent,
    })
}

/// What an attempt to take a [`RobustLock`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// Taken.
    Yes,
    /// Taken from a thread that died with it.
    FromDead,
    /// A living thread has it.
    No,
}

/// A robust process-shared pthread mutex: the kernel marks it when the thread that holds it dies, whatever way, in
/// whatever PID namespace, and whoever has its PID afterwards. Never waited for.
#[repr(C, align(64))]
pub(crate) struct RobustLock(std::cell::UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex is made for use by many threads; it is only touched by pthread calls and as atomics.
unsafe impl Sync for RobustLock {}

impl RobustLock {
    const OWNER_DIED: u32 = 0x4000_0000;
    const TID: u32 = 0x3fff_ffff;

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
        // SAFETY: the memory is a mutex's and nobody uses it yet: the caller holds the lock that guards claims.
        let rc = unsafe { (robust_calls().init)(self.0.get(), attr.as_ptr()) };
        assert_eq!(rc, 0, "a robust process-shared mutex can be made");
    }

    /// Takes it if it is free or its owner is dead.
    pub(crate) fn try_take(&self) -> Taken {
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

    /// Whether a living thread holds it: one load. The futex word is the kernel's format for robust locks: the owner's
    /// thread id, and a bit that the kernel sets when the owner dies.
    pub(crate) fn is_held(&self) -> bool {
        let word: *const AtomicU32 = self.0.get().cast();
        // SAFETY: a pthread mutex of glibc and of the kernel's robust format starts with its futex word, which is
        // aligned and only changed atomically.
        let word = unsafe { &*word }.load(Ordering::Acquire);
        word & Self::OWNER_DIED == 0 && word & Self::TID != 0
    }
}
