//! Which number the instance has for the object at an address of this process: a hint for the figures, never
//! for correctness. An object gets one at its first miss.
//!
//! Memory is given back and used again without notice, and objects of libc's format have no room for a
//! number. So there is a small table by address, in which objects push each other out; what is pushed out
//! gives its entry in the instance back. What comes to an address after an object that had a number has the
//! same number, as long as both tables remember it.

use crate::instance::{Type, instance};
use crate::process;
use retrial::{Instance, MutexId, interposer, sys};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

const BUCKETS: usize = 4096;
const WAYS: usize = 4;

/// A number, and above it a hash of address, type and process; 0 when free. No look-up finds the numbers
/// that a parent of this process has left.
static TABLE: [[AtomicU64; WAYS]; BUCKETS] = [const { [const { AtomicU64::new(0) }; WAYS] }; BUCKETS];
/// Gets that missed: all that is known of the gets of foreign objects.
static MISSED_GETS: [[AtomicU32; WAYS]; BUCKETS] = [const { [const { AtomicU32::new(0) }; WAYS] }; BUCKETS];
/// Whether there has been anything in the table.
static USED: AtomicBool = AtomicBool::new(false);

/// Where in the table an object is, if it is there.
#[derive(Clone, Copy)]
struct Place {
    bucket: usize,
    tag: u32,
}

impl Place {
    fn of(object: Type, address: usize) -> Self {
        let key = address as u64 ^ u64::from(process::epoch()) << 48 ^ (object as u64 + 1) << 60;
        // Multiplicative hashing, Knuth 6.4.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { bucket: (hash >> 52) as usize % BUCKETS, tag: (hash >> 20) as u32 }
    }

    /// Which of the ways of its bucket is its own, by what is in them.
    fn way(self) -> Option<usize> {
        let ways = TABLE[self.bucket].each_ref().map(|way| way.load(Ordering::Relaxed));
        self.way_of(ways)
    }

    fn way_of(self, ways: [u64; WAYS]) -> Option<usize> {
        ways.iter().position(|found| *found != 0 && (found >> 32) as u32 == self.tag)
    }
}

/// The number of the object at an address, registered if it is new; 0 when there is no place for it.
fn find(instance: &Instance, object: Type, address: usize) -> MutexId {
    let place = Place::of(object, address);
    let bucket = &TABLE[place.bucket];
    loop {
        // Relaxed: a number says nothing by itself; the instance's entry is asked.
        let ways = bucket.each_ref().map(|way| way.load(Ordering::Relaxed));
        let own = place.way_of(ways);
        let known = own.map(|way| MutexId(ways[way] as u32));
        if let Some(id) = known.filter(|id| interposer::resume_mutex(instance, *id, object.id(), address as u64)) {
            return id;
        }
        let free = || ways.iter().position(|found| *found == 0);
        let way = own.or_else(free).unwrap_or(place.tag as usize % WAYS);
        let Some(id) = interposer::register_missed_mutex(instance, object.id(), address as u64) else {
            return MutexId(0);
        };
        let entry = u64::from(place.tag) << 32 | u64::from(id.0);
        // Relaxed: as above.
        if bucket[way].compare_exchange(ways[way], entry, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            USED.store(true, Ordering::Relaxed);
            MISSED_GETS[place.bucket][way].store(0, Ordering::Relaxed);
            let pushed_out = MutexId(ways[way] as u32);
            if instance.tables().mutex_in_process(pushed_out).is_some_and(|(pid, _)| pid == sys::pid()) {
                // SAFETY: an id of this table, of this process; sessions of the interposer write no log.
                unsafe { interposer::retire_mutex(instance, pushed_out, None) };
            }
            return id;
        }
        // Another thread came first, most likely with the same object.
        // SAFETY: registered above, and no other thread knows it.
        unsafe { instance.unregister_mutex(id) };
    }
}

/// The number of the object at an address of this process, after a get that has missed it; 0 when it has
/// none.
pub(crate) fn number_of(object: Type, address: usize) -> MutexId {
    instance().map_or(MutexId(0), |instance| find(instance, object, address))
}

/// Counts a get that missed a foreign object.
pub(crate) fn count_missed_get(object: Type, address: usize) {
    let place = Place::of(object, address);
    if let Some(way) = place.way() {
        MISSED_GETS[place.bucket][way].fetch_add(1, Ordering::Relaxed);
    }
}

/// Gets that missed a foreign object, as far as remembered.
pub(crate) fn missed_gets(object: Type, address: usize) -> u64 {
    let place = Place::of(object, address);
    place.way().map_or(0, |way| u64::from(MISSED_GETS[place.bucket][way].load(Ordering::Relaxed)))
}

/// Gives the entries of this process's objects back at its end, with the gets that `gets` finds at an
/// address.
pub(crate) fn retire_all(instance: &Instance, gets: impl Fn(MutexId, u64) -> Option<u64>) {
    if !USED.load(Ordering::Relaxed) {
        return;
    }
    let own = sys::pid();
    for way in TABLE.as_flattened() {
        let id = MutexId(way.load(Ordering::Relaxed) as u32);
        if let Some((pid, address)) = instance.tables().mutex_in_process(id)
            && pid == own
        {
            // SAFETY: registered by this process, which ends; sessions of the interposer write no log.
            unsafe { interposer::retire_mutex(instance, id, gets(id, address)) };
        }
    }
}
