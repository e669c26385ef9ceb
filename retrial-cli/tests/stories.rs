//! The loads of docs/STORIES.md: what `report` finds names the cause of each.

#![allow(missing_docs)]

mod kit;

use kit::{RETRIAL, until};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};

/// A load of `examples/stories.rs`, ended when dropped.
struct Story(Child, String);

impl Drop for Story {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = Command::new(RETRIAL).args(["rm", &self.1]).output();
    }
}

/// The sentence of a story's first finding, which is to be of this rule. On a machine that other tests fill as well
/// processors may be short in each story, and two seconds may show little: so a few reports are asked for.
fn first_finding(name: &str, rule: &str) -> String {
    // One load at a time: each fills the machine.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let program = Path::new(RETRIAL).with_file_name("examples").join("stories");
    // `cargo test` has built it, unless it was told to run this file alone.
    let instance = format!("test-story-{}-{name}", std::process::id());
    let started = Command::new(program).args([name, "60", &instance]).spawn();
    let story = Story(started.expect("build it first: cargo build -p retrial-cli --example stories"), instance);
    let retrial = |words: &[&str]| Command::new(RETRIAL).args(words).args(["-i", &story.1]).output().unwrap();
    until("the story begins", || retrial(&["ps"]).status.success());
    let mut reports = Vec::new();
    for _ in 0..5 {
        let output = retrial(&["report", "--for", "2s", "--json"]);
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap();
        let first = findings.iter().find(|finding| rule == "false_contention" || finding["rule"] != "false_contention");
        if let Some(first) = first.filter(|first| first["rule"] == rule) {
            return first["finding"].as_str().unwrap().to_owned();
        }
        reports.push(report["findings"].clone());
    }
    panic!("no report of {name} begins with {rule}: {reports:#?}");
}

#[test]
fn a_cursor_that_is_pinned_all_the_time_is_the_first_finding() {
    let sentence = first_finding("cursor-pin", "hot_mutex");
    assert!(sentence.starts_with("select 1 from dual where 1=2 is held nearly all the time"), "{sentence}");
}

#[test]
fn a_holder_that_keeps_x_for_long_is_the_first_finding() {
    let sentence = first_finding("long-holder", "long_holder");
    assert!(sentence.contains("keeps DEMO_PROC in X at kglpin1 4 for long"), "{sentence}");
}

#[test]
fn full_processors_are_the_first_finding_and_no_mutex() {
    first_finding("full-processors", "false_contention");
}

#[test]
fn a_wait_time_that_does_not_fit_is_the_first_finding() {
    let sentence = first_finding("wait-time", "sleeps_too_long");
    assert!(sentence.contains("where bucket 4711 is held for"), "{sentence}");
}
