//! The program of README.md is the example `till`, and does what README.md says.

#![allow(missing_docs)]

#[path = "kit/example.rs"]
mod example;

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

const README: &str = include_str!("../README.md");
const TILL: &str = include_str!("../examples/till.rs");

#[test]
fn the_program_is_the_example() {
    let (_, program) = TILL.split_once("\n\n").unwrap();
    assert!(README.contains(program), "README.md has another program than examples/till.rs");
}

#[test]
fn the_readme_is_short() {
    let (lines, words) = (README.lines().count(), README.split_whitespace().count());
    assert!(lines <= 120 && words <= 900, "{lines} lines, {words} words");
}

#[test]
fn the_rust_of_every_page_is_compiled() {
    let lib = include_str!("../src/lib.rs");
    // The page of the cache is the front page of its crate, and compiled there.
    let cache = std::fs::read_link(concat!(env!("CARGO_MANIFEST_DIR"), "/../retrial-cache/README.md")).unwrap();
    assert!(include_str!("../../retrial-cache/src/lib.rs").contains("include_str!(\"../README.md\")"));
    let docs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs"));
    for directory in ["", "reference", "tutorials"].map(|name| docs.join(name)) {
        for page in std::fs::read_dir(directory).unwrap() {
            let path = page.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.strip_prefix(docs).unwrap().display();
                let is_compiled = lib.contains(&format!("docs/{name}\"")) || cache.ends_with(path.file_name().unwrap());
                assert!(is_compiled, "{name} is not in src/lib.rs");
            }
        }
    }
}

#[test]
fn it_is_killed_and_the_next_one_is_told() {
    // The instance's name is that of README.md: one run of this test at a time on this machine.
    let alone = File::create(std::env::temp_dir().join("retrial-test-till")).unwrap();
    alone.lock().unwrap();
    let address = retrial::Address::new("till").unwrap();
    let _ = retrial::remove(&address);

    let killed = till(&["die"]);
    assert_eq!(killed.status.signal(), Some(9));
    let next = till(&[]);
    let then = till(&[]);
    retrial::remove(&address).unwrap();
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        text(&next),
        "session 1 died while it held X, in the middle of a sale: there are 101\n102 in the till\n"
    );
    assert_eq!(text(&then), "103 in the till\n");
}

fn till(words: &[&str]) -> Output {
    Command::new(example::example("till")).args(words).output().unwrap()
}
