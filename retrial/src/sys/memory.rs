//! How much memory there is.

use std::fs;

/// Less is not asked for.
const MUCH: usize = 16 << 20;

/// A file of figures of the machine's memory.
const MEMINFO: &str = "/proc/meminfo";

/// Memory in bytes that can be had without taking it from programs that run; `None` where the kernel does not
/// say.
#[must_use]
pub fn available_memory() -> Option<u64> {
    Some(kib(&fs::read_to_string(MEMINFO).ok()?, "MemAvailable")? << 10)
}

/// Whether so many bytes can be had without taking them from programs that run. A file system in memory may be as
/// large as the machine's memory, and the kernel kills the process that fills it. Yes where the kernel does not
/// say.
pub(super) fn has_room(len: usize) -> bool {
    len < MUCH || fs::read_to_string(MEMINFO).map_or(true, |said| fits(len as u64, &said))
}

fn fits(len: u64, meminfo: &str) -> bool {
    let kib = |name| kib(meminfo, name);
    kib("MemAvailable").is_none_or(|free| len / 1024 <= free.saturating_add(kib("SwapFree").unwrap_or(0)))
}

fn kib(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_and_what_can_be_swapped_is_room() {
        let said = "MemTotal:       24000000 kB\nMemAvailable:    2000 kB\nSwapFree:          48 kB\n";
        assert!(fits(2048 << 10, said) && !fits(2049 << 10, said));
        assert!(fits(u64::MAX, "MemTotal: 1 kB\n"), "an old kernel");
        assert!(has_room(MUCH) && !has_room(usize::MAX));
    }
}
