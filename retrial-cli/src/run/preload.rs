//! The interposer's library: found, or unpacked from this command.

use miette::{Report, miette};
use retrial_bench::calibration;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr;

pub const FILE: &str = "libretrial_preload.so";
pub const VARIABLE: &str = "RETRIAL_PRELOAD_LIBRARY";
pub const EXCLUDE: &str = "RETRIAL_EXCLUDE";
pub const ASAN_OPTIONS: &str = "ASAN_OPTIONS";
/// The library as it was built with this command.
static EMBEDDED: &[u8] = retrial_cdylib::cdylib!(retrial_preload);

/// The library's path: what the variable says, or where cargo or a package has it, or where this command
/// unpacks it.
pub fn find() -> Result<PathBuf, Report> {
    let path = match std::env::var_os(VARIABLE) {
        Some(path) => named(Path::new(&path))?,
        None => match installed() {
            Some(path) => path,
            None => unpacked()?,
        },
    };
    // The loader splits LD_PRELOAD at these and expands `$ORIGIN` in it; there is no way to quote them.
    match path.as_os_str().as_bytes().iter().find(|byte| matches!(byte, b':' | b' ' | b'$')) {
        None => Ok(path),
        Some(byte) => Err(miette!(
            code = "retrial::run::preload_path",
            help = format!("cp {} / && {VARIABLE}=/{FILE} retrial run …", path.display()),
            "`{}` in the path {}, which the loader cannot preload",
            char::from(*byte),
            path.display()
        )),
    }
}

fn named(path: &Path) -> Result<PathBuf, Report> {
    let wrong = |what: &str| {
        miette!(
            code = "retrial::run::preload",
            help = "retrial run … # without the variable: the command has the library with it",
            "{what} {}, which {VARIABLE} names as the library to preload",
            path.display()
        )
    };
    let file = path.canonicalize().ok().filter(|path| path.is_file()).ok_or_else(|| wrong("no file"))?;
    let mut magic = [0; 4];
    let read = std::fs::File::open(&file).and_then(|mut file| file.read_exact(&mut magic));
    // The loader goes on without it.
    if read.is_err() || magic != *b"\x7fELF" { Err(wrong("no shared library in")) } else { Ok(file) }
}

/// Where cargo puts the library when it builds this command, and where packages put it.
fn installed() -> Option<PathBuf> {
    let executable = std::env::current_exe().and_then(|path| path.canonicalize()).ok()?;
    let places = ["deps", "../lib/retrial"].map(|place| executable.with_file_name(place).join(FILE));
    places.iter().find_map(|path| path.canonicalize().ok())
}

/// Unpacks the library, unless it is there from before, into the user's cache directory, or one for temporary
/// files where that cannot be used.
///
/// Into a file, and one that stays: the program may have children that live longer than this process. Each
/// build has a directory of its own, since a running program must find the library that it has begun with.
fn unpacked() -> Result<PathBuf, Report> {
    let user = retrial::sys::euid();
    let places = [calibration::cache(), Some(std::env::temp_dir().join(format!("retrial-{user}")))];
    let mut hasher = DefaultHasher::new();
    EMBEDDED.hash(&mut hasher);
    let build = format!("{:016x}", hasher.finish());
    let mut tried = Vec::new();
    for directory in places.into_iter().flatten().map(|place| place.join(&build)) {
        match unpack(&directory, user).and_then(|path| map(&path).map(|()| path)) {
            Ok(path) => return Ok(path),
            Err(error) => tried.push(format!("{}: {error}", directory.display())),
        }
    }
    Err(miette!(
        code = "retrial::run::unpack",
        help = "XDG_CACHE_HOME=DIRECTORY retrial run …, a directory of yours",
        "no place for {FILE}: {}",
        tried.join("; ")
    ))
}

fn unpack(directory: &Path, user: u32) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    let directory = directory.canonicalize()?;
    if let Some(ancestor) = directory.ancestors().find(|ancestor| !is_safe(ancestor, user)) {
        return Err(io::Error::other(format!("others can change what is in {}", ancestor.display())));
    }
    let path = directory.join(FILE);
    if is_safe(&path, user) && fs::read(&path).is_ok_and(|bytes| bytes == EMBEDDED) {
        return Ok(path);
    }
    // Renamed, not written in place: programs may have loaded the file that is there.
    let beside = directory.join(format!("{FILE}.{}", std::process::id()));
    fs::write(&beside, EMBEDDED)?;
    fs::set_permissions(&beside, Permissions::from_mode(0o644))?;
    fs::rename(&beside, &path)?;
    Ok(path)
}

/// Maps the library as the loader does, which cannot where the file system is mounted without the right to
/// execute.
fn map(path: &Path) -> io::Result<()> {
    let (file, len) = (File::open(path)?, EMBEDDED.len());
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
    let at = unsafe { libc::mmap(ptr::null_mut(), len, protection, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: mapped above, and not used.
    unsafe { libc::munmap(at, len) };
    Ok(())
}

/// Whether none but the user and root can change this file, or put something else into this directory under a
/// name that is taken: what is preloaded runs with all rights of the user. Not root's in a directory such as
/// `/tmp`: once a cleaner has removed it, the name is anybody's, and programs that run on preload it.
fn is_safe(path: &Path, user: u32) -> bool {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    path.metadata().is_ok_and(|about| {
        let mode = about.mode();
        let keeps_names = user != 0 && about.is_dir() && mode & STICKY != 0;
        [0, user].contains(&about.uid()) && (mode & WRITABLE_BY_OTHERS == 0 || keeps_names)
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
