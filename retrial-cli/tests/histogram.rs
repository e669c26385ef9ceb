//! How many waits were how long: each consumer counts the same waits, at the mutex, place and event where they were.

#![allow(missing_docs)]

mod kit;

use kit::directory::File;
use kit::{Scratch, command};
use retrial::sys::Deadline;
use retrial::{Class, GetError, Instance, location};
use serde_json::Value;
use std::time::Duration;

/// So many waits in vain of a time, one after the other, for a mutex that another session holds.
fn wait_in_vain(instance: &Instance, mutex: &str, times: u64, time: Duration) {
    let mutex = instance.mutex(mutex, "Cursor Pin", || 0_u64).unwrap();
    let holder = instance.session("holder", Class::Normal).unwrap();
    let waiter = instance.session("waiter", Class::Normal).unwrap();
    let _held = mutex.exclusive(&holder, location!("keep")).unwrap();
    for _ in 0..times {
        let got = mutex.shared_until(&waiter, location!("read"), Deadline::after(time));
        assert!(matches!(got, Err(GetError::TimedOut)));
    }
}

fn sum(rows: &[Value]) -> u64 {
    rows.iter().map(|row| row["wait_count"].as_u64().unwrap()).sum()
}

/// The counts of a metric's buckets, each with all shorter ones.
fn buckets(text: &str, of: &str) -> Vec<u64> {
    let lines = text.lines().filter(|line| line.starts_with("retrial_") && line.contains("_bucket{"));
    lines.filter(|line| line.contains(of)).map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn each_consumer_counts_the_same_waits() {
    let scratch = Scratch::new();
    let instance = scratch.instance();
    wait_in_vain(&instance, "a", 5, Duration::from_millis(3));
    wait_in_vain(&instance, "b", 2, Duration::from_millis(20));
    let histogram = "SELECT * FROM v$mutex_histogram WHERE name = ";
    let of = |mutex: &str| scratch.rows(&["sql", &format!("{histogram}'{mutex}'")]);
    let (a, b) = (of("a"), of("b"));
    assert_eq!((sum(&a), sum(&b)), (5, 2), "{a:?} {b:?}");
    for row in a.iter().chain(&b) {
        let is_it = row["location"] == "read" && row["event"] == "cursor: pin S wait on X";
        assert!(is_it && row["wait_time_micro"].as_u64().is_some_and(u64::is_power_of_two), "{row}");
    }
    let longest = |rows: &[Value]| rows.last().unwrap()["wait_time_micro"].as_u64().unwrap();
    assert!(longest(&a) >= 4096 && longest(&b) >= 16_384, "{a:?} {b:?}");
    assert_eq!(sum(&scratch.rows(&["sql", "SELECT * FROM v$event_histogram"])), 7);
    // The sessions go, and their rows are added to those of the departed.
    for _ in 0..16 {
        drop(instance.session("next", Class::Normal).unwrap());
    }
    assert_eq!((of("a"), of("b")), (a.clone(), b));
    // Of a recording; of a period in it only what came in that.
    let file = File::new("r.db");
    scratch.run(&["record", &file, "--for", "100ms", "--interval", "50ms"]);
    wait_in_vain(&instance, "a", 3, Duration::from_millis(3));
    scratch.run(&["record", &file, "--for", "100ms", "--interval", "50ms"]);
    let recorded = |arguments: &[&str]| -> Value {
        let output = command(&[arguments, &["--json"]].concat()).output().unwrap();
        assert!(output.status.success(), "{}", kit::both(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let all = recorded(&["sql", &file, &format!("{histogram}'a'")]);
    let report = recorded(&["report", &file]);
    let text = scratch.run(&["export", "--once"]);
    assert_eq!(sum(all.as_array().unwrap()), 8, "{all}");
    let [waits] = report["waits"].as_array().unwrap().as_slice() else { panic!("{}", report["waits"]) };
    assert_eq!((&waits["mutex"], &waits["ended"]), (&"a".into(), &3.into()), "{waits}");
    let counts = waits["histogram"].as_array().unwrap().iter().map(|bucket| bucket[1].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), 3, "{waits}");
    let ms = |name: &str| waits[name].as_f64().unwrap();
    assert!(ms("p50_wait_ms") <= ms("p90_wait_ms") && ms("p90_wait_ms") <= ms("p99_wait_ms"), "{waits}");
    for (of, count) in [("mutex=\"a\"", 8), ("mutex=\"b\"", 2), ("place=\"read\"", 10), ("event=", 10)] {
        let buckets = buckets(&text, of);
        assert!(buckets.is_sorted() && buckets.len() == 31 && buckets[30] == count, "{of}: {buckets:?}");
    }
}
