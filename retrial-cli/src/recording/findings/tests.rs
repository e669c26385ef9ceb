//! Each rule on a made period.

use super::{Blocker, Evidence, Finding, Source, findings};
use crate::recording::snapshot::{Alert, Mutex, Session, Snapshot, State};
use crate::recording::store::Holder;
use crate::recording::{Load, Period, Spent, deadlocks::deadlocks};
use retrial::views::{Counter, Figures, Key, LocationId, MutexInfo, Place, SessionInfo, Sid, TypeId, WaitEvent};
use retrial::{Death, Mode, MutexId};
use retrial_bench::machine::Ticks;
use retrial_model::profile::Samples;
use std::time::Duration;

const S: u64 = 1_000_000_000;

fn session(sid: u32) -> Session {
    let info = SessionInfo {
        sid: Sid::new(sid),
        pid: 100 + sid,
        tid: 100 + sid,
        dead: false,
        kept: false,
        high_priority: false,
        name: format!("worker {sid}"),
        action: String::new(),
        claimed_ns: 1,
        log: Vec::new(),
        wait: None,
        step: None,
        first_run: 0,
        last_run: 0,
    };
    Session { info, state: State::Running, holds: Vec::new(), blockers: Vec::new(), gets: 0, spent: None }
}

fn mutex(id: u32, gets: u64, samples: Samples) -> Mutex {
    let info = MutexInfo {
        id: MutexId(id),
        name: format!("m{id}"),
        mutex_type: TypeId(1),
        place: Place::Arena,
        address: 0,
        pid: 1,
        gets: None,
        death: None,
        pthread_in_use: false,
        switches: 0,
        one_alone: false,
    };
    Mutex {
        name: info.name.clone(),
        info,
        is_event: false,
        gets: Some(gets),
        word: String::new(),
        is_poisoned: false,
        parked: Some(0),
        holders: Vec::new(),
        samples,
    }
}

/// Ten seconds of four sessions that have waited for `m1`.
struct Case {
    from: Snapshot,
    to: Snapshot,
    blockers: Vec<Blocker>,
    source: Source,
}

impl Case {
    fn new() -> Self {
        let mut from = Snapshot { sessions: (1..=4).map(session).collect(), ..Snapshot::default() };
        from.instance.name = "bank".to_owned();
        from.mutexes = vec![mutex(1, 0, Samples::default()), mutex(2, 0, Samples::default())];
        from.types.insert(TypeId(1), "account".to_owned());
        from.places.extend((1..4).map(|at| (LocationId(at), format!("place {at}"))));
        from.load = Load { processors: 2, ticks: Some(Ticks { busy: 0, all: 0, steal: 0 }), ..Load::default() };
        let mut to = from.clone();
        (to.at.real_ns, to.at.monotonic_ns) = (10 * S, 10 * S);
        to.load.ticks = Some(Ticks { busy: 900, all: 2000, steal: 0 });
        Self { from, to, blockers: Vec::new(), source: Source::Live }
    }

    /// Waits at a place, and what else was counted.
    fn waits(mut self, sid: u32, at: u16, wait_s: f64, counters: &[(Counter, u64)]) -> Self {
        let wait_ns = Duration::from_secs_f64(wait_s).as_nanos() as u64;
        let mut figures = Figures::default();
        for (counter, count) in
            [(Counter::WaitNs, wait_ns), (Counter::SleptNs, wait_ns), (Counter::Waits, 10), (Counter::Misses, 10)]
                .iter()
                .chain(counters)
        {
            figures.counters[*counter as usize] = *count;
        }
        let event = WaitEvent { for_event: false, mode: Mode::Exclusive, on_x: true };
        self.to.rows.push((Sid::new(sid), Key { mutex: MutexId(1), location: LocationId(at), event }, figures));
        self
    }

    /// Gets of `m1`, and how long of ten seconds it was held.
    fn held(mut self, gets: u64, held_s: f64) -> Self {
        self.to.mutexes[0].gets = Some(gets);
        let held = Duration::from_secs_f64(held_s / 10.0).as_millis() as u64;
        self.to.mutexes[0].samples = Samples { looks: 1000, held, time_s: 10.0, held_s, gets };
        self
    }

    fn find(&self) -> Vec<Finding> {
        let period = Period::between(&self.from, &self.to);
        let (blockers, deadlocks) = (self.blockers.clone(), deadlocks(&self.to));
        findings(&Evidence::new(period, self.source.clone(), 40.0, blockers, 1.0, deadlocks))
    }

    fn names(&self) -> Vec<&'static str> {
        self.find().iter().map(|finding| finding.rule).collect()
    }

    fn first(&self) -> Finding {
        self.find().into_iter().next().expect("a finding")
    }
}

fn has(finding: &Finding, parts: &[&str]) {
    let text = finding.text(1);
    for part in parts {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
}

#[test]
fn a_quiet_period_shows_nothing() {
    assert_eq!(Case::new().held(1000, 1.0).names(), [""; 0]);
    // Waits that are a trifle.
    assert_eq!(Case::new().held(100_000, 9.9).waits(1, 1, 0.1, &[(Counter::Misses, 90_000)]).names(), [""; 0]);
}

#[test]
fn sessions_that_wait_for_each_other_come_first() {
    let mut case = Case::new().held(100_000, 9.9).waits(1, 1, 30.0, &[(Counter::Misses, 90_000)]);
    for (sid, other) in [(1, 2), (2, 1)] {
        let event = WaitEvent { for_event: false, mode: Mode::Exclusive, on_x: true };
        let key = Key { mutex: MutexId(other), location: LocationId(1), event };
        let session = case.to.sessions.iter_mut().find(|session| session.info.sid == Sid::new(sid)).unwrap();
        session.info.wait = Some((key, 9 * S, Sid::new(other)));
        session.blockers = vec![(Sid::new(other), Some(Mode::Exclusive))];
        session.state = State::Deadlocked;
    }
    // Each holds for long, but for no other reason.
    let holder = Holder { sid: Sid::new(2), claimed_ns: 1, pid: 102, mode: Some(Mode::Exclusive), location: None };
    let mutex = MutexId(2);
    case.blockers = vec![Blocker { holder, mutex, waiters: 1, time_ns: S, longest_ns: S }];
    let names = case.names();
    assert_eq!(names[0], "deadlock");
    assert!(!names.contains(&"long_holder"), "{names:?}");
    assert!(names.contains(&"hot_mutex"));
    has(
        &case.first(),
        &["2 sessions wait for each other", "waits for X of m2 at place 1, held by session 2", "retrial who -i bank"],
    );
    assert!((case.first().share - 2.0 / 40.0).abs() < 1e-9);
}

#[test]
fn a_dead_holder_and_a_poisoned_mutex_come_first() {
    let mut case = Case::new().waits(1, 1, 5.0, &[]);
    case.to.sessions[1].state = State::Dead;
    case.to.mutexes[0].holders = vec![(Sid::new(2), Mode::Exclusive)];
    has(
        &case.first(),
        &["m1 is held by a session that is dead", "session 2 (worker 2, pid 102)", "retrial recover -i bank"],
    );
    assert!((case.first().share - 5.0 / 40.0).abs() < 1e-9);
    let mut case = Case::new();
    case.to.mutexes[1].is_poisoned = true;
    case.to.mutexes[1].info.death = Some(Death { sid: Sid::new(3), mode: Mode::Exclusive, location: LocationId(2) });
    has(&case.first(), &["m2 is poisoned", "session 3 died with it in X at place 2", "retrial hold m2 --consistent"]);
}

#[test]
fn run_queues_are_told_from_contention() {
    let mut case = Case::new().held(10_000, 3.0).waits(1, 1, 4.0, &[]);
    let spent = |case: &mut Case, cpu_s: u64, queued_s: u64| {
        for session in &mut case.from.sessions {
            session.spent = Some(Spent::default());
        }
        for session in &mut case.to.sessions {
            session.spent = Some(Spent { cpu_ns: cpu_s * S, queued_ns: queued_s * S });
        }
    };
    spent(&mut case, 9, 1);
    assert_eq!(case.names(), [""; 0], "a tenth of their time in run queues");
    spent(&mut case, 5, 5);
    has(
        &case.first(),
        &["processors are short, not the mutexes", "20.0 s of the 40.0 s", "50.0 %", "2 processors, 45.0 % busy"],
    );
    assert!((case.first().share - 0.5).abs() < 1e-9);
    // Of a session that came within the period nothing is known.
    case.to.sessions.iter_mut().for_each(|session| session.info.claimed_ns = 2);
    assert_eq!(case.names(), [""; 0]);
}

#[test]
fn a_holder_that_keeps_it_for_long_is_named() {
    let mut case = Case::new().held(3, 9.0).waits(1, 1, 8.0, &[]).waits(3, 1, 8.0, &[]);
    case.to.sessions[1].info.action = "month's end".to_owned();
    let holder = |sid| Holder {
        sid: Sid::new(sid),
        claimed_ns: 1,
        pid: 9,
        mode: Some(Mode::Exclusive),
        location: Some(LocationId(3)),
    };
    let blocker =
        |sid, time_ns, longest_ns| Blocker { holder: holder(sid), mutex: MutexId(1), waiters: 2, time_ns, longest_ns };
    case.blockers = vec![blocker(2, 16 * S, 8 * S), blocker(4, S / 10, S / 10)];
    assert_eq!(case.names(), ["long_holder"]);
    has(
        &case.first(),
        &[
            "session 2 (worker 2, pid 102) keeps m1 in X at place 3 for long",
            "kept for 8.00 s",
            "month's end",
            "retrial who -i bank --mutex m1",
        ],
    );
    assert!((case.first().share - 16.0 / 40.0).abs() < 1e-9);
    // By the end the session has gone, and another one has its number.
    case.to.sessions[1].info.claimed_ns = 2;
    has(&case.first(), &["session 2 (worker 2, pid 9, has ended) keeps m1 in X at place 3 for long"]);
    assert!(!case.first().text(1).contains("month's end"), "that is the other one's action");
    // A hundred sessions that hold it in turn: none of them has most.
    case.blockers = (0..4).map(|sid| blocker(sid, 4 * S, S)).collect();
    assert_eq!(case.names(), ["hot_mutex"]);
    // Many short holds of one session.
    let mut case = case.held(100_000, 5.0);
    case.blockers = vec![blocker(2, 16 * S, 8 * S)];
    assert_eq!(case.names(), [""; 0]);
}

#[test]
fn a_mutex_that_is_held_all_the_time_is_hot() {
    let case = Case::new().held(9_500, 9.5).waits(1, 1, 20.0, &[(Counter::Misses, 9_000)]);
    assert_eq!(case.names(), ["hot_mutex"]);
    has(
        &case.first(),
        &[
            "m1 is held nearly all the time",
            "95.0 % of the time (U)",
            "950 gets/s",
            "1.00 ms (S)",
            "at most 1000/s",
            "retrial advise -i bank --mutex m1",
        ],
    );
    // What was recorded has gone, as each instance of `run --record`.
    let mut case = Case::new().held(9_500, 9.5).waits(1, 1, 20.0, &[(Counter::Misses, 9_000)]);
    case.source = Source::File("a.db".to_owned());
    has(&case.first(), &["retrial ash a.db -i bank --waiters --where 'mutex_id = 1'"]);
    // Where nobody looked at the holder, there is no U.
    let mut case = Case::new().held(9_500, 9.5).waits(1, 1, 20.0, &[(Counter::Misses, 9_000)]);
    case.to.mutexes[0].samples = Samples::default();
    has(&case.first(), &["94.7 % of the gets find it busy (ρ); how long it was held, nobody looked at"]);
    let case = Case::new().held(9_500, 5.0).waits(1, 1, 20.0, &[(Counter::Misses, 5_000)]);
    assert_eq!(case.names(), [""; 0], "held for half of the time");
    // Sleepers come back seldom, and miss it each time: few misses, much time.
    let case = Case::new().held(33_000, 9.9).waits(1, 1, 18.0, &[(Counter::Misses, 900)]);
    assert_eq!(case.names(), ["hot_mutex"]);
}

#[test]
fn sleeps_that_are_longer_than_holds_by_far_do_not_fit() {
    let counters = [(Counter::Sleeps, 1_000), (Counter::Busy, 2_000), (Counter::Misses, 1_500), (Counter::Yields, 0)];
    let case = Case::new().held(10_000, 0.5).waits(1, 1, 10.0, &counters);
    assert_eq!(case.names(), ["sleeps_too_long"]);
    has(
        &case.first(),
        &["sessions sleep for 10.0 ms where m1 is held for 50.0 us", "95.0 % of the time", "retrial advise"],
    );
    // Parked sessions are woken.
    let parked = [(Counter::Sleeps, 10), (Counter::Parks, 1_000), (Counter::Busy, 2_000), (Counter::Misses, 1_500)];
    assert_eq!(Case::new().held(10_000, 0.5).waits(1, 1, 10.0, &parked).names(), [""; 0]);
}

#[test]
fn a_place_that_makes_most_waits_is_named() {
    let mut case = Case::new().waits(1, 1, 7.0, &[]).waits(2, 2, 1.0, &[]).waits(3, 3, 1.0, &[]);
    case.source = Source::File("a.db".to_owned());
    assert_eq!(case.names(), ["one_place"]);
    has(
        &case.first(),
        &[
            "place 1 makes 77.8 % of the time of all waits",
            "at one of 3 places",
            "retrial ash a.db -i bank --waiters --where",
        ],
    );
    assert_eq!(Case::new().waits(1, 1, 4.0, &[]).waits(2, 2, 4.0, &[]).names(), [""; 0]);
    assert_eq!(Case::new().waits(1, 1, 4.0, &[]).names(), [""; 0], "there is no other");
}

#[test]
fn findings_are_in_the_order_of_what_they_cost() {
    let mut case = Case::new().held(9_500, 9.5).waits(1, 1, 4.0, &[(Counter::Misses, 9_000)]).waits(2, 2, 1.0, &[]);
    for (snapshot, s) in [(&mut case.from, 0), (&mut case.to, 5)] {
        snapshot
            .sessions
            .iter_mut()
            .for_each(|session| session.spent = Some(Spent { cpu_ns: s * S, queued_ns: s * S }));
    }
    case.to.alerts = vec![Alert { number: 1, at_ns: 1, text: String::new() }];
    assert_eq!(case.names(), ["false_contention", "hot_mutex", "one_place"]);
    let shares: Vec<f64> = case.find().iter().map(|finding| finding.share).collect();
    assert!(shares.is_sorted_by(|a, b| a >= b), "{shares:?}");
    let json = case.first().json();
    assert_eq!((&json["rule"], &json["pct_session_time"]), (&"false_contention".into(), &50.0.into()));
}
