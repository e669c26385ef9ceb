//! A mutex for memory that an engine lays out itself, and the bytes of a named object for such an engine.

use crate::entries::Place;
use crate::error::{BindError, ObjectError};
use crate::fail;
use crate::guard::Shared;
use crate::instance::Instance;
use crate::operation_log::MutexId;
use crate::raw_mutex::RawMutex;
use crate::registration::Extent;
use crate::sys::{self, AtomicU64, Ordering};
use crate::tables::Tables;
use std::fmt;
use std::mem::offset_of;

/// A mutex that knows its instance: 48 bytes of atomics, for a struct of the engine's own in shared memory.
///
/// ```text
///  0                      40         48
/// +----------------------+----------+
/// |  the record          | instance |
/// +----------------------+----------+
/// ```
///
/// All bytes 0 is a free mutex of no instance yet. The first call of [`EngineMutex::bind`] or
/// [`EngineMutex::record`] makes it one of an instance; sessions of others are refused from then on.
///
/// In the bytes of an [`Instance::mutex_bytes`] each process that has the instance open pays what the dead owe to it;
/// elsewhere the processes that have its memory mapped do. [`EngineMutex::unbind`] it before its bytes are used
/// otherwise.
#[repr(C)]
#[derive(Debug, Default)]
pub struct EngineMutex {
    raw: RawMutex,
    /// When its instance was created, which names it; 0 for none, `GONE` after [`EngineMutex::unbind`].
    instance: AtomicU64,
}

pub(crate) const GONE: u64 = u64::MAX;

/// Where the data of a named mutex begin, where they are aligned to no more than 16.
const DATA: u32 = size_of::<EngineMutex>() as u32;

/// Type of the mutexes that were never told theirs.
const TYPE: &str = "engine mutex";

// A named mutex is such a one, with its value behind it.
const _: () = assert!(
    offset_of!(Shared<u64>, initialised) == offset_of!(EngineMutex, instance)
        && offset_of!(Shared<u64>, value) == size_of::<EngineMutex>()
        && offset_of!(Shared<u64>, raw) == 0
);

/// Makes what has this word an object of an instance, unless it is one of another.
pub(crate) fn join(word: &AtomicU64, instance: &Instance) -> Result<(), BindError> {
    let own = instance.tables.created_ns();
    // Acquire, twice: pairs with the Release of the session that bound it. Most often it is bound.
    if word.load(Ordering::Acquire) == own {
        return Ok(());
    }
    match word.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire) {
        Err(GONE) => Err(BindError::Gone),
        Err(found) if found != own => Err(BindError::OtherInstance),
        _ => Ok(()),
    }
}

impl EngineMutex {
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) const INSTANCE: usize = offset_of!(Self, instance);

    /// Makes it a mutex of an instance, with a type and a name for the views. One that is already of this
    /// instance stays as it is.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    pub fn bind(&self, instance: &Instance, mutex_type: &str, name: &str) -> Result<MutexId, BindError> {
        if self.bound(instance)?.is_none_or(|raw| raw.id().0 == 0) {
            // The entry first: where none is free the mutex stays as it is.
            let mutex_type = instance.register_type(mutex_type)?;
            let id = instance.register_record(mutex_type, &self.raw, name)?;
            // Of two sessions of two instances one joins.
            let joined = join(&self.instance, instance);
            if joined.is_err() || !self.raw.adopt_once(id, mutex_type, !instance.tables.has_barrier()) {
                // SAFETY: registered above, and the mutex has the id of another thread's, or none of this instance.
                unsafe { instance.unregister_mutex(id) };
            }
            joined?;
        }
        Ok(self.raw.id())
    }

    /// Its record, where it is bound to this instance; `None` where it is bound to none.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    #[inline]
    pub fn bound(&self, instance: &Instance) -> Result<Option<&RawMutex>, BindError> {
        // Relaxed: a session that sees its own instance needs nothing of the thread that bound it but the id,
        // which `record` asks `bind` for where it is not seen.
        match self.instance.load(Ordering::Relaxed) {
            own if own == instance.tables.created_ns() => Ok(Some(&self.raw)),
            0 => Ok(None),
            GONE => Err(BindError::Gone),
            _ => Err(BindError::OtherInstance),
        }
    }

    /// Its number and the first requests granted so far, where it is bound to the instance of these tables.
    /// For observers, of a copy of its bytes: their mapping cannot be written.
    #[must_use]
    pub fn figures(&self, tables: &Tables) -> Option<(MutexId, u64)> {
        let is_its = self.instance.load(Ordering::Relaxed) == tables.created_ns();
        Some((self.raw.id(), self.raw.gets())).filter(|(id, _)| is_its && id.0 != 0)
    }

    /// Its record, for the sessions of an instance. Binds it to the instance if it is not bound.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    #[inline]
    pub fn record(&self, instance: &Instance) -> Result<&RawMutex, BindError> {
        if self.bound(instance)?.is_none_or(|raw| raw.id().0 == 0) {
            self.bind(instance, TYPE, "")?;
        }
        Ok(&self.raw)
    }

    /// Gives its entry in the instance back; later calls are refused. Whether it was free: a mutex that is
    /// held stays as it is.
    ///
    /// Returns when the releases of other sessions are over: as with a pthread mutex, the session that finds
    /// that it was the last to need the mutex may give the memory back at once. A session that waits for the
    /// mutex all the same keeps it for a second, then it counts as held.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    ///
    /// # Safety
    ///
    /// No session gets it meanwhile.
    pub unsafe fn unbind(&self, instance: &Instance) -> Result<bool, BindError> {
        let id = self.bound(instance)?.map_or(MutexId(0), RawMutex::id);
        if instance.tables.place_of(id) == Some(Place::Arena) {
            return Err(BindError::Named);
        }
        if self.raw.load().is_held() || !self.is_left(instance, id) {
            return Ok(false);
        }
        // The entry first: a process that is killed in between leaks none.
        // SAFETY: bound by this id or by none, free, and nobody gets it, as the caller says.
        unsafe { instance.unregister_mutex(id) };
        fail::point();
        self.instance.store(GONE, Ordering::Release);
        Ok(true)
    }

    /// Whether no session's log names it, within a second; not where this process cannot look at all of them. A
    /// release touches the mutex after the store that gives it back, and its record goes after that.
    fn is_left(&self, instance: &Instance, id: MutexId) -> bool {
        if id.0 == 0 {
            return true;
        }
        for look in 0..1000 {
            match instance.tables.is_in_a_log(id) {
                Some(true) => {}
                named => return named == Some(false),
            }
            // SAFETY: registered with the instance by this id. The record may be that of a dead session.
            unsafe { instance.recover_all_for(&self.raw) };
            sys::pause(look);
        }
        false
    }
}

/// Which code knows what the bytes of a named object mean, and lends them out: 8 bytes of text, its name and
/// the version of its layout, as `rtcache2`. All 0 for the objects that any program may read and write under
/// their mutex.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Owner(pub [u8; 8]);

impl Owner {
    /// Of the objects of [`Instance::mutex`], [`Instance::mutex_bytes`] and [`Instance::condition`].
    pub const NONE: Self = Self([0; 8]);
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE { f.write_str("any program") } else { write!(f, "`{}`", self.0.escape_ascii()) }
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Instance {
    /// The mutex of this name and the address of the `len` bytes behind it, which are 0 when it is new. They
    /// are aligned to 16, mapped as long as the instance, and those of an [`Instance::mutex`] of that size.
    ///
    /// # Errors
    ///
    /// [`ObjectError`]; also when the mutex exists with data of another size, or has an [`Owner`].
    pub fn mutex_bytes(
        &self,
        name: &str,
        mutex_type: &str,
        len: usize,
    ) -> Result<(&EngineMutex, *mut u8), ObjectError> {
        self.owned_bytes(Owner::NONE, name, mutex_type, len)
    }

    /// The same for bytes that an engine lends out by rules of its own: no call without this owner gets at
    /// them, [`Instance::mutex`] and the calls of other languages neither.
    ///
    /// # Errors
    ///
    /// [`ObjectError`]; `Owned` when the object of this name has another owner.
    pub fn owned_bytes(
        &self,
        owner: Owner,
        name: &str,
        mutex_type: &str,
        len: usize,
    ) -> Result<(&EngineMutex, *mut u8), ObjectError> {
        let (_, address) = self.object(owner, name, mutex_type, Extent { data: DATA, len })?;
        #[allow(clippy::cast_ptr_alignment)] // `object` aligns to 64
        // SAFETY: `object` gives at least so many bytes, for as long as the instance is mapped; any bytes are
        // a value.
        let mutex = unsafe { &*address.cast::<EngineMutex>() };
        // SAFETY: the object has `len` bytes behind it.
        let bytes = unsafe { address.add(size_of::<EngineMutex>()) };
        // SAFETY: `len` bytes of it, and its first holder's alone. A session that was killed here may have
        // written half of a value.
        self.initialise(&mutex.raw, &mutex.instance, || unsafe { bytes.write_bytes(0, len) })?;
        Ok((mutex, bytes))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::entries::CLAIMED;
    use crate::mode::Mode;
    use crate::operation_log::{LocationId, Phase, Record};
    use crate::segment::Capacity;
    use crate::session::Class;
    use crate::word::Sid;
    use crate::word::Word;
    use std::cell::Cell;
    use std::sync::Barrier;
    use std::time::Duration;

    /// What the mutex protects.
    struct Counted(Cell<u64>);

    // SAFETY: changed under the mutex alone.
    unsafe impl Sync for Counted {}

    fn instance() -> Instance {
        Instance::anonymous(Capacity::default()).unwrap()
    }

    #[test]
    fn it_belongs_to_the_first_instance_that_uses_it() {
        let (ours, theirs) = (instance(), instance());
        let mutex = EngineMutex::default();
        let id = mutex.record(&ours).unwrap().id();
        assert_eq!(ours.tables.mutex_info(id).unwrap().name, "");
        assert_eq!(mutex.bind(&ours, "t", "again"), Ok(id));
        assert_eq!(mutex.record(&theirs).unwrap_err(), BindError::OtherInstance);
        // SAFETY: no session gets it.
        assert_eq!(unsafe { mutex.unbind(&ours) }, Ok(true));
        assert_eq!(mutex.record(&ours).unwrap_err(), BindError::Gone);
        assert!(ours.tables.mutex_info(id).is_none());
    }

    #[test]
    fn sessions_that_use_it_first_at_once_have_one_mutex() {
        let instance = instance();
        for round in 0..200 {
            let (mutex, count, barrier) = (EngineMutex::default(), Counted(Cell::new(0)), Barrier::new(4));
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    let (mutex, instance, barrier, count) = (&mutex, &instance, &barrier, &count);
                    scope.spawn(move || {
                        let session = instance.session("", Class::Normal).unwrap();
                        barrier.wait();
                        let record = mutex.record(instance).unwrap();
                        // SAFETY: of the mutex's instance.
                        let hold = unsafe { record.exclusive(&session, crate::location!()) }.unwrap();
                        count.0.set(count.0.get() + 1);
                        drop(hold);
                    });
                }
            });
            assert_eq!((count.0.get(), mutex.raw.gets()), (4, 4), "round {round}");
            assert_eq!(instance.tables.mutexes().len(), 1, "round {round}");
            // SAFETY: no session gets it.
            assert_eq!(unsafe { mutex.unbind(&instance) }, Ok(true));
        }
    }

    #[test]
    fn it_goes_when_the_last_release_is_over_and_not_before() {
        let instance = instance();
        let mutex = EngineMutex::default();
        let id = mutex.record(&instance).unwrap().id();
        let late = instance.session("late", Class::Normal).unwrap();
        let record = Record { phase: Phase::Getting, mode: Mode::Exclusive, location: LocationId(0), mutex: id };
        // After the store that gives it back, before the record goes.
        let index = late.log(record).unwrap();
        let has_gone = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: no session gets it.
                assert_eq!(unsafe { mutex.unbind(&instance) }, Ok(true));
                has_gone.store(1, Ordering::Release);
            });
            sys::sleep(Duration::from_millis(50));
            assert_eq!(has_gone.load(Ordering::Acquire), 0);
            late.unlog(index);
        });
        assert_eq!(has_gone.load(Ordering::Acquire), 1);
    }

    #[test]
    fn one_that_a_session_waits_for_or_drains_or_that_has_a_name_stays() {
        let instance = instance();
        let session = instance.session("waits", Class::Normal).unwrap();
        let mutex = EngineMutex::default();
        let id = mutex.record(&instance).unwrap().id();
        let record = Record { phase: Phase::Getting, mode: Mode::Exclusive, location: LocationId(0), mutex: id };
        let index = session.log(record).unwrap();
        // SAFETY: no session gets it.
        let unbind = |mutex: &EngineMutex| unsafe { mutex.unbind(&instance) };
        assert_eq!(unbind(&mutex), Ok(false), "after a second");
        session.unlog(index);
        mutex.raw.fake(Word(Word::DRAINING), session.sid());
        assert_eq!(unbind(&mutex), Ok(false));
        mutex.raw.fake(Word(0), Sid::new(0));
        assert_eq!((unbind(&mutex), unbind(&mutex)), (Ok(true), Err(BindError::Gone)));
        let (named, _) = instance.mutex_bytes("m", "t", 8).unwrap();
        assert_eq!(unbind(named), Err(BindError::Named));
    }

    #[test]
    fn an_entry_that_was_given_back_amid_an_unbind_stays_the_next_ones() {
        let instance = instance();
        let mutex = EngineMutex::default();
        let id = mutex.record(&instance).unwrap().id();
        let entry = instance.tables.mutex_entry(id).unwrap();
        // As a process leaves it that is killed amid an unbind; and what another one does to it meanwhile.
        // SAFETY: no session gets it.
        unsafe { instance.unregister_mutex(id) };
        entry.key.store(CLAIMED, Ordering::Relaxed);
        // SAFETY: no session gets it.
        assert_eq!(unsafe { mutex.unbind(&instance) }, Ok(true));
        assert_eq!(entry.key.load(Ordering::Relaxed), CLAIMED);
    }

    #[test]
    fn bytes_that_a_dead_session_has_begun_to_write_are_0() {
        let instance = instance();
        let half = || instance.mutex::<u64>("m", "t", || panic!("half a value")).map(drop);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(half)).is_err());
        // What it wrote of the value before it died, here by hand.
        let record = instance.tables.mutex_named("m").unwrap();
        let offset = instance.tables.offset_of(record).unwrap() + size_of::<EngineMutex>() as u64;
        // SAFETY: the value's.
        assert!(unsafe { instance.poke(offset, 0x4a1f) });
        let (_, bytes) = instance.mutex_bytes("m", "t", 8).unwrap();
        // SAFETY: 8 bytes, and nobody writes.
        assert_eq!(unsafe { bytes.cast::<[u8; 8]>().read() }, [0; 8]);
    }

    #[test]
    fn bytes_and_values_of_a_size_are_the_same_object() {
        let instance = instance();
        let value = instance.mutex("m", "t", || 7u64).unwrap();
        let (mutex, bytes) = instance.mutex_bytes("m", "t", 8).unwrap();
        assert_eq!(mutex.record(&instance).unwrap().id(), value.id());
        // SAFETY: 8 bytes, and nobody writes.
        assert_eq!(unsafe { bytes.cast::<[u8; 8]>().read() }, 7u64.to_ne_bytes());
        assert!(matches!(instance.mutex_bytes("m", "t", 16), Err(ObjectError::Shape { .. })));
        assert!(matches!(instance.mutex_bytes("n", "t", usize::MAX), Err(ObjectError::TooLarge { .. })));
        instance.mutex_bytes("n", "t", 8).unwrap();
        let zero = instance.mutex("n", "t", || 9u64).unwrap();
        assert_eq!(*zero.shared(&instance.session("", Class::Normal).unwrap(), crate::location!()).unwrap(), 0);
    }
}
