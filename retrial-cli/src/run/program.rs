//! The program to run: where it is, and why its locks may be out of our reach.

use object::read::elf::{FileHeader, ProgramHeader};
use object::{Object, ObjectSection, ObjectSymbol, ReadCache, ReadRef};
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why a program cannot be started.
#[derive(Debug)]
pub enum Missing {
    /// Nothing of this name: exit code 127, as of a shell.
    NotFound,
    /// There is something, but it cannot be executed: 126.
    NotExecutable(PathBuf),
}

/// Looks a program up as `execvp` does.
pub fn find(name: &OsStr) -> Result<PathBuf, Missing> {
    if name.as_encoded_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match fs::metadata(&path) {
            Err(_) => Err(Missing::NotFound),
            Ok(metadata) if is_executable(&metadata) => Ok(path),
            Ok(_) => Err(Missing::NotExecutable(path)),
        };
    }
    let directories = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut blocked = None;
    for path in std::env::split_paths(&directories).map(|directory| directory.join(name)) {
        match fs::metadata(&path) {
            Ok(metadata) if is_executable(&metadata) => return Ok(path),
            Ok(metadata) if metadata.is_file() => blocked = blocked.or(Some(path)),
            _ => {}
        }
    }
    Err(blocked.map_or(Missing::NotFound, Missing::NotExecutable))
}

fn is_executable(metadata: &fs::Metadata) -> bool {
    metadata.is_file() && metadata.permissions().mode() & 0o111 != 0
}

/// The file with `ThreadSanitizer` in it, the program itself or the interpreter of the script that it is.
pub fn sanitized(path: &Path) -> Option<PathBuf> {
    let file = executed(path);
    let data = open(&file)?;
    let elf = object::File::parse(&data).ok()?;
    // Asked for by code that was compiled so, defined where its library is part of the program.
    let mut names = [".dynstr", ".strtab"].into_iter().filter_map(|names| elf.section_by_name(names)?.data().ok());
    let own = b"__tsan_init\0";
    names.any(|names| names.windows(own.len()).any(|name| name == own)).then_some(file)
}

/// What the kernel executes: the program itself or the interpreter of the script that it is.
fn executed(path: &Path) -> PathBuf {
    interpreter(path).map_or_else(|| path.to_owned(), PathBuf::from)
}

/// A file of which no more is read than is asked for: programs may be large.
fn open(path: &Path) -> Option<ReadCache<File>> {
    File::open(path).ok().map(ReadCache::new)
}

/// The loader that the program asks for, if it is that of another C library, which cannot load what is made for
/// glibc. Told by its name: that of glibc has several, and may lie anywhere.
pub fn other_loader(path: &Path) -> Option<PathBuf> {
    const OTHERS: [&str; 3] = ["musl", "uClibc", "linker"];
    let asked = loader(&open(&executed(path))?)?;
    let name = asked.file_name()?.to_string_lossy().into_owned();
    OTHERS.iter().any(|other| name.contains(other)).then_some(asked)
}

/// Why none of the program's locks was handled, as far as the file says.
pub fn why_nothing(path: &Path) -> String {
    let file = path.display();
    if let Some(why) = loader_ignores(path) {
        return why;
    }
    match interpreter(path) {
        Some(interpreter) if Path::new(&interpreter).exists() => {
            let why = loader_ignores(Path::new(&interpreter)).unwrap_or_else(|| of_elf(Path::new(&interpreter)));
            format!("{file} is a script for {interpreter}: {why}")
        }
        _ => of_elf(path),
    }
}

/// Programs that get rights by being started run in secure mode, in which the loader drops `LD_PRELOAD`.
fn loader_ignores(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    let (mode, user) = (metadata.mode(), retrial::sys::euid());
    // SAFETY: has no preconditions.
    let group = unsafe { libc::getegid() };
    let why = if mode & libc::S_ISUID != 0 && metadata.uid() != user {
        "is set-user-ID"
    } else if mode & libc::S_ISGID != 0 && mode & libc::S_IXGRP != 0 && metadata.gid() != group {
        "is set-group-ID"
    } else if user != 0 && has_capabilities(path) {
        "has file capabilities"
    } else {
        return None;
    };
    Some(format!("{} {why}: the loader preloads nothing into it", path.display()))
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_encoded_bytes()) else { return false };
    // SAFETY: both are strings, and nothing is written: only the length is asked for.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// The interpreter in a script's first line; that of `/usr/bin/env` is looked up.
fn interpreter(path: &Path) -> Option<String> {
    let mut start = [0; 256];
    let len = File::open(path).ok()?.read(&mut start).ok()?;
    let line = start[..len].strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line).into_owned();
    let mut words = line.split_whitespace();
    let first = words.next()?;
    if !first.ends_with("/env") {
        return Some(first.to_owned());
    }
    let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    find(OsStr::new(name)).ok().map(|path| path.display().to_string())
}

fn of_elf(path: &Path) -> String {
    let file = path.display();
    let Some(data) = open(path) else { return format!("{file} cannot be read, so the reason is not known") };
    let Ok(elf) = object::File::parse(&data) else { return format!("{file} is not an ELF file") };
    if !elf.is_64() || elf.architecture() != native() {
        return format!("{file} is for {:?}, the preloaded library for {:?}", elf.architecture(), native());
    }
    let go = elf.section_by_name(".go.buildinfo").or_else(|| elf.section_by_name(".note.go.buildid")).is_some();
    if go {
        return format!("{file} is a Go program: it has locks of its own and calls none of pthread");
    }
    if loader(&data).is_none() {
        return format!("{file} is statically linked: nothing can be preloaded into it");
    }
    if let Some(loader) = other_loader(path) {
        let loader = loader.display();
        return format!("{file} is of another C library, whose loader is {loader}: it was started without ours");
    }
    let calls = elf.dynamic_symbols().any(|symbol| {
        symbol.is_undefined() && symbol.name().is_ok_and(|name| name.starts_with("pthread_") && name.contains("lock"))
    });
    let rust = elf
        .section_by_name(".comment")
        .and_then(|section| section.data().ok())
        .is_some_and(|comment| comment.windows(5).any(|word| word == b"rustc"));
    match (calls, rust) {
        (false, true) => format!("{file} is a Rust program: std has locks of its own and calls none of pthread"),
        (false, false) => format!("{file} itself calls no pthread lock, and no library of it did"),
        (true, _) => format!("{file} can call pthread locks, but did not, or only in parts that were not preloaded"),
    }
}

fn native() -> object::Architecture {
    if cfg!(target_arch = "aarch64") { object::Architecture::Aarch64 } else { object::Architecture::X86_64 }
}

/// The dynamic loader that the file asks for.
fn loader<'data>(data: impl ReadRef<'data>) -> Option<PathBuf> {
    let header = object::elf::FileHeader64::<object::Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let mut segments = header.program_headers(endian, data).ok()?.iter();
    let path = segments.find_map(|segment| segment.interpreter(endian, data).ok()?)?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_up_as_a_shell_does() {
        assert!(find(OsStr::new("sh")).is_ok());
        assert!(matches!(find(OsStr::new("no-such-program-here")), Err(Missing::NotFound)));
        assert!(matches!(find(OsStr::new("/etc/passwd")), Err(Missing::NotExecutable(_))));
    }

    #[test]
    fn our_own_test_binary_has_an_interpreter() {
        let data = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(loader(&*data).is_some());
        assert!(loader(&b"no ELF"[..]).is_none());
    }
}
