//! Named mutexes with the data they protect, in the arena of an instance.

use crate::error::{ConvertError, GetError, ObjectError};
use crate::instance::Instance;
use crate::location::CodeLocation;
use crate::mode::Mode;
use crate::mutex::{Hold, Patience};
use crate::operation_log::MutexId;
use crate::raw_mutex::RawMutex;
use crate::session::Session;
use crate::sys::{AtomicU64, Deadline, Ordering};
use crate::word::Word;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Types that a [`Mutex`] can hold: any bytes are a value of them, and mean the same in every process.
///
/// Numbers are such types, arrays of them, and structs that derive zerocopy's traits. Pointers, references, `bool`, `char`, `enum`,
/// padding and interior mutability are refused.
///
/// ```
/// #![forbid(unsafe_code)]
/// use retrial::{Capacity, Instance, Mutex};
/// use retrial::zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
/// #[zerocopy(crate = "retrial::zerocopy")]
/// #[repr(C)]
/// struct Account {
///     balance: i64,
///     changes: u64,
/// }
///
/// let instance = Instance::anonymous(Capacity::default())?;
/// let account: Mutex<Account> = instance.mutex("account", "bank", || Account { balance: 0, changes: 0 })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// What another process might read otherwise than it was written is refused:
///
/// ```compile_fail,E0277
/// # let instance = retrial::Instance::anonymous(retrial::Capacity::default())?;
/// let flag: retrial::Mutex<bool> = instance.mutex("flag", "bank", || false)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Shareable: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static {}

impl<T: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static> Shareable for T {}

#[repr(C)]
struct Shared<T> {
    raw: RawMutex,
    /// 1 once the value was written; changed under the mutex.
    initialised: AtomicU64,
    value: UnsafeCell<T>,
}

/// A mutex in the arena of an instance, with the data it protects. Sessions of any process find it by its name.
#[derive(Clone, Copy)]
pub struct Mutex<'i, T> {
    shared: &'i Shared<T>,
    instance: &'i Instance,
    id: MutexId,
}

// SAFETY: the value is only reached through guards, which the mutex keeps exclusive or shared.
unsafe impl<T: Shareable> Send for Mutex<'_, T> {}
// SAFETY: as above; S guards give `&T` to several threads at once, and a `Shareable` has no interior mutability and is `Sync`.
unsafe impl<T: Shareable> Sync for Mutex<'_, T> {}

impl<T> std::fmt::Debug for Mutex<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mutex").field("id", &self.id).field("word", &self.shared.raw.load()).finish_non_exhaustive()
    }
}

/// What a get of a [`Mutex`] gives.
pub type GuardResult<'a, T> = Result<Guard<'a, T>, GetError<Guard<'a, T>>>;

impl Instance {
    /// The mutex of this name, made with this value if it is new. `mutex_type` is registered if it is new.
    ///
    /// # Errors
    ///
    /// [`ObjectError`]; also when the mutex exists with data of another size.
    pub fn mutex<T: Shareable>(
        &self,
        name: &str,
        mutex_type: &str,
        value: impl FnOnce() -> T,
    ) -> Result<Mutex<'_, T>, ObjectError> {
        const { assert!(align_of::<Shared<T>>() <= 64, "objects are aligned to 64 bytes") };
        let mutex_type = self.register_type(mutex_type)?;
        let (id, address) = self.object(name, mutex_type, size_of::<Shared<T>>())?;
        // SAFETY: `object` gives that many bytes, aligned to 64, for as long as the instance is mapped; any bytes are a value.
        let shared = unsafe { &*address.cast::<Shared<T>>() };
        if shared.initialised.load(Ordering::Acquire) == 0 {
            let session = self.session("", crate::session::Class::Normal)?;
            // SAFETY: a session of this instance, which the mutex is registered with.
            let hold = match unsafe { shared.raw.exclusive(&session, crate::location!("retrial: create")) } {
                Ok(hold) => hold,
                Err(GetError::OwnerDied(mut died)) => {
                    if shared.initialised.load(Ordering::Relaxed) == 0 {
                        // Whoever died here was writing what we write now.
                        died.guard.consistent();
                    }
                    died.guard
                }
                Err(error) => unreachable!("an endless get of an unheld mutex by a fresh session: {error}"),
            };
            if shared.initialised.load(Ordering::Relaxed) == 0 {
                // SAFETY: we hold the mutex, and nobody reads the value before `initialised` says so.
                unsafe { shared.value.get().write(value()) };
                shared.initialised.store(1, Ordering::Release);
            }
            drop(hold);
        }
        Ok(Mutex { shared, instance: self, id })
    }
}

impl Instance {
    /// The record of the mutex of this name, made without a value if it is new. Takes no session: whoever asks for it by
    /// [`Instance::mutex`] later gives it its value.
    ///
    /// # Errors
    ///
    /// [`ObjectError`]; also when the mutex exists with data of another size.
    ///
    /// # Safety
    ///
    /// Only sessions of this instance get it: as for [`RawMutex::register`].
    pub unsafe fn mutex_record<T: Shareable>(&self, name: &str, mutex_type: &str) -> Result<&RawMutex, ObjectError> {
        let mutex_type = self.register_type(mutex_type)?;
        let (_, address) = self.object(name, mutex_type, size_of::<Shared<T>>())?;
        // SAFETY: `object` gives that many bytes, aligned to 64, for as long as the instance is mapped; any bytes are a
        // value, and the value is not touched.
        let shared = unsafe { &*address.cast::<Shared<T>>() };
        Ok(&shared.raw)
    }
}

impl<'i, T: Shareable> Mutex<'i, T> {
    /// Its id.
    #[must_use]
    pub const fn id(&self) -> MutexId {
        self.id
    }

    /// Its word at this moment.
    #[must_use]
    pub fn word(&self) -> Word {
        self.shared.raw.load()
    }

    /// Sessions that are parked on it at this moment, a hint.
    #[must_use]
    pub fn parked(&self) -> u32 {
        self.shared.raw.parked()
    }

    /// Gets so far.
    #[must_use]
    pub fn gets(&self) -> u64 {
        self.shared.raw.gets()
    }

    /// The record without the data.
    #[cfg(test)]
    pub(crate) const fn raw(&self) -> &'i RawMutex {
        &self.shared.raw
    }

    /// Panics for a session of another instance: its log would name this mutex by a number that means another mutex there. After the
    /// session's death that one would be recovered, and this one never.
    #[inline(always)] // as `RawMutex::exclusive`
    #[allow(clippy::inline_always)]
    fn check(&self, session: &Session<'_>) {
        assert!(std::ptr::eq(self.instance, session.instance()), "the session is of the instance that gave the mutex");
    }

    /// Gets it exclusively, however long that takes.
    ///
    /// # Errors
    ///
    /// [`GetError::OwnerDied`] carries the guard.
    ///
    /// # Panics
    ///
    /// Unless the session is of the instance that gave the mutex: of the same [`Instance`], so do the other gets.
    #[inline(always)] // as `RawMutex::exclusive`
    #[allow(clippy::inline_always)]
    pub fn exclusive<'a>(&self, session: &'a Session<'a>, at: &CodeLocation) -> GuardResult<'a, T>
    where
        'i: 'a,
    {
        self.check(session);
        let shared: &'a Shared<T> = self.shared;
        // SAFETY: the session is of the mutex's instance, as `check` found.
        match unsafe { shared.raw.exclusive(session, at) } {
            Ok(hold) => Ok(Guard { hold, shared }),
            Err(error) => Err(error.map(|hold| Guard { hold, shared })),
        }
    }

    /// Gets it in a mode, as long as the patience lasts.
    ///
    /// # Errors
    ///
    /// [`GetError`].
    #[inline(always)] // as `RawMutex::exclusive`
    #[allow(clippy::inline_always)]
    pub fn get<'a>(
        &self,
        session: &'a Session<'a>,
        mode: Mode,
        at: &CodeLocation,
        patience: Patience,
    ) -> GuardResult<'a, T>
    where
        'i: 'a,
    {
        self.check(session);
        let shared: &'a Shared<T> = self.shared;
        // SAFETY: the session is of the mutex's instance, as `check` found.
        match unsafe { shared.raw.get(session, mode, at, patience) } {
            Ok(hold) => Ok(Guard { hold, shared }),
            Err(error) => Err(error.map(|hold| Guard { hold, shared })),
        }
    }

    /// Gets it exclusively if that can be done at once.
    ///
    /// # Errors
    ///
    /// [`GetError`]; `Busy` when it cannot.
    pub fn try_exclusive<'a>(&self, session: &'a Session<'a>, at: &CodeLocation) -> GuardResult<'a, T>
    where
        'i: 'a,
    {
        self.get(session, Mode::Exclusive, at, Patience::None)
    }

    /// Gets it exclusively before a deadline.
    ///
    /// # Errors
    ///
    /// [`GetError`]; `TimedOut` when the deadline has passed.
    pub fn exclusive_until<'a>(
        &self,
        session: &'a Session<'a>,
        at: &CodeLocation,
        deadline: Deadline,
    ) -> GuardResult<'a, T>
    where
        'i: 'a,
    {
        self.get(session, Mode::Exclusive, at, Patience::Until(deadline))
    }

    /// Gets it shared, however long that takes.
    ///
    /// # Errors
    ///
    /// [`GetError::OwnerDied`] carries the guard.
    pub fn shared<'a>(&self, session: &'a Session<'a>, at: &CodeLocation) -> GuardResult<'a, T>
    where
        'i: 'a,
    {
        self.get(session, Mode::Shared, at, Patience::Endless)
    }

    /// Gets it shared if that can be done at once.
    ///
    /// # Errors
    ///
    /// [`GetError`]; `Busy` when it cannot.
    pub fn try_shared<'a>(&self, session: &'a Session<'a>, at: &CodeLocation) -> GuardResult<'a, T>
    where
        'i: 'a,
    {
        self.get(session, Mode::Shared, at, Patience::None)
    }

    /// Gets it shared before a deadline.
    ///
    /// # Errors
    ///
    /// [`GetError`]; `TimedOut` when the deadline has passed.
    pub fn shared_until<'a>(
        &self,
        session: &'a Session<'a>,
        at: &CodeLocation,
        deadline: Deadline,
    ) -> GuardResult<'a, T>
    where
        'i: 'a,
    {
        self.get(session, Mode::Shared, at, Patience::Until(deadline))
    }

    /// Gets it to examine it: readers stay, nobody else examines or changes it, however long that takes.
    ///
    /// # Errors
    ///
    /// [`GetError::OwnerDied`] carries the guard.
    pub fn examine<'a>(&self, session: &'a Session<'a>, at: &CodeLocation) -> GuardResult<'a, T>
    where
        'i: 'a,
    {
        self.get(session, Mode::Examine, at, Patience::Endless)
    }

    /// Gets it to examine it: readers stay, nobody else examines or changes it if that can be done at once.
    ///
    /// # Errors
    ///
    /// [`GetError`]; `Busy` when it cannot.
    pub fn try_examine<'a>(&self, session: &'a Session<'a>, at: &CodeLocation) -> GuardResult<'a, T>
    where
        'i: 'a,
    {
        self.get(session, Mode::Examine, at, Patience::None)
    }

    /// Gets it to examine it: readers stay, nobody else examines or changes it before a deadline.
    ///
    /// # Errors
    ///
    /// [`GetError`]; `TimedOut` when the deadline has passed.
    pub fn examine_until<'a>(
        &self,
        session: &'a Session<'a>,
        at: &CodeLocation,
        deadline: Deadline,
    ) -> GuardResult<'a, T>
    where
        'i: 'a,
    {
        self.get(session, Mode::Examine, at, Patience::Until(deadline))
    }
}

/// A [`Mutex`] that keeps its instance, so that both can live in one struct. Its sessions come from [`OwnedMutex::instance`].
///
/// ```
/// use retrial::{Capacity, Class, Instance, OwnedMutex, location};
/// use std::sync::Arc;
///
/// struct Shop {
///     stock: OwnedMutex<u64>,
/// }
///
/// let instance = Arc::new(Instance::anonymous(Capacity::default())?);
/// let shop = Arc::new(Shop { stock: OwnedMutex::new(&instance, "stock", "goods", || 7)? });
/// let clerk = Arc::clone(&shop);
/// std::thread::spawn(move || {
///     let session = clerk.stock.instance().session("clerk", Class::Normal).unwrap();
///     *clerk.stock.borrow().exclusive(&session, location!("sell")).unwrap() -= 1;
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OwnedMutex<T> {
    instance: Arc<Instance>,
    shared: *const Shared<T>,
    id: MutexId,
}

// SAFETY: as for `Mutex`, which is all that it gives.
unsafe impl<T: Shareable> Send for OwnedMutex<T> {}
// SAFETY: as above.
unsafe impl<T: Shareable> Sync for OwnedMutex<T> {}

impl<T> std::fmt::Debug for OwnedMutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnedMutex").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<T: Shareable> OwnedMutex<T> {
    /// As [`Instance::mutex`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn new(
        instance: &Arc<Instance>,
        name: &str,
        mutex_type: &str,
        value: impl FnOnce() -> T,
    ) -> Result<Self, ObjectError> {
        let Mutex { shared, id, .. } = instance.mutex(name, mutex_type, value)?;
        Ok(Self { shared, id, instance: Arc::clone(instance) })
    }

    /// Where its sessions come from.
    #[must_use]
    pub const fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }

    /// The mutex.
    #[must_use]
    pub fn borrow(&self) -> Mutex<'_, T> {
        // SAFETY: in the mapping of the instance, which lives as long as `self`.
        let shared = unsafe { &*self.shared };
        Mutex { shared, instance: &self.instance, id: self.id }
    }
}

/// A mutex held, with access to its data; given back when dropped.
#[must_use = "the mutex is given back at once otherwise"]
pub struct Guard<'a, T> {
    hold: Hold<'a>,
    shared: &'a Shared<T>,
}

impl<T> std::fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("hold", &self.hold).finish_non_exhaustive()
    }
}

impl<'a, T> Guard<'a, T> {
    /// The hold, for its mode. The reference is shared only: guards that swapped their holds would protect each other's data.
    ///
    /// A session of another instance cannot get the mutex through it in safe Rust: recovery of that session would drop a reference to
    /// some other mutex, of the same number in the other instance.
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
