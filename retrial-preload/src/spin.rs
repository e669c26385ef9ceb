//! Spin locks, in libc's format: its try, our waiting. They have no queue, so that a park is a short sleep.

use crate::process::{self, Type};
use crate::profile::{self, Lock};
use crate::real::{self, Errno};
use crate::registry;
use crate::thread::Thread;
use crate::waiting::{self, Ask};
use libc::{EBUSY, c_int, pthread_spinlock_t};
use retrial::interposer::{Park, Parked, Target};
use retrial::views::Sid;
use retrial::{Mode, MutexId, sys};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// The position in [`retrial::interposer::CALLS`].
const CALLS: usize = 8;
/// A park, for want of a queue.
const NAP: Duration = Duration::from_micros(100);
/// What a free one holds.
const FREE: i32 = if cfg!(target_arch = "x86_64") { 1 } else { 0 };

/// `pthread_spin_lock`.
///
/// # Safety
///
/// That of the function; so it is with all calls here.
pub(crate) unsafe extern "C" fn lock(spin: *mut pthread_spinlock_t, caller: usize, thread: &Thread) -> c_int {
    if !process::is_on() {
        // SAFETY: the caller's.
        return unsafe { real::spin_lock(spin) };
    }
    // SAFETY: the caller's.
    let mut result = unsafe { real::spin_trylock(spin) };
    thread.me();
    if result == EBUSY {
        result = wait(spin, caller, thread);
    }
    count(spin, thread, result);
    result
}

fn count(spin: *mut pthread_spinlock_t, thread: &Thread, result: c_int) {
    thread.count(CALLS, result == 0);
    if result == 0 {
        profile::got(thread, || as_lock(spin));
    }
}

/// What it is to a profile.
fn as_lock(spin: *mut pthread_spinlock_t) -> Lock {
    Lock { address: spin as usize, mutex: MutexId(0), kind: Type::Spin, mode: Mode::Exclusive }
}

/// `pthread_spin_unlock`.
pub(crate) unsafe extern "C" fn unlock(spin: *mut pthread_spinlock_t, _: usize, thread: &Thread) -> c_int {
    profile::leaving(thread, spin as usize);
    // SAFETY: the caller's.
    unsafe { real::spin_unlock(spin) }
}

#[cold]
#[inline(never)]
fn wait(spin: *mut pthread_spinlock_t, caller: usize, thread: &Thread) -> c_int {
    let _errno = Errno::keep();
    let ask = || {
        let mutex = registry::number_of(Type::Spin, spin as usize);
        Ask { lock: Lock { mutex, ..as_lock(spin) }, caller }
    };
    let result = waiting::wait(thread, &Getting { spin }, ask, None).unwrap_or(EBUSY);
    registry::count_missed_get(Type::Spin, spin as usize);
    result
}

/// `pthread_spin_trylock`.
pub(crate) unsafe extern "C" fn trylock(spin: *mut pthread_spinlock_t, _: usize, thread: &Thread) -> c_int {
    // SAFETY: the caller's.
    let result = unsafe { real::spin_trylock(spin) };
    if process::is_on() {
        thread.me();
        count(spin, thread, result);
    }
    result
}

struct Getting {
    spin: *mut pthread_spinlock_t,
}

impl Target for Getting {
    type Got = c_int;

    fn is_open(&self, _: bool) -> bool {
        // SAFETY: a lock that is waited for is there, and changed atomically.
        unsafe { &*self.spin.cast::<AtomicI32>() }.load(Ordering::Relaxed) == FREE
    }

    fn try_get(&self, _: bool) -> Option<c_int> {
        // SAFETY: a lock that is waited for is there.
        Some(unsafe { real::spin_trylock(self.spin) }).filter(|result| *result != EBUSY)
    }

    fn park(&self, how: Park) -> Parked<c_int> {
        sys::sleep(how.left.min(NAP));
        Parked::TimedOut
    }

    fn parked(&self) -> u32 {
        0
    }

    fn blocker(&self) -> (Sid, bool) {
        (Sid::NONE, true)
    }

    fn gets(&self) -> u64 {
        registry::missed_gets(Type::Spin, self.spin as usize)
    }
}
