//! Programs in C with the library as it is installed. A failure prints what the program printed.

#[path = "../../retrial/tests/kit/not_tested.rs"]
mod not_tested;

use not_tested::not_tested;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include/retrial.h");

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn check(command: &mut Command) -> Output {
    let output = command.output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}:\n{stderr}", output.status);
    output
}

/// Where `retrial-c/install` has put the library.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("retrial-c");
        // Cargo has built them with this test.
        let test = std::env::current_exe().expect("a test has a path");
        check(Command::new(here("install")).arg(&prefix).arg(test.parent().expect("a directory")));
        prefix
    })
}

/// What the installed `retrial.pc` says.
fn options(of: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")).args(of).arg("retrial");
    printed(&mut command).split_whitespace().map(str::to_owned).collect()
}

/// A program, compiled with the installed library.
fn compiled(source: &str, is_static: bool) -> PathBuf {
    let name = Path::new(source).file_stem().expect("a name").to_string_lossy();
    let binary = prefix().join(format!("{name}-{is_static}"));
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", "-pthread"]).arg(here(source));
    command.args(options(&["--cflags"])).arg("-o").arg(&binary);
    if is_static {
        command.arg(prefix().join("lib/libretrial.a")).args(["-ldl", "-lm", "-lgcc_s"]);
    } else {
        command.args(options(&["--libs"])).arg(format!("-Wl,-rpath,{}", prefix().join("lib").display()));
    }
    check(&mut command);
    binary
}

/// What a program prints.
fn printed(command: &mut Command) -> String {
    String::from_utf8(check(command).stdout).expect("text")
}

/// The path of an instance of one test's own.
fn instance(name: &str) -> String {
    format!("{}/{name}-{}.instance", env!("CARGO_TARGET_TMPDIR"), std::process::id())
}

#[test]
fn the_survivor_of_a_killed_holder_is_told_and_the_total_is_right() {
    check(Command::new(compiled("tests/c/died.c", false)).arg(instance("died")));
    check(Command::new(compiled("tests/c/died.c", true)).arg(instance("died-static")));
}

#[test]
fn bad_input_is_answered_with_a_code() {
    check(&mut Command::new(compiled("tests/c/bad_input.c", false)));
}

#[test]
fn modes_deadlines_conversions_and_parameters_work() {
    check(&mut Command::new(compiled("tests/c/calls.c", false)));
}

#[test]
fn the_ring_buffer_of_the_examples_loses_nothing() {
    let text = printed(Command::new(compiled("examples/ring_buffer.c", false)).arg(instance("ring")));
    assert!(text.contains("2 producers put 20000 items, 2 consumers took 20000, sum right"), "{text}");
}

#[test]
fn the_program_of_the_page_counts() {
    let page = std::fs::read_to_string(here("../docs/C.md")).expect("the page can be read");
    let (_, rest) = page.split_once("```c\n").expect("the page has a program");
    let (program, _) = rest.split_once("```").expect("the program ends");
    let source = prefix().join("counter.c");
    std::fs::write(&source, program).expect("a file can be written");
    let binary = compiled(source.to_str().expect("a path"), false);
    let instance = instance("page");
    let counts = || printed(Command::new(&binary).arg(&instance));
    assert_eq!([counts(), counts(), counts()], ["1\n", "2\n", "3\n"]);
    std::fs::remove_file(&instance).expect("the instance is there");
}

#[test]
fn the_header_is_that_of_the_source() {
    const FROM: &str = "/* Generated: RETRIAL_BLESS=1 cargo test -p retrial-c */\n";
    const TO: &str = "/* End of what is generated. */\n";
    let header = std::fs::read_to_string(HEADER).expect("the header can be read");
    let (before, rest) = header.split_once(FROM).expect("the generated part has a beginning");
    let (found, after) = rest.split_once(TO).expect("the generated part has an end");
    if std::env::var_os("RETRIAL_BLESS").is_some() {
        let blessed = format!("{before}{FROM}{}{TO}{after}", retrial_c::generated());
        std::fs::write(HEADER, blessed).expect("the header can be written");
        return;
    }
    assert_eq!(
        found,
        retrial_c::generated(),
        "raise ABI in src/header.rs, then RETRIAL_BLESS=1 cargo test -p retrial-c"
    );
}

#[test]
fn every_call_of_the_header_is_exported_and_no_other() {
    let header = std::fs::read_to_string(HEADER).expect("the header can be read");
    let declared = |line: &&str| !line.starts_with("static inline") && !line.starts_with(' ') && line.contains('(');
    let name = |line: &str| line.split('(').next()?.rsplit([' ', '*']).next().map(str::to_owned);
    let mut expected: Vec<_> = header.lines().filter(declared).filter_map(name).collect();
    expected.retain(|name| name.starts_with("retrial_"));
    let listed =
        check(Command::new("nm").args(["-D", "--defined-only"]).arg(prefix().join("lib/libretrial.so"))).stdout;
    let listed = String::from_utf8(listed).expect("text");
    let mut found: Vec<_> = listed.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned).collect();
    expected.sort();
    found.sort();
    assert_eq!(expected, found);
}

#[test]
fn the_header_compiles_as_cpp() {
    if Command::new("c++").arg("--version").output().is_err() {
        not_tested("there is no compiler for C++");
        return;
    }
    let flags = ["-x", "c++", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"];
    check(Command::new("c++").args(flags).arg(HEADER));
}
