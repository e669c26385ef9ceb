//! What the tables of a segment are made of, as it is in memory: atomics, and text of fixed length.

use crate::addition::Addition;
use crate::costs::COSTS;
use crate::params::PARAM_COUNT;
#[cfg(not(any(loom, shuttle)))]
use crate::sys::RobustLock;
use crate::sys::{self, AtomicU32, AtomicU64, Ordering};
use crate::text::{Text, hash};
use crate::wait::Restriction;

/// Types of the source and what they protect; the position is the type's number.
pub const SOURCE_TYPES: [&str; 9] = [
    "FSO mutex",
    "HT bucket mutex (kdlwl)",
    "SHT bucket mutex",
    "HT bucket mutex",
    "Library Cache",
    "Cursor Stat",
    "Cursor Parent",
    "Cursor Pin",
    "hash table",
];

/// The first page of a segment.
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) fingerprint: AtomicU64,
    pub(crate) capacity: [AtomicU64; 5],
    pub(crate) created_ns: AtomicU64,
    pub(crate) creator: AtomicU64,
    /// 1 when releases rely on the waiters' barrier, 2 when they have a fence of their own.
    pub(crate) fence: AtomicU64,
    pub(crate) recoveries: AtomicU64,
    /// Slots 1 to this have an initialised lock.
    pub(crate) slots_ready: AtomicU64,
    /// Where the search for a free slot starts.
    pub(crate) slot_hint: AtomicU64,
    /// Mutex entries up to this one have been used.
    pub(crate) mutexes_high: AtomicU64,
    pub(crate) mutex_hint: AtomicU64,
    pub(crate) alerts_next: AtomicU64,
    pub(crate) arena_next: AtomicU64,
    /// Last time that a session looked for dead sessions because of references.
    pub(crate) swept_ns: AtomicU64,
    /// Last alert about a wait for a mutex without an entry, by the same clock.
    pub(crate) alerted_ns: AtomicU64,
    /// The process that has sessions here, `SEVERAL` from the second one on: see `Instance::note_process`.
    pub(crate) process: AtomicU64,
    /// Guards the claim of slots and the creation of named objects. Never held while anything is waited for.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) admin: RobustLock,
    /// What the steps of a wait cost here, in ns.
    pub(crate) costs: [AtomicU64; COSTS],
    /// Of mutexes that each process has an entry of its own for, by where they lie in their page.
    pub(crate) restrictions: [RestrictionCells; SHARED_RESTRICTIONS],
    pub(crate) addition: Addition,
}

/// A value per parameter, stored plus one; 0 is "not set", so that fresh memory means the defaults.
#[repr(C)]
pub(crate) struct ParamRow(pub(crate) [AtomicU64; 64]);

const _: () = assert!(PARAM_COUNT <= 64, "a parameter row has a cell for each parameter");

/// A mutex type's name.
#[repr(C)]
pub(crate) struct TypeEntry {
    pub(crate) hash: AtomicU64,
    pub(crate) name: Text<7>,
}

/// A place's name.
#[repr(C)]
pub(crate) struct Location {
    pub(crate) hash: AtomicU64,
    pub(crate) name: Text<31>,
}

/// A registered mutex.
#[repr(C, align(64))]
pub(crate) struct MutexEntry {
    /// 0 free, `FREED`, `CLAIMED`, `RETIRED`, or a hash of the name.
    pub(crate) key: AtomicU64,
    pub(crate) mutex_type: AtomicU32,
    pub(crate) place: AtomicU32,
    /// Counts the uses of this entry; its low 8 bits are part of the id.
    pub(crate) generation: AtomicU64,
    pub(crate) address: AtomicU64,
    /// Of a mutex that lies in the bytes of an object of the arena its offset there, so that each process can recover
    /// it; 0 for all others.
    pub(crate) within: AtomicU64,
    /// Bytes of a named object up to the end of its data, 0 of all others.
    pub(crate) len: AtomicU64,
    pub(crate) pid: AtomicU32,
    /// Of a named mutex where its data begin in it, 0 of all others.
    pub(crate) data: AtomicU32,
    /// Of a named object the [`Owner`](crate::engine::Owner) of its bytes.
    pub(crate) owner: AtomicU64,
    /// Gets of a mutex whose memory is gone, of those before it at the same address too.
    pub(crate) gets: AtomicU64,
    /// The operation-log record of the last holder that died, with its SID in place of the mutex: both change
    /// in one store.
    pub(crate) death: AtomicU64,
    /// From when on a waiter looks for the dead sessions that owe to this mutex, by the monotonic clock; 0
    /// when none is known.
    pub(crate) debts_due_ns: AtomicU64,
    /// Last alert about a wait for it, by the monotonic clock.
    pub(crate) alerted_ns: AtomicU64,
    pub(crate) adaption: AdaptionCells,
    pub(crate) restriction: RestrictionCells,
    pub(crate) name: Text<8>,
}

/// A [`Restriction`] in memory. A change counts from the store of its time on, the second cell.
#[repr(C)]
#[derive(Default)]
pub(crate) struct RestrictionCells([AtomicU64; 3]);

/// Number of [`Header::restrictions`].
const SHARED_RESTRICTIONS: usize = 64;

impl RestrictionCells {
    pub(crate) fn load(&self) -> Restriction {
        Restriction::unpack(self.0.each_ref().map(|cell| cell.load(Ordering::Relaxed)))
    }

    /// Stores what follows, if no other session has done so: one of all that see it. Should it die here, the
    /// next trial puts things right.
    pub(crate) fn change(&self, before: Restriction, after: Restriction) {
        let ([_, then_ns, _], [state, since_ns, gets]) = (before.pack(), after.pack());
        if self.0[1].compare_exchange(then_ns, since_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.0[2].store(gets, Ordering::Relaxed);
            self.0[0].store(state, Ordering::Relaxed);
        }
    }

    /// A session has waited awake since a time. Lost where another one counts at the same time.
    pub(crate) fn waited_awake(&self, since_ns: u64, now_ns: u64, was_away: bool) {
        let before = self.load();
        if let Some(after) = before.waited_awake(since_ns, now_ns, was_away) {
            let ([then, ..], [state, ..]) = (before.pack(), after.pack());
            let _ = self.0[0].compare_exchange(then, state, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn reset(&self) {
        self.0.iter().for_each(|cell| cell.store(0, Ordering::Relaxed));
    }
}

impl Header {
    /// The restriction of a mutex that lies so far from the beginning of its page, whatever its address is.
    /// Two that share one disturb each other's trials, in which their gets do not go together.
    pub(crate) fn restriction_at(&self, in_page: usize) -> &RestrictionCells {
        // Mutexes in lines of their own differ as well.
        &self.restrictions[((in_page / align_of::<u64>()) ^ (in_page / 64)) % SHARED_RESTRICTIONS]
    }
}

/// State of `adaptive` for one mutex. Changed by its holder, but for the three counts of the waiters; the last
/// one is of `ydb` too.
#[repr(C)]
pub(crate) struct AdaptionCells {
    pub(crate) state: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) queue_sleeps: AtomicU64,
    pub(crate) last_gets: AtomicU64,
    pub(crate) last_misses: AtomicU64,
    pub(crate) last_queue_sleeps: AtomicU64,
    pub(crate) last_ns: AtomicU64,
    pub(crate) switches: AtomicU64,
    pub(crate) soft_spins: AtomicU64,
}

/// The last sleep of one session for one mutex behind one blocker: a row of the sleep history.
#[repr(C, align(64))]
pub(crate) struct Past {
    /// Mutex id and blocking SID.
    pub(crate) key: AtomicU64,
    pub(crate) at_ns: AtomicU64,
    pub(crate) waiter: AtomicU64,
    pub(crate) what: AtomicU64,
    pub(crate) gets: AtomicU64,
    pub(crate) sleeps: AtomicU64,
}

/// A line of the alert log.
#[repr(C)]
pub(crate) struct Alert {
    pub(crate) number: AtomicU64,
    pub(crate) at_ns: AtomicU64,
    pub(crate) text: Text<30>,
}

pub(crate) const FREED: u64 = 1;
pub(crate) const CLAIMED: u64 = 2;
/// Its mutex is gone. The entry can be read until another mutex needs it, or one at the same address has it
/// again.
pub(crate) const RETIRED: u64 = 3;

/// Where a registered mutex is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Place {
    /// In memory of the user's own; only a process that has it mapped can reach it.
    Elsewhere = 0,
    /// In the instance's arena; the address is an offset.
    Arena = 1,
    /// In a process's private memory or in a foreign format, at an address of that process.
    Process = 2,
}

/// Identifier of a mutex type within its instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default, PartialOrd, Ord)]
pub struct TypeId(pub u8);

impl MutexEntry {
    pub(crate) const NAME_BYTES: usize = 64;

    /// Lets other threads find it.
    pub(crate) fn publish(&self, name: &str) {
        // Release: a reader that finds the key finds the rest.
        self.key.store(hash(name), Ordering::Release);
    }

    pub(crate) fn place(&self) -> Place {
        match self.place.load(Ordering::Relaxed) {
            1 => Place::Arena,
            2 => Place::Process,
            _ => Place::Elsewhere,
        }
    }

    /// Whether an entry with this key is that of a mutex in a process that is gone. A process of another PID
    /// namespace may be taken for one: then its mutex gets another id at its next miss.
    pub(crate) fn is_of_dead_process(&self, key: u64) -> bool {
        let pid = self.pid.load(Ordering::Relaxed);
        // The kernel is not asked about this process: a table can be full of its mutexes.
        let is_others = self.place.load(Ordering::Relaxed) == Place::Process as u32 && pid != sys::known_pid();
        key > RETIRED && is_others && sys::is_gone(pid, pid)
    }

    pub(crate) fn fill(&self, mutex_type: TypeId, place: Place, address: u64, len: u64, name: &str) {
        self.mutex_type.store(u32::from(mutex_type.0), Ordering::Relaxed);
        self.place.store(place as u32, Ordering::Relaxed);
        self.address.store(address, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.pid.store(sys::pid(), Ordering::Relaxed);
        self.data.store(0, Ordering::Relaxed);
        for cell in [&self.within, &self.owner, &self.gets, &self.death, &self.debts_due_ns] {
            cell.store(0, Ordering::Relaxed);
        }
        self.adaption.reset();
        self.restriction.reset();
        self.name.set(name);
    }
}

impl AdaptionCells {
    fn reset(&self) {
        let all = [
            &self.state,
            &self.misses,
            &self.queue_sleeps,
            &self.last_gets,
            &self.last_misses,
            &self.last_queue_sleeps,
            &self.last_ns,
            &self.switches,
            &self.soft_spins,
        ];
        for cell in all {
            cell.store(0, Ordering::Relaxed);
        }
    }
}
