//! The mutexes of an instance, as the views show them.

use crate::engine_mutex::EngineMutex;
use crate::entries::{CLAIMED, MutexEntry, Place, RETIRED, TypeId};
use crate::error::Death;
use crate::operation_log::{MutexId, Record};
use crate::raw_mutex::RawMutex;
use crate::stats::EVENT_TYPES;
use crate::sys::{Observed as _, Ordering};
use crate::tables::Tables;
use crate::text::hash;
use crate::word::{Sid, Word};
use std::fmt;

/// A registered mutex, as the views show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutexInfo {
    /// Its id.
    pub id: MutexId,
    /// Its name; empty when it has none.
    pub name: String,
    /// Its type.
    pub mutex_type: TypeId,
    /// Where it is.
    pub place: Place,
    /// Offset in the arena, or address in the process that registered it; 0 where that is not known.
    pub address: u64,
    /// The process that registered it, in its own PID namespace.
    pub pid: u32,
    /// Gets that were noted when it went; `None` while it may be in use, and where none were noted.
    pub gets: Option<u64>,
    /// The last death of a holder.
    pub death: Option<Death>,
    /// Under `adaptive`: whether `pthread` is in use.
    pub pthread_in_use: bool,
    /// Under `adaptive`: switches so far.
    pub switches: u64,
    /// Under `orbit`: whether [one session is active alone](crate::wait::Restriction).
    pub one_alone: bool,
}

/// What a mutex is at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MutexState {
    /// The word.
    pub word: Word,
    /// First requests granted so far.
    pub gets: u64,
    /// Sessions parked.
    pub parked: u32,
}

impl Tables {
    /// A mutex's name, or its id when it has none.
    #[must_use]
    pub fn mutex_name(&self, id: MutexId) -> String {
        self.mutex_label(id).to_string()
    }

    /// What [`Tables::mutex_name`] gives, without allocating.
    pub(crate) fn mutex_label(&self, id: MutexId) -> impl fmt::Display {
        crate::text::written(move |f| match self.mutex_entry(id) {
            Some(entry) if !entry.name.is_empty() => entry.name.write(f),
            _ => write!(f, "#{}", id.0),
        })
    }

    /// The mutex of this name: that of the object in the arena, of which there is one at most, or where there
    /// is none some other.
    #[must_use]
    pub fn mutex_named(&self, name: &str) -> Option<MutexId> {
        let wanted = hash(name);
        let mut other = None;
        for id in (1..=self.mutexes_high()).map(|index| self.mutex_id(index)) {
            let Some(entry) = self.mutex_entry(id) else { continue };
            if entry.key.acquire() == wanted && entry.name.get() == name {
                if entry.place() == Place::Arena {
                    return Some(id);
                }
                other = other.or(Some(id));
            }
        }
        other
    }

    /// The object in the arena of this name.
    pub(crate) fn object_named(&self, name: &str) -> Option<MutexId> {
        self.mutex_named(name).filter(|id| self.mutex_entry(*id).is_some_and(|entry| entry.place() == Place::Arena))
    }

    fn mutexes_high(&self) -> u32 {
        let high = self.segment.header().mutexes_high.acquire();
        u32::try_from(high).unwrap_or(u32::MAX).min(self.segment.capacity().mutexes)
    }

    /// Every registered mutex.
    #[must_use]
    pub fn mutexes(&self) -> Vec<MutexInfo> {
        self.entries(false)
    }

    /// Everything else that is registered: what is waited for without being held.
    #[must_use]
    pub fn events(&self) -> Vec<MutexInfo> {
        self.entries(true)
    }

    fn entries(&self, for_events: bool) -> Vec<MutexInfo> {
        let types = EVENT_TYPES.map(|name| self.type_named(name));
        let all = (1..=self.mutexes_high()).filter_map(|index| self.mutex_info(self.mutex_id(index)));
        all.filter(|info| types.contains(&Some(info.mutex_type)) == for_events).collect()
    }

    /// What is known of a registered mutex.
    #[must_use]
    pub fn mutex_info(&self, id: MutexId) -> Option<MutexInfo> {
        let entry = self.mutex_entry(id)?;
        // Acquire: pairs with the Release in `publish` and in `retire_mutex`.
        let key = entry.key.acquire();
        if key <= CLAIMED {
            return None;
        }
        Some(MutexInfo {
            id,
            name: entry.name.get(),
            mutex_type: TypeId(u8::try_from(entry.mutex_type.load(Ordering::Relaxed)).unwrap_or(0)),
            place: entry.place(),
            address: entry.address.load(Ordering::Relaxed),
            pid: entry.pid.load(Ordering::Relaxed),
            gets: Some(entry.gets.load(Ordering::Relaxed)).filter(|gets| key == RETIRED && *gets > 0),
            death: self.death(id),
            pthread_in_use: entry.adaption.state.load(Ordering::Relaxed) & 1 == 1,
            switches: entry.adaption.switches.load(Ordering::Relaxed),
            one_alone: entry.restriction.load().is_settled_alone(),
        })
    }

    /// Where a registered mutex is. Allocates nothing: a waiter that recovers a dead session may wait for the
    /// allocator's lock.
    pub(crate) fn place_of(&self, id: MutexId) -> Option<Place> {
        let entry = self.mutex_entry(id)?;
        // Acquire: pairs with the Release in `publish`.
        (entry.key.acquire() > CLAIMED).then(|| entry.place())
    }

    /// Process and address of a mutex that lies in a process, without allocating: for interposers at the
    /// process's end.
    #[must_use]
    pub fn mutex_in_process(&self, id: MutexId) -> Option<(u32, u64)> {
        let entry = self.mutex_entry(id)?;
        let live = entry.key.acquire() > RETIRED;
        if !live || entry.place.load(Ordering::Relaxed) != Place::Process as u32 {
            return None;
        }
        Some((entry.pid.load(Ordering::Relaxed), entry.address.load(Ordering::Relaxed)))
    }

    /// Highest number of an entry that a mutex has had, as an id. It stays when the table has been gone round.
    #[must_use]
    pub fn last_mutex(&self) -> MutexId {
        MutexId(self.mutexes_high())
    }

    /// The last death of a holder of this mutex.
    #[must_use]
    pub fn death(&self, id: MutexId) -> Option<Death> {
        let entry = self.mutex_entry(id)?;
        let record = Record::unpack(entry.death.acquire())?;
        let sid = Sid::new(record.mutex.0);
        Some(Death { sid, mode: record.mode, location: record.location })
    }

    /// The entry of a mutex that is registered by this id.
    pub(crate) fn mutex_entry(&self, id: MutexId) -> Option<&MutexEntry> {
        if id.0 == 0 {
            return None;
        }
        // Acquire: pairs with the Release in `claim_entry`.
        let entry = self.segment.mutexes().get(id.index())?;
        (entry.generation.acquire() as u8 == id.generation()).then_some(entry)
    }

    /// The id of an entry now.
    pub(crate) fn mutex_id(&self, index: u32) -> MutexId {
        let generation = self.segment.mutexes()[index as usize].generation.acquire();
        MutexId::new(index as usize, generation as u8)
    }

    /// What a mutex in the arena is now, in the bytes of an object too; `None` for one in other memory.
    #[must_use]
    pub fn mutex_state(&self, id: MutexId) -> Option<MutexState> {
        // Once its engine has given it up, these bytes are the object's own.
        let is_live = || self.mutex_entry(id).is_some_and(|entry| entry.key.acquire() > RETIRED);
        let record = self.record(id).or_else(|| self.record_within(id).filter(|_| is_live()))?;
        Some(MutexState { word: record.observe(), gets: record.gets(), parked: record.parked() })
    }

    /// The record of a mutex in the arena. Not for observers: their mapping cannot be written.
    pub(crate) fn record(&self, id: MutexId) -> Option<&RawMutex> {
        let entry = self.mutex_entry(id)?;
        // What is shorter than any mutex is a condition.
        let is_mutex = entry.len.load(Ordering::Relaxed) >= size_of::<EngineMutex>() as u64;
        if entry.place.load(Ordering::Relaxed) != Place::Arena as u32 || !is_mutex {
            return None;
        }
        self.record_at(entry.address.load(Ordering::Relaxed))
    }

    /// The record of a mutex in the bytes of an object of the arena. As long as a session's log names the mutex, which
    /// keeps it bound; else these bytes may be another's after this.
    pub(crate) fn record_within(&self, id: MutexId) -> Option<&RawMutex> {
        let within = self.mutex_entry(id)?.within.load(Ordering::Relaxed);
        // The first object's own mutex is at 0. The bytes may be another thing's where their engine has not unbound
        // the mutex.
        if within == 0 { None } else { self.record_at(within).filter(|record| record.id() == id) }
    }

    fn record_at(&self, offset: u64) -> Option<&RawMutex> {
        let address = self.segment.arena(offset, size_of::<RawMutex>())?;
        if !address.addr().is_multiple_of(align_of::<RawMutex>()) {
            return None;
        }
        #[allow(clippy::cast_ptr_alignment)] // checked above
        let record: *const RawMutex = address.cast();
        // SAFETY: inside the arena and aligned, both checked, and a record is atomics only.
        Some(unsafe { &*record })
    }

    /// Where an object in the arena is: its mutex, then what that protects, as offsets in the segment.
    #[must_use]
    pub fn object_of(&self, id: MutexId) -> Option<std::ops::Range<u64>> {
        let start = self.offset_of(id)?;
        let len = self.mutex_entry(id)?.len.load(Ordering::Relaxed);
        Some(start..start.checked_add(len)?)
    }

    /// Offset in the segment of a mutex in the arena.
    #[must_use]
    pub fn offset_of(&self, id: MutexId) -> Option<u64> {
        // From the address that was checked: the one in the entry may be another by now.
        let record: *const RawMutex = self.record(id)?;
        Some(self.segment.offset_of(record.cast()))
    }
}
