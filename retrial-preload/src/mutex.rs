//! The calls on mutexes: each decides by the mutex's kind whether this library handles it.

use crate::foreign::{Class, Foreign, class, kind_of};
use crate::limit::{Limit, clock_of};
use crate::private::PrivateMutex;
use crate::process;
use crate::profile;
use crate::real;
use crate::thread::Thread;
use libc::{EINVAL, c_int, clockid_t, pthread_mutex_t, pthread_mutexattr_t, timespec};

/// Bits of libc's attribute with which a mutex keeps libc's format: process-shared, robust, protocol,
/// ceiling.
const ATTR_FLAGS: u32 = 0xf0ff_f000;

/// `pthread_mutex_init`.
///
/// # Safety
///
/// That of the function; so it is with all calls here.
pub(crate) unsafe extern "C" fn init(mutex: *mut pthread_mutex_t, attr: *const pthread_mutexattr_t) -> c_int {
    let kind = if attr.is_null() {
        0
    } else {
        // SAFETY: libc's attribute is an integer.
        unsafe { *attr.cast::<u32>() }
    };
    if !process::is_on() || kind & ATTR_FLAGS != 0 {
        // SAFETY: the caller's.
        return unsafe { real::mutex_init(mutex, attr) };
    }
    // SAFETY: the caller's.
    unsafe { PrivateMutex::init(mutex, kind) };
    0
}

/// `pthread_mutex_destroy`.
pub(crate) unsafe extern "C" fn destroy(mutex: *mut pthread_mutex_t) -> c_int {
    if process::is_on()
        // SAFETY: the caller's.
        && let Class::Private(_) = class(unsafe { kind_of(mutex) })
    {
        // SAFETY: the caller's.
        return unsafe { PrivateMutex::at(mutex) }.destroy();
    }
    // SAFETY: the caller's.
    unsafe { real::mutex_destroy(mutex) }
}

/// Locks, with a limit; `pass` is libc's call.
unsafe fn lock_within(
    mutex: *mut pthread_mutex_t,
    caller: usize,
    thread: &Thread,
    limit: Limit,
    pass: impl Fn() -> c_int,
) -> c_int {
    if !process::is_on() {
        return pass();
    }
    // SAFETY: the caller's.
    match class(unsafe { kind_of(mutex) }) {
        // SAFETY: the caller's.
        Class::Private(sort) => unsafe { PrivateMutex::at(mutex) }.lock(sort, thread, caller, limit),
        // SAFETY: the caller's.
        Class::Foreign => unsafe { Foreign::new(mutex) }.lock(thread, caller, limit, pass),
        Class::Passed(call) => {
            let result = pass();
            count(thread, call, result);
            result
        }
    }
}

/// Counts a call that was passed on.
fn count(thread: &Thread, call: usize, result: c_int) {
    // Finds out who the thread is.
    thread.me();
    thread.count(call, matches!(result, 0 | libc::EOWNERDEAD));
}

/// Gets a mutex of ours that is free: whether it did. All that most calls do.
#[inline]
unsafe fn lock_at_once(mutex: *mut pthread_mutex_t, thread: &Thread) -> bool {
    // SAFETY: the caller's.
    process::is_known_on()
        && match class(unsafe { kind_of(mutex) }) {
            // SAFETY: the caller's.
            Class::Private(sort) => unsafe { PrivateMutex::at(mutex) }.lock_at_once(sort, thread),
            _ => false,
        }
}

/// `pthread_mutex_lock`.
pub(crate) unsafe extern "C" fn lock(mutex: *mut pthread_mutex_t, caller: usize, thread: &Thread) -> c_int {
    // SAFETY: the caller's.
    if unsafe { lock_at_once(mutex, thread) } {
        return 0;
    }
    // SAFETY: the caller's.
    unsafe { lock_any(mutex, caller, thread) }
}

#[cold]
#[inline(never)]
unsafe fn lock_any(mutex: *mut pthread_mutex_t, caller: usize, thread: &Thread) -> c_int {
    // SAFETY: the caller's.
    let pass = || unsafe { real::mutex_lock(mutex) };
    // SAFETY: the caller's.
    unsafe { lock_within(mutex, caller, thread, Limit::Endless, pass) }
}

/// `pthread_mutex_timedlock`.
pub(crate) unsafe extern "C" fn timedlock(
    mutex: *mut pthread_mutex_t,
    at: *const timespec,
    caller: usize,
    thread: &Thread,
) -> c_int {
    // SAFETY: the caller's.
    let pass = || unsafe { real::mutex_timedlock(mutex, at) };
    // SAFETY: the caller's.
    unsafe { lock_within(mutex, caller, thread, Limit::Until(libc::CLOCK_REALTIME, at), pass) }
}

/// `pthread_mutex_clocklock`.
pub(crate) unsafe extern "C" fn clocklock(
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    at: *const timespec,
    caller: usize,
    thread: &Thread,
) -> c_int {
    if clock_of(clock).is_none() {
        return EINVAL;
    }
    // SAFETY: the caller's.
    let pass = || unsafe { real::mutex_clocklock(mutex, clock, at) };
    // SAFETY: the caller's.
    unsafe { lock_within(mutex, caller, thread, Limit::Until(clock, at), pass) }
}

/// `pthread_mutex_trylock`.
pub(crate) unsafe extern "C" fn trylock(mutex: *mut pthread_mutex_t, _: usize, thread: &Thread) -> c_int {
    // SAFETY: the caller's.
    if unsafe { lock_at_once(mutex, thread) } {
        return 0;
    }
    // SAFETY: the caller's.
    unsafe { trylock_any(mutex, thread) }
}

#[cold]
#[inline(never)]
unsafe fn trylock_any(mutex: *mut pthread_mutex_t, thread: &Thread) -> c_int {
    // SAFETY: the caller's.
    let pass = || unsafe { real::mutex_trylock(mutex) };
    if !process::is_on() {
        return pass();
    }
    // SAFETY: the caller's.
    match class(unsafe { kind_of(mutex) }) {
        // SAFETY: the caller's.
        Class::Private(sort) => unsafe { PrivateMutex::at(mutex) }.trylock(sort, thread),
        // SAFETY: the caller's.
        Class::Foreign => unsafe { Foreign::new(mutex) }.trylock(thread),
        Class::Passed(call) => {
            let result = pass();
            count(thread, call, result);
            result
        }
    }
}

/// `pthread_mutex_unlock`.
pub(crate) unsafe extern "C" fn unlock(mutex: *mut pthread_mutex_t, _: usize, thread: &Thread) -> c_int {
    if process::is_known_on()
        // SAFETY: the caller's.
        && let Class::Private(sort) = class(unsafe { kind_of(mutex) })
    {
        // SAFETY: the caller's.
        return unsafe { PrivateMutex::at(mutex) }.unlock(sort, thread);
    }
    // SAFETY: the caller's.
    unsafe { unlock_any(mutex, thread) }
}

#[cold]
#[inline(never)]
unsafe fn unlock_any(mutex: *mut pthread_mutex_t, thread: &Thread) -> c_int {
    if process::is_on() {
        // SAFETY: the caller's.
        match class(unsafe { kind_of(mutex) }) {
            Class::Private(sort) => {
                // SAFETY: the caller's.
                let record = unsafe { PrivateMutex::at(mutex) };
                if !record.is_deep(sort) {
                    profile::leaving(thread, mutex as usize);
                }
                return record.unlock(sort, thread);
            }
            // SAFETY: the caller's.
            Class::Foreign => return unsafe { Foreign::new(mutex) }.unlock(thread),
            Class::Passed(_) => {}
        }
    }
    // SAFETY: the caller's.
    unsafe { real::mutex_unlock(mutex) }
}

/// `pthread_mutex_getprioceiling`.
pub(crate) unsafe extern "C" fn getprioceiling(
    mutex: *mut pthread_mutex_t,
    ceiling: *mut c_int,
    _: usize,
    thread: &Thread,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { count_ceiling(mutex, thread) };
    // SAFETY: the caller's; for kinds without a ceiling, ours too, it looks at the kind only.
    unsafe { real::mutex_getprioceiling(mutex, ceiling) }
}

/// `pthread_mutex_setprioceiling`.
pub(crate) unsafe extern "C" fn setprioceiling(
    mutex: *mut pthread_mutex_t,
    ceiling: c_int,
    before: *mut c_int,
    _: usize,
    thread: &Thread,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { count_ceiling(mutex, thread) };
    // SAFETY: as above.
    unsafe { real::mutex_setprioceiling(mutex, ceiling, before) }
}

/// Counts a call that is libc's, no get.
unsafe fn count_ceiling(mutex: *mut pthread_mutex_t, thread: &Thread) {
    if process::is_on()
        // SAFETY: the caller's.
        && let Class::Passed(call) = class(unsafe { kind_of(mutex) })
    {
        // Finds out who the thread is.
        thread.me();
        thread.count(call, false);
    }
}

/// `pthread_mutex_consistent`.
pub(crate) unsafe extern "C" fn consistent(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's.
    unsafe { real::mutex_consistent(mutex) }
}
