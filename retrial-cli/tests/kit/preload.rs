//! The library that `retrial run` preloads.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const RETRIAL: &str = env!("CARGO_BIN_EXE_retrial");

/// The library to preload: the one that the environment names, or built by cargo as the executable under test was.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if let Some(library) = std::env::var_os("RETRIAL_PRELOAD_LIBRARY") {
            return library.into();
        }
        let profile = Path::new(RETRIAL).parent().unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "retrial-preload", "--target-dir"]).arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success(), "retrial-preload builds");
        profile.join("libretrial_preload.so")
    })
}
