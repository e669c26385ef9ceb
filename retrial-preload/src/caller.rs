//! Where a call came from, as `MODULE+0xOFFSET`: the address that it returns to, counted from where the
//! module's file is mapped first. Only gets that miss ask, and each place is looked up once.

use crate::real;
use retrial::sys::File;
use retrial::views::LocationId;
use retrial::{Instance, interposer};
use std::ffi::{CStr, c_char, c_void};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const PLACES: usize = 4096;
/// Entries looked at before a place is not remembered.
const PROBES: usize = 8;

struct Place {
    caller: AtomicUsize,
    /// The number, plus one.
    location: AtomicU64,
}

static TABLE: [Place; PLACES] = [const { Place { caller: AtomicUsize::new(0), location: AtomicU64::new(0) } }; PLACES];

/// The location of a call.
pub(crate) fn location(instance: &Instance, caller: usize) -> LocationId {
    let start = (caller as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    let probes = (0..PROBES).map(|i| &TABLE[(start as usize + i) % PLACES]);
    for place in probes.clone() {
        match place.caller.load(Ordering::Relaxed) {
            0 => break,
            found if found != caller => {}
            // Acquire: pairs with the Release below.
            _ => match place.location.load(Ordering::Acquire) {
                0 => break,
                known => return LocationId((known - 1) as u16),
            },
        }
    }
    let mut name = Name::new();
    name.set(caller);
    let location = instance.register_location(name.text()).unwrap_or_default();
    for place in probes {
        let claimed = place.caller.compare_exchange(0, caller, Ordering::Relaxed, Ordering::Relaxed);
        if claimed.is_ok() || claimed == Err(caller) {
            place.location.store(u64::from(location.0) + 1, Ordering::Release);
            break;
        }
    }
    location
}

/// The path of the program's executable, which the loader does not know. Written once, by the constructor.
static EXECUTABLE: [AtomicU64; 32] = [const { AtomicU64::new(0) }; 32];

/// Finds the executable's path and where it begins.
pub(crate) fn note_executable() {
    // SAFETY: the function takes what the loader hands it, and no data.
    unsafe { libc::dl_iterate_phdr(Some(note_start), std::ptr::null_mut()) };
    let mut path = [0u8; size_of_val(&EXECUTABLE)];
    // One byte is left for the end.
    // SAFETY: the buffer is writable in this length.
    let len = unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr().cast(), path.len() - 1) };
    if len <= 0 {
        return;
    }
    for (cell, word) in EXECUTABLE.iter().zip(path.as_chunks::<8>().0) {
        cell.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
    }
}

/// Where the executable is mapped first; `usize::MAX` until that is known.
static START: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Notes where the executable begins: the loader lists it first.
extern "C" fn note_start(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> libc::c_int {
    // SAFETY: the loader's record of a module.
    let info = unsafe { &*info };
    // SAFETY: its program headers, so many.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let start = loaded.map(|header| info.dlpi_addr.wrapping_add(header.p_vaddr & !4095)).min();
    START.store(start.map_or(usize::MAX, |start| start as usize), Ordering::Relaxed);
    1
}

fn executable() -> [u8; size_of_val(&EXECUTABLE)] {
    let mut path = [0u8; size_of_val(&EXECUTABLE)];
    for (word, cell) in path.as_chunks_mut::<8>().0.iter_mut().zip(&EXECUTABLE) {
        *word = cell.load(Ordering::Relaxed).to_ne_bytes();
    }
    path
}

/// What glibc's `_dl_find_object` fills, with its reserved space.
#[repr(C)]
struct Found {
    flags: u64,
    map_start: usize,
    map_end: usize,
    link_map: *const LinkMap,
    rest: [u64; 16],
}

#[repr(C)]
struct LinkMap {
    bias: usize,
    name: *const c_char,
}

/// A location's name, on the stack.
struct Name {
    bytes: [u8; 248],
    len: usize,
}

impl Name {
    const fn new() -> Self {
        Self { bytes: [0; 248], len: 0 }
    }

    fn text(&self) -> &str {
        self.bytes[..self.len].utf8_chunks().next().map_or("", |chunk| chunk.valid())
    }

    fn set(&mut self, caller: usize) {
        if real::has_dl_find_object() { self.set_by_loader(caller) } else { self.set_by_maps(caller) }
    }

    fn set_by_loader(&mut self, caller: usize) {
        let mut found = Found { flags: 0, map_start: 0, map_end: 0, link_map: std::ptr::null(), rest: [0; 16] };
        let result: *mut Found = &raw mut found;
        // SAFETY: the result is writable and larger than what is written.
        let rc = unsafe { real::dl_find_object(caller as *mut c_void, result.cast()) };
        if rc != 0 || found.link_map.is_null() {
            return self.put(b"", caller);
        }
        // SAFETY: the loader's record of the module that is calling us, which is not unloaded meanwhile.
        let name = unsafe { (*found.link_map).name };
        // SAFETY: the loader's string.
        match unsafe { CStr::from_ptr(name) }.to_bytes() {
            // Of an executable with a gap between its segments, the loader finds the part after the gap.
            b"" => self.put_executable(caller - found.map_start.min(START.load(Ordering::Relaxed))),
            name => self.put(name, caller - found.map_start),
        }
    }

    fn put_executable(&mut self, offset: usize) {
        let path = executable();
        self.put(path.split(|byte| *byte == 0).next().unwrap_or_default(), offset);
    }

    /// Puts a path, of which the end counts, and an offset.
    fn put(&mut self, path: &[u8], offset: usize) {
        const OFFSET: usize = "+0x".len() + 16;
        let path = &path[path.len().saturating_sub(self.bytes.len() - OFFSET)..];
        self.bytes[..path.len()].copy_from_slice(path);
        self.len = path.len();
        let _ = write!(self, "+{offset:#x}");
    }

    /// By the kernel's list of mappings, for a libc without the look-up (before 2.35).
    fn set_by_maps(&mut self, caller: usize) {
        if interposer::calls_are_limited() {
            return self.put(b"", caller);
        }
        let Some(maps) = File::open(c"/proc/self/maps") else { return self.put(b"", caller) };
        let mut line = Line { bytes: [0; 512], len: 0 };
        let (mut module, mut start) = (0, 0);
        let mut buffer = [0u8; 512];
        'file: while let len @ 1.. = maps.read(&mut buffer) {
            for byte in &buffer[..len] {
                if *byte != b'\n' {
                    line.push(*byte);
                    continue;
                }
                let Some((from, to, path)) = line.parse() else { break 'file };
                let this = retrial_hash(path);
                // A module's mappings follow each other.
                if this != module {
                    (module, start) = (this, from);
                }
                if (from..to).contains(&caller) {
                    self.put(path, caller - start);
                    break 'file;
                }
                line.len = 0;
            }
        }
        if self.len == 0 {
            self.put(b"", caller);
        }
    }
}

impl Write for Name {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.len() - self.len;
        let text = &text.as_bytes()[..text.len().min(room)];
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text);
        self.len += text.len();
        Ok(())
    }
}

/// A line of `/proc/self/maps`.
struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Line {
    fn push(&mut self, byte: u8) {
        if self.len < self.bytes.len() {
            self.bytes[self.len] = byte;
            self.len += 1;
        }
    }

    /// Start, end, path.
    fn parse(&self) -> Option<(usize, usize, &[u8])> {
        let mut words = self.bytes[..self.len].splitn(6, |byte| *byte == b' ');
        let range = std::str::from_utf8(words.next()?).ok()?;
        let (from, to) = range.split_once('-')?;
        let path = words.nth(4).unwrap_or_default().trim_ascii_start();
        Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?, path))
    }
}

/// FNV-1a of a path, to know it again.
fn retrial_hash(path: &[u8]) -> u64 {
    path.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
