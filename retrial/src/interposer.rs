//! For interposers, which take libc's calls in a process and wait by the schemes of an instance for locks of
//! libc's formats.

use crate::entries::{Place, RETIRED, TypeId};
use crate::instance::{A_FEW, Instance};
use crate::operation_log::MutexId;
use crate::session::Session;
use crate::sys::{AtomicU32, Ordering};
use crate::text::hash;

pub mod samples;

pub use crate::event::EventWait;
pub use crate::parking::Parked;
pub use crate::stats::CALLS;
#[cfg(not(any(loom, shuttle)))]
pub use crate::sys::interposed::{RobustCalls, set_robust_calls};
pub use crate::sys::interposed::{calls_are_limited, learn_from_libc, libc_tid, limit_calls};
pub use crate::wait::Park;
pub use crate::waiter::{Ended, Target, Waiter, Want};

/// Counts a get that no record of ours counts.
#[inline]
pub fn count_get(session: &Session<'_>) {
    session.slot.gets.store(session.slot.gets.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// Counts a call of an interposer's function; `call` is a position in [`CALLS`].
#[inline]
pub fn count_call(session: &Session<'_>, call: usize) {
    if let Some(calls) = session.slot.calls.get(call) {
        // No RMW: one writer.
        calls.store(calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// Counts a call of a thread that has no session.
pub fn count_call_of_guest(instance: &Instance, call: usize, is_get: bool) {
    let departed = instance.tables.segment.departed();
    if let Some(calls) = departed.calls.get(call) {
        calls.fetch_add(1, Ordering::Relaxed);
    }
    departed.gets.fetch_add(u64::from(is_get), Ordering::Relaxed);
}

/// Counts a thread that has no session because there is no room for it.
pub fn count_thread_without_session(instance: &Instance) {
    instance.tables.segment.departed().told.fetch_add(1, Ordering::Relaxed);
}

/// Registers a mutex at an address of this process that a get has missed, for the figures alone. Takes no
/// longer when the table is full: `None` when no entry is free among a few, and then the next miss may ask
/// again.
pub fn register_missed_mutex(instance: &Instance, mutex_type: TypeId, address: u64) -> Option<MutexId> {
    instance.register_in_process(mutex_type, address, A_FEW)
}

/// Gives the entry of a mutex of a process back, with its `gets` where they are known. What it says can be
/// read until another mutex needs the entry.
///
/// # Safety
///
/// As for [`Instance::unregister_mutex`], of a mutex of this process.
pub unsafe fn retire_mutex(instance: &Instance, id: MutexId, gets: Option<u64>) {
    let Some(entry) = instance.tables.mutex_entry(id) else { return };
    if let Some(gets) = gets {
        entry.gets.store(gets, Ordering::Relaxed);
    }
    let key = entry.key.load(Ordering::Relaxed);
    if key > RETIRED {
        // Release: pairs with the Acquire of the next claim, and in `mutex_info`. It may have been taken for
        // a dead process's.
        let _ = entry.key.compare_exchange(key, RETIRED, Ordering::Release, Ordering::Relaxed);
    }
}

/// Notes what an observer has found out about a mutex in a process's memory: what it is, where it has no
/// name; and its gets, if its process has ended without noting them.
pub fn note_found(instance: &Instance, id: MutexId, name: &str, gets: Option<u64>) {
    let Some(entry) = instance.tables.mutex_entry(id) else { return };
    let key = entry.key.load(Ordering::Relaxed);
    if entry.place() != Place::Process || key < RETIRED {
        return;
    }
    if entry.name.is_empty() {
        entry.name.set(name);
    }
    if entry.is_of_dead_process(key)
        // Acquire: as in `claim_entry`, which may come first.
        && entry.key.compare_exchange(key, RETIRED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        && let Some(gets) = gets
    {
        entry.gets.store(gets, Ordering::Relaxed);
    }
}

/// Whether an id is that of the mutex at an address of this process still. A retired entry is in use again
/// then.
pub fn resume_mutex(instance: &Instance, id: MutexId, mutex_type: TypeId, address: u64) -> bool {
    let Some(entry) = instance.tables.mutex_entry(id) else { return false };
    let same = |cell: &AtomicU32, value: u32| cell.load(Ordering::Relaxed) == value;
    let is_its = same(&entry.mutex_type, u32::from(mutex_type.0))
        && same(&entry.place, Place::Process as u32)
        && entry.address.load(Ordering::Relaxed) == address;
    is_its
        && match entry.key.load(Ordering::Relaxed) {
            // Acquire: as in `claim_entry`, which may come first.
            RETIRED => entry.key.compare_exchange(RETIRED, hash(""), Ordering::Acquire, Ordering::Relaxed).is_ok(),
            key => key > RETIRED,
        }
}

/// Gets that were noted for the mutexes that have had this id, at one address.
#[must_use]
pub fn noted_gets(instance: &Instance, id: MutexId) -> u64 {
    instance.tables.mutex_entry(id).map_or(0, |entry| entry.gets.load(Ordering::Relaxed))
}
