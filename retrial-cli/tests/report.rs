//! Reports of a period, of recordings and live instances.

mod kit;

use kit::load::{Load, Pass};
use kit::{Scratch, command, failed, until};
use serde_json::Value;
use std::time::Duration;

const LOAD: Load =
    Load { sessions: 3, hold: Pass::Busy(Duration::from_micros(300)), think: Pass::Asleep(Duration::from_micros(200)) };

fn sum(rows: &Value, name: &str) -> f64 {
    rows.as_array().unwrap().iter().map(|row| row[name].as_f64().unwrap()).sum()
}

#[test]
fn the_parts_of_the_time_of_the_sessions_add_up() {
    let scratch = Scratch::new();
    let text = LOAD.during(&scratch, || scratch.run(&["report", "--for", "1s", "--json"]));
    let report: Value = serde_json::from_str(&text).unwrap();
    for (rows, name) in [("events", "pct_session_time"), ("session_time", "pct")] {
        let all = sum(&report[rows], name);
        assert!((all - 100.0).abs() < 0.1, "{rows}: {all} of {report}");
    }
    let (all_s, of_events) = (report["session_time_s"].as_f64().unwrap(), sum(&report["events"], "time_s"));
    assert!((all_s - of_events).abs() < 1e-6 * all_s);
    assert!(report["samples"].as_u64() > Some(0));
    let m = &report["mutexes"][0];
    assert_eq!(m["mutex"], "m");
    assert!(m["gets"].as_u64() > Some(0) && m["throughput"].as_f64() > Some(0.0), "{m}");
}

#[test]
fn a_report_of_a_recording_says_what_kept_whom() {
    let scratch = Scratch::new();
    let path = std::env::temp_dir().join(format!("retrial-report-{}.db", std::process::id()));
    let file = path.to_str().unwrap();
    let _hold = scratch.hold(&["m", "--create", "--mode", "X", "--for", "300s"]);
    let _waits = scratch.start(&["hold", "m", "--mode", "S", "--for", "0s"]);
    until("a wait", || scratch.observer().tables().waits().next().is_some());
    scratch.run(&["record", file, "--for", "100ms", "--interval", "50ms", "--sample", "5ms"]);
    scratch.run(&["set", "mutex_spin_count=77"]);
    scratch.run(&["record", file, "--for", "300ms", "--interval", "100ms", "--sample", "5ms"]);
    let text = command(&["report", file]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    let report: Value = serde_json::from_slice(&command(&["report", file, "--json"]).output().unwrap().stdout).unwrap();
    let said = failed(&command(&["report", file, "--from", "2999-01-01"]).output().unwrap());
    assert!(said.contains("no two snapshots in this period"), "{said}");
    let said = failed(&command(&["report", file, "--from", "noon"]).output().unwrap());
    assert!(said.contains("expected a moment in UTC"), "{said}");
    let said = failed(&command(&["report", file, "-i", "other"]).output().unwrap());
    assert!(said.contains("no instance `other` in it, expected one of"), "{said}");
    let _ = std::fs::remove_file(&path);
    assert_eq!(report["blockers"][0]["blocker"], 1, "{report}");
    assert_eq!(report["blockers"][0]["sessions_waiting"], 1);
    assert_eq!(report["parameters"][0]["changed_from"], "255", "{}", report["parameters"]);
    assert!((sum(&report["events"], "pct_session_time") - 100.0).abs() < 0.1);
    for expected in
        ["TOP EVENTS", "cursor: pin S wait on X", "holding a mutex", "MUTEX SLEEPS BY TYPE AND LOCATION", "Cursor Pin"]
    {
        assert!(text.contains(expected), "no `{expected}` in\n{text}");
    }
}
