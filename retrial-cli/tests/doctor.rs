//! `retrial doctor`, on this machine.

#![allow(missing_docs)]

mod kit;

use kit::{RETRIAL, both, command};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn leftovers(pid: u32) -> bool {
    Path::new(&format!("/dev/shm/retrial.doctor-{pid}")).exists()
}

#[test]
fn every_check_says_what_was_found_and_what_it_means_and_nothing_is_left() {
    let child = command(&["doctor", "--json"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    assert!(!leftovers(pid));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for name in [
        "instance",
        "shared_memory",
        "kernel",
        "membarrier",
        "seccomp",
        "ptrace_scope",
        "perf_event_paranoid",
        "open_files",
        "locked_memory",
        "threads",
        "pressure",
        "virtualisation",
        "governor",
        "timer_slack",
        "huge_pages",
    ] {
        let row = rows.iter().find(|row| row["check"] == name).unwrap_or_else(|| panic!("no check {name}: {rows:?}"));
        assert!(!row["found"].as_str().unwrap().is_empty() && !row["means"].as_str().unwrap().is_empty(), "{row}");
        assert!(row["verdict"] == "fine" || row["command"].is_string() || row["found"] == "not told", "{row}");
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(rows.iter().any(|row| row["check"] == "kernel" && row["found"] == release.trim()));
    let text = command(&["doctor"]).output().unwrap();
    assert!(both(&text).contains("retrial works here; "), "{}", both(&text));
}

#[test]
fn what_keeps_retrial_from_working_is_exit_code_1() {
    // No file may be longer than some kB: no instance can be made.
    let limited = format!("ulimit -f 8; exec {RETRIAL} doctor --json");
    let output = Command::new("sh").args(["-c", &limited]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", both(&output));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let instance = rows.iter().find(|row| row["check"] == "instance").unwrap();
    assert_eq!(instance["verdict"], "stops", "{instance}");
    let file_size = rows.iter().find(|row| row["check"] == "file_size").unwrap();
    assert_eq!(file_size["verdict"], "limits", "{file_size}");
    assert!(file_size["found"].as_str().unwrap().ends_with(" kB"), "{file_size}");
}
