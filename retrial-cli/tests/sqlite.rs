//! `SQLite` with our mutex methods, the example `retrial-c/examples/sqlite.c`, and what `retrial show` has of it.

#![allow(clippy::duplicate_mod)] // both kits say what is not tested

mod kit;

#[path = "../../retrial-c/tests/kit/mod.rs"]
mod c;
#[path = "../../retrial/tests/kit/not_tested.rs"]
mod not_tested;

use kit::{Running, Scratch};
use std::process::Command;

/// How to link `SQLite`; `None` where it is not installed.
fn options() -> Option<String> {
    let output =
        Command::new("pkg-config").args(["--cflags", "--libs", "sqlite3"]).output().expect("pkg-config is there");
    if !output.status.success() {
        not_tested::not_tested("no sqlite3.pc: install libsqlite3-dev");
        return None;
    }
    Some(String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn sqlite_writes_by_threads_on_our_mutexes() {
    let Some(options) = options() else { return };
    let (mut command, binary) = c::compiler("cc", "c11", &c::here("examples/sqlite.c"), "sqlite");
    c::check(command.arg("-O2").args(c::shared()).args(options.split_whitespace()));
    let scratch = Scratch::unborn();
    let (input, enter) = std::io::pipe().expect("a pipe");
    let mut sqlite = Running::new(Command::new(binary).args([scratch.name.as_str(), ":memory:"]).stdin(input));
    // A connection is one mutex for the whole of the two statements that a thread gives it.
    assert_eq!(sqlite.line(), "2000 rows, 2000 of them different, 2000 counted\n");
    let rows = scratch.rows(&["show", "mutexes"]);
    let gets = |column: &str, value: &str| -> u64 {
        rows.iter().filter(|row| row[column] == value).filter_map(|row| row["gets"].as_u64()).sum()
    };
    assert!(gets("type", "SQLite recursive") >= 2000, "the connection's: {rows:?}");
    assert!(gets("name", "memory") >= 2000 && gets("name", "main") > 0, "{rows:?}");
    assert!(rows.iter().all(|row| row["word"] == "free"), "{rows:?}");
    drop(enter);
    assert_eq!(sqlite.end(), (Some(0), String::new()));
    // SQLite has given all of them back.
    assert!(scratch.rows(&["show", "mutexes"]).is_empty());
}
