//! Sessions: a thread's membership of an instance.

use crate::aol::{MutexId, Phase, Record};
use crate::error::SessionError;
use crate::fail;
use crate::instance::Instance;
use crate::mode::Mode;
use crate::stats::{CALLS, Figures, Key};
use crate::sys::{self, AtomicU32, AtomicU64, Observed as _, Ordering, RobustLock, compiler_fence, protocol};
use crate::tables::Tables;
use crate::text::Text;
use crate::trace::Event;
use crate::word::{Sid, Word};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

/// Records of a session's log: mutexes that it can hold or be getting at a time.
pub const LOG_RECORDS: usize = if cfg!(any(loom, shuttle)) { 4 } else { 256 };

/// In place of a free word: what no word is. Barriers do not reach the process, so that the releases of each mutex that the session gets
/// need a fence of their own, to which the slow path sees.
const OUT_OF_REACH: u64 = u64::MAX;

const FREE: u32 = 0;
const LIVE: u32 = 1;

/// A session in shared memory. Written by its thread; by whoever holds `alive` once that thread is dead.
#[repr(C, align(64))]
#[cfg_attr(any(loom, shuttle), derive(Default))]
pub(crate) struct Slot {
    /// Held for the life of the session.
    pub(crate) alive: RobustLock,
    state: protocol::AtomicU32,
    pub(crate) pid: protocol::AtomicU32,
    pub(crate) tid: protocol::AtomicU32,
    class: AtomicU32,
    /// In which the ids above mean something.
    pub(crate) pid_namespace: AtomicU64,
    /// Id of the mutex that it is parked on: while it is set, the get under way has not got it.
    pub(crate) parked_on: protocol::AtomicU32,
    pub(crate) rows_used: AtomicU32,
    claimed_ns: protocol::AtomicU64,
    pub(crate) gets: AtomicU64,
    /// Calls of an interposer's functions, by [`CALLS`].
    pub(crate) calls: [AtomicU64; CALLS.len()],
    /// Key of what is waited for; 0 when nothing is.
    pub(crate) wait: AtomicU64,
    pub(crate) wait_since_ns: AtomicU64,
    pub(crate) wait_blocker: AtomicU64,
    pub(crate) last_run: AtomicU64,
    /// The last run of the sessions that had this slot before.
    earlier_runs: AtomicU64,
    name: Text<4>,
    action: Text<4>,
    pub(crate) log: [protocol::AtomicU64; LOG_RECORDS],
    /// Held by another thread of the process when the session's own thread has ended before what it has lent: see `keeper.rs`.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) kept: RobustLock,
    /// Whether an alert has said so.
    told: AtomicU32,
}

impl Slot {
    pub(crate) fn is_live(&self) -> bool {
        self.state.acquire() == LIVE
    }

    /// Whether its thread is gone and it has not been recovered.
    pub(crate) fn is_dead(&self) -> bool {
        // A session that ends says so and then gives its lock up; the next one takes the lock and then says that it lives.
        // So it has to be the same one before and after the look at the lock.
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
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn is_kept(&self) -> bool {
        // The keeper has this lock before the kernel marks the other one.
        !self.alive.is_held() && self.kept.is_held()
    }

    #[cfg(any(loom, shuttle))]
    #[allow(clippy::unused_self)]
    pub(crate) fn is_kept(&self) -> bool {
        false
    }

    /// Prepares the locks of a slot that was never used.
    pub(crate) fn init(&self) {
        self.alive.init();
        #[cfg(not(any(loom, shuttle)))]
        self.kept.init();
    }

    /// Whether nobody has been told yet that it is kept.
    pub(crate) fn tell(&self) -> bool {
        self.told.swap(1, Ordering::Relaxed) == 0
    }

    /// Finds out that its thread is gone although the kernel did not mark its lock: a thread that replaces its process by
    /// `execve` loses its id first unless it is the process's first, and no more than 2,048 locks of a thread are marked.
    pub(crate) fn look_for_thread(&self, pid_namespace: u64) {
        if let Some(tid) = self.gone_thread(pid_namespace, sys::is_gone) {
            self.alive.owner_is_gone(tid);
        }
    }

    /// The thread of the session, if it is gone.
    fn gone_thread(&self, pid_namespace: u64, is_gone: impl Fn(u32, u32) -> bool) -> Option<u32> {
        // Acquire, all of them: they pair with the Releases in `publish`. A look that finds anything of a later session
        // finds afterwards that the first one's state or time is over: the ids of two sessions are never mixed.
        let claimed_ns = self.claimed_ns.acquire();
        // 0 while somebody recovers it: the lock is that one's then, whose thread id may be the same in another namespace.
        let is_same = || {
            pid_namespace != 0
                && self.pid_namespace.acquire() == pid_namespace
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
    fn publish(&self, pid: u32, tid: u32, pid_namespace: u64, now_ns: u64) {
        // Release, all of them: whoever sees one sees that the session before has ended.
        self.pid.store(pid, Ordering::Release);
        self.tid.store(tid, Ordering::Release);
        self.pid_namespace.store(pid_namespace, Ordering::Release);
        self.claimed_ns.store(now_ns, Ordering::Release);
        // Release: whoever finds it live finds the rest.
        self.state.store(LIVE, Ordering::Release);
    }

    /// What its log says that it has of a mutex; `in_word`: the word names it too, so that a get is over.
    fn has(&self, mutex: MutexId, in_word: bool) -> Option<Record> {
        let records = self.log.iter().filter_map(|cell| Record::unpack(cell.acquire()));
        let mut records = records.filter(|record| record.mutex == mutex && mutex.0 != 0 && self.is_live());
        records.find(|record| in_word || matches!(record.phase, Phase::Granted | Phase::Held | Phase::Leaving))
    }

    /// The first mutex in its log.
    pub(crate) fn owes_to(&self) -> Option<MutexId> {
        self.log.iter().find_map(|cell| Record::unpack(cell.acquire())).map(|record| record.mutex)
    }

    /// Writes who is behind it and, when that can be known from here, what it is at.
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
        sys::whereabouts(pid, tid, to)
    }

    pub(crate) fn free(&self) {
        self.wait.store(0, Ordering::Relaxed);
        self.state.store(FREE, Ordering::Release);
    }
}

/// Class of a session: those of the high priority class wait by `wait_yield_hp_mode` in scheme 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Class {
    /// High when the thread is scheduled by a real-time policy.
    #[default]
    Detect,
    /// Normal.
    Normal,
    /// High.
    High,
}

/// A thread's membership of an instance: a SID, a log, figures.
///
/// It belongs to the thread that made it:
///
/// ```compile_fail
/// fn needs_send<T: Send>() {}
/// needs_send::<retrial::Session<'static>>();
/// ```
///
/// A session that ends while it holds something, or whose process dies, is recovered by whoever waits for it.
///
/// A thread may end before its session, when the session was leaked. If the session holds nothing then, its slot is free at once. If it holds a
/// mutex, something may have been lent to other threads of the process: then the mutex stays held until the process has ended or is replaced by `execve`, and the
/// first waiter writes an alert. [`Instance::thread_session`] is for locks that come back when a thread ends, as POSIX has it.
#[derive(Debug)]
#[must_use = "the session ends at once otherwise"]
pub struct Session<'i> {
    pub(crate) instance: &'i Instance,
    pub(crate) slot: &'i Slot,
    sid: Sid,
    random: Cell<u64>,
    /// Records that have been in use so far: the first ones.
    used: Cell<usize>,
    class: Cell<Class>,
    /// What the exchange of a get expects: a free word, or [`OUT_OF_REACH`].
    expected: u64,
    pid: u32,
    /// Generation of the process that made it.
    generation: u64,
    thread: PhantomData<*mut ()>,
}

/// What a look for a thread that is gone takes for its own.
#[cfg(all(test, loom))]
pub(crate) mod looks {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    /// A session of process 1 ends, its process too; a session of process 2, whose thread has the same id, claims the slot.
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

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

impl Instance {
    /// Makes the calling thread a session. Several sessions per thread are fine.
    ///
    /// # Errors
    ///
    /// [`SessionError`].
    pub fn session(&self, name: &str, class: Class) -> Result<Session<'_>, SessionError> {
        // SAFETY: registered below.
        let session = unsafe { self.thread_session(name, class) }?;
        // SAFETY: `Session::drop` takes it out again. Without that the segment stays mapped: `Instance::drop` finds the session counted.
        #[cfg(not(any(loom, shuttle)))]
        unsafe {
            crate::keeper::register(session.slot, session.generation);
        }
        Ok(session)
    }

    /// Makes the calling thread a session that is recovered when the thread ends, in whatever way, also while its process lives on: as
    /// the robust mutexes of POSIX. For C, and for locks in memory that no reference of Rust is made to. Allocates nothing.
    ///
    /// # Errors
    ///
    /// [`SessionError`].
    ///
    /// # Safety
    ///
    /// When the thread ends and the session has not been dropped, nothing that it has got is used any more: no guard, and no reference that
    /// came from one.
    pub unsafe fn thread_session(&self, name: &str, class: Class) -> Result<Session<'_>, SessionError> {
        let (sid, slot) = self.claim_slot()?;
        self.sessions.fetch_add(1, Ordering::AcqRel);
        fail::point();
        // Reset, publish, claim: the slot's lock is ours, so that nobody else writes here.
        for record in &slot.log {
            record.store(0, Ordering::Relaxed);
        }
        let pid = sys::known_pid();
        slot.class.store(u32::from(class == Class::High), Ordering::Relaxed);
        slot.told.store(0, Ordering::Relaxed);
        slot.parked_on.store(0, Ordering::Relaxed);
        slot.wait.store(0, Ordering::Relaxed);
        slot.earlier_runs.store(slot.last_run.load(Ordering::Relaxed), Ordering::Relaxed);
        let now = sys::now_ns();
        slot.name.set(name);
        slot.action.set("");
        slot.publish(pid, sys::tid(), sys::pid_namespace(), now);
        fail::point();
        Ok(Session {
            instance: self,
            slot,
            sid,
            random: Cell::new(now ^ u64::from(sid.number()).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            class: Cell::new(class),
            used: Cell::new(1),
            expected: if self.in_reach { Word::FREE.0 } else { OUT_OF_REACH },
            pid,
            generation: sys::own_generation(),
            thread: PhantomData,
        })
    }
}

impl<'i> Session<'i> {
    /// Its SID.
    #[inline]
    #[must_use]
    pub const fn sid(&self) -> Sid {
        self.sid
    }

    #[inline]
    pub(crate) const fn expected(&self) -> u64 {
        self.expected
    }

    /// Whether barriers reach its process, or are not relied on.
    pub(crate) const fn is_in_reach(&self) -> bool {
        self.expected == Word::FREE.0
    }

    /// The instance that it is a session of.
    #[inline]
    #[must_use]
    pub const fn instance(&self) -> &'i Instance {
        self.instance
    }

    /// Whether it is of the high priority class. Detected when it first waits.
    pub(crate) fn is_high_priority(&self) -> bool {
        if self.class.get() == Class::Detect {
            self.class.set(if sys::is_real_time() { Class::High } else { Class::Normal });
            self.slot.class.store(u32::from(self.class.get() == Class::High), Ordering::Relaxed);
        }
        self.class.get() == Class::High
    }

    /// The process that made it.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether this process is a child of the one that made the session, and must not use it.
    #[inline]
    #[must_use]
    pub fn is_parents(&self) -> bool {
        self.generation != sys::generation()
    }

    /// Says what the session is about, for the views: up to 32 bytes.
    pub fn set_action(&self, action: &str) {
        self.slot.action.set(action);
    }

    /// A fresh random number (xorshift64*, Marsaglia 2003 and Vigna 2014).
    pub(crate) fn random(&self) -> u64 {
        let mut x = self.random.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random.set(x);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Writes a record before an operation. `None` when all records are in use, and in a child of fork.
    ///
    /// The log itself says which record is free: a bitmap beside it would be two more stores for the exchange to wait for.
    #[inline]
    pub(crate) fn log(&self, record: Record) -> Option<usize> {
        if self.is_parents() {
            return None;
        }
        let index = if self.slot.log[0].load(Ordering::Relaxed) == 0 { 0 } else { self.next_free()? };
        // Relaxed: the exchange that follows publishes it.
        self.slot.log[index].store(record.pack(), Ordering::Relaxed);
        fail::point();
        Some(index)
    }

    #[cold]
    #[inline(never)]
    fn next_free(&self) -> Option<usize> {
        let index = (1..LOG_RECORDS).find(|index| self.slot.log[*index].load(Ordering::Relaxed) == 0)?;
        self.used.set(self.used.get().max(index + 1));
        Some(index)
    }

    /// The records that may be in use.
    pub(crate) fn records(&self) -> &[protocol::AtomicU64] {
        &self.slot.log[..self.used.get().min(LOG_RECORDS)]
    }

    /// Rewrites a record between two steps of an operation.
    #[inline]
    pub(crate) fn relog(&self, index: usize, phase: Phase, mode: Mode) {
        let cell = &self.slot.log[index % LOG_RECORDS];
        let bits = cell.load(Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // Release: what came before is over for whoever recovers us.
        cell.store(Record::repack(bits, phase, mode), Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        fail::point();
    }

    /// Frees a record after its operation.
    #[inline]
    pub(crate) fn unlog(&self, index: usize) {
        // The store that gave the mutex back stays before this one.
        compiler_fence(Ordering::SeqCst);
        // The mask tells the compiler what is so anyway: no bounds check on the fast path.
        self.slot.log[index % LOG_RECORDS].store(0, Ordering::Release);
        fail::point();
    }

    /// Records of this session that name a mutex.
    pub(crate) fn held_beside(&self, id: MutexId) -> usize {
        let records = self.records().iter().filter_map(|cell| Record::unpack(cell.load(Ordering::Relaxed)));
        records.filter(|record| id.0 != 0 && id != MutexId::OVERFLOW && record.mutex == id).count()
    }

    /// Whether its log has any record.
    #[cfg(feature = "lock_api")]
    pub(crate) fn has_records(&self) -> bool {
        self.records().iter().any(|cell| cell.load(Ordering::Relaxed) != 0)
    }

    /// The mode in which this session already has a mutex, if it has.
    pub(crate) fn held(&self, id: MutexId, but: usize) -> Option<Mode> {
        if id.0 == 0 || id == MutexId::OVERFLOW {
            return None;
        }
        let records = self.records().iter().enumerate().filter(|(index, _)| *index != but);
        // One operation is in flight at a time: any other record is of something held.
        let mut records = records.filter_map(|(_, cell)| Record::unpack(cell.load(Ordering::Relaxed)));
        records.find(|record| record.mutex == id).map(|record| record.mode)
    }
}

#[cfg(all(test, loom))]
impl Session<'_> {
    /// As in a process that barriers do not reach.
    pub(crate) fn out_of_reach(mut self) -> Self {
        self.expected = OUT_OF_REACH;
        self
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if self.is_parents() || self.pid != sys::pid() {
            // A child of fork has the memory of the session, not the session.
            return;
        }
        #[cfg(not(any(loom, shuttle)))]
        crate::keeper::forget(self.slot);
        if self.records().iter().all(|record| record.load(Ordering::Relaxed) == 0) {
            self.slot.free();
            fail::point();
        }
        // A session that still holds something stays live with nobody behind it: dead, to be recovered.
        self.slot.alive.give_up();
        self.instance.sessions.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A session, as the views show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its SID.
    pub sid: Sid,
    /// Its process, in its own PID namespace.
    pub pid: u32,
    /// Its thread, in its own PID namespace.
    pub tid: u32,
    /// Whether its thread is gone and it has not been recovered.
    pub dead: bool,
    /// Whether its thread has ended with a leaked guard, and its process lives: what it holds stays held.
    pub kept: bool,
    /// Whether it is of the high priority class.
    pub high_priority: bool,
    /// Its name.
    pub name: String,
    /// Its action tag.
    pub action: String,
    /// When it began, by the monotonic clock.
    pub claimed_ns: u64,
    /// What its log says.
    pub log: Vec<Record>,
    /// What it waits for, since when by the monotonic clock, and the SID that held it then.
    pub wait: Option<(Key, u64, Sid)>,
    /// Number of its first run of steps, which may not have happened yet.
    pub first_run: u64,
    /// Number of the latest run of steps.
    pub last_run: u64,
}

impl Tables {
    /// Every session, living and dead.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.sids().filter_map(|sid| self.session_info(sid)).collect()
    }

    /// What is known of a session, `None` when there is none of this SID.
    #[must_use]
    pub fn session_info(&self, sid: Sid) -> Option<SessionInfo> {
        let slot = self.slot(sid).filter(|slot| slot.is_live())?;
        let wait = Key::unpack(slot.wait.acquire()).map(|key| {
            let blocker = Sid::new(slot.wait_blocker.load(Ordering::Relaxed) as u32);
            (key, slot.wait_since_ns.load(Ordering::Relaxed), blocker)
        });
        Some(SessionInfo {
            sid,
            pid: slot.pid.load(Ordering::Relaxed),
            tid: slot.tid.load(Ordering::Relaxed),
            dead: slot.is_dead(),
            kept: slot.is_kept(),
            high_priority: slot.class.load(Ordering::Relaxed) != 0,
            name: slot.name.get(),
            action: slot.action.get(),
            claimed_ns: slot.claimed_ns.load(Ordering::Relaxed),
            log: slot.log.iter().filter_map(|cell| Record::unpack(cell.acquire())).collect(),
            wait,
            first_run: slot.earlier_runs.load(Ordering::Relaxed).wrapping_add(1),
            last_run: slot.last_run.acquire(),
        })
    }

    /// Who keeps a mutex from being got: whoever is in its word, or the first session that has a reference to it by its log.
    pub(crate) fn holder(&self, mutex: MutexId, in_word: Sid) -> Option<(Sid, &Slot)> {
        let found = if in_word.is_none() {
            self.sids().find(|sid| self.slot(*sid).is_some_and(|slot| slot.has(mutex, false).is_some()))?
        } else {
            in_word
        };
        Some((found, self.slot(found).filter(|slot| slot.is_live())?))
    }

    /// Where that session got the mutex and what it is at: `has it in LX from reload; pid 812, tid 812, stopped`.
    pub(crate) fn holder_label<'a>(&'a self, mutex: MutexId, slot: &'a Slot, in_word: bool) -> impl fmt::Display {
        fmt::from_fn(move |f| {
            if let Some(record) = slot.has(mutex, in_word) {
                write!(f, "has it in {} from {}; ", record.mode, self.location_label(record.location))?;
            }
            slot.describe(f)
        })
    }

    /// Number of the latest run of steps of a session; 0 before its first. Cheap, to be polled.
    #[must_use]
    pub fn last_run(&self, sid: Sid) -> u64 {
        self.slot(sid).map_or(0, |slot| slot.last_run.acquire())
    }

    /// Every row of every session's figures, and those of departed sessions under [`Sid::NONE`].
    #[must_use]
    pub fn figures(&self) -> Vec<(Sid, Key, Figures)> {
        let all = std::iter::once(Sid::NONE).chain(self.sids());
        all.flat_map(|sid| {
            let slot = self.segment.slot(sid.number() as usize);
            let used = slot.map_or(0, |slot| slot.rows_used.acquire() as usize);
            let rows = self.segment.rows(sid.number() as usize);
            rows[..used.min(rows.len())].iter().filter_map(move |row| row.read().map(|(key, f)| (sid, key, f)))
        })
        .collect()
    }

    /// Gets counted by sessions rather than by mutexes, as interposers do.
    #[must_use]
    pub fn session_gets(&self) -> u64 {
        let all = std::iter::once(Sid::NONE).chain(self.sids());
        let slots = all.filter_map(|sid| self.segment.slot(sid.number() as usize));
        let gets = slots.map(|slot| slot.gets.load(Ordering::Relaxed));
        gets.fold(0, u64::wrapping_add)
    }

    /// Calls of interposers' functions so far, by [`CALLS`].
    #[must_use]
    pub fn calls(&self) -> [u64; CALLS.len()] {
        let mut sums = [0u64; CALLS.len()];
        let all = std::iter::once(Sid::NONE).chain(self.sids());
        for slot in all.filter_map(|sid| self.segment.slot(sid.number() as usize)) {
            for (sum, calls) in sums.iter_mut().zip(&slot.calls) {
                *sum = sum.wrapping_add(calls.load(Ordering::Relaxed));
            }
        }
        sums
    }

    /// A run of steps of a session, `None` when it was overwritten or has not happened.
    #[must_use]
    pub fn event(&self, sid: Sid, number: u64) -> Option<Event> {
        self.slot(sid)?;
        crate::trace::read(self.segment.runs(sid.number() as usize), number)
    }
}
