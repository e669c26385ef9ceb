//! Mutexes that keep libc's format: process-shared and robust ones. Processes without this library, the
//! kernel's list of robust locks and libc's rules for destroying stay right. This library does the waiting;
//! its timed looks also heal the wake-ups that libc loses when owners are killed.

use crate::instance::Type;
use crate::limit::Limit;
use crate::profile::{self, Lock};
use crate::real;
use crate::registry;
use crate::thread::Thread;
use crate::waiting;
use libc::{EBUSY, ENOTRECOVERABLE, EOWNERDEAD, ETIMEDOUT, c_int, pthread_mutex_t};
use retrial::interposer::{self, Park, Parked, Target};
use retrial::sys::Errno;
use retrial::views::Sid;
use retrial::{Mode, MutexId, sys};
use std::sync::atomic::{AtomicU32, Ordering};

/// The types of mutexes, by libc's numbers, which are also their positions in [`retrial::interposer::CALLS`].
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Sort {
    Normal = 0,
    Recursive = 1,
    Errorcheck = 2,
    Adaptive = 3,
}

impl Sort {
    /// Whether relocks and unlocks by others are noticed.
    pub(crate) const fn knows_owner(self) -> bool {
        matches!(self, Self::Recursive | Self::Errorcheck)
    }
}

/// Offsets in libc's format.
const LOCK: usize = 0;
const COUNT: usize = 4;
const OWNER: usize = 8;
const USERS: usize = 12;
pub(crate) const KIND: usize = 16;
/// Libc's count of spins, of adaptive mutexes only, and what it remembers of elision: nothing that a mutex
/// needs. Our gets, of sorts that do not spin.
const SPINS: usize = 20;

/// Bits of the kind.
pub(crate) const SORT: u32 = 3;
const ROBUST: u32 = 0x10;
const INHERIT: u32 = 0x20;
const PROTECT: u32 = 0x40;
const SHARED: u32 = 0x80;
const ELISION: u32 = 0x300;

/// Bits of the word of a robust one, the kernel's.
const OWNER_DIED: u32 = 0x4000_0000;
const TID: u32 = 0x3fff_ffff;
/// The owner of a mutex that cannot be recovered.
const NOT_RECOVERABLE: u32 = i32::MAX as u32 - 1;

/// Positions in [`retrial::interposer::CALLS`].
const CALLS_SHARED: usize = 4;
const CALLS_ROBUST: usize = 5;
const CALLS_INHERIT: usize = 10;
const CALLS_PROTECT: usize = 11;
const CALLS_UNKNOWN: usize = 14;

/// Whose format a mutex has, by its kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Ours.
    Private(Sort),
    /// Libc's, with our waiting.
    Foreign,
    /// Libc's altogether; counted at this position of [`retrial::interposer::CALLS`].
    Passed(usize),
}

/// Whose format a mutex of this kind has.
#[inline]
pub(crate) const fn class(kind: u32) -> Class {
    if kind & !(SORT | ELISION) == 0 {
        return Class::Private(match kind & SORT {
            0 => Sort::Normal,
            1 => Sort::Recursive,
            2 => Sort::Errorcheck,
            _ => Sort::Adaptive,
        });
    }
    if kind & !(SORT | ELISION | ROBUST | INHERIT | PROTECT | SHARED) != 0 {
        return Class::Passed(CALLS_UNKNOWN);
    }
    if kind & INHERIT != 0 {
        Class::Passed(CALLS_INHERIT)
    } else if kind & PROTECT != 0 {
        Class::Passed(CALLS_PROTECT)
    } else {
        Class::Foreign
    }
}

/// The kind of a mutex.
///
/// # Safety
///
/// There is a mutex at the address.
#[inline]
pub(crate) unsafe fn kind_of(mutex: *mut pthread_mutex_t) -> u32 {
    // SAFETY: the caller's.
    unsafe { field(mutex, KIND) }.load(Ordering::Relaxed)
}

/// A field of a mutex.
///
/// # Safety
///
/// There is a mutex at the address, and a field of 4 bytes at the offset.
unsafe fn field<'a>(mutex: *mut pthread_mutex_t, offset: usize) -> &'a AtomicU32 {
    // SAFETY: the caller's.
    let field = unsafe { mutex.byte_add(offset) };
    // SAFETY: aligned as the mutex is; libc changes it atomically where others look.
    unsafe { &*field.cast() }
}

/// A mutex of libc's format.
#[derive(Clone, Copy)]
pub(crate) struct Foreign {
    mutex: *mut pthread_mutex_t,
}

impl Foreign {
    /// # Safety
    ///
    /// There is a mutex at the address, for as long as this is used.
    pub(crate) const unsafe fn new(mutex: *mut pthread_mutex_t) -> Self {
        Self { mutex }
    }

    fn load(self, offset: usize) -> u32 {
        // SAFETY: as `new` was promised; the offsets are those above.
        unsafe { field(self.mutex, offset) }.load(Ordering::Acquire)
    }

    /// Counts a thread that will come back from a condition of ours: libc destroys no mutex that has users.
    /// The caller holds the mutex.
    pub(crate) fn add_waiter(self) {
        // SAFETY: as `new` was promised.
        unsafe { field(self.mutex, USERS) }.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back what `add_waiter` did.
    pub(crate) fn remove_waiter(self) {
        // SAFETY: as `new` was promised.
        unsafe { field(self.mutex, USERS) }.fetch_sub(1, Ordering::Relaxed);
    }

    fn is_robust(self) -> bool {
        self.load(KIND) & ROBUST != 0
    }

    fn count(self, thread: &Thread, result: c_int) {
        // Finds out who the thread is.
        thread.me();
        let call = if self.is_robust() { CALLS_ROBUST } else { CALLS_SHARED };
        thread.count(call, is_get(result));
        if is_get(result) && !self.is_deep() {
            if self.counts_gets() {
                // SAFETY: as `new` was promised.
                unsafe { field(self.mutex, SPINS) }.store(self.gets().wrapping_add(1), Ordering::Relaxed);
            }
            profile::got(thread, || self.as_lock());
        }
    }

    /// Whether its gets are counted in it.
    fn counts_gets(self) -> bool {
        self.load(KIND) & SORT != Sort::Adaptive as u32
    }

    /// Its gets by threads of processes that have this library.
    fn gets(self) -> u32 {
        self.load(SPINS)
    }

    /// Gives it back.
    pub(crate) fn unlock(self, thread: &Thread) -> c_int {
        if !self.is_deep() {
            profile::leaving(thread, self.mutex as usize);
        }
        // SAFETY: as `new` was promised.
        unsafe { real::mutex_unlock(self.mutex) }
    }

    /// What it is to a profile.
    fn as_lock(self) -> Lock {
        Lock { address: self.mutex as usize, mutex: MutexId(0), object: Type::SharedMutex, mode: Mode::Exclusive }
    }

    /// Whether the next unlock leaves it locked.
    pub(crate) fn is_deep(self) -> bool {
        self.load(COUNT) > 1
    }

    /// One try: `EBUSY` when another thread has it.
    fn attempt(self, tid: u32) -> c_int {
        if self.is_robust() && self.load(OWNER) == NOT_RECOVERABLE {
            return self.attempt_within_no_time();
        }
        // SAFETY: as `new` was promised.
        let result = unsafe { real::mutex_trylock(self.mutex) };
        if result == ENOTRECOVERABLE {
            self.give_up_leftover(tid);
        }
        result
    }

    /// A lock that may not wait: it looks at more than a try does.
    fn attempt_within_no_time(self) -> c_int {
        // SAFETY: as `new` was promised; the moment is readable.
        match unsafe { real::mutex_timedlock(self.mutex, &raw const real::PAST) } {
            ETIMEDOUT => EBUSY,
            result => result,
        }
    }

    /// The trylock of glibc 2.36 says rightly that it cannot be recovered, but leaves the word taken.
    fn give_up_leftover(self, tid: u32) {
        // SAFETY: as `new` was promised.
        let word = unsafe { field(self.mutex, LOCK) };
        let found = word.load(Ordering::Relaxed);
        if found & TID == tid && word.compare_exchange(found, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            for private in [false, true] {
                sys::futex_wake(word, 1, private);
            }
        }
    }

    pub(crate) fn trylock(self, thread: &Thread) -> c_int {
        let result = self.attempt(thread.tid());
        self.count(thread, result);
        result
    }

    /// Gets it; `pass` is libc's call.
    pub(crate) fn lock(self, thread: &Thread, caller: usize, limit: Limit, pass: impl Fn() -> c_int) -> c_int {
        let mut result = self.attempt(thread.tid());
        if result == EBUSY {
            // This thread's own: libc says so, or waits without a look. The memory may become another mutex
            // before a thread unlocks this one.
            let is_own = self.load(OWNER) == thread.tid();
            result = if is_own { pass() } else { self.lock_slow(thread, caller, limit) };
        }
        self.count(thread, result);
        result
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(self, thread: &Thread, caller: usize, limit: Limit) -> c_int {
        let _errno = Errno::keep();
        // SAFETY: the moment is the caller's of the wrapper.
        let deadline = match unsafe { limit.deadline() } {
            Ok(deadline) => deadline,
            Err(error) => return error,
        };
        let getting = || Getting { foreign: self, tid: thread.tid() };
        waiting::wait_for_foreign(thread, getting, self.as_lock(), caller, deadline)
    }

    /// In a child that a handler of a signal has forked in libc's wait, libc may have got it in the name of
    /// the parent's thread, as whose it would stay locked.
    fn own_in_child(self, parents: u32, result: c_int) {
        let Some(tid) = interposer::libc_tid().filter(|tid| *tid != parents) else { return };
        for (offset, is_name) in [(LOCK, self.is_robust() && is_get(result)), (OWNER, result == 0)] {
            if is_name {
                // SAFETY: as `new` was promised.
                let name = unsafe { field(self.mutex, offset) };
                // Waiters set the other bits of the lock.
                let own = |word: u32| (word & TID == parents).then_some(word & !TID | tid);
                let _ = name.fetch_update(Ordering::Relaxed, Ordering::Relaxed, own);
            }
        }
    }
}

/// Whether a call of this result has got the mutex.
const fn is_get(result: c_int) -> bool {
    matches!(result, 0 | EOWNERDEAD)
}

/// A thread that wants a mutex of libc's format.
struct Getting {
    foreign: Foreign,
    tid: u32,
}

impl Target for Getting {
    /// What the call returns: any error but that it is busy ends the wait as well.
    type Got = c_int;

    fn is_open(&self, _: bool) -> bool {
        let (word, kind) = (self.foreign.load(LOCK), self.foreign.load(KIND));
        // A mutex that was destroyed meanwhile is open for the call that says so.
        kind & (1 << 31) != 0 || word & TID == 0 || kind & ROBUST != 0 && word & OWNER_DIED != 0
    }

    fn try_get(&self, _: bool) -> Option<c_int> {
        Some(self.foreign.attempt(self.tid)).filter(|result| *result != EBUSY)
    }

    fn park(&self, how: Park) -> Parked<c_int> {
        // SAFETY: as `Foreign::new` was promised.
        match unsafe { real::mutex_within(self.foreign.mutex, how.lasts_alone()) } {
            ETIMEDOUT => Parked::TimedOut,
            result => {
                self.foreign.own_in_child(self.tid, result);
                Parked::Got(result)
            }
        }
    }

    fn parked(&self) -> u32 {
        0
    }

    fn blocker(&self) -> (Sid, bool) {
        match self.foreign.load(OWNER) {
            0 => (Sid::NONE, true),
            tid => (Sid::guest(tid), true),
        }
    }

    fn counts_gets(&self) -> bool {
        self.foreign.counts_gets()
    }

    fn in_page(&self) -> Option<usize> {
        const PAGE: usize = 4096;
        (self.foreign.load(KIND) & SHARED != 0).then(|| self.foreign.mutex.addr() % PAGE)
    }

    fn gets(&self) -> u64 {
        if self.foreign.counts_gets() {
            return u64::from(self.foreign.gets());
        }
        registry::missed_gets(Type::SharedMutex, self.foreign.mutex as usize)
    }
}
