//! What reports find in real loads.

mod kit;

use kit::load::{Load, Pass, deadlocked};
use kit::{Scratch, command, until};
use serde_json::Value;
use std::time::Duration;

fn report(scratch: &Scratch, time: &str) -> Value {
    serde_json::from_str(&scratch.run(&["report", "--for", time, "--json"])).unwrap()
}

fn rules(report: &Value) -> Vec<&str> {
    report["findings"].as_array().unwrap().iter().map(|finding| finding["rule"].as_str().unwrap()).collect()
}

fn finding<'r>(report: &'r Value, rule: &str) -> &'r Value {
    let mut all = report["findings"].as_array().unwrap().iter();
    all.find(|finding| finding["rule"] == rule).unwrap_or_else(|| panic!("no {rule} in {}", report["findings"]))
}

fn has(finding: &Value, parts: &[&str]) {
    for part in parts {
        assert!(finding.to_string().contains(part), "no `{part}` in {finding}");
    }
}

fn wait_for(scratch: &Scratch, waits: usize) {
    until("the waits", || scratch.observer().tables().waits().count() == waits);
}

#[test]
fn one_session_that_keeps_a_mutex_is_the_first_finding() {
    let scratch = Scratch::new();
    let _hold = scratch.hold(&["m", "--create", "--mode", "X", "--for", "300s", "--location", "keeper"]);
    let _waits: Vec<_> =
        ["a", "b"].map(|at| scratch.start(&["hold", "m", "--mode", "S", "--for", "0s", "--location", at])).into();
    wait_for(&scratch, 2);
    let report = report(&scratch, "600ms");
    let first = &report["findings"][0];
    assert_eq!(first["rule"], "long_holder", "{report}");
    has(first, &["session 1 (hold, pid ", "keeps m in X at keeper", "2 sessions waited for it", "its action: X m"]);
    // Two of three sessions wait all the time.
    assert!((first["pct_session_time"].as_f64().unwrap() - 66.7).abs() < 5.0, "{first}");
    let command = first["command"].as_str().unwrap().strip_prefix("retrial ").unwrap();
    let shown = kit::command(&command.split(' ').collect::<Vec<_>>()).output().unwrap();
    assert!(
        String::from_utf8(shown.stdout).unwrap().contains("keeper"),
        "what it says to type shows the holder: {command}"
    );
    let text = scratch.run(&["report", "--for", "400ms"]);
    let (found, load) = (text.find("1. session 1 (hold, pid "), text.find("LOAD\n"));
    assert!(found.is_some() && found < load && text.contains("Next: retrial who"), "{text}");
}

#[test]
fn a_deadlock_is_the_first_finding() {
    let scratch = Scratch::new();
    let report = deadlocked(&scratch, || report(&scratch, "300ms"));
    let first = &report["findings"][0];
    assert_eq!(first["rule"], "deadlock", "{report}");
    has(first, &["2 sessions wait for each other", "waits for X of a at second", "retrial who -i "]);
    assert!(first["pct_session_time"].as_f64() > Some(90.0), "both wait all the time: {first}");
}

#[test]
fn a_dead_holder_and_what_it_leaves_are_found_until_they_are_mended() {
    let scratch = Scratch::new();
    let hold = scratch.hold(&["m", "--create", "--mode", "X", "--for", "300s", "--location", "victim"]);
    assert_eq!(rules(&report(&scratch, "100ms")), [""; 0]);
    hold.die_of(libc::SIGKILL);
    let seen = report(&scratch, "100ms");
    has(finding(&seen, "dead_holder"), &["m is held by a session that is dead", "retrial recover -i "]);
    for _ in 0..2 {
        let seen = report(&scratch, "100ms");
        let typed = finding(&seen, "dead_holder")["command"].as_str().unwrap().to_owned();
        let words: Vec<&str> = typed.split(' ').skip(1).collect();
        command(&words).output().unwrap();
    }
    assert_eq!(rules(&report(&scratch, "100ms")), [""; 0], "recovered, then declared consistent");
}

#[test]
fn a_mutex_that_is_wanted_all_the_time_is_found() {
    let scratch = Scratch::new();
    let load = Load {
        sessions: 4,
        hold: Pass::Asleep(Duration::from_micros(500)),
        think: Pass::Asleep(Duration::from_micros(100)),
    };
    let report = load.during(&scratch, || report(&scratch, "1s"));
    has(
        finding(&report, "hot_mutex"),
        &["m is held nearly all the time", "gets/s, each holds it for", "retrial advise -i "],
    );
}

#[test]
fn a_mutex_that_sleepers_miss_seldom_is_found_too() {
    let scratch = Scratch::new();
    scratch.run(&["set", "mutex_wait_scheme=sleep"]);
    let load = Load { sessions: 2, hold: Pass::Asleep(Duration::from_micros(300)), think: Pass::Busy(Duration::ZERO) };
    let report = load.during(&scratch, || report(&scratch, "1s"));
    has(finding(&report, "hot_mutex"), &["m is held nearly all the time"]);
    assert!(report["mutexes"][0]["miss_ratio"].as_f64() < Some(0.3), "{report}");
}

#[test]
fn processors_that_are_short_are_told_from_contention() {
    let scratch = Scratch::new();
    let load = Load {
        sessions: 4 * std::thread::available_parallelism().unwrap().get().min(3),
        hold: Pass::Busy(Duration::from_micros(200)),
        think: Pass::Busy(Duration::from_millis(1)),
    };
    let report = load.during(&scratch, || report(&scratch, "1s"));
    // Where the test may run on more processors than it has sessions, they are not short.
    if std::thread::available_parallelism().unwrap().get() <= 4 {
        let found = finding(&report, "false_contention");
        has(found, &["processors are short", "in run queues for", "retrial doctor"]);
        let row = report["thread_time"].as_array().unwrap().iter().find(|row| row["part"] == "in run queues").unwrap();
        assert_eq!(row["time_s"], found["time_s"], "{report}");
    }
}

#[test]
fn a_wait_time_that_does_not_fit_is_found() {
    let scratch = Scratch::new();
    scratch.run(&["set", "mutex_wait_scheme=sleep", "mutex_spin_count=10"]);
    scratch.run(&["set", "mutex_wait_time=30ms"]);
    let load = Load {
        sessions: 6,
        hold: Pass::Busy(Duration::from_micros(100)),
        think: Pass::Asleep(Duration::from_micros(200)),
    };
    let report = load.during(&scratch, || report(&scratch, "1500ms"));
    has(
        finding(&report, "sleeps_too_long"),
        &["where m is held for", "the wait time does not fit", "retrial advise -i "],
    );
}

#[test]
fn the_place_that_makes_most_waits_is_found() {
    let scratch = Scratch::new();
    let _hold = scratch.hold(&["m", "--create", "--mode", "X", "--for", "300s"]);
    let waits = ["hot", "hot", "hot", "cold"];
    let _waits = waits.map(|at| scratch.start(&["hold", "m", "--mode", "S", "--for", "0s", "--location", at]));
    wait_for(&scratch, 4);
    let report = report(&scratch, "300ms");
    let place = finding(&report, "one_place");
    has(place, &["hot makes 7", "the next one, cold, has 2", "retrial ash -i "]);
}
