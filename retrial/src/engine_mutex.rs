//! A mutex for memory that an engine lays out itself, and the bytes of a named object for such an engine.

use crate::error::{BindError, ObjectError, TableFull};
use crate::guard::Shared;
use crate::instance::Instance;
use crate::operation_log::MutexId;
use crate::raw_mutex::RawMutex;
use crate::sys::{AtomicU64, Ordering};
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
#[repr(C)]
#[derive(Debug, Default)]
pub struct EngineMutex {
    raw: RawMutex,
    /// When its instance was created, which names it; 0 for none, `GONE` after [`EngineMutex::unbind`].
    instance: AtomicU64,
}

const GONE: u64 = u64::MAX;

/// Type of the mutexes that were never told theirs.
const TYPE: &str = "engine mutex";

// A named mutex is such a one, with its value behind it.
const _: () = assert!(
    offset_of!(Shared<u64>, initialised) == offset_of!(EngineMutex, instance)
        && offset_of!(Shared<u64>, value) == size_of::<EngineMutex>()
        && offset_of!(Shared<u64>, raw) == 0
);

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
        let own = instance.tables.created_ns();
        // Acquire: pairs with the Release of the session that bound it. The instance first: two sessions of
        // two instances never both register it.
        match self.instance.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire) {
            Err(GONE) => return Err(BindError::Gone),
            Err(found) if found != own => return Err(BindError::OtherInstance),
            _ => {}
        }
        if self.raw.id().0 == 0 {
            let mutex_type = instance.register_type(mutex_type)?;
            let id = instance.register_mutex(mutex_type, self.raw.address(), name)?;
            if !self.raw.adopt_once(id, mutex_type, !instance.tables.has_barrier()) {
                // SAFETY: registered above, and the mutex has the id of another thread's.
                unsafe { instance.unregister_mutex(id) };
            }
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
    /// # Errors
    ///
    /// [`BindError`].
    ///
    /// # Safety
    ///
    /// No session gets it meanwhile, and it is in memory of the engine's own: not a named one.
    pub unsafe fn unbind(&self, instance: &Instance) -> Result<bool, BindError> {
        self.bound(instance)?;
        let word = self.raw.load();
        let is_free = word.sid().is_none() && word.references() == 0;
        if is_free {
            self.instance.store(GONE, Ordering::Release);
            // SAFETY: bound by this id or by none, free, and nobody gets it, as the caller says.
            unsafe { instance.unregister_mutex(self.raw.id()) };
        }
        Ok(is_free)
    }
}

impl Instance {
    /// The mutex of this name and the address of the `len` bytes behind it, which are 0 when it is new. They
    /// are aligned to 16, mapped as long as the instance, and those of an [`Instance::mutex`] of that size.
    ///
    /// # Errors
    ///
    /// [`ObjectError`]; also when the mutex exists with data of another size.
    pub fn mutex_bytes(
        &self,
        name: &str,
        mutex_type: &str,
        len: usize,
    ) -> Result<(&EngineMutex, *mut u8), ObjectError> {
        let capacity = self.capacity().arena;
        if len as u64 > capacity {
            return Err(TableFull { table: "arena", capacity }.into());
        }
        let mutex_type = self.register_type(mutex_type)?;
        let whole = size_of::<EngineMutex>() + len.next_multiple_of(align_of::<EngineMutex>());
        let (_, address) = self.object(name, mutex_type, whole)?;
        #[allow(clippy::cast_ptr_alignment)] // `object` aligns to 64
        // SAFETY: `object` gives at least so many bytes, for as long as the instance is mapped; any bytes are a
        // value.
        let mutex = unsafe { &*address.cast::<EngineMutex>() };
        self.initialise(&mutex.raw, &mutex.instance, || ())?;
        // SAFETY: the object is longer than that.
        Ok((mutex, unsafe { address.add(size_of::<EngineMutex>()) }))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::segment::Capacity;
    use crate::session::Class;
    use std::cell::Cell;
    use std::sync::Barrier;

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
    fn bytes_and_values_of_a_size_are_the_same_object() {
        let instance = instance();
        let value = instance.mutex("m", "t", || 7u64).unwrap();
        let (mutex, bytes) = instance.mutex_bytes("m", "t", 8).unwrap();
        assert_eq!(mutex.record(&instance).unwrap().id(), value.id());
        // SAFETY: 8 bytes, and nobody writes.
        assert_eq!(unsafe { bytes.cast::<[u8; 8]>().read() }, 7u64.to_ne_bytes());
        assert!(matches!(instance.mutex_bytes("m", "t", 16), Err(ObjectError::Shape { .. })));
        assert!(matches!(instance.mutex_bytes("n", "t", usize::MAX), Err(ObjectError::Full(_))));
        instance.mutex_bytes("n", "t", 8).unwrap();
        let zero = instance.mutex("n", "t", || 9u64).unwrap();
        assert_eq!(*zero.shared(&instance.session("", Class::Normal).unwrap(), crate::location!()).unwrap(), 0);
    }
}
