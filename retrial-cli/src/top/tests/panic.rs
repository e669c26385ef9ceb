//! A panic while a terminal is drawn on.

#[path = "../../../tests/kit/terminal.rs"]
mod terminal;

use crate::top::terminal::Screen;
use std::process::Command;

/// Run by the test below, on a terminal.
#[test]
#[ignore = "takes the terminal and panics"]
fn panics() {
    let _screen = Screen::new().unwrap();
    std::thread::scope(|scope| scope.spawn(|| panic!("what went wrong")).join().unwrap_err());
    // The panic has given the terminal back, not the end of the screen.
    std::process::abort();
}

#[test]
fn a_panic_gives_the_terminal_back() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "top::tests::panic::panics", "--ignored", "--nocapture"]);
    let (status, left) = terminal::Terminal::new(&mut command, (100, 40)).end();
    assert!(!status.success() && left.contains("what went wrong"), "{status}: {left}");
}
