//! Modes and conversions on a real instance, by one thread and by many.

use retrial::{Capacity, Class, GetError, Instance, Mode, Patience, RawMutex, Session, Word, location};
use std::time::Duration;

fn instance() -> Instance {
    Instance::anonymous(Capacity { sessions: 64, ..Capacity::default() }).unwrap()
}

fn session(instance: &Instance) -> Session<'_> {
    instance.session("test", Class::Normal).unwrap()
}

#[test]
fn a_mode_excludes_what_the_ladder_says() {
    let instance = instance();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let (a, b) = (session(&instance), session(&instance));
    // Held by a, wanted by b: granted?
    let table = [
        (Mode::Shared, [true, false, false, true]),
        (Mode::Exclusive, [false; 4]),
        (Mode::LongExclusive, [false; 4]),
        (Mode::Examine, [false; 4]),
    ];
    for (held, granted) in table {
        let guard = mutex.get(&a, held, location!(), Patience::Endless).unwrap();
        for (wanted, granted) in Mode::ALL.into_iter().zip(granted) {
            let got = mutex.try_get(&b, wanted, location!());
            assert_eq!(got.is_ok(), granted, "{wanted} wanted, {held} held");
        }
        drop(guard);
        assert_eq!(mutex.raw().load(), Word::FREE);
    }
}

#[test]
fn conversions_keep_the_mutex() {
    let instance = instance();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let (a, b) = (session(&instance), session(&instance));
    let mut guard = mutex.shared(&a, location!()).unwrap();
    guard.hold_mut().examine(Patience::None).unwrap();
    assert_eq!(mutex.raw().load().references(), 0);
    assert!(matches!(mutex.try_get(&b, Mode::Shared, location!()), Err(GetError::Busy)));
    guard.hold_mut().upgrade(Patience::None).unwrap();
    *guard += 1;
    guard.hold_mut().share();
    assert_eq!(mutex.raw().load().references(), 1);
    assert_eq!(*mutex.shared(&b, location!()).unwrap(), 1);
    drop(guard);
    assert_eq!(mutex.raw().load(), Word::FREE);
}

#[test]
fn an_upgrade_waits_for_the_readers_and_gives_up_in_time() {
    let instance = instance();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let (a, b) = (session(&instance), session(&instance));
    let reader = mutex.shared(&b, location!()).unwrap();
    let mut guard = mutex.get(&a, Mode::Examine, location!(), Patience::Endless).unwrap();
    let soon = Patience::Until(retrial::sys::Deadline::after(Duration::from_millis(2)));
    assert!(matches!(guard.hold_mut().upgrade(soon), Err(GetError::TimedOut)));
    assert_eq!(guard.hold().mode(), Mode::Examine);
    drop(guard);
    drop(reader);
    assert_eq!(mutex.raw().load(), Word::FREE);
}

#[test]
fn a_session_is_told_that_it_would_wait_for_itself() {
    let instance = instance();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let a = session(&instance);
    let guard = mutex.exclusive(&a, location!()).unwrap();
    assert!(matches!(mutex.exclusive(&a, location!()), Err(GetError::Deadlock { held: Mode::Exclusive })));
    drop(guard);
    let reader = mutex.shared(&a, location!()).unwrap();
    assert!(mutex.shared(&a, location!()).is_ok(), "shared twice is fine");
    assert!(matches!(mutex.exclusive(&a, location!()), Err(GetError::Deadlock { held: Mode::Shared })));
    drop(reader);
}

#[test]
fn a_log_holds_as_many_mutexes_as_it_has_records() {
    let instance = instance();
    let a = session(&instance);
    let mutexes: Vec<RawMutex> = (0..=retrial::LOG_RECORDS).map(|_| RawMutex::new()).collect();
    let holds: Vec<_> = mutexes[..retrial::LOG_RECORDS].iter().map(|m| m.exclusive(&a, location!()).unwrap()).collect();
    let last = &mutexes[retrial::LOG_RECORDS];
    assert!(matches!(last.exclusive(&a, location!()), Err(GetError::LogFull { capacity: 64 })));
    drop(holds);
    assert!(last.exclusive(&a, location!()).is_ok());
}

#[test]
fn every_scheme_excludes_in_every_mode() {
    for (position, scheme) in retrial::wait::NAMES.iter().enumerate() {
        let instance = instance();
        instance.set(retrial::P::Scheme, None, position as u64);
        // Two halves that a torn update leaves unequal.
        let mutex = instance.mutex("m", "test", || [0u64; 2]).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (instance, mutex) = (&instance, &mutex);
                scope.spawn(move || {
                    let session = session(instance);
                    for round in 0..400 {
                        match (thread + round) % 8 {
                            0..4 => {
                                let mut guard = mutex.exclusive(&session, location!()).unwrap();
                                guard[0] += 1;
                                std::hint::black_box(&mut guard);
                                guard[1] += 1;
                            }
                            4 | 5 => {
                                let guard = mutex.shared(&session, location!()).unwrap();
                                assert_eq!(guard[0], guard[1], "{scheme}");
                            }
                            6 => {
                                let guard = mutex.get(&session, Mode::Examine, location!(), Patience::Endless).unwrap();
                                assert_eq!(guard[0], guard[1], "{scheme}");
                            }
                            _ => {
                                let mut guard =
                                    mutex.get(&session, Mode::LongExclusive, location!(), Patience::Endless).unwrap();
                                guard[0] += 1;
                                guard[1] += 1;
                                guard.hold_mut().share();
                                assert_eq!(guard[0], guard[1], "{scheme}");
                            }
                        }
                    }
                });
            }
        });
        let session = session(&instance);
        let guard = mutex.shared(&session, location!()).unwrap();
        assert_eq!(*guard, [8 * 50 * 5; 2], "{scheme}");
        drop(guard);
        assert_eq!(mutex.raw().load(), Word::FREE, "{scheme}");
        assert_eq!(mutex.raw().parked(), 0, "{scheme}");
    }
}
