//! How many processes and threads the system lets us have.

use crate::outcome::Kind;
use miette::{Report, miette};
use std::{fs, io};

/// Sessions that may be on their way to the start at a time.
pub const THRONG: u32 = 64;

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Threads that a process has room for: each has a stack and a signal stack, and each of these a guard page,
/// and the program itself takes a few hundred mappings.
fn threads() -> Option<u64> {
    Some(number("/proc/sys/vm/max_map_count")?.saturating_sub(500) / 4)
}

/// What a process with a session takes, its share of the kernel's memory included.
const PROCESS_BYTES: u64 = 256 << 10;

/// Processes that there is memory for.
fn processes() -> Option<u64> {
    Some(retrial::sys::available_memory()? / PROCESS_BYTES)
}

/// Whether so many sessions have room.
pub fn room(kind: Kind, sessions: u32) -> io::Result<()> {
    let most = match kind {
        Kind::Threads => threads(),
        Kind::Processes => processes(),
    };
    if most.is_some_and(|most| u64::from(sessions) > most) {
        return Err(io::Error::from_raw_os_error(libc::ENOMEM));
    }
    Ok(())
}

/// The limits that there are, with their names, the lowest first.
fn all() -> Vec<(String, u64)> {
    let cgroup = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = cgroup
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .flat_map(|group| [format!("/sys/fs/cgroup{group}/pids.max"), format!("/sys/fs/cgroup/pids{group}/pids.max")]);
    let files = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"].map(str::to_owned);
    let mut limits: Vec<(String, u64)> =
        files.into_iter().chain(groups).filter_map(|path| Some((path.clone(), number(&path)?))).collect();
    let user = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let user =
        user.lines().find_map(|line| line.strip_prefix("Max processes")?.split_whitespace().next()?.parse().ok());
    limits.extend(user.map(|limit| ("ulimit -u".to_owned(), limit)));
    limits.extend(threads().map(|threads| ("threads of a process by vm.max_map_count".to_owned(), threads)));
    limits.extend(processes().map(|processes| ("processes by available memory".to_owned(), processes)));
    limits.sort_by_key(|(_, limit)| *limit);
    limits
}

/// The limits in one line.
pub fn line() -> String {
    let parts: Vec<String> = all().into_iter().map(|(name, limit)| format!("{name} = {limit}")).collect();
    parts.join(", ")
}

/// The error when the system made fewer sessions than were asked for; `code` is the caller's.
pub fn refused(code: &str, made: u32, sessions: u32, kind: Kind, error: &io::Error) -> Report {
    miette!(
        code = code,
        help = format!("limits here: {}", line()),
        "the system made {made} of {sessions} {}: {error}",
        kind.name()
    )
}
