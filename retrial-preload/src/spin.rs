//! Spin locks, in libc's format: its try, our waiting. An unlock by this process wakes a waiter. An unlock by
//! another process does not, and a thread may wait for that one: so all waiters look by themselves, together
//! as often as a single one that naps.

use crate::instance::Type;
use crate::process;
use crate::profile::{self, Lock};
use crate::real;
use crate::registry;
use crate::spots::{self, Parks, Spot};
use crate::thread::Thread;
use crate::waiting;
use libc::{EBUSY, c_int, pthread_spinlock_t};
use retrial::interposer::{Park, Parked, Target};
use retrial::parking::Found;
use retrial::sys::Errno;
use retrial::views::Sid;
use retrial::{Mode, MutexId};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The position in [`retrial::interposer::CALLS`].
const CALLS: usize = 8;
/// Time between two looks at one lock by the threads that are parked.
const NAP: Duration = Duration::from_micros(100);
/// What a free one holds.
const FREE: u32 = if cfg!(target_arch = "x86_64") { 1 } else { 0 };

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
    Lock { address: spin as usize, mutex: MutexId(0), object: Type::Spin, mode: Mode::Exclusive }
}

/// `pthread_spin_unlock`.
pub(crate) unsafe extern "C" fn unlock(spin: *mut pthread_spinlock_t, _: usize, thread: &Thread) -> c_int {
    profile::leaving(thread, spin as usize);
    // SAFETY: the caller's.
    let result = unsafe { real::spin_unlock(spin) };
    // From here on there may be no lock any more.
    let spot = spots::at(spin as usize);
    if spot.is_busy() {
        spot.wake_after(spin as usize, false);
    }
    result
}

#[cold]
#[inline(never)]
fn wait(spin: *mut pthread_spinlock_t, caller: usize, thread: &Thread) -> c_int {
    let _errno = Errno::keep();
    let getting = || Getting { spin, parks: Parks::default() };
    waiting::wait_for_foreign(thread, getting, as_lock(spin), caller, None)
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
    /// What its parks have to tell the next one.
    parks: Parks,
}

impl Getting {
    fn word(&self) -> &AtomicU32 {
        // SAFETY: a lock that is waited for is there, and changed atomically.
        unsafe { &*self.spin.cast() }
    }

    fn spot(&self) -> &'static Spot {
        spots::at(self.spin as usize)
    }
}

impl Target for Getting {
    type Got = c_int;

    fn is_open(&self, _: bool) -> bool {
        self.word().load(Ordering::Relaxed) == FREE
    }

    fn try_get(&self, _: bool) -> Option<c_int> {
        // SAFETY: a lock that is waited for is there.
        Some(unsafe { real::spin_trylock(self.spin) }).filter(|result| *result != EBUSY)
    }

    fn park(&self, how: Park) -> Parked<c_int> {
        let look = NAP * (1 + self.parked());
        let found = |word| if word == FREE { Found::Open } else { Found::Busy };
        self.spot().park(self.word(), found, Park { watch: look, timeout: look, alone: look, ..how }, &self.parks)
    }

    fn ended(&self, got: bool) {
        self.spot().ended(self.spin as usize, got, &self.parks);
    }

    fn steps_aside(&self) {
        self.spot().ended(self.spin as usize, false, &self.parks);
    }

    fn parked(&self) -> u32 {
        self.spot().parked()
    }

    fn blocker(&self) -> (Sid, bool) {
        (Sid::NONE, true)
    }

    fn counts_gets(&self) -> bool {
        false
    }

    fn gets(&self) -> u64 {
        registry::missed_gets(Type::Spin, self.spin as usize)
    }
}
