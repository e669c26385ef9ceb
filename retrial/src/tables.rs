//! The tables of an instance, as they are read.

use crate::address::Address;
use crate::entries::{CLAIMED, MutexEntry, ParamRow, Place, RETIRED, TypeId};
use crate::error::Death;
use crate::machine::{Cost, Machine};
use crate::mode::Mode;
use crate::operation_log::{LocationId, MutexId, Record};
use crate::params::{P, Params};
use crate::raw_mutex::RawMutex;
use crate::segment::{Capacity, Segment, TYPES};
use crate::slot::Slot;
use crate::stats::EVENT_TYPES;
use crate::sys::{self, Observed as _, Ordering};
use crate::text::hash;
use crate::word::{Sid, Word};
use std::fmt;

/// The tables of an instance, to be read.
#[derive(Debug)]
pub struct Tables {
    pub(crate) segment: Segment,
    pub(crate) address: Option<Address>,
}

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
    /// Gets that were noted when it went; `None` while it may be in use, and where nobody noted them.
    pub gets: Option<u64>,
    /// The last death of a holder.
    pub death: Option<Death>,
    /// Under `adaptive`: whether `pthread` is in use.
    pub pthread_in_use: bool,
    /// Under `adaptive`: switches so far.
    pub switches: u64,
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

/// A row of the sleep history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastSleep {
    /// The mutex slept for.
    pub mutex: MutexId,
    /// SID of the session that held it.
    pub blocker: Sid,
    /// SID of the session that slept.
    pub waiter: Sid,
    /// When, by the monotonic clock.
    pub at_ns: u64,
    /// Where in the code.
    pub location: LocationId,
    /// The mode wanted.
    pub mode: Mode,
    /// Steps of that session's wait so far.
    pub sleeps: u64,
    /// Gets of the mutex by then.
    pub gets: u64,
}

impl Tables {
    /// What the instance has room for.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.segment.capacity()
    }

    /// Where it is; `None` for an anonymous one.
    #[must_use]
    pub fn address(&self) -> Option<&Address> {
        self.address.as_ref()
    }

    /// Bytes of the segment.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.segment.len()
    }

    /// When it was created, by the real-time clock, in ns.
    #[must_use]
    pub fn created_ns(&self) -> u64 {
        self.segment.header().created_ns.load(Ordering::Relaxed)
    }

    /// The process that created it.
    #[must_use]
    pub fn creator_pid(&self) -> u32 {
        u32::try_from(self.segment.header().creator.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Whether releases rely on the barrier that a parking session has the kernel do everywhere; otherwise each release
    /// has a fence of its own. Decided when the instance was created.
    #[must_use]
    pub fn has_barrier(&self) -> bool {
        self.segment.header().fence.load(Ordering::Relaxed) == 1
    }

    /// What the steps of a wait cost on this machine: a poll as the creator measured it, the others once somebody has said so by
    /// [`Instance::set_machine`](crate::Instance::set_machine).
    #[must_use]
    pub fn machine(&self) -> Machine {
        Machine(std::array::from_fn(|i| self.segment.header().costs[i].load(Ordering::Relaxed)))
    }

    /// A cost in ns, 0 when it is not known.
    pub(crate) fn cost(&self, cost: Cost) -> u64 {
        self.segment.header().costs[cost as usize].load(Ordering::Relaxed)
    }

    /// Owner deaths noted so far.
    #[must_use]
    pub fn recoveries(&self) -> u64 {
        self.segment.header().recoveries.load(Ordering::Relaxed)
    }

    /// The parameters in force for a mutex type, or for the instance.
    #[must_use]
    pub fn params(&self, mutex_type: Option<TypeId>) -> Params {
        let rows = self.segment.params();
        let own = mutex_type.map(|t| &rows[usize::from(t.0).min(TYPES - 1) + 1]);
        Params(std::array::from_fn(|i| {
            let set = |row: &ParamRow| row.0[i].acquire().checked_sub(1);
            let row = &crate::params::PARAMS[i];
            row.clamped(own.and_then(set).or_else(|| set(&rows[0])).unwrap_or_else(|| self.default_of(P::ALL[i])))
        }))
    }

    /// The value of a parameter that nobody has set: from what the machine's steps cost, where that is known and matters, else the
    /// table's.
    #[must_use]
    pub fn default_of(&self, p: P) -> u64 {
        // To spin for longer than a wake-up takes is dearer than to park.
        let us = if p == P::OrbitSpinTime { self.cost(Cost::WakeFar).div_ceil(1000) } else { 0 };
        if us == 0 { p.row().default } else { p.row().clamped(us) }
    }

    /// The value set for exactly this row, `None` where it follows the instance or the default.
    #[must_use]
    pub fn param_set(&self, p: P, mutex_type: Option<TypeId>) -> Option<u64> {
        let row = mutex_type.map_or(0, |t| usize::from(t.0).min(TYPES - 1) + 1);
        self.segment.params()[row].0[p as usize].acquire().checked_sub(1)
    }

    /// The type of this name.
    #[must_use]
    pub fn type_named(&self, name: &str) -> Option<TypeId> {
        let wanted = hash(name);
        let position = self.segment.types().iter().position(|t| t.hash.acquire() == wanted)?;
        Some(TypeId(u8::try_from(position).ok()?))
    }

    /// Every registered type.
    #[must_use]
    pub fn types(&self) -> Vec<(TypeId, String)> {
        let entries = self.segment.types().iter().enumerate();
        entries
            .filter(|(_, entry)| entry.hash.acquire() != 0)
            .map(|(id, entry)| (TypeId(u8::try_from(id).unwrap_or(0)), entry.name.get()))
            .collect()
    }

    /// A type's name.
    #[must_use]
    pub fn type_name(&self, id: TypeId) -> String {
        self.segment.types().get(usize::from(id.0)).map_or_else(String::new, |entry| entry.name.get())
    }

    /// Every registered location.
    #[must_use]
    pub fn locations(&self) -> Vec<(LocationId, String)> {
        let entries = self.segment.locations().iter().enumerate().skip(1);
        entries
            .filter(|(_, entry)| entry.hash.acquire() != 0)
            .map(|(id, entry)| (LocationId(u16::try_from(id).unwrap_or(0)), entry.name.get()))
            .collect()
    }

    /// Alerts written so far.
    #[must_use]
    pub fn alerts_written(&self) -> u64 {
        self.segment.header().alerts_next.load(Ordering::Relaxed)
    }

    /// Bytes of the arena that named objects take.
    #[must_use]
    pub fn arena_used(&self) -> u64 {
        self.segment.header().arena_next.load(Ordering::Relaxed)
    }

    /// A location's name; `unknown` for id 0 and for what is not registered.
    #[must_use]
    pub fn location_name(&self, id: LocationId) -> String {
        match self.segment.locations().get(usize::from(id.0)) {
            Some(entry) if id.0 != 0 && entry.hash.acquire() != 0 => entry.name.get(),
            _ => "unknown".to_owned(),
        }
    }

    /// A mutex's name, or its id when it has none.
    #[must_use]
    pub fn mutex_name(&self, id: MutexId) -> String {
        match self.mutex_entry(id).map(|entry| entry.name.get()) {
            Some(name) if !name.is_empty() => name,
            _ => format!("#{}", id.0),
        }
    }

    /// What [`Tables::mutex_name`] gives, without allocating.
    pub(crate) fn mutex_label(&self, id: MutexId) -> impl fmt::Display {
        fmt::from_fn(move |f| match self.mutex_entry(id) {
            Some(entry) if !entry.name.is_empty() => entry.name.write(f),
            _ => write!(f, "#{}", id.0),
        })
    }

    /// What [`Tables::location_name`] gives, without allocating.
    pub(crate) fn location_label(&self, id: LocationId) -> impl fmt::Display {
        fmt::from_fn(move |f| match self.segment.locations().get(usize::from(id.0)) {
            Some(entry) if id.0 != 0 && entry.hash.acquire() != 0 => entry.name.write(f),
            _ => f.write_str("unknown"),
        })
    }

    /// The mutex of this name.
    #[must_use]
    pub fn mutex_named(&self, name: &str) -> Option<MutexId> {
        let wanted = hash(name);
        (1..=self.mutexes_high())
            .map(|index| self.mutex_id(index))
            .find(|id| self.mutex_entry(*id).is_some_and(|e| e.key.acquire() == wanted && e.name.get() == name))
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
            pid: u32::try_from(entry.pid.load(Ordering::Relaxed)).unwrap_or(0),
            gets: Some(entry.gets.load(Ordering::Relaxed)).filter(|gets| key == RETIRED && *gets > 0),
            death: self.death(id),
            pthread_in_use: entry.adaption.state.load(Ordering::Relaxed) & 1 == 1,
            switches: entry.adaption.switches.load(Ordering::Relaxed),
        })
    }

    /// Where a registered mutex is. Allocates nothing: a waiter that recovers a dead session may wait for the allocator's lock.
    pub(crate) fn place_of(&self, id: MutexId) -> Option<Place> {
        let entry = self.mutex_entry(id)?;
        // Acquire: pairs with the Release in `publish`.
        (entry.key.acquire() > CLAIMED).then(|| entry.place())
    }

    /// Process and address of a mutex that lies in a process, without allocating: for interposers at the process's end.
    #[must_use]
    pub fn mutex_in_process(&self, id: MutexId) -> Option<(u32, u64)> {
        let entry = self.mutex_entry(id)?;
        let live = entry.key.acquire() > RETIRED;
        if !live || entry.place.load(Ordering::Relaxed) != Place::Process as u32 {
            return None;
        }
        let pid = u32::try_from(entry.pid.load(Ordering::Relaxed)).ok()?;
        Some((pid, entry.address.load(Ordering::Relaxed)))
    }

    /// Highest id that a registered mutex has had.
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

    /// What a mutex in the arena is now; `None` for one in other memory.
    #[must_use]
    pub fn mutex_state(&self, id: MutexId) -> Option<MutexState> {
        let record = self.record(id)?;
        Some(MutexState { word: record.observe(), gets: record.gets(), parked: record.parked() })
    }

    /// The record of a mutex in the arena. Not for observers: their mapping cannot be written.
    pub(crate) fn record(&self, id: MutexId) -> Option<&RawMutex> {
        let entry = self.mutex_entry(id)?;
        if entry.place.load(Ordering::Relaxed) != Place::Arena as u32 {
            return None;
        }
        let address = self.segment.arena(entry.address.load(Ordering::Relaxed), size_of::<RawMutex>())?;
        if !address.addr().is_multiple_of(align_of::<RawMutex>()) {
            return None;
        }
        #[allow(clippy::cast_ptr_alignment)] // checked above
        let record: *const RawMutex = address.cast();
        // SAFETY: inside the arena and aligned, both checked, and a record is atomics only.
        Some(unsafe { &*record })
    }

    /// SIDs that sessions of this instance may have had so far.
    pub fn sids(&self) -> impl Iterator<Item = Sid> + use<> {
        let ready = self.segment.header().slots_ready.acquire();
        let ready = u32::try_from(ready).unwrap_or(u32::MAX).min(self.segment.capacity().sessions);
        (1..=ready).map(Sid::new)
    }

    pub(crate) fn slot(&self, sid: Sid) -> Option<&Slot> {
        if sid.is_none() { None } else { self.segment.slot(sid.number() as usize) }
    }

    /// Alerts after number `after`, oldest first: number, real time in ns, text.
    #[must_use]
    pub fn alerts(&self, after: u64) -> Vec<(u64, u64, String)> {
        let mut alerts: Vec<_> = self
            .segment
            .alerts()
            .iter()
            .filter_map(|alert| {
                let number = alert.number.acquire();
                (number > after).then(|| (number, alert.at_ns.load(Ordering::Relaxed), alert.text.get()))
            })
            .collect();
        alerts.sort_unstable();
        alerts
    }

    /// The sleep history: the last sleep for each pair of mutex and blocking session.
    #[must_use]
    pub fn history(&self) -> Vec<PastSleep> {
        let rows = self.segment.history().iter();
        rows.filter_map(|past| {
            let key = past.key.acquire();
            let record = Record::unpack(past.what.load(Ordering::Relaxed))?;
            (key != 0).then(|| PastSleep {
                mutex: MutexId((key >> 32) as u32),
                blocker: Sid::new(key as u32),
                waiter: Sid::new(past.waiter.load(Ordering::Relaxed) as u32),
                at_ns: past.at_ns.load(Ordering::Relaxed),
                location: record.location,
                mode: record.mode,
                sleeps: past.sleeps.load(Ordering::Relaxed),
                gets: past.gets.load(Ordering::Relaxed),
            })
        })
        .collect()
    }

    /// Words of the segment from `offset` bytes, for `peek`; `None` when they are not all inside or the offset is not a
    /// multiple of 8.
    ///
    /// # Safety
    ///
    /// Nobody in this process writes what is read other than atomically meanwhile: no guard of a mutex whose data are there is held
    /// exclusively.
    ///
    /// ```compile_fail,E0133
    /// # let instance = retrial::Instance::anonymous(retrial::Capacity::default())?;
    /// let words = instance.tables().peek(0, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub unsafe fn peek(&self, offset: u64, count: usize) -> Option<Vec<u64>> {
        let words = self.segment.words(offset, count)?;
        Some(words.iter().map(sys::Observed::acquire).collect())
    }

    /// Offset in the segment of a mutex in the arena.
    #[must_use]
    pub fn offset_of(&self, id: MutexId) -> Option<u64> {
        // From the address that was checked: the one in the entry may be another by now.
        let record: *const RawMutex = self.record(id)?;
        Some(self.segment.offset_of(record.cast()))
    }
}
