//! Two periods side by side.

#![allow(missing_docs)]

mod kit;

use kit::directory::Directory;
use kit::load::{Load, Pass};
use kit::{Scratch, command, failed};
use serde_json::Value;
use std::time::Duration;

fn record(scratch: &Scratch, file: &str) {
    scratch.run(&["record", file, "--for", "1500ms", "--interval", "150ms", "--sample", "2ms"]);
}

fn diff(arguments: &[&str]) -> Value {
    let output = command(&[&["report", "--diff", "--json"], arguments].concat()).output().unwrap();
    assert!(output.status.success(), "{}", kit::both(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn row<'d>(diff: &'d Value, section: &str, of: &str, figure: &str) -> &'d Value {
    let mut rows = diff[section].as_array().unwrap().iter();
    let row = rows.find(|row| row["of"] == of && row["figure"] == figure);
    row.unwrap_or_else(|| panic!("no {figure} of {of} in {section}: {diff}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Sessions that sleep while they hold: what they do is the same on a busy machine.
fn load(sessions: usize) -> Load {
    Load { sessions, hold: Pass::Asleep(Duration::from_millis(3)), think: Pass::Asleep(Duration::from_millis(3)) }
}

#[test]
fn what_has_changed_is_told_from_what_varies() {
    let directory = Directory::new();
    let (one, eight, again) = (directory.path("one.db"), directory.path("eight.db"), directory.path("again.db"));
    let scratch = Scratch::new();
    load(1).during(&scratch, || record(&scratch, &one));
    scratch.run(&["set", "mutex_spin_count=77"]);
    load(8).during(&scratch, || {
        record(&scratch, &eight);
        record(&scratch, &again);
    });
    let changed = diff(&[&one, &eight]);
    // One session never waits; of eight, most do all the time.
    let waiting = row(&changed, "mutex", "m", "sessions waiting");
    assert_eq!((number(&waiting["before"]), &waiting["verdict"]), (0.0, &"more".into()), "{waiting}");
    assert!(number(&waiting["change"]) > 3.0, "{waiting}");
    let first = &changed["time"][0];
    assert!(first["of"].as_str().unwrap().contains("mutex X") && first["verdict"] == "more", "{changed}");
    assert_eq!(row(&changed, "mutex", "m", "U")["verdict"], "more", "{changed}");
    let parameter = &changed["parameters"][0];
    assert_eq!(
        (&parameter["name"], &parameter["before"], &parameter["after"]),
        (&"mutex_spin_count".into(), &"255".into(), &"77".into())
    );
    // The figures are those of the reports.
    let report: Value =
        serde_json::from_slice(&command(&["report", &eight, "--json"]).output().unwrap().stdout).unwrap();
    let m = &report["mutexes"][0];
    assert_eq!(row(&changed, "mutex", "m", "U")["after"], m["utilization"], "{report}");
    assert_eq!(row(&changed, "mutex", "m", "gets/s")["after"], m["throughput"], "{report}");
    // A period is the same as itself, and its change is none.
    let same = diff(&[&eight, &eight]);
    for section in ["time", "load", "place", "mutex"] {
        for row in same[section].as_array().unwrap() {
            let is_varied = ["more", "less"].contains(&row["verdict"].as_str().unwrap());
            assert!(row["change"].as_f64().is_none_or(|change| change == 0.0) && !is_varied, "{row}");
        }
    }
    assert_eq!(same["parameters"], Value::Array(Vec::new()));
    // The same load again, and how much it varies is known.
    let like = diff(&[&eight, &again]);
    assert!(number(&row(&like, "mutex", "m", "sessions waiting")["spread"]) > 0.0, "{like}");
    let text = command(&["report", &one, &eight, "--diff"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    for part in ["before: ", "after : ", "TIME OF THE SESSIONS", "PARAMETERS THAT DIFFER\nname", "more"] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
}

#[test]
fn two_periods_of_one_recording_can_be_compared() {
    let (directory, scratch) = (Directory::new(), Scratch::new());
    let file = directory.path("r.db");
    let _hold = scratch.hold(&["m", "--create", "--mode", "X", "--for", "300s"]);
    record(&scratch, &file);
    let waiter = scratch.start(&["hold", "m", "--mode", "S", "--for", "0s"]);
    kit::until("the wait", || scratch.observer().tables().waits().count() == 1);
    record(&scratch, &file);
    drop(waiter);
    let report: Value =
        serde_json::from_slice(&command(&["report", &file, "--json"]).output().unwrap().stdout).unwrap();
    let rows = command(&["sql", &file, "--csv", "SELECT count(*) FROM v$mutex"]).output().unwrap();
    assert!(rows.status.success(), "{report}");
    let compared = diff(&[&file, "--from", "10min", "--to", "1500ms", "--other-from", "1300ms"]);
    let waiting = row(&compared, "mutex", "m", "sessions waiting");
    assert!(number(&waiting["before"]) < 0.5 && number(&waiting["after"]) > 0.9, "{compared}");
    let said = failed(&command(&["report", &file, "--diff"]).output().unwrap());
    assert!(said.contains("expected a second recording, or --other-from or --other-to"), "{said}");
    let said = failed(&command(&["report", &file, &file]).output().unwrap());
    assert!(said.contains("--diff"), "{said}");
    // Too short for parts.
    let short = diff(&[&file, &file, "--from", "200ms"]);
    assert_eq!(row(&short, "mutex", "m", "sessions waiting")["verdict"], "not known", "{short}");
}
