//! The programs of `retrial/examples`, for tests of all crates.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The program, built if it is not there or older than its source: the tests of a whole package come with its
/// examples, a single test does not.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let profile = test.parent().and_then(Path::parent).expect("a test is in a profile's directory");
    let program = profile.join("examples").join(name);
    let source = format!("{}/../retrial/examples/{name}.rs", env!("CARGO_MANIFEST_DIR"));
    let written = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    if written(&program) < written(source.as_ref()) {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "retrial", "--example", name, "--target-dir"]);
        build.arg(profile.parent().expect("a target directory")).args((!cfg!(debug_assertions)).then_some("--release"));
        assert!(build.status().expect("cargo can be run").success());
    }
    program
}
