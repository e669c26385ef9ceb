//! The calls of a thread that sleeps in the kernel, without stopping it: the kernel tells its stack pointer
//! and where it returns to, its memory is read as a debugger does, and unwound by the tables of the files.
//!
//! The kernel does not tell the frame pointer. Calls beyond the first function that needs it are not known.

use crate::run::profile::stacks::{Native, Tables};
use crate::run::variables::Modules;
use framehop::{CacheNative, MayAllocateDuringUnwind, UnwindRegsNative, Unwinder};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Of a stack: bytes that are read, and calls that are told.
const BYTES: usize = 32 << 10;
const CALLS: usize = 24;

/// Files met so far, and what they have for unwinding.
#[derive(Default)]
pub struct Files(HashMap<PathBuf, Option<Tables>>);

impl Files {
    /// Where the calls return to, `MODULE+0xOFFSET` of each, innermost first. `None` where the kernel keeps
    /// us from that memory.
    pub fn stack(&mut self, pid: u32, modules: &Modules, ip: u64, sp: u64) -> Option<Vec<String>> {
        let bytes = read(pid, sp)?;
        let mut unwinder = Native::default();
        for (path, start, end) in modules.code() {
            let tables = self.0.entry(PathBuf::from(path)).or_insert_with(|| Tables::read(Path::new(path)));
            if let Some(tables) = tables.clone() {
                unwinder.add_module(tables.module(path, start, end));
            }
        }
        let mut cache: CacheNative<MayAllocateDuringUnwind> = CacheNative::new();
        let mut word = |address: u64| {
            let at = usize::try_from(address.wrapping_sub(sp)).map_err(|_| ())?;
            let bytes = bytes.get(at..at.saturating_add(8)).ok_or(())?;
            bytes.try_into().map(u64::from_ne_bytes).map_err(|_| ())
        };
        let mut frames = unwinder.iter_frames(ip, start(ip, sp), &mut cache, &mut word);
        let mut calls = Vec::new();
        while let Ok(Some(frame)) = frames.next()
            && calls.len() < CALLS
        {
            match modules.locate(frame.address()) {
                Some(place) => calls.push(place),
                None => break,
            }
        }
        Some(calls)
    }
}

#[cfg(target_arch = "x86_64")]
fn start(ip: u64, sp: u64) -> UnwindRegsNative {
    UnwindRegsNative::new(ip, sp, 0)
}

/// The link register is not told either: the call alone is known, unless it has been saved.
#[cfg(target_arch = "aarch64")]
fn start(_: u64, sp: u64) -> UnwindRegsNative {
    UnwindRegsNative::new(0, sp, 0)
}

/// The top of a stack.
fn read(pid: u32, sp: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; BYTES];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: BYTES };
    // By pages: what is beyond the stack's end cannot be read.
    let sp = usize::try_from(sp).ok()?;
    let first = 4096 - sp % 4096;
    let starts = std::iter::once((sp, first)).chain((0..BYTES / 4096 - 1).map(|page| (sp + first + page * 4096, 4096)));
    let remote: Vec<libc::iovec> = starts
        .map(|(at, iov_len)| libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(at), iov_len })
        .collect();
    let (pid, pages) = (libc::pid_t::try_from(pid).ok()?, remote.len() as libc::c_ulong);
    // SAFETY: `local` is all of the writable bytes; the kernel checks the addresses of the other process.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, remote.as_ptr(), pages, 0) };
    bytes.truncate(usize::try_from(read).ok()?);
    Some(bytes)
}

#[cfg(test)]
#[path = "../../../retrial/tests/kit/not_tested.rs"]
mod not_tested;

#[cfg(test)]
mod tests {
    use super::not_tested::not_tested;
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_calls_of_a_sleeping_program_begin_in_its_c_library() {
        let mut sleeper = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let pid = sleeper.id();
        let mut found = Vec::new();
        // Until it has come to sleep; `None` for ever where that is forbidden here.
        for _ in 0..2000 {
            let text = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
            let words: Vec<&str> = text.split_whitespace().collect();
            let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or(0);
            if let [call, .., sp, ip] = words.as_slice()
                && call.parse() == Ok(libc::SYS_clock_nanosleep)
            {
                found = Files::default().stack(pid, &Modules::of(pid), hex(ip), hex(sp)).unwrap_or_default();
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let _ = sleeper.kill();
        let _ = sleeper.wait();
        if found.is_empty() {
            return not_tested("the kernel does not tell the stack of another process here");
        }
        assert!(found[0].contains("libc.so"), "{found:?}");
        if cfg!(target_arch = "x86_64") {
            assert!(found.iter().any(|place| place.contains("sleep+0x")), "{found:?}");
        }
    }
}
