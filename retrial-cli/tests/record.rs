//! Recordings: of instances that come and go, by recorders that are killed, stopped or refused.

mod kit;

use kit::directory::{Directory, File};
use kit::{Running, Scratch, both, command, failed, until};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

fn connection(file: &str) -> Connection {
    Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

fn number(file: &str, sql: &str) -> i64 {
    connection(file).query_row(sql, [], |row| row.get(0)).unwrap()
}

/// The number of the snapshot that a line of JSON tells of.
fn snapshot(line: &str) -> i64 {
    serde_json::from_str::<serde_json::Value>(line).unwrap()["snapshot"].as_i64().unwrap()
}

#[test]
fn a_recorder_that_is_killed_loses_nothing_that_was_written() {
    const ROUNDS: u64 = 100;
    let (scratch, file) = (Scratch::new(), File::new("r.db"));
    let _hold = scratch.hold(&["m", "--create", "--mode", "X", "--for", "300s"]);
    let _waits = scratch.start(&["hold", "m", "--mode", "X", "--for", "0s"]);
    let state = std::cell::Cell::new(88_172_645_463_325_252);
    let mut told = 0;
    for round in 0..ROUNDS {
        let mut recorder = scratch.start(&["record", &file, "--interval", "10ms", "--sample", "1ms", "--json"]);
        // At once, or after some of its snapshots, and somewhere on the way to the next one.
        let random = retrial::wait::random(&state);
        for _ in 0..random % 4 {
            told = snapshot(&recorder.line());
        }
        std::thread::sleep(std::time::Duration::from_micros(random % 20_000));
        let (code, rest) = recorder.signal(libc::SIGKILL);
        assert_eq!(code, None, "killed");
        // Lines that it had written, whole.
        told = rest.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(snapshot).next_back().unwrap_or(told);
        if told == 0 {
            continue;
        }
        let connection = connection(&file);
        let check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok", "round {round}");
        let (count, last): (i64, i64) = connection
            .query_row("SELECT count(*), max(id) FROM snapshot", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        assert!(count == last && last >= told, "round {round}: {count} snapshots up to {last}, told of {told}");
    }
    assert!(told > 10, "{told}");
    // Each snapshot has its sessions, and the last one can be read.
    assert_eq!(
        number(&file, "SELECT count(*) FROM snapshot WHERE whole AND id NOT IN (SELECT snapshot FROM session)"),
        0
    );
    scratch.run(&["record", &file, "--interval", "10ms", "--for", "50ms"]);
}

#[test]
fn a_recorder_that_was_killed_before_it_had_made_the_tables_is_in_nobodys_way() {
    let (scratch, file) = (Scratch::new(), File::new("r.db"));
    let connection = Connection::open(&*file).unwrap();
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    drop(connection);
    let said = failed(&command(&["report", &file]).output().unwrap());
    assert!(said.contains("is empty, expected a recording"), "{said}");
    scratch.run(&["record", &file, "--for", "10ms"]);
    assert_eq!(number(&file, "SELECT count(*) FROM snapshot"), 2);
    assert_eq!(number(&file, "PRAGMA auto_vacuum"), 2, "incremental");
}

#[test]
fn a_second_recorder_is_refused() {
    let (scratch, file) = (Scratch::new(), File::new("r.db"));
    let mut first = scratch.start(&["record", &file, "--json"]);
    first.line();
    let refused = scratch.fail(&["record", &file, "--for", "1s"]);
    assert!(refused.contains("another process records into"), "{refused}");
    // Dead, it is in nobody's way.
    first.signal(libc::SIGKILL);
    scratch.run(&["record", &file, "--for", "10ms"]);
}

#[test]
fn a_recorder_goes_on_with_what_an_earlier_one_saw_of_the_mutexes() {
    let (scratch, file) = (Scratch::new(), File::new("r.db"));
    let record = ["record", &file, "--for", "200ms", "--interval", "50ms", "--sample", "5ms"];
    scratch.run(&["hold", "m", "--create", "--mode", "X", "--for", "0s"]);
    scratch.run(&record);
    let free = number(&file, "SELECT max(looks) FROM mutex_state");
    let _hold = scratch.hold(&["m", "--mode", "X", "--for", "300s"]);
    scratch.run(&record);
    // All looks of both, and what was free is no part of what was held: U of any period is a share.
    let (looks, held) = ("SELECT max(looks) FROM mutex_state", "SELECT max(held) FROM mutex_state");
    assert_eq!(number(&file, looks), number(&file, "SELECT sum(rounds) FROM snapshot"));
    assert!(free > 0 && number(&file, held) == number(&file, looks) - free);
    let fallen = "SELECT count(*) FROM mutex_state a JOIN mutex_state b ON b.snapshot > a.snapshot \
                  WHERE b.looks < a.looks OR b.held_s - a.held_s > b.looked_s - a.looked_s + 1e-6";
    assert_eq!(number(&file, fallen), 0);
}

#[test]
fn a_signal_ends_a_recording_with_a_last_snapshot_in_one_file() {
    let (scratch, file) = (Scratch::new(), File::new("r.db"));
    let mut recorder = scratch.start(&["record", &file, "--json"]);
    recorder.line();
    let rest = recorder.die_of(libc::SIGINT);
    assert_eq!(snapshot(&rest), 2, "{rest}");
    assert_eq!(number(&file, "SELECT max(id) FROM snapshot"), 2);
    assert!(!Path::new(&format!("{}-wal", &*file)).exists());
}

#[test]
fn an_instance_that_comes_back_is_another_one() {
    let (scratch, file) = (Scratch::new(), File::new("r.db"));
    let mut recorder = scratch.start(&["record", &file, "--json", "--interval", "20ms"]);
    recorder.line();
    assert!(command(&["rm", &scratch.name]).output().unwrap().status.success());
    until("the last snapshot of the first", || number(&file, "SELECT count(*) FROM snapshot") > 1);
    assert!(command(&["create", &scratch.name]).output().unwrap().status.success());
    until("snapshots of the second", || number(&file, "SELECT max(instance) FROM snapshot") == 2);
    recorder.die_of(libc::SIGTERM);
    let names = number(&file, "SELECT count(DISTINCT name) FROM instance");
    assert_eq!((names, number(&file, "SELECT count(*) FROM instance")), (1, 2));
}

#[test]
fn all_instances_are_recorded_also_those_to_come() {
    let (first, file) = (Scratch::new(), File::new("r.db"));
    let mut recorder = Running::new(&mut command(&["record", &file, "--all", "--json", "--interval", "50ms"]));
    recorder.until(&first.name);
    let second = Scratch::new();
    recorder.until(&second.name);
    recorder.die_of(libc::SIGTERM);
}

#[test]
fn each_snapshot_is_told_with_the_samples_so_far_and_the_first_without_a_share_of_a_processor() {
    let (scratch, file) = (Scratch::new(), File::new("r.db"));
    let _hold = scratch.hold(&["m", "--create", "--for", "300s"]);
    let told = scratch.run(&["record", &file, "--for", "1500ms", "--interval", "100ms", "--json"]);
    let rows: Vec<serde_json::Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (first, last) = (&rows[0], &rows[rows.len() - 1]);
    assert_eq!((&first["samples"], &first["recorder_cpu_pct"]), (&0.into(), &serde_json::Value::Null), "{told}");
    assert!(last["samples"].as_u64() > Some(0) && last["recorder_cpu_pct"].is_number(), "{told}");
}

#[test]
fn an_instance_that_cannot_be_recorded_is_named_once() {
    let (there, damaged, file) = (Scratch::new(), Scratch::unborn(), File::new("r.db"));
    std::fs::write(damaged.path(), "no instance").unwrap();
    let output = command(&["record", &file, "--all", "--for", "1s", "--interval", "100ms"]).output().unwrap();
    let said = kit::words(&output);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches(&format!("file /dev/shm/retrial.{}", damaged.name)).count(), 1, "{said}");
    assert!(!said.contains(&there.name), "{said}");
}

#[test]
fn an_instance_may_come_later_beside_one_that_is_there() {
    let scratch = Scratch::new();
    let file = File::new("r.db");
    let record = ["record", &file, "-i", &scratch.name, "-i", "no-such-instance", "--for", "300ms"];
    let output = command(&record).output().unwrap();
    let said = both(&output);
    assert!(output.status.success() && said.contains("no-such-instance (when it comes) into"), "{said}");
    assert!(number(&file, "SELECT count(*) FROM snapshot") > 0);
}

#[test]
fn what_is_sampled_is_who_holds_and_who_waits() {
    let (scratch, file) = (Scratch::new(), File::new("r.db"));
    let _hold = scratch.hold(&["m", "--create", "--mode", "X", "--for", "300s"]);
    let _waits = scratch.start(&["hold", "m", "--mode", "X", "--for", "0s"]);
    until("a wait", || scratch.observer().tables().waits().next().is_some());
    let said = scratch.run(&["record", &file, "--for", "300ms", "--interval", "100ms", "--sample", "5ms"]);
    assert!(said.contains(", for 300 ms\n") && !said.contains("Ctrl-C"), "{said}");
    // A sample is a session at one look, in every command.
    let samples = format!(" and {} samples in ", number(&file, "SELECT sum(count) FROM sample"));
    assert!(said.replace(',', "").contains(&samples), "no{samples}in {said}");
    let held = "SELECT count(*) FROM sample WHERE state = 'holds' AND sid = 1 AND mode = 'X'";
    let waited = "SELECT count(*) FROM sample WHERE state = 'waits' AND sid = 2 AND blocker = 1 AND step IS NOT NULL";
    assert!(number(&file, held) > 0 && number(&file, waited) > 0);
    // Held at every look: what the samples stand for is the time in which they were taken.
    let off =
        "SELECT abs((SELECT sum(length_ns) FROM sample WHERE state = 'holds') - (SELECT sum(rounds_ns) FROM snapshot))";
    assert_eq!(number(&file, off), 0);
    assert_eq!(number(&file, "SELECT count(*) FROM mutex_state WHERE looks <> held"), 0);
}

#[test]
fn bad_input_is_answered_and_changes_nothing() {
    let scratch = Scratch::new();
    let file = File::new("r.db");
    for (arguments, expected) in [
        (&["--interval", "1us"][..], "expected 10.0 ms at least"),
        (&["--interval", "5"], "without a unit"),
        (&["--for", "0s"], "--for 0s, expected 1.00 ms at least"),
        (&["--keep", "soon"], "expected a number and one of the units"),
    ] {
        let said = scratch.fail(&[&["record", &file], arguments].concat());
        assert!(said.contains(expected), "{said}");
    }
    let said = failed(&command(&["record", &file, "-i", "no-such-instance"]).output().unwrap());
    assert!(said.contains("no instance"), "{said}");
    let said = failed(&command(&["record", &file, "-p", "4000000"]).output().unwrap());
    assert!(said.contains("process 4000000 is not there"), "{said}");
    assert!(!Path::new(&*file).exists());
    // Where there is no room for a recording, no empty file is left either; nobody's own file goes.
    let full = |path: &str| {
        let limited = format!("ulimit -f 4; exec {} record {path} -i {}", kit::RETRIAL, scratch.name);
        failed(&std::process::Command::new("sh").args(["-c", &limited]).output().unwrap())
    };
    let said = full(&file);
    assert!(said.contains("no room for what comes next") && !Path::new(&*file).exists(), "{said}");
    std::fs::write(&*file, "").unwrap();
    full(&file);
    assert!(Path::new(&*file).exists());
    for empty in [&["report", &file][..], &["sql", &file, "SELECT 1"]] {
        std::fs::write(&*file, "").unwrap();
        let said = failed(&command(empty).output().unwrap());
        assert!(said.contains("is empty, expected a recording"), "{said}");
    }
    let said = scratch.fail(&["record", "/nonexistent/x.db"]);
    assert!(said.contains("ls -ld /nonexistent"), "{said}");
}

#[test]
fn a_run_is_recorded_with_the_names_of_its_locks() {
    let file = File::new("r.db");
    let output = command(&["run", "--record", &file, "--", "sort", "--parallel=4", "-S", "1M", "/etc/services"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", kit::both(&output));
    assert_eq!(number(&file, "SELECT count(*) FROM snapshot"), 2);
    assert!(number(&file, "SELECT max(session_gets) FROM snapshot") > 0);
    let first = number(&file, "SELECT session_gets FROM snapshot ORDER BY id LIMIT 1");
    assert_eq!(first, 0, "the program begins after the first snapshot");
}

#[test]
fn what_is_waited_for_without_being_held_is_reported_with_its_place() {
    let (file, python) = (
        File::new("r.db"),
        "import threading, time
lock = threading.Lock()
def work():
    for _ in range(20):
        with lock: time.sleep(0.001)
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]",
    );
    let output = command(&["run", "--record", &file, "--", "python3", "-c", python]).output().unwrap();
    assert!(output.status.success(), "{}", kit::both(&output));
    let report = command(&["report", &file, "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let busiest = &report["awaited"][0];
    assert_eq!(busiest["type"], "pthread semaphore", "{report}");
    assert!(busiest["wait_ms"].as_f64() > Some(10.0) && busiest["location"] != "unknown", "{busiest}");
}

/// Processor time of a process so far, in s.
fn cpu_s(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // User and system time in ticks of 10 ms.
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

/// `cargo test --release -p retrial-cli --test record -- --ignored --nocapture`
#[test]
#[ignore = "measures: for a machine that does nothing else, in release"]
fn the_recorder_takes_less_than_a_hundredth_of_a_processor() {
    const SESSIONS: usize = 64;
    const MUTEXES: usize = 1000;
    let scratch = Scratch::with(&["--sessions", "128", "--mutexes", "2048", "--arena", "1M"]);
    let file = File::new("r.db");
    let instance = scratch.instance();
    let mutexes: Vec<retrial::Mutex<u64>> =
        (0..MUTEXES).map(|i| instance.mutex(&format!("m{i}"), "test", || 0).unwrap()).collect();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..SESSIONS {
            let (instance, mutexes, stop) = (&instance, &mutexes, &stop);
            scope.spawn(move || {
                let session = instance.session("load", retrial::Class::Normal).unwrap();
                let mut next = number;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    // Some of them are contended.
                    next = (next * 31 + 17) % if number % 2 == 0 { 8 } else { MUTEXES };
                    let held = mutexes[next].exclusive(&session, retrial::location!("load")).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    drop(held);
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
            });
        }
        let recorder = scratch.start(&["record", &file, "--json"]);
        let pid = recorder.pid();
        std::thread::sleep(std::time::Duration::from_secs(25));
        let by_kernel = 100.0 * cpu_s(pid) / 25.0;
        let rest = recorder.die_of(libc::SIGINT);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let last: serde_json::Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
        let own = last["recorder_cpu_pct"].as_f64().unwrap();
        let samples = number(&file, "SELECT sum(rounds) FROM snapshot");
        println!("{own} % by itself, {by_kernel} % by the kernel, {samples} samples, {} bytes", last["size_bytes"]);
        assert!(own < 1.0 && by_kernel < 1.0);
    });
}

#[test]
fn a_name_is_that_of_a_file_whatever_it_begins_with() {
    let scratch = Scratch::new();
    let directory = Directory::new();
    let here = |arguments: &[&str]| command(arguments).current_dir(&*directory).output().unwrap();
    let mut names = Vec::new();
    for name in ["file:x?mode=ro", ":memory:", "file:y"] {
        let output = here(&["record", name, "-i", &scratch.name, "--for", "30ms", "--interval", "10ms"]);
        assert!(output.status.success(), "{name}: {}", both(&output));
        let output = here(&["report", name]);
        assert!(output.status.success(), "{name}: {}", both(&output));
        names.push(name.to_owned());
    }
    let found = std::fs::read_dir(&*directory).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<String> = found.collect();
    names.sort();
    found.sort();
    assert_eq!(found, names);
}
