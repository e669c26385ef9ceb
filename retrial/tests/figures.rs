//! What is counted, and that it adds up.

use retrial::views::{Counter, Figures, Histogram, Sid, What};
use retrial::{Capacity, Class, GetError, Instance, Mode, P, Patience, location, wait};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Waits 20 ms in vain for a mutex that is held, under a scheme, and gives what was counted of it.
fn wait_in_vain(instance: &Instance, scheme: &str) -> (Figures, Vec<(What, u64, Duration)>) {
    instance.set(P::Scheme, None, wait::named(scheme).unwrap() as u64);
    let mutex = instance.mutex(scheme, "Cursor Pin", || 0u64).unwrap();
    let (a, b) = (instance.session("a", Class::Normal).unwrap(), instance.session("b", Class::Normal).unwrap());
    let _held = mutex.exclusive(&a, location!("holder")).unwrap();
    let got = mutex.get(&b, Mode::Shared, location!("waiter"), Patience::within(Duration::from_millis(20)));
    assert!(matches!(got, Err(GetError::TimedOut)));
    let info = instance.tables().session_info(b.sid()).unwrap();
    let events = (info.first_run..=info.last_run)
        .filter_map(|n| instance.tables().event(b.sid(), n))
        .map(|e| (e.what, e.count, e.actual));
    let events = events.collect();
    let rows = instance.tables().figures();
    let (_, key, figures) = rows.iter().find(|(sid, key, _)| *sid == b.sid() && key.mutex == mutex.id()).unwrap();
    assert_eq!(key.event.name("Cursor Pin"), "cursor: pin S wait on X");
    assert_eq!(instance.tables().location_name(key.location), "waiter");
    (*figures, events)
}

#[test]
fn the_time_of_a_wait_splits_into_parts_that_add_up_under_every_scheme() {
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    for scheme in wait::NAMES {
        let (figures, events) = wait_in_vain(&instance, scheme);
        let get = |counter| figures.get(counter);
        let parts = [Counter::SpinNs, Counter::YieldNs, Counter::SleptNs, Counter::OverNs].map(get);
        assert_eq!(parts.iter().sum::<u64>(), get(Counter::WaitNs), "{scheme}: {parts:?}");
        assert!(get(Counter::WaitNs) > 15_000_000, "{scheme}: about 20 ms less the first spin");
        assert_eq!((get(Counter::Misses), get(Counter::Waits), get(Counter::GaveUp)), (1, 1, 1), "{scheme}");
        assert_eq!(figures.lengths.0[Histogram::bucket(get(Counter::WaitNs))], 1, "{scheme}: {figures:?}");
        assert_eq!(figures.lengths.total(), 1, "{scheme}: one wait");
        // Never open: every try found it busy, and every spin failed.
        assert_eq!(get(Counter::Busy), figures.sleeps() + get(Counter::GaveUp), "{scheme}");
        assert_eq!(events.first().map(|e| e.0), Some(What::Began), "{scheme}");
        assert_eq!(events.last().map(|e| e.0), Some(What::GaveUp), "{scheme}");
        let steps: u64 = events[1..events.len() - 1].iter().map(|e| e.1).sum();
        if events.len() < 60 {
            assert_eq!(steps, figures.sleeps(), "{scheme}: the trace has the steps that were counted");
        }
    }
}

#[test]
fn a_session_shows_the_step_that_it_is_at_and_not_the_last_one_that_ended() {
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    for (scheme, step) in [("pthread", "park"), ("sleep", "sleep")] {
        instance.set(P::Scheme, None, wait::named(scheme).unwrap() as u64);
        let mutex = instance.mutex(scheme, "Cursor Pin", || 0u64).unwrap();
        let a = instance.session("a", Class::Normal).unwrap();
        let held = mutex.exclusive(&a, location!()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let b = instance.session("b", Class::Normal).unwrap();
                drop(mutex.exclusive(&b, location!()).unwrap());
                assert_eq!(instance.tables().session_info(b.sid()).unwrap().step, None);
            });
            let shown = || instance.tables().sessions().iter().any(|session| session.step == Some(step));
            let is_shown = (0..1000).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                shown()
            });
            assert!(is_shown, "{scheme}");
            drop(held);
        });
    }
}

#[test]
fn figures_of_a_session_that_has_left_stay_in_the_totals() {
    let instance = Instance::anonymous(Capacity { sessions: 2, ..Capacity::default() }).unwrap();
    wait_in_vain(&instance, "sleep");
    let total = |instance: &Instance| {
        let mut sum = Figures::default();
        instance.tables().figures().iter().for_each(|(_, _, figures)| sum.add(figures));
        sum
    };
    let before = total(&instance);
    for _ in 0..4 {
        drop(instance.session("next", Class::Normal).unwrap());
    }
    assert_eq!(total(&instance), before);
    assert!(instance.tables().figures().iter().any(|(sid, ..)| *sid == Sid::NONE), "under nobody's SID now");
}

#[test]
fn figures_that_a_claim_moves_are_read_once() {
    let instance = Instance::anonymous(Capacity { sessions: 3, ..Capacity::default() }).unwrap();
    let mutexes: Vec<_> = (0..8).map(|i| instance.mutex(&format!("m{i}"), "test", || ()).unwrap()).collect();
    let holder = instance.session("holder", Class::Normal).unwrap();
    let _held: Vec<_> = mutexes.iter().map(|mutex| mutex.exclusive(&holder, location!("holder")).unwrap()).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3000 {
                let waiter = instance.session("waiter", Class::Normal).unwrap();
                for mutex in &mutexes {
                    let patience = Patience::within(Duration::from_micros(20));
                    assert!(mutex.get(&waiter, Mode::Shared, location!("waiter"), patience).is_err());
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let (mut last, mut readings, mut wrong) = (0, 0u32, 0u32);
        while !is_over.load(Ordering::Relaxed) {
            let misses: u64 = instance.tables().figures().iter().map(|row| row.2.get(Counter::Misses)).sum();
            readings += 1;
            wrong += u32::from(misses < last);
            last = misses;
        }
        println!("{wrong} of {readings} readings wrong");
        // A reader may be put off at each of its looks.
        assert!(wrong * 200 <= readings, "{wrong} of {readings}");
    });
    let misses: u64 = instance.tables().figures().iter().map(|row| row.2.get(Counter::Misses)).sum();
    assert_eq!(misses, 3000 * 8);
}

#[test]
fn many_that_wait_for_one_mutex_are_one_alert_within_the_threshold() {
    const THRESHOLD: Duration = Duration::from_millis(200);
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    instance.set(P::AlertThreshold, None, THRESHOLD.as_millis() as u64);
    let mutex = instance.mutex("m", "test", || ()).unwrap();
    let holder = instance.session("holder", Class::Normal).unwrap();
    let _held = mutex.exclusive(&holder, location!("holder")).unwrap();
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                let waiter = instance.session("waiter", Class::Normal).unwrap();
                let patience = Patience::within(Duration::from_secs(1));
                assert!(mutex.get(&waiter, Mode::Exclusive, location!("waiter"), patience).is_err());
            });
        }
    });
    let most = began.elapsed().as_nanos() / THRESHOLD.as_nanos();
    let alerts = instance.tables().alerts(0).iter().filter(|alert| alert.2.contains("has waited")).count();
    assert!((1..=most).contains(&(alerts as u128)), "{alerts} alerts, at most {most}");
}

#[test]
fn many_mutexes_that_are_waited_for_long_do_not_flood_the_log() {
    const THRESHOLD: Duration = Duration::from_secs(1);
    const MUTEXES: usize = 160;
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    instance.set(P::AlertThreshold, None, THRESHOLD.as_millis() as u64);
    let (held, over) = (std::sync::Barrier::new(2 * MUTEXES), std::sync::Barrier::new(2 * MUTEXES));
    let began = std::time::Instant::now();
    let name = |number| format!("m{number}");
    let mutexes: Vec<_> = (0..MUTEXES).map(|number| instance.mutex(&name(number), "test", || ()).unwrap()).collect();
    let hold = |number: usize| {
        let (mutex, session) = (&mutexes[number], instance.session("holder", Class::Normal).unwrap());
        let _held = mutex.exclusive(&session, location!("holder")).unwrap();
        held.wait();
        over.wait();
    };
    let wait = |number: usize| {
        let (mutex, session) = (&mutexes[number], instance.session("waiter", Class::Normal).unwrap());
        held.wait();
        let patience = Patience::within(THRESHOLD * 3 / 2);
        let found = mutex.get(&session, Mode::Exclusive, location!("waiter"), patience).is_err();
        over.wait();
        assert!(found);
    };
    std::thread::scope(|scope| {
        let (hold, wait) = (&hold, &wait);
        for number in 0..MUTEXES {
            scope.spawn(move || hold(number));
            scope.spawn(move || wait(number));
        }
    });
    // None comes within the first threshold; the log has 256 lines.
    let times = began.elapsed().as_nanos() / THRESHOLD.as_nanos();
    let lines = instance.tables().alerts_written();
    assert!((2..=256 * times).contains(&lines.into()), "{lines} lines after {times} thresholds");
}

#[test]
fn a_session_is_not_shown_the_gets_of_those_that_had_its_slot_before() {
    let instance = Instance::anonymous(Capacity { sessions: 1, ..Capacity::default() }).unwrap();
    let gets = |sid| instance.tables().gets_by_session().find(|(of, _)| *of == sid).unwrap().1;
    for round in 1..=3 {
        let session = instance.session("s", Class::Normal).unwrap();
        assert_eq!(gets(session.sid()), 0);
        let info = instance.tables().session_info(session.sid()).unwrap();
        for _ in 0..round {
            retrial::interposer::count_get(&session);
        }
        assert_eq!(gets(session.sid()), round);
        let sid = session.sid();
        drop(session);
        assert!(!instance.tables().is_followed(&info), "its rows are still there");
        assert_eq!((gets(sid), instance.tables().session_gets()), (round, (1..=round).sum()));
        let next = instance.session("next", Class::Normal).unwrap();
        assert!(instance.tables().is_followed(&info) && next.sid() == sid);
    }
}

#[test]
fn the_last_sleep_behind_each_blocker_is_remembered() {
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    wait_in_vain(&instance, "sleep");
    wait_in_vain(&instance, "backoff");
    let history = instance.tables().history();
    assert_eq!(history.len(), 2);
    assert!(history.iter().all(|past| past.mode == Mode::Shared && past.sleeps > 0));
}

#[test]
fn waiting_sessions_of_ydb_queue_when_all_together_have_yielded_so_often() {
    const SESSIONS: u64 = 8;
    const SOFT_SPINS: u64 = 500;
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    instance.set(P::Scheme, None, wait::named("ydb").unwrap() as u64);
    instance.set(P::SoftSpinCount, None, SOFT_SPINS);
    let mutex = instance.mutex("region", "test", || 0u64).unwrap();
    let holder = instance.session("holder", Class::Normal).unwrap();
    let guard = mutex.exclusive(&holder, location!("held")).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..SESSIONS {
            scope.spawn(|| {
                let session = instance.session("waits", Class::Normal).unwrap();
                drop(mutex.exclusive(&session, location!("wanted")).unwrap());
            });
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while u64::from(mutex.parked()) < SESSIONS && Instant::now() < deadline {
            std::thread::yield_now();
        }
        drop(guard);
    });
    let yields = instance.tables().figures().iter().map(|(_, _, figures)| figures.get(Counter::Yields)).sum::<u64>();
    // Those that began last count from then on, until the first is parked.
    assert!((SOFT_SPINS..=2 * SOFT_SPINS + SESSIONS).contains(&yields), "{yields}");
}

#[test]
fn adaptive_switches_under_load_and_back_when_the_load_stops() {
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    instance.set(P::Scheme, None, wait::ADAPTIVE as u64);
    // As published but for the numbers, which take a big machine to reach.
    for (p, value) in [(P::CheckEvery, 16), (P::YdbThreshold, 0), (P::Streak, 2), (P::SoftSpinCount, 0)] {
        instance.set(p, None, value);
    }
    let mutex = instance.mutex("region", "test", || 0u64).unwrap();
    let switches =
        || instance.tables().mutex_info(mutex.id()).map(|info| (info.pthread_in_use, info.switches)).unwrap();
    assert_eq!(switches(), (false, 0));
    instance.set(P::PthreadThreshold, None, 0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let session = instance.session("load", Class::Normal).unwrap();
                while !switches().0 {
                    let mut guard = mutex.exclusive(&session, location!("load")).unwrap();
                    *guard += 1;
                    // Somebody is sure to wait meanwhile.
                    std::thread::yield_now();
                }
            });
        }
    });
    assert_eq!(switches(), (true, 1));
    instance.set(P::PthreadThreshold, None, 614);
    let session = instance.session("alone", Class::Normal).unwrap();
    let mut gets = 0;
    while switches().0 {
        drop(mutex.exclusive(&session, location!("alone")).unwrap());
        gets += 1;
        assert!(gets <= 16 * 3, "two quiet checks are enough");
    }
    assert_eq!(switches(), (false, 2));
    assert_eq!(mutex.word(), retrial::views::Word::FREE, "the fast path is open again");
}

#[test]
fn a_wait_under_way_is_in_the_figures_up_to_now() {
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    let sum = || {
        let mut sum = Figures::default();
        instance.tables().figures().iter().for_each(|(_, _, figures)| sum.add(figures));
        sum
    };
    let parts = |figures: &Figures| {
        [Counter::SpinNs, Counter::YieldNs, Counter::SleptNs, Counter::OverNs]
            .map(|c| figures.get(c))
            .iter()
            .sum::<u64>()
    };
    for scheme in wait::NAMES {
        instance.set(P::Scheme, None, wait::named(scheme).unwrap() as u64);
        let mutex = instance.mutex(scheme, "Cursor Pin", || 0u64).unwrap();
        let before = sum();
        std::thread::scope(|scope| {
            let holder = instance.session("holder", Class::Normal).unwrap();
            let held = mutex.exclusive(&holder, location!("holder")).unwrap();
            scope.spawn(|| {
                let waiter = instance.session("waiter", Class::Normal).unwrap();
                drop(mutex.exclusive(&waiter, location!("waiter")).unwrap());
            });
            let begun_ns = loop {
                if let Some((_, key, since_ns)) = instance.tables().waits().next() {
                    assert_eq!(key.mutex, mutex.id());
                    break since_ns;
                }
                std::thread::yield_now();
            };
            while retrial::sys::now_ns() < begun_ns + 300_000_000 {
                std::thread::yield_now();
            }
            let now = sum().since(&before);
            assert!(now.get(Counter::WaitNs) >= 300_000_000, "{scheme}: {now:?}");
            assert!(parts(&now) >= 300_000_000, "{scheme}: {now:?}");
            assert!(now.get(Counter::MaxNs) >= 300_000_000, "{scheme}: {now:?}");
            assert_eq!((now.get(Counter::Waits), now.lengths.total()), (1, 0), "{scheme}: it has not ended");
            drop(held);
        });
        // Once more after its end: nothing of it counts twice.
        let after = sum().since(&before);
        assert_eq!(parts(&after), after.get(Counter::WaitNs), "{scheme}: {after:?}");
        assert_eq!(after.lengths.total(), 1, "{scheme}: {after:?}");
    }
}
