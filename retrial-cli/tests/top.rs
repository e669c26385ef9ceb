//! `retrial top` on a real terminal, on instances that come and go.

#![allow(missing_docs)]

mod kit;
#[path = "kit/terminal.rs"]
mod terminal;

use kit::load::{Load, Pass};
use kit::{RETRIAL, Scratch, command, failed};
use retrial::P;
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;
use terminal::Terminal;

const SIZE: (u16, u16) = (120, 40);

fn top(scratch: &Scratch) -> Terminal {
    let mut command = Command::new(RETRIAL);
    command.args(["top", "-i", &scratch.name, "--every", "100ms"]).env("XDG_CACHE_HOME", "/nonexistent");
    let terminal = Terminal::new(&mut command, SIZE);
    terminal.until(&format!("retrial top {}", scratch.name));
    terminal.until("1 Mutexes");
    terminal
}

#[test]
fn the_terminal_is_given_back_however_it_ends() {
    let scratch = Scratch::new();
    for key in ["q", "?q"] {
        let mut top = top(&scratch);
        top.keys(key);
        let (status, left) = top.end();
        assert_eq!((status.code(), left.trim()), (Some(0), ""));
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let top = top(&scratch);
        top.signal(signal);
        let (status, _) = top.end();
        assert_eq!(status.signal(), Some(signal));
    }
    let mut top = top(&scratch);
    top.keys("\x03");
    assert_eq!(top.end().0.signal(), Some(libc::SIGINT));
}

#[test]
fn it_ends_with_its_terminal() {
    let scratch = Scratch::new();
    let status = top(&scratch).hang_up();
    assert_eq!(status.signal(), Some(libc::SIGHUP));
}

#[test]
fn it_fits_every_size_that_the_terminal_takes() {
    let scratch = Scratch::new();
    let mut top = top(&scratch);
    for (size, says) in [((60, 20), "…"), ((50, 8), "retrial top needs 60 x 10"), ((300, 80), "p parameters")] {
        top.resize(size);
        let shown = top.until(says);
        assert!(shown.contains("retrial top"), "{shown}");
    }
    top.keys("q");
    assert_eq!(top.end().0.code(), Some(0));
}

#[test]
fn a_parameter_is_set_in_the_instance_and_set_back() {
    let scratch = Scratch::new();
    let value = || scratch.observer().tables().param_set(P::SpinCount, None);
    let mut top = top(&scratch);
    top.keys("p");
    top.until("mutex_spin_count");
    top.keys("jj\r77x\r");
    top.until("expected");
    top.keys("\x7f\r");
    top.until("Set mutex_spin_count of the instance from 255 to 77?");
    assert_eq!(value(), None, "nothing is set before the confirmation");
    top.keys("y");
    top.until("mutex_spin_count: 255 -> 77; u undoes it");
    assert_eq!(value(), Some(77));
    top.keys("u");
    top.until("undone: mutex_spin_count: 77 -> 255");
    assert_eq!(value(), None);
    top.keys("q");
    assert_eq!(top.end().0.code(), Some(0));
}

#[test]
fn an_instance_that_goes_is_said_and_looked_at_again_when_it_is_back() {
    let scratch = Scratch::new();
    let mut top = top(&scratch);
    assert!(command(&["rm", &scratch.name]).output().unwrap().status.success());
    top.until("GONE: the last screen");
    assert!(command(&["create", &scratch.name]).output().unwrap().status.success());
    top.until("is there again");
    top.keys("q");
    assert_eq!(top.end().0.code(), Some(0));
}

#[test]
fn one_screen_and_its_rows_are_of_what_happens_meanwhile() {
    let scratch = Scratch::new();
    let time = Duration::from_millis(2);
    let load = Load { sessions: 3, hold: Pass::Asleep(time), think: Pass::Asleep(time) };
    load.during(&scratch, || {
        let text = scratch.run(&["top", "--once", "--every", "300ms"]);
        assert!(text.contains("  last ") && text.contains("▼wait ms") && text.contains("load"), "{text}");
        // Samples are rarer where each takes long, as without optimization; of fewer than ten U is not told.
        let text = scratch.run(&["top", "--once", "--every", "3s", "--json"]);
        let screen: Value = serde_json::from_str(&text).unwrap();
        let row = &screen["mutexes"][0];
        assert_eq!((&row["mutex"], screen["sessions"].as_array().unwrap().len()), (&"m".into(), 3));
        let figure = |row: &Value, name: &str| row[name].as_f64().unwrap();
        assert!(figure(row, "gets_per_s") > 0.0, "{row}");
        for (name, of_all) in screen["total"].as_object().unwrap() {
            assert_eq!(of_all, &row[name], "{name}: one mutex is all of them");
        }
        assert!(figure(row, "utilization_pct") > 0.0 && figure(row, "holding_time_us") > 0.0, "{row}");
        let waits = screen["sessions"].as_array().unwrap().iter().map(|row| figure(row, "waits_per_s"));
        assert!((waits.sum::<f64>() - figure(row, "waits_per_s")).abs() < 1e-6, "{screen}");
        let csv = scratch.run(&["top", "--once", "--every", "100ms", "--csv"]);
        assert!(csv.starts_with("mutex,type,gets_per_s,"), "{csv}");
    });
}

#[test]
fn what_cannot_be_drawn_is_refused_with_what_can_be_typed() {
    let scratch = Scratch::new();
    let fails = |arguments: &[&str]| failed(&scratch.output(&[&["top"], arguments].concat()));
    let says = fails(&[]);
    assert!(says.contains("standard output is no terminal") && says.contains("retrial top --once"), "{says}");
    assert!(fails(&["--json"]).contains("have no screen"));
    assert!(fails(&["--every", "1us"]).contains("expected 10.0 ms at least"));
    assert!(fails(&["--every", "soon"]).contains("--every"));
    let absent = command(&["top", "--once", "-i", "no-such-instance"]).output().unwrap();
    assert!(failed(&absent).contains("no-such-instance"));
    let mut dumb = Command::new("sh");
    // The terminal's kind is set behind that of the kit.
    dumb.args(["-c", "TERM=dumb exec \"$0\" top -i \"$1\"", RETRIAL, &scratch.name]);
    let terminal = Terminal::new(&mut dumb, SIZE);
    // What it wrote may come after its end.
    let said = terminal.until("--once");
    assert!(said.contains("TERM is dumb"), "{said}");
    assert_eq!(terminal.end().0.code(), Some(2));
}
