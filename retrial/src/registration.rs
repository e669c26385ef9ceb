//! What is registered with an instance: types, locations, mutexes, and named objects in its arena.

use crate::engine_mutex::Owner;
use crate::entries::{CLAIMED, FREED, MutexEntry, Place, RETIRED, TypeId};
use crate::error::{ObjectError, TableFull};
use crate::fail;
use crate::instance::Instance;
use crate::operation_log::{LocationId, MutexId};
use crate::raw_mutex::RawMutex;
use crate::segment::{PAGE, TYPES};
use crate::sys::Ordering;
use crate::text::hash;

/// What a named object is to have room for.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// Where its data begin, after its mutex; 0 of a condition, which is all data.
    pub(crate) data: u32,
    /// Bytes of its data.
    pub(crate) len: usize,
}

impl Extent {
    const fn end(self) -> usize {
        self.len.saturating_add(self.data as usize)
    }

    /// Bytes of the arena that it takes, once it is known to be no longer than that.
    const fn allocated(self) -> usize {
        self.end().next_multiple_of(64)
    }
}

/// What an object is whose data begin there.
const fn kind(data: u32) -> &'static str {
    match data {
        0 => "a condition",
        // Behind its mutex at once.
        1..=48 => "a mutex with data aligned to 16 bytes or fewer",
        _ => "a mutex with data aligned to 32 bytes or more",
    }
}

impl Instance {
    /// The type of this name, registered if it is new.
    ///
    /// # Errors
    ///
    /// [`TableFull`] after 64 types.
    pub fn register_type(&self, name: &str) -> Result<TypeId, TableFull> {
        if let Some(id) = self.tables.type_named(name) {
            return Ok(id);
        }
        let wanted = hash(name);
        for (id, entry) in self.tables.segment.types().iter().enumerate() {
            // AcqRel: the next thread that finds the hash finds our name, or writes the same.
            let found = entry.hash.compare_exchange(0, wanted, Ordering::AcqRel, Ordering::Acquire);
            if found.is_ok() || found == Err(wanted) {
                fail::point();
                entry.name.set(name);
                return Ok(TypeId(u8::try_from(id).unwrap_or(0)));
            }
        }
        Err(TableFull { table: "types", capacity: TYPES as u64 })
    }

    /// The location of this name, registered if it is new.
    ///
    /// # Errors
    ///
    /// [`TableFull`].
    pub fn register_location(&self, name: &str) -> Result<LocationId, TableFull> {
        let wanted = hash(name);
        let entries = &self.tables.segment.locations()[1..];
        let start = (wanted % entries.len() as u64) as usize;
        let mut page = None;
        for i in (start..entries.len()).chain(0..start) {
            // Once for each page of entries: a full table is looked through as a whole.
            let in_page = Some(std::ptr::from_ref(&entries[i]).addr() / PAGE);
            if page != in_page && !self.tables.segment.populate_entry(&entries[i]) {
                break;
            }
            page = in_page;
            // AcqRel: as in `register_type`.
            let found = entries[i].hash.compare_exchange(0, wanted, Ordering::AcqRel, Ordering::Acquire);
            if found.is_ok() || found == Err(wanted) {
                fail::point();
                // Also when it is there: a process that was killed may have left a part of it.
                entries[i].name.set(name);
                return Ok(LocationId(u16::try_from(i + 1).unwrap_or(0)));
            }
        }
        Err(TableFull { table: "locations", capacity: entries.len() as u64 })
    }

    /// Registers a mutex that lies outside of the arena, for figures and recovery. `address` is for the views
    /// alone.
    ///
    /// # Errors
    ///
    /// [`TableFull`].
    pub fn register_mutex(&self, mutex_type: TypeId, address: u64, name: &str) -> Result<MutexId, TableFull> {
        // Without memory for more entries the table is as long as it is.
        let full = || TableFull { table: "mutexes", capacity: u64::from(self.tables.segment.capacity().mutexes) };
        let (id, entry) = self.claim_entry(u32::MAX)?.ok_or_else(full)?;
        entry.fill(mutex_type, Place::Elsewhere, address, 0, name);
        entry.publish(name);
        Ok(id)
    }

    /// The same for one in this process's memory, for the figures alone: `None` when no entry is free among so many.
    pub(crate) fn register_in_process(&self, mutex_type: TypeId, address: u64, looks: u32) -> Option<MutexId> {
        let (id, entry) = self.claim_entry(looks).ok()??;
        entry.fill(mutex_type, Place::Process, address, 0, "");
        entry.publish("");
        Some(id)
    }

    /// The same as [`Instance::register_mutex`] for a mutex at its own address, which may be in the bytes of an
    /// object of the arena. It has to stay there as long as a log names it
    /// ([`EngineMutex::unbind`](crate::engine::EngineMutex::unbind) looks): any recoverer may have it in hand.
    pub(crate) fn register_record(
        &self,
        mutex_type: TypeId,
        mutex: &RawMutex,
        name: &str,
    ) -> Result<MutexId, TableFull> {
        let id = self.register_mutex(mutex_type, mutex.address(), name)?;
        if let (Some(entry), Some(offset)) = (self.tables.mutex_entry(id), self.tables.segment.arena_offset(mutex)) {
            // Nobody owes to it before it has this id.
            entry.within.store(offset, Ordering::Relaxed);
        }
        Ok(id)
    }

    /// A free entry of the mutex table among so many, for the caller alone until it is published. A caller
    /// that is killed leaks it. `None` when there is no memory for one.
    ///
    /// The search starts where the last one ended, so that what was given back can be read for as long as
    /// possible, and an id comes again only after 256 rounds of the table.
    pub(crate) fn claim_entry(&self, looks: u32) -> Result<Option<(MutexId, &MutexEntry)>, TableFull> {
        let header = self.tables.segment.header();
        let entries = self.tables.segment.mutexes();
        let capacity = entries.len() - 1;
        let start = header.mutex_hint.load(Ordering::Relaxed) as usize % capacity;
        let looks = capacity.min(looks as usize);
        let next = |n| (start + n) % capacity + 1;
        // Entries of dead processes last: each takes a question to the kernel.
        for (i, of_the_dead) in (0..looks).map(|n| (next(n), false)).chain((0..looks).map(|n| (next(n), true))) {
            let entry = &entries[i];
            if i as u64 > header.mutexes_high.load(Ordering::Relaxed) && !self.tables.segment.populate_entry(entry) {
                return Ok(None);
            }
            let key = entry.key.load(Ordering::Relaxed);
            let is_free = matches!(key, 0 | FREED | RETIRED) || of_the_dead && entry.is_of_dead_process(key);
            // Acquire: a freed entry's last user is done with it.
            if is_free && entry.key.compare_exchange(key, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                header.mutexes_high.fetch_max(i as u64, Ordering::Relaxed);
                header.mutex_hint.store(i as u64, Ordering::Relaxed);
                fail::point();
                if key != 0 {
                    // No RMW: the entry is the caller's. Release: pairs with the Acquire in `mutex_entry`, so
                    // that no session finds the next mutex by the id of the last one.
                    let generation = entry.generation.load(Ordering::Relaxed).wrapping_add(1);
                    entry.generation.store(generation, Ordering::Release);
                    fail::point();
                }
                return Ok(Some((self.tables.mutex_id(i as u32), entry)));
            }
        }
        header.mutex_hint.store(next(looks - 1) as u64, Ordering::Relaxed);
        Err(TableFull { table: "mutexes", capacity: capacity as u64 })
    }

    /// Gives a mutex's entry back.
    ///
    /// # Safety
    ///
    /// The caller has registered the mutex by this id, and no session holds it or gets it any more: the
    /// recoverer would take a log record of it for one of the next mutex with this id.
    ///
    /// ```compile_fail,E0133
    /// # let instance = retrial::Instance::anonymous(retrial::Capacity::default())?;
    /// instance.unregister_mutex(retrial::MutexId(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn unregister_mutex(&self, id: MutexId) {
        let Some(entry) = self.tables.mutex_entry(id) else { return };
        let key = entry.key.load(Ordering::Relaxed);
        // What is given back twice, because a caller was killed after the first time, may be claimed again.
        if !matches!(key, 0 | FREED | CLAIMED | RETIRED) {
            // Release: pairs with the Acquire of the next claim.
            let _ = entry.key.compare_exchange(key, FREED, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// The memory of the named object, allocated if it is new: its entry and the address of its bytes, which
    /// were 0 when it was made. Aligned to 64 bytes. An object of another owner, kind or size is refused. What is refused
    /// registers no type.
    pub(crate) fn object(
        &self,
        owner: Owner,
        name: &str,
        mutex_type: &str,
        extent: Extent,
    ) -> Result<(MutexId, *mut u8), ObjectError> {
        if name.is_empty() || name.len() > MutexEntry::NAME_BYTES || name.contains('\0') {
            return Err(ObjectError::Name { found: name.to_owned(), longest: MutexEntry::NAME_BYTES });
        }
        let _admin = self.lock_tables()?;
        let header = self.tables.segment.header();
        if let Some(id) = self.tables.object_named(name)
            && let Some(entry) = self.tables.mutex_entry(id)
        {
            return self.address_of(entry, owner, name, extent).map(|address| (id, address));
        }
        let capacity = self.tables.segment.capacity().arena;
        // A multiple already, unless another program wrote there: then this session would claim an entry for
        // a place that `address_of` refuses.
        let offset = header.arena_next.load(Ordering::Relaxed).checked_next_multiple_of(64).unwrap_or(capacity);
        let left = capacity.saturating_sub(offset) / 64 * 64;
        if extent.end() as u64 > left {
            let (found, left) = (extent.len as u64, left.saturating_sub(extent.data.into()));
            return Err(ObjectError::TooLarge { name: name.into(), found, left, capacity });
        }
        if !self.tables.segment.populate_arena(offset, extent.allocated()) {
            return Err(ObjectError::NoSpace(name.into()));
        }
        let (id, entry) = self.claim_entry(u32::MAX)?.ok_or_else(|| ObjectError::NoSpace(name.into()))?;
        // Release: as in `unregister_mutex`.
        let give_back = |_: &TableFull| entry.key.store(FREED, Ordering::Release);
        let mutex_type = self.register_type(mutex_type).inspect_err(give_back)?;
        entry.fill(mutex_type, Place::Arena, offset, extent.end() as u64, name);
        entry.data.store(extent.data, Ordering::Relaxed);
        entry.owner.store(u64::from_le_bytes(owner.0), Ordering::Relaxed);
        let address = self.address_of(entry, owner, name, extent)?;
        if let Some(mutex) = self.tables.record(id) {
            mutex.adopt(id, mutex_type, !self.tables.has_barrier());
        }
        fail::point();
        header.arena_next.store(offset + extent.allocated() as u64, Ordering::Relaxed);
        fail::point();
        // Last: a thread that finds the name finds a mutex that can be used.
        entry.publish(name);
        fail::point();
        Ok((id, address))
    }

    /// Where a named object is, unless it is another's or none like that.
    fn address_of(
        &self,
        entry: &MutexEntry,
        owner: Owner,
        name: &str,
        expected: Extent,
    ) -> Result<*mut u8, ObjectError> {
        let owned = Owner(entry.owner.load(Ordering::Relaxed).to_le_bytes());
        if owned != owner {
            return Err(ObjectError::Owned { name: name.into(), found: owned, expected: owner });
        }
        let (data, len) = (entry.data.load(Ordering::Relaxed), entry.len.load(Ordering::Relaxed));
        if data != expected.data {
            return Err(ObjectError::Kind { name: name.into(), found: kind(data), expected: kind(expected.data) });
        }
        let shape = |found| ObjectError::Shape { name: name.into(), found, expected: expected.len as u64 };
        if len != expected.end() as u64 {
            return Err(shape(len.saturating_sub(data.into())));
        }
        // What another process wrote there is not believed: objects are where 64 divides.
        let offset = entry.address.load(Ordering::Relaxed);
        let aligned = Some(offset).filter(|offset| offset.is_multiple_of(64));
        aligned.and_then(|offset| self.tables.segment.arena(offset, expected.allocated())).ok_or_else(|| shape(0))
    }

    /// The record of a mutex in the arena.
    ///
    /// # Safety
    ///
    /// Only sessions of this instance get it: as for [`RawMutex::register`].
    #[must_use]
    pub unsafe fn mutex_in_arena(&self, id: MutexId) -> Option<&RawMutex> {
        self.tables.record(id)
    }
}
