//! What a thread is at, as far as the kernel tells: for alerts about a session that holds a mutex for long.
//!
//! Nothing is allocated: the mutex that a session waits for may be the allocator's. Files are read by raw
//! system calls: a waiting session is not to be cancelled here.

use crate::sys::{File, calls_are_limited};
use crate::text::Line;
use std::ffi::CStr;
use std::fmt::{self, Write};

/// Writes what a thread of this PID namespace is at: `stopped, in do_signal_stop, at libc.so.6+0x95f17`.
/// Writes nothing where the kernel does not let this process know.
pub(crate) fn whereabouts(pid: u32, tid: u32, to: &mut impl Write) -> fmt::Result {
    if calls_are_limited() {
        return to.write_str("not looked at from a sandbox");
    }
    let (mut stat, mut wchan, mut syscall) = ([0; 512], [0; 64], [0; 256]);
    // `TID (NAME) STATE …`; a name may have anything in it.
    let stat = read(pid, tid, "stat", &mut stat);
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    to.write_str(match state {
        None => return to.write_str("gone"),
        Some('R') => "running",
        Some('T') => "stopped",
        Some('t') => "stopped by a debugger",
        Some('D') => "in an uninterruptible wait",
        Some('Z' | 'X') => "ending",
        Some(_) => "asleep",
    })?;
    let wchan = read(pid, tid, "wchan", &mut wchan);
    if !matches!(wchan, "" | "0") {
        write!(to, ", in {wchan}")?;
    }
    // `NUMBER ARGUMENTS… SP PC`, or `running`.
    let pc = read(pid, tid, "syscall", &mut syscall).split_whitespace().last().and_then(|word| word.strip_prefix("0x"));
    match pc.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
        Some(pc) => write_module(pid, pc, to),
        None => Ok(()),
    }
}

fn open(pid: u32, tid: Option<u32>, name: &str) -> Option<File> {
    let mut path = Line::new();
    match tid {
        Some(tid) => write!(path, "/proc/{pid}/task/{tid}/{name}\0").ok()?,
        None => write!(path, "/proc/{pid}/{name}\0").ok()?,
    }
    File::open(CStr::from_bytes_with_nul(path.as_str().as_bytes()).ok()?)
}

fn read<'a>(pid: u32, tid: u32, name: &str, buffer: &'a mut [u8]) -> &'a str {
    let len = open(pid, Some(tid), name).map_or(0, |file| file.read(buffer));
    std::str::from_utf8(&buffer[..len]).unwrap_or("").trim_end()
}

/// Writes an address as `, at FILE+OFFSET`: what symbolizers take.
fn write_module(pid: u32, address: u64, to: &mut impl Write) -> fmt::Result {
    let Some(maps) = open(pid, None, "maps") else { return Ok(()) };
    let (mut buffer, mut filled) = ([0; 4096], 0);
    while let len @ 1.. = maps.read(&mut buffer[filled..]) {
        filled += len;
        let whole = buffer[..filled].iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        for line in buffer[..whole].split(|byte| *byte == b'\n') {
            if let Some((start, offset, path)) = mapping(std::str::from_utf8(line).unwrap_or(""), address) {
                let name = path.rsplit('/').next().unwrap_or(path);
                return write!(to, ", at {name}+{:#x}", address - start + offset);
            }
        }
        // A line longer than the buffer is not one that is looked for.
        let rest = if whole == 0 && filled == buffer.len() { filled } else { whole };
        buffer.copy_within(rest..filled, 0);
        filled -= rest;
    }
    Ok(())
}

/// Start, offset in the file and path of a line of `maps`, if the address is in it.
fn mapping(line: &str, address: u64) -> Option<(u64, u64, &str)> {
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (start, end) = (number(start)?, number(end)?);
    let offset = number(fields.nth(1)?)?;
    (start..end).contains(&address).then(|| (start, offset, fields.nth(2).unwrap_or("anonymous memory")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_is_taken_apart() {
        let line = "7f00-8f00 r-xp 00001000 fe:00 1234                       /usr/lib/libc.so.6";
        assert_eq!(mapping(line, 0x7f10), Some((0x7f00, 0x1000, "/usr/lib/libc.so.6")));
        assert_eq!(mapping(line, 0x8f00), None);
        assert_eq!(mapping("7f00-8f00 rw-p 00000000 00:00 0", 0x7f00), Some((0x7f00, 0, "anonymous memory")));
        assert_eq!(mapping("no line of maps", 0), None);
    }

    #[test]
    fn a_thread_that_waits_in_the_kernel_is_found_there() {
        let (to_parent, from_child) = std::sync::mpsc::channel();
        let (to_child, from_parent) = std::sync::mpsc::channel::<()>();
        let child = std::thread::spawn(move || {
            to_parent.send(crate::sys::tid()).unwrap();
            let _ = from_parent.recv();
        });
        let tid = from_child.recv().unwrap();
        let mut text = String::new();
        while !text.starts_with("asleep") {
            text.clear();
            whereabouts(crate::sys::pid(), tid, &mut text).unwrap();
        }
        drop(to_child);
        child.join().unwrap();
        text.clear();
        // A thread is joined a moment before the kernel is done with it.
        while text != "gone" && !text.starts_with("ending") {
            text.clear();
            whereabouts(crate::sys::pid(), tid, &mut text).unwrap();
            assert!(!text.starts_with("asleep"), "{text}");
        }
    }
}
