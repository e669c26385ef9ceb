//! [`lock_api`] on retrial mutexes: `Mutex<T>` and `RwLock<T>` as other lock crates have them.
//!
//! These locks belong to an anonymous instance of the process, with parameters and figures like any other:
//! [`instance()`]. Each thread becomes a session at its first lock. A lock is registered at its first lock, under the type
//! `lock_api`; when the table of mutexes is full, later ones work without figures of their own. A lock whose guard was leaked
//! stays locked when its thread ends: what it protects may have been leaked with it.
//!
//! ```
//! use retrial::raw::{Mutex, RwLock};
//!
//! static HITS: Mutex<u64> = Mutex::new(0);
//! *HITS.lock() += 1;
//! let names = RwLock::new(vec!["a"]);
//! assert_eq!((names.read().len(), *HITS.lock()), (1, 1));
//! ```

use crate::aol::MutexId;
use crate::error::GetError;
use crate::instance::Instance;
use crate::mode::Mode;
use crate::mutex::{Hold, Patience};
use crate::segment::Capacity;
use crate::session::{Class, Session};
use crate::sys::Deadline;
use crate::tables::Place;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A [`lock_api::Mutex`] on a retrial mutex.
pub type Mutex<T> = lock_api::Mutex<RawLock, T>;
/// A [`lock_api::RwLock`] on a retrial mutex.
pub type RwLock<T> = lock_api::RwLock<RawLock, T>;

/// The instance that the locks of this module belong to.
///
/// # Panics
///
/// When shared memory for it cannot be had.
pub fn instance() -> &'static Instance {
    static INSTANCE: OnceLock<Instance> = OnceLock::new();
    INSTANCE.get_or_init(|| {
        let capacity = Capacity { sessions: 16_384, ..Capacity::default() };
        Instance::anonymous(capacity).expect("an anonymous instance can be made")
    })
}

thread_local! {
    // Nothing to drop, so that locks work in destructors of other thread-locals; the kernel notes the thread's end.
    static SESSION: RefCell<Option<ManuallyDrop<Session<'static>>>> = const { RefCell::new(None) };
}

fn with_session<R>(f: impl FnOnce(&Session<'static>) -> R) -> R {
    SESSION.with(|cell| {
        if cell.borrow().as_ref().is_none_or(|session| session.is_parents()) {
            let name = std::thread::current().name().unwrap_or("").to_owned();
            let session = instance().session(&name, Class::Detect).expect("a thread can become a session");
            cell.replace(Some(ManuallyDrop::new(session)));
        }
        f(cell.borrow().as_ref().expect("made above if it was not there"))
    })
}

/// The lock behind [`Mutex`] and [`RwLock`].
#[derive(Debug)]
pub struct RawLock(crate::mutex::RawMutex);

impl RawLock {
    fn get(&self, mode: Mode, patience: Patience) -> bool {
        with_session(|session| {
            if self.0.id().0 == 0 {
                self.register();
            }
            match self.0.get(session, mode, crate::location!("lock_api"), patience) {
                Ok(hold) => {
                    std::mem::forget(hold);
                    true
                }
                Err(GetError::Busy | GetError::TimedOut) => false,
                Err(error) => {
                    // A trylock of what one holds is just busy.
                    assert!(patience == Patience::None && matches!(error, GetError::Deadlock { .. }), "{error}");
                    false
                }
            }
        })
    }

    #[cold]
    fn register(&self) {
        let instance = instance();
        let mutex_type = instance.register_type("lock_api").unwrap_or_default();
        let registered = instance.register_mutex(mutex_type, Place::Process, self.0.address(), "");
        // For good: a lock that got an id while it is held could not be released by it.
        let id = registered.unwrap_or(MutexId::OVERFLOW);
        if !self.0.adopt_once(instance, id, mutex_type) && id != MutexId::OVERFLOW {
            instance.unregister_mutex(id);
        }
    }

    /// # Safety
    ///
    /// The calling thread holds the lock in this mode.
    unsafe fn release(&self, mode: Mode) {
        // In a child of fork: not its own.
        with_session(|session| drop(self.0.resume(session, mode)));
    }

    fn hold<'a>(&'a self, session: &'a Session<'a>, mode: Mode) -> Hold<'a> {
        self.0.resume(session, mode).expect("the calling thread holds the lock that it releases")
    }
}

impl Drop for RawLock {
    fn drop(&mut self) {
        if self.0.id().0 != 0 {
            instance().unregister_mutex(self.0.id());
        }
    }
}

// SAFETY: exclusive while X is held; guards stay on their thread, as the marker says.
unsafe impl lock_api::RawMutex for RawLock {
    #[allow(clippy::declare_interior_mutable_const)] // what the trait asks for
    const INIT: Self = Self(crate::mutex::RawMutex::new());
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        self.get(Mode::Exclusive, Patience::Endless);
    }

    fn try_lock(&self) -> bool {
        self.get(Mode::Exclusive, Patience::None)
    }

    unsafe fn unlock(&self) {
        // SAFETY: the caller's.
        unsafe { self.release(Mode::Exclusive) };
    }

    fn is_locked(&self) -> bool {
        !self.0.load().sid().is_none()
    }
}

fn until(instant: Instant) -> Patience {
    within(instant.saturating_duration_since(Instant::now()))
}

fn within(time: Duration) -> Patience {
    Patience::Until(Deadline::after(time))
}

// SAFETY: as above.
unsafe impl lock_api::RawMutexTimed for RawLock {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.get(Mode::Exclusive, within(timeout))
    }

    fn try_lock_until(&self, timeout: Instant) -> bool {
        self.get(Mode::Exclusive, until(timeout))
    }
}

// SAFETY: X excludes X and S.
unsafe impl lock_api::RawRwLock for RawLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(crate::mutex::RawMutex::new());
    type GuardMarker = lock_api::GuardNoSend;

    fn lock_shared(&self) {
        self.get(Mode::Shared, Patience::Endless);
    }

    fn try_lock_shared(&self) -> bool {
        self.get(Mode::Shared, Patience::None)
    }

    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller's.
        unsafe { self.release(Mode::Shared) };
    }

    fn lock_exclusive(&self) {
        self.get(Mode::Exclusive, Patience::Endless);
    }

    fn try_lock_exclusive(&self) -> bool {
        self.get(Mode::Exclusive, Patience::None)
    }

    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller's.
        unsafe { self.release(Mode::Exclusive) };
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockTimed for RawLock {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        self.get(Mode::Shared, within(timeout))
    }

    fn try_lock_shared_until(&self, timeout: Instant) -> bool {
        self.get(Mode::Shared, until(timeout))
    }

    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        self.get(Mode::Exclusive, within(timeout))
    }

    fn try_lock_exclusive_until(&self, timeout: Instant) -> bool {
        self.get(Mode::Exclusive, until(timeout))
    }
}

// SAFETY: X becomes S without letting anybody in between.
unsafe impl lock_api::RawRwLockDowngrade for RawLock {
    unsafe fn downgrade(&self) {
        with_session(|session| {
            let mut hold = self.hold(session, Mode::Exclusive);
            hold.share();
            std::mem::forget(hold);
        });
    }
}
