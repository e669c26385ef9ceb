//! Finds the interposer's library.

use miette::{Report, miette};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub const FILE: &str = "libretrial_preload.so";
pub const VARIABLE: &str = "RETRIAL_PRELOAD_LIBRARY";
pub const EXCLUDE: &str = "RETRIAL_EXCLUDE";
pub const ASAN_OPTIONS: &str = "ASAN_OPTIONS";
const BUILD: &str = "cargo build --release -p retrial-preload";

/// The library's path: what the variable says, or beside our executable, or in `../lib`.
pub fn find() -> Result<PathBuf, Report> {
    let path = match std::env::var_os(VARIABLE) {
        Some(path) => named(Path::new(&path))?,
        None => beside()?,
    };
    // The loader splits LD_PRELOAD at these and expands `$ORIGIN` in it; there is no way to quote them.
    match path.as_os_str().as_bytes().iter().find(|byte| matches!(byte, b':' | b' ' | b'$')) {
        None => Ok(path),
        Some(byte) => Err(miette!(
            code = "retrial::run::preload_path",
            help = format!("cp {} /tmp && {VARIABLE}=/tmp/{FILE} retrial run …", path.display()),
            "`{}` in the path {}, which the loader cannot preload",
            char::from(*byte),
            path.display()
        )),
    }
}

fn named(path: &Path) -> Result<PathBuf, Report> {
    path.canonicalize().ok().filter(|path| path.is_file()).ok_or_else(|| {
        miette!(
            code = "retrial::run::preload",
            help = BUILD,
            "no file {}, which {VARIABLE} names as the library to preload",
            path.display()
        )
    })
}

fn beside() -> Result<PathBuf, Report> {
    let executable = std::env::current_exe().and_then(|path| path.canonicalize()).unwrap_or_default();
    let here = executable.parent().unwrap_or(Path::new("/"));
    let places = [
        here.join(FILE),
        here.join("../lib").join(FILE),
        here.join("../lib/retrial").join(FILE),
        here.join("deps").join(FILE),
    ];
    places.iter().find_map(|path| path.canonicalize().ok()).ok_or_else(|| {
        miette!(
            code = "retrial::run::preload",
            help = format!("{BUILD}, or: {VARIABLE}=/path/to/{FILE} retrial run …"),
            "no {FILE} beside {} nor in ../lib",
            executable.display()
        )
    })
}

/// Programs in which the library is off, by name; what was there already stays.
pub fn excluded(names: &[String]) -> Option<String> {
    let there = std::env::var(EXCLUDE).ok().filter(|there| !there.is_empty());
    let list: Vec<String> = there.into_iter().chain(names.iter().cloned()).collect();
    (!list.is_empty()).then(|| list.join(","))
}

/// Options of `AddressSanitizer` with which it does not refuse to come after a preloaded library; last is
/// what counts.
pub fn address_sanitizer_options() -> OsString {
    let mut options = std::env::var_os(ASAN_OPTIONS).unwrap_or_default();
    if !options.is_empty() {
        options.push(":");
    }
    options.push("verify_asan_link_order=0");
    options
}

/// The value of `LD_PRELOAD` with ours first and what was there already after it.
pub fn list(library: &Path) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(there) = std::env::var_os("LD_PRELOAD").filter(|there| !there.is_empty()) {
        list.push(":");
        list.push(there);
    }
    list
}
