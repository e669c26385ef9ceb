//! A process that is looked at from outside: whether that is possible, its threads, its memory.

use super::futex::{BYTES, Found};
use crate::run::preload;
use crate::run::record;
use crate::run::variables::Modules;
use crate::who::thread::Syscall;
use miette::{Report, miette};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};

/// Number of ancestors of a process that are asked for.
const GENERATIONS: usize = 32;

/// A process of which the kernel lets us see threads and memory.
pub struct Process {
    pub pid: u32,
    pub modules: Modules,
    maps: String,
    /// Whether the process has numbers of its own for its threads, as in a container.
    pub is_nested: bool,
    /// Numbers of threads as the process knows them, with ours.
    ours: HashMap<u32, u32>,
}

/// A thread that sleeps in a system call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sleeper {
    pub tid: u32,
    pub call: Syscall,
    pub is_in_futex: bool,
}

impl Process {
    pub fn open(pid: u32) -> Result<Self, Report> {
        let status = read(pid, "status").map_err(|_| none(pid))?;
        // The number of any of its threads leads to a process.
        let pid = field(&status, "Tgid").and_then(|text| text.parse().ok()).unwrap_or(pid);
        let tids = tids(pid).ok_or_else(|| ended(pid))?;
        let alive = |tid: &u32| status_of(*tid).is_some_and(|status| !is_ending(&status));
        let Some(first) = tids.into_iter().find(alive) else { return Err(ended(pid)) };
        let command = format!("attach {pid}");
        let maps = read(first, "maps").map_err(|error| denied(pid, "maps", &error, &command))?;
        if maps.is_empty() {
            return Err(miette!(
                code = "retrial::process::kernel",
                help = "retrial attach PID; ps -e",
                "process {pid} is a thread of the kernel, expected a program"
            ));
        }
        if maps.contains(preload::FILE) {
            return Err(miette!(
                code = "retrial::process::run",
                help = format!("retrial who -p {pid}, retrial top -p {pid}"),
                "process {pid} is under `retrial run`, expected one that is not: its locks are counted and timed already"
            ));
        }
        read(first, "syscall").map_err(|error| denied(pid, "syscall", &error, &command))?;
        if is_32_bit(first) {
            return Err(miette!(
                code = "retrial::process::bits",
                help = format!("file -L /proc/{pid}/exe"),
                "process {pid} is a 32-bit program, expected one of 64 bits: its mutexes are laid out in another way"
            ));
        }
        let is_nested = field(&status, "NSpid").is_some_and(|numbers| numbers.split_whitespace().count() > 1);
        Ok(Self { pid, modules: Modules::parse(&maps), maps, is_nested, ours: HashMap::new() })
    }

    /// Reads anew what is mapped: a program loads libraries as it goes.
    pub fn map_again(&mut self) {
        let maps =
            tids(self.pid).into_iter().flatten().find_map(|tid| read(tid, "maps").ok().filter(|m| !m.is_empty()));
        if let Some(maps) = maps.filter(|maps| *maps != self.maps) {
            self.modules = Modules::parse(&maps);
            self.maps = maps;
        }
    }

    /// Its threads.
    pub fn threads(&mut self) -> Result<Vec<u32>, Report> {
        let tids = tids(self.pid).ok_or_else(|| ended(self.pid))?;
        if self.is_nested {
            for tid in &tids {
                let own = || field(&status_of(*tid)?, "NSpid")?.split_whitespace().last()?.parse().ok();
                if !self.ours.values().any(|known| known == tid)
                    && let Some(own) = own()
                {
                    self.ours.insert(own, *tid);
                }
            }
        }
        Ok(tids)
    }

    /// That the process is there, and not only its entry, which waits for its parent.
    pub fn check(&self) -> Result<(), Report> {
        let mut tids = tids(self.pid).into_iter().flatten();
        let alive = tids.any(|tid| status_of(tid).is_some_and(|status| !is_ending(&status)));
        if alive { Ok(()) } else { Err(ended(self.pid)) }
    }

    /// The thread that the process knows by this number; `None` where it has no such thread.
    pub fn thread(&self, own: u32, tids: &[u32]) -> Option<u32> {
        let tid = if self.is_nested { *self.ours.get(&own)? } else { own };
        tids.binary_search(&tid).is_ok().then_some(tid)
    }

    /// The process of a thread that is none of this one's; `None` where there is none that we see.
    pub fn other_process_of(&self, own: u32) -> Option<u32> {
        // Another PID namespace has the same numbers for other threads.
        let status = status_of(own).filter(|_| !self.is_nested)?;
        field(&status, "Tgid")?.parse().ok().filter(|pid| *pid != self.pid && !is_ending(&status))
    }

    /// Whether it was made by fork of that process, or of one that was.
    pub fn descends_from(&self, pid: u32) -> bool {
        let parent = |pid: &u32| field(&status_of(*pid)?, "PPid")?.parse().ok();
        std::iter::successors(Some(self.pid), parent).take(GENERATIONS).any(|ancestor| ancestor == pid)
    }

    /// A thread that sleeps in a system call; `None` of one that runs, and where we may not know.
    pub fn sleeper(&self, tid: u32) -> Option<Sleeper> {
        let read = |file: &str| fs::read_to_string(format!("/proc/{}/task/{tid}/{file}", self.pid)).ok();
        let call = Syscall::parse(&read("syscall")?)?;
        let is_restarted = call.number == libc::SYS_restart_syscall;
        let is_in_futex = is_restarted && read("wchan").is_some_and(|wchan| wchan.contains("futex"));
        Some(Sleeper { tid, call, is_in_futex })
    }

    /// How often a thread has been taken from a processor: it has slept all the time while that stays.
    pub fn switches(&self, tid: u32) -> Option<(u64, u64)> {
        let status = fs::read_to_string(format!("/proc/{}/task/{tid}/status", self.pid)).ok()?;
        let count = |name: &str| field(&status, name)?.parse().ok();
        Some((count("voluntary_ctxt_switches")?, count("nonvoluntary_ctxt_switches")?))
    }

    /// What lies at an address; `None` where so many bytes cannot be read.
    pub fn found(&self, address: u64) -> Option<Found> {
        let mut bytes = [[0; BYTES]];
        let count = record::read(self.pid, std::iter::once(address), &mut bytes).ok()?;
        (count == 1).then(|| Found::parse(&bytes[0]))
    }

    /// What kind of memory has an address, and how far from its start: `[heap]+0x2a0`.
    pub fn memory(&self, address: u64) -> Option<String> {
        self.maps.lines().find_map(|line| {
            let mut fields = line.splitn(6, ' ');
            let (start, end) = fields.next()?.split_once('-')?;
            let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
            let name = Some(fields.nth(4).unwrap_or_default().trim()).filter(|name| !name.is_empty());
            let text = || format!("{}+{:#x}", name.unwrap_or("anonymous memory"), address - start);
            (start..end).contains(&address).then(text)
        })
    }

    /// The name of a thread.
    pub fn comm(&self, tid: u32) -> String {
        comm(self.pid, tid)
    }
}

fn read(pid: u32, file: &str) -> io::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}"))
}

fn status_of(tid: u32) -> Option<String> {
    read(tid, "status").ok()
}

pub fn comm(pid: u32, tid: u32) -> String {
    fs::read(format!("/proc/{pid}/task/{tid}/comm"))
        .map(|name| String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned())
        .unwrap_or_default()
}

/// Threads of a process in the order of their numbers; `None` when it is gone.
fn tids(pid: u32) -> Option<Vec<u32>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut tids: Vec<u32> = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    tids.sort_unstable();
    (!tids.is_empty()).then_some(tids)
}

/// A field of `status`.
fn field<'s>(status: &'s str, name: &str) -> Option<&'s str> {
    status.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

fn is_ending(status: &str) -> bool {
    field(status, "State").is_some_and(|state| state.starts_with(['Z', 'X']))
}

fn is_32_bit(pid: u32) -> bool {
    let mut head = [0; 5];
    let read = File::open(format!("/proc/{pid}/exe")).and_then(|mut file| file.read_exact(&mut head));
    // The fifth byte is the class: 1 of 32 bits.
    read.is_ok() && head == *b"\x7fELF\x01"
}

fn none(pid: u32) -> Report {
    miette!(
        code = "retrial::process::none",
        help = "ps -e; pgrep -a PROGRAM",
        "process {pid} is not there, expected the number of one that lives"
    )
}

pub fn ended(pid: u32) -> Report {
    miette!(
        code = "retrial::process::ended",
        help = "retrial run -- PROGRAM, which reports when the program ends",
        "process {pid} has ended, expected one that lives"
    )
}

/// The kernel keeps a process from us: why, as far as that can be known, and what to type, where the command
/// is `retrial` with this `command`.
pub fn denied(pid: u32, file: &str, error: &io::Error, command: &str) -> Report {
    if error.kind() == io::ErrorKind::NotFound && !std::path::Path::new(&format!("/proc/{pid}")).exists() {
        return ended(pid);
    }
    let uid = |pid: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        field(&status, "Uid")?.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let (we, it) = (uid("self"), uid(&pid.to_string()));
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok().and_then(|text| text.trim().parse().ok());
    let (why, help) = reason(command, we, it, scope.unwrap_or(0));
    miette!(
        code = "retrial::process::permission",
        help = help,
        "/proc/{pid}/{file}: {error}; {why}, expected a process whose threads and memory we may read"
    )
}

/// Why a process cannot be read, by the users and Yama's `ptrace_scope`, and what to type.
fn reason(command: &str, we: Option<u32>, it: Option<u32>, scope: u32) -> (String, String) {
    let as_root = format!("sudo retrial {command}");
    match (we, it) {
        _ if scope >= 3 => (
            "ptrace_scope is 3: nobody may, until the machine starts anew".to_owned(),
            "sysctl kernel.yama.ptrace_scope".to_owned(),
        ),
        (Some(0), _) => (
            "this root may not look into other processes".to_owned(),
            "in a container: docker run --cap-add SYS_PTRACE …; or type it on the host".to_owned(),
        ),
        (Some(we), Some(it)) if we != it => (format!("it is user {it}'s"), as_root),
        _ if scope > 0 => (
            format!("ptrace_scope is {scope}: only root may"),
            format!("{as_root}, or: sudo sysctl kernel.yama.ptrace_scope=0"),
        ),
        _ => ("the program has more rights than this user, or has asked the kernel for it".to_owned(), as_root),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_something_to_type() {
        let says = |we, it, scope, why: &str, help: &str| {
            let (found, typed) = reason("attach 7", Some(we), Some(it), scope);
            assert!(found.contains(why) && typed.contains(help), "{found}; {typed}");
        };
        says(1000, 0, 0, "user 0's", "sudo retrial attach 7");
        says(1000, 1000, 1, "ptrace_scope is 1", "sysctl kernel.yama.ptrace_scope=0");
        says(0, 1000, 0, "this root", "SYS_PTRACE");
        says(1000, 1000, 0, "more rights", "sudo retrial attach 7");
        says(0, 0, 3, "starts anew", "sysctl");
    }

    #[test]
    fn fields_and_kinds_of_memory_are_found() {
        let status = "Name:\ta\nState:\tZ (zombie)\nTgid:\t12\nNSpid:\t12\t3\n";
        assert_eq!(
            (field(status, "Tgid"), field(status, "NSpid"), field(status, "Uid")),
            (Some("12"), Some("12\t3"), None)
        );
        assert!(is_ending(status));
        let process = Process::open(std::process::id()).unwrap();
        let boxed = Box::new(7_u64);
        let memory = process.memory(&raw const *boxed as u64).unwrap();
        assert!(memory.contains("+0x"), "{memory}");
        assert_eq!(process.memory(8), None);
    }

    #[test]
    fn a_number_that_is_no_process_is_said_to_be_none() {
        let error = Process::open(999_999_999).err().unwrap();
        assert!(error.to_string().contains("999999999 is not there"), "{error}");
    }
}
