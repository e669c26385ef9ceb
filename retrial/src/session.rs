//! Sessions: a thread's membership of an instance.

use crate::error::SessionError;
use crate::fail;
use crate::instance::Instance;
use crate::mode::Mode;
use crate::operation_log::{MutexId, Phase, Record};
use crate::slot::{LOG_RECORDS, Slot};
use crate::sys::{self, Ordering, compiler_fence, protocol};
use crate::wait::{self, Experience};
use crate::word::{Sid, Word};
use std::cell::Cell;
use std::marker::PhantomData;

/// In place of a free word: what no word is. Barriers do not reach the process, so that the releases of each
/// mutex that the session gets need a fence of their own, to which the slow path sees.
const OUT_OF_REACH: u64 = u64::MAX;

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
/// A session that ends while it holds something, or whose process dies, is recovered by the sessions that
/// wait for it.
///
/// A thread may end before its session, when the session was leaked. If the session holds nothing then, its
/// slot is free at once. If it holds a mutex, something may have been lent to other threads of the process:
/// then the mutex stays held until the process has ended or is replaced by `execve`, and the first waiter
/// writes an alert. [`Instance::thread_session`] is for locks that come back when a thread ends, as POSIX has
/// it.
#[derive(Debug)]
#[must_use = "the session ends at once otherwise"]
pub struct Session<'i> {
    pub(crate) instance: &'i Instance,
    pub(crate) slot: &'i Slot,
    sid: Sid,
    random: Cell<u64>,
    experience: Cell<Experience>,
    /// See [`Session::ask_while_waiting`].
    gives_up: Cell<Option<fn() -> bool>>,
    /// See [`Session::gave_up`].
    gave_up: Cell<bool>,
    /// Records that have been in use so far: the first ones.
    used: Cell<usize>,
    class: Cell<Class>,
    /// What the exchange of a get expects: a free word, or [`OUT_OF_REACH`].
    expected: u64,
    pid: u32,
    /// Its thread, as the lock of the slot names it.
    owner: u32,
    /// Generation of the process that made it.
    generation: u64,
    thread: PhantomData<*mut ()>,
}

impl Instance {
    /// Makes the calling thread a session. A thread may have several.
    ///
    /// A thread that ends and has leaked a guard keeps the mutex until its process ends.
    ///
    /// # Errors
    ///
    /// [`SessionError`].
    pub fn session(&self, name: &str, class: Class) -> Result<Session<'_>, SessionError> {
        // SAFETY: registered below.
        let session = unsafe { self.thread_session(name, class) }?;
        // SAFETY: `Session::drop` takes it out again. Without that the segment stays mapped: `Instance::drop`
        // finds the session counted.
        #[cfg(not(any(loom, shuttle)))]
        unsafe { crate::keeper::register(session.slot, session.generation) }?;
        Ok(session)
    }

    /// Makes the calling thread a session that is recovered when the thread ends, even if the process lives
    /// on, as POSIX has it for robust mutexes. For C, and for locks in memory that no Rust reference points
    /// to. Allocates nothing.
    ///
    /// # Errors
    ///
    /// [`SessionError`].
    ///
    /// # Safety
    ///
    /// Once the thread has ended without dropping the session, the caller uses nothing that the session has
    /// got: no guard, and no reference that came from one.
    pub unsafe fn thread_session(&self, name: &str, class: Class) -> Result<Session<'_>, SessionError> {
        let (sid, slot) = self.claim_slot()?;
        self.sessions.fetch_add(1, Ordering::AcqRel);
        fail::point();
        // Reset, publish, claim: this thread has the slot's lock, so that no other writes here.
        for record in &slot.log {
            record.store(0, Ordering::Relaxed);
        }
        let pid = sys::known_pid();
        slot.class.store(u32::from(class == Class::High), Ordering::Relaxed);
        slot.told.store(0, Ordering::Relaxed);
        slot.parked_on.store(0, Ordering::Relaxed);
        slot.wait.store(0, Ordering::Relaxed);
        slot.earlier_runs.store(slot.last_run.load(Ordering::Relaxed), Ordering::Relaxed);
        slot.earlier_gets.store(slot.gets.load(Ordering::Relaxed), Ordering::Relaxed);
        let now = sys::now_ns();
        slot.name.set(name);
        slot.action.set("");
        let pid_namespace = sys::pid_namespace();
        self.note_process(pid, pid_namespace);
        slot.publish(pid, sys::tid(), pid_namespace, now);
        fail::point();
        Ok(Session {
            instance: self,
            slot,
            sid,
            random: Cell::new(now ^ u64::from(sid.number()).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            experience: Cell::default(),
            gives_up: Cell::default(),
            gave_up: Cell::default(),
            class: Cell::new(class),
            used: Cell::new(1),
            expected: if self.in_reach { Word::FREE.0 } else { OUT_OF_REACH },
            pid,
            owner: slot.alive.owner(),
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
    pub fn is_forked(&self) -> bool {
        self.generation != sys::generation()
    }

    /// Whether the thread that made it lives. The kernel notes the end of a thread a moment after all that the thread
    /// itself does; a wait for the thread (`pthread_join`) returns later still.
    #[inline]
    #[must_use]
    pub fn is_attended(&self) -> bool {
        self.slot.alive.owner() == self.owner
    }

    /// Says what the session is about, for the views: up to 32 bytes. Without effect in a child of fork,
    /// whose parent's session it is.
    pub fn set_action(&self, action: &str) {
        if !self.is_forked() {
            self.slot.action.set(action);
        }
    }

    /// Has the session's waits ask whether to give up: after a millisecond, then between steps, at least
    /// twice a second, and soon after a signal handler has run in the thread. An answer of `true` ends the
    /// wait as its deadline would; the get may still succeed.
    ///
    /// A question that panics gives up as well. A child that the question forks, and that comes back from it,
    /// is told that the session is its parent's.
    ///
    /// For languages whose signal handlers only take a note. One wait with one deadline for all of it would
    /// not do for them: waits in slices would count, and queue, anew at each slice.
    pub fn ask_while_waiting(&self, gives_up: fn() -> bool) {
        self.gives_up.set(Some(gives_up));
    }

    /// Asks that question now: whether to give up; `false` where there is none. For engines that wait for
    /// something else than a mutex. A child that the question forks comes back from here, too: see
    /// [`Session::is_forked`].
    #[must_use]
    pub fn asks_to_give_up(&self) -> bool {
        let answer = |asked: fn() -> bool| {
            // A panic that went on from here would leave the log and the word as they are in the middle of a wait;
            // so would one of what it was thrown with.
            std::panic::catch_unwind(asked).unwrap_or_else(|thrown| {
                std::mem::forget(thrown);
                true
            })
        };
        let gives_up = self.gives_up.get().is_some_and(answer);
        // Not what an answer's own waits have been told.
        self.gave_up.set(gives_up);
        gives_up
    }

    /// Whether the last answer since this was called was `true`: a wait that times out may have ended by it and
    /// not by its deadline.
    pub fn gave_up(&self) -> bool {
        self.gave_up.take()
    }

    /// Whether its waits ask.
    pub(crate) const fn is_asked(&self) -> bool {
        self.gives_up.get().is_some()
    }

    /// A fresh random number.
    pub(crate) fn random(&self) -> u64 {
        wait::random(&self.random)
    }

    /// What its waits have taught it.
    pub(crate) fn experience<R>(&self, by: impl FnOnce(&mut Experience) -> R) -> R {
        let mut experience = self.experience.get();
        let result = by(&mut experience);
        self.experience.set(experience);
        result
    }

    /// Writes a record before an operation. `None` when all records are in use, and in a child of fork.
    ///
    /// The log itself says which record is free: a bitmap beside it would be two more stores for the exchange
    /// to wait for.
    #[inline]
    pub(crate) fn log(&self, record: Record) -> Option<usize> {
        if self.is_forked() {
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
        // Release: what came before is over for a recoverer of this session.
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

    /// Whether its log has any record: it holds or gets a mutex.
    #[must_use]
    pub fn has_records(&self) -> bool {
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
        if self.is_forked() || self.pid != sys::pid() {
            // A child of fork has the memory of the session, not the session.
            return;
        }
        #[cfg(not(any(loom, shuttle)))]
        crate::keeper::forget(self.slot, self.generation);
        if self.records().iter().all(|record| record.load(Ordering::Relaxed) == 0) {
            self.slot.free();
            fail::point();
        }
        // A session that still holds something stays live without a thread: dead, to be recovered.
        self.slot.alive.give_up();
        self.instance.sessions.fetch_sub(1, Ordering::AcqRel);
    }
}
