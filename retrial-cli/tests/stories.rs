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

/// What `report` finds in two seconds of a story: rules and sentences.
fn findings(name: &str) -> Vec<(String, String)> {
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
    let output = retrial(&["report", "--for", "2s", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let findings = report["findings"].as_array().unwrap();
    findings.iter().map(|finding| (text(&finding["rule"]), text(&finding["finding"]))).collect()
}

/// On a machine that other tests fill as well, processors may be short in each story.
fn but_for_processors(name: &str) -> (String, String) {
    let findings = findings(name);
    let of_mutexes = findings.iter().find(|(rule, _)| rule != "false_contention");
    of_mutexes.unwrap_or_else(|| panic!("{findings:?}")).clone()
}

#[test]
fn a_cursor_that_is_pinned_all_the_time_is_the_first_finding() {
    let (rule, sentence) = but_for_processors("cursor-pin");
    assert_eq!(rule, "hot_mutex");
    assert!(sentence.starts_with("select 1 from dual where 1=2 is held nearly all the time"), "{sentence}");
}

#[test]
fn a_holder_that_keeps_x_for_long_is_the_first_finding() {
    let (rule, sentence) = but_for_processors("long-holder");
    assert_eq!(rule, "long_holder");
    assert!(sentence.contains("keeps DEMO_PROC in X at kglpin1 4 for long"), "{sentence}");
}

#[test]
fn full_processors_are_the_first_finding_and_no_mutex() {
    let findings = findings("full-processors");
    assert_eq!(findings[0].0, "false_contention", "{findings:?}");
}

#[test]
fn a_wait_time_that_does_not_fit_is_the_first_finding() {
    let (rule, sentence) = but_for_processors("wait-time");
    assert_eq!(rule, "sleeps_too_long");
    assert!(sentence.contains("where bucket 4711 is held for"), "{sentence}");
}
