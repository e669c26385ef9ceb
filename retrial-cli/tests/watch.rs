//! `retrial watch`, on instances with holders, waiters and deaths.

#![allow(missing_docs)]

mod kit;

use kit::directory::File;
use kit::{Running, Scratch, both, until};
use serde_json::Value;
use std::fs;

const FAST: [&str; 2] = ["--every", "20ms"];

fn watch(scratch: &Scratch, arguments: &[&str]) -> Running {
    scratch.start(&[&["watch", "--json"], &FAST[..], arguments].concat())
}

/// The next line of what the watch tells.
fn told(watch: &mut Running) -> Value {
    let line = watch.line();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// A holder of `m`, and a session that waits for it.
fn contended(scratch: &Scratch) -> (Running, Running) {
    let holder = scratch.hold(&["m", "--create"]);
    let mut waiter = scratch.start(&["hold", "m", "--mode", "S", "--for", "0s"]);
    waiter.until(" waits for m");
    (holder, waiter)
}

#[test]
fn an_event_runs_the_command_with_the_event_on_its_standard_input() {
    let (scratch, file) = (Scratch::new(), File::new("event"));
    let _both = contended(&scratch);
    let command = format!("cat > {}", &*file);
    let when = "holder_age(\"m\") > 100ms and longest_wait('Cursor Pin') > 0 and waiters == 1";
    let mut watch = watch(&scratch, &["--when", when, "--for", "50ms", "--once", "--do", &command]);
    let began = told(&mut watch);
    assert_eq!((&began["what"], &began["event"]["when"]), (&"began".into(), &when.into()), "{began}");
    assert!(began["event"]["held_s"].as_f64().unwrap() >= 0.05, "{began}");
    let values = &began["event"]["values"];
    assert!(values["holder_age(\"m\")"].as_f64().unwrap() > 0.1 && values["waiters"] == 1.0, "{began}");
    let done = told(&mut watch);
    assert!(done["what"] == "command" && done["text"].as_str().unwrap().starts_with("command done in "), "{done}");
    assert_eq!(watch.end(), (Some(0), String::new()));
    let read: Value = serde_json::from_str(&fs::read_to_string(&*file).unwrap()).unwrap();
    assert_eq!(read, began["event"]);
}

#[test]
fn what_is_sampled_fires_too() {
    let scratch = Scratch::new();
    let _both = contended(&scratch);
    for when in ["waiting > 0.5", "utilization('m') > 50%", "active('Cursor Pin') > 1.5"] {
        let mut watch = watch(&scratch, &["--when", when, "--once"]);
        assert_eq!(told(&mut watch)["what"], "began", "{when}");
        assert_eq!(watch.end(), (Some(0), String::new()));
    }
}

#[test]
fn it_begins_again_only_when_it_was_over() {
    let scratch = Scratch::new();
    let holder = scratch.hold(&["m", "--create"]);
    let mut watch = watch(&scratch, &["--when", "waiters('m') >= 2", "--until", "waiters('m') == 0", "--do", "exit 3"]);
    let wait = || {
        let mut waiter = scratch.start(&["hold", "m", "--mode", "X", "--for", "0s"]);
        waiter.until(" waits for m");
        waiter
    };
    for _ in 0..2 {
        let mut waiters = vec![wait(), wait()];
        assert_eq!(told(&mut watch)["what"], "began");
        // The command fails, which is told and ends nothing.
        let failed = told(&mut watch);
        assert!(failed["text"].as_str().unwrap().starts_with("command failed: exit code 3 "), "{failed}");
        // One less, one more: between the two thresholds.
        waiters.pop().unwrap().die_of(libc::SIGINT);
        scratch.run(&["watch", "--once", "--when", "waiters('m') == 1", "--for", "100ms", "--every", "20ms"]);
        waiters.push(wait());
        for waiter in waiters {
            waiter.die_of(libc::SIGINT);
        }
        let ended = told(&mut watch);
        assert_eq!(
            (&ended["what"], &ended["event"]["when"]),
            (&"ended".into(), &"waiters('m') >= 2".into()),
            "{ended}"
        );
        assert_eq!(ended["text"], "waiters('m') = 0", "not before --until holds");
    }
    drop(holder);
    assert_eq!(watch.die_of(libc::SIGTERM), "");
}

#[test]
fn a_death_is_seen_and_the_commands_are_limited_in_number_and_time() {
    let scratch = Scratch::new();
    scratch.run(&["hold", "m", "--create", "--for", "0s"]);
    let limits = ["--at-most", "1/min", "--timeout", "100ms"];
    let mut watch = watch(&scratch, &[&["--when", "deaths > 0", "--do", "sleep 60"], &limits[..]].concat());
    let die = || {
        scratch.hold(&["m", "--consistent", "--wait", "60s"]).signal(libc::SIGKILL);
        scratch.run(&["recover"]);
        scratch.run(&["recover", "--clear-poison", "m"]);
    };
    // The watch has begun to look when it sees the first death.
    let first = std::thread::scope(|scope| {
        let seen = scope.spawn(|| told(&mut watch));
        while !seen.is_finished() {
            die();
        }
        seen.join().unwrap()
    });
    assert_eq!(first["what"], "began");
    let mut texts: Vec<String> = Vec::new();
    until("what is told", || {
        die();
        texts.push(told(&mut watch)["text"].as_str().unwrap().to_owned());
        let has = |text: &str| texts.iter().any(|told| told == text);
        has("command failed: still running after 100 ms, ended") && has("command not run: as often as --at-most allows")
    });
    watch.die_of(libc::SIGINT);
}

#[test]
fn once_with_a_command_that_fails_is_exit_code_1_and_without_a_command_0() {
    let scratch = Scratch::new();
    let _both = contended(&scratch);
    let run = |arguments: &[&str]| scratch.output(&[&["watch", "--once", "--when", "waiters > 0"], arguments].concat());
    let failed = run(&["--do", "exit 9"]);
    assert_eq!(failed.status.code(), Some(1), "{}", both(&failed));
    assert!(both(&failed).contains("command failed: exit code 9"), "{}", both(&failed));
    let told = run(&[]);
    assert_eq!(told.status.code(), Some(0));
    assert!(both(&told).contains("began    waiters = 1.00"), "{}", both(&told));
    let names = scratch.rows(&["watch", "--names"]);
    assert!(names.iter().any(|row| row["name"] == "utilization") && names.iter().any(|row| row["name"] == "deaths"));
}

#[test]
fn what_is_typed_wrong_is_shown_with_a_caret() {
    let scratch = Scratch::new();
    scratch.run(&["hold", "accounts", "--create", "--for", "0s"]);
    for (arguments, says) in [
        (&["--when", "deaths >"][..], "--when: the end, expected a number"),
        (&["--when", "waters > 1"], "did you mean `waiters`?"),
        (&["--when", "waiters('acounts') > 1"], "did you mean `accounts`?"),
        (&["--when", "waiters('Cursor Pn') > 1"], "did you mean `Cursor Pin`?"),
        (&["--when", "waiters > 1", "--until", "deaths < "], "--until: the end"),
        (&["--when", "waiters > 1", "--every", "5"], "--every: duration `5` without a unit"),
        (&["--when", "waiters > 1", "--at-most", "often"], "rate `often`, expected"),
    ] {
        let output = scratch.output(&[&["watch"], arguments].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(says) && text.contains("help:"), "{arguments:?}: {text}");
        let is_expression = says.contains("did you") || says.contains("end");
        assert_eq!(text.lines().any(|line| line.trim_matches(['│', ' ']) == "^"), is_expression, "{text}");
    }
    let mut watch = watch(&scratch, &["--when", "sessions >= 0"]);
    assert_eq!(told(&mut watch)["what"], "began");
    let _ = fs::remove_file(scratch.path());
    assert_eq!((watch.line(), watch.end().0), (String::new(), Some(2)), "its instance has gone");
}

#[test]
fn a_pace_that_cannot_be_is_refused() {
    let scratch = Scratch::new();
    let said = scratch.fail(&["watch", "--when", "sessions >= 0", "--once", "--every", "0s"]);
    assert!(said.contains("--every 0s, expected 10.0 ms at least"), "{said}");
}
