//! Mutexes that keep libc's format: process-shared and robust ones. Peers without us, the kernel's list of robust locks
//! and libc's rules for destroying stay right; ours is the waiting, whose timed looks also heal the wake-ups that libc
//! loses when owners are killed.

use crate::limit::Limit;
use crate::private::Sort;
use crate::process::Type;
use crate::profile::{self, Lock};
use crate::real::{self, Errno};
use crate::registry;
use crate::thread::Thread;
use crate::waiting::{self, Ask};
use libc::{EBUSY, ENOTRECOVERABLE, ETIMEDOUT, c_int, pthread_mutex_t};
use retrial::turn::{Hurdle, Turn};
use retrial::{Mode, MutexId, Park, Parked, Sid, Target, sys};
use std::sync::atomic::{AtomicU32, Ordering};

/// Offsets in libc's format.
const LOCK: usize = 0;
const COUNT: usize = 4;
const OWNER: usize = 8;
const USERS: usize = 12;
pub(crate) const KIND: usize = 16;
/// Libc's count of spins, of adaptive mutexes only, and what it remembers of elision: nothing that a mutex needs. Our gets, of sorts
/// that do not spin.
const SPINS: usize = 20;

/// How many wait libc does not say: turns are so long as among these.
const WAITERS: u32 = 8;

/// A thread whose turn is over waits for so long at most until a woken one has come, in ns.
const GIVES_WAY_NS: u64 = 50_000;

/// In the word of a mutex that is not robust: somebody waits. That of a robust one has the kernel's bit.
const AWAITED: u32 = 2;

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
/// The owner of one that cannot be recovered.
const NOT_RECOVERABLE: u32 = i32::MAX as u32 - 1;

/// Positions in [`retrial::CALLS`].
const CALLS_SHARED: usize = 4;
const CALLS_ROBUST: usize = 5;
const CALLS_INHERIT: usize = 10;
const CALLS_PROTECT: usize = 11;
const CALLS_UNKNOWN: usize = 14;

/// Whose a mutex is, by its kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Ours.
    Private(Sort),
    /// Libc's, with our waiting.
    Foreign,
    /// Libc's altogether; counted at this position of [`retrial::CALLS`].
    Passed(usize),
}

/// Whose a mutex of this kind is.
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

    /// Counts a thread that will come back from a condition of ours: libc destroys no mutex that has users. The caller holds
    /// the mutex.
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
        let kind = if self.is_robust() { CALLS_ROBUST } else { CALLS_SHARED };
        let is_get = matches!(result, 0 | libc::EOWNERDEAD);
        thread.count(kind, is_get);
        if is_get && !self.is_deep() {
            thread.holds_one_more();
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

    /// Its gets by threads with us.
    fn gets(self) -> u32 {
        self.load(SPINS)
    }

    fn address(self) -> u64 {
        self.mutex.addr() as u64
    }

    /// Gives it back.
    pub(crate) fn unlock(self, thread: &Thread) -> c_int {
        if self.is_deep() {
            // SAFETY: as `new` was promised.
            return unsafe { real::mutex_unlock(self.mutex) };
        }
        profile::leaving(thread, self.mutex as usize);
        let (word, gets, address) = (self.load(LOCK), self.gets(), self.address());
        let is_awaited = if self.is_robust() { word & !TID & !OWNER_DIED != 0 } else { word == AWAITED };
        // Of a mutex that has been waited for, all releases: while a woken one is on its way the word does not say that others wait.
        let session = thread.session().filter(|session| is_awaited || session.turn().is_of(address));
        let session = session.filter(|_| self.counts_gets());
        // SAFETY: as `new` was promised.
        let result = unsafe { real::mutex_unlock(self.mutex) };
        if result == 0 {
            thread.holds_one_less();
            if let Some(session) = session {
                let _errno = Errno::keep();
                // Libc has woken one, whatever the answer.
                let number = || registry::number_of(Type::SharedMutex, address as usize);
                let _ = session.release_of(address, number, Type::SharedMutex.id(), u64::from(gets), WAITERS);
            }
        }
        result
    }

    /// Lets a thread that was woken have it.
    #[cold]
    fn give_way(self, thread: &Thread) {
        let _errno = Errno::keep();
        let end = sys::now_ns() + GIVES_WAY_NS;
        let getting = Getting { foreign: self, thread, tid: thread.tid() };
        while getting.is_open(false) {
            let now = sys::now_ns();
            if now >= end {
                // Nobody came: another turn begins.
                if let Some(session) = thread.session() {
                    session.turn().begin(self.address(), u64::from(self.gets()), now);
                }
                return;
            }
            sys::yield_now();
        }
    }

    /// What it is to a profile.
    fn as_lock(self) -> Lock {
        Lock { address: self.mutex as usize, mutex: MutexId(0), kind: Type::SharedMutex, mode: Mode::Exclusive }
    }

    /// Whether the next unlock leaves it locked.
    pub(crate) fn is_deep(self) -> bool {
        self.load(COUNT) > 1
    }

    /// One try: `EBUSY` when somebody else has it.
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
        let hurdle = thread.session().and_then(|session| session.turn().take(self.address()));
        let over = hurdle == Some(Hurdle::Over);
        if over && thread.holds_none() && matches!(limit, Limit::Endless) {
            self.give_way(thread);
        }
        let mut result = self.attempt(thread.tid());
        if result == EBUSY {
            // One's own: libc says so, or waits without a look. The memory may become another mutex before anybody unlocks this one.
            let is_own = self.load(OWNER) == thread.tid();
            result = if is_own { pass() } else { self.lock_slow(thread, caller, limit, over) };
        }
        if hurdle == Some(Hurdle::Timed)
            && matches!(result, 0 | libc::EOWNERDEAD)
            && let Some(session) = thread.session()
        {
            session.turn().time(u64::from(self.gets()), sys::now_ns());
        }
        self.count(thread, result);
        result
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(self, thread: &Thread, caller: usize, limit: Limit, over: bool) -> c_int {
        let _errno = Errno::keep();
        // SAFETY: the moment is the caller's of the wrapper.
        let deadline = match unsafe { limit.deadline() } {
            Ok(deadline) => deadline,
            Err(error) => return error,
        };
        let getting = Getting { foreign: self, thread, tid: thread.tid() };
        let address = self.mutex as usize;
        let mutex = || registry::number_of(Type::SharedMutex, address);
        let ask = || Ask { lock: Lock { mutex: mutex(), ..self.as_lock() }, caller, over };
        let result = waiting::wait(thread, &getting, ask, deadline).unwrap_or(ETIMEDOUT);
        registry::count_missed_get(Type::SharedMutex, address);
        result
    }
}

/// A thread that wants a mutex of libc's format.
struct Getting<'a> {
    foreign: Foreign,
    thread: &'a Thread,
    tid: u32,
}

impl Target for Getting<'_> {
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
        match unsafe { real::mutex_within(self.foreign.mutex, how.timeout) } {
            ETIMEDOUT => Parked::TimedOut,
            result => Parked::Got(result),
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

    fn turn(&self) -> Option<(&Turn, u64)> {
        let session = self.thread.session().filter(|_| self.foreign.counts_gets());
        session.map(|session| (session.turn(), self.foreign.address()))
    }

    fn gets(&self) -> u64 {
        if self.foreign.counts_gets() {
            return u64::from(self.foreign.gets());
        }
        registry::missed_gets(Type::SharedMutex, self.foreign.mutex as usize)
    }
}
