//! The module as Python loads it, without an installation: the library under its name, on Python's path.

mod kit;

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Runs Python, if there is one that the module is for: what it printed.
fn python<A: AsRef<OsStr>>(arguments: &[A]) -> Option<String> {
    let mut command = kit::python()?;
    command.args(arguments).current_dir(env!("CARGO_TARGET_TMPDIR"));
    let output = command.output().expect("python3 can be run");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}{err}", output.status);
    Some(out.into_owned())
}

#[test]
fn python_programs_work() {
    for tests in ["test_retrial.py", "test_holds.py", "test_stub.py"] {
        python(&[format!("{HERE}/tests/{tests}")]);
    }
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
