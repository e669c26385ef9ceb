//! `retrial who`: on instances and on programs under `retrial run`.

#![allow(missing_docs)]

mod kit;
#[path = "../../retrial/tests/kit/not_tested.rs"]
mod not_tested;
#[path = "kit/preload.rs"]
mod preload;

use kit::directory::Directory;
use kit::{RETRIAL, Running, Scratch, command, failed, until};
use not_tested::not_tested;
use preload::library;
use retrial::engine::RawMutex;
use retrial::{Class, CodeLocation, Mode, Patience, location};
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::Barrier;

fn row(rows: &[Value], sid: u64) -> &Value {
    rows.iter().find(|row| row["sid"] == sid).unwrap_or_else(|| panic!("no session {sid}: {rows:?}"))
}

/// Looks until so many wait.
fn until_waiting(scratch: &Scratch, count: usize) -> Vec<Value> {
    let waiting = |rows: &[Value]| rows.iter().filter(|row| row["mutex"].is_string()).count();
    let mut rows = Vec::new();
    until("the waits", || {
        rows = scratch.rows(&["who"]);
        waiting(&rows) == count
    });
    rows
}

fn kill(pid: u32, signal: i32) {
    // SAFETY: our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(i32::try_from(pid).unwrap(), signal) }, 0);
}

#[test]
fn the_holder_that_waits_for_nobody_is_at_the_top_with_what_it_is_at() {
    let scratch = Scratch::new();
    assert!(scratch.run(&["who"]).contains("Nobody waits for a mutex."));
    let holder = scratch.hold(&["m", "--create", "--mode", "LX", "--location", "reload"]);
    let mut waiters: Vec<Running> = Vec::new();
    for mode in ["S", "X"] {
        waiters.push(scratch.start(&["hold", "m", "--mode", mode, "--for", "0s", "--location", "read it"]));
        until_waiting(&scratch, waiters.len());
    }
    let rows = scratch.rows(&["who"]);
    assert_eq!(rows.len(), 3, "{rows:?}");
    let top = row(&rows, 1);
    assert_eq!((&top["depth"], &top["pid"], &top["waiting_behind"]), (&0.into(), &holder.pid().into(), &2.into()));
    let held = &top["holds"][0];
    assert_eq!((&held["mutex"], &held["mode"], &held["got_at"]), (&"m".into(), &"LX".into(), &"reload".into()));
    assert!(held["seen_ago_s"].as_f64().unwrap() >= 0.0, "{held}");
    assert_eq!((&held["object"]["data_bytes"], &held["waiters"]), (&8.into(), &2.into()));
    for (sid, mode) in [(2, "S"), (3, "X")] {
        let waiter = row(&rows, sid);
        assert_eq!((&waiter["depth"], &waiter["behind_sid"]), (&1.into(), &1.into()));
        assert_eq!((&waiter["mode"], &waiter["at"], &waiter["mutex"]), (&mode.into(), &"read it".into(), &"m".into()));
    }
    let text = scratch.run(&["who"]);
    let first = text.lines().next().unwrap();
    assert!(first.starts_with(&format!("session 1 (pid {}, hold", holder.pid())), "{text}");
    assert!(text.contains("└─ m, held in LX, got at reload, had it ") && text.contains("ago: 2 wait"), "{text}");
    assert!(text.contains("   ├─ session 2 ") && text.contains("   └─ session 3 "), "{text}");
    // Stopped by SIGSTOP, then killed: both are said, and what to type.
    kill(holder.pid(), libc::SIGSTOP);
    until("the stop", || row(&scratch.rows(&["who"]), 1)["thread"]["state"] == "stopped");
    let text = scratch.run(&["who"]);
    assert!(text.contains(": stopped") && text.contains(&format!("Next: kill -CONT {}", holder.pid())), "{text}");
    drop(waiters);
    holder.signal(libc::SIGKILL);
    let text = scratch.run(&["who", "--mutex", "m"]);
    assert!(text.contains(": DEAD") && text.contains("Next: retrial recover -i"), "{text}");
}

#[test]
fn a_wait_of_many_steps_knows_only_how_long_it_was_held_at_least() {
    let scratch = Scratch::new();
    scratch.run(&["set", "mutex_wait_scheme=yield"]);
    let _hold = scratch.hold(&["m", "--create", "--mode", "X", "--for", "300s"]);
    let _waiter = scratch.start(&["hold", "m", "--mode", "X", "--for", "0s"]);
    until("the wait to overwrite its beginning", || {
        scratch.run(&["who"]).contains("m, held in X, got at retrial hold, had it at least ")
    });
}

#[test]
fn a_mutex_leads_to_its_object_and_back() {
    let scratch = Scratch::new();
    let holder = scratch.hold(&["m", "--create"]);
    let text = scratch.run(&["who", "--mutex", "m"]);
    assert!(text.contains("m, held in X, got at retrial hold: nobody waits"), "{text}");
    // It names the command that prints the data: 8 bytes, of which the first is what a new `u64` is.
    let peek = text.lines().next().unwrap().split_once("retrial peek ").unwrap().1;
    let (data, words) = peek.rsplit_once(' ').map(|(rest, words)| (rest.rsplit_once(' ').unwrap().1, words)).unwrap();
    assert_eq!((scratch.rows(&["peek", data, words]).len(), words), (1, "1"), "{text}");
    let back = scratch.run(&["who", "--mutex", data]);
    assert_eq!(back.lines().next(), text.lines().next());
    assert_eq!(scratch.rows(&["who", "--mutex", "m"])[0]["holds"][0]["object"]["name"], "m");
    drop(holder);
    for wrong in ["0x8", "0xffffffffffffffff", "0x", "nope"] {
        let error = scratch.fail(&["who", "--mutex", wrong]);
        assert!(error.contains(wrong) && error.contains("expected") && error.contains("help:"), "{error}");
    }
}

#[test]
fn thousands_of_waiters_are_a_few_lines_unless_all_are_asked_for() {
    const WAITERS: usize = 1200;
    let scratch = Scratch::with(&["--sessions", "2048", "--mutexes", "64", "--locations", "64", "--arena", "64K"]);
    let instance = scratch.instance();
    let mutex = instance.mutex("m", "many", || 0_u64).unwrap();
    let session = instance.session("holder", Class::Normal).unwrap();
    let held = mutex.exclusive(&session, location!("held")).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..WAITERS {
            let wait = || {
                let session = instance.session("waiter", Class::Normal).unwrap();
                drop(mutex.shared(&session, location!("wait")).unwrap());
            };
            std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, wait).unwrap();
        }
        let rows = until_waiting(&scratch, WAITERS);
        assert_eq!((rows.len(), &row(&rows, 1)["waiting_behind"]), (WAITERS + 1, &WAITERS.into()));
        let text = scratch.run(&["who"]);
        assert!(text.lines().count() < 20 && text.contains("└─ … and 1,190 more"), "{text}");
        assert!(text.contains(": 1,200 wait"), "{text}");
        assert!(scratch.run(&["who", "--all"]).lines().count() > WAITERS);
        drop(held);
    });
}

/// Where each of four sessions gets.
static PLACES: [CodeLocation; 4] = [
    CodeLocation::new("gets a"),
    CodeLocation::new("gets b"),
    CodeLocation::new("gets c"),
    CodeLocation::new("only waits"),
];

#[test]
fn a_chain_is_indented_and_a_ring_is_at_the_top_once() {
    let scratch = Scratch::new();
    let instance = scratch.instance();
    let names = ["a", "b", "c"];
    let mutexes: Vec<&RawMutex> =
        // SAFETY: every session here is of this instance.
        names.iter().map(|name| unsafe { instance.mutex_record::<u64>(name, "chain") }.unwrap()).collect();
    let barrier = Barrier::new(4);
    // Session 1 has a and waits for b, which 2 has, and so on; the last waits for `last`, if it is to be a ring.
    let patience = || Patience::within(std::time::Duration::from_secs(20));
    std::thread::scope(|scope| {
        for (i, place) in PLACES.iter().enumerate() {
            let (mutexes, barrier, instance) = (&mutexes, &barrier, &instance);
            scope.spawn(move || {
                let session = instance.session(&format!("s{i}"), Class::Normal).unwrap();
                let get = |at: usize| {
                    // SAFETY: of the same instance.
                    unsafe { mutexes[at].get(&session, Mode::Exclusive, place, patience()) }
                };
                let own = (i < 3).then(|| get(i).unwrap());
                barrier.wait();
                // In a ring, until a deadline ends it; the fourth waits behind it.
                let _ = get((i + 1) % 3);
                drop(own);
            });
        }
        let rows = until_waiting(&scratch, 4);
        let text = scratch.run(&["who"]);
        assert_eq!(rows.iter().filter(|row| row["state"] == "DEADLOCK").count(), 3, "{rows:?}");
        assert_eq!(rows.iter().filter(|row| row["depth"] == 0).count(), 1, "{rows:?}");
        assert_eq!(rows.len(), 4, "each session once: {rows:?}");
        assert!(rows.iter().all(|row| row["state"] == "waiting" || row["waiting_behind"] == 3), "{rows:?}");
        assert!(
            text.contains(": the one above") && text.contains("DEADLOCK: 3 sessions wait for each other"),
            "{text}"
        );
        assert!(text.contains("      └─ session"), "{text}");
    });
}

#[test]
fn a_reader_that_wants_to_examine_waits_for_the_examiner_and_not_for_itself() {
    let scratch = Scratch::new();
    let instance = scratch.instance();
    let mutex = instance.mutex("m", "ladder", || 0_u64).unwrap();
    let (has_read, is_examined) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let session = instance.session("reader", Class::Normal).unwrap();
            let mut read = mutex.shared(&session, location!("read")).unwrap();
            has_read.wait();
            is_examined.wait();
            read.examine(Patience::Endless).unwrap();
        });
        has_read.wait();
        let session = instance.session("examiner", Class::Normal).unwrap();
        let examined = mutex.examine(&session, location!("examine")).unwrap();
        is_examined.wait();
        let rows = until_waiting(&scratch, 1);
        let waiter = row(&rows, 1);
        assert_eq!((&waiter["state"], &waiter["behind_sid"]), (&"waiting".into(), &2.into()), "{rows:?}");
        assert_eq!(rows.len(), 2, "each session once: {rows:?}");
        drop(examined);
    });
}

/// One thread has a static lock and sleeps in `doze`; two wait for it.
const DOZING: &str = r"
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static void *work(void *unused) {
    pthread_mutex_lock(&gate);
    return unused;
}
__attribute__((noinline)) void doze(void) { for (;;) sleep(100); }
int main(void) {
    pthread_t thread;
    pthread_mutex_lock(&gate);
    for (int i = 0; i < 2; i++) pthread_create(&thread, 0, work, 0);
    doze();
    return 0;
}
";

#[test]
fn threads_of_a_program_are_found_by_its_pid_with_the_calls_of_the_holder() {
    // SAFETY: has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        not_tested("this user may not read other processes' memory");
        return;
    }
    let directory = Directory::new();
    let (source, program) = (directory.join("dozing.c"), directory.join("dozing"));
    fs::write(&source, DOZING).unwrap();
    let compiled = Command::new("cc").args(["-g", "-O1", "-pthread", "-o"]).args([&program, &source]).status().unwrap();
    assert!(compiled.success());
    let scratch = Scratch::unborn();
    let mut run = Command::new(RETRIAL);
    run.args(["run", "--instance", &scratch.name, "--"]).arg(&program).env("RETRIAL_PRELOAD_LIBRARY", library());
    let run = Running::new(run.stderr(Stdio::null()));
    until("the instance", || scratch.path().exists() && scratch.output(&["who"]).status.success());
    let rows = until_waiting(&scratch, 2);
    let holder = row(&rows, 1);
    assert_eq!((&holder["depth"], &holder["waiting_behind"]), (&0.into(), &2.into()), "{rows:?}");
    assert_eq!(holder["holds"][0]["object"]["name"], "gate (dozing)");
    until("it sleeps", || row(&scratch.rows(&["who"]), 1)["thread"]["system_call"] == "clock_nanosleep");
    let rows = scratch.rows(&["who"]);
    let stack = row(&rows, 1)["thread"]["stack"].to_string();
    if cfg!(target_arch = "x86_64") {
        assert!(stack.contains("doze (dozing.c:9)") && stack.contains("main (dozing.c:14)"), "{stack}");
    }
    // By the program's process and by ours, and by the variable's name.
    let pid = holder["pid"].to_string();
    for pid in [pid.as_str(), &run.pid().to_string()] {
        let output = command(&["who", "-p", pid, "--mutex", "gate"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("mutex #") && text.contains("gate (dozing), held in X"), "{text}");
    }
    let nobody = failed(&command(&["who", "-p", "999999999"]).output().unwrap());
    assert!(nobody.contains("process 999999999 is not there") && nobody.contains("help:"), "{nobody}");
    kill(pid.parse().unwrap(), libc::SIGKILL);
    run.end();
}
