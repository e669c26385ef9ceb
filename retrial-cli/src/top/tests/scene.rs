//! An instance that never was: two looks at it, a second apart.

use crate::recording::{Held, Identity, Load, Moment, Mutex, Parameter, Session, Snapshot, Span, State};
use crate::top::seen::Seen;
use retrial::views::{
    Counter, Figures, Key, LocationId, MutexInfo, PastSleep, Place, SessionInfo, Sid, TypeId, WaitEvent,
};
use retrial::{Capacity, Mode, MutexId, P};
use retrial_bench::machine::Ticks;
use retrial_model::profile::Samples;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000_000;
/// 2026-11-22T14:02:11Z.
const REAL: u64 = 1_795_356_131 * SECOND;
const MONOTONIC: u64 = 5000 * SECOND;

fn mutex(id: u32, name: &str, type_id: u8, gets: u64, holders: &[(u32, Mode)]) -> Mutex {
    let place = if name.is_empty() { Place::Process } else { Place::Arena };
    let info = MutexInfo {
        id: MutexId(id),
        name: name.to_owned(),
        mutex_type: TypeId(type_id),
        place,
        address: 0x1000,
        pid: 41,
        gets: None,
        death: None,
        pthread_in_use: false,
        switches: 0,
        one_alone: false,
    };
    Mutex {
        name: name.to_owned(),
        is_event: type_id == 2,
        gets: (type_id != 2).then_some(gets),
        word: String::new(),
        is_poisoned: id == 4,
        parked: None,
        holders: holders.iter().map(|(sid, mode)| (Sid::new(*sid), *mode)).collect(),
        samples: Samples::over(gets / 100, gets / 400, gets as f64 / 10_000.0, gets),
        info,
    }
}

/// A session, and the mutex, place and holder of its wait, with its begin before the second look in ms.
fn session(sid: u32, name: &str, wait: Option<(u32, u16, u32, u64)>) -> Session {
    let key = |mutex, location| Key {
        mutex: MutexId(mutex),
        location: LocationId(location),
        event: WaitEvent { for_event: false, mode: Mode::Exclusive, on_x: false },
    };
    let info = SessionInfo {
        sid: Sid::new(sid),
        pid: 41,
        tid: 41 + sid,
        dead: false,
        kept: false,
        high_priority: sid == 1,
        name: name.to_owned(),
        action: if sid == 1 { "nightly run".to_owned() } else { String::new() },
        claimed_ns: MONOTONIC - 90 * SECOND,
        log: Vec::new(),
        wait: wait.map(|(mutex, at, by, ms)| (key(mutex, at), MONOTONIC + SECOND - ms * 1_000_000, Sid::new(by))),
        step: wait.map(|_| "park"),
        first_run: 0,
        last_run: 0,
    };
    Session {
        state: if wait.is_some() { State::Waiting } else { State::Running },
        holds: Vec::new(),
        blockers: wait.map(|(_, _, by, _)| (Sid::new(by), Some(Mode::Exclusive))).into_iter().collect(),
        gets: 0,
        spent: None,
        info,
    }
}

fn row(sid: u32, mutex: u32, location: u16, counts: &[(Counter, u64)]) -> (Sid, Key, Figures) {
    let event = WaitEvent { for_event: mutex == 6, mode: Mode::Exclusive, on_x: false };
    let mut figures = Figures::default();
    for (counter, value) in counts {
        figures.counters[*counter as usize] = *value;
    }
    // Most are about as long as their mean, a tenth is eight times as long.
    let waits = figures.get(Counter::Waits);
    let mean_ns = figures.get(Counter::SleptNs) / waits;
    figures.lengths.count(mean_ns, waits - waits / 10);
    figures.lengths.count(8 * mean_ns, waits / 10);
    (Sid::new(sid), Key { mutex: MutexId(mutex), location: LocationId(location), event }, figures)
}

/// What had been counted of the waits by then: so many times as much.
fn rows(times: u64) -> Vec<(Sid, Key, Figures)> {
    use Counter::{Busy, MaxNs, Misses, Parks, SleptNs, SpinNs, Waits, Yields};
    let ms = 1_000_000;
    vec![
        row(
            2,
            1,
            1,
            &[
                (Misses, 900 * times),
                (Waits, 400 * times),
                (Busy, 950 * times),
                (Parks, 380 * times),
                (SleptNs, 640 * ms * times),
                (SpinNs, 12 * ms * times),
                (MaxNs, (32 + times) * ms),
            ],
        ),
        row(
            3,
            1,
            2,
            &[
                (Misses, 300 * times),
                (Waits, 120 * times),
                (Busy, 310 * times),
                (Yields, 500 * times),
                (SleptNs, 210 * ms * times),
                (MaxNs, (19 + times) * ms),
            ],
        ),
        row(
            5,
            2,
            2,
            &[
                (Misses, 20 * times),
                (Waits, 2 * times),
                (Busy, 20 * times),
                (Parks, 2 * times),
                (SleptNs, 3 * ms * times),
                (MaxNs, times * ms),
            ],
        ),
        row(4, 6, 3, &[(Waits, 10 * times), (SleptNs, 900 * ms * times), (MaxNs, 100 * ms)]),
    ]
}

fn sessions() -> Vec<Session> {
    let mut sessions = vec![
        session(1, "loader", None),
        session(2, "clerk", Some((1, 1, 1, 1250))),
        session(3, "clerk", Some((1, 2, 1, 730))),
        session(4, "teller", Some((2, 2, 3, 400))),
        session(5, "auditor with a name that is long", None),
    ];
    let held = |mutex, at| Held { mutex: MutexId(mutex), mode: Mode::Exclusive, location: Some(LocationId(at)) };
    sessions[0].holds = vec![held(1, 1)];
    sessions[2].holds = vec![held(2, 2)];
    sessions
}

fn history() -> Vec<PastSleep> {
    vec![PastSleep {
        mutex: MutexId(1),
        blocker: Sid::new(1),
        waiter: Sid::new(2),
        at_ns: MONOTONIC + SECOND / 2,
        location: LocationId(1),
        mode: Mode::Exclusive,
        sleeps: 7,
        gets: 104_000,
    }]
}

/// An instance at such a look.
pub fn snapshot(times: u64) -> Snapshot {
    let params = P::ALL.iter().map(|p| {
        let is_set = *p == P::SpinCount;
        Parameter { parameter: *p, of: None, value: if is_set { 300 } else { p.row().default }, is_set }
    });
    let text = |text: &str| text.to_owned();
    Snapshot {
        at: Moment { real_ns: REAL + times * SECOND, monotonic_ns: MONOTONIC + (times - 1) * SECOND },
        instance: Identity { name: text("bank"), created_ns: REAL - 3600 * SECOND, device: 1, inode: 2 },
        capacity: Capacity::default(),
        sessions: sessions(),
        mutexes: vec![
            mutex(1, "accounts", 1, 52_000 * times, &[(1, Mode::Exclusive)]),
            mutex(2, "ledger", 1, 7000 * times, &[(3, Mode::Exclusive)]),
            mutex(3, "archive", 0, 12 * times, &[]),
            mutex(4, "index of the branch in the old town", 0, 0, &[]),
            mutex(5, "", 0, 3000 * times, &[]),
            mutex(6, "end of day", 2, 0, &[]),
        ],
        types: BTreeMap::from([
            (TypeId(0), text("goods")),
            (TypeId(1), text("Cursor Pin")),
            (TypeId(2), text("pthread condition")),
        ]),
        places: BTreeMap::from([
            (LocationId(1), text("transfer (bank.c:120)")),
            (LocationId(2), text("statement (bank.c:260)")),
            (LocationId(3), text("wait_for_end (bank.c:300)")),
        ]),
        rows: rows(times),
        params: params.collect(),
        alerts: Vec::new(),
        history: history(),
        recoveries: 0,
        session_gets: 0,
        load: Load {
            processors: 2,
            ticks: Some(Ticks { busy: 150 * times, all: 200 * times, steal: 3 * times }),
            runnable: Some(3),
            pressure_us: Some(410_000 * times),
            frequency_khz: None,
        },
    }
}

/// The two looks; before the second one only the first.
pub(super) fn seen(looks: u64) -> Seen {
    let from = (looks > 1).then(|| snapshot(looks - 1));
    Seen::new(Span { from, to: snapshot(looks) }, (looks > 1).then_some(0.0043))
}

/// The same with two sessions that wait for each other.
pub(super) fn deadlocked() -> Seen {
    let mut to = snapshot(2);
    let held = |mutex| Held { mutex: MutexId(mutex), mode: Mode::Exclusive, location: Some(LocationId(2)) };
    to.sessions[1].holds = vec![held(2)];
    to.sessions[2].holds = vec![held(1)];
    to.sessions[0].holds.clear();
    to.sessions[2].info.wait = session(3, "", Some((2, 2, 2, 700))).info.wait;
    to.sessions[1].blockers = vec![(Sid::new(3), Some(Mode::Exclusive))];
    to.sessions[2].blockers = vec![(Sid::new(2), Some(Mode::Exclusive))];
    for at in [1, 2] {
        to.sessions[at].state = State::Deadlocked;
    }
    Seen::new(Span { from: Some(snapshot(1)), to }, None)
}
