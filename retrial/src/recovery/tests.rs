use super::*;
use crate::engine::EngineMutex;
use crate::parking::{Parking, Wakes};
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

/// What a crash can leave: phase and mode logged, kind bits when the session is in the field, references,
/// flags.
pub(crate) type State = (Phase, Mode, Option<u64>, u32, u64);

/// A protocol as the state after each of its steps. Written from the tables of docs/DESIGN.md, not from the
/// code.
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
    ("granted S, leaving S", &[Phase::Granted, Phase::Leaving], &[Mode::Shared], "reference", "field reference", false),
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
    // The states in which `settle` can leave the dead session: each of its stores is a state of a protocol
    // again.
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
    // The one has not been dropped yet: a recoverer may have relogged it before it found the field taken. The
    // other is in any state that has to do with the field, or not.
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

#[test]
fn a_slot_that_is_free_again_names_nothing_that_its_session_was_parked_on() {
    let instance = Instance::anonymous(Capacity { sessions: 2, ..Capacity::default() }).unwrap();
    let mutex = EngineMutex::default();
    let raw = mutex.record(&instance).unwrap();
    // A signal handler of the parked thread has got it.
    let sid = die(&instance, raw, (Phase::Held, Mode::Exclusive, Some(X), 0, 0));
    instance.tables.slot(sid).unwrap().parked_on.store(raw.id().0, Ordering::Relaxed);
    // SAFETY: registered above.
    assert_eq!(unsafe { instance.recover_all_for(raw) }, (1, 0));
    // SAFETY: nobody gets it.
    assert!(unsafe { mutex.unbind(&instance) }.unwrap(), "a slot still names it");
}

#[test]
fn a_debt_to_a_mutex_in_the_bytes_of_an_object_is_paid_by_any_process() {
    let instance = Instance::anonymous(Capacity { sessions: 1, ..Capacity::default() }).unwrap();
    let (_, bytes) = instance.mutex_bytes("page", "test", 4096).unwrap();
    #[allow(clippy::cast_ptr_alignment)] // the bytes are aligned to 16
    let latch = bytes.wrapping_add(1024).cast::<EngineMutex>();
    // SAFETY: inside, and all bytes 0 are a free mutex.
    let latch = unsafe { &*latch };
    let raw = latch.record(&instance).unwrap();
    let sid = die(&instance, raw, (Phase::Held, Mode::Shared, None, 1, 0));
    assert_eq!(instance.recover(sid), Recovery::Done { mutexes: 1 });
    assert_eq!(raw.load(), Word::FREE);
    // The only slot.
    die(&instance, raw, (Phase::Held, Mode::Exclusive, Some(X), 0, 0));
    drop(instance.session("next", Class::Normal).unwrap());
    assert_eq!(raw.load(), Word(Word::POISONED));
    // What its engine has put another mutex's bytes over is not touched.
    let sid = die(&instance, raw, (Phase::Held, Mode::Shared, None, 1, 0));
    raw.id.store(raw.id().0 + 1, Ordering::Relaxed);
    assert_eq!((instance.recover(sid), raw.load()), (Recovery::Owing, Word(1)));
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
    // One of them had asked to keep readers out beside a reader that stays.
    mutex.change(Ordering::Relaxed, |all| all.starve(0, true));
    mutex.fake(Word(Word::HANDOVER | 1), Sid::NONE);
    instance.collect_debts(&mutex);
    assert_eq!((mutex.load(), mutex.parking().starving().1), (Word(1), false));
}

#[test]
fn a_woken_session_that_died_is_on_its_way_no_longer_and_another_one_is_woken_for_it() {
    let instance = Instance::anonymous(Capacity { sessions: 4, ..Capacity::default() }).unwrap();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let raw = mutex.raw();
    for is_parked in [false, true] {
        let sid = die(&instance, raw, GETTING_X);
        raw.fake(Word::FREE, Sid::NONE);
        raw.change(Ordering::Relaxed, |_| Parking::default().announce(Wakes::One, false, true).wake());
        if is_parked {
            instance.tables.slot(sid).unwrap().parked_on.store(raw.id().0, Ordering::Relaxed);
        }
        let before = raw.wakes.load(Ordering::Relaxed);
        assert!(matches!(instance.recover(sid), Recovery::Done { .. }));
        assert_eq!((raw.parking().woken(), raw.wakes.load(Ordering::Relaxed) - before), (0, 1), "parked: {is_parked}");
    }
}

#[test]
fn a_writer_that_died_while_it_waited_keeps_no_reader_out() {
    let instance = Instance::anonymous(Capacity { sessions: 4, ..Capacity::default() }).unwrap();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let raw = mutex.raw();
    for (before, is_parked) in [Word(1), Word(Word::HANDOVER | 1)].into_iter().flat_map(|w| [(w, false), (w, true)]) {
        let sid = die(&instance, raw, GETTING_X);
        raw.change(Ordering::Relaxed, |all| all.starve(0, true));
        raw.fake(before, Sid::NONE);
        if is_parked {
            instance.tables.slot(sid).unwrap().parked_on.store(raw.id().0, Ordering::Relaxed);
        }
        assert!(matches!(instance.recover(sid), Recovery::Done { .. }));
        assert_eq!((raw.load(), raw.parking().starving().1), (Word(1), false), "{before:?}, parked: {is_parked}");
        raw.fake(Word::FREE, Sid::NONE);
    }
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
