//! What a dead session owes, and how it is paid.
//!
//! Whoever recovers a dead session takes the session's own lock first and then *acts as the dead*: with its SID, by its
//! log, along the protocols that the dead session itself would have followed. So a recoverer that dies half-way leaves
//! just another dead session with an exact log, and there is no protocol of recovery that would need one of its own.

use crate::entries::Place;
use crate::fail;
use crate::instance::{Instance, SWEEP_EVERY};
use crate::mode::Mode;
use crate::operation_log::{MutexId, Phase, Record};
use crate::raw_mutex::RawMutex;
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
/// `is_holder`: the word's holder field is the session's, by this record. `is_drainer`: the word is draining for it.
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
    /// The session lives, is free, or is being recovered by somebody else.
    NotDead,
}

/// To whom something may be owed.
enum Creditor<'a> {
    /// To a mutex that can be reached.
    Mutex(&'a RawMutex),
    /// To one that is mapped elsewhere.
    Elsewhere,
    /// To none that is registered any more, or that dies with its process.
    Nobody,
}

impl Instance {
    /// Recovers a session if it is dead, as far as that can be done without waiting.
    pub fn recover(&self, sid: Sid) -> Recovery {
        self.recover_with(sid, None)
    }

    /// The same for one who knows when the session died: the wait that its death cut off counts up to then, by the monotonic clock.
    pub fn recover_cut_off(&self, sid: Sid, died_ns: u64) -> Recovery {
        self.recover_dead(sid, None, Some(died_ns))
    }

    /// The same; `here` is a mutex that may lie outside of the instance's memory: only a process that has it mapped can pay a debt
    /// to it.
    pub(crate) fn recover_with(&self, sid: Sid, here: Option<&RawMutex>) -> Recovery {
        self.recover_dead(sid, here, None)
    }

    fn recover_dead(&self, sid: Sid, here: Option<&RawMutex>, died_ns: Option<u64>) -> Recovery {
        let Some(slot) = self.tables.slot(sid) else { return Recovery::NotDead };
        if slot.is_live() && slot.is_kept() {
            self.tell_of_kept(sid, slot);
            return Recovery::NotDead;
        }
        if !slot.is_dead() || slot.alive.try_take() == Taken::No {
            return Recovery::NotDead;
        }
        // Asked again: meanwhile another session may have been claimed here, and its thread have ended with what it has lent.
        if !slot.is_live() || slot.has_keeper() {
            slot.alive.give_up();
            return Recovery::NotDead;
        }
        slot.pid_namespace.store(0, Ordering::Release);
        if let (Some(died_ns), Some((key, since_ns))) = (died_ns, slot.wait_under_way()) {
            slot.wait.store(0, Ordering::Relaxed);
            let rows = self.tables.segment.rows(sid.number() as usize);
            crate::stats::find(rows, &slot.rows_used, key).end_cut_off(died_ns.saturating_sub(since_ns));
        }
        fail::point();
        self.forget_park(sid, slot, here);
        let mut mutexes = 0;
        // By the record: whether something stays owed, and whether its mutex is only busy.
        let (mut owed, mut busy) = ([false; LOG_RECORDS], [false; LOG_RECORDS]);
        // Settled references last: one cannot leave before the field of the same mutex is given back.
        // Before them those that are about to leave: a recoverer that died may have left one beside another that has the field.
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
        if !owed.contains(&true) {
            let (pid, tid) = (slot.pid.load(Ordering::Relaxed), slot.tid.load(Ordering::Relaxed));
            slot.free();
            fail::point();
            slot.alive.give_up();
            if mutexes > 0 {
                self.alert_line(format_args!("session {sid} (pid {pid}, tid {tid}) died; {mutexes} mutexes recovered"));
            }
            return Recovery::Done { mutexes };
        }
        slot.alive.give_up();
        // After the lock is given up: a waiter that reads the note earlier would find the session being recovered.
        for index in (0..LOG_RECORDS).filter(|index| owed[*index]) {
            // Another recoverer may have paid by now. A note too many makes one waiter look in vain.
            if let Some(record) = Record::unpack(slot.log[index].load(Ordering::Relaxed)) {
                self.note_debt(record.mutex, busy[index]);
            }
        }
        Recovery::Owing
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

    /// Tells the waiters of a mutex that a dead session owes to it: at once, or after a while when it `is_busy`.
    fn note_debt(&self, id: MutexId, is_busy: bool) {
        if let Some(entry) = self.tables.mutex_entry(id) {
            let due = if is_busy { sys::now_ns().saturating_add(SWEEP_EVERY.as_nanos() as u64) } else { 1 };
            // Release: pairs with the exchange in `collect_debts`. The waiter that takes the note finds the session dead.
            entry.debts_due_ns.store(due, Ordering::Release);
        }
    }

    /// Pays what dead sessions are known to owe to a mutex that the caller waits for, and so has mapped.
    pub(crate) fn collect_debts(&self, here: &RawMutex) {
        let Some(entry) = self.tables.mutex_entry(here.id()) else { return };
        let due = entry.debts_due_ns.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `note_debt`. One waiter takes the note; what stays owed is noted again.
        if due == 0
            || sys::now_ns() < due
            || entry.debts_due_ns.compare_exchange(due, 0, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return;
        }
        fail::point();
        self.recover_all_with(Some(here));
    }

    /// The mutex of this id, for whoever wants to pay a debt to it.
    fn creditor<'a>(&'a self, id: MutexId, here: Option<&'a RawMutex>) -> Creditor<'a> {
        match self.tables.place_of(id) {
            Some(Place::Arena) => self.tables.record(id).map_or(Creditor::Nobody, Creditor::Mutex),
            Some(Place::Elsewhere) => match here {
                Some(here) if here.id() == id => Creditor::Mutex(here),
                _ => Creditor::Elsewhere,
            },
            // A lock of one process ends with it; and a thread that ended may have passed on what it protects.
            Some(Place::Process) | None => Creditor::Nobody,
        }
    }

    /// A parked session has not got what it waits for: its get owes nothing, unless the word says that a signal handler of the same
    /// thread has got it. What was handed over to it goes to another one.
    fn forget_park(&self, sid: Sid, slot: &Slot, here: Option<&RawMutex>) {
        let id = MutexId(slot.parked_on.load(Ordering::Acquire));
        if id.0 == 0 {
            return;
        }
        if let Creditor::Mutex(mutex) = self.creditor(id, here) {
            if mutex.load().sid() == sid {
                return;
            }
            if mutex.load().has(Word::HANDOVER) {
                mutex.wake_after_recovery();
            }
        }
        for cell in &slot.log {
            let record = Record::unpack(cell.load(Ordering::Relaxed));
            if record.is_some_and(|record| record.mutex == id && record.phase == Phase::Getting) {
                cell.store(0, Ordering::Relaxed);
            }
        }
        fail::point();
        slot.parked_on.store(0, Ordering::Release);
        fail::point();
    }

    /// Recovers every dead session, as far as that can be done without waiting: how many, and how many still owe.
    ///
    /// Finds those whose lock the kernel has marked. [`Instance::look_for_threads`] finds the others.
    pub fn recover_all(&self) -> (u32, u32) {
        self.recover_all_with(None)
    }

    /// The same for one who has a mutex mapped that may lie outside of the instance's memory: what the dead owe to it is paid too.
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
        // One session may have two records of one mutex: the field is this one's when it is taken for what this one does.
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
            // Before the field is given back: whoever gets the mutex then is told who died.
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
            cell.store(0, Ordering::Release);
            fail::point();
            self.wake_after_recovery();
        }
        paid
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::segment::Capacity;
    use crate::session::{Class, Session};

    #[test]
    fn a_reader_owes_its_reference_from_the_exchange_that_adds_it_to_the_store_that_drops_it() {
        let owes = |phase, is_holder| undo(phase, Mode::Shared, is_holder, false).reference;
        assert!(!owes(Phase::Getting, false));
        assert!(owes(Phase::Getting, true));
        assert!(owes(Phase::Held, true) && owes(Phase::Held, false));
        assert!(owes(Phase::Leaving, true) && owes(Phase::Leaving, false));
        assert!(owes(Phase::Left, true));
        assert!(!owes(Phase::Left, false));
    }

    #[test]
    fn a_dead_reader_poisons_nothing_and_a_dead_holder_does() {
        for phase in [Phase::Getting, Phase::Held] {
            assert!(!undo(phase, Mode::Shared, true, false).poison);
            for mode in [Mode::Exclusive, Mode::LongExclusive, Mode::Examine] {
                assert!(undo(phase, mode, true, false).poison);
                assert_eq!(
                    undo(phase, mode, false, false),
                    Undo { holder: false, reference: false, draining: false, poison: false }
                );
            }
        }
    }

    /// What a crash can leave: phase and mode logged, kind bits when the session is in the field, references, flags.
    pub(crate) type State = (Phase, Mode, Option<u64>, u32, u64);

    /// A protocol as the state after each of its steps. Written from the tables of docs/DESIGN.md, not from the code.
    pub(crate) struct Protocol {
        pub(crate) name: &'static str,
        pub(crate) states: &'static [State],
        /// References that are others'.
        pub(crate) others: u32,
        /// Whether each state poisons.
        pub(crate) poisons: &'static [bool],
    }

    const X: u64 = 0;
    const LX: u64 = 1 << 56;
    const E: u64 = 2 << 56;
    const MOVING: u64 = 3 << 56;
    const DRAINING: u64 = Word::DRAINING;

    pub(crate) const PROTOCOLS: &[Protocol] = &[
        Protocol {
            name: "get and release X",
            states: &[
                (Phase::Getting, Mode::Exclusive, None, 0, 0),
                (Phase::Getting, Mode::Exclusive, Some(X), 0, 0),
                (Phase::Getting, Mode::Exclusive, None, 0, 0),
            ],
            others: 0,
            poisons: &[false, true, false],
        },
        Protocol {
            name: "get and release LX",
            states: &[
                (Phase::Getting, Mode::LongExclusive, None, 0, 0),
                (Phase::Getting, Mode::LongExclusive, Some(LX), 0, 0),
                (Phase::Getting, Mode::LongExclusive, None, 0, 0),
            ],
            others: 0,
            poisons: &[false, true, false],
        },
        Protocol {
            name: "get and release E over two readers",
            states: &[
                (Phase::Getting, Mode::Examine, None, 2, 0),
                (Phase::Getting, Mode::Examine, Some(E), 2, 0),
                (Phase::Getting, Mode::Examine, None, 2, 0),
            ],
            others: 2,
            poisons: &[false, true, false],
        },
        Protocol {
            name: "get and release S beside two readers",
            states: &[
                (Phase::Getting, Mode::Shared, None, 2, 0),
                (Phase::Getting, Mode::Shared, Some(MOVING), 3, 0),
                (Phase::Granted, Mode::Shared, Some(MOVING), 3, 0),
                (Phase::Granted, Mode::Shared, None, 3, 0),
                (Phase::Held, Mode::Shared, None, 3, 0),
                (Phase::Leaving, Mode::Shared, None, 3, 0),
                (Phase::Leaving, Mode::Shared, Some(MOVING), 3, 0),
                (Phase::Left, Mode::Shared, Some(MOVING), 3, 0),
                (Phase::Left, Mode::Shared, None, 2, 0),
            ],
            others: 2,
            poisons: &[false; 9],
        },
        Protocol {
            name: "S to E beside one reader",
            states: &[
                (Phase::Promoting, Mode::Shared, None, 2, 0),
                (Phase::Promoting, Mode::Shared, Some(E), 1, 0),
                (Phase::Held, Mode::Examine, Some(E), 1, 0),
            ],
            others: 1,
            poisons: &[false, true, true],
        },
        Protocol {
            name: "E to S beside one reader",
            states: &[
                (Phase::Demoting, Mode::Examine, Some(E), 1, 0),
                (Phase::Demoting, Mode::Examine, None, 2, 0),
                (Phase::Held, Mode::Shared, None, 2, 0),
            ],
            others: 1,
            poisons: &[true, false, false],
        },
        Protocol {
            name: "X to S",
            states: &[
                (Phase::Demoting, Mode::Exclusive, Some(X), 0, 0),
                (Phase::Demoting, Mode::Exclusive, None, 1, 0),
                (Phase::Held, Mode::Shared, None, 1, 0),
            ],
            others: 0,
            poisons: &[true, false, false],
        },
        Protocol {
            name: "E to X while a reader is there",
            states: &[
                (Phase::Draining, Mode::Exclusive, Some(E), 1, 0),
                (Phase::Draining, Mode::Exclusive, None, 1, DRAINING),
            ],
            others: 1,
            poisons: &[true, true],
        },
        Protocol {
            name: "E to X after the last reader",
            states: &[
                (Phase::Draining, Mode::Exclusive, None, 0, DRAINING),
                (Phase::Draining, Mode::Exclusive, Some(X), 0, 0),
                (Phase::Held, Mode::Exclusive, Some(X), 0, 0),
            ],
            others: 0,
            poisons: &[true; 3],
        },
    ];

    /// Leaves what a session leaves that dies in this state, and gives its SID back.
    fn die(instance: &Instance, mutex: &RawMutex, state: State) -> Sid {
        let (phase, mode, field, references, flags) = state;
        let session: Session<'_> = instance.session("dying", Class::Normal).unwrap();
        let sid = session.sid();
        let record = Record { phase, mode, location: crate::operation_log::LocationId(0), mutex: mutex.id() };
        session.log(record).unwrap();
        let field = field.map_or(0, |kind| kind | sid.bits());
        mutex.fake(Word(field | flags | u64::from(references)), if phase == Phase::Draining { sid } else { Sid::NONE });
        // With a record in its log the session stays live, with nobody behind it.
        drop(session);
        sid
    }

    #[test]
    fn every_state_of_every_protocol_is_recovered_to_what_the_others_have() {
        let instance = Instance::anonymous(Capacity { sessions: 4, ..Capacity::default() }).unwrap();
        let mutex = instance.mutex("m", "test", || 0u64).unwrap();
        let mut states = 0;
        for protocol in PROTOCOLS {
            for (step, (&state, &poisons)) in protocol.states.iter().zip(protocol.poisons).enumerate() {
                let sid = die(&instance, mutex.raw(), state);
                assert!(matches!(instance.recover(sid), Recovery::Done { .. }), "{} step {step}", protocol.name);
                let word = mutex.raw().load();
                let poison = if poisons { Word::POISONED } else { 0 };
                assert_eq!(word, Word(poison | u64::from(protocol.others)), "{} step {step}", protocol.name);
                states += 1;
            }
        }
        assert_eq!(states, 32);
    }

    /// A row: name, phases, modes, what is owed without the field and with it, whether the field poisons.
    type Row = (&'static str, &'static [Phase], &'static [Mode], &'static str, &'static str, bool);

    /// The table of docs/DESIGN.md, "What a death leaves".
    const OWED: &[Row] = &[
        ("getting S", &[Phase::Getting], &[Mode::Shared], "", "field reference", false),
        ("held S", &[Phase::Held], &[Mode::Shared], "reference", "reference", false),
        (
            "granted S, leaving S",
            &[Phase::Granted, Phase::Leaving],
            &[Mode::Shared],
            "reference",
            "field reference",
            false,
        ),
        ("left S", &[Phase::Left], &[Mode::Shared], "", "field reference", false),
        ("getting or held X, LX, E", &[Phase::Getting, Phase::Held], Mode::ALL.split_at(1).1, "", "field", true),
        ("promoting", &[Phase::Promoting], &[Mode::Shared], "reference", "field", true),
        ("demoting", &[Phase::Demoting], Mode::ALL.split_at(1).1, "reference", "field", true),
        ("draining", &[Phase::Draining], &[Mode::Exclusive], "drain", "field", true),
    ];

    #[test]
    fn what_is_owed_is_what_the_table_says() {
        let mut rows = 0;
        for &(name, phases, modes, without, with, poisons) in OWED {
            for (&phase, &mode) in phases.iter().flat_map(|phase| modes.iter().map(move |mode| (phase, mode))) {
                for (is_holder, debts) in [(false, without), (true, with)] {
                    // A settled reference is never the field's.
                    if name == "held S" && is_holder {
                        continue;
                    }
                    for is_drainer in [false, true] {
                        let owed = undo(phase, mode, is_holder, is_drainer);
                        let draining = debts.contains("drain") && is_drainer;
                        assert_eq!(owed.holder, debts.contains("field"), "{name}");
                        assert_eq!(owed.reference, debts.contains("reference"), "{name}");
                        assert_eq!(owed.draining, draining, "{name}");
                        assert_eq!(owed.poison, poisons && (is_holder || draining), "{name}");
                        rows += 1;
                    }
                }
            }
        }
        assert_eq!(rows, 62);
    }

    #[test]
    fn whatever_a_log_says_the_living_keep_the_field_and_no_count_wraps() {
        let instance = Instance::anonymous(Capacity { sessions: 4, ..Capacity::default() }).unwrap();
        let mutex = instance.mutex("m", "test", || 0u64).unwrap();
        let living = instance.session("living", Class::Normal).unwrap();
        let mut cases = 0;
        for (phase, mode) in Phase::ALL.into_iter().flat_map(|phase| Mode::ALL.map(|mode| (phase, mode))) {
            for (kind, references) in [X, LX, E, MOVING].into_iter().flat_map(|kind| [0, 1, 2].map(|n| (kind, n))) {
                for (flags, drainer) in [(0, 0), (DRAINING, 0), (DRAINING, 1), (DRAINING, 2)] {
                    for owner in 0..3 {
                        let session = instance.session("dying", Class::Normal).unwrap();
                        let sids = [Sid::NONE, session.sid(), living.sid()];
                        let record =
                            Record { phase, mode, location: crate::operation_log::LocationId(0), mutex: mutex.id() };
                        session.log(record).unwrap();
                        let field = if owner == 0 { 0 } else { kind | sids[owner].bits() };
                        mutex.raw().fake(Word(field | flags | references), sids[drainer]);
                        drop(session);
                        let before = mutex.raw().load();
                        let recovery = instance.recover(sids[1]);
                        let after = mutex.raw().load();
                        let context = format!("{record:?}, {before:?}: {recovery:?}, {after:?}");
                        let left = u64::from(before.references() - after.references().min(before.references()));
                        assert!(left <= 1 && after.references() <= before.references(), "{context}");
                        if owner == 2 {
                            assert_eq!(after, before, "{context}");
                            // What the living holder keeps from being paid is paid when it has let go.
                            mutex.raw().fake(Word(flags | references), sids[drainer]);
                            instance.recover(sids[1]);
                        } else if owner == 1 {
                            // Taken for what the record does, or for something that no protocol leaves.
                            let takes = match (phase, mode) {
                                (Phase::Promoting, _) => kind == E || kind == X && references > 0,
                                (Phase::Held, Mode::Shared) => false,
                                (_, Mode::Shared) => kind == MOVING,
                                _ => kind != MOVING,
                            };
                            assert_eq!(after.sid().is_none(), takes, "{context}");
                        }
                        if drainer == 2 {
                            assert!(after.has(Word::DRAINING) || owner == 1, "{context}: somebody else drains");
                        }
                        // Whatever is still owed now is owed to no state that a session can leave.
                        mutex.raw().fake(Word(1), Sid::NONE);
                        instance.recover(sids[1]);
                        mutex.raw().fake(Word::FREE, Sid::NONE);
                        instance.recover(sids[1]);
                        cases += 1;
                    }
                }
            }
        }
        assert_eq!(cases, 8 * 4 * 12 * 4 * 3);
    }

    #[test]
    fn a_recoverer_that_dies_leaves_a_state_that_is_recovered_the_same() {
        // The states in which `settle` can leave the dead session: each of its stores is a state of a protocol again.
        let instance = Instance::anonymous(Capacity { sessions: 4, ..Capacity::default() }).unwrap();
        let mutex = instance.mutex("m", "test", || 0u64).unwrap();
        let after_first_store: &[(State, Word)] = &[
            // A reader in flight, relogged as leaving; then given back without the record cleared.
            ((Phase::Left, Mode::Shared, Some(MOVING), 3, 0), Word(2)),
            ((Phase::Left, Mode::Shared, None, 2, 0), Word(2)),
            // A demotion relogged as X; then given back poisoned without the record cleared.
            ((Phase::Held, Mode::Exclusive, Some(X), 0, 0), Word(Word::POISONED)),
            ((Phase::Held, Mode::Exclusive, None, 0, Word::POISONED), Word(Word::POISONED)),
            // A promotion relogged as E; then given back.
            ((Phase::Held, Mode::Examine, Some(E), 1, 0), Word(Word::POISONED | 1)),
            ((Phase::Held, Mode::Examine, None, 1, Word::POISONED), Word(Word::POISONED | 1)),
            // A drain taken back without the record cleared.
            ((Phase::Draining, Mode::Exclusive, None, 1, Word::POISONED), Word(Word::POISONED | 1)),
        ];
        for &(state, expected) in after_first_store {
            let sid = die(&instance, mutex.raw(), state);
            assert!(matches!(instance.recover(sid), Recovery::Done { .. }));
            assert_eq!(mutex.raw().load(), expected, "{state:?}");
        }
    }

    #[test]
    fn two_references_of_a_dead_session_are_dropped_in_whatever_state_a_recoverer_left_them() {
        let instance = Instance::anonymous(Capacity { sessions: 4, ..Capacity::default() }).unwrap();
        let mutex = instance.mutex("m", "test", || 0u64).unwrap();
        // The one has not been dropped yet: a recoverer may have relogged it before it found the field taken. The other is in any
        // state that has to do with the field, or not.
        let others = [
            (Phase::Held, false),
            (Phase::Leaving, false),
            (Phase::Leaving, true),
            (Phase::Left, true),
            (Phase::Getting, true),
            (Phase::Granted, true),
            (Phase::Granted, false),
        ];
        for one in [Phase::Held, Phase::Leaving] {
            for (other, has_field) in others {
                for order in [[one, other], [other, one]] {
                    let session = instance.session("dying", Class::Normal).unwrap();
                    for phase in order {
                        let location = crate::operation_log::LocationId(0);
                        session.log(Record { phase, mode: Mode::Shared, location, mutex: mutex.id() }).unwrap();
                    }
                    // The third reference is a living session's.
                    mutex.raw().fake(Word(3 | if has_field { MOVING | session.sid().bits() } else { 0 }), Sid::NONE);
                    let sid = session.sid();
                    drop(session);
                    while instance.recover(sid) == Recovery::Owing {}
                    assert_eq!(mutex.raw().load(), Word(1), "{order:?}, field {has_field}");
                    mutex.raw().fake(Word::FREE, Sid::NONE);
                }
            }
        }
    }

    #[test]
    fn a_debt_to_a_busy_mutex_is_paid_later() {
        let instance = Instance::anonymous(Capacity { sessions: 4, ..Capacity::default() }).unwrap();
        let mutex = instance.mutex("m", "test", || 0u64).unwrap();
        let living = instance.session("living", Class::Normal).unwrap();
        let sid = die(&instance, mutex.raw(), (Phase::Held, Mode::Shared, None, 1, 0));
        let busy = mutex.get(&living, Mode::Examine, crate::location!(), crate::mutex::Patience::None).unwrap();
        assert_eq!(instance.recover(sid), Recovery::Owing);
        assert_eq!(mutex.raw().load().references(), 1);
        drop(busy);
        assert_eq!(instance.recover(sid), Recovery::Done { mutexes: 1 });
        assert_eq!(mutex.raw().load(), Word::FREE);
    }

    #[test]
    fn a_debt_to_memory_elsewhere_is_paid_by_who_has_it_mapped() {
        let instance = Instance::anonymous(Capacity { sessions: 4, ..Capacity::default() }).unwrap();
        let (mutex, other) = (RawMutex::new(), RawMutex::new());
        let mutex_type = instance.register_type("mapped elsewhere").unwrap();
        // SAFETY: sessions of this instance only.
        unsafe { mutex.register(&instance, mutex_type, "elsewhere").unwrap() };
        // SAFETY: sessions of this instance only.
        unsafe { other.register(&instance, mutex_type, "not it").unwrap() };
        assert_eq!((mutex.mutex_type(), other.mutex_type()), (mutex_type, mutex_type));
        assert_ne!((mutex.id(), other.id()), (MutexId(0), mutex.id()));
        let sid = die(&instance, &mutex, (Phase::Held, Mode::Shared, None, 1, 0));
        other.fake(Word(1), Sid::NONE);
        assert_eq!(instance.recover(sid), Recovery::Owing);
        assert_eq!(instance.recover_with(sid, Some(&other)), Recovery::Owing);
        assert_eq!((mutex.load(), other.load()), (Word(1), Word(1)));
        assert_eq!(instance.recover_with(sid, Some(&mutex)), Recovery::Done { mutexes: 1 });
        assert_eq!((mutex.load(), other.load()), (Word::FREE, Word(1)));
    }

    /// A mutex outside of the instance's memory.
    fn register_elsewhere(instance: &Instance, mutex: &RawMutex) {
        // SAFETY: sessions of this instance only.
        unsafe { mutex.register(instance, crate::entries::TypeId(0), "elsewhere").unwrap() };
    }

    /// Gets a mutex outside of the instance's memory at once.
    fn get_x<'a>(mutex: &'a RawMutex, session: &'a Session<'a>) -> crate::mutex::Get<'a> {
        // SAFETY: of the instance that it is registered with.
        unsafe { mutex.get(session, Mode::Exclusive, crate::location!(), crate::mutex::Patience::None) }
    }

    const GETTING_X: State = (Phase::Getting, Mode::Exclusive, None, 0, 0);

    #[test]
    fn a_dead_waiter_of_a_mutex_elsewhere_is_paid_for_by_a_waiter_that_it_does_not_block() {
        let instance = Instance::anonymous(Capacity { sessions: 9, ..Capacity::default() }).unwrap();
        let mutex = RawMutex::new();
        register_elsewhere(&instance, &mutex);
        let (holder, waiter) = (instance.session("h", Class::Normal).unwrap(), instance.session("w", Class::Normal));
        let waiter = waiter.unwrap();
        for _ in 0..7 {
            die(&instance, &mutex, GETTING_X);
        }
        let held = get_x(&mutex, &holder).unwrap();
        // What the dead owe can be known by the word alone, which nobody has looked at.
        let full = instance.session("another", Class::Normal).map(drop).unwrap_err();
        assert_eq!(full, crate::SessionError::Full { capacity: 9, owing: 7, mutex: mutex.id() });
        let says = format!("7 of them by dead ones that owe to mutexes elsewhere, the first to #{}", mutex.id().0);
        assert!(full.to_string().contains(&says), "{full}");
        let busy = get_x(&mutex, &waiter);
        assert!(matches!(busy, Err(crate::GetError::Busy)));
        assert_eq!(instance.tables.sessions().len(), 2, "the waiter has paid for all of them");
        drop(held);
    }

    #[test]
    fn a_parked_session_that_died_elsewhere_frees_its_slot_at_once() {
        let instance = Instance::anonymous(Capacity { sessions: 4, ..Capacity::default() }).unwrap();
        let mutex = RawMutex::new();
        register_elsewhere(&instance, &mutex);
        for _ in 0..3 {
            let sid = die(&instance, &mutex, GETTING_X);
            instance.tables.slot(sid).unwrap().parked_on.store(mutex.id().0, Ordering::Relaxed);
            assert_eq!(instance.recover(sid), Recovery::Done { mutexes: 0 });
        }
        assert!(instance.tables.sessions().is_empty());
    }

    #[test]
    fn a_parked_session_that_died_elsewhere_with_a_reference_keeps_owing_it() {
        let instance = Instance::anonymous(Capacity { sessions: 4, ..Capacity::default() }).unwrap();
        let mutex = RawMutex::new();
        register_elsewhere(&instance, &mutex);
        // It waited for S beside its own S, and another one to become E.
        let session = instance.session("dying", Class::Normal).unwrap();
        for (phase, mode) in [(Phase::Held, Mode::Shared), (Phase::Getting, Mode::Shared)] {
            let location = crate::operation_log::LocationId(0);
            session.log(Record { phase, mode, location, mutex: mutex.id() }).unwrap();
        }
        let first = session.sid();
        drop(session);
        let second = die(&instance, &mutex, (Phase::Promoting, Mode::Shared, None, 2, 0));
        for sid in [first, second] {
            instance.tables.slot(sid).unwrap().parked_on.store(mutex.id().0, Ordering::Relaxed);
            assert_eq!(instance.recover(sid), Recovery::Owing);
        }
        assert_eq!(mutex.load(), Word(2));
        let writer = instance.session("writer", Class::Normal).unwrap();
        drop(get_x(&mutex, &writer).unwrap());
        assert_eq!((mutex.load(), instance.tables.sessions().len()), (Word::FREE, 1));
    }

    #[test]
    fn a_dead_reader_is_found_although_waiters_of_other_mutexes_have_just_looked() {
        let instance = Instance::anonymous(Capacity { sessions: 4, ..Capacity::default() }).unwrap();
        let (mutex, other) = (RawMutex::new(), RawMutex::new());
        register_elsewhere(&instance, &mutex);
        register_elsewhere(&instance, &other);
        let writer = instance.session("writer", Class::Normal).unwrap();
        die(&instance, &mutex, (Phase::Held, Mode::Shared, None, 1, 0));
        instance.recover_all_with(Some(&other));
        // As after each look that the waiters of the other mutex win.
        instance.tables.segment.header().swept_ns.store(sys::now_ns(), Ordering::Relaxed);
        let got = get_x(&mutex, &writer);
        assert!(got.is_ok());
    }

    #[test]
    fn recoveries_are_counted_and_only_those_that_gave_something_back_are_alerts() {
        let instance = Instance::anonymous(Capacity { sessions: 4, ..Capacity::default() }).unwrap();
        let mutex = instance.mutex("m", "test", || 0u64).unwrap();
        let elsewhere = RawMutex::new();
        // SAFETY: sessions of this instance only.
        unsafe { elsewhere.register(&instance, crate::entries::TypeId(0), "elsewhere").unwrap() };
        let died = || instance.tables.alerts(0).iter().filter(|alert| alert.2.contains(") died")).count();
        die(&instance, mutex.raw(), (Phase::Getting, Mode::Exclusive, Some(X), 0, 0));
        assert_eq!((instance.recover_all(), died()), ((1, 0), 1));
        die(&instance, &elsewhere, (Phase::Held, Mode::Shared, None, 1, 0));
        assert_eq!((instance.recover_all(), died()), ((0, 1), 1));
        assert_eq!((instance.recover_all_with(Some(&elsewhere)), died()), ((1, 0), 2));
        // One that holds nothing, by a thread that ends.
        std::thread::scope(|scope| {
            scope.spawn(|| std::mem::forget(instance.session("forgotten", Class::Normal).unwrap()));
        });
        while instance.recover_all() == (0, 0) {
            // The kernel marks the lock when the thread is quite gone.
            std::thread::yield_now();
        }
        assert_eq!(died(), 2, "nothing was given back");
        assert!(instance.tables.sessions().is_empty());
    }

    #[test]
    fn a_living_session_is_left_alone() {
        let instance = Instance::anonymous(Capacity { sessions: 4, ..Capacity::default() }).unwrap();
        let mutex = instance.mutex("m", "test", || 0u64).unwrap();
        let living = instance.session("living", Class::Normal).unwrap();
        let guard = mutex.exclusive(&living, crate::location!()).unwrap();
        assert_eq!(instance.recover(living.sid()), Recovery::NotDead);
        drop(guard);
    }
}
