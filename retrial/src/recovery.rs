//! What a dead session owes, and how it is paid.
//!
//! Whoever recovers a dead session takes the session's own lock first and then *acts as the dead*: with its SID, by its
//! log, along the protocols that the dead session itself would have followed. So a recoverer that dies half-way leaves
//! just another dead session with an exact log, and there is no protocol of recovery that would need one of its own.

use crate::aol::{Phase, Record};
use crate::instance::Instance;
use crate::mode::Mode;
use crate::mutex::RawMutex;
use crate::session::Slot;
use crate::sys::{Ordering, Taken};
use crate::word::Sid;

/// What a dead session owes a mutex.
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
        // The exchange that takes the field adds the reference, and the store that gives it back keeps it.
        (Phase::Getting, Mode::Shared) => is_holder,
        (Phase::Held | Phase::Leaving, Mode::Shared) => true,
        // The store that gives the field back drops the reference.
        (Phase::Left, Mode::Shared) => is_holder,
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

impl Instance {
    /// Recovers a session if it is dead, as far as that can be done without waiting.
    ///
    /// `here` is a mutex that may lie outside of the instance's memory: only who has it mapped can pay a debt to it.
    pub fn recover(&self, sid: Sid, here: Option<&RawMutex>) -> Recovery {
        let Some(slot) = self.slot(sid) else { return Recovery::NotDead };
        if !slot.is_dead() || slot.alive.try_take() == Taken::No {
            return Recovery::NotDead;
        }
        if !slot.is_live() {
            slot.alive.give_up();
            return Recovery::NotDead;
        }
        let (mut mutexes, mut owing) = (0, false);
        let current = slot.current.load(Ordering::Relaxed) as usize;
        for (index, cell) in slot.log.iter().enumerate() {
            let bits = cell.load(Ordering::Relaxed);
            let Some(record) = Record::unpack(bits) else {
                cell.store(0, Ordering::Relaxed);
                continue;
            };
            let mutex = match here {
                Some(here) if here.id() == record.mutex => Some(here),
                _ => self.mutex_in_arena(record.mutex),
            };
            match mutex {
                Some(mutex) if mutex.settle(self, slot, sid, record, index, current == index + 1) => {
                    mutexes += 1;
                }
                _ => owing = true,
            }
        }
        if !owing {
            let (pid, tid) = (slot.pid.load(Ordering::Relaxed), slot.tid.load(Ordering::Relaxed));
            slot.free();
            slot.alive.give_up();
            if mutexes > 0 {
                self.alert(&format!("session {sid} (pid {pid}, tid {tid}) died; {mutexes} mutexes recovered"));
            }
            return Recovery::Done { mutexes };
        }
        slot.alive.give_up();
        Recovery::Owing
    }

    /// Recovers every dead session, as far as that can be done without waiting: how many, and how many still owe.
    pub fn recover_all(&self, here: Option<&RawMutex>) -> (u32, u32) {
        let (mut done, mut owing) = (0, 0);
        for sid in self.sids() {
            match self.recover(sid, here) {
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
    fn settle(&self, instance: &Instance, slot: &Slot, sid: Sid, record: Record, index: usize, in_flight: bool) -> bool {
        let word = self.load();
        // An operation that moves a reference holds the field only while it is in flight; X and E hold it all the time.
        let is_holder = word.sid() == sid && (in_flight || record.mode != Mode::Shared);
        let is_drainer = self.drainer() == sid && word.has(crate::word::Word::DRAINING);
        let owed = undo(record.phase, record.mode, is_holder, is_drainer);
        if owed.poison {
            instance.note_death(self.id(), sid, record);
        }
        let cell = &slot.log[index];
        let paid = if owed.holder {
            // A record that owes the same while the field is taken and nothing once it is given back: another
            // recoverer may read it in between.
            let (phase, mode) = match (owed.reference, record.mode) {
                (true, _) => (Phase::Left, Mode::Shared),
                (false, Mode::Shared) => (Phase::Held, Mode::Examine),
                (false, mode) => (Phase::Held, mode),
            };
            cell.store(Record { phase, mode, ..record }.pack(), Ordering::Release);
            self.give_back_for_dead(owed.reference, owed.poison);
            true
        } else if owed.draining {
            self.stop_draining()
        } else if owed.reference {
            // As the dead session would have released it.
            slot.current.store(u32::try_from(index + 1).unwrap_or(0), Ordering::Relaxed);
            self.try_leave(sid, cell, record)
        } else {
            true
        };
        if paid {
            cell.store(0, Ordering::Release);
            self.wake_after_recovery();
        }
        paid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_drainer_owes_the_drain_or_the_x_that_came_of_it() {
        assert!(undo(Phase::Draining, Mode::Exclusive, false, true).draining);
        assert!(undo(Phase::Draining, Mode::Exclusive, true, false).holder);
        assert!(!undo(Phase::Draining, Mode::Exclusive, false, false).draining);
    }
}
