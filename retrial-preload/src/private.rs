//! Mutexes of one process that are not robust: our own record, in the bytes of the `pthread_mutex_t`.
//!
//! ```text
//!  0      8       12      16     20   24     32      36
//! +------+-------+-------+------+----+------+-------+-------+
//! | word | owner | users | kind | id | gets | depth | epoch |
//! +------+-------+-------+------+----+------+-------+-------+
//! ```
//!
//! The word is [`retrial::views::Word`]; its upper half, the holder field, is the futex. `owner`, `users` and `kind` mean what they mean to
//! libc and are where libc has them: it looks at the first and counts itself in the second while it holds the mutex.
//! All zeros, as the static initialisers make it but for `kind`, is a free mutex, and a free mutex of ours is a free one
//! of libc's. So is a held one: the lower half, where nobody counts references to these, is libc's lock, and who calls libc past
//! us, in this process, excludes us and is excluded.
//!
//! Only the holder changes the word, `owner`, `users`, `id`, `gets`, `depth` and `epoch`. The store that releases the word is the last touch.

use crate::foreign::{self, Sort};
use crate::limit::Limit;
use crate::process::{self, Type};
use crate::profile::{self, Lock};
use crate::real::Errno;
use crate::registry;
use crate::spots::{self, Parks, Spot};
use crate::thread::Thread;
use crate::waiting::{self, Ask};
use libc::{EAGAIN, EBUSY, EDEADLK, EPERM, ETIMEDOUT, c_int, pthread_mutex_t};
use retrial::interposer::{self, Park, Parked, Target};
use retrial::parking::HANDOVER_LASTS;
use retrial::views::{Sid, Word};
use retrial::{Mode, MutexId, sys};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};
use std::time::Duration;

/// The record.
#[repr(C)]
pub(crate) struct PrivateMutex {
    word: AtomicU64,
    /// The holder's thread id, of sorts that know their owner and after a lock by libc's call; otherwise 0. A SID would not do: it may
    /// be that of a thread that died with the mutex, and be used again.
    owner: AtomicU32,
    /// [`WAITER`] for each thread that gave it back to wait on a condition. Libc's calls past us count one up and one down.
    users: AtomicU32,
    kind: AtomicU32,
    /// Its number in the instance, 0 until a get that has missed has got it.
    id: AtomicU32,
    gets: AtomicU64,
    /// Of a recursive one: locks beyond the first. Of the others: which mutex it is of those that were made at this address, by a number
    /// from [`MADE`]; 0 after a static initialiser.
    depth: AtomicU32,
    /// The [`process::epoch`] of the process whose gets and number these are.
    epoch: AtomicU32,
}

const _: () = assert!(size_of::<PrivateMutex>() <= size_of::<pthread_mutex_t>());
const _: () = assert!(std::mem::offset_of!(PrivateMutex, kind) == foreign::KIND);

/// The bits of the holder field that name the holder.
const SID: u64 = 0x00ff_ffff << 32;

/// A thread will come back to it from a condition, and it may not be destroyed. Above what a lock by libc's call and an unlock by
/// ours, or the other way round, leave in the count.
const WAITER: u32 = 1 << 16;

/// Gets from one to the next that sees to what the figures need, and to who may have been missed at libc's.
const SEEN_TO: u64 = 1024;

/// Libc's lock in the word: 0 when free, [`HELD`], or [`AWAITED`] when a thread waits for it by libc's call, or for itself. With
/// [`PERHAPS`] a thread may wait by libc's call.
const LOCK: u64 = 0xffff_ffff;
const HELD: u64 = 1;
const AWAITED: u64 = 2;
const PERHAPS: u64 = 4;

/// The kind, a bit of the futex, of a thread that waits for itself. Waits by libc's call are of all kinds.
const OWN: u32 = 1;

/// What nobody wakes.
static NEVER: AtomicU32 = AtomicU32::new(AWAITED as u32);

/// Mutexes made so far.
static MADE: AtomicU32 = AtomicU32::new(0);

/// Between two looks at a mutex that was got past us: nobody wakes us.
const NAP: Duration = Duration::from_millis(1);

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
        // SAFETY: the upper half of the word, aligned to 4 bytes; the kernel looks at it as such, and we do so too.
        unsafe { &*(self.futex() as *const AtomicU32) }
    }

    /// Gets it if it is free and the thread is known: whether it did. The rest is for [`PrivateMutex::lock`].
    #[inline]
    pub(crate) fn lock_at_once(&self, sort: Sort, thread: &Thread) -> bool {
        let Some((me, session)) = thread.known() else { return false };
        // Acquire: what its last holder did (pairs with the Release in `release`). Relaxed on failure: looked at again.
        if self.word.compare_exchange(0, me | HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        self.own(sort, thread);
        self.count_get();
        interposer::count_call(session, sort as usize);
        interposer::count_get(session);
        true
    }

    /// Gets it. `Limit` is not looked at while it is free.
    pub(crate) fn lock(&self, sort: Sort, thread: &Thread, caller: usize, limit: Limit) -> c_int {
        let me = thread.me();
        // Acquire: as above.
        if self.word.compare_exchange(0, me | HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            self.got(sort, thread);
            return 0;
        }
        self.lock_slow(sort, thread, caller, limit)
    }

    /// Notes whose it is.
    #[inline]
    fn own(&self, sort: Sort, thread: &Thread) {
        thread.got(self.word.as_ptr().addr());
        if sort.knows_owner() {
            self.owner.store(thread.tid(), Ordering::Relaxed);
        }
    }

    /// Whether it is the thread's, of a sort that knows its owner: by what libc goes by, which also knows of a lock past us.
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
        Lock { address: self.word.as_ptr() as usize, mutex: self.number(), kind: Type::Mutex, mode: Mode::Exclusive }
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
            // A thread that began to wait by libc's call just as a release stored its word is woken by the next one that finds this.
            self.libcs().fetch_or(PERHAPS as u32, Ordering::Relaxed);
        } else {
            self.epoch.store(process::epoch(), Ordering::Relaxed);
        }
    }

    /// Takes a number, done by the holder after its get has missed. The gets so far are its own, and go on from those of the
    /// mutexes that had the number before; in a child of fork they are the parent's, and forgotten.
    fn take_number(&self, number: MutexId) {
        if number == MutexId(0) || self.number() == number {
            return;
        }
        let is_own = self.epoch.load(Ordering::Relaxed) == process::epoch();
        let gets = if is_own { self.gets.load(Ordering::Relaxed) } else { 0 };
        let noted = process::instance().map_or(0, |instance| interposer::noted_gets(instance, number));
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
        let getting = Getting::new(self, sort, thread);
        if !self.get_open(thread, &getting, false) {
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
            if waiting::wait(thread, &getting, ask, deadline).is_err() {
                return ETIMEDOUT;
            }
            self.take_number(number.get());
        }
        self.got(sort, thread);
        0
    }

    /// Gets a mutex that was open, but did not look so to the fast path. No miss. `handed`: also one that was handed over.
    fn get_open(&self, thread: &Thread, getting: &Getting<'_>, handed: bool) -> bool {
        let Some(granted) = getting.try_get(handed) else { return false };
        if granted.has(Word::ATTENTION)
            && let (Some(instance), Some(_inside)) = (process::instance(), thread.enter())
        {
            waiting::waiter(instance, thread).adapt(getting, self.number(), Type::Mutex.id());
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
        let me = thread.me();
        // Acquire: as in `lock`.
        if self.word.compare_exchange(0, me | HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            self.got(sort, thread);
            return 0;
        }
        self.trylock_slow(sort, thread)
    }

    #[cold]
    #[inline(never)]
    fn trylock_slow(&self, sort: Sort, thread: &Thread) -> c_int {
        let _errno = Errno::keep();
        if sort == Sort::Recursive && self.is_own(thread) {
            return self.deepen(thread);
        }
        // Also one that was handed over: whoever tries again and again may keep those from running that it was handed to.
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
        // Release: pairs with the exchange of the next get. No RMW: only the holder changes the word, and who comes past us
        // looks again, or at the worst sleeps on.
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
            // One that began to wait for itself between our look at the word and our store is not in the word any more.
            if spots::have_own_waiters() {
                kinds |= OWN;
            }
        }
        if kinds != 0 {
            wake_at_libcs(self.word.as_ptr().addr(), kinds);
        }
        thread.gave_back();
    }

    /// Gives all locks back, for a wait on a condition: how many there were beyond the first.
    ///
    /// # Errors
    ///
    /// `EPERM` when it is not the caller's, and it would be noticed.
    pub(crate) fn release_all(&self, sort: Sort, thread: &Thread) -> Result<u32, c_int> {
        if sort.knows_owner() && !self.is_own(thread) {
            return Err(EPERM);
        }
        let depth = if sort == Sort::Recursive { self.depth.load(Ordering::Relaxed) } else { 0 };
        if depth != 0 {
            self.depth.store(0, Ordering::Relaxed);
        }
        self.owner.store(0, Ordering::Relaxed);
        self.users.store(self.users.load(Ordering::Relaxed).wrapping_add(WAITER), Ordering::Relaxed);
        self.release(thread);
        Ok(depth)
    }

    /// After the get that followed `release_all`.
    pub(crate) fn come_back(&self, depth: u32) {
        self.users.store(self.users.load(Ordering::Relaxed).wrapping_sub(WAITER), Ordering::Relaxed);
        if depth != 0 {
            self.depth.store(depth, Ordering::Relaxed);
        }
    }

    /// Whether a thread will come back to it from a condition.
    fn has_users(&self) -> bool {
        self.users.load(Ordering::Relaxed).wrapping_add(WAITER / 2) >= WAITER
    }

    /// Ends its life, unless it is held or waited with. Later calls find a kind that is none, as with libc.
    pub(crate) fn destroy(&self) -> c_int {
        if self.word.load(Ordering::Relaxed) & LOCK != 0 || self.has_users() {
            return EBUSY;
        }
        let number = self.number();
        if number != MutexId(0)
            && let Some(instance) = process::instance()
        {
            // SAFETY: its memory is given up; sessions of the interposer write no log.
            unsafe { interposer::retire_mutex(instance, number, Some(self.gets.load(Ordering::Relaxed))) };
        }
        self.kind.store(u32::MAX, Ordering::Relaxed);
        0
    }

    /// The number and gets in a copy of a record, `None` when it is none of ours.
    pub(crate) fn read(copy: &[u8; size_of::<Self>()]) -> Option<(MutexId, u64)> {
        let (words, _) = copy.as_chunks::<8>();
        let (kind_and_id, gets) = (u64::from_ne_bytes(words[2]), u64::from_ne_bytes(words[3]));
        let (kind, id) = (kind_and_id as u32, (kind_and_id >> 32) as u32);
        matches!(foreign::class(kind), foreign::Class::Private(_)).then_some((MutexId(id), gets))
    }
}

/// Wakes a thread of these kinds that waits for libc's lock.
#[cold]
#[inline(never)]
fn wake_at_libcs(lock: usize, kinds: u32) {
    let _errno = Errno::keep();
    let op = libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a wake only hashes the address; a bad one gives an error. Time and second address are not used.
    unsafe { libc::syscall(libc::SYS_futex, lock, op, 1, 0usize, 0usize, kinds) };
}

/// Waits for a release that finds libc's lock awaited, at most until `end` by the monotonic clock: whether that has not passed.
fn wait_at_libcs(lock: &AtomicU32, end: Option<&libc::timespec>, kinds: u32) -> bool {
    let (op, end) =
        (libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG, end.map_or(std::ptr::null(), std::ptr::from_ref));
    // SAFETY: the lock is a live aligned 32-bit word and `end` null or readable; the second address is not used.
    let rc = unsafe { libc::syscall(libc::SYS_futex, lock.as_ptr(), op, AWAITED as u32, end, 0usize, kinds) };
    rc == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ETIMEDOUT)
}

/// A thread that wants a mutex.
struct Getting<'a> {
    mutex: &'a PrivateMutex,
    me: u64,
    /// What its parks have to tell the next one.
    parks: Parks,
    /// Whether the thread has the mutex already, of a sort that does not say so.
    is_own: bool,
    /// The mutex's number when the wait began, `None` of sorts without.
    number: Option<u32>,
    /// Whether the memory was seen to be another mutex, which is not looked at again.
    is_gone: Cell<bool>,
}

impl<'a> Getting<'a> {
    fn new(mutex: &'a PrivateMutex, sort: Sort, thread: &Thread) -> Self {
        // `me` first: it finds out.
        let me = thread.me();
        let word = mutex.word.load(Ordering::Relaxed);
        Self {
            mutex,
            me,
            parks: Parks::default(),
            is_own: !sort.knows_owner() && word & LOCK != 0 && word & SID == me,
            number: (sort != Sort::Recursive).then(|| mutex.depth.load(Ordering::Relaxed)),
            is_gone: Cell::new(false),
        }
    }

    /// Whether the memory has become another mutex since the wait began.
    fn is_gone(&self) -> bool {
        let is_gone = || self.number.is_some_and(|number| self.mutex.depth.load(Ordering::Relaxed) != number);
        if !self.is_gone.get() && is_gone() {
            self.is_gone.set(true);
        }
        self.is_gone.get()
    }

    /// Waits for a mutex that this thread holds, as libc does: for a release by another thread. One that does not find [`AWAITED`] in the
    /// word yet finds the spot busy; or its store is visible to the exchange here.
    fn park_beside_oneself(&self, timeout: Duration) -> Parked<Word> {
        let lock = self.mutex.libcs();
        let end = Duration::from_nanos(sys::now_ns()).checked_add(timeout).map(|end| libc::timespec {
            tv_sec: end.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: end.subsec_nanos().into(),
        });
        if !self.spot().expect_own_waiters() {
            // The kernel has no barrier: releases have a fence from now on, and those under way are done after a nap.
            spots::fence_all();
            sys::sleep(timeout.min(NAP));
        }
        // Acquire: what its last holder did (pairs with the Release in `release`).
        while self.is_gone() || lock.swap(AWAITED as u32, Ordering::Acquire) != 0 {
            // A mutex that is new in the same memory is not looked at, and the old one will never be released.
            let lock = if self.is_gone() { &NEVER } else { lock };
            if !wait_at_libcs(lock, end.as_ref(), OWN) {
                return Parked::TimedOut;
            }
        }
        // The lower half is this thread's, so the word is: a plain store.
        let word = self.mutex.word.load(Ordering::Relaxed) & !SID | self.me;
        self.mutex.word.store(word, Ordering::Relaxed);
        Parked::Got(Word(word))
    }

    fn spot(&self) -> &'static Spot {
        spots::at(self.mutex.futex())
    }

    /// Whether no handover keeps it from this thread, which may take one if it is `handed`.
    fn may_have(&self, word: Word, handed: bool) -> bool {
        handed || !word.has(Word::HANDOVER) || !self.spot().is_awaited(self.mutex.futex())
    }
}

impl Target for Getting<'_> {
    type Got = Word;

    fn is_open(&self, handed: bool) -> bool {
        let word = Word(self.mutex.word.load(Ordering::Relaxed));
        !self.is_gone() && word.0 & LOCK == 0 && self.may_have(word, handed)
    }

    fn try_get(&self, handed: bool) -> Option<Word> {
        if self.is_gone() {
            return None;
        }
        let word = Word(self.mutex.word.load(Ordering::Relaxed));
        // An unlock by libc's call leaves the name of its holder.
        let left = if word.0 & LOCK == 0 { word.without(SID) } else { word };
        let handed = self.may_have(left, handed);
        let granted = left.grant(Sid::new((self.me >> 32) as u32), Mode::Exclusive, handed)?;
        let granted = Word(granted.0 | HELD);
        // Acquire: as in `lock`.
        self.mutex.word.compare_exchange(word.0, granted.0, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(granted)
    }

    fn park(&self, how: Park) -> Parked<Word> {
        if self.is_own {
            return self.park_beside_oneself(how.left);
        }
        // None of a mutex that is gone: nobody wakes us.
        let word = if self.is_gone() { HELD } else { self.mutex.word.load(Ordering::Relaxed) };
        if word & SID == 0 && word & LOCK != 0 {
            self.ended(true);
            sys::sleep(if self.is_gone() { how.timeout.min(how.left) } else { how.left.min(NAP) });
            return Parked::TimedOut;
        }
        let is_busy = |holder_field: u32| {
            let word = Word(u64::from(holder_field) << 32);
            word.0 & SID != 0 || !self.may_have(word, how.handed)
        };
        // Who has it handed over may have no processor.
        let left = if self.may_have(Word(word), how.handed) { how.left } else { how.left.min(HANDOVER_LASTS) };
        self.spot().park(self.mutex.futex_word(), is_busy, Park { left, ..how }, &self.parks)
    }

    fn ended(&self, got: bool) {
        self.spot().ended(self.mutex.futex(), got, &self.parks);
    }

    fn parks_at_once(&self) -> bool {
        self.is_own
    }

    fn ask_for_handover(&self, now_ns: u64, interval: Duration) {
        self.spot().ask_for_handover(now_ns, interval);
    }

    fn parked(&self) -> u32 {
        self.spot().parked()
    }

    fn blocker(&self) -> (Sid, bool) {
        (Word(self.mutex.word.load(Ordering::Relaxed)).sid(), true)
    }

    fn gets(&self) -> u64 {
        self.mutex.gets.load(Ordering::Relaxed)
    }

    fn set_attention(&self, on: bool) {
        let word = Word(self.mutex.word.load(Ordering::Relaxed));
        let word = if on { word.with(Word::ATTENTION) } else { word.without(Word::ATTENTION) };
        // The caller is the holder; libc's waiters change the other half.
        self.mutex.futex_word().store((word.0 >> 32) as u32, Ordering::Relaxed);
    }

    fn wake_all(&self) {
        self.spot().wake_all(self.mutex.futex_word());
    }
}
