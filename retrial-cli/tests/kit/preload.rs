//! The library that `retrial run` preloads.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const RETRIAL: &str = env!("CARGO_BIN_EXE_retrial");

/// The library to preload: what the environment names, or what cargo has built with the executable under test.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let named = std::env::var_os("RETRIAL_PRELOAD_LIBRARY").map(PathBuf::from);
        let library = named.unwrap_or_else(|| Path::new(RETRIAL).with_file_name("deps/libretrial_preload.so"));
        assert!(library.is_file(), "no {}", library.display());
        library
    })
}
