//! Mutexes of one process that are not robust: our own record, in the bytes of the `pthread_mutex_t`.
//!
//! ```text
//!  0      8       12      16     20   24     32      36
//! +------+-------+-------+------+----+------+-------+-------+
//! | word | owner | users | kind | id | gets | depth | epoch |
//! +------+-------+-------+------+----+------+-------+-------+
//! ```
//!
//! The word is [`retrial::views::Word`]; its upper half, the holder field, is the futex. `owner`, `users` and
//! `kind` mean what they mean to libc and are where libc has them: it looks at the first and counts itself in
//! the second while it holds the mutex. All zeros, as the static initialisers make it but for `kind`, is a
//! free mutex, and a free mutex of ours is a free one of libc's. So is a held one: the lower half, where
//! mutexes of the library count references, is libc's lock here. So a thread of this process that calls libc
//! past this library excludes the other threads and is excluded.
//!
//! Only the holder changes the word, `owner`, `users`, `id`, `gets`, `depth` and `epoch`. The store that
//! releases the word is the last touch.

mod condition;
mod getting;

use crate::foreign::{self, Sort};
use crate::instance::{Type, instance};
use crate::limit::Limit;
use crate::process;
use crate::profile::{self, Lock};
use crate::registry;
use crate::spots;
use crate::thread::Thread;
use crate::waiting::{self, Ask};
use getting::Getting;
use libc::{EAGAIN, EBUSY, EDEADLK, EPERM, ETIMEDOUT, c_int, pthread_mutex_t};
use retrial::interposer::{self, Target as _};
use retrial::sys::Errno;
use retrial::views::Word;
use retrial::{Mode, MutexId, sys};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

/// The record.
#[repr(C)]
pub(crate) struct PrivateMutex {
    word: AtomicU64,
    /// The holder's thread id, of sorts that know their owner and after a lock by libc's call; otherwise 0. A
    /// SID would not do: it may be that of a thread that died with the mutex, and be used again.
    owner: AtomicU32,
    /// [`condition::WAITER`] for each thread that gave it back to wait on a condition. Libc's calls past us
    /// count one up and one down.
    users: AtomicU32,
    kind: AtomicU32,
    /// Its number in the instance, 0 until a get that has missed has got it.
    id: AtomicU32,
    gets: AtomicU64,
    /// Of a recursive mutex: locks beyond the first. Of any other: a number from [`MADE`], by which it
    /// differs from other mutexes made at this address; 0 after a static initialiser.
    depth: AtomicU32,
    /// The [`process::epoch`] of the process whose gets and number these are.
    epoch: AtomicU32,
}

const _: () = assert!(size_of::<PrivateMutex>() <= size_of::<pthread_mutex_t>());
const _: () = assert!(std::mem::offset_of!(PrivateMutex, kind) == foreign::KIND);

/// The bits of the holder field that name the holder.
const SID: u64 = 0x00ff_ffff << 32;

/// Gets from one to the next that sees to what the figures need, and to threads that may have been missed at
/// libc's.
const SEEN_TO: u64 = 1024;

/// Libc's lock in the word: 0 when free, [`HELD`], or [`AWAITED`] when a thread waits for it by libc's call,
/// or for itself. With [`PERHAPS`] a thread may wait by libc's call.
const LOCK: u64 = 0xffff_ffff;
const HELD: u64 = 1;
const AWAITED: u64 = 2;
const PERHAPS: u64 = 4;

/// The kind, a bit of the futex, of a thread that waits for itself. Waits by libc's call are of all kinds.
const OWN: u32 = 1;

/// Mutexes made so far.
static MADE: AtomicU32 = AtomicU32::new(0);

impl PrivateMutex {
    /// The record in a mutex.
    ///
    /// # Safety
    ///
    /// There is a mutex at the address, for as long as the record is used.
    #[inline]
    pub(crate) unsafe fn at<'a>(mutex: *mut pthread_mutex_t) -> &'a Self {
        // SAFETY: large enough, as asserted above, aligned to 8 bytes at least, and all of it is atomics.
        unsafe { &*mutex.cast::<Self>() }
    }

    /// Makes a mutex a free one of this kind.
    ///
    /// # Safety
    ///
    /// There is room for a mutex at the address and nobody uses it.
    pub(crate) unsafe fn init(mutex: *mut pthread_mutex_t, kind: u32) {
        // SAFETY: the caller's.
        unsafe { mutex.write_bytes(0, 1) };
        // SAFETY: zeros are a record.
        let record = unsafe { Self::at(mutex) };
        record.kind.store(kind, Ordering::Relaxed);
        if kind & foreign::SORT != Sort::Recursive as u32 {
            record.depth.store(MADE.fetch_add(1, Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }

    #[inline]
    fn futex(&self) -> usize {
        // The upper half, on machines that have it second.
        self.word.as_ptr() as usize + 4
    }

    /// Libc's lock, the lower half of the word.
    fn libcs(&self) -> &AtomicU32 {
        // SAFETY: as in `futex_word`.
        unsafe { &*self.word.as_ptr().cast() }
    }

    fn futex_word(&self) -> &AtomicU32 {
        // SAFETY: the upper half of the word, aligned to 4 bytes; the kernel looks at it as such, and we do
        // so too.
        unsafe { &*(self.futex() as *const AtomicU32) }
    }

    /// Gets it if it is free and the thread is known: whether it did. The rest is for [`PrivateMutex::lock`].
    #[inline]
    pub(crate) fn lock_at_once(&self, sort: Sort, thread: &Thread) -> bool {
        let Some((me, session)) = thread.known() else { return false };
        // Acquire: what its last holder did (pairs with the Release in `release`). Relaxed on failure: looked
        // at again.
        if self.word.compare_exchange(0, me | HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        self.own(sort, thread);
        self.count_get();
        interposer::count_call(session, sort as usize);
        interposer::count_get(session);
        true
    }

    /// Gets it if it is free: whether it did.
    #[inline]
    fn lock_free(&self, sort: Sort, thread: &Thread) -> bool {
        let me = thread.me();
        // Acquire: as above.
        let is_free = self.word.compare_exchange(0, me | HELD, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if is_free {
            self.got(sort, thread);
        }
        is_free
    }

    /// Gets it. `Limit` is not looked at while it is free.
    pub(crate) fn lock(&self, sort: Sort, thread: &Thread, caller: usize, limit: Limit) -> c_int {
        if self.lock_free(sort, thread) { 0 } else { self.lock_slow(sort, thread, caller, limit) }
    }

    /// Notes that the thread has it.
    #[inline]
    fn own(&self, sort: Sort, thread: &Thread) {
        thread.got(self.word.as_ptr().addr());
        if sort.knows_owner() {
            self.owner.store(thread.tid(), Ordering::Relaxed);
        }
    }

    /// Whether it is the thread's, of a sort that knows its owner: by what libc goes by, which also knows of
    /// a lock past us.
    #[inline]
    fn is_own(&self, thread: &Thread) -> bool {
        self.owner.load(Ordering::Relaxed) == thread.tid()
    }

    /// Counts a get, and at the first and now and then sees to what has to be done then.
    #[inline]
    fn count_get(&self) {
        let gets = self.gets.load(Ordering::Relaxed);
        // No RMW: only the holder counts.
        self.gets.store(gets.wrapping_add(1), Ordering::Relaxed);
        if gets.is_multiple_of(SEEN_TO) {
            self.see_to();
        }
    }

    fn got(&self, sort: Sort, thread: &Thread) {
        self.own(sort, thread);
        self.count_get();
        thread.count(sort as usize, true);
        profile::got(thread, || self.as_lock());
    }

    /// What it is to a profile.
    fn as_lock(&self) -> Lock {
        Lock { address: self.word.as_ptr() as usize, mutex: self.number(), object: Type::Mutex, mode: Mode::Exclusive }
    }

    /// Its number in the instance; 0 while no get of this process has missed it.
    fn number(&self) -> MutexId {
        let is_own = self.epoch.load(Ordering::Relaxed) == process::epoch();
        MutexId(if is_own { self.id.load(Ordering::Relaxed) } else { 0 })
    }

    /// Whether the next unlock leaves it locked.
    pub(crate) fn is_deep(&self, sort: Sort) -> bool {
        sort == Sort::Recursive && self.depth.load(Ordering::Relaxed) != 0
    }

    /// Done by the holder at its first get, and now and then.
    #[cold]
    #[inline(never)]
    fn see_to(&self) {
        if self.gets.load(Ordering::Relaxed) > 1 {
            // A thread that began to wait by libc's call just as a release stored its word is woken by the
            // next release that finds this.
            self.libcs().fetch_or(PERHAPS as u32, Ordering::Relaxed);
        } else {
            self.epoch.store(process::epoch(), Ordering::Relaxed);
        }
    }

    /// Takes a number, done by the holder after its get has missed. The gets so far are its own, and go on
    /// from those of the mutexes that had the number before; in a child of fork they are the parent's, and
    /// forgotten.
    fn take_number(&self, number: MutexId) {
        if number == MutexId(0) || self.number() == number {
            return;
        }
        let is_own = self.epoch.load(Ordering::Relaxed) == process::epoch();
        let gets = if is_own { self.gets.load(Ordering::Relaxed) } else { 0 };
        let noted = instance().map_or(0, |instance| interposer::noted_gets(instance, number));
        self.gets.store(gets.wrapping_add(noted), Ordering::Relaxed);
        self.epoch.store(process::epoch(), Ordering::Relaxed);
        self.id.store(number.0, Ordering::Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, sort: Sort, thread: &Thread, caller: usize, limit: Limit) -> c_int {
        let _errno = Errno::keep();
        if sort.knows_owner() && self.is_own(thread) {
            return if sort == Sort::Recursive { self.deepen(thread) } else { EDEADLK };
        }
        let getting = || Getting::new(self, sort, thread);
        if !self.get_open(thread, &getting(), false) {
            // SAFETY: the moment is the caller's of the wrapper.
            let deadline = match unsafe { limit.deadline() } {
                Ok(deadline) => deadline,
                Err(error) => return error,
            };
            let number = Cell::new(MutexId(0));
            let ask = || {
                number.set(registry::number_of(Type::Mutex, self.word.as_ptr().addr()));
                let lock = Lock { mutex: number.get(), ..self.as_lock() };
                Ask { lock, caller }
            };
            if waiting::wait(thread, getting, ask, deadline).is_err() {
                return ETIMEDOUT;
            }
            self.take_number(number.get());
        }
        self.got(sort, thread);
        0
    }

    /// Gets a mutex that was open, but did not look so to the fast path. No miss. `handed`: also a mutex that
    /// was handed over.
    fn get_open(&self, thread: &Thread, getting: &Getting<'_>, handed: bool) -> bool {
        let Some(granted) = getting.try_get(handed) else { return false };
        if granted.has(Word::ATTENTION)
            && let (Some(instance), Some(_inside)) = (instance(), thread.enter())
        {
            thread.waiter(instance).adapt(getting, self.number(), Type::Mutex.id());
        }
        true
    }

    /// One more lock by the holder.
    fn deepen(&self, thread: &Thread) -> c_int {
        let depth = self.depth.load(Ordering::Relaxed);
        if depth == u32::MAX {
            return EAGAIN;
        }
        self.depth.store(depth + 1, Ordering::Relaxed);
        thread.count(Sort::Recursive as usize, false);
        0
    }

    /// Gets it if that needs no waiting.
    pub(crate) fn trylock(&self, sort: Sort, thread: &Thread) -> c_int {
        if self.lock_free(sort, thread) { 0 } else { self.trylock_slow(sort, thread) }
    }

    #[cold]
    #[inline(never)]
    fn trylock_slow(&self, sort: Sort, thread: &Thread) -> c_int {
        let _errno = Errno::keep();
        if sort == Sort::Recursive && self.is_own(thread) {
            return self.deepen(thread);
        }
        // Also a mutex that was handed over: a thread that tries again and again may keep the thread from
        // running that it was handed to.
        if self.get_open(thread, &Getting::new(self, sort, thread), true) {
            self.got(sort, thread);
            return 0;
        }
        thread.count(sort as usize, false);
        EBUSY
    }

    /// Gives one lock back.
    #[inline]
    pub(crate) fn unlock(&self, sort: Sort, thread: &Thread) -> c_int {
        if sort.knows_owner() {
            if !self.is_own(thread) {
                return EPERM;
            }
            if self.is_deep(sort) {
                self.depth.store(self.depth.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
                return 0;
            }
        }
        // Of every sort: a lock by libc's call has set it.
        self.owner.store(0, Ordering::Relaxed);
        self.release(thread);
        0
    }

    /// Gives it back.
    #[inline]
    fn release(&self, thread: &Thread) {
        let word = Word(self.word.load(Ordering::Relaxed));
        let futex = self.futex();
        let spot = spots::at(futex);
        let hands_over = spot.is_busy() && spot.hands_over(futex, self.gets.load(Ordering::Relaxed));
        let handover = if hands_over { Word::HANDOVER } else { 0 };
        // Release: pairs with the exchange of the next get. No RMW: only the holder changes the word. A
        // thread that waits by libc's call, past this library, looks again, or at the worst sleeps on.
        self.word.store(word.released().0 & !LOCK | handover, Ordering::Release);
        // From here on there may be no mutex any more.
        compiler_fence(Ordering::SeqCst);
        let mut kinds = if word.0 & AWAITED != 0 {
            u32::MAX
        } else if word.0 & PERHAPS != 0 {
            !OWN
        } else {
            0
        };
        if spot.is_busy() {
            spot.wake_after(futex, hands_over);
            // This store has erased the mark of a thread that began to wait for itself after the look at the
            // word above.
            if spots::have_own_waiters() {
                kinds |= OWN;
            }
        }
        if kinds != 0 {
            sys::futex_wake_private(self.word.as_ptr().cast(), 1, kinds);
        }
        thread.gave_back();
    }

    /// Ends its life, unless it is held or waited with. Later calls find a kind that is none, as with libc.
    pub(crate) fn destroy(&self) -> c_int {
        if self.word.load(Ordering::Relaxed) & LOCK != 0 || self.has_users() {
            return EBUSY;
        }
        let number = self.number();
        if number != MutexId(0)
            && let Some(instance) = instance()
        {
            // SAFETY: its memory is given up; sessions of the interposer write no log.
            unsafe { interposer::retire_mutex(instance, number, Some(self.gets.load(Ordering::Relaxed))) };
        }
        self.kind.store(u32::MAX, Ordering::Relaxed);
        0
    }

    /// The number and gets in a copy of a record of this process, `None` when the copy is no such record.
    pub(crate) fn read(copy: &[u8; size_of::<Self>()]) -> Option<(MutexId, u64)> {
        // SAFETY: a record is atomics only, of which any bytes are values.
        let record = unsafe { copy.as_ptr().cast::<Self>().read_unaligned() };
        let (id, gets) = (record.id.into_inner(), record.gets.into_inner());
        let is_one = matches!(foreign::class(record.kind.into_inner()), foreign::Class::Private(_))
            && record.word.into_inner() & LOCK <= HELD | AWAITED | PERHAPS
            && (gets == 0 || record.epoch.into_inner() == process::epoch());
        is_one.then_some((MutexId(id), gets))
    }
}
