//! A condition that processes share: which sessions wait for an event, and what a signal does.
//!
//! ```text
//!  0          4           8         12   16         24
//! +----------+-----------+---------+----+----------+
//! | sequence | announced | settled | id | instance |
//! +----------+-----------+---------+----+----------+
//! ```
//!
//! `sequence` counts signals and is the futex that waiters sleep on: a waiter reads it while it holds the
//! mutex, gives the mutex back, and sleeps while it is the same. `announced` counts waiters that came.
//! `settled` is a value of `announced`: the waiters up to it have come back, or will without a wake-up. While
//! the two are the same, a signal is two loads.
//!
//! ```text
//! waiter:     read sequence → announced + 1 → give the mutex back → sleep, unless sequence has changed
//! signaller:  read announced → sequence + 1 → have the kernel wake one → if it found none: settled = announced
//! ```
//!
//! A waiter that is among those announced has read the sequence before the signaller changes it: so it is
//! asleep when the kernel looks, or will not fall asleep.
//!
//! There is no count of the waiters, which a killed one would leave too high: the kernel's queue has the
//! living alone. What a kill can leave undone is a wake-up: of a signaller that has changed the sequence,
//! and of a waiter that was woken. So each waiter looks once in [`LOOK_EVERY`] whether the sequence has
//! changed, and returns if it has.
//!
//! The groups of [`crate::condition`] would say more exactly for which waiters a signal is. They count the
//! waiters under a lock, and after a kill neither count nor lock is right.

use crate::engine_mutex::{GONE, Owner, join};
use crate::entries::Place;
use crate::error::{BindError, ObjectError};
use crate::fail;
use crate::instance::Instance;
use crate::mutex::Patience;
use crate::operation_log::MutexId;
use crate::registration::Extent;
use crate::session::Session;
use crate::stats::EVENT_TYPES;
use crate::sys::protocol::AtomicU32;
use crate::sys::{self, AtomicU64, Futex, Ordering, Woken};
#[cfg(not(any(loom, shuttle)))]
use std::mem::offset_of;
use std::time::Duration;

/// Time after which a waiter looks by itself.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Waiters are all of one kind.
const WAITERS: u32 = u32::MAX;

/// Type of the conditions' entries, by which the views tell them from mutexes.
const TYPE: &str = EVENT_TYPES[3];

/// A condition that knows its instance: 24 bytes of atomics, for a struct of the engine's own in shared
/// memory.
///
/// All bytes 0 is a condition of no instance yet. [`EngineCondition::bind`] makes it one of an instance, and
/// gives what waits and signals are made by.
#[repr(C)]
#[derive(Debug, Default)]
pub struct EngineCondition {
    sequence: Futex,
    announced: AtomicU32,
    settled: AtomicU32,
    id: sys::AtomicU32,
    /// As in [`EngineMutex`](crate::engine::EngineMutex).
    instance: AtomicU64,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<EngineCondition>() == 24);

/// The fields of an [`EngineCondition`].
#[cfg(not(any(loom, shuttle)))]
pub const CONDITION: [crate::mutex::inlined::Field; 5] = [
    ("sequence", offset_of!(EngineCondition, sequence), "uint32_t ", "counts signals; the futex"),
    ("announced", offset_of!(EngineCondition, announced), "uint32_t ", "counts waiters that came"),
    ("settled", offset_of!(EngineCondition, settled), "uint32_t ", "those up to this one need no wake-up"),
    ("id", offset_of!(EngineCondition, id), "uint32_t ", "its number in the instance; 0 until it is bound to one"),
    ("instance", offset_of!(EngineCondition, instance), "uint64_t ", "when its instance was created"),
];

/// How a wait ended. The session holds the mutex again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// A signal came; or none did, and the wait ended all the same: look at what you wait for.
    Signalled,
    /// The deadline has passed, and no signal came for this waiter.
    TimedOut,
}

impl EngineCondition {
    /// Announces a waiter, which holds the mutex: what the sequence is.
    pub(crate) fn enter(&self) -> u32 {
        // Relaxed, and Release below: a signaller that sees the announcement changes the sequence after this
        // load. Later signals find the waiter by the mutex, which it gives back after this.
        let expected = self.sequence.load(Ordering::Relaxed);
        self.announced.fetch_add(1, Ordering::Release);
        fail::point();
        expected
    }

    /// Sleeps until a signal changes the sequence, or the deadline has passed; `looks` is called once in
    /// [`LOOK_EVERY`] and says whether the wait has to end.
    pub(crate) fn sleep(&self, expected: u32, patience: Patience, looks: impl Fn() -> bool) -> Waited {
        let mut look_ns = sys::now_ns() + LOOK_EVERY.as_nanos() as u64;
        loop {
            // Before the look: a signal that comes before the deadline is no time-out.
            let left = match patience {
                Patience::None => None,
                Patience::Until(deadline) => deadline.left(),
                Patience::Endless => Some(LOOK_EVERY),
            };
            // Relaxed: what the signal is for is protected by the mutex.
            if self.sequence.load(Ordering::Relaxed) != expected {
                return Waited::Signalled;
            }
            let Some(left) = left else { return Waited::TimedOut };
            let now_ns = sys::now_ns();
            if now_ns >= look_ns {
                if looks() {
                    return Waited::Signalled;
                }
                look_ns = now_ns + LOOK_EVERY.as_nanos() as u64;
            }
            fail::point();
            let until_look = Duration::from_nanos(look_ns - now_ns);
            if sys::futex_wait_as(&self.sequence, expected, left.min(until_look), WAITERS) == Woken::Yes {
                return Waited::Signalled;
            }
        }
    }

    /// Begins a signal, if a waiter may need one: how many were announced. From here on it is given.
    #[inline]
    fn begin(&self) -> Option<u32> {
        // Acquire: pairs with the Release in `enter`, or the sequence could change before the waiter has read
        // it.
        let announced = self.announced.load(Ordering::Acquire);
        // Relaxed: by whatever signaller it was stored, its sequence is one that the waiters find changed.
        if self.settled.load(Ordering::Relaxed) == announced {
            return None;
        }
        fail::point();
        // Relaxed: nothing is published. The kernel orders it before its look at the queue.
        self.sequence.fetch_add(1, Ordering::Relaxed);
        fail::point();
        Some(announced)
    }

    /// Ends a signal that was begun when so many were announced.
    #[cold]
    #[inline(never)]
    fn end(&self, announced: u32, count: u32) {
        let woken = sys::futex_wake_kinds(&raw const self.sequence, count, WAITERS);
        fail::point();
        if woken < count {
            // All waiters that were asleep are awake. A signaller that comes late to this stores an older
            // number: then the next signal asks the kernel in vain.
            self.settled.store(announced, Ordering::Relaxed);
        } else if announced.wrapping_sub(self.settled.load(Ordering::Relaxed)) > u32::MAX / 2 {
            // Signals that find their waiters each time never store it, and the numbers come round: those two
            // would be the same once, and a signal lost.
            self.settled.store(announced.wrapping_sub(1), Ordering::Relaxed);
        }
    }

    #[inline]
    fn signal(&self, count: u32) {
        if let Some(announced) = self.begin() {
            self.end(announced, count);
        }
    }

    /// Makes it a condition of an instance, with a name for the views. One that is already of this instance
    /// stays as it is.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    pub fn bind<'c>(&'c self, instance: &'c Instance, name: &str) -> Result<Condition<'c>, BindError> {
        // Acquire: pairs with the exchange below.
        let mut id = MutexId(self.id.load(Ordering::Acquire));
        if id.0 != 0 {
            join(&self.instance, instance)?;
            return Ok(Condition { shared: self, instance, id });
        }
        // The entry first: where none is free the condition stays as it is.
        let address = std::ptr::from_ref(self).addr() as u64;
        let own = instance.register_mutex(instance.register_type(TYPE)?, address, name)?;
        let joined = join(&self.instance, instance);
        if joined.is_ok() {
            // AcqRel: a thread that finds the id finds its entry.
            let first = self.id.compare_exchange(0, own.0, Ordering::AcqRel, Ordering::Acquire);
            id = first.map_or_else(MutexId, |_| own);
        }
        if id != own {
            // SAFETY: registered above, and the condition has the id of another thread's, or none of this instance.
            unsafe { instance.unregister_mutex(own) };
        }
        joined.map(|()| Condition { shared: self, instance, id })
    }

    /// Gives its entry in the instance back; later calls are refused. Whether nobody waited: a condition that
    /// a living session waits for stays as it is.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    ///
    /// # Safety
    ///
    /// No session uses it meanwhile.
    pub unsafe fn unbind(&self, instance: &Instance) -> Result<bool, BindError> {
        join(&self.instance, instance)?;
        let id = MutexId(self.id.load(Ordering::Acquire));
        if instance.tables.place_of(id) == Some(Place::Arena) {
            return Err(BindError::Named);
        }
        if id.0 != 0 && instance.tables.is_waited_for(id) {
            return Ok(false);
        }
        // The entry first: a process that is killed in between leaks none.
        // SAFETY: bound by this id or by none, and nobody uses it, as the caller says.
        unsafe { instance.unregister_mutex(id) };
        fail::point();
        self.instance.store(GONE, Ordering::Release);
        Ok(true)
    }
}

/// A condition: sessions wait for it with a mutex held, and are signalled by any process.
///
/// A wait ([`Guard::wait`](crate::Guard::wait)) gives the mutex back and gets it again when a signal has
/// come. It may also end without one, so it is made in a loop that looks at the data:
///
/// ```
/// use retrial::{Capacity, Class, GetFailure, Instance, Patience, Waited, location};
/// use std::time::Duration;
///
/// let instance = Instance::anonymous(Capacity::default())?;
/// let tokens = instance.mutex("tokens", "demo", || 0u64)?;
/// let some = instance.condition("some tokens")?;
/// std::thread::scope(|scope| {
///     let taker = scope.spawn(|| {
///         let session = instance.session("taker", Class::Normal).unwrap();
///         let patience = Patience::within(Duration::from_secs(10));
///         let mut held = tokens.exclusive(&session, location!("take"))?;
///         let mut waited = Waited::Signalled;
///         while *held == 0 && waited == Waited::Signalled {
///             (held, waited) = held.wait(&some, patience)?;
///         }
///         *held -= 1;
///         Ok::<(), GetFailure>(())
///     });
///     let session = instance.session("giver", Class::Normal).unwrap();
///     let mut held = tokens.exclusive(&session, location!("give")).unwrap();
///     *held += 1;
///     some.signal();
///     drop(held);
///     taker.join().unwrap()
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What a kill costs
///
/// A signal is given by one store. A session that is killed before it has given none; when it is killed after
/// it, the signal counts, at most a second late.
///
/// * A waiter that is killed takes no signal with it: where it was the one woken, the others look within a
///   second.
/// * A session that changes the data and signals with the mutex held loses nothing to a kill: before the
///   signal it dies as a holder, and each waiter's wait ends with [`OwnerDied`](crate::GetError::OwnerDied)
///   within a second, unless another session was told first. A session that is told repairs the data, and
///   signals all, since the dead may have owed a signal. A session that signals after the release can be
///   killed in between: that signal was not given.
#[derive(Clone, Copy, Debug)]
pub struct Condition<'c> {
    pub(crate) shared: &'c EngineCondition,
    pub(crate) instance: &'c Instance,
    pub(crate) id: MutexId,
}

impl Instance {
    /// The condition of this name, made if it is new. Names are those of mutexes too: a name is one or the
    /// other.
    ///
    /// # Errors
    ///
    /// [`ObjectError`]; also when there is a mutex of this name.
    pub fn condition(&self, name: &str) -> Result<Condition<'_>, ObjectError> {
        let extent = Extent { data: 0, len: size_of::<EngineCondition>() };
        let (id, address) = self.object(Owner::NONE, name, TYPE, extent)?;
        #[allow(clippy::cast_ptr_alignment)] // `object` aligns to 64
        // SAFETY: `object` gives that many bytes, for as long as the instance is mapped; any bytes are a
        // value.
        let shared = unsafe { &*address.cast::<EngineCondition>() };
        // Each thread stores the same.
        shared.instance.store(self.tables.created_ns(), Ordering::Relaxed);
        shared.id.store(id.0, Ordering::Release);
        Ok(Condition { shared, instance: self, id })
    }
}

impl<'c> Condition<'c> {
    /// Its id, among those of mutexes.
    #[must_use]
    pub const fn id(&self) -> MutexId {
        self.id
    }

    /// Its memory, for bindings of other languages.
    #[must_use]
    pub const fn engine(&self) -> &'c EngineCondition {
        self.shared
    }

    /// Has one of the sessions that wait look at its data, if any waits; with or without the mutex held, of
    /// any process, without a session. With the mutex held no kill loses it: see [`Condition`].
    #[inline]
    pub fn signal(&self) {
        self.shared.signal(1);
    }

    /// The same for all that wait.
    #[inline]
    pub fn broadcast(&self) {
        self.shared.signal(i32::MAX as u32);
    }

    /// Panics for a session of another instance: the views would show its wait as one for another object.
    pub(crate) fn check(&self, session: &Session<'_>) {
        assert!(
            std::ptr::eq(self.instance, session.instance()),
            "condition `{}` was given by one `Instance`, session {} by another: make the session by the `Instance` \
             that gave the condition, also where both have the same file open",
            self.instance.tables.mutex_name(self.id),
            session.sid(),
        );
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod interleavings;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_is_signalled_also_when_the_numbers_have_come_round() {
        // 2^32 - 3 signals ago a signal found nobody.
        let condition =
            EngineCondition { announced: AtomicU32::new(5), settled: AtomicU32::new(8), ..Default::default() };
        for waiter in 6..20 {
            condition.enter();
            assert_eq!(condition.begin(), Some(waiter));
            // It finds as many asleep as it is to wake.
            condition.end(waiter, 0);
        }
    }
}
