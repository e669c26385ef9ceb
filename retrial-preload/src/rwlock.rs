//! Read-write locks, in libc's format, so that all kinds stay what they are: its tries, our waiting, and its
//! own timed wait as the park.

use crate::instance::Type;
use crate::limit::Limit;
use crate::process;
use crate::profile::{self, Lock};
use crate::real;
use crate::registry;
use crate::thread::Thread;
use crate::waiting;
use libc::{EBUSY, EDEADLK, ETIMEDOUT, c_int, clockid_t, pthread_rwlock_t, timespec};
use retrial::interposer::{Park, Parked, Target};
use retrial::sys::{Deadline, Errno};
use retrial::views::Sid;
use retrial::{Mode, MutexId};
use std::sync::atomic::{AtomicU32, Ordering};

/// Offsets in libc's format.
const READERS: usize = 0;
const WRITER: usize = 24;
const FLAGS: usize = 48;

/// Bits of `READERS`, below the count.
const WRITE_PHASE: u32 = 1;
const WRITE_LOCKED: u32 = 2;
const READER_SHIFT: u32 = 3;

/// In `FLAGS`: readers wait behind a writer that waits.
const PREFERS_WRITERS: u32 = 2;

/// Positions in [`retrial::interposer::CALLS`].
const CALLS_READ: usize = 6;
const CALLS_WRITE: usize = 7;
const CALLS_PASSED: usize = 13;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Read,
    Write,
}

/// A thread that wants a lock.
#[derive(Clone, Copy)]
struct Getting {
    rwlock: *mut pthread_rwlock_t,
    side: Side,
}

impl Getting {
    fn load(&self, offset: usize) -> u32 {
        // SAFETY: a lock that is asked for is there, and has a field of 4 bytes at these offsets.
        let field = unsafe { self.rwlock.byte_add(offset) };
        // SAFETY: aligned, and changed atomically.
        unsafe { &*field.cast::<AtomicU32>() }.load(Ordering::Acquire)
    }

    /// One try: `EBUSY` when it would have to wait.
    fn attempt(&self) -> c_int {
        match self.side {
            // SAFETY: a lock that is asked for is there.
            Side::Read => unsafe { real::rwlock_tryrdlock(self.rwlock) },
            // SAFETY: as above.
            Side::Write => unsafe { real::rwlock_trywrlock(self.rwlock) },
        }
    }

    const fn calls(&self) -> usize {
        match self.side {
            Side::Read => CALLS_READ,
            Side::Write => CALLS_WRITE,
        }
    }

    /// Gets it; `pass` is libc's call.
    fn lock(&self, thread: &Thread, caller: usize, limit: Limit, pass: impl Fn() -> c_int) -> c_int {
        if !process::is_on() {
            return pass();
        }
        // Unlike a mutex's, the moment is looked at first.
        // SAFETY: the moment is the caller's of the wrapper.
        let deadline = match unsafe { limit.deadline() } {
            Ok(deadline) => deadline,
            Err(error) => return error,
        };
        let mut result = self.attempt();
        thread.me();
        let mut calls = self.calls();
        if result == EBUSY {
            if self.side == Side::Write && self.load(FLAGS) == PREFERS_WRITERS {
                // Its readers have to see that a writer waits, which only libc's own wait lets them.
                calls = CALLS_PASSED;
                result = pass();
            } else {
                result = self.lock_slow(thread, caller, deadline);
            }
        }
        self.count(thread, calls, result);
        result
    }

    fn count(&self, thread: &Thread, calls: usize, result: c_int) {
        thread.count(calls, result == 0);
        if result == 0 {
            profile::got(thread, || self.as_lock());
        }
    }

    /// What it is to a profile.
    fn as_lock(&self) -> Lock {
        let mode = if self.side == Side::Read { Mode::Shared } else { Mode::Exclusive };
        Lock { address: self.rwlock as usize, mutex: MutexId(0), object: Type::Rwlock, mode }
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, thread: &Thread, caller: usize, deadline: Option<Deadline>) -> c_int {
        let _errno = Errno::keep();
        if self.load(WRITER) == thread.tid() {
            return EDEADLK;
        }
        waiting::wait_for_foreign(thread, || *self, self.as_lock(), caller, deadline)
    }

    fn trylock(&self, thread: &Thread) -> c_int {
        let result = self.attempt();
        if process::is_on() {
            thread.me();
            self.count(thread, self.calls(), result);
        }
        result
    }
}

impl Target for Getting {
    /// What the call returns: any error but that it is busy ends the wait as well.
    type Got = c_int;

    fn is_open(&self, _: bool) -> bool {
        let readers = self.load(READERS);
        match self.side {
            Side::Read => readers & (WRITE_PHASE | WRITE_LOCKED) != WRITE_PHASE | WRITE_LOCKED,
            Side::Write => readers & WRITE_LOCKED == 0 && readers >> READER_SHIFT == 0,
        }
    }

    fn try_get(&self, _: bool) -> Option<c_int> {
        Some(self.attempt()).filter(|result| *result != EBUSY)
    }

    fn park(&self, how: Park) -> Parked<c_int> {
        let result = match self.side {
            // SAFETY: a lock that is waited for is there.
            Side::Read => unsafe { real::rwlock_read_within(self.rwlock, how.lasts_alone()) },
            // SAFETY: as above.
            Side::Write => unsafe { real::rwlock_write_within(self.rwlock, how.lasts_alone()) },
        };
        if result == ETIMEDOUT { Parked::TimedOut } else { Parked::Got(result) }
    }

    fn parked(&self) -> u32 {
        0
    }

    fn blocker(&self) -> (Sid, bool) {
        match self.load(WRITER) {
            0 => (Sid::NONE, false),
            tid => (Sid::guest(tid), true),
        }
    }

    fn counts_gets(&self) -> bool {
        false
    }

    fn gets(&self) -> u64 {
        registry::missed_gets(Type::Rwlock, self.rwlock as usize)
    }
}

/// Gives either side back.
///
/// # Safety
///
/// That of libc's function.
pub(crate) unsafe extern "C" fn unlock(rwlock: *mut pthread_rwlock_t, _: usize, thread: &Thread) -> c_int {
    profile::leaving(thread, rwlock as usize);
    // SAFETY: the caller's.
    unsafe { real::rwlock_unlock(rwlock) }
}

macro_rules! calls {
    ($( $side:ident $lock:ident $trylock:ident $timedlock:ident $clocklock:ident
        = $real_lock:ident $real_timedlock:ident $real_clocklock:ident; )*) => { $(
        /// Gets this side.
        ///
        /// # Safety
        ///
        /// That of libc's function; so it is with all calls here.
        pub(crate) unsafe extern "C" fn $lock(rwlock: *mut pthread_rwlock_t, caller: usize, thread: &Thread) -> c_int {
            // SAFETY: the caller's.
            let pass = || unsafe { real::$real_lock(rwlock) };
            Getting { rwlock, side: Side::$side }.lock(thread, caller, Limit::Endless, pass)
        }

        /// Gets this side if that needs no waiting.
        pub(crate) unsafe extern "C" fn $trylock(rwlock: *mut pthread_rwlock_t, _: usize, thread: &Thread) -> c_int {
            Getting { rwlock, side: Side::$side }.trylock(thread)
        }

        /// Gets this side until a moment of the real time.
        pub(crate) unsafe extern "C" fn $timedlock(
            rwlock: *mut pthread_rwlock_t,
            at: *const timespec,
            caller: usize,
            thread: &Thread,
        ) -> c_int {
            // SAFETY: the caller's.
            let pass = || unsafe { real::$real_timedlock(rwlock, at) };
            let limit = Limit::Until(libc::CLOCK_REALTIME, at);
            Getting { rwlock, side: Side::$side }.lock(thread, caller, limit, pass)
        }

        /// Gets this side until a moment by a clock.
        pub(crate) unsafe extern "C" fn $clocklock(
            rwlock: *mut pthread_rwlock_t,
            clock: clockid_t,
            at: *const timespec,
            caller: usize,
            thread: &Thread,
        ) -> c_int {
            // SAFETY: the caller's.
            let pass = || unsafe { real::$real_clocklock(rwlock, clock, at) };
            Getting { rwlock, side: Side::$side }.lock(thread, caller, Limit::Until(clock, at), pass)
        }
    )* };
}

calls! {
    Read read_lock read_trylock read_timedlock read_clocklock
        = rwlock_rdlock rwlock_timedrdlock rwlock_clockrdlock;
    Write write_lock write_trylock write_timedlock write_clocklock
        = rwlock_wrlock rwlock_timedwrlock rwlock_clockwrlock;
}
