//! Conditions of one process: our own, in the bytes of the `pthread_cond_t`, for mutexes of every kind.
//!
//! ```text
//!  0                         28                       40       48
//! +-------------------------+------------------------+--------+
//! | waiters, by their group |  libc's flags, zeros   | mutex  |
//! +-------------------------+------------------------+--------+
//! ```
//!
//! The flags are where libc has them: at 36 for long, at 28 since it needs no count of references (2.41). So that is looked
//! up in a condition that libc has made. All zeros is a condition without waiters.
//!
//! A wait joins the waiters ([`retrial::condition`]), gives the mutex back and sleeps. Whenever it is awake it looks whether it
//! was signalled, also at its deadline: a signal that came before is no time-out. A signal chooses among those that wait when
//! it comes, and wakes one of them when the mutex is given back, if the signaller has it: woken at once, the waiter would
//! find it held.
//!
//! Nothing is touched after a wake-up by who wakes, nor by a waiter after it has left, which it does before it gets the mutex
//! back; destroying waits for that.

use crate::event;
use crate::foreign::{Class, Foreign, class, kind_of};
use crate::limit::Limit;
use crate::mutex;
use crate::private::PrivateMutex;
use crate::process::{self, Type};
use crate::profile;
use crate::real::{self, Errno};
use crate::thread::Thread;
use libc::{
    EINTR, EOWNERDEAD, ETIMEDOUT, c_int, clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t, timespec,
};
use retrial::condition::{Look, Place, Waiters, Wake};
use retrial::interposer::EventWait;
use retrial::sys::{self, Clock, Deadline};
use std::mem::MaybeUninit;
use std::ptr::null;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

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

/// Which word of `rest` has the flags; [`UNKNOWN`] before the first look, and in a libc that has them in none.
static FLAGS: AtomicUsize = AtomicUsize::new(UNKNOWN);
const UNKNOWN: usize = usize::MAX;

/// In libc's flags.
const SHARED: u32 = 1;
const MONOTONIC: u32 = 2;

/// Positions in [`retrial::interposer::CALLS`].
const CALLS: usize = 9;
const CALLS_PASSED: usize = 12;
const CALLS_POLLED: usize = 15;

/// Interval in which a wait looks by itself: another thread may have given the mutex back for the signaller, which then never
/// comes to the wake-up that it has put off.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A wait under way, on the stack of the shim, which knows the first fields.
#[repr(C)]
pub(crate) struct Wait {
    word: *const u32,
    expected: u32,
    op: c_int,
    until: timespec,
    /// What the last system call returned.
    result: c_int,
    /// The kinds of a futex's waiters that it is one of.
    bits: u32,
    /// What is polled on, where nothing wakes.
    own: AtomicU32,
    condition: *const Condition,
    mutex: *mut pthread_mutex_t,
    thread: *const Thread,
    caller: usize,
    at_ns: u64,
    has_deadline: bool,
    is_real_time: bool,
    is_polling: bool,
    /// Whether it is one of the condition's waiters.
    is_inside: bool,
    place: Place,
    depth: u32,
    /// What the wait returns, when the mutex is back.
    outcome: c_int,
    /// What it is counted as.
    event: Option<EventWait>,
}

const _: () = assert!(size_of::<Wait>() <= 40 + 16 * 8, "struct wait in condition.c has room for it");

/// What the shim knows as such.
const PASS_ON: c_int = -1;
const NO_CLOCK: c_int = -1;
const OWN_CLOCK: c_int = -2;

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

impl Wait {
    fn condition(&self) -> &Condition {
        // SAFETY: the caller of the wait keeps it until all waiters have left it, or destroys it, which waits for us.
        unsafe { &*self.condition }
    }

    fn thread(&self) -> &Thread {
        // SAFETY: the waiting thread's own.
        unsafe { &*self.thread }
    }

    fn deadline(&self) -> Option<Deadline> {
        let clock = if self.is_real_time { Clock::Realtime } else { Clock::Monotonic };
        self.has_deadline.then_some(Deadline { clock, at_ns: self.at_ns })
    }

    /// Sets the next system call's time: the deadline, or a look before it.
    fn set_slice(&mut self, longest: Duration) {
        let deadline = self.deadline();
        let near = deadline.filter(|deadline| deadline.left().is_none_or(|left| left <= longest));
        let until = near.unwrap_or_else(|| Deadline::after(longest));
        let clock = if until.clock == Clock::Realtime { libc::FUTEX_CLOCK_REALTIME } else { 0 };
        self.op = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG | clock;
        self.until = timespec {
            tv_sec: i64::try_from(until.at_ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (until.at_ns % 1_000_000_000).cast_signed(),
        };
    }

    /// How long to sleep between two looks at what nothing wakes: 50 µs at first, in a row up to 1 ms, and after half a
    /// hundred of these 5 ms.
    fn polling_slice(&self) -> Duration {
        const NEW_ROW_NS: u64 = 100_000;
        const LONG_ROW: u32 = 64;
        let (address, now) = (self.condition.addr(), sys::now_ns());
        let (last, row, until) = self.thread().polled.get();
        let goes_on = last == address && now < until.saturating_add(NEW_ROW_NS);
        let row = if goes_on { (row + 1).min(LONG_ROW) } else { 0 };
        let slice = Duration::from_micros(if row == LONG_ROW { 5000 } else { 1000.min(50 << row.min(5)) });
        self.thread().polled.set((address, row, now + u64::try_from(slice.as_nanos()).unwrap_or(0)));
        slice
    }

    /// Gives the mutex back, however deep it is held.
    fn release(&mut self) -> c_int {
        let mutex = self.mutex;
        // SAFETY: the caller of the wait has a mutex there.
        if let Class::Private(sort) = class(unsafe { kind_of(mutex) }) {
            profile::leaving(self.thread(), mutex as usize);
            // SAFETY: as above.
            return match unsafe { PrivateMutex::at(mutex) }.release_all(sort, self.thread()) {
                Ok(depth) => {
                    self.depth = depth;
                    0
                }
                Err(error) => error,
            };
        }
        // SAFETY: as above.
        let foreign = unsafe { Foreign::new(mutex) };
        foreign.add_waiter();
        // SAFETY: as above; the thread is the calling one's.
        let result = unsafe { mutex::unlock(mutex, self.caller, self.thread()) };
        if result != 0 {
            foreign.remove_waiter();
        }
        result
    }

    /// Looks whether it was signalled.
    fn look(&mut self, leaves: bool) -> Look {
        let mut place = self.place;
        let found = self.condition().waiters.look(process::epoch(), &mut place, leaves);
        (self.place, self.expected) = (place, place.expected);
        self.is_inside = found == Look::Waits;
        found
    }

    /// Leaves the condition: what was for it is another waiter's.
    fn withdraw(&mut self) {
        if std::mem::take(&mut self.is_inside)
            && let Some(wake) = self.condition().waiters.withdraw(process::epoch(), self.place)
        {
            wake.now();
        }
    }

    /// Gets the mutex back.
    fn end(&mut self) -> c_int {
        event::end(self.event.take(), self.thread());
        self.thread().from_condition.set(true);
        // SAFETY: the caller of the wait has a mutex there.
        let result = unsafe { mutex::lock(self.mutex, self.caller, self.thread()) };
        self.thread().from_condition.set(false);
        // SAFETY: as above; a kind that has changed is none of ours any more.
        if let Class::Private(_) = class(unsafe { kind_of(self.mutex) }) {
            // SAFETY: as above.
            unsafe { PrivateMutex::at(self.mutex) }.come_back(self.depth);
        } else if matches!(result, 0 | EOWNERDEAD) {
            // SAFETY: as above.
            unsafe { Foreign::new(self.mutex) }.remove_waiter();
        }
        if result == 0 { self.outcome } else { result }
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

/// Begins a wait: 0 when it has begun, `PASS_ON` when it is libc's, otherwise an error.
#[unsafe(no_mangle)]
unsafe extern "C" fn retrial_condition_begin(
    wait: *mut Wait,
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: c_int,
    at: *const timespec,
    caller: usize,
    thread: &Thread,
) -> c_int {
    if !process::is_on() {
        real::resolve_if_needed();
        return PASS_ON;
    }
    let _errno = Errno::keep();
    // SAFETY: the caller's.
    let condition = unsafe { Condition::at(cond) };
    let own = if condition.has(MONOTONIC) { libc::CLOCK_MONOTONIC } else { libc::CLOCK_REALTIME };
    let limit = match clock {
        NO_CLOCK => Limit::Endless,
        OWN_CLOCK => Limit::Until(own, at),
        clock => Limit::Until(clock as clockid_t, at),
    };
    // SAFETY: the moment is the caller's.
    let deadline = match unsafe { limit.deadline() } {
        Ok(deadline) => deadline,
        Err(error) => return error,
    };
    // SAFETY: the caller's.
    let is_private = matches!(class(unsafe { kind_of(mutex) }), Class::Private(_));
    let is_shared = condition.has(SHARED);
    // Finds out who the thread is.
    thread.me();
    if is_shared && !is_private {
        thread.count(CALLS_PASSED, false);
        real::resolve_if_needed();
        return PASS_ON;
    }
    thread.count(if is_shared { CALLS_POLLED } else { CALLS }, false);
    let begun = Wait {
        word: null(),
        expected: 0,
        op: 0,
        until: real::PAST,
        result: 0,
        bits: u32::MAX,
        own: AtomicU32::new(0),
        condition,
        mutex,
        thread,
        caller,
        at_ns: deadline.map_or(0, |deadline| deadline.at_ns),
        has_deadline: deadline.is_some(),
        is_real_time: deadline.is_some_and(|deadline| deadline.clock == Clock::Realtime),
        is_polling: is_shared,
        is_inside: false,
        place: Place::default(),
        depth: 0,
        outcome: 0,
        event: None,
    };
    // SAFETY: the shim has room for it, and it stays there.
    unsafe { wait.write(begun) };
    // SAFETY: just written.
    let wait = unsafe { &mut *wait };
    if is_shared {
        // Whoever destroys it knows nothing of us: it is not touched again.
        wait.word = wait.own.as_ptr();
        let slice = wait.polling_slice();
        wait.set_slice(slice);
    } else {
        wait.word = condition.waiters.futex();
        condition.mutex.store(mutex.addr(), Ordering::Relaxed);
        wait.place = condition.waiters.enter(process::epoch());
        (wait.expected, wait.bits, wait.is_inside) = (wait.place.expected, wait.place.bits(), true);
        wait.set_slice(LOOK_EVERY);
    }
    let result = wait.release();
    if result == 0 {
        // Not while the mutex is held: others would wait for that.
        wait.event = event::begin(Type::Condition, cond.addr(), caller, thread);
    } else {
        wait.withdraw();
    }
    result
}

/// Whether the wait goes on after a system call.
#[unsafe(no_mangle)]
unsafe extern "C" fn retrial_condition_goes_on(wait: &mut Wait) -> c_int {
    let has_passed = wait.deadline().is_some_and(|deadline| deadline.left().is_none());
    if wait.is_polling {
        // To look is to return: only the caller knows what it waits for.
        wait.outcome = if has_passed { ETIMEDOUT } else { 0 };
        return 0;
    }
    let has_failed = !matches!(wait.result, 0 | EINTR | ETIMEDOUT | libc::EAGAIN);
    match wait.look(has_passed || has_failed) {
        Look::Waits => {
            wait.set_slice(LOOK_EVERY);
            1
        }
        Look::Left if has_passed => {
            wait.outcome = ETIMEDOUT;
            0
        }
        Look::Released | Look::Left => 0,
    }
}

/// Ends a wait: what it returns, with the mutex back.
#[unsafe(no_mangle)]
unsafe extern "C" fn retrial_condition_end(wait: &mut Wait) -> c_int {
    let _errno = Errno::keep();
    wait.end()
}

/// Ends the wait of a thread that is cancelled: its handlers find the mutex held. A signal that may have been for it is
/// passed on.
#[unsafe(no_mangle)]
unsafe extern "C" fn retrial_condition_cancelled(wait: &mut Wait) {
    wait.withdraw();
    wait.end();
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
