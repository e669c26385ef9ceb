//! The C11 family. Its objects are libc's `pthread_*_t` by another name, so all of its calls go where those
//! of pthread go: taken whole, since libc's own would not know our format.

use crate::thread::Thread;
use crate::{condition, mutex};
use libc::{EBUSY, ENOMEM, ETIMEDOUT, c_int, pthread_cond_t, pthread_mutex_t, timespec};

const SUCCESS: c_int = 0;
const BUSY: c_int = 1;
const ERROR: c_int = 2;
const NO_MEMORY: c_int = 3;
const TIMED_OUT: c_int = 4;

/// What `mtx_init` takes: recursive, timed.
const RECURSIVE: c_int = 1;
const TIMED: c_int = 2;

fn result(error: c_int) -> c_int {
    match error {
        0 => SUCCESS,
        EBUSY => BUSY,
        ENOMEM => NO_MEMORY,
        ETIMEDOUT => TIMED_OUT,
        _ => ERROR,
    }
}

/// `mtx_init`.
///
/// # Safety
///
/// That of the function; so it is with all calls here.
pub(crate) unsafe extern "C" fn mtx_init(mutex: *mut pthread_mutex_t, kind: c_int) -> c_int {
    // As libc: what is no kind is a plain one. The numbers of recursive mutexes are the same.
    let kind = u32::from(kind & !TIMED == RECURSIVE);
    // SAFETY: the caller's.
    result(unsafe { mutex::init(mutex, (&raw const kind).cast()) })
}

/// `mtx_destroy`.
pub(crate) unsafe extern "C" fn mtx_destroy(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's.
    unsafe { mutex::destroy(mutex) }
}

/// `mtx_lock`.
pub(crate) unsafe extern "C" fn mtx_lock(mutex: *mut pthread_mutex_t, caller: usize, thread: &Thread) -> c_int {
    // SAFETY: the caller's.
    result(unsafe { mutex::lock(mutex, caller, thread) })
}

/// `mtx_timedlock`.
pub(crate) unsafe extern "C" fn mtx_timedlock(
    mutex: *mut pthread_mutex_t,
    at: *const timespec,
    caller: usize,
    thread: &Thread,
) -> c_int {
    // SAFETY: the caller's.
    result(unsafe { mutex::timedlock(mutex, at, caller, thread) })
}

/// `mtx_trylock`.
pub(crate) unsafe extern "C" fn mtx_trylock(mutex: *mut pthread_mutex_t, caller: usize, thread: &Thread) -> c_int {
    // SAFETY: the caller's.
    result(unsafe { mutex::trylock(mutex, caller, thread) })
}

/// `mtx_unlock`.
pub(crate) unsafe extern "C" fn mtx_unlock(mutex: *mut pthread_mutex_t, caller: usize, thread: &Thread) -> c_int {
    // SAFETY: the caller's.
    result(unsafe { mutex::unlock(mutex, caller, thread) })
}

/// `cnd_init`.
pub(crate) unsafe extern "C" fn cnd_init(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: the caller's.
    result(unsafe { condition::init(cond, std::ptr::null()) })
}

/// `cnd_destroy`.
pub(crate) unsafe extern "C" fn cnd_destroy(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: the caller's.
    unsafe { condition::destroy(cond) }
}

/// `cnd_signal`.
pub(crate) unsafe extern "C" fn cnd_signal(cond: *mut pthread_cond_t, caller: usize, thread: &Thread) -> c_int {
    // SAFETY: the caller's.
    result(unsafe { condition::signal(cond, caller, thread) })
}

/// `cnd_broadcast`.
pub(crate) unsafe extern "C" fn cnd_broadcast(cond: *mut pthread_cond_t, caller: usize, thread: &Thread) -> c_int {
    // SAFETY: the caller's.
    result(unsafe { condition::broadcast(cond, caller, thread) })
}
