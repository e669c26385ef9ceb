//! What a dead session owes, and how it is paid.
//!
//! The recoverer of a dead session takes the session's own lock first and then *acts as the dead*: with its
//! SID, by its log, along the protocols that the dead session itself would have followed. So a recoverer that
//! dies half-way leaves just another dead session with an exact log, and there is no protocol of recovery
//! that would need one of its own.

use crate::entries::Place;
use crate::fail;
use crate::instance::Instance;
use crate::mode::Mode;
use crate::operation_log::{MutexId, Phase, Record};
use crate::probes;
use crate::raw_mutex::RawMutex;
use crate::searching::SWEEP_EVERY;
use crate::slot::{LOG_RECORDS, Slot};
use crate::sys::protocol::AtomicU64;
use crate::sys::{self, Ordering, Taken};
use crate::word::{Kind, Sid, Word};

/// What a dead session owes a mutex.
#[allow(clippy::struct_excessive_bools)] // four debts, each owed or not
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Undo {
    /// The holder field is to be cleared.
    pub holder: bool,
    /// One reference is to be dropped.
    pub reference: bool,
    /// The request to drain is to be taken back.
    pub draining: bool,
    /// The data may be half changed.
    pub poison: bool,
}

/// What a dead session owes a mutex, from its log record and the word alone.
///
/// `is_holder`: the word's holder field is the session's, by this record. `is_drainer`: the word is draining
/// for it.
#[must_use]
pub const fn undo(phase: Phase, mode: Mode, is_holder: bool, is_drainer: bool) -> Undo {
    let reference = match (phase, mode) {
        // The exchange that takes the field adds the reference; the store that gives it back drops it.
        (Phase::Getting | Phase::Left, Mode::Shared) => is_holder,
        (Phase::Granted | Phase::Held | Phase::Leaving, Mode::Shared) => true,
        // One exchange drops the reference and takes the field; one store does the reverse.
        (Phase::Promoting | Phase::Demoting, _) => !is_holder,
        _ => false,
    };
    // A record of E or X that is about to become S, or the reverse, has the field for E or X.
    let exclusive = match (phase, mode) {
        (Phase::Promoting | Phase::Demoting, _) => true,
        (_, Mode::Shared) => false,
        _ => true,
    };
    let draining = matches!(phase, Phase::Draining) && is_drainer && !is_holder;
    Undo { holder: is_holder, reference, draining, poison: exclusive && (is_holder || draining) }
}

/// How a recovery ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// Nothing is owed any more, and the slot is free.
    Done {
        /// Mutexes that were given back.
        mutexes: u32,
    },
    /// Something is still owed to a mutex that is busy or not mapped here; the next waiter goes on.
    Owing,
    /// The session lives, is free, or is being recovered by another thread.
    NotDead,
}

/// To whom something may be owed.
enum Creditor<'a> {
    /// To a mutex that can be reached.
    Mutex(&'a RawMutex),
    /// To a mutex that is mapped elsewhere.
    Elsewhere,
    /// To none that is registered any more, or that dies with its process.
    Nobody,
}

/// What is left of a dead session's debts, by the records of its log.
struct Debts {
    /// Mutexes that it gave back.
    mutexes: u32,
    /// Whether something stays owed.
    owed: [bool; LOG_RECORDS],
    /// Whether that is only because the mutex is busy.
    busy: [bool; LOG_RECORDS],
}

impl Instance {
    /// Recovers a session if it is dead, as far as that can be done without waiting.
    pub fn recover(&self, sid: Sid) -> Recovery {
        self.recover_with(sid, None)
    }

    /// The same for a caller that knows when the session died: the wait that its death cut off counts up to
    /// then, by the monotonic clock.
    pub fn recover_cut_off(&self, sid: Sid, died_ns: u64) -> Recovery {
        self.recover_dead(sid, None, Some(died_ns))
    }

    /// The same; `here` is a mutex that may lie outside of the instance's memory: only a process that has it
    /// mapped can pay a debt to it.
    pub(crate) fn recover_with(&self, sid: Sid, here: Option<&RawMutex>) -> Recovery {
        self.recover_dead(sid, here, None)
    }

    fn recover_dead(&self, sid: Sid, here: Option<&RawMutex>, died_ns: Option<u64>) -> Recovery {
        let Some(slot) = self.tables.slot(sid) else { return Recovery::NotDead };
        if slot.is_live() && slot.is_kept() {
            self.tell_of_kept(sid, slot);
            return Recovery::NotDead;
        }
        let claimed_ns = slot.claimed_ns.load(Ordering::Acquire);
        if !slot.is_dead() {
            return Recovery::NotDead;
        }
        // Before the lock is taken: `gone_thread` finds this one or the dead session's lock. Release: the
        // time is that of the session found dead. A late store names a session that has ended, and harms
        // nobody.
        slot.recovering_ns.store(claimed_ns, Ordering::Release);
        if slot.alive.try_take() == Taken::No {
            return Recovery::NotDead;
        }
        // Asked again: meanwhile another session may have been claimed here, and its thread have ended with
        // what it has lent.
        if !slot.is_live() || slot.has_keeper() {
            slot.alive.give_up();
            return Recovery::NotDead;
        }
        slot.pid_namespace.store(0, Ordering::Release);
        if let (Some(died_ns), Some((key, since_ns))) = (died_ns, slot.wait_under_way()) {
            slot.wait.store(0, Ordering::Relaxed);
            // As in `Recorder::end`: who sees the figures sees that the wait is over.
            sys::fence(Ordering::Release);
            if let Some(row) = self.tables.segment.row(sid.number() as usize, key) {
                row.end_cut_off(died_ns.saturating_sub(since_ns));
            }
        }
        fail::point();
        self.forget_park(sid, slot, here);
        let Debts { mutexes, owed, busy } = self.pay(sid, slot, here);
        if !owed.contains(&true) {
            let (pid, tid) = (slot.pid.load(Ordering::Relaxed), slot.tid.load(Ordering::Relaxed));
            // Still there where a signal handler had got what the thread was parked on.
            slot.parked_on.store(0, Ordering::Release);
            slot.free();
            fail::point();
            slot.alive.give_up();
            probes::recovery(sid, pid, mutexes);
            if mutexes > 0 {
                let what = if mutexes == 1 { "mutex" } else { "mutexes" };
                self.alert_line(format_args!("session {sid} (pid {pid}, tid {tid}) died; {mutexes} {what} recovered"));
            }
            return Recovery::Done { mutexes };
        }
        slot.alive.give_up();
        // After the lock is given up: a waiter that reads the note earlier would find the session being
        // recovered.
        for index in (0..LOG_RECORDS).filter(|index| owed[*index]) {
            // Another recoverer may have paid by now. A note too many makes one waiter look in vain.
            if let Some(record) = Record::unpack(slot.log[index].load(Ordering::Relaxed)) {
                self.note_debt(record.mutex, busy[index]);
            }
        }
        Recovery::Owing
    }

    /// Gives back what the session's log says that it has, as far as it can be given back now.
    fn pay(&self, sid: Sid, slot: &Slot, here: Option<&RawMutex>) -> Debts {
        let mut mutexes = 0;
        let (mut owed, mut busy) = ([false; LOG_RECORDS], [false; LOG_RECORDS]);
        // Settled references last: a reference cannot leave before the holder field of the same mutex is
        // given back. Before them the references that were leaving: a recoverer that died may have left one
        // of these beside a record that has the field.
        let class = |cell: &AtomicU64| match cell.load(Ordering::Relaxed) >> 48 {
            bits if bits == (Phase::Held as u64) << 8 => 2,
            bits if bits == (Phase::Leaving as u64) << 8 => 1,
            _ => 0u8,
        };
        // Of plain loops: a thread of the smallest stack may come here.
        let mut classes = [0u8; LOG_RECORDS];
        for (of, cell) in classes.iter_mut().zip(&slot.log) {
            *of = class(cell);
        }
        for index in
            (0..3 * LOG_RECORDS).filter(|index| usize::from(classes[index % LOG_RECORDS]) == index / LOG_RECORDS)
        {
            let (index, cell) = (index % LOG_RECORDS, &slot.log[index % LOG_RECORDS]);
            let Some(record) = Record::unpack(cell.load(Ordering::Relaxed)) else {
                cell.store(0, Ordering::Relaxed);
                continue;
            };
            match self.creditor(record.mutex, here) {
                Creditor::Mutex(mutex) if mutex.settle(self, sid, record, cell) => mutexes += 1,
                Creditor::Mutex(_) => (owed[index], busy[index]) = (true, true),
                Creditor::Elsewhere => owed[index] = true,
                Creditor::Nobody => cell.store(0, Ordering::Relaxed),
            }
        }
        Debts { mutexes, owed, busy }
    }

    /// Writes an alert, once, about a thread that has ended with a leaked guard.
    fn tell_of_kept(&self, sid: Sid, slot: &Slot) {
        let Some(mutex) = slot.owes_to().filter(|_| slot.tell()) else { return };
        let (pid, tid, name) =
            (slot.pid.load(Ordering::Relaxed), slot.tid.load(Ordering::Relaxed), self.tables.mutex_label(mutex));
        self.alert_line(format_args!(
            "thread {tid} of process {pid} has ended with {name} held by session {sid}: a guard was leaked; it is held until the process ends"
        ));
    }

    /// Tells the waiters of a mutex that a dead session owes to it: at once, or after a while when it
    /// `is_busy`.
    fn note_debt(&self, id: MutexId, is_busy: bool) {
        if let Some(entry) = self.tables.mutex_entry(id) {
            let due = if is_busy { sys::now_ns().saturating_add(SWEEP_EVERY.as_nanos() as u64) } else { 1 };
            // Release: pairs with the exchange in `collect_debts`. The waiter that takes the note finds the
            // session dead.
            entry.debts_due_ns.store(due, Ordering::Release);
        }
    }

    /// Pays what dead sessions are known to owe to a mutex that the caller waits for, and so has mapped.
    pub(crate) fn collect_debts(&self, here: &RawMutex) {
        let Some(entry) = self.tables.mutex_entry(here.id()) else { return };
        let due = entry.debts_due_ns.load(Ordering::Relaxed);
        let early = due.saturating_sub(sys::now_ns());
        // Acquire: pairs with the Release in `note_debt`. One waiter takes the note; what stays owed is noted
        // again.
        if due == 0
            // Later than any note is made for: by another clock, a container's.
            || (1..=SWEEP_EVERY.as_nanos() as u64).contains(&early)
            || entry.debts_due_ns.compare_exchange(due, 0, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return;
        }
        fail::point();
        self.let_readers_in(here);
        here.pass_on_for_dead();
        self.recover_all_with(Some(here));
    }

    /// A session that has died, or wants X no more, may have asked to keep readers out.
    pub(crate) fn let_readers_in(&self, mutex: &RawMutex) {
        // A session that moves a reference takes a few instructions, but it may be off its processor.
        for _ in 0..128 {
            if mutex.try_let_readers_in() {
                return;
            }
            sys::spin_loop();
        }
        // A waiter tries again.
        self.note_debt(mutex.id(), true);
    }

    /// The mutex of this id, for a recoverer that wants to pay a debt to it.
    fn creditor<'a>(&'a self, id: MutexId, here: Option<&'a RawMutex>) -> Creditor<'a> {
        match self.tables.place_of(id) {
            Some(Place::Arena) => self.tables.record(id).map_or(Creditor::Nobody, Creditor::Mutex),
            Some(Place::Elsewhere) => match here {
                Some(here) if here.id() == id => Creditor::Mutex(here),
                _ => self.tables.record_within(id).map_or(Creditor::Elsewhere, Creditor::Mutex),
            },
            // A lock of one process ends with it; and a thread that ended may have passed on what it
            // protects.
            Some(Place::Process) | None => Creditor::Nobody,
        }
    }

    /// A parked session has not got what it waits for: its get owes nothing, unless the word says that a
    /// signal handler of the same thread has got it. What was handed over to it goes to another one.
    fn forget_park(&self, sid: Sid, slot: &Slot, here: Option<&RawMutex>) {
        let id = MutexId(slot.parked_on.load(Ordering::Acquire));
        if id.0 == 0 {
            return;
        }
        let gets = |cell: &&AtomicU64| {
            let record = Record::unpack(cell.load(Ordering::Relaxed));
            record.is_some_and(|record| record.mutex == id && record.phase == Phase::Getting)
        };
        match self.creditor(id, here) {
            Creditor::Mutex(mutex) if mutex.load().sid() == sid => return,
            Creditor::Mutex(mutex) => {
                self.let_readers_in(mutex);
                if mutex.load().has(Word::HANDOVER) {
                    mutex.wake_after_recovery();
                } else {
                    mutex.pass_on_for_dead();
                }
            }
            // A waiter that has it mapped lets the readers in.
            Creditor::Elsewhere => self.note_debt(id, false),
            Creditor::Nobody => {}
        }
        for cell in slot.log.iter().filter(gets) {
            cell.store(0, Ordering::Release);
        }
        fail::point();
        slot.parked_on.store(0, Ordering::Release);
        fail::point();
    }

    /// Recovers every dead session, as far as that can be done without waiting: how many, and how many still
    /// owe.
    ///
    /// Finds those whose lock the kernel has marked. [`Instance::look_for_threads`] finds the others.
    pub fn recover_all(&self) -> (u32, u32) {
        self.recover_all_with(None)
    }

    /// The same for a process that has a mutex outside of the instance's memory mapped: what the dead owe to
    /// it is paid too.
    ///
    /// # Safety
    ///
    /// The mutex is registered with this instance, by [`RawMutex::register`].
    pub unsafe fn recover_all_for(&self, here: &RawMutex) -> (u32, u32) {
        self.recover_all_with(Some(here))
    }

    pub(crate) fn recover_all_with(&self, here: Option<&RawMutex>) -> (u32, u32) {
        let (mut done, mut owing) = (0, 0);
        for sid in self.tables.sids() {
            match self.recover_with(sid, here) {
                Recovery::Done { .. } => done += 1,
                Recovery::Owing => owing += 1,
                Recovery::NotDead => {}
            }
        }
        (done, owing)
    }
}

impl RawMutex {
    /// Pays what the dead session `sid` owes by `record`, acting as it. Whether nothing is owed any more.
    fn settle(&self, instance: &Instance, sid: Sid, record: Record, cell: &AtomicU64) -> bool {
        let word = self.load();
        // One session may have two records of one mutex: the field is this one's when it is taken for what
        // this one does.
        let takes = match (record.phase, record.mode) {
            (Phase::Promoting, _) => matches!(word.kind(), Some(Kind::Examine)),
            // Nothing of it is in flight.
            (Phase::Held, Mode::Shared) => false,
            (_, Mode::Shared) => matches!(word.kind(), Some(Kind::Moving)),
            _ => !matches!(word.kind(), Some(Kind::Moving)),
        };
        let is_holder = word.sid() == sid && takes;
        let is_drainer = self.drainer() == sid && word.has(Word::DRAINING);
        let owed = undo(record.phase, record.mode, is_holder, is_drainer);
        // A promotion that poisons has E already.
        let mode = if record.phase == Phase::Promoting { Mode::Examine } else { record.mode };
        let held = Record { mode, ..record };
        if owed.poison {
            // Before the field is given back, so that the next holder is told which session died.
            instance.remember_death(self.id(), sid, held);
            fail::point();
        }
        let paid = if owed.holder {
            // A record that owes the same while the field is taken and nothing once it is given back: another
            // recoverer may read it in between.
            let (phase, mode) = match (owed.reference, record.mode) {
                (true, _) => (Phase::Left, Mode::Shared),
                (false, Mode::Shared) => (Phase::Getting, Mode::Examine),
                (false, mode) => (Phase::Getting, mode),
            };
            cell.store(Record { phase, mode, ..record }.pack(), Ordering::Release);
            fail::point();
            self.give_back_for_dead(owed.reference, owed.poison);
            true
        } else if owed.draining {
            self.stop_draining()
        } else if owed.reference {
            // As the dead session would have released it.
            self.try_leave(sid, cell, record)
        } else {
            true
        };
        fail::point();
        if paid {
            if owed.poison {
                instance.note_death(self.id(), sid, held);
            }
            instance.let_readers_in(self);
            self.wake_after_recovery();
            fail::point();
            // Last: a mutex that no log names may be unbound, and its memory be another thing's.
            cell.store(0, Ordering::Release);
            fail::point();
        }
        paid
    }
}

#[cfg(test)]
pub(crate) mod tests;
