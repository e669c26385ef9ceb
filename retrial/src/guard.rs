//! A named mutex held, with the data that it protects.

use crate::engine_condition::{Condition, Waited};
use crate::error::{ConvertError, GetError};
use crate::mode::Mode;
use crate::mutex::{Hold, Patience};
use crate::raw_mutex::RawMutex;
use crate::registration::Extent;
use crate::sys::AtomicU64;
use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::ops::{Deref, DerefMut};

/// A named mutex in shared memory.
#[repr(C)]
pub(crate) struct Shared<T> {
    pub(crate) raw: RawMutex,
    /// When the instance was created, once the value was written; changed under the mutex. See `EngineMutex`.
    pub(crate) initialised: AtomicU64,
    pub(crate) value: UnsafeCell<T>,
}

impl<T> Shared<T> {
    /// As [`Instance::mutex_bytes`](crate::Instance::mutex_bytes) has it, where the alignment of the value
    /// lets the value begin behind the mutex at once.
    pub(crate) const EXTENT: Extent = Extent { data: offset_of!(Self, value) as u32, len: size_of::<T>() };
}

/// What a get of a [`Mutex`](crate::Mutex) gives.
pub type GuardResult<'a, T> = Result<Guard<'a, T>, GetError<Guard<'a, T>>>;

/// What a wait for a [`Condition`] gives: the guard again.
pub type WaitResult<'a, T> = Result<(Guard<'a, T>, Waited), GetError<Guard<'a, T>>>;

/// A mutex held, with access to its data; given back when dropped.
///
/// Also when a panic drops it: then the mutex is free, *not* poisoned, and the next session gets what was
/// written so far as ordinary data. Only a death is told ([`GetError::OwnerDied`]). Where data may be left
/// half changed, change a copy and store it at once at the end, or build with `panic = "abort"`, which makes
/// a death of it.
///
/// ```
/// # use retrial::{Capacity, Class, Instance, location};
/// # use std::panic::{AssertUnwindSafe, catch_unwind};
/// # let instance = Instance::anonymous(Capacity::default())?;
/// # let session = instance.session("", Class::Normal)?;
/// let accounts = instance.mutex("accounts", "bank", || [100u64, 0])?;
/// let transfer = |amount: u64, account: usize| {
///     let mut guard = accounts.exclusive(&session, location!("transfer")).unwrap();
///     let mut new = *guard;
///     new[0] -= amount;
///     new[account] += amount; // may panic: nothing is stored then
///     *guard = new;
/// };
/// assert!(catch_unwind(AssertUnwindSafe(|| transfer(30, 7))).is_err());
/// assert_eq!(*accounts.exclusive(&session, location!())?, [100, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the mutex is given back at once otherwise"]
pub struct Guard<'a, T> {
    pub(crate) hold: Hold<'a>,
    pub(crate) shared: &'a Shared<T>,
}

impl<T> std::fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("hold", &self.hold).finish_non_exhaustive()
    }
}

impl<'a, T> Guard<'a, T> {
    /// The hold, for its mode. The reference is shared only: guards that swapped their holds would protect
    /// each other's data.
    ///
    /// A session of another instance cannot get the mutex through it in safe Rust: recovery of that session
    /// would drop a reference to some other mutex, of the same number in the other instance.
    ///
    /// ```compile_fail,E0133
    /// # use retrial::{Capacity, Class, Instance, Mode, Patience, location};
    /// # let (ours, theirs) = (Instance::anonymous(Capacity::default())?, Instance::anonymous(Capacity::default())?);
    /// # let mutex = ours.mutex("m", "test", || 0u64)?;
    /// # let (session, foreign) = (ours.session("", Class::Normal)?, theirs.session("", Class::Normal)?);
    /// let guard = mutex.shared(&session, location!()).unwrap();
    /// let hold = guard.hold().mutex().get(&foreign, Mode::Shared, location!(), Patience::None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn hold(&self) -> &Hold<'a> {
        &self.hold
    }

    /// S → E. See [`Hold::examine`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Panics
    ///
    /// Unless the mode is S.
    pub fn examine(&mut self, patience: Patience) -> Result<(), ConvertError> {
        self.hold.examine(patience)
    }

    /// E → X. See [`Hold::upgrade`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Panics
    ///
    /// Unless the mode is E.
    pub fn upgrade(&mut self, patience: Patience) -> Result<(), ConvertError> {
        self.hold.upgrade(patience)
    }

    /// X, LX or E → S. See [`Hold::share`].
    ///
    /// # Panics
    ///
    /// When the mode is S already.
    pub fn share(&mut self) {
        self.hold.share();
    }

    /// Gives the mutex back, waits until the condition is signalled, and gets the mutex again in the same
    /// mode, however long that takes; all signals after the mutex was given back count. The patience is with
    /// the event alone: at the deadline the mutex is got again as well, and the result says
    /// [`Waited::TimedOut`]. With [`Patience::None`] other sessions have a moment to get the mutex.
    ///
    /// The wait may end without a signal: see [`Condition`]. The views show it as a wait for an event.
    ///
    /// # Errors
    ///
    /// As those of a get: [`GetError::OwnerDied`] has the guard, and a signal may have come too. It also ends
    /// a wait that nobody signals, within a second. `Forked` in a child of fork, which has nothing of the
    /// guard.
    ///
    /// # Panics
    ///
    /// Unless the mode is X or LX, and the condition of the same [`Instance`](crate::Instance) as the mutex.
    /// The mutex is given back then.
    pub fn wait(self, condition: &Condition<'_>, patience: Patience) -> WaitResult<'a, T> {
        let Guard { hold, shared } = self;
        match hold.wait(condition, patience) {
            Ok((hold, waited)) => Ok((Guard { hold, shared }, waited)),
            Err(error) => Err(error.map(|hold| Guard { hold, shared })),
        }
    }

    /// Declares the data consistent after the death of a holder. See [`Hold::consistent`].
    pub fn consistent(&mut self) {
        self.hold.consistent();
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: held, in whatever mode, nobody writes but through a guard of X, which excludes us.
        unsafe { &*self.shared.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    /// # Panics
    ///
    /// Unless the mode is X or LX.
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        let mode = self.hold.mode();
        assert!(
            matches!(mode, Mode::Exclusive | Mode::LongExclusive),
            "data are changed in X or LX only, not in {mode}"
        );
        // SAFETY: held exclusively by this guard.
        unsafe { &mut *self.shared.value.get() }
    }
}
