//! The peers: each a mutex around a number.

use retrial::{Capacity, Class, Instance, Mode, Mutex, P, Patience, Session, location, sys};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A mutex around a number.
pub trait Peer: Sync + Sized {
    const NAME: &'static str;
    /// What a thread needs before its first get.
    type Session;

    /// A new one, for so many threads.
    fn new(threads: u32) -> Self;
    fn session(&self) -> Self::Session;
    /// Gets it, does something with the number, releases it.
    fn with(&self, session: &Self::Session, f: impl FnOnce(&mut u64));
}

/// What there is at the least: a compare-exchange and a store. Spins when it is busy.
#[derive(Default)]
#[repr(align(64))]
pub struct Bare {
    word: AtomicU64,
    value: UnsafeCell<u64>,
}

// SAFETY: the value is only touched by whoever has set the word.
unsafe impl Sync for Bare {}

impl Bare {
    #[inline(always)]
    #[allow(clippy::inline_always)]
    fn get(&self, f: impl FnOnce(&mut u64)) {
        while self.word.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            std::hint::spin_loop();
        }
        // SAFETY: the exchange gave it to us alone.
        f(unsafe { &mut *self.value.get() });
    }
}

impl Peer for Bare {
    const NAME: &'static str = "compare-exchange + store";
    type Session = ();

    fn new(_: u32) -> Self {
        Self::default()
    }

    fn session(&self) {}

    #[inline]
    fn with(&self, (): &(), f: impl FnOnce(&mut u64)) {
        self.get(f);
        self.word.store(0, Ordering::Release);
    }
}

/// The same with a second locked instruction, as futex mutexes release.
#[derive(Default)]
pub struct TwoExchanges(Bare);

impl Peer for TwoExchanges {
    const NAME: &'static str = "compare-exchange + exchange";
    type Session = ();

    fn new(_: u32) -> Self {
        Self::default()
    }

    fn session(&self) {}

    #[inline]
    fn with(&self, (): &(), f: impl FnOnce(&mut u64)) {
        self.0.get(f);
        black_box(self.0.word.swap(0, Ordering::Release));
    }
}

/// Ours, in an anonymous instance that lives as long as the process.
pub struct Ours {
    instance: &'static Instance,
    mutex: Mutex<'static, u64>,
}

impl Ours {
    pub fn with_scheme(threads: u32, scheme: usize) -> Self {
        let capacity = Capacity { sessions: threads + 2, mutexes: 8, locations: 16, rows: 8, arena: 4096 };
        let instance: &'static Instance = Box::leak(Box::new(Instance::anonymous(capacity).expect("an instance")));
        instance.set(P::Scheme, None, scheme as u64);
        Self { instance, mutex: instance.mutex("bench", "bench", || 0).expect("a mutex") }
    }

    fn new_session(&self) -> Session<'static> {
        self.instance.session("bench", Class::Normal).expect("a session")
    }
}

/// X by the endless get.
pub struct Exclusive(Ours);

impl Peer for Exclusive {
    const NAME: &'static str = "retrial X";
    type Session = Session<'static>;

    fn new(threads: u32) -> Self {
        Self(Ours::with_scheme(threads, retrial::wait::DEFAULT))
    }

    fn session(&self) -> Session<'static> {
        self.0.new_session()
    }

    #[inline]
    fn with(&self, session: &Session<'static>, f: impl FnOnce(&mut u64)) {
        f(&mut self.0.mutex.exclusive(session, location!("bench: X")).expect("nobody dies"));
    }
}

/// X by the get with a deadline.
pub struct Timed(Ours, sys::Deadline);

impl Peer for Timed {
    const NAME: &'static str = "retrial X, with a deadline";
    type Session = Session<'static>;

    fn new(threads: u32) -> Self {
        let never = sys::Deadline::after(Duration::from_secs(1 << 30));
        Self(Ours::with_scheme(threads, retrial::wait::DEFAULT), never)
    }

    fn session(&self) -> Session<'static> {
        self.0.new_session()
    }

    #[inline]
    fn with(&self, session: &Session<'static>, f: impl FnOnce(&mut u64)) {
        let patience = Patience::Until(self.1);
        let at = location!("bench: X, timed");
        f(&mut self.0.mutex.get(session, Mode::Exclusive, at, patience).expect("nobody dies"));
    }
}

/// S: reads.
pub struct Shared(Ours);

impl Peer for Shared {
    const NAME: &'static str = "retrial S";
    type Session = Session<'static>;

    fn new(threads: u32) -> Self {
        Self(Ours::with_scheme(threads, retrial::wait::DEFAULT))
    }

    fn session(&self) -> Session<'static> {
        self.0.new_session()
    }

    #[inline]
    fn with(&self, session: &Session<'static>, f: impl FnOnce(&mut u64)) {
        let guard = self.0.mutex.shared(session, location!("bench: S")).expect("nobody dies");
        let mut copy = *guard;
        f(&mut copy);
        black_box(copy);
    }
}

/// X under a scheme, by its position.
pub struct Scheme<const S: usize>(Ours);

impl<const S: usize> Peer for Scheme<S> {
    const NAME: &'static str = retrial::wait::NAMES[S];
    type Session = Session<'static>;

    fn new(threads: u32) -> Self {
        Self(Ours::with_scheme(threads, S))
    }

    fn session(&self) -> Session<'static> {
        self.0.new_session()
    }

    #[inline]
    fn with(&self, session: &Session<'static>, f: impl FnOnce(&mut u64)) {
        f(&mut self.0.mutex.exclusive(session, location!("bench: scheme")).expect("nobody dies"));
    }
}

impl Peer for std::sync::Mutex<u64> {
    const NAME: &'static str = "std::sync::Mutex";
    type Session = ();

    fn new(_: u32) -> Self {
        Self::default()
    }

    fn session(&self) {}

    #[inline]
    fn with(&self, (): &(), f: impl FnOnce(&mut u64)) {
        f(&mut self.lock().expect("nobody panics"));
    }
}

impl Peer for parking_lot::Mutex<u64> {
    const NAME: &'static str = "parking_lot::Mutex";
    type Session = ();

    fn new(_: u32) -> Self {
        Self::default()
    }

    fn session(&self) {}

    #[inline]
    fn with(&self, (): &(), f: impl FnOnce(&mut u64)) {
        f(&mut self.lock());
    }
}

const DEFAULT: u8 = 0;
const ADAPTIVE: u8 = 1;
const ROBUST_SHARED: u8 = 2;

/// A pthread mutex of the system's C library, of this kind.
#[repr(align(64))]
pub struct Pthread<const KIND: u8> {
    mutex: Box<UnsafeCell<libc::pthread_mutex_t>>,
    value: UnsafeCell<u64>,
}

pub type PthreadDefault = Pthread<DEFAULT>;
pub type PthreadAdaptive = Pthread<ADAPTIVE>;
pub type PthreadRobust = Pthread<ROBUST_SHARED>;

// SAFETY: a pthread mutex is made for many threads, and the value is only touched by whoever holds it.
unsafe impl<const KIND: u8> Sync for Pthread<KIND> {}

/// Of glibc: spins for a while before it sleeps.
const PTHREAD_MUTEX_ADAPTIVE_NP: libc::c_int = 3;

impl<const KIND: u8> Peer for Pthread<KIND> {
    const NAME: &'static str = ["pthread default", "pthread adaptive", "pthread robust, process-shared"][KIND as usize];
    type Session = ();

    fn new(_: u32) -> Self {
        let mutex = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attr = attributes.as_mut_ptr();
        // SAFETY: `attr` is writable.
        let mut failed = unsafe { libc::pthread_mutexattr_init(attr) };
        if KIND == ADAPTIVE {
            // SAFETY: made above.
            failed |= unsafe { libc::pthread_mutexattr_settype(attr, PTHREAD_MUTEX_ADAPTIVE_NP) };
        }
        if KIND == ROBUST_SHARED {
            // SAFETY: made above.
            failed |= unsafe { libc::pthread_mutexattr_setrobust(attr, libc::PTHREAD_MUTEX_ROBUST) };
            // SAFETY: made above.
            failed |= unsafe { libc::pthread_mutexattr_setpshared(attr, libc::PTHREAD_PROCESS_SHARED) };
        }
        // SAFETY: nobody uses the mutex yet.
        failed |= unsafe { libc::pthread_mutex_init(mutex.get(), attr) };
        assert_eq!(failed, 0, "the C library makes a {}", Self::NAME);
        Self { mutex, value: UnsafeCell::new(0) }
    }

    fn session(&self) {}

    #[inline]
    fn with(&self, (): &(), f: impl FnOnce(&mut u64)) {
        // SAFETY: initialised by `new`, and boxed, so that it has not moved.
        let locked = unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        assert_eq!(locked, 0, "nobody dies");
        // SAFETY: we hold the mutex.
        f(unsafe { &mut *self.value.get() });
        // SAFETY: we hold it.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
    }
}
