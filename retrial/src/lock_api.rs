//! [`lock_api`] on retrial mutexes: `Mutex<T>` and `RwLock<T>` as other lock crates have them.
//!
//! These locks belong to an anonymous instance of the process, with parameters and figures like any other:
//! [`instance()`]. Each thread becomes a session at its first lock, and one more for each 256 locks that it
//! holds at a time; when 16,384 sessions are taken, or shared memory cannot be had, `lock` waits until
//! another thread has ended, and the tries refuse. A thread that locks what it holds panics, unless it has a
//! deadline. A lock is registered at its first lock, under the type `lock_api`; when the table of mutexes is
//! full, later ones work without figures of their own. A lock whose guard was leaked stays locked when its
//! thread ends: what it protects may have been leaked with it. A child of fork has copies of the locks, and
//! gives up those that the forking thread held.
//!
//! ```
//! use retrial::lock_api::{Mutex, RwLock};
//!
//! static HITS: Mutex<u64> = Mutex::new(0);
//! *HITS.lock() += 1;
//! let names = RwLock::new(vec!["a"]);
//! assert_eq!((names.read().len(), *HITS.lock()), (1, 1));
//! ```

use crate::entries::Place;
use crate::error::{CreateError, GetError, SessionError};
use crate::instance::Instance;
use crate::mode::Mode;
use crate::mutex::{Hold, Patience};
use crate::operation_log::MutexId;
use crate::segment::Capacity;
use crate::session::{Class, Session};
use crate::sys::{self, Deadline};
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
#[must_use]
pub fn instance() -> &'static Instance {
    try_instance().expect("an anonymous instance can be made")
}

/// The same, where it can be had.
fn try_instance() -> Result<&'static Instance, CreateError> {
    static INSTANCE: OnceLock<Instance> = OnceLock::new();
    if let Some(instance) = INSTANCE.get() {
        return Ok(instance);
    }
    let made = Instance::anonymous(Capacity { sessions: 16_384, ..Capacity::default() })?;
    // Another thread may have made one meanwhile: then this one goes.
    Ok(INSTANCE.get_or_init(|| made))
}

thread_local! {
    // Nothing to drop, so that locks work in destructors of other thread-locals; the kernel notes the
    // thread's end.
    static SESSION: RefCell<Option<ManuallyDrop<Session<'static>>>> = const { RefCell::new(None) };
    /// Further sessions, while the thread holds more locks than a log has records. A session ends when its
    /// log is empty again.
    static MORE: RefCell<ManuallyDrop<Vec<Session<'static>>>> = const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

fn new_session() -> Result<Session<'static>, SessionError> {
    let name = std::thread::current().name().unwrap_or("").to_owned();
    // SAFETY: nothing is given back when the thread ends: these locks are in the memory of one process, which
    // recovery does not touch.
    unsafe { instance().thread_session(&name, Class::Detect) }
}

/// Calls `f` with the sessions of the thread, first with the one that it always has, until `f` gives
/// something. When it gives nothing for any of them, `more` says whether it may have a new session.
fn with_sessions<R>(more: bool, f: impl Fn(&Session<'static>) -> Option<R>) -> Result<Option<R>, SessionError> {
    let first = SESSION.with(|cell| {
        if cell.borrow().as_ref().is_none_or(|session| session.is_forked()) {
            cell.replace(Some(ManuallyDrop::new(new_session()?)));
            // A parent's are none of a child of fork.
            MORE.with(|more| more.replace(ManuallyDrop::default()));
        }
        Ok(cell.borrow().as_ref().and_then(|session| f(session)))
    })?;
    if first.is_some() {
        return Ok(first);
    }
    MORE.with(|cell| {
        if let Some(result) = cell.borrow().iter().find_map(&f) {
            return Ok(Some(result));
        }
        if !more {
            return Ok(None);
        }
        let session = new_session()?;
        cell.borrow_mut().push(session);
        Ok(cell.borrow().last().and_then(f))
    })
}

/// Ends the sessions that are not needed any more.
fn tidy() {
    MORE.with(|cell| {
        // Not while the thread gets something by one of them: in a handler of a signal.
        if let Ok(mut more) = cell.try_borrow_mut() {
            more.retain(Session::has_records);
        }
    });
}

/// Interval between the tries of a thread that cannot become a session.
const NO_SESSION_EVERY: Duration = Duration::from_millis(1);

/// The lock behind [`Mutex`] and [`RwLock`].
#[derive(Debug)]
pub struct RawLock(crate::raw_mutex::RawMutex);

impl RawLock {
    fn get(&self, mode: Mode, patience: Patience) -> bool {
        loop {
            if let Some(got) = self.try_as_session(mode, patience) {
                return got;
            }
            // No shared memory, or no session is free: another thread's may be, when it ends.
            match patience {
                Patience::None => return false,
                Patience::Until(deadline) if deadline.left().is_none() => return false,
                Patience::Until(_) | Patience::Endless => sys::sleep(NO_SESSION_EVERY),
            }
        }
    }

    /// Whether it was got. `None` when the thread cannot become a session now.
    fn try_as_session(&self, mode: Mode, patience: Patience) -> Option<bool> {
        try_instance().ok()?;
        if self.0.id().0 == 0 {
            self.register();
        }
        let location = crate::location!("lock_api");
        let got = with_sessions(true, |session| {
            // Each session knows of its own log alone.
            if let Some(held) =
                self.held_by_one_of_several().filter(|held| (*held, mode) != (Mode::Shared, Mode::Shared))
            {
                return Some(Err(GetError::Deadlock { held }));
            }
            // SAFETY: all locks and all sessions of this module are of its one instance.
            match unsafe { self.0.get(session, mode, location, patience) } {
                Ok(hold) => {
                    std::mem::forget(hold);
                    Some(Ok(()))
                }
                Err(GetError::LogFull { .. }) => None,
                Err(error) => Some(Err(error.map(drop))),
            }
        });
        Some(match (got, patience) {
            (Err(_), _) => return None,
            (Ok(Some(Ok(()))), _) => true,
            (Ok(Some(Err(GetError::Busy | GetError::TimedOut))), _) | (_, Patience::None) => false,
            // What one holds is busy until the deadline.
            (Ok(Some(Err(GetError::Deadlock { .. }))), Patience::Until(deadline)) => {
                while let Some(left) = deadline.left() {
                    sys::sleep(left);
                }
                false
            }
            (Ok(Some(Err(error))), _) => panic!("{error}"),
            (Ok(None), _) => unreachable!("a new session has room"),
        })
    }

    /// The mode in which the thread has it, where the thread has several sessions.
    fn held_by_one_of_several(&self) -> Option<Mode> {
        if MORE.with(|cell| cell.borrow().is_empty()) {
            return None;
        }
        with_sessions(false, |session| session.held(self.0.id(), usize::MAX)).ok().flatten()
    }

    #[cold]
    fn register(&self) {
        let instance = instance();
        let mutex_type = instance.register_type("lock_api").unwrap_or_default();
        let registered = instance.register_at(mutex_type, Place::Process, self.0.address(), "");
        // For good: a lock that got an id while it is held could not be released by it.
        let id = registered.unwrap_or(MutexId::OVERFLOW);
        if !self.0.adopt_once(id, mutex_type, !instance.tables.has_barrier()) && id != MutexId::OVERFLOW {
            // SAFETY: registered above, and no lock has taken it.
            unsafe { instance.unregister_mutex(id) };
        }
    }

    /// Has `f` change or drop what the calling thread holds.
    fn with_hold(&self, mode: Mode, f: impl Fn(Hold<'_>)) {
        // SAFETY: `get` forgets its holds, and all of this module is of one instance.
        let resumed = with_sessions(false, |session| unsafe { self.0.resume(session, mode) }.map(&f));
        if matches!(resumed, Ok(None)) {
            // A child of fork has the memory of its parent's lock, but no record of its hold.
            let _ = with_sessions(true, |session| self.0.inherit(session, mode).map(&f));
        }
        tidy();
    }
}

impl Drop for RawLock {
    fn drop(&mut self) {
        // In a child of fork the entry of a lock from before is the parent's.
        let registered_by = (self.0.id().0 != 0).then(|| instance().tables.mutex_in_process(self.0.id())).flatten();
        // A mutex that a leaked guard still holds keeps its entry: the session's log names it.
        let is_free = self.0.load().sid().is_none() && self.0.load().references() == 0;
        if is_free && registered_by.is_some_and(|(pid, _)| pid == sys::pid()) {
            // SAFETY: registered by `register`, free, and about to be gone.
            unsafe { instance().unregister_mutex(self.0.id()) };
        }
    }
}

// SAFETY: exclusive while X is held; guards stay on their thread, as the marker says.
unsafe impl lock_api::RawMutex for RawLock {
    #[allow(clippy::declare_interior_mutable_const)] // what the trait asks for
    const INIT: Self = Self(crate::raw_mutex::RawMutex::new());
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        self.get(Mode::Exclusive, Patience::Endless);
    }

    fn try_lock(&self) -> bool {
        self.get(Mode::Exclusive, Patience::None)
    }

    unsafe fn unlock(&self) {
        self.with_hold(Mode::Exclusive, |hold| drop(hold));
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
    const INIT: Self = Self(crate::raw_mutex::RawMutex::new());
    type GuardMarker = lock_api::GuardNoSend;

    fn lock_shared(&self) {
        self.get(Mode::Shared, Patience::Endless);
    }

    fn try_lock_shared(&self) -> bool {
        self.get(Mode::Shared, Patience::None)
    }

    unsafe fn unlock_shared(&self) {
        self.with_hold(Mode::Shared, |hold| drop(hold));
    }

    fn lock_exclusive(&self) {
        self.get(Mode::Exclusive, Patience::Endless);
    }

    fn try_lock_exclusive(&self) -> bool {
        self.get(Mode::Exclusive, Patience::None)
    }

    unsafe fn unlock_exclusive(&self) {
        self.with_hold(Mode::Exclusive, |hold| drop(hold));
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
        self.with_hold(Mode::Exclusive, |mut hold| {
            hold.share();
            std::mem::forget(hold);
        });
    }
}
