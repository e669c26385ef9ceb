//! Snapshots of an instance of this process.

use super::sampling::Sampler;
use super::{Period, Snapshot, State, snapshot};
use retrial::sys::Deadline;
use retrial::views::{Counter, Phase, Sid};
use retrial::{Capacity, Class, GetError, Instance, Mode, Mutex, P, Patience, Session, location};
use retrial_model::{Measure, Profile};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn instance() -> Instance {
    Instance::anonymous(Capacity { sessions: 8, mutexes: 16, locations: 16, rows: 16, arena: 1 << 16 }).unwrap()
}

/// Waits in vain for a mutex that another session holds.
fn miss(mutex: &Mutex<u64>, session: &Session<'_>) {
    let patience = Patience::Until(Deadline::after(Duration::from_millis(1)));
    let got = mutex.get(session, Mode::Exclusive, location!("miss"), patience);
    assert!(matches!(got, Err(GetError::TimedOut)));
}

/// Waits of a session by a period.
fn waits(period: Period<'_>, sid: Sid) -> u64 {
    let of = period.of(|of, _| (of == sid).then_some(()));
    of.get(&()).map_or(0, |profile| profile.figures.get(Counter::Waits))
}

#[test]
fn a_snapshot_has_what_the_tables_say() {
    let instance = instance();
    let mutex: Mutex<u64> = instance.mutex("m", "Cursor Pin", || 0).unwrap();
    let (holder, waiter) =
        (instance.session("holder", Class::Normal).unwrap(), instance.session("waiter", Class::Normal).unwrap());
    let held = mutex.exclusive(&holder, location!("hold")).unwrap();
    miss(&mutex, &waiter);
    let (tables, snapshot) = (instance.tables(), Snapshot::of(instance.tables()));
    let period = Period::since_creation(&snapshot);
    let (of, expected) = (period.of(|_, key| Some(key)), Profile::of(tables, |_, key| Some(key)));
    let figures = |(key, profile): (&_, &Profile)| (*key, profile.figures);
    assert_eq!(of.iter().map(figures).collect::<Vec<_>>(), expected.iter().map(figures).collect::<Vec<_>>());
    let (seen, profile) = &period.mutexes()[0];
    assert_eq!((seen.label().as_str(), seen.gets, profile.gets), ("m", Some(2), Some(2)));
    assert_eq!(seen.holders, [(holder.sid(), Mode::Exclusive)]);
    let requests = 3.0; // of the mutex's creation, of the holder, and the one that gave up after its miss
    assert_eq!(Measure::MissRatio.of(profile), Some(1.0 / requests));
    let session = snapshot.session(holder.sid()).unwrap();
    assert_eq!((session.state, session.holds.len()), (State::Running, 1));
    assert_eq!(snapshot.place(session.holds[0].location.unwrap()), "hold");
    assert_eq!(snapshot.type_name_of(seen.info.id), "Cursor Pin");
    drop(held);
}

#[test]
fn a_waiting_session_is_seen_with_what_keeps_it() {
    let instance = instance();
    let mutex: Mutex<u64> = instance.mutex("m", "test", || 0).unwrap();
    let holder = instance.session("holder", Class::Normal).unwrap();
    let held = mutex.exclusive(&holder, location!("hold")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let waiter = instance.session("waiter", Class::Normal).unwrap();
            drop(mutex.exclusive(&waiter, location!("wait")).unwrap());
        });
        while instance.tables().waits().next().is_none() {
            std::thread::yield_now();
        }
        let snapshot = Snapshot::of(instance.tables());
        let waiter = snapshot.sessions.iter().find(|session| session.info.name == "waiter").unwrap();
        assert_eq!(waiter.state, State::Waiting);
        assert_eq!(waiter.blockers, [(holder.sid(), Some(Mode::Exclusive))]);
        let (key, since_ns, _) = waiter.info.wait.unwrap();
        assert_eq!((snapshot.place(key.location), snapshot.event_name(key).as_str()), ("wait", "test: mutex X"));
        assert!(since_ns <= snapshot.at.monotonic_ns);
        drop(held);
    });
}

#[test]
fn a_period_has_what_was_done_in_it_also_by_sessions_that_are_gone() {
    let instance = instance();
    let mutex: Mutex<u64> = instance.mutex("m", "test", || 0).unwrap();
    let holder = instance.session("holder", Class::Normal).unwrap();
    let held = mutex.exclusive(&holder, location!("hold")).unwrap();
    let (staying, leaving) =
        (instance.session("staying", Class::Normal).unwrap(), instance.session("leaving", Class::Normal).unwrap());
    miss(&mutex, &staying);
    miss(&mutex, &leaving);
    let from = Snapshot::of(instance.tables());
    miss(&mutex, &staying);
    miss(&mutex, &leaving);
    miss(&mutex, &leaving);
    let sid = leaving.sid();
    drop(leaving);
    let next = instance.session("next", Class::Normal).unwrap();
    miss(&mutex, &next);
    let to = Snapshot::of(instance.tables());
    let period = Period::between(&from, &to);
    assert_eq!(waits(period, staying.sid()), 1);
    assert_eq!(waits(period, Sid::NONE), 2, "those of the departed session, without what it did before");
    assert_eq!(waits(period, next.sid()), 1, "not less what another session did with this SID ({sid})");
    let total = period.total();
    assert_eq!((total.figures.get(Counter::Waits), total.gets), (4, Some(0)));
    assert!((total.time_s - period.time_s()).abs() < 1e-12 && period.time_s() > 0.0);
    drop(held);
}

#[test]
fn a_session_that_has_ended_is_among_the_departed_before_its_slot_is_claimed_again() {
    let instance = instance();
    let mutex: Mutex<u64> = instance.mutex("m", "test", || 0).unwrap();
    let holder = instance.session("holder", Class::Normal).unwrap();
    let _held = mutex.exclusive(&holder, location!("hold")).unwrap();
    let leaving = instance.session("leaving", Class::Normal).unwrap();
    let sid = leaving.sid();
    miss(&mutex, &leaving);
    let from = Snapshot::of(instance.tables());
    miss(&mutex, &leaving);
    drop(leaving);
    let ended = Snapshot::of(instance.tables());
    let period = Period::between(&from, &ended);
    assert_eq!((waits(period, Sid::NONE), waits(period, sid)), (1, 0));
    let _next = instance.session("next", Class::Normal).unwrap();
    let claimed = Snapshot::of(instance.tables());
    let period = Period::between(&ended, &claimed);
    assert_eq!((waits(period, Sid::NONE), waits(period, sid)), (0, 0));
}

#[test]
fn who_has_just_got_a_mutex_does_not_wait_for_itself() {
    let instance = instance();
    let mutex: Mutex<u64> = instance.mutex("m", "test", || 0).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let session = instance.session("of several", Class::Normal).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    *mutex.exclusive(&session, location!("hold")).unwrap() += 1;
                }
            });
        }
        let waits_for_itself =
            |session: &snapshot::Session| session.blockers.iter().any(|(sid, _)| *sid == session.info.sid);
        let found =
            (0..2_000).filter(|_| Snapshot::of(instance.tables()).sessions.iter().any(waits_for_itself)).count();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(found, 0);
    });
}

#[test]
fn an_instance_that_came_back_under_the_name_is_another_one() {
    let instance = instance();
    let mut from = Snapshot::of(instance.tables());
    let to = Snapshot::of(instance.tables());
    assert!(Period::between(&from, &to).from().is_some());
    from.instance.inode += 1;
    assert!(Period::between(&from, &to).from().is_none(), "since its creation");
}

#[test]
fn a_mutex_that_came_after_the_last_snapshot_is_sampled_from_then_on() {
    let instance = instance();
    let mut sampler = Sampler::new(instance.tables());
    sampler.complete(&mut Snapshot::of(instance.tables()));
    sampler.round();
    let mutex: Mutex<u64> = instance.mutex("m", "test", || 0).unwrap();
    let session = instance.session("holder", Class::Normal).unwrap();
    let held = mutex.exclusive(&session, location!("hold")).unwrap();
    for _ in 0..10 {
        sampler.round();
    }
    drop(held);
    drop(mutex.exclusive(&session, location!("hold")).unwrap());
    let mut snapshot = Snapshot::of(instance.tables());
    sampler.complete(&mut snapshot);
    let samples = snapshot.mutexes[0].samples;
    assert_eq!((samples.looks, samples.held, samples.gets), (9, 9, 1), "the first round only finds it");
    assert!(samples.time_s > 0.0 && samples.time_s.to_bits() == samples.held_s.to_bits(), "{samples:?}");
}

/// Converts in one session beside a mode of another: in a first spin for as long as that takes. What the
/// sampler counts: the time, and how long of it sessions held and spun first.
fn sampled(from: Mode, beside: Mode) -> (u64, u64, u64) {
    let instance = instance();
    instance.set(P::Scheme, None, P::Scheme.parse("latch", 0).unwrap());
    instance.set(P::LatchSpinCount, None, 100_000_000);
    let mutex: Mutex<u64> = instance.mutex("m", "Cursor Pin", || 0).unwrap();
    let (other, barrier) = (instance.session("other", Class::Normal).unwrap(), Barrier::new(2));
    let get = |session, mode| mutex.get(session, mode, location!("get"), Patience::Endless).unwrap();
    // S is not got beside E, and E would keep S from being got first.
    let first = (from == Mode::Examine).then(|| get(&other, beside));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let session = instance.session("converts", Class::Normal).unwrap();
            let mut hold = mutex.get(&session, from, location!("get"), Patience::Endless).unwrap();
            barrier.wait();
            barrier.wait();
            match from {
                Mode::Shared => hold.examine(Patience::Endless).unwrap(),
                _ => hold.upgrade(Patience::Endless).unwrap(),
            }
        });
        barrier.wait();
        let held = first.unwrap_or_else(|| get(&other, beside));
        barrier.wait();
        let converts = |phase| matches!(phase, Phase::Promoting | Phase::Draining);
        let sessions = || instance.tables().sessions().into_iter().flat_map(|session| session.log);
        while !sessions().any(|standing| converts(standing.record.phase) && standing.is_busy) {
            std::thread::yield_now();
        }
        let mut sampler = Sampler::new(instance.tables());
        for _ in 0..10 {
            sampler.round();
        }
        let (_, rounds) = sampler.complete(&mut Snapshot::of(instance.tables()));
        drop(held);
        (rounds.length_ns, rounds.holding_ns, rounds.spinning_ns)
    })
}

#[test]
fn a_session_that_spins_to_convert_what_it_holds_is_spinning_first() {
    for (from, beside) in [(Mode::Shared, Mode::Examine), (Mode::Examine, Mode::Shared)] {
        let (length, holding, spinning) = sampled(from, beside);
        assert_eq!((holding, spinning), (length, length), "{from} beside {beside}: the other one holds all the time");
    }
}
