//! The module as Python loads it, without an installation: the library under its name, on Python's path.

#[path = "../../retrial/tests/kit/not_tested.rs"]
mod not_tested;

use not_tested::not_tested;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// The directory with the module. Cargo builds the library beside the tests of its package.
fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let test = std::env::current_exe().expect("a test has a program");
        let built = test.parent().expect("a program is in a directory");
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
        fs::create_dir_all(&directory).expect("a directory can be made");
        let library = built.join("libretrial_py.so");
        // Under another name first: a run beside this one may have it loaded.
        let fresh = directory.join(format!("fresh.{}", std::process::id()));
        fs::copy(&library, &fresh).unwrap_or_else(|error| panic!("{}: {error}", library.display()));
        fs::rename(&fresh, directory.join("retrial.abi3.so")).expect("a file can be renamed");
        directory
    })
}

/// Runs Python, if there is one that the module is for: what it printed.
fn python<A: AsRef<OsStr>>(arguments: &[A]) -> Option<String> {
    let version = Command::new("python3").args(["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]).status();
    if !version.is_ok_and(|status| status.success()) {
        not_tested("no python3 of 3.11 or later: retrial-py");
        return None;
    }
    let mut command = Command::new("python3");
    command.args(arguments).current_dir(env!("CARGO_TARGET_TMPDIR")).env("PYTHONPATH", path());
    let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output().expect("python3 can be run");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}{err}", output.status);
    Some(out.into_owned())
}

#[test]
fn python_programs_work() {
    python(&[format!("{HERE}/tests/test_retrial.py")]);
}

#[test]
fn the_program_of_the_page_counts() {
    let page = fs::read_to_string(format!("{HERE}/../docs/PYTHON.md")).expect("the page can be read");
    let (_, program) = page.split_once("```python\n").expect("the page has a program");
    let (program, _) = program.split_once("```").expect("the program has an end");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page.py");
    fs::write(&file, program).expect("a file can be written");
    let instance = format!("/dev/shm/retrial-py-page.{}", std::process::id());
    let run = || python(&[file.as_os_str(), OsStr::new(&instance)]);
    if let Some(printed) = run() {
        assert_eq!(printed, "8000\n");
        assert_eq!(run().as_deref(), Some("16000\n"), "the same instance");
        fs::remove_file(&instance).expect("the instance is there");
    }
}

#[test]
fn the_pairs_of_the_examples_are_measured() {
    if let Some(printed) = python(&[&format!("{HERE}/examples/pair.py"), "1", "200"]) {
        assert_eq!(printed.lines().count(), 10, "{printed}");
    }
}
