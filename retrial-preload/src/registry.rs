//! Which number the instance has for the object at an address of this process: a hint for the figures, never for
//! correctness.
//!
//! Memory is given back and used again without notice, and objects of libc's format have no room for a number. So there is
//! a small table by address, in which entries push each other out.

use crate::process::{self, Type};
use retrial::{Instance, MutexId, Place};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// In place of a number: the table of the instance was full.
pub(crate) const NO_PLACE: u32 = u32::MAX;

const BUCKETS: usize = 4096;
const WAYS: usize = 4;

struct Entry {
    /// Address, type and process; 0 when free. What a parent of this process has left is nobody's.
    key: AtomicU64,
    id: AtomicU32,
    /// Gets that missed: all that is known of the gets of foreign objects.
    missed_gets: AtomicU32,
}

static TABLE: [[Entry; WAYS]; BUCKETS] = [const {
    [const { Entry { key: AtomicU64::new(0), id: AtomicU32::new(0), missed_gets: AtomicU32::new(0) } }; WAYS]
}; BUCKETS];

/// Whether the instance's table was full last time; until something is retired it is not asked again.
static FULL: AtomicBool = AtomicBool::new(false);

fn key(kind: Type, address: usize) -> u64 {
    address as u64 ^ u64::from(process::epoch()) << 48 ^ (kind as u64 + 1) << 60
}

fn bucket(key: u64) -> &'static [Entry; WAYS] {
    // Multiplicative hashing, Knuth 6.4.
    &TABLE[(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize % BUCKETS]
}

fn entry(key: u64) -> Option<&'static Entry> {
    // Acquire: who finds the key finds the number.
    bucket(key).iter().find(|entry| entry.key.load(Ordering::Acquire) == key)
}

/// The number that is shown for what a record has.
pub(crate) const fn number(id: u32) -> MutexId {
    MutexId(if id == NO_PLACE { 0 } else { id })
}

/// The number of the object at an address, registered if it is new; [`NO_PLACE`] when there is no place.
pub(crate) fn find(instance: &Instance, kind: Type, address: usize) -> u32 {
    let key = key(kind, address);
    if let Some(entry) = entry(key) {
        let id = entry.id.load(Ordering::Relaxed);
        if id != 0 && entry.key.load(Ordering::Relaxed) == key {
            return id;
        }
    }
    if FULL.load(Ordering::Relaxed) {
        return NO_PLACE;
    }
    let Ok(id) = instance.register_mutex(kind.id(), Place::Process, address as u64, "") else {
        FULL.store(true, Ordering::Relaxed);
        return NO_PLACE;
    };
    remember(key, id.0);
    id.0
}

/// The number that is shown for the object at an address of this process; 0 when it has none.
pub(crate) fn number_of(kind: Type, address: usize) -> MutexId {
    process::instance().map_or(MutexId(0), |instance| number(find(instance, kind, address)))
}

fn remember(key: u64, id: u32) {
    let bucket = bucket(key);
    let free = bucket.iter().find(|entry| entry.key.load(Ordering::Relaxed) == 0);
    let entry = free.unwrap_or(&bucket[id as usize % WAYS]);
    // Not found while it changes: no number for the old key, then none for the new one.
    entry.id.store(0, Ordering::Relaxed);
    entry.missed_gets.store(0, Ordering::Relaxed);
    entry.key.store(key, Ordering::Release);
    entry.id.store(id, Ordering::Release);
}

/// Counts a get that missed a foreign object.
pub(crate) fn count_missed_get(kind: Type, address: usize) {
    if let Some(entry) = entry(key(kind, address)) {
        entry.missed_gets.fetch_add(1, Ordering::Relaxed);
    }
}

/// Gets that missed a foreign object, as far as remembered.
pub(crate) fn missed_gets(kind: Type, address: usize) -> u64 {
    entry(key(kind, address)).map_or(0, |entry| u64::from(entry.missed_gets.load(Ordering::Relaxed)))
}

/// The object is gone. Its entry in the instance stays if a get has `missed` it, and as long as half of the table is
/// unused.
pub(crate) fn retire(instance: &Instance, kind: Type, address: usize, id: MutexId, gets: u64, missed: bool) {
    if let Some(entry) = entry(key(kind, address)) {
        entry.key.store(0, Ordering::Relaxed);
    }
    if missed || instance.last_mutex().0 <= instance.capacity().mutexes / 2 {
        instance.note_gets(id, gets);
    } else {
        instance.unregister_mutex(id);
        FULL.store(false, Ordering::Relaxed);
    }
}
