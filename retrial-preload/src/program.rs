//! Which program this process runs, by name: some are to be left alone in a tree of processes.
//!
//! Asked once, perhaps before libc has started: nothing is allocated, and the auxiliary vector is there from
//! the first instruction on.

use retrial::sys::Errno;
use std::ffi::{CStr, c_char};

/// Room for the path of an executable; of a longer one the name is not known, but what it was started as.
const PATH: usize = 1024;

/// Whether one of the comma-separated patterns, in which `*` is any text and `?` any byte, is the name of the
/// executable's file, or the name that it was started by: that of a link, or of a script.
pub(crate) fn is_one_of(patterns: &[u8]) -> bool {
    let _errno = Errno::keep();
    let mut path = [0; PATH];
    // SAFETY: the buffer is writable in this length.
    let len = unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr().cast(), path.len()) };
    let file = usize::try_from(len).ok().filter(|len| *len < PATH).map_or(&[][..], |len| base_name(&path[..len]));
    let started = started_as().map_or(&[][..], |path| base_name(path.to_bytes()));
    patterns.split(|byte| *byte == b',').any(|pattern| {
        !pattern.is_empty() && [file, started].into_iter().any(|name| !name.is_empty() && matches(pattern, name))
    })
}

/// The path that the kernel was given.
fn started_as() -> Option<&'static CStr> {
    // SAFETY: has no preconditions.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const c_char;
    // SAFETY: the kernel's string, above the stack.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) })
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Whether a name matches a pattern: after a mismatch the last `*` takes one byte more.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut next) = (0, 0);
    let mut star = None;
    while next < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, next));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[next] => {
                at += 1;
                next += 1;
            }
            _ => {
                let Some((after, taken)) = star else { return false };
                star = Some((after, taken + 1));
                (at, next) = (after, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}
