//! The tables of an instance, as they are read.

use crate::address::Address;
use crate::costs::{Cost, Costs};
use crate::entries::{ParamRow, TypeId};
use crate::mode::Mode;
use crate::operation_log::{LocationId, MutexId, Record};
use crate::params::{P, Params};
use crate::segment::{Capacity, Segment, TYPES};
use crate::slot::Slot;
use crate::sys::{self, Observed as _, Ordering};
use crate::text::hash;
use crate::word::Sid;
use std::fmt;

/// The tables of an instance, to be read.
#[derive(Debug)]
pub struct Tables {
    pub(crate) segment: Segment,
    pub(crate) address: Option<Address>,
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

    /// Whether releases rely on the barrier that a parking session has the kernel do; otherwise each release has a
    /// fence of its own. Decided when the instance was created.
    #[must_use]
    pub fn has_barrier(&self) -> bool {
        self.segment.header().fence.load(Ordering::Relaxed) == 1
    }

    /// What the steps of a wait cost on this machine: a poll as the creator measured it, the rest once a
    /// program has told it by [`Instance::set_costs`](crate::Instance::set_costs).
    #[must_use]
    pub fn costs(&self) -> Costs {
        Costs(std::array::from_fn(|i| self.segment.header().costs[i].load(Ordering::Relaxed)))
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
            row.clamped(own.and_then(set).or_else(|| set(&rows[0])).unwrap_or(row.default))
        }))
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
        self.location_label(id).to_string()
    }

    /// What [`Tables::location_name`] gives, without allocating.
    pub(crate) fn location_label(&self, id: LocationId) -> impl fmt::Display {
        crate::text::written(move |f| match self.segment.locations().get(usize::from(id.0)) {
            Some(entry) if id.0 != 0 && entry.hash.acquire() != 0 => entry.name.write(f),
            _ => f.write_str("unknown"),
        })
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

    /// The slots that sessions have, or have had.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (Sid, &Slot)> + use<'_> {
        self.sids().filter_map(|sid| Some((sid, self.slot(sid)?)))
    }

    /// Whether a session's log names a mutex, or what it is parked on: a recoverer looks at both. `None` where this
    /// process has no room to map a session's slot.
    pub(crate) fn is_in_a_log(&self, id: MutexId) -> Option<bool> {
        let is_named = |slot: &Slot| slot.logs(id) || slot.parked_on.load(Ordering::Acquire) == id.0;
        self.sids().try_fold(false, |named, sid| Some(named || is_named(self.slot(sid)?)))
    }

    /// Whether a living session waits for an event of this id, or this process has no room to map its slot.
    pub(crate) fn is_waited_for(&self, id: MutexId) -> bool {
        let waits = |slot: &Slot| slot.wait_under_way().is_some_and(|(key, _)| key.event.for_event && key.mutex == id);
        self.sids().any(|sid| self.slot(sid).is_none_or(|slot| waits(slot) && !slot.is_dead()))
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

    /// Words of the segment from `offset` bytes, for `peek`; `None` when they are not all inside or the
    /// offset is not a multiple of 8.
    ///
    /// # Safety
    ///
    /// Meanwhile this process writes the words that are read by atomics only: no thread of it holds an
    /// exclusive guard of a mutex whose data are there.
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
}
