//! The checks, as data: what is looked at, what it means for waits, what to type.

use super::machine::{Machine, Space};
use crate::cgroup;
use crate::output::grouped;
use std::path::Path;

/// How much a finding matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    Fine,
    /// Something is not shown, or less is possible.
    Limits,
    /// Waits take longer than they would have to.
    Slows,
    /// retrial does not work.
    Stops,
}

impl Verdict {
    pub const fn name(self) -> &'static str {
        ["fine", "limits", "slows", "STOPS"][self as usize]
    }
}

/// A thing to look at.
pub struct Check {
    pub name: &'static str,
    pub look: fn(&Machine<'_>) -> Finding,
}

/// What was found, what it means for waits, and what to type to change or to look further; empty where there
/// is nothing to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub verdict: Verdict,
    pub found: String,
    pub means: &'static str,
    pub command: String,
}

/// Every check, in the order in which they are told.
pub const CHECKS: &[Check] = &[
    Check { name: "instance", look: instance },
    Check { name: "shared_memory", look: shared_memory },
    Check { name: "preload_library", look: preload_library },
    Check { name: "kernel", look: kernel },
    Check { name: "membarrier", look: membarrier },
    Check { name: "seccomp", look: seccomp },
    Check { name: "process_memory", look: process_memory },
    Check { name: "ptrace_scope", look: ptrace_scope },
    Check { name: "perf_event_paranoid", look: perf_events },
    Check { name: "open_files", look: open_files },
    Check { name: "file_size", look: file_size },
    Check { name: "locked_memory", look: locked_memory },
    Check { name: "threads", look: threads },
    Check { name: "processors", look: processors },
    Check { name: "cgroup_quota", look: cgroup_quota },
    Check { name: "pressure", look: pressure },
    Check { name: "virtualisation", look: virtualisation },
    Check { name: "governor", look: governor },
    Check { name: "timer_slack", look: timer_slack },
    Check { name: "huge_pages", look: huge_pages },
];

fn finding(verdict: Verdict, found: impl Into<String>, means: &'static str, command: impl Into<String>) -> Finding {
    Finding { verdict, found: found.into(), means, command: command.into() }
}

fn fine(found: impl Into<String>, means: &'static str) -> Finding {
    finding(Verdict::Fine, found, means, "")
}

/// Bytes for people.
fn bytes(bytes: u64) -> String {
    let units = [(1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB")];
    let (size, unit) = units.into_iter().find(|(size, _)| bytes >= *size).unwrap_or((1, "bytes"));
    format!("{} {unit}", crate::output::short(bytes as f64 / size as f64))
}

fn instance(machine: &Machine<'_>) -> Finding {
    match &machine.instance {
        Ok(_) => fine("made, a mutex in it got and given back, removed", "mutexes in shared memory work"),
        Err(error) => finding(
            Verdict::Stops,
            error.clone(),
            "no instance can be made, so nothing of retrial works",
            format!("ls -ld {0}; df -h {0}", retrial::layout::DIRECTORY),
        ),
    }
}

/// A default instance that is in use has some MB of memory.
const FREE_MIN: u64 = 64 << 20;

fn shared_memory(machine: &Machine<'_>) -> Finding {
    let Some(Space { size, free }) = machine.shm else {
        return finding(
            Verdict::Stops,
            format!("no {}", retrial::layout::DIRECTORY),
            "instances lie there",
            "mount -t tmpfs tmpfs /dev/shm; in a container: docker run --ipc=private --shm-size=1g …",
        );
    };
    let found = format!("{} of {} free", bytes(free), bytes(size));
    if free < FREE_MIN {
        let means = "an instance that grows with its sessions may find no memory, which is a typed error";
        return finding(Verdict::Limits, found, means, "mount -o remount,size=1G /dev/shm; docker run --shm-size=1g …");
    }
    fine(found, "instances take memory there as sessions use it")
}

fn preload_library(machine: &Machine<'_>) -> Finding {
    match &machine.preload {
        Ok(path) => fine(path.clone(), "`retrial run` can put programs on retrial mutexes"),
        Err(error) => finding(
            Verdict::Limits,
            error.clone(),
            "`retrial run` does not work; instances do",
            "unset RETRIAL_PRELOAD_LIBRARY; XDG_CACHE_HOME=/a/directory/of/yours retrial run …",
        ),
    }
}

fn kernel(machine: &Machine<'_>) -> Finding {
    let Some(release) = (machine.read)("/proc/sys/kernel/osrelease") else {
        return finding(
            Verdict::Limits,
            "not told",
            "`/proc` is not there: no tool can look at threads",
            "mount -t proc proc /proc",
        );
    };
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (4, 14) {
        let means = "before 4.14 there is no membarrier for this: each release has a fence, and under `retrial run` no thread has a session";
        return finding(Verdict::Slows, release, means, "uname -r; boot a newer kernel");
    }
    fine(release, "has all that waits need")
}

fn membarrier(machine: &Machine<'_>) -> Finding {
    match machine.instance {
        Ok(made) if made.has_barrier => fine("granted", "a release is one plain store; who parks pays for the barrier"),
        Ok(_) => finding(
            Verdict::Slows,
            "refused",
            "each release has a fence instead of a plain store: some ns for each get and release, more beside waiters",
            "allow membarrier in the sandbox: docker run --security-opt seccomp=…",
        ),
        Err(_) => finding(Verdict::Limits, "not tried", "without an instance it is not known", ""),
    }
}

fn seccomp(machine: &Machine<'_>) -> Finding {
    let status = (machine.read)("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        Some(line.rsplit(['\t', ' ']).next()?.to_owned())
    };
    match field("Seccomp:").as_deref() {
        Some("0") => fine("no filter", "no system call is refused by a sandbox"),
        Some(mode @ ("1" | "2")) => finding(
            Verdict::Limits,
            format!("mode {mode}, {} filters", field("Seccomp_filters:").unwrap_or_else(|| "some".to_owned())),
            "a sandbox may refuse calls; each has a fallback, which may poll (docs/INTERPOSER.md has the table)",
            "grep Seccomp /proc/self/status; docker run --security-opt seccomp=unconfined … to compare",
        ),
        _ => finding(Verdict::Limits, "not told", "whether a sandbox refuses calls is not known", ""),
    }
}

fn process_memory(machine: &Machine<'_>) -> Finding {
    if machine.reads_processes {
        return fine(
            "process_vm_readv works",
            "holders of mutexes in processes' memory can be read, where ptrace_scope allows it",
        );
    }
    finding(
        Verdict::Limits,
        "process_vm_readv is refused, even of this process",
        "under `retrial run` holders, gets and utilization of a program's locks are not seen; waits are",
        "docker run --cap-add SYS_PTRACE …, or allow process_vm_readv in the sandbox",
    )
}

fn ptrace_scope(machine: &Machine<'_>) -> Finding {
    let Some(scope) = (machine.read)("/proc/sys/kernel/yama/ptrace_scope") else {
        return fine("no Yama", "who may debug a process may see the holders of its locks and their calls");
    };
    let found = scope.clone();
    match scope.as_str() {
        "0" => fine(found, "who may debug a process may see the holders of its locks and their calls"),
        "1" | "2" if machine.is_root => {
            fine(found, "root sees the holders of every program's locks; other users do not")
        }
        "1" => finding(
            Verdict::Limits,
            found,
            "only the parent may read a process: `ps`, `who` and `show` tell the holder at the waiter's last step; the report of `retrial run` tells all",
            "sudo retrial who …, or: sysctl kernel.yama.ptrace_scope=0",
        ),
        _ => finding(
            Verdict::Limits,
            found,
            "no process may read another one: holders of a program's locks are told as its waiters last saw them",
            "sysctl kernel.yama.ptrace_scope (3 stays until the next boot)",
        ),
    }
}

fn perf_events(machine: &Machine<'_>) -> Finding {
    let Some(text) = (machine.read)("/proc/sys/kernel/perf_event_paranoid") else {
        return finding(Verdict::Limits, "no perf events", "perf and bpftrace do not work; retrial does without", "");
    };
    let level: i32 = text.parse().unwrap_or(4);
    if machine.is_root || level <= 1 {
        return fine(text, "perf shows what a holder runs, in the kernel too; retrial does without");
    }
    let means = "perf shows users their own programs outside of the kernel, from 3 on nothing; retrial does without";
    finding(Verdict::Limits, text, means, "sysctl kernel.perf_event_paranoid=1, or perf as root")
}

fn open_files(machine: &Machine<'_>) -> Finding {
    match machine.limits.files {
        Some(files) if files < 64 => finding(
            Verdict::Limits,
            grouped(files),
            "a command has an instance, its processes' files and its output open: some dozens",
            "ulimit -n 1024",
        ),
        files => fine(
            files.map_or_else(|| "no limit".to_owned(), grouped),
            "an instance is one open file while it is mapped, then none",
        ),
    }
}

fn file_size(machine: &Machine<'_>) -> Finding {
    let needed = machine.instance.as_ref().map_or(u64::MAX, |made| made.bytes);
    match machine.limits.file_bytes {
        Some(limit) if limit < needed => finding(
            Verdict::Limits,
            bytes(limit),
            "an instance is a file, mostly holes: with the default sizes it is longer than this, and `retrial run` makes one of fewer sessions",
            "ulimit -f unlimited, or: retrial create NAME --sessions 64",
        ),
        limit => fine(limit.map_or_else(|| "no limit".to_owned(), bytes), "instances of the default sizes can be made"),
    }
}

/// What `mlockall` locks of an instance in a program under `retrial run`.
const LOCKED: u64 = 7 << 20;

fn locked_memory(machine: &Machine<'_>) -> Finding {
    match machine.limits.locked_bytes {
        Some(limit) if limit < LOCKED && !machine.is_root => finding(
            Verdict::Limits,
            bytes(limit),
            "a program that calls mlockall locks some 7 MB more under `retrial run`, and may be refused; others lock nothing",
            "ulimit -l 65536",
        ),
        limit => fine(
            limit.map_or_else(|| "no limit".to_owned(), bytes),
            "locked programs have room for the instance; nothing else of retrial locks memory",
        ),
    }
}

/// Sessions that `retrial run` makes room for.
const SESSIONS: u64 = retrial::Capacity::SESSIONS_OF_ANY_PROGRAM as u64;

fn threads(machine: &Machine<'_>) -> Finding {
    let groups = cgroup::files(machine.read, "self", "pids.max");
    let of_groups = groups.iter().filter_map(|(_, text)| text.parse().ok());
    let limit: Option<u64> = machine.limits.threads.filter(|_| !machine.is_root).into_iter().chain(of_groups).min();
    match limit {
        Some(limit) if limit < SESSIONS => finding(
            Verdict::Limits,
            grouped(limit),
            "a user or container has no more threads than this, so no more sessions; retrial adds none, but observers of `retrial run`",
            "ulimit -u; cat /sys/fs/cgroup/pids.max; docker run --pids-limit=-1 …",
        ),
        limit => fine(
            limit.map_or_else(|| "no limit".to_owned(), grouped),
            "there may be as many sessions as an instance has room for",
        ),
    }
}

fn processors(machine: &Machine<'_>) -> Finding {
    let online = (machine.read)("/proc/cpuinfo").map_or(0, |text| text.matches("processor\t").count());
    let ours = std::thread::available_parallelism().map_or(1, usize::from);
    let found = if online > ours { format!("{ours} of {online}") } else { ours.to_string() };
    if ours == 1 {
        let means = "with one processor a spin cannot be answered: sessions that wait yield or park at once, and throughput is the scheduler's";
        return finding(Verdict::Slows, found, means, "taskset -cp $$; nproc --all");
    }
    fine(found, "sessions beyond this number wait for a processor first: their waits are for the CPU, not the mutex")
}

fn cgroup_quota(machine: &Machine<'_>) -> Finding {
    let quotas = cgroup::quotas(machine.read, "self");
    let Some(processors) = cgroup::least(&quotas) else {
        return fine("none", "no holder is stopped for having used up its group's time");
    };
    // The kernel counts for each group how often its own quota was used up.
    let used_up = |group: &Path| -> Option<u64> {
        let stat = (machine.read)(group.join("cpu.stat").to_str()?)?;
        stat.lines().find_map(|line| line.strip_prefix("nr_throttled "))?.parse().ok()
    };
    let throttled = quotas.iter().filter_map(|(group, _)| used_up(group)).reduce(|a, b| a + b);
    let times = throttled.map_or_else(|| "?".to_owned(), |times| times.to_string());
    let found = format!("{} processors, {times} times used up", crate::output::short(processors));
    let means = "when the quota is used up, the holder stops with its mutexes for up to 100 ms, and all others wait";
    let verdict = if throttled == Some(0) { Verdict::Limits } else { Verdict::Slows };
    finding(verdict, found, means, "raise the quota (docker run --cpus=…), or let fewer threads run")
}

fn pressure(machine: &Machine<'_>) -> Finding {
    let Some(text) = (machine.read)("/proc/pressure/cpu") else {
        return finding(
            Verdict::Limits,
            "not told",
            "how much waiting is for processors has to be guessed from oversleep",
            "boot with psi=1",
        );
    };
    let tenths = text.split_once("avg10=").and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
    let share = tenths.unwrap_or(0.0);
    let found = format!("{share} % of the last 10 s a thread waited for a processor");
    if share >= 20.0 {
        let means =
            "waits that look like contention may be for the CPU: a holder that is not on a processor keeps its mutexes";
        return finding(Verdict::Slows, found, means, "top; fewer threads, or more processors");
    }
    fine(found, "processors are there when a woken session needs one")
}

/// Share of the processors' time since boot from which on a hypervisor's other machines matter.
const STEAL: f64 = 0.01;

fn virtualisation(machine: &Machine<'_>) -> Finding {
    let is_virtual = (machine.read)("/proc/cpuinfo").is_some_and(|text| {
        text.lines()
            .find(|line| line.starts_with("flags"))
            .is_some_and(|flags| flags.ends_with(" hypervisor") || flags.contains(" hypervisor "))
    });
    let stat = (machine.read)("/proc/stat").unwrap_or_default();
    let ticks: Vec<f64> =
        stat.lines().next().unwrap_or("").split_whitespace().skip(1).map_while(|t| t.parse().ok()).collect();
    let all: f64 = ticks.iter().take(8).sum();
    let steal = ticks.get(7).map_or(0.0, |steal| steal / all.max(1.0));
    let kind = if is_virtual { "virtual" } else { "no hypervisor told" };
    let found = format!("{kind}, {} % of the time since boot stolen", crate::output::short(steal * 100.0));
    if steal >= STEAL {
        let means = "the hypervisor takes processors away from holders, which nothing inside sees: longest waits grow to its time slices";
        return finding(
            Verdict::Slows,
            found,
            means,
            "vmstat 1 (column st); pin virtual processors, or move the machine",
        );
    }
    if is_virtual {
        return fine(
            found,
            "wake-ups on another processor go through the hypervisor: some 10 us more than on bare metal",
        );
    }
    fine(found, "processors are this machine's alone")
}

fn governor(machine: &Machine<'_>) -> Finding {
    let Some(governor) = (machine.read)("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") else {
        return fine("not told, as in most virtual machines", "the frequency is the host's");
    };
    if governor == "powersave" || governor == "conservative" {
        let means = "slow clocks stretch sections and spins, so that waits grow with the idle time between them";
        return finding(Verdict::Slows, governor, means, "cpupower frequency-set -g performance");
    }
    fine(governor, "the clock follows the load")
}

/// The kernel's default, in ns.
const SLACK: u64 = 50_000;

fn timer_slack(machine: &Machine<'_>) -> Finding {
    let Some(slack) = machine.timer_slack_ns else {
        return finding(
            Verdict::Limits,
            "not told",
            "how much longer sleeps take than asked is not known",
            "retrial calibrate",
        );
    };
    let found = format!("{} us", crate::output::short(slack as f64 / 1e3));
    if slack > SLACK {
        let means = "timed sleeps and parks take up to this much longer than asked: it is in `over_pct`, and in each retry of a scheme that sleeps";
        return finding(
            Verdict::Slows,
            found,
            means,
            "echo 50000 > /proc/PID/timerslack_ns (as root); retrial calibrate",
        );
    }
    let means = "timed sleeps take up to this much longer than asked; of ms it is little, of us it is most. Wake-ups are not timed";
    fine(found, means)
}

fn huge_pages(machine: &Machine<'_>) -> Finding {
    let chosen = |path: &str| {
        let text = (machine.read)(path)?;
        Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
    };
    let all = chosen("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_else(|| "not told".to_owned());
    let shared = chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_else(|| "not told".to_owned());
    let found = format!("{all}, of shared memory {shared}");
    if matches!(shared.as_str(), "always" | "force") {
        let means = "an instance takes memory in pieces of 2 MB although it uses little of each: some hundred MB instead of some";
        let command = "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled";
        return finding(Verdict::Limits, found, means, command);
    }
    if all == "always" {
        let means = "a holder's first touch of memory may wait for a huge page to be made free: longest waits of ms";
        return finding(Verdict::Limits, found, means, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
    }
    fine(found, "page faults of a holder are short")
}

#[cfg(test)]
mod tests {
    use super::super::machine::{Limits, Made};
    use super::*;
    use std::collections::HashMap;

    type Files = HashMap<&'static str, &'static str>;

    fn told(name: &str, files: &Files, change: impl Fn(&mut Machine<'_>)) -> Finding {
        let read = |path: &str| files.get(path).map(|text| (*text).to_owned());
        let mut machine = Machine {
            read: &read,
            is_root: false,
            limits: Limits::default(),
            shm: Some(Space { size: 1 << 30, free: 1 << 30 }),
            timer_slack_ns: Some(50_000),
            reads_processes: true,
            instance: Ok(Made { has_barrier: true, bytes: 1 << 20 }),
            preload: Ok("lib".to_owned()),
        };
        change(&mut machine);
        (CHECKS.iter().find(|check| check.name == name).unwrap().look)(&machine)
    }

    fn verdict(name: &str, files: &[(&'static str, &'static str)]) -> Verdict {
        told(name, &files.iter().copied().collect(), |_| {}).verdict
    }

    #[test]
    fn names_are_different_and_what_is_not_fine_says_what_to_type() {
        let mut names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CHECKS.len());
        for check in CHECKS {
            let bare = told(check.name, &Files::new(), |_| {});
            assert!(!bare.found.is_empty() && !bare.means.is_empty(), "{}: {bare:?}", check.name);
            assert!(bare.verdict < Verdict::Slows, "{} without a file: {bare:?}", check.name);
        }
    }

    #[test]
    fn only_what_keeps_retrial_from_working_stops_it() {
        assert_eq!(told("instance", &Files::new(), |m| m.instance = Err("refused".to_owned())).verdict, Verdict::Stops);
        assert_eq!(told("shared_memory", &Files::new(), |m| m.shm = None).verdict, Verdict::Stops);
        let small = told("shared_memory", &Files::new(), |m| m.shm = Some(Space { size: 64 << 20, free: 1 << 20 }));
        assert_eq!((small.verdict, small.found.as_str()), (Verdict::Limits, "1.00 MB of 64.0 MB free"));
        let refused = told("membarrier", &Files::new(), |m| m.instance = Ok(Made { has_barrier: false, bytes: 1 }));
        assert_eq!(refused.verdict, Verdict::Slows);
        assert_eq!(told("preload_library", &Files::new(), |m| m.preload = Err(String::new())).verdict, Verdict::Limits);
    }

    #[test]
    fn the_kernels_files_are_understood() {
        use Verdict::{Fine, Limits, Slows};
        let release = "/proc/sys/kernel/osrelease";
        assert_eq!(verdict("kernel", &[(release, "6.1.0-40-amd64")]), Fine);
        assert_eq!(verdict("kernel", &[(release, "4.9.0")]), Slows);
        let scope = "/proc/sys/kernel/yama/ptrace_scope";
        assert_eq!(["0", "1", "3"].map(|text| verdict("ptrace_scope", &[(scope, text)])), [Fine, Limits, Limits]);
        let paranoid = "/proc/sys/kernel/perf_event_paranoid";
        assert_eq!(
            ["-1", "1", "2"].map(|text| verdict("perf_event_paranoid", &[(paranoid, text)])),
            [Fine, Fine, Limits]
        );
        let psi = "/proc/pressure/cpu";
        assert_eq!(
            verdict("pressure", &[(psi, "some avg10=46.95 avg60=1.0 avg300=1.0 total=1\nfull avg10=0.00")]),
            Slows
        );
        assert_eq!(verdict("pressure", &[(psi, "some avg10=0.95 avg60=50.0 avg300=1.0 total=1")]), Fine);
        let status = "/proc/self/status";
        assert_eq!(verdict("seccomp", &[(status, "Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0")]), Fine);
        let filtered = told("seccomp", &Files::from([(status, "Seccomp:\t2\nSeccomp_filters:\t3")]), |_| {});
        assert_eq!((filtered.verdict, filtered.found.as_str()), (Limits, "mode 2, 3 filters"));
        let stat = "/proc/stat";
        assert_eq!(verdict("virtualisation", &[(stat, "cpu  100 0 100 780 0 0 0 20 0 0")]), Slows);
        assert_eq!(verdict("virtualisation", &[(stat, "cpu  100 0 100 799 0 0 0 1 0 0")]), Fine);
        let (max, used) = ("/sys/fs/cgroup/a/cpu.max", "/sys/fs/cgroup/a/cpu.stat");
        let group = [("/proc/self/cgroup", "0::/a"), (max, "150000 100000"), (used, "usage_usec 5\nnr_throttled 7")];
        let quota = told("cgroup_quota", &group.into(), |_| {});
        assert_eq!((quota.verdict, quota.found.as_str()), (Slows, "1.50 processors, 7 times used up"));
        assert_eq!(verdict("cgroup_quota", &[("/proc/self/cgroup", "0::/a"), (max, "max 100000")]), Fine);
        // A group above it binds as well.
        let below =
            [("/proc/self/cgroup", "0::/a/b"), ("/sys/fs/cgroup/a/b/cpu.max", "max 100000"), group[1], group[2]];
        assert_eq!(told("cgroup_quota", &below.into(), |_| {}), quota);
        let wide = [below[0], ("/sys/fs/cgroup/a/b/cpu.max", "800000 100000"), group[1], group[2]];
        assert_eq!(told("cgroup_quota", &wide.into(), |_| {}), quota);
        let huge = "/sys/kernel/mm/transparent_hugepage/enabled";
        assert_eq!(verdict("huge_pages", &[(huge, "[always] madvise never")]), Limits);
        assert_eq!(verdict("huge_pages", &[(huge, "always [madvise] never")]), Fine);
    }

    #[test]
    fn limits_count_for_who_they_bind() {
        let locked = |is_root| {
            told("locked_memory", &Files::new(), |m| (m.is_root, m.limits.locked_bytes) = (is_root, Some(64 << 10)))
                .verdict
        };
        assert_eq!((locked(false), locked(true)), (Verdict::Limits, Verdict::Fine));
        let few = told("threads", &Files::from([("/sys/fs/cgroup/pids.max", "100")]), |m| m.is_root = true);
        assert_eq!((few.verdict, few.found.as_str()), (Verdict::Limits, "100"));
        let above =
            [("/proc/self/cgroup", "0::/a"), ("/sys/fs/cgroup/a/pids.max", "max"), ("/sys/fs/cgroup/pids.max", "100")];
        assert_eq!(told("threads", &above.into(), |m| m.is_root = true), few);
        assert_eq!(told("timer_slack", &Files::new(), |m| m.timer_slack_ns = Some(4_000_000)).verdict, Verdict::Slows);
    }
}
