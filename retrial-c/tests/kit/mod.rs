//! What the tests of C and of C++ share, and those of four languages.

#![allow(dead_code)] // each test binary uses its part of it

#[path = "../../../retrial/tests/kit/not_tested.rs"]
mod not_tested;

pub(crate) use not_tested::not_tested;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// A path of this package, from the packages beside it too.
pub(crate) fn here(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../retrial-c")).join(path)
}

/// How long a program may take, with all that it forks.
const TIME_S: &str = "60";

pub(crate) fn check(command: &mut Command) -> Output {
    let mut timed = Command::new("timeout");
    timed.args(["--signal=KILL", TIME_S]).arg(command.get_program()).args(command.get_args());
    timed.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = timed.output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    // The signal is for all of its process group, `timeout` itself among it.
    assert_ne!(output.status.signal(), Some(9), "{command:?} was killed after {TIME_S} s:\n{stderr}");
    assert!(output.status.success(), "{command:?} ended with {}:\n{stderr}", output.status);
    output
}

/// Where `retrial-c/install` has put the library.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("retrial-{}", env!("CARGO_CRATE_NAME")));
        // Cargo has built them with this test.
        let test = std::env::current_exe().expect("a test has a path");
        check(Command::new(here("install")).arg(&prefix).arg(test.parent().expect("a directory")));
        prefix
    })
}

/// What the installed `retrial.pc` says.
pub(crate) fn options(of: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")).args(of).arg("retrial");
    printed(&mut command).split_whitespace().map(str::to_owned).collect()
}

/// A command that compiles a program, and where the program is then. The caller adds what it is linked with.
pub(crate) fn compiler(compiler: &str, standard: &str, source: &Path, name: &str) -> (Command, PathBuf) {
    let binary = prefix().join(name);
    let mut command = Command::new(compiler);
    command.arg(format!("-std={standard}")).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]);
    command.arg(source).args(options(&["--cflags"])).arg("-o").arg(&binary);
    (command, binary)
}

/// Links the installed shared library.
pub(crate) fn shared() -> Vec<String> {
    let mut flags = options(&["--libs"]);
    flags.push(format!("-Wl,-rpath,{}", prefix().join("lib").display()));
    flags
}

/// What a program prints.
pub(crate) fn printed(command: &mut Command) -> String {
    String::from_utf8(check(command).stdout).expect("text")
}

/// The path of an instance of one test's own.
pub(crate) fn instance(name: &str) -> String {
    format!("{}/{name}-{}.instance", env!("CARGO_TARGET_TMPDIR"), std::process::id())
}

/// The program of `docs/C.md` that begins like this.
pub(crate) fn of_the_page(begins: &str) -> String {
    let page = std::fs::read_to_string(here("../docs/C.md")).expect("the page can be read");
    let (_, rest) = page.split_once(begins).expect("the page has a program");
    rest.split_once("```").expect("the program ends").0.to_owned()
}

/// Whether a program that not every machine has is there.
pub(crate) fn is_there(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        not_tested(format_args!("there is no {program}"));
    }
    is_there
}
