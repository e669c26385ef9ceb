//! A session in shared memory.

use crate::operation_log::{MutexId, Phase, Record};
use crate::stats::{CALLS, Key};
use crate::sys::{self, AtomicU32, AtomicU64, Observed as _, Ordering, RobustLock, protocol};
use crate::text::Text;
use crate::whereabouts::whereabouts;
use std::fmt;

/// Records of a session's log: mutexes that it can hold or be getting at a time.
pub const LOG_RECORDS: usize = if cfg!(any(loom, shuttle)) { 4 } else { 256 };

const FREE: u32 = 0;
const LIVE: u32 = 1;

/// A session in shared memory. Written by its thread; by the holder of `alive` once that thread is dead.
#[repr(C, align(64))]
#[cfg_attr(any(loom, shuttle), derive(Default))]
pub(crate) struct Slot {
    /// Held for the life of the session.
    pub(crate) alive: RobustLock,
    state: protocol::AtomicU32,
    pub(crate) pid: protocol::AtomicU32,
    pub(crate) tid: protocol::AtomicU32,
    pub(crate) class: AtomicU32,
    /// In which the ids above mean something.
    pub(crate) pid_namespace: AtomicU64,
    /// Id of the mutex that it is parked on: while it is set, the get under way has not got it.
    pub(crate) parked_on: protocol::AtomicU32,
    pub(crate) rows_used: AtomicU32,
    pub(crate) claimed_ns: protocol::AtomicU64,
    /// Gets that an interposer has counted; of all sessions that this slot has had, as the calls.
    pub(crate) gets: AtomicU64,
    /// Those of the sessions that had this slot before.
    pub(crate) earlier_gets: AtomicU64,
    /// Calls of an interposer's functions, by [`CALLS`].
    pub(crate) calls: [AtomicU64; CALLS.len()],
    /// Key of what is waited for; 0 when nothing is.
    pub(crate) wait: AtomicU64,
    pub(crate) wait_since_ns: AtomicU64,
    /// What the wait is at, as the upper half, and the SID of the session that has the mutex.
    pub(crate) wait_is_at: AtomicU64,
    pub(crate) last_run: AtomicU64,
    /// The last run of the sessions that had this slot before.
    pub(crate) earlier_runs: AtomicU64,
    pub(crate) name: Text<4>,
    pub(crate) action: Text<4>,
    pub(crate) log: [protocol::AtomicU64; LOG_RECORDS],
    /// Held by another thread of the process when the session's own thread has ended before what it has lent:
    /// see `keeper.rs`.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) kept: RobustLock,
    /// Whether an alert has said so; of the departed, how many threads have had no session.
    pub(crate) told: AtomicU32,
    /// Last time that the kernel was asked for its thread on behalf of a waiter.
    pub(crate) asked_ns: AtomicU64,
    /// `claimed_ns` of the session that is being recovered: the lock is the recoverer's then.
    pub(crate) recovering_ns: protocol::AtomicU64,
}

impl Slot {
    pub(crate) fn is_live(&self) -> bool {
        self.state.acquire() == LIVE
    }

    /// Whether its thread is gone and it has not been recovered.
    pub(crate) fn is_dead(&self) -> bool {
        // A session that ends says so and then gives its lock up; the next one takes the lock and then says
        // that it lives. So it has to be the same one before and after the look at the lock.
        let claimed_ns = self.claimed_ns.acquire();
        self.is_live()
            && !self.alive.is_held()
            && !self.is_kept()
            && self.is_live()
            && self.claimed_ns.acquire() == claimed_ns
    }

    /// Whether its thread is gone.
    pub(crate) fn is_unattended(&self) -> bool {
        self.is_live() && !self.alive.is_held()
    }

    /// Whether its process lives on with what its thread, which has ended, has lent.
    pub(crate) fn is_kept(&self) -> bool {
        // The keeper takes its lock before the kernel marks the session's own.
        !self.alive.is_held() && self.has_keeper()
    }

    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn has_keeper(&self) -> bool {
        self.kept.is_held()
    }

    #[cfg(any(loom, shuttle))]
    #[allow(clippy::unused_self)]
    pub(crate) fn has_keeper(&self) -> bool {
        false
    }

    /// Prepares the locks of a slot that was never used.
    pub(crate) fn init(&self) {
        self.alive.init();
        #[cfg(not(any(loom, shuttle)))]
        self.kept.init();
    }

    /// Whether this is the first call, so that the caller tells that the session is kept.
    pub(crate) fn tell(&self) -> bool {
        self.told.swap(1, Ordering::Relaxed) == 0
    }

    /// Finds out that its thread is gone although the kernel did not mark its lock: a thread that replaces
    /// its process by `execve` loses its id first unless it is the process's first, and no more than 2,048
    /// locks of a thread are marked.
    pub(crate) fn look_for_thread(&self, pid_namespace: u64) {
        if let Some(tid) = self.lost_thread(pid_namespace) {
            self.alive.owner_is_gone(tid);
        }
    }

    /// The thread that [`Slot::look_for_thread`] finds gone. A lock that is marked already may be a
    /// recoverer's in a moment, whose thread may have the same id.
    pub(crate) fn lost_thread(&self, pid_namespace: u64) -> Option<u32> {
        if self.alive.is_held() { self.gone_thread(pid_namespace, sys::is_gone) } else { None }
    }

    /// Whether its log names a mutex.
    pub(crate) fn logs(&self, id: MutexId) -> bool {
        // Acquire: where a record has gone, the session has done with the mutex.
        let is_its = |cell: &protocol::AtomicU64| {
            Record::unpack(cell.load(Ordering::Acquire)).is_some_and(|record| record.mutex == id)
        };
        self.log.iter().any(is_its)
    }

    /// Whether it is of the process that `other` is of, or a session of that process had it last.
    #[cfg(feature = "lock_api")]
    pub(crate) fn is_of_same_process(&self, other: &Self) -> bool {
        let process = |slot: &Self| (slot.pid_namespace.load(Ordering::Relaxed), slot.pid.load(Ordering::Relaxed));
        process(self) == process(other)
    }

    /// Whether it is a living session of the thread that `other` is a session of. Not where the PID namespace
    /// is unknown.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn is_of_same_thread(&self, other: &Self) -> bool {
        // Acquire, all of them, and the time again at the end: the ids of two sessions are never mixed, see
        // `gone_thread`.
        let thread = |slot: &Self| [slot.pid_namespace.acquire(), slot.pid.acquire().into(), slot.tid.acquire().into()];
        let claimed_ns = self.claimed_ns.acquire();
        let is_same = self.is_live() && thread(self)[0] != 0 && thread(self) == thread(other) && self.alive.is_held();
        is_same && self.is_live() && self.claimed_ns.acquire() == claimed_ns
    }

    /// All threads of a model have one id.
    #[cfg(any(loom, shuttle))]
    #[allow(clippy::unused_self)]
    pub(crate) fn is_of_same_thread(&self, _: &Self) -> bool {
        false
    }

    /// The thread of the session, if it is gone.
    fn gone_thread(&self, pid_namespace: u64, is_gone: impl Fn(u32, u32) -> bool) -> Option<u32> {
        // Acquire, all of them: they pair with the Releases in `publish`. A look that finds anything of a
        // later session finds afterwards that the first one's state or time is over: the ids of two sessions
        // are never mixed.
        let claimed_ns = self.claimed_ns.acquire();
        // While it is being recovered the recoverer has the lock, and its thread id may be the same, taken
        // again or in another namespace.
        let is_same = || {
            pid_namespace != 0
                && self.pid_namespace.acquire() == pid_namespace
                && self.recovering_ns.acquire() != claimed_ns
                && self.is_live()
                && self.claimed_ns.acquire() == claimed_ns
        };
        if !is_same() {
            return None;
        }
        let (pid, tid) = (self.pid.acquire(), self.tid.acquire());
        (is_gone(pid, tid) && is_same()).then_some(tid)
    }

    /// Says whose it is from now on. By the thread that has taken its lock.
    pub(crate) fn publish(&self, pid: u32, tid: u32, pid_namespace: u64, now_ns: u64) {
        // Release, all of them: a reader that sees one sees that the session before has ended.
        self.pid.store(pid, Ordering::Release);
        self.tid.store(tid, Ordering::Release);
        self.pid_namespace.store(pid_namespace, Ordering::Release);
        self.claimed_ns.store(now_ns, Ordering::Release);
        // Release: a reader that finds it live finds the rest.
        self.state.store(LIVE, Ordering::Release);
    }

    /// What its log says that it has of a mutex; `in_word`: the word names it too, so that a get is over.
    pub(crate) fn has(&self, mutex: MutexId, in_word: bool) -> Option<Record> {
        let records = self.log.iter().filter_map(|cell| Record::unpack(cell.acquire()));
        let mut records = records.filter(|record| record.mutex == mutex && mutex.0 != 0 && self.is_live());
        records.find(|record| in_word || matches!(record.phase, Phase::Granted | Phase::Held | Phase::Leaving))
    }

    /// The first mutex in its log.
    pub(crate) fn owes_to(&self) -> Option<MutexId> {
        self.log.iter().find_map(|cell| Record::unpack(cell.acquire())).map(|record| record.mutex)
    }

    /// Writes which process and thread have the session and, where it can be known, what the thread is doing.
    pub(crate) fn describe(&self, to: &mut impl fmt::Write) -> fmt::Result {
        let (pid, tid) = (self.pid.load(Ordering::Relaxed), self.tid.load(Ordering::Relaxed));
        let here = sys::pid_namespace();
        if self.is_kept() {
            return write!(to, "pid {pid}, which lives, but its thread {tid} has ended: the guard was leaked");
        }
        if here == 0 || self.pid_namespace.load(Ordering::Relaxed) != here {
            return write!(to, "pid {pid}, tid {tid} of another PID namespace");
        }
        write!(to, "pid {pid}, tid {tid}, ")?;
        whereabouts(pid, tid, to)
    }

    /// What its session waits for, and since when by the monotonic clock; `None` while it does not wait, and
    /// when there is no session.
    pub(crate) fn wait_under_way(&self) -> Option<(Key, u64)> {
        // Acquire: pairs with the Release in `Recorder::begin`.
        let key = Key::unpack(self.wait.acquire())?;
        self.is_live().then(|| (key, self.wait_since_ns.load(Ordering::Relaxed)))
    }

    pub(crate) fn free(&self) {
        self.wait.store(0, Ordering::Relaxed);
        self.state.store(FREE, Ordering::Release);
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

/// What a look for a thread that is gone takes for its own.
#[cfg(all(test, loom))]
pub(crate) mod looks {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    /// A session of process 1 ends, its process too; a session of process 2, whose thread has the same id,
    /// claims the slot.
    pub(crate) fn a_successor_is_not_taken_for_the_gone() {
        let (slot, ended) = (Arc::new(Slot::default()), Arc::new(AtomicBool::new(false)));
        assert_ne!(slot.alive.try_take(), sys::Taken::No);
        slot.publish(1, 7, 5, 100);
        let theirs = (Arc::clone(&slot), Arc::clone(&ended));
        let successor = thread::spawn(move || {
            let (slot, ended) = theirs;
            slot.free();
            slot.alive.give_up();
            ended.store(true, Ordering::Release);
            assert_ne!(slot.alive.try_take(), sys::Taken::No);
            slot.publish(2, 7, 5, 200);
        });
        let gone = slot.gone_thread(5, |pid, _| pid == 1 && ended.load(Ordering::Acquire));
        assert_eq!(gone, None, "the slot is a living session's");
        successor.join().unwrap();
    }
}
