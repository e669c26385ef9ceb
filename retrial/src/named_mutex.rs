//! Named mutexes with the data they protect, in the arena of an instance.

use crate::engine_mutex::Owner;
use crate::error::{GetError, ObjectError};
use crate::guard::{Guard, GuardResult, Shared};
use crate::instance::Instance;
use crate::location::CodeLocation;
use crate::mode::Mode;
use crate::mutex::Patience;
use crate::operation_log::MutexId;
use crate::raw_mutex::RawMutex;
use crate::session::Session;
use crate::sys::{AtomicU64, Deadline, Ordering};
use crate::word::Word;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Types that a [`Mutex`] can hold: any bytes are a value of them, and mean the same in every process.
///
/// Numbers are such types, arrays of them, and structs that derive zerocopy's traits. Pointers, references,
/// `bool`, `char`, `enum`, padding and interior mutability are refused.
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

/// A mutex in the arena of an instance, with the data it protects. Sessions of any process find it by its
/// name. A panic of its holder gives it back and does not poison it: see [`Guard`].
#[derive(Clone, Copy)]
pub struct Mutex<'i, T> {
    shared: &'i Shared<T>,
    instance: &'i Instance,
    id: MutexId,
}

// SAFETY: the value is only reached through guards, which the mutex keeps exclusive or shared.
unsafe impl<T: Shareable> Send for Mutex<'_, T> {}
// SAFETY: as above; S guards give `&T` to several threads at once, and a `Shareable` has no interior
// mutability and is `Sync`.
unsafe impl<T: Shareable> Sync for Mutex<'_, T> {}

impl<T> std::fmt::Debug for Mutex<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mutex").field("id", &self.id).field("word", &self.shared.raw.load()).finish_non_exhaustive()
    }
}

thread_local! {
    /// What says that the value is written which this thread waits for.
    static AWAITED: Cell<Option<NonNull<AtomicU64>>> = const { Cell::new(None) };
}

/// What the wait for a value asks.
fn is_written() -> bool {
    // SAFETY: it is there for as long as the wait of `initialise`, which takes it back.
    AWAITED.get().is_some_and(|written| unsafe { written.as_ref() }.load(Ordering::Acquire) != 0)
}

impl Instance {
    /// The mutex of this name, made with this value if it is new. `mutex_type` is registered if it is new.
    ///
    /// # Errors
    ///
    /// [`ObjectError`]; also when the mutex exists with data of another size, and when `value` asks for the
    /// mutex that it is the value of.
    pub fn mutex<T: Shareable>(
        &self,
        name: &str,
        mutex_type: &str,
        value: impl FnOnce() -> T,
    ) -> Result<Mutex<'_, T>, ObjectError> {
        const { assert!(align_of::<Shared<T>>() <= 64, "objects are aligned to 64 bytes") };
        let (id, address) = self.object(Owner::NONE, name, mutex_type, Shared::<T>::EXTENT)?;
        // SAFETY: `object` gives that many bytes, aligned to 64, for as long as the instance is mapped; any
        // bytes are a value.
        let shared = unsafe { &*address.cast::<Shared<T>>() };
        // SAFETY: written under the mutex, and nobody reads the value before `initialised` says so.
        self.initialise(&shared.raw, &shared.initialised, || unsafe { shared.value.get().write(value()) })?;
        Ok(Mutex { shared, instance: self, id })
    }

    /// Has the value of a named mutex written, under the mutex, if no session has done so.
    pub(crate) fn initialise(
        &self,
        raw: &RawMutex,
        initialised: &AtomicU64,
        write: impl FnOnce(),
    ) -> Result<(), ObjectError> {
        if initialised.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        let session = self.session("", crate::session::Class::Normal)?;
        // Another holder never becomes one of this thread.
        if self.tables.slot(raw.load().sid()).is_some_and(|holder| holder.is_of_same_thread(session.slot)) {
            return Err(ObjectError::Deadlock(self.tables.mutex_name(raw.id())));
        }
        // The session that writes the value may get the mutex at once, and hold it for long.
        AWAITED.set(Some(NonNull::from(initialised)));
        session.ask_while_waiting(is_written);
        // SAFETY: a session of this instance, which the mutex is registered with.
        let got = unsafe { raw.exclusive(&session, crate::location!("retrial: create")) };
        AWAITED.set(None);
        let hold = match got {
            Ok(hold) => hold,
            Err(GetError::OwnerDied(mut died)) => {
                if initialised.load(Ordering::Relaxed) == 0 {
                    // The session that died here was writing the value that this session writes now.
                    died.guard.consistent();
                }
                died.guard
            }
            Err(GetError::TimedOut) => return Ok(()),
            Err(error) => unreachable!("an endless get of an unheld mutex by a fresh session: {error}"),
        };
        if initialised.load(Ordering::Relaxed) == 0 {
            write();
            initialised.store(self.tables.created_ns(), Ordering::Release);
        }
        drop(hold);
        Ok(())
    }
}

impl Instance {
    /// The record of the mutex of this name, made without a value if it is new. Takes no session: a later
    /// call of [`Instance::mutex`] gives it its value.
    ///
    /// # Errors
    ///
    /// [`ObjectError`]; also when the mutex exists with data of another size.
    ///
    /// # Safety
    ///
    /// Only sessions of this instance get it: as for [`RawMutex::register`].
    pub unsafe fn mutex_record<T: Shareable>(&self, name: &str, mutex_type: &str) -> Result<&RawMutex, ObjectError> {
        let (_, address) = self.object(Owner::NONE, name, mutex_type, Shared::<T>::EXTENT)?;
        // SAFETY: `object` gives that many bytes, aligned to 64, for as long as the instance is mapped; any
        // bytes are a value, and the value is not touched.
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

    /// Panics for a session of another instance: its log would name this mutex by a number that means another
    /// mutex there. After the session's death the other mutex would be recovered, and this one never.
    #[inline(always)] // as `RawMutex::exclusive`
    #[allow(clippy::inline_always)]
    fn check(&self, session: &Session<'_>) {
        if !std::ptr::eq(self.instance, session.instance()) {
            self.refuse(session);
        }
    }

    #[cold]
    #[inline(never)]
    fn refuse(&self, session: &Session<'_>) -> ! {
        let address = |instance: &Instance| instance.address().map_or("anonymous".to_owned(), ToString::to_string);
        panic!(
            "mutex `{}` was given by one `Instance` ({}), session {} by another ({}): make the session by the \
             `Instance` that gave the mutex, also where both have the same file open",
            self.instance.tables.mutex_name(self.id),
            address(self.instance),
            session.sid(),
            address(session.instance()),
        );
    }

    /// Gets it exclusively, however long that takes.
    ///
    /// # Errors
    ///
    /// [`GetError::OwnerDied`] carries the guard.
    ///
    /// # Panics
    ///
    /// Unless the session is of the instance that gave the mutex: of the same [`Instance`], so do the other
    /// gets.
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
}

/// Gets of each mode with each patience.
macro_rules! gets {
    ($( $name:ident($($deadline:ident)?) $mode:ident $patience:expr, $does:literal, $errors:literal; )*) => {
        impl<'i, T: Shareable> Mutex<'i, T> { $(
            #[doc = concat!("Gets it ", $does, ".\n\n# Errors\n\n", $errors, ".")]
            pub fn $name<'a>(
                &self,
                session: &'a Session<'a>,
                at: &CodeLocation,
                $($deadline: Deadline)?
            ) -> GuardResult<'a, T>
            where
                'i: 'a,
            {
                self.get(session, Mode::$mode, at, $patience)
            }
        )* }
    };
}

gets! {
    try_exclusive() Exclusive Patience::None, "exclusively if that can be done at once",
        "[`GetError`]; `Busy` when it cannot";
    exclusive_until(deadline) Exclusive Patience::Until(deadline), "exclusively before a deadline",
        "[`GetError`]; `TimedOut` when the deadline has passed";
    shared() Shared Patience::Endless, "shared, however long that takes",
        "[`GetError::OwnerDied`] carries the guard";
    try_shared() Shared Patience::None, "shared if that can be done at once",
        "[`GetError`]; `Busy` when it cannot";
    shared_until(deadline) Shared Patience::Until(deadline), "shared before a deadline",
        "[`GetError`]; `TimedOut` when the deadline has passed";
    examine() Examine Patience::Endless,
        "to examine it: readers stay, nobody else examines or changes it, however long that takes",
        "[`GetError::OwnerDied`] carries the guard";
    try_examine() Examine Patience::None,
        "to examine it: readers stay, nobody else examines or changes it, if that can be done at once",
        "[`GetError`]; `Busy` when it cannot";
    examine_until(deadline) Examine Patience::Until(deadline),
        "to examine it: readers stay, nobody else examines or changes it, before a deadline",
        "[`GetError`]; `TimedOut` when the deadline has passed";
}

/// A [`Mutex`] that keeps its instance, so that both can live in one struct. Its sessions come from
/// [`OwnedMutex::instance`].
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
