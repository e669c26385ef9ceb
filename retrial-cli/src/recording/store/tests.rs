//! Recordings: what was written is read again, also where only a part was written.

use super::{Holder, Recording, Rounds, Sample, Writer, schema};
use crate::recording::{Period, Snapshot};
use retrial::sys::Deadline;
use retrial::views::{Key, Sid};
use retrial::{Capacity, Class, GetError, Instance, Mode, Mutex, MutexId, P, Patience, Session, location};
use std::path::PathBuf;
use std::time::Duration;

/// A name in the temporary directory, and what `SQLite` puts beside it; gone at the end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("retrial-{}-{name}.db", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for end in ["", "-wal", "-shm", "-journal"] {
            let mut path = self.0.clone().into_os_string();
            path.push(end);
            let _ = std::fs::remove_file(path);
        }
    }
}

fn instance() -> Instance {
    Instance::anonymous(Capacity { sessions: 8, mutexes: 16, locations: 16, rows: 16, arena: 1 << 16 }).unwrap()
}

fn session<'i>(instance: &'i Instance, name: &str) -> Session<'i> {
    instance.session(name, Class::Normal).unwrap()
}

fn miss(mutex: &Mutex<u64>, session: &Session<'_>) {
    let patience = Patience::Until(Deadline::after(Duration::from_millis(1)));
    let got = mutex.get(session, Mode::Exclusive, location!("miss"), patience);
    assert!(matches!(got, Err(GetError::TimedOut)));
}

/// A snapshot as a recording gives it: without the instance's capacity and the sessions' logs, rows in the order
/// of their keys.
fn kept(snapshot: &Snapshot) -> Snapshot {
    let mut kept = Snapshot { capacity: Capacity::default(), ..snapshot.clone() };
    for session in &mut kept.sessions {
        session.info.log.clear();
    }
    let order = |(sid, key, _): &(Sid, Key, _)| {
        let event = key.event;
        (*sid, key.mutex, key.location, event.mode.name(), event.on_x, event.for_event)
    };
    kept.rows.sort_by_key(order);
    kept.history.sort_by_key(|past| (past.mutex, past.blocker));
    kept
}

/// Snapshots of an instance in which things happen: sessions come and go, one waits, a parameter is set,
/// alerts are written.
fn story(mut seen: impl FnMut(&Snapshot)) {
    let instance = instance();
    let mutex: Mutex<u64> = instance.mutex("m", "Cursor Pin", || 0).unwrap();
    let (holder, waiter) = (session(&instance, "holder"), session(&instance, "waiter"));
    seen(&Snapshot::of(instance.tables()));
    let held = mutex.exclusive(&holder, location!("hold")).unwrap();
    miss(&mutex, &waiter);
    instance.set(P::SpinCount, None, 77);
    instance.set(P::WaitTime, instance.tables().type_named("Cursor Pin"), 5);
    seen(&Snapshot::of(instance.tables()));
    instance.alert("something");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let late = session(&instance, "late");
            late.set_action("at work");
            drop(mutex.exclusive(&late, location!("wait")).unwrap());
        });
        while instance.tables().waits().next().is_none() {
            std::thread::yield_now();
        }
        seen(&Snapshot::of(instance.tables()));
        drop(held);
    });
    drop(holder);
    seen(&Snapshot::of(instance.tables()));
    seen(&Snapshot::of(instance.tables()));
}

#[test]
fn what_was_written_is_read_again() {
    let scratch = Scratch::new("read-again");
    let (mut writer, mut snapshots) = (Writer::open(&scratch.0).unwrap(), Vec::new());
    story(|snapshot| {
        let id = writer.store(snapshot, &[], Rounds::default()).unwrap();
        snapshots.push((id, snapshot.clone()));
    });
    let is_read_again = || {
        let recording = Recording::open(&scratch.0).unwrap();
        for (id, snapshot) in &snapshots {
            assert_eq!(recording.snapshot(*id).unwrap(), kept(snapshot), "snapshot {id}");
        }
    };
    is_read_again();
    writer.close().unwrap();
    is_read_again();
    let recording = Recording::open(&scratch.0).unwrap();
    let [first, .., last] = recording.snapshots().unwrap()[..] else { panic!("two snapshots") };
    let (from, to) = (recording.snapshot(first.id).unwrap(), recording.snapshot(last.id).unwrap());
    let ((_, live_from), (_, live_to)) = (&snapshots[0], &snapshots[snapshots.len() - 1]);
    assert_eq!(Period::between(&from, &to).total(), Period::between(live_from, live_to).total());
}

#[test]
fn only_what_has_changed_is_written_again() {
    let mut writer = Writer::in_memory(|_| true).unwrap();
    story(|snapshot| {
        writer.store(snapshot, &[], Rounds::default()).unwrap();
    });
    let count = |table: &str| {
        let sql = format!("SELECT count(*) FROM {table} WHERE snapshot > 1");
        writer.connection().query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!((count("type"), count("mutex")), (0, 0), "named at the first snapshot, and never changed");
    assert_eq!(count("parameter"), 2, "the two that were set");
    assert_eq!(count("session"), 3, "one that came, and two that left");
}

#[test]
fn a_second_writer_is_refused_and_the_next_one_goes_on() {
    let scratch = Scratch::new("second");
    let mut writer = Writer::open(&scratch.0).unwrap();
    story(|snapshot| {
        writer.store(snapshot, &[], Rounds::default()).unwrap();
    });
    let refused = Writer::open(&scratch.0).err().expect("a second writer").to_string();
    assert!(refused.contains("another process records into"), "{refused}");
    drop(writer);
    let mut next = Writer::open(&scratch.0).unwrap();
    let mut last = 0;
    story(|snapshot| last = next.store(snapshot, &[], Rounds::default()).unwrap());
    let recording = Recording::open(&scratch.0).unwrap();
    assert_eq!((last, recording.snapshots().unwrap().len()), (10, 10));
    assert_eq!(recording.instances().unwrap().len(), 2, "another instance under the same name");
}

#[test]
fn what_is_no_recording_is_refused() {
    let refusal = |scratch: &Scratch| {
        let (read, written) = (Recording::open(&scratch.0).err().unwrap(), Writer::open(&scratch.0).err().unwrap());
        assert_eq!(read.to_string(), written.to_string());
        read.to_string()
    };
    let scratch = Scratch::new("foreign");
    assert!(Recording::open(&scratch.0).err().unwrap().to_string().contains("No such file"));
    std::fs::write(&scratch.0, "no database, but longer than the header of one, that it is read at all ".repeat(9))
        .unwrap();
    assert!(refusal(&scratch).contains("is no SQLite file"));
    let before = std::fs::read(&scratch.0).unwrap();
    assert_eq!(before, std::fs::read(&scratch.0).unwrap(), "nothing was changed");
    let other = Scratch::new("other");
    rusqlite::Connection::open(&other.0).unwrap().execute("CREATE TABLE t (x)", []).unwrap();
    assert!(refusal(&other).contains("SQLite file of something else"));
    let newer = Scratch::new("newer");
    drop(Writer::open(&newer.0).unwrap());
    let connection = rusqlite::Connection::open(&newer.0).unwrap();
    connection.pragma_update(None, "user_version", schema::FORMAT + 1).unwrap();
    drop(connection);
    assert!(refusal(&newer).contains(&format!("recording format {}, expected {}", schema::FORMAT + 1, schema::FORMAT)));
}

#[test]
fn a_full_disk_is_said_and_loses_only_what_did_not_fit() {
    let scratch = Scratch::new("full");
    let mut writer = Writer::open(&scratch.0).unwrap();
    let pages: i64 = writer.connection().query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    writer.connection().pragma_update(None, "max_page_count", pages + 30).unwrap();
    let (mut snapshots, mut error) = (Vec::new(), None);
    story(|snapshot| {
        // Each with so many samples that not all of them fit.
        let samples: Vec<Sample> = (0..1000).map(|i| sample(i + 10_000 * snapshots.len() as u64)).collect();
        match writer.store(snapshot, &samples, Rounds::default()) {
            Ok(id) => snapshots.push((id, snapshot.clone())),
            Err(report) => error = Some(report.to_string()),
        }
    });
    let error = error.expect("a disk that is full");
    assert!(error.contains("no room for what comes next"), "{error}");
    assert!(!snapshots.is_empty());
    let recording = Recording::open(&scratch.0).unwrap();
    assert_eq!(recording.snapshots().unwrap().len(), snapshots.len());
    for (id, snapshot) in &snapshots {
        assert_eq!(recording.snapshot(*id).unwrap(), kept(snapshot));
    }
}

fn sample(at_ns: u64) -> Sample {
    Sample {
        at_ns,
        sid: Sid::new(1),
        waits: true,
        mutex: MutexId(1),
        count: 1,
        length_ns: 10_000_000,
        mode: Some(Mode::Exclusive),
        location: None,
        on_x: false,
        for_event: false,
        since_ns: Some(1),
        step: Some("sleep"),
        blocker: Some(Holder { sid: Sid::new(2), claimed_ns: 1, pid: 7, mode: Some(Mode::Exclusive), location: None }),
        action: String::new(),
    }
}

#[test]
fn successive_sessions_of_one_number_are_two_blockers() {
    let mut writer = Writer::in_memory(|_| true).unwrap();
    let mut last = None;
    story(|snapshot| last = Some(snapshot.clone()));
    let earlier = sample(100);
    let holder = Holder { claimed_ns: 2, pid: 8, mode: Some(Mode::Shared), ..earlier.blocker.unwrap() };
    let later = |at_ns| Sample { blocker: Some(holder), ..sample(at_ns) };
    writer.store(&last.unwrap(), &[earlier.clone(), later(200), later(300)], Rounds::default()).unwrap();
    let found = Recording::of(writer.into_connection()).blockers(1, 0, 1000).unwrap();
    let holders: Vec<_> = found.iter().map(|blocker| (blocker.holder, blocker.time_ns)).collect();
    assert_eq!(holders, [(holder, 20_000_000), (earlier.blocker.unwrap(), 10_000_000)]);
}

#[test]
fn what_is_old_is_thinned_out_and_the_rest_can_be_read() {
    const S: u64 = 1_000_000_000;
    let mut writer = Writer::in_memory(|_| true).unwrap();
    let mut first = None;
    story(|snapshot| first = first.take().or(Some(snapshot.clone())));
    let mut snapshot = first.unwrap();
    for i in 0..200 {
        snapshot.at.real_ns = i * S;
        // Something that changes each time.
        snapshot.mutexes[0].gets = Some(i);
        // Within the second before the snapshot: one session waits all the time, another one is seen now and
        // then.
        let samples = (0..if i == 0 { 0 } else { 100 }).map(|n| {
            let waits = sample((i.max(1) - 1) * S + 5_000_000 + n * 10_000_000);
            if n % 25 == 7 {
                [Some(waits.clone()), Some(Sample { sid: Sid::new(3), ..waits })]
            } else {
                [Some(waits), None]
            }
        });
        let samples: Vec<Sample> = samples.flatten().flatten().collect();
        let rounds = Rounds {
            rounds: 100,
            length_ns: S,
            sessions_ns: 5 * S,
            holding_ns: S / 2,
            spinning_ns: S / 4,
            recorder_ns: i,
        };
        writer.store(&snapshot, &samples, rounds).unwrap();
    }
    // To be kept for 160 s, the last 20 s of it as it is. A second pass finds nothing more to do.
    for _ in 0..2 {
        writer.thin(Duration::from_secs(160), 200 * S).unwrap();
    }
    let recording = Recording::of(writer.into_connection());
    let left = recording.snapshots().unwrap();
    let at: Vec<u64> = left.iter().map(|recorded| recorded.at_ns / S).collect();
    // Written whole at 0, 60, 120 and 180; what lies between goes with the next one that is old enough.
    assert_eq!(at, [0, 60].into_iter().chain(120..200).collect::<Vec<_>>());
    for recorded in &left {
        let snapshot = recording.snapshot(recorded.id).unwrap();
        assert_eq!(snapshot.mutexes[0].gets, Some(recorded.at_ns / S));
    }
    // What was dropped is in what stays: averages between any two snapshots are those of the whole recording.
    let seen = |from: u64, to: u64| -> (i64, i64, i64) {
        let sql = "SELECT count(*), sum(count), sum(length_ns) FROM sample WHERE at_ns > ?1 AND at_ns <= ?2";
        let bounds = [(from * S).cast_signed(), (to * S).cast_signed()];
        recording.connection().query_row(sql, bounds, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap()
    };
    for [begin, end] in [[0, 60], [60, 120], [120, 150], [150, 199]] {
        let (rows, count, length_ns) = seen(begin, end);
        let seconds = (end - begin).cast_signed();
        assert_eq!((count, length_ns), (seconds * 104, seconds * 104 * 10_000_000), "{begin} to {end}");
        assert_eq!(rows, if end <= 120 { 2 } else { seconds * 104 }, "{begin} to {end}");
        let id = |at| left.iter().find(|recorded| recorded.at_ns == at * S).unwrap().id;
        let rounds = recording.rounds(1, id(begin), id(end)).unwrap();
        let seconds = end - begin;
        assert_eq!(
            (rounds.rounds, rounds.length_ns, rounds.holding_ns, rounds.spinning_ns),
            (seconds * 100, seconds * S, seconds * S / 2, seconds * S / 4)
        );
    }
}
