//! Conditions of one process: our own, in the bytes of the `pthread_cond_t`, for mutexes of every kind.
//!
//! ```text
//!  0                         28                       40       48
//! +-------------------------+------------------------+--------+
//! | waiters, by their group |  libc's flags, zeros   | mutex  |
//! +-------------------------+------------------------+--------+
//! ```
//!
//! The flags are where libc has them: at 36 for long, at 28 since it needs no count of references (2.41). So
//! that is looked up in a condition that libc has made. All zeros is a condition without waiters.
//!
//! A wait joins the waiters ([`retrial::condition`]), gives the mutex back and sleeps. Whenever it is awake
//! it looks whether it was signalled, also at its deadline: a signal that came before is no time-out. A
//! signal chooses among the threads that wait when it comes. If the signaller has the mutex, it wakes one of
//! them when it gives the mutex back: a waiter woken at once would find it held.
//!
//! A signaller touches nothing after its wake-up, nor does a waiter after it has left, which it does before
//! it gets the mutex back; destroying waits for that.

mod wait;

use crate::process;
use crate::real;
use crate::thread::Thread;
use libc::{c_int, pthread_cond_t, pthread_condattr_t};
use retrial::condition::{Waiters, Wake};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

#[repr(C)]
struct Condition {
    waiters: Waiters,
    /// The flags, and zeros.
    rest: [AtomicU32; REST],
    /// Address of the mutex that the last waiter came with.
    mutex: AtomicUsize,
}

const REST: usize = 3;
/// Words of a condition before `rest`, and in all.
const BEFORE_REST: usize = size_of::<Waiters>() / 4;
const WORDS: usize = size_of::<pthread_cond_t>() / 4;

const _: () = assert!(size_of::<Condition>() == size_of::<pthread_cond_t>());
const _: () = assert!(std::mem::offset_of!(Condition, rest) == 28);

/// Which word of `rest` has the flags; [`UNKNOWN`] before the first look, and in a libc that has them in
/// none.
static FLAGS: AtomicUsize = AtomicUsize::new(UNKNOWN);
const UNKNOWN: usize = usize::MAX;

/// In libc's flags.
const SHARED: u32 = 1;
const MONOTONIC: u32 = 2;

/// Positions in [`retrial::interposer::CALLS`].
const CALLS: usize = 9;
const CALLS_PASSED: usize = 12;
const CALLS_POLLED: usize = 15;

impl Condition {
    /// # Safety
    ///
    /// There is a condition at the address, for as long as this is used.
    unsafe fn at<'a>(cond: *mut pthread_cond_t) -> &'a Self {
        // SAFETY: large enough, as asserted above, aligned, and all of it is atomics.
        unsafe { &*cond.cast() }
    }

    fn has(&self, flag: u32) -> bool {
        let flags = self.rest.get(FLAGS.load(Ordering::Relaxed));
        flags.map_or_else(|| self.flags_by_looking(), |flags| flags.load(Ordering::Relaxed)) & flag != 0
    }

    #[cold]
    fn flags_by_looking(&self) -> u32 {
        let word = |at: usize| self.rest[at].load(Ordering::Relaxed);
        // Looked at first: an allocator's condition may be signalled while libc's functions are looked up.
        let all_zeros = (0..self.rest.len()).all(|at| word(at) == 0);
        if all_zeros || !find_flags() { 0 } else { word(FLAGS.load(Ordering::Relaxed)) }
    }
}

/// Finds out where libc has the flags. Whether it has them as expected.
pub(crate) fn find_flags() -> bool {
    let mut attr = MaybeUninit::<pthread_condattr_t>::uninit();
    let attr = attr.as_mut_ptr();
    // SAFETY: writable.
    unsafe { libc::pthread_condattr_init(attr) };
    // SAFETY: made above.
    unsafe { libc::pthread_condattr_setpshared(attr, libc::PTHREAD_PROCESS_SHARED) };
    // SAFETY: as above.
    unsafe { libc::pthread_condattr_setclock(attr, libc::CLOCK_MONOTONIC) };
    let mut made = MaybeUninit::<pthread_cond_t>::zeroed();
    // SAFETY: room for a condition that nobody uses.
    let result = unsafe { real::cond_init(made.as_mut_ptr(), attr) };
    // SAFETY: as above.
    unsafe { libc::pthread_condattr_destroy(attr) };
    // SAFETY: as large, and initialised: zeros, and what libc has written.
    let words = unsafe { made.as_ptr().cast::<[u32; WORDS]>().read() };
    let Some(found) = words.iter().position(|word| *word == SHARED | MONOTONIC) else { return false };
    let is_known = result == 0
        && (BEFORE_REST..BEFORE_REST + REST).contains(&found)
        && words.iter().filter(|word| **word != 0).count() == 1;
    if is_known {
        FLAGS.store(found - BEFORE_REST, Ordering::Relaxed);
    }
    is_known
}

/// `pthread_cond_init`.
///
/// # Safety
///
/// That of the function; so it is with all calls here.
pub(crate) unsafe extern "C" fn init(cond: *mut pthread_cond_t, attr: *const pthread_condattr_t) -> c_int {
    if !attr.is_null() || !process::is_on() {
        // Libc makes it zeros and its flags.
        // SAFETY: the caller's.
        return unsafe { real::cond_init(cond, attr) };
    }
    // SAFETY: the caller's.
    unsafe { cond.write_bytes(0, 1) };
    0
}

/// `pthread_cond_destroy`.
pub(crate) unsafe extern "C" fn destroy(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: the caller's.
    let condition = unsafe { Condition::at(cond) };
    if !process::is_on() || condition.has(SHARED) {
        // SAFETY: the caller's.
        return unsafe { real::cond_destroy(cond) };
    }
    let thread = Thread::current();
    // Finds out who the thread is, and so which process this is.
    thread.me();
    thread.wake_put_off();
    condition.waiters.wait_until_left(process::epoch());
    0
}

/// `pthread_cond_signal`.
pub(crate) unsafe extern "C" fn signal(cond: *mut pthread_cond_t, _: usize, thread: &Thread) -> c_int {
    // SAFETY: the caller's.
    let pass = || unsafe { real::cond_signal(cond) };
    // SAFETY: the caller's.
    unsafe { wake(cond, thread, Waiters::signal, pass) }
}

/// `pthread_cond_broadcast`.
pub(crate) unsafe extern "C" fn broadcast(cond: *mut pthread_cond_t, _: usize, thread: &Thread) -> c_int {
    // SAFETY: the caller's.
    let pass = || unsafe { real::cond_broadcast(cond) };
    // SAFETY: the caller's.
    unsafe { wake(cond, thread, Waiters::broadcast, pass) }
}

unsafe fn wake(
    cond: *mut pthread_cond_t,
    thread: &Thread,
    signal: impl Fn(&Waiters, u32) -> Option<Wake>,
    pass: impl Fn() -> c_int,
) -> c_int {
    if !process::is_on() {
        return pass();
    }
    // SAFETY: the caller's.
    let condition = unsafe { Condition::at(cond) };
    // Finds out who the thread is.
    thread.me();
    if condition.has(SHARED) {
        // What this thread polled for has come: it will wait for something else.
        thread.polled.set((0, 0, 0));
        thread.count(CALLS_PASSED, false);
        return pass();
    }
    thread.count(CALLS, false);
    // Before the signal: by the time of the wake-up a waiter may have made an end of the condition.
    let holds = thread.holds(condition.mutex.load(Ordering::Relaxed));
    match signal(&condition.waiters, process::epoch()) {
        // Woken now it would only wait for the mutex.
        Some(wake) if holds => thread.put_off(wake),
        Some(wake) => wake.now(),
        None => {}
    }
    0
}
