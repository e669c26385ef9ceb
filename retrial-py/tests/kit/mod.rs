//! Python with the module, for the tests.

#[path = "../../../retrial/tests/kit/not_tested.rs"]
mod not_tested;

use not_tested::not_tested;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

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

/// Python, if there is one that the module is for.
pub(crate) fn python() -> Option<Command> {
    let version = Command::new("python3").args(["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]).status();
    if !version.is_ok_and(|status| status.success()) {
        not_tested("no python3 of 3.11 or later: retrial-py");
        return None;
    }
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", path()).env("PYTHONDONTWRITEBYTECODE", "1");
    Some(command)
}
