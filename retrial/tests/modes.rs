//! Modes and conversions on a real instance, by one thread and by many.

use retrial::engine::RawMutex;
use retrial::views::Word;
use retrial::{Capacity, Class, ConvertError, GetError, Instance, Mode, P, Patience, Session, location};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn instance() -> Instance {
    Instance::anonymous(Capacity { sessions: 64, ..Capacity::default() }).unwrap()
}

fn session(instance: &Instance) -> Session<'_> {
    instance.session("test", Class::Normal).unwrap()
}

/// What a child of fork finds.
fn in_child(deed: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only drops, looks and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child without what the harness would do at its end.
        unsafe { libc::_exit(i32::from(!deed())) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    status == 0
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
            let got = mutex.get(&b, wanted, location!(), Patience::None);
            assert_eq!(got.is_ok(), granted, "{wanted} wanted, {held} held");
        }
        drop(guard);
        assert_eq!(mutex.word(), Word::FREE);
    }
}

#[test]
fn conversions_keep_the_mutex() {
    let instance = instance();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let (a, b) = (session(&instance), session(&instance));
    let mut guard = mutex.shared(&a, location!()).unwrap();
    guard.examine(Patience::None).unwrap();
    assert_eq!(mutex.word().references(), 0);
    assert!(matches!(mutex.get(&b, Mode::Shared, location!(), Patience::None), Err(GetError::Busy)));
    guard.upgrade(Patience::None).unwrap();
    *guard += 1;
    guard.share();
    assert_eq!(mutex.word().references(), 1);
    assert_eq!(*mutex.shared(&b, location!()).unwrap(), 1);
    drop(guard);
    assert_eq!(mutex.word(), Word::FREE);
}

#[test]
fn an_upgrade_waits_for_the_readers_and_gives_up_in_time() {
    let instance = instance();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let (a, b) = (session(&instance), session(&instance));
    let reader = mutex.shared(&b, location!()).unwrap();
    let mut guard = mutex.get(&a, Mode::Examine, location!(), Patience::Endless).unwrap();
    let soon = Patience::Until(retrial::sys::Deadline::after(Duration::from_millis(2)));
    assert!(matches!(guard.upgrade(soon), Err(ConvertError::TimedOut)));
    assert_eq!(guard.hold().mode(), Mode::Examine);
    drop(guard);
    drop(reader);
    assert_eq!(mutex.word(), Word::FREE);
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
fn examine_over_ones_own_reference_is_refused() {
    let instance = instance();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let a = session(&instance);
    let reader = mutex.shared(&a, location!()).unwrap();
    let refused = mutex.get(&a, Mode::Examine, location!(), Patience::Endless);
    assert!(matches!(refused, Err(GetError::Deadlock { held: Mode::Shared })));
    drop(refused);
    drop(reader);
    assert_eq!(mutex.word(), Word::FREE);
    let writer = mutex.exclusive(&a, location!()).unwrap();
    let refused = mutex.get(&a, Mode::Examine, location!(), Patience::Endless);
    assert!(matches!(refused, Err(GetError::Deadlock { held: Mode::Exclusive })));
    drop((refused, writer));
}

#[test]
fn a_reader_that_wants_to_examine_is_handed_the_mutex() {
    let instance = instance();
    instance.set(P::Fairness, None, 2);
    instance.set(P::HandoverInterval, None, 1);
    instance.set(P::OrbitYields, None, 0);
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let a = session(&instance);
    let shared = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let b = session(&instance);
            let mut guard = mutex.shared(&b, location!()).unwrap();
            shared.store(true, Ordering::Release);
            while mutex.word().sid().is_none() {
                std::thread::yield_now();
            }
            guard.examine(Patience::Endless).unwrap();
        });
        while !shared.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let examined = mutex.get(&a, Mode::Examine, location!(), Patience::Endless).unwrap();
        while mutex.parked() == 0 {
            std::thread::yield_now();
        }
        drop(examined);
    });
    assert_eq!(mutex.word(), Word::FREE);
}

#[test]
fn two_that_would_both_wait_for_the_others_reference_are_told() {
    let instance = instance();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let (a, b) = (session(&instance), session(&instance));
    let mut reader = mutex.shared(&b, location!()).unwrap();
    let drained = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let drainer = session(&instance);
            let mut guard = mutex.get(&drainer, Mode::Examine, location!(), Patience::Endless).unwrap();
            guard.upgrade(Patience::Endless).unwrap();
            drained.store(true, Ordering::Release);
        });
        while !mutex.word().has(Word::DRAINING) {
            std::thread::yield_now();
        }
        assert!(matches!(reader.examine(Patience::Endless), Err(ConvertError::Deadlock { .. })));
        assert!(matches!(mutex.shared(&b, location!()), Err(GetError::Deadlock { .. })));
        assert!(matches!(mutex.get(&a, Mode::Shared, location!(), Patience::None), Err(GetError::Busy)));
        assert!(!drained.load(Ordering::Acquire));
        drop(reader);
    });
    assert!(drained.load(Ordering::Acquire));
}

#[test]
fn a_reader_that_reads_again_beside_an_upgrade_with_a_deadline_waits_for_its_end() {
    let instance = instance();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let reader = session(&instance);
    let reading = mutex.shared(&reader, location!()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let drainer = session(&instance);
            let mut guard = mutex.get(&drainer, Mode::Examine, location!(), Patience::Endless).unwrap();
            let result = guard.upgrade(Patience::within(Duration::from_millis(50)));
            assert_eq!(result, Err(ConvertError::TimedOut));
        });
        while !mutex.word().has(Word::DRAINING) {
            std::thread::yield_now();
        }
        let again = mutex.get(&reader, Mode::Shared, location!(), Patience::within(Duration::from_secs(60)));
        assert!(again.is_ok(), "found {again:?}");
    });
    drop(reading);
    assert_eq!(mutex.word(), Word::FREE);
}

#[test]
fn readers_that_keep_coming_do_not_keep_a_writer_out() {
    let ms = Duration::from_millis;
    for (fairness, stays) in [(1, ms(0)), (2, ms(0)), (1, ms(20))] {
        let instance = instance();
        instance.set(P::Fairness, None, fairness);
        let mutex = instance.mutex("m", "test", || 0u64).unwrap();
        let written = AtomicBool::new(false);
        // Only whose turn it is leaves, and it comes back before it is the other's turn: there is always a
        // reference, until nobody can come any more.
        let turn = AtomicUsize::new(0);
        let both = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            for me in 0..2 {
                let (instance, mutex, turn, both, written) = (&instance, &mutex, &turn, &both, &written);
                scope.spawn(move || {
                    let session = session(instance);
                    let mut guard = Some(mutex.shared(&session, location!()).unwrap());
                    let mut since = Instant::now();
                    both.wait();
                    while !written.load(Ordering::Acquire) {
                        let closed = mutex.word().has(Word::HANDOVER) && since.elapsed() >= stays;
                        if closed || turn.load(Ordering::Acquire) == me {
                            guard = None;
                            let deadline = Patience::Until(retrial::sys::Deadline::after(Duration::from_micros(50)));
                            while guard.is_none() && !written.load(Ordering::Acquire) {
                                guard = mutex.get(&session, Mode::Shared, location!(), deadline).ok();
                            }
                            since = Instant::now();
                            turn.store(1 - me, Ordering::Release);
                        }
                        std::thread::yield_now();
                    }
                    drop(guard);
                });
            }
            both.wait();
            let session = session(&instance);
            let got = mutex.get(&session, Mode::Exclusive, location!(), Patience::within(Duration::from_secs(20)));
            written.store(true, Ordering::Release);
            *got.expect("a writer is let in between readers") += 1;
        });
    }
}

#[test]
fn sessions_that_examine_beside_references_do_not_keep_a_writer_out() {
    // What a session does without end, its references come and go in three ways.
    type Deed = fn(&retrial::Mutex<'_, u64>, &Session<'_>);
    fn pause() {
        std::thread::sleep(Duration::from_micros(500));
    }
    let deeds: [Deed; 3] = [
        |mutex, session| {
            let mut guard = mutex.examine(session, location!()).unwrap();
            guard.share();
            pause();
            guard.examine(Patience::Endless).unwrap();
        },
        |mutex, session| {
            let mut guard = mutex.shared(session, location!()).unwrap();
            pause();
            guard.examine(Patience::Endless).unwrap();
            guard.share();
            pause();
        },
        |mutex, session| {
            let _guard = mutex.shared(session, location!()).unwrap();
            pause();
            let _again = mutex.shared(session, location!()).unwrap();
            pause();
        },
    ];
    for deed in deeds {
        let instance = instance();
        let mutex = instance.mutex("m", "test", || 0u64).unwrap();
        let stop = AtomicBool::new(false);
        let written = std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let session = session(&instance);
                    while !stop.load(Ordering::Relaxed) {
                        deed(&mutex, &session);
                    }
                });
            }
            let session = session(&instance);
            let patience = Patience::within(Duration::from_mins(1));
            let write = || mutex.get(&session, Mode::Exclusive, location!(), patience).is_ok();
            let written = (0..20).take_while(|_| write()).count();
            stop.store(true, Ordering::Relaxed);
            written
        });
        assert_eq!(written, 20);
        assert_eq!(mutex.word(), Word::FREE);
    }
}

#[test]
fn readers_do_not_keep_each_other_out() {
    for fairness in 1..=2 {
        let instance = instance();
        instance.set(P::Fairness, None, fairness);
        // Who finds a reference being moved parks at once.
        for (p, value) in [(P::OrbitSpinTime, 0), (P::OrbitYields, 0), (P::HandoverInterval, 1)] {
            instance.set(p, None, value);
        }
        let mutex = instance.mutex("m", "test", || 0u64).unwrap();
        let first = session(&instance);
        // A reference that stays: the mutex is never free.
        let long = mutex.shared(&first, location!()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let session = session(&instance);
                    for _ in 0..2000 {
                        drop(mutex.shared(&session, location!()).unwrap());
                        assert!(!mutex.word().has(Word::HANDOVER), "nobody wants anything but S");
                    }
                });
            }
        });
        drop(long);
        assert_eq!(mutex.word(), Word::FREE);
    }
}

#[test]
fn a_writer_that_gives_up_lets_the_readers_in_again() {
    // Beside E the writer cannot take it back itself: a session that waits does.
    for comes in [Mode::Shared, Mode::Examine] {
        let instance = instance();
        instance.set(P::HandoverInterval, None, 1);
        let mutex = instance.mutex("m", "test", || 0u64).unwrap();
        let first = session(&instance);
        let long = mutex.shared(&first, location!()).unwrap();
        let seen = AtomicBool::new(false);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let session = session(&instance);
                // On a machine without a processor to spare a wait may pass before it has asked for its turn.
                while !seen.load(Ordering::Relaxed) {
                    assert!(begun.elapsed() < Duration::from_mins(1), "the writer was to be let in");
                    let patience = Patience::within(Duration::from_millis(300));
                    let got = mutex.get(&session, Mode::Exclusive, location!(), patience);
                    assert!(matches!(got, Err(GetError::TimedOut)));
                }
            });
            // References come and go until one of them leaves the mutex to the writer that starves.
            let session = session(&instance);
            while !writer.is_finished() {
                drop(mutex.get(&session, comes, location!(), Patience::None));
                seen.fetch_or(mutex.word().has(Word::HANDOVER), Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        if comes == Mode::Shared {
            assert_eq!(mutex.word(), Word(1));
        }
        let other = session(&instance);
        let patience = Patience::within(Duration::from_mins(1));
        drop(mutex.get(&other, Mode::Shared, location!(), patience).expect("nobody else wants it"));
        assert_eq!(mutex.word(), Word(1));
        drop(long);
    }
}

#[test]
fn a_session_that_reads_twice_is_told_that_it_cannot_examine() {
    let instance = instance();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let session = session(&instance);
    let other = mutex.shared(&session, location!()).unwrap();
    let mut one = mutex.shared(&session, location!()).unwrap();
    assert!(matches!(one.examine(Patience::Endless), Err(ConvertError::Deadlock { held: Mode::Shared })));
    drop(other);
    one.examine(Patience::Endless).unwrap();
    one.upgrade(Patience::Endless).unwrap();
    *one += 1;
}

#[test]
#[should_panic(expected = "make the session by the `Instance` that gave the mutex")]
fn a_session_of_another_instance_is_refused() {
    let (ours, others) = (instance(), instance());
    let mutex = ours.mutex("m", "test", || 0u64).unwrap();
    let session = session(&others);
    let _ = mutex.shared(&session, location!());
}

#[test]
fn a_child_of_fork_converts_nothing_that_its_parent_holds() {
    let instance = instance();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let session = session(&instance);
    for mode in [Mode::Exclusive, Mode::Examine, Mode::Shared] {
        let mut guard = mutex.get(&session, mode, location!(), Patience::Endless).unwrap();
        let before = mutex.word();
        let child = in_child(|| {
            match mode {
                Mode::Exclusive => guard.share(),
                Mode::Examine => assert!(matches!(guard.upgrade(Patience::None), Err(ConvertError::Forked { .. }))),
                _ => assert!(matches!(guard.examine(Patience::None), Err(ConvertError::Forked { .. }))),
            }
            guard.consistent();
            mutex.word() == before
        });
        assert!(child, "{mode}");
        assert_eq!(mutex.word(), before);
        drop(guard);
    }
}

#[test]
fn a_child_of_fork_neither_owns_nor_releases_what_its_parent_holds() {
    let instance = instance();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let a = session(&instance);
    let guard = mutex.exclusive(&a, location!()).unwrap();
    let mut guard = Some(guard);
    let right = in_child(|| {
        drop(guard.take());
        let held = mutex.word().sid() == a.sid();
        held && matches!(mutex.exclusive(&a, location!()), Err(GetError::Forked { .. }))
    });
    assert!(right, "the child found the mutex held by its parent, and its sessions refused");
    assert_eq!(mutex.word().sid(), a.sid());
    drop(guard);
    assert!(mutex.exclusive(&a, location!()).is_ok());
}

#[test]
fn a_log_holds_as_many_mutexes_as_it_has_records() {
    let instance = instance();
    let a = session(&instance);
    let mutexes: Vec<RawMutex> = (0..=retrial::engine::LOG_RECORDS).map(|_| RawMutex::new()).collect();
    // SAFETY: never registered.
    let get = |mutex| unsafe { RawMutex::exclusive(mutex, &a, location!()) };
    let holds: Vec<_> = mutexes[..retrial::engine::LOG_RECORDS].iter().map(|mutex| get(mutex).unwrap()).collect();
    let last = &mutexes[retrial::engine::LOG_RECORDS];
    assert!(matches!(get(last), Err(GetError::LogFull { capacity: 256 })));
    drop(holds);
    assert!(get(last).is_ok());
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
                                guard.share();
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
        assert_eq!(mutex.word(), Word::FREE, "{scheme}");
        assert_eq!(mutex.parked(), 0, "{scheme}");
    }
}

#[test]
fn a_get_whose_deadline_passes_before_its_first_step_finds_the_dead_holder() {
    let instance = instance();
    let mutex = instance.mutex("m", "test", || 0u64).unwrap();
    let (dead, waits) = (session(&instance), session(&instance));
    std::mem::forget(mutex.exclusive(&dead, location!("dies")));
    drop(dead);
    let got = mutex.get(&waits, Mode::Exclusive, location!("waits"), Patience::within(Duration::from_nanos(1)));
    assert!(matches!(got, Err(GetError::OwnerDied(_))));
}
