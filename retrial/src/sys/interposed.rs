//! What an interposer says of the process that it is in: libc's functions behind its own, where libc keeps
//! what, which system calls are left.

use super::{AtomicU32, Errno, Ordering, known_pid, pid_namespace, tid};
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Whether this process makes only those system calls that libc's own locks make.
static CALLS_ARE_LIMITED: AtomicBool = AtomicBool::new(false);

/// From here on this process and its children make no system call but those that libc's own locks make, which
/// are those on futexes: a filter is about to be installed that may kill at any other one. What needs another
/// call goes another way, or is left out.
///
/// Barriers are refused from here on, so releases need a fence of their own before this is called.
pub fn limit_calls() {
    learn_from_libc();
    // A child must not take its parent's for its own.
    super::tell_children();
    let _ = (known_pid(), pid_namespace());
    CALLS_ARE_LIMITED.store(true, Ordering::SeqCst);
}

/// Whether [`limit_calls`] was called.
#[inline]
#[must_use]
pub fn calls_are_limited() -> bool {
    // Relaxed: the thread that installs the filter has stored it, and a new thread is started after that.
    CALLS_ARE_LIMITED.load(Ordering::Relaxed)
}

/// Where libc has a thread's id in its record of the thread, in bytes from what `pthread_self` gives; 0 when
/// it is not known.
static LIBC_TID: AtomicUsize = AtomicUsize::new(0);

/// Finds out where libc keeps a thread's id: shortly before the list of robust locks, whose place the kernel
/// knows. For a thread of libc's making, before [`libc_tid`] is called.
pub fn learn_from_libc() {
    if LIBC_TID.load(Ordering::Relaxed) != 0 {
        return;
    }
    let _errno = Errno::keep();
    let (mut list, mut len) = (std::ptr::null::<AtomicU32>(), 0_usize);
    // SAFETY: both are writable; 0 is the calling thread.
    let rc = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut list, &raw mut len) };
    // SAFETY: has no preconditions.
    let record = unsafe { libc::pthread_self() } as usize;
    let offset = list.addr().wrapping_sub(record);
    // A list elsewhere than in the record, which takes less than a page, is not libc's.
    if rc != 0 || list.is_null() || offset >= 4096 {
        return;
    }
    let tid = tid();
    let found = (1..=8).find(|words| {
        let word = list.wrapping_sub(*words);
        // SAFETY: libc's record lies before its list for longer than this, and is readable as a whole.
        offset > words * size_of::<AtomicU32>() && unsafe { &*word }.load(Ordering::Relaxed) == tid
    });
    if let Some(words) = found {
        LIBC_TID.store(offset - words * size_of::<AtomicU32>(), Ordering::Relaxed);
    }
}

/// The calling thread's id as libc has it, read without a system call; `None` when the place is not known. A
/// thread of libc's making has its list of robust locks registered with the kernel. A process made by the raw
/// system call has its parent's id here, and no list.
#[must_use]
pub fn libc_tid() -> Option<u32> {
    let offset = LIBC_TID.load(Ordering::Relaxed);
    if offset == 0 {
        return None;
    }
    // SAFETY: has no preconditions.
    let record = unsafe { libc::pthread_self() } as usize;
    // SAFETY: libc has the id of each thread at this place, as `learn_from_libc` found.
    Some(unsafe { &*((record + offset) as *const AtomicU32) }.load(Ordering::Relaxed))
}

#[cfg(not(any(loom, shuttle)))]
/// The functions behind the session locks: libc's, or what an interposer found behind itself.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct RobustCalls {
    pub init: unsafe extern "C" fn(*mut libc::pthread_mutex_t, *const libc::pthread_mutexattr_t) -> i32,
    pub trylock: unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> i32,
    pub unlock: unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> i32,
    pub consistent: unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> i32,
}

#[cfg(not(any(loom, shuttle)))]
static ROBUST_CALLS: std::sync::OnceLock<RobustCalls> = std::sync::OnceLock::new();

#[cfg(not(any(loom, shuttle)))]
/// Has the session locks use these functions; only the first call counts, and only one before the first
/// session.
///
/// # Safety
///
/// They do what libc's functions of these names do.
pub unsafe fn set_robust_calls(calls: RobustCalls) {
    let _ = ROBUST_CALLS.set(calls);
}

#[cfg(not(any(loom, shuttle)))]
pub(crate) fn robust_calls() -> &'static RobustCalls {
    ROBUST_CALLS.get_or_init(|| RobustCalls {
        init: libc::pthread_mutex_init,
        trylock: libc::pthread_mutex_trylock,
        unlock: libc::pthread_mutex_unlock,
        consistent: libc::pthread_mutex_consistent,
    })
}
