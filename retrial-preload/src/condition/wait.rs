//! A wait on a condition, step by step, for the shim in condition.c that makes its system calls.

use super::{CALLS, CALLS_PASSED, CALLS_POLLED, Condition, MONOTONIC, SHARED};
use crate::event;
use crate::foreign::{Class, Foreign, class, kind_of};
use crate::instance::Type;
use crate::limit::Limit;
use crate::mutex;
use crate::private::PrivateMutex;
use crate::process;
use crate::profile;
use crate::real;
use crate::thread::Thread;
use libc::{EINTR, EOWNERDEAD, ETIMEDOUT, c_int, clockid_t, pthread_cond_t, pthread_mutex_t, timespec};
use retrial::condition::{Look, Place};
use retrial::interposer::EventWait;
use retrial::sys::Errno;
use retrial::sys::{self, Clock, Deadline};
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Time to the first look of a wait by itself: another thread may have given the mutex back for the signaller,
/// which then never comes to the wake-up that it has put off. Doubles with each look: a thousand threads that
/// wait for hours take a thousandth of a processor.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// Looks in which it doubles.
const DOUBLINGS: u32 = 3;

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
    deadline: Option<Deadline>,
    is_polling: bool,
    /// Whether it is one of the condition's waiters, in the process of this number.
    is_inside: bool,
    process: u32,
    place: Place,
    /// Looks so far.
    looks: u32,
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

impl Wait {
    fn new(
        condition: &Condition,
        mutex: *mut pthread_mutex_t,
        thread: &Thread,
        caller: usize,
        deadline: Option<Deadline>,
        is_polling: bool,
    ) -> Self {
        Self {
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
            deadline,
            is_polling,
            is_inside: false,
            process: process::epoch(),
            place: Place::default(),
            looks: 0,
            depth: 0,
            outcome: 0,
            event: None,
        }
    }

    /// Joins the condition's waiters, or begins to poll, where the wait stays in memory.
    fn enter(&mut self) {
        if self.is_polling {
            // A process that destroys it knows nothing of this wait: the condition is not touched again.
            self.word = self.own.as_ptr();
            let slice = self.polling_slice();
            return self.set_slice(slice);
        }
        let condition = self.condition();
        condition.mutex.store(self.mutex.addr(), Ordering::Relaxed);
        let (word, place) = (condition.waiters.futex(), condition.waiters.enter(self.process));
        (self.word, self.place, self.is_inside) = (word, place, true);
        (self.expected, self.bits) = (place.expected, place.bits());
        self.set_slice(FIRST_LOOK);
    }

    fn condition(&self) -> &Condition {
        // SAFETY: the caller of the wait keeps it until all waiters have left it, or destroys it, which waits
        // for us.
        unsafe { &*self.condition }
    }

    fn thread(&self) -> &Thread {
        // SAFETY: the waiting thread's own.
        unsafe { &*self.thread }
    }

    /// Sets the next system call's time: the deadline, or a look before it.
    fn set_slice(&mut self, longest: Duration) {
        let near = self.deadline.filter(|deadline| deadline.left().is_none_or(|left| left <= longest));
        let until = near.unwrap_or_else(|| Deadline::after(longest));
        let clock = if until.clock == Clock::Realtime { libc::FUTEX_CLOCK_REALTIME } else { 0 };
        self.op = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG | clock;
        self.until = timespec {
            tv_sec: i64::try_from(until.at_ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (until.at_ns % 1_000_000_000).cast_signed(),
        };
    }

    /// How long to sleep between two looks at what nothing wakes: 50 µs at first, in a row up to 1 ms, and
    /// after half a hundred of these 5 ms.
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

    /// Whether a handler of a signal has forked in the wait and this is the child, where the condition has no
    /// such waiter.
    fn is_forked(&self) -> bool {
        // Finds out which process this is.
        self.thread().me();
        self.process != process::epoch()
    }

    /// Looks whether it was signalled. In a child it comes back without a signal, as it may after a handler.
    fn look(&mut self, leaves: bool) -> Look {
        if self.is_forked() {
            return Look::Left;
        }
        let mut place = self.place;
        let found = self.condition().waiters.look(self.process, &mut place, leaves);
        (self.place, self.expected) = (place, place.expected);
        self.is_inside = found == Look::Waits;
        found
    }

    /// Leaves the condition: what was for it is another waiter's.
    fn withdraw(&mut self) {
        if std::mem::take(&mut self.is_inside)
            && !self.is_forked()
            && let Some(wake) = self.condition().waiters.withdraw(self.process, self.place)
        {
            wake.now();
        }
    }

    /// Gets the mutex back.
    fn end(&mut self) -> c_int {
        // A wait that began in the parent is the parent's.
        let event = self.event.take().filter(|_| !self.is_forked());
        event::end(event, self.thread());
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
    let begun = Wait::new(condition, mutex, thread, caller, deadline, is_shared);
    // SAFETY: the shim has room for it, and it stays there.
    unsafe { wait.write(begun) };
    // SAFETY: just written.
    let wait = unsafe { &mut *wait };
    wait.enter();
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
    let has_passed = wait.deadline.is_some_and(|deadline| deadline.left().is_none());
    if wait.is_polling {
        // To look is to return: only the caller knows what it waits for.
        wait.outcome = if has_passed { ETIMEDOUT } else { 0 };
        return 0;
    }
    let has_failed = !matches!(wait.result, 0 | EINTR | ETIMEDOUT | libc::EAGAIN);
    match wait.look(has_passed || has_failed) {
        Look::Waits => {
            if wait.result == ETIMEDOUT {
                wait.looks = (wait.looks + 1).min(DOUBLINGS);
            }
            wait.set_slice(FIRST_LOOK * (1 << wait.looks));
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

/// Ends the wait of a thread that is cancelled: its handlers find the mutex held. A signal that may have been
/// for it is passed on.
#[unsafe(no_mangle)]
unsafe extern "C" fn retrial_condition_cancelled(wait: &mut Wait) {
    wait.withdraw();
    wait.end();
}
