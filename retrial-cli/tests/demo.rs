//! `demo` shows first what nobody else has.

#![allow(missing_docs)]

mod kit;

use kit::{Running, command};

#[test]
fn a_killed_holder_is_the_first_thing_shown() {
    let mut demo = Running::new(&mut command(&["demo"]));
    // The instances are anonymous so far, and nothing is left behind.
    let lines = std::iter::from_fn(|| Some(demo.line()).filter(|line| !line.is_empty() && !line.starts_with("2. ")));
    let text: String = lines.collect();
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("`{part}` in {text}"));
    assert!(text.starts_with("1. A process that holds a mutex is killed with -9"), "{text}");
    let told = at("is told: session 1 died while it held X, got at \"demo: transfer\"");
    assert!(at("has the mutex in X") < at("asks for the mutex") && at("kill -9 ") < told, "{text}");
    assert!(told < at("It finds 70 + 100") && at("It finds 70 + 100") < at("told nothing: 100 + 100"), "{text}");
}
