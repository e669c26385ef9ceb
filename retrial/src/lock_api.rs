//! [`lock_api`] on retrial mutexes: `Mutex<T>` and `RwLock<T>` as other lock crates have them.
//!
//! These locks belong to an anonymous instance of the process, with parameters and figures like any other:
//! [`instance()`]. Each thread becomes a session at its first lock, and one more for each 256 locks that it
//! holds at a time. When [`Capacity::SESSIONS_OF_ANY_PROGRAM`] are taken, or shared memory cannot be had,
//! `lock` waits until another thread has ended, and the tries refuse. A thread that locks what it holds
//! panics, unless it has a deadline. A lock is registered at its first lock, under the type `lock_api`; when
//! the table of mutexes is full, later ones work without figures of their own. A lock whose guard was leaked
//! stays locked when its thread ends: what it protects may have been leaked with it. A child of fork has
//! copies of the locks, and gives up those that the forking thread held.
//!
//! `RwLock::upgradable_read` is the mode E: beside the readers that are there, while all that come wait. Its
//! `upgrade` waits until those readers have left. X does not become E: `RawRwLockUpgradeDowngrade` is left out.
//!
//! The types here are those of `lock_api` 0.4; with the feature `lock_api_05` those of 0.5 are in `v0_5`. Both
//! have the same locks behind them.
//!
//! ```
//! use retrial::lock_api::{Mutex, RwLock};
//!
//! static HITS: Mutex<u64> = Mutex::new(0);
//! *HITS.lock() += 1;
//! let names = RwLock::new(vec!["a"]);
//! assert_eq!((names.read().len(), *HITS.lock()), (1, 1));
//! ```

use crate::error::{ConvertError, CreateError, GetError, SessionError};
use crate::instance::Instance;
use crate::mode::Mode;
use crate::mutex::{Hold, Patience};
use crate::operation_log::MutexId;
use crate::segment::Capacity;
use crate::session::{Class, Session};
use crate::sys;
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

mod v0_4;
#[cfg(feature = "lock_api_05")]
pub mod v0_5;

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
    if let Some((instance, _)) = INSTANCE.get() {
        return Ok(instance);
    }
    let made = Instance::anonymous(Capacity { sessions: Capacity::SESSIONS_OF_ANY_PROGRAM, ..Capacity::default() })?;
    // Another thread may have made one meanwhile: then this one goes.
    Ok(&INSTANCE.get_or_init(|| (made, sys::own_generation())).0)
}

/// The instance, and the generation of the process that made it.
static INSTANCE: OnceLock<(Instance, u64)> = OnceLock::new();

/// Whether the instance is that of a parent, from before a fork.
fn is_forked() -> bool {
    INSTANCE.get().is_some_and(|(_, generation)| *generation != sys::generation())
}

thread_local! {
    // Nothing to drop, so that locks work in destructors of other thread-locals; the kernel notes the
    // thread's end.
    static SESSION: RefCell<Option<ManuallyDrop<Session<'static>>>> = const { RefCell::new(None) };
    /// Further sessions, while the thread holds more locks than a log has records. A session ends when its
    /// log is empty again.
    static MORE: RefCell<ManuallyDrop<Vec<Session<'static>>>> = const { RefCell::new(ManuallyDrop::new(Vec::new())) };
    /// Which of these has done something last, `FIRST` for the session that the thread always has: most often
    /// it does the next thing too, and a look through the logs of all before it is spared.
    static LAST: Cell<usize> = const { Cell::new(FIRST) };
    /// Addresses of the locks without an entry that the thread reads: logs name all of them alike.
    static READS: RefCell<ManuallyDrop<Vec<u64>>> = const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

const FIRST: usize = usize::MAX;

fn new_session() -> Result<Session<'static>, SessionError> {
    let name = std::thread::current().name().unwrap_or("").to_owned();
    // SAFETY: nothing is given back when the thread ends: these locks are in the memory of one process, which
    // recovery does not touch.
    unsafe { instance().thread_session(&name, Class::Detect) }
}

/// Calls `f` with the sessions of the thread, first with that which did something last, until `f` gives
/// something. When it gives nothing for any of them, `more` says whether it may have a new session.
fn with_sessions<R>(more: bool, f: impl Fn(&Session<'static>) -> Option<R>) -> Result<Option<R>, SessionError> {
    if LAST.get() != FIRST
        && let Some(result) = with_last(&f)
    {
        return Ok(Some(result));
    }
    let first = SESSION.with(|cell| {
        if cell.borrow().as_ref().is_none_or(|session| session.is_forked()) {
            cell.replace(Some(ManuallyDrop::new(new_session()?)));
            // A parent's are none of a child of fork.
            MORE.with(|more| more.replace(ManuallyDrop::default()));
            READS.with(|reads| reads.replace(ManuallyDrop::default()));
        }
        Ok(cell.borrow().as_ref().and_then(|session| f(session)))
    })?;
    if first.is_some() {
        LAST.set(FIRST);
        return Ok(first);
    }
    MORE.with(|cell| {
        let others = || cell.borrow().iter().enumerate().find_map(|(index, session)| Some((index, f(session)?)));
        if let Some((index, result)) = others() {
            LAST.set(index);
            return Ok(Some(result));
        }
        if !more {
            return Ok(None);
        }
        let session = new_session()?;
        cell.borrow_mut().push(session);
        LAST.set(cell.borrow().len() - 1);
        Ok(cell.borrow().last().and_then(&f))
    })
}

#[cold]
#[inline(never)]
fn with_last<R>(f: impl Fn(&Session<'static>) -> Option<R>) -> Option<R> {
    MORE.with(|cell| cell.borrow().get(LAST.get()).filter(|session| !session.is_forked()).and_then(f))
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

/// Entries that the first lock of a mutex looks at for a free one.
const LOOKS: u32 = 256;

/// Interval between the tries of a thread that cannot become a session.
const NO_SESSION_EVERY: Duration = Duration::from_millis(1);

/// The lock behind [`Mutex`] and [`RwLock`].
#[derive(Debug)]
pub struct RawLock(crate::raw_mutex::RawMutex);

impl RawLock {
    fn get(&self, mode: Mode, patience: Patience) -> bool {
        insist(patience, || self.try_as_session(mode, patience))
    }

    fn release(&self, mode: Mode) {
        if mode == Mode::Shared {
            self.reads(false);
        }
        self.with_hold(mode, |hold| drop(hold));
    }

    /// X or E becomes S, without letting anybody in between.
    fn share(&self, mode: Mode) {
        self.with_hold(mode, |hold| ManuallyDrop::new(hold).share());
        self.reads(true);
    }

    /// E becomes X; whether it did, else it is E as before.
    fn upgrade(&self, patience: Patience) -> bool {
        self.with_hold(Mode::Examine, |hold| {
            // A panic leaves it to the guard, which gives it back.
            let result = ManuallyDrop::new(hold).upgrade(patience);
            assert!(matches!(result, Ok(()) | Err(ConvertError::Busy | ConvertError::TimedOut)), "{result:?}");
            result.is_ok()
        })
        .unwrap_or(false)
    }

    /// Whether any thread holds it, in whatever mode.
    fn is_held(&self) -> bool {
        self.0.load().is_held()
    }

    /// Whether a thread holds it in X.
    fn is_held_alone(&self) -> bool {
        self.0.load().is_exclusive()
    }

    /// Whether it was got. `None` when the thread cannot become a session now.
    fn try_as_session(&self, mode: Mode, patience: Patience) -> Option<bool> {
        try_instance().ok()?;
        if self.0.id().0 == 0 {
            self.register();
        }
        let location = crate::location!("lock_api");
        let held = self.held_beyond_the_log().filter(|held| (*held, mode) != (Mode::Shared, Mode::Shared));
        let got = with_sessions(true, |session| {
            if let Some(held) = held {
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
            (Ok(Some(Ok(()))), _) => {
                if mode == Mode::Shared {
                    self.reads(true);
                }
                true
            }
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

    /// The mode in which the thread has it, where the log of the session that gets it may not say so: another
    /// session of the thread has it, or logs name it as they name others.
    fn held_beyond_the_log(&self) -> Option<Mode> {
        let has_entry = self.0.id() != MutexId::OVERFLOW;
        if has_entry && MORE.with(|cell| cell.borrow().is_empty()) {
            return None;
        }
        let word = self.0.load();
        if !word.sid().is_none() && with_sessions(false, |session| self.is_its(session).then_some(())) == Ok(Some(())) {
            return Some(if word.is_exclusive() { Mode::Exclusive } else { Mode::Examine });
        }
        // A reader among others would show in the word.
        if word.references() == 0 {
            return None;
        }
        let reads = if has_entry {
            with_sessions(false, |session| session.held(self.0.id(), usize::MAX)).is_ok_and(|held| held.is_some())
        } else {
            READS.with(|reads| reads.borrow().contains(&self.0.address()))
        };
        reads.then_some(Mode::Shared)
    }

    /// Whether the word names the session.
    fn is_its(&self, session: &Session<'_>) -> bool {
        self.0.load().sid() == session.sid()
    }

    /// Notes that the thread has begun or ended to read it, where its log does not say so.
    fn reads(&self, begins: bool) {
        if self.0.id() != MutexId::OVERFLOW {
            return;
        }
        READS.with(|reads| {
            // Not in a handler of a signal that has come in between.
            let Ok(mut reads) = reads.try_borrow_mut() else { return };
            if begins {
                reads.push(self.0.address());
            } else if let Some(index) = reads.iter().rposition(|address| *address == self.0.address()) {
                reads.swap_remove(index);
            }
            if reads.is_empty() {
                // The thread may end next, and its memory is not given back then.
                **reads = Vec::new();
            }
        });
    }

    #[cold]
    fn register(&self) {
        let instance = instance();
        let mutex_type = instance.register_type("lock_api").unwrap_or_default();
        let registered = instance.register_in_process(mutex_type, self.0.address(), LOOKS);
        // For good: a lock that got an id while it is held could not be released by it.
        let id = registered.unwrap_or(MutexId::OVERFLOW);
        if !self.0.adopt_once(id, mutex_type, !instance.tables.has_barrier()) && id != MutexId::OVERFLOW {
            // SAFETY: registered above, and no lock has taken it.
            unsafe { instance.unregister_mutex(id) };
        }
    }

    /// Has `f` change or drop what the calling thread holds. `None`: it holds nothing.
    fn with_hold<R>(&self, mode: Mode, f: impl Fn(Hold<'_>) -> R) -> Option<R> {
        loop {
            let resumed = with_sessions(false, |session| {
                // The word tells whose X or E it is; records of locks without an entry are all alike.
                if mode != Mode::Shared && !self.is_its(session) {
                    return None;
                }
                // SAFETY: `get` forgets its holds, and all of this module is of one instance.
                unsafe { self.0.resume(session, mode) }.map(&f)
            });
            let done = match resumed {
                // A child of fork has the memory of its parent's lock, but no record of its hold.
                Ok(None) if is_forked() => {
                    let left = with_sessions(true, |session| {
                        let is_left = mode == Mode::Shared && self.0.leave_beside_parent(session);
                        if is_left { Some(None) } else { self.0.inherit(session, mode).map(|hold| Some(f(hold))) }
                    });
                    left.map(Option::flatten)
                }
                resumed => resumed,
            };
            tidy();
            match done {
                Ok(done) => return done,
                // A child of fork that cannot become a session now.
                Err(_) => sys::sleep(NO_SESSION_EVERY),
            }
        }
    }
}

/// Tries until it is known whether it was got. `None` says that the thread cannot become a session now: no
/// shared memory, or no session is free; another thread's may be, when it ends.
fn insist(patience: Patience, attempt: impl Fn() -> Option<bool>) -> bool {
    loop {
        if let Some(got) = attempt() {
            return got;
        }
        match patience {
            Patience::None => return false,
            Patience::Until(deadline) if deadline.left().is_none() => return false,
            Patience::Until(_) | Patience::Endless => sys::sleep(NO_SESSION_EVERY),
        }
    }
}

fn until(instant: Instant) -> Patience {
    Patience::within(instant.saturating_duration_since(Instant::now()))
}

impl Drop for RawLock {
    fn drop(&mut self) {
        // Of a guard that was leaked.
        self.reads(false);
        // In a child of fork the entry of a lock from before is the parent's.
        let registered_by = (self.0.id().0 != 0).then(|| instance().tables.mutex_in_process(self.0.id())).flatten();
        // A mutex that a leaked guard still holds keeps its entry: the session's log names it.
        if !self.is_held() && registered_by.is_some_and(|(pid, _)| pid == sys::pid()) {
            // SAFETY: registered by `register`, free, and about to be gone.
            unsafe { instance().unregister_mutex(self.0.id()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::{Sid, Word};

    #[test]
    fn a_lock_that_waits_for_its_last_reader_is_held_when_that_has_left() {
        let lock = RawLock(crate::raw_mutex::RawMutex::new());
        assert!(!lock.is_held());
        lock.0.fake(Word(Word::DRAINING), Sid::new(1));
        assert!(lock.is_held());
    }

    #[cfg(not(any(loom, shuttle)))]
    #[test]
    fn a_child_of_fork_drops_one_reference_beside_a_session_of_its_parent() {
        let lock = RwLock::new(1);
        let readers = [lock.read(), lock.read()];
        let [ready, done] = [0, 1].map(|_| std::sync::Barrier::new(2));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let _upgradable = lock.upgradable_read();
                ready.wait();
                done.wait();
            });
            ready.wait();
            // SAFETY: the child calls nothing that another thread's lock could keep it from.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let [one, other] = readers;
                // SAFETY: it ends the child where the drop does not come back.
                unsafe { libc::alarm(10) };
                drop(one);
                // SAFETY: the lock's word is looked at only.
                let left = unsafe { lock.raw() }.0.load().references();
                std::mem::forget(other);
                // SAFETY: always callable.
                unsafe { libc::_exit(i32::try_from(left).unwrap_or(-1)) };
            }
            let mut status = 0;
            // SAFETY: our child, and `status` is writable.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            done.wait();
            // The examiner's own is beside the other reader's, if it has one.
            assert_eq!(libc::WEXITSTATUS(status), 1);
        });
    }
}
