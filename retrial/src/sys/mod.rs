//! What is asked of the kernel and of libc, and the atomics. Elsewhere are mappings (`segment.rs`,
//! `segment/mapping.rs`), files (`file.rs`, `instance.rs`) and the keeper's process (`keeper.rs`).
//!
//! What sessions do to each other through memory and the kernel is in `kernel.rs`; loom and shuttle explore
//! the same with `model.rs` in its place.

use crate::fail;
use std::time::Duration;

#[cfg(not(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("retrial runs on Linux with glibc on x86-64 and aarch64: it relies on robust futexes in glibc's format");

mod errno;
mod file;
pub(crate) mod interposed;
#[cfg(not(any(loom, shuttle)))]
mod kernel;
mod memory;
#[cfg(any(loom, shuttle))]
mod model;
mod thread_end;

use errno::error;
pub use errno::{Errno, errno};
pub use file::File;
pub(crate) use interposed::{calls_are_limited, libc_tid};
#[cfg(not(any(loom, shuttle)))]
pub use kernel::*;
pub use memory::available_memory;
#[cfg(any(loom, shuttle))]
pub use model::*;
pub use thread_end::ThreadEnd;

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

/// Ends the waits of this process that have a deadline, now and later ones: each takes one more step and
/// gives up.
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

/// Why a futex wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// A wake-up.
    Yes,
    /// The word was another one, or a signal came.
    Changed,
    /// The time has passed.
    TimedOut,
}

/// Makes this process a target of [`barrier_in_process`] and of others' [`barrier_beyond`]. Whether the kernel can.
#[must_use]
pub fn register_for_barriers() -> bool {
    register_for_own_barriers() && membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)
}

/// Makes this process a target of [`barrier_in_process`]. Whether the kernel can.
#[must_use]
pub fn register_for_own_barriers() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// Whether the kernel did it.
fn membarrier(command: libc::c_int) -> bool {
    if calls_are_limited() {
        return false;
    }
    let _errno = Errno::keep();
    // SAFETY: takes no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// A page that the kernel empties in every child of this process, in whatever way it was made (`fork`,
/// `_Fork`, `clone`). All 0 in the program, so that it is no part of a file and can be emptied. Aligned to
/// the largest page there is on the architecture.
#[cfg_attr(target_arch = "x86_64", repr(C, align(4096)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C, align(65536)))]
struct ForkPage {
    /// The tables of a segment start at pages: a load at the same offset in its page as a store shortly
    /// before would wait for that store (a get and a release took 11.5 ns then, not 9.5).
    _before: [u64; 505],
    /// What a process is known by in its memory: a child has 0 there, until it makes a session.
    generation: AtomicU64,
    /// The process id and the number of its PID namespace, once a caller has asked for them.
    pid: AtomicU32,
    pid_namespace: AtomicU64,
    _after: [u64; 4],
}

static FORK_PAGE: ForkPage = ForkPage {
    _before: [0; 505],
    generation: AtomicU64::new(0),
    pid: AtomicU32::new(0),
    pid_namespace: AtomicU64::new(0),
    _after: [0; 4],
};

/// Differs between this process and its ancestors: sessions of another generation are a parent's.
#[inline]
pub(crate) fn generation() -> u64 {
    // Relaxed: changed before the child's only thread returns from the fork. A dead thread is like a child of
    // fork: it has the memory of its sessions, but none of them.
    FORK_PAGE.generation.load(Ordering::Relaxed) ^ u64::from(fail::is_dead())
}

/// The generation for sessions that this process makes: a new one in a child of fork.
pub(crate) fn own_generation() -> u64 {
    let fresh = now_ns() << 1 | 1 << 63;
    let _ = FORK_PAGE.generation.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed);
    generation()
}

/// Has children of this process told from it, from the first call on. The first instance calls it. Where the kernel
/// cannot empty pages, a handler of fork does that: one that was registered before it still takes a child for its
/// parent.
///
/// # Panics
///
/// When the C library has no memory for the handler.
pub fn tell_children() {
    // For kernels that cannot empty pages.
    extern "C" fn in_child() {
        FORK_PAGE.generation.store(0, Ordering::Relaxed);
        FORK_PAGE.pid.store(0, Ordering::Relaxed);
        FORK_PAGE.pid_namespace.store(0, Ordering::Relaxed);
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only stores.
        let rc = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        assert_eq!(rc, 0, "a fork handler can be registered");
        let page = (&raw const FORK_PAGE).cast_mut().cast();
        // SAFETY: a page of our own with nothing else in it.
        unsafe { libc::madvise(page, size_of::<ForkPage>(), libc::MADV_WIPEONFORK) };
        FORK_PAGE.generation.store(1, Ordering::Relaxed);
    });
}

/// The number of the PID namespace of this process, which it keeps for life, asked for once; 0 when the
/// kernel does not say.
pub(crate) fn pid_namespace() -> u64 {
    // Relaxed: a child finds 0, a thread what another one has found out.
    let known = FORK_PAGE.pid_namespace.load(Ordering::Relaxed);
    if known != 0 || calls_are_limited() {
        return known;
    }
    let found = file::pid_namespace();
    FORK_PAGE.pid_namespace.store(found, Ordering::Relaxed);
    found
}

/// Atomics that may be in memory mapped read-only: an observer's.
pub(crate) trait Observed<T> {
    /// A load as with `Acquire`. On read-only memory only `Relaxed` loads are defined (`std::sync::atomic`),
    /// and what pairs with a Release is the fence behind one.
    fn acquire(&self) -> T;
}

macro_rules! observed {
    ($($atomic:ty, $number:ty, $fence:path;)*) => { $(
        impl Observed<$number> for $atomic {
            #[inline]
            fn acquire(&self) -> $number {
                let value = self.load(Ordering::Relaxed);
                $fence(Ordering::Acquire);
                value
            }
        }
    )* };
}

observed!(AtomicU32, u32, fence; AtomicU64, u64, fence;);
#[cfg(any(loom, shuttle))]
observed!(protocol::AtomicU32, u32, protocol::fence; protocol::AtomicU64, u64, protocol::fence;);

/// Whether the kernel says for certain that there is no such thread in this PID namespace.
pub(crate) fn is_gone(pid: u32, tid: u32) -> bool {
    if calls_are_limited() {
        return false;
    }
    let _errno = Errno::keep();
    // SAFETY: signal 0 is none, it only asks.
    let rc = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) };
    rc == -1 && error() == libc::ESRCH
}

/// The calling thread's id in its own PID namespace.
#[must_use]
pub fn tid() -> u32 {
    if calls_are_limited()
        && let Some(tid) = libc_tid()
    {
        return tid;
    }
    // SAFETY: cannot fail.
    u32::try_from(unsafe { libc::syscall(libc::SYS_gettid) }).unwrap_or(0)
}

/// The calling process's id in its own PID namespace; 0 when that is not known and must not be asked for.
#[must_use]
pub fn pid() -> u32 {
    // Relaxed: a child finds 0, a thread what another one has found out.
    if calls_are_limited() { FORK_PAGE.pid.load(Ordering::Relaxed) } else { std::process::id() }
}

/// The same without a system call, once it is known. In a child that shares this process's memory (`vfork`)
/// it is the parent's.
#[must_use]
pub fn known_pid() -> u32 {
    let known = FORK_PAGE.pid.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let pid = pid();
    FORK_PAGE.pid.store(pid, Ordering::Relaxed);
    pid
}

/// What comes after so many looks in vain at something that ends soon, and of which nobody tells: a yield at
/// first, then a millisecond.
pub(crate) fn pause(looks: u64) {
    if looks < 16 {
        yield_now();
    } else {
        sleep(std::time::Duration::from_millis(1));
    }
}

/// The effective user.
#[must_use]
pub fn euid() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() }
}

/// Bytes that a file of this process may have.
pub(crate) fn file_size_max() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    let rc = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if rc == 0 { limit.rlim_cur } else { u64::MAX }
}

/// Whether the calling thread is scheduled by a real-time policy.
#[must_use]
pub fn is_real_time() -> bool {
    if calls_are_limited() {
        return false;
    }
    // SAFETY: 0 is the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
    policy == libc::SCHED_FIFO || policy == libc::SCHED_RR
}

/// Fills pages of a mapping with memory now. Whether there was enough.
///
/// # Safety
///
/// `address` and `len` are whole pages of a live mapping that is shared and writable.
pub(crate) unsafe fn populate(address: *mut u8, len: usize) -> bool {
    const PAGE: usize = 4096;
    // A third of a model's time otherwise: it makes instances by the million and touches few of their pages.
    if cfg!(any(loom, shuttle)) {
        return true;
    }
    let _errno = Errno::keep();
    if !calls_are_limited() {
        if !memory::has_room(len) {
            return false;
        }
        // SAFETY: the caller's.
        let rc = unsafe { libc::madvise(address.cast(), len, libc::MADV_POPULATE_WRITE) };
        // Refused: the kernel is older than the call, or a filter forbids it.
        if rc == 0 || !matches!(error(), libc::EINVAL | libc::ENOSYS | libc::EPERM) {
            return rc == 0;
        }
    }
    // Then: to wake waiters there, of which there are none, the kernel needs the page of a shared futex, and
    // says so when there is none to be had.
    (0..len).step_by(PAGE).all(|offset| {
        let page = address.wrapping_add(offset);
        // SAFETY: a wake looks at no memory.
        unsafe { libc::syscall(libc::SYS_futex, page, libc::FUTEX_WAKE, 1) != -1 }
    })
}

/// Whether so much time has passed at `now_ns` since the last time that the answer was yes.
pub(crate) fn is_due(last_ns: &AtomicU64, now_ns: u64, interval: Duration) -> bool {
    let last = last_ns.load(Ordering::Relaxed);
    // A monotonic clock that went back means another boot, or a container's clock.
    let due = u128::from(now_ns.abs_diff(last)) > interval.as_nanos();
    due && last_ns.compare_exchange(last, now_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Blocks the signals of the calling thread until dropped. Not `SIGSYS`, the answer to a system call that the
/// program has forbidden: blocked, it kills.
#[derive(Debug)]
pub struct Masked(libc::sigset_t);

impl Masked {
    /// From here on.
    #[must_use]
    pub fn until_dropped() -> Self {
        let (mut all, mut before) = (std::mem::MaybeUninit::uninit(), std::mem::MaybeUninit::zeroed());
        // SAFETY: `all` is writable.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: filled above.
        unsafe { libc::sigdelset(all.as_mut_ptr(), libc::SIGSYS) };
        // SAFETY: `all` was filled above, and `before` is writable.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: zeros are a value, and the call has filled it.
        Self(unsafe { before.assume_init() })
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        // SAFETY: readable; what was there before is not asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
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
