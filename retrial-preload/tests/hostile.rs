//! Programs where much is refused: small limits, system calls that fail always or once, namespaces without
//! their usual files, real-time priorities.
//!
//! Each program has to do what it does with libc alone in the same place, in silence, or after the one line
//! that says that locks are left to libc. A program that fails with libc alone shows nothing there, and the
//! test says that it left it out.

mod kit;

use kit::{compiled, library, not_tested, program};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Programs that are quick and between them come by all that waits, forks and ends.
const PROGRAMS: [&str; 5] = ["c11", "execs", "fork", "mutex_kinds", "thread_churn"];

/// Whose the locks are in such a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Locks {
    /// The library's: it says nothing.
    Ours,
    /// The library may not get what it needs, and leaves them to libc, in one line.
    Libcs,
}
use Locks::{Libcs, Ours};

/// Places, as what a shell does before it starts the program.
#[rustfmt::skip]
const PLACES: [(&str, Locks); 25] = [
    ("ulimit -v 4000000", Ours),
    ("ulimit -v 200000", Libcs),
    ("ulimit -d 50000", Ours),
    ("ulimit -f 100000", Ours),
    ("ulimit -f 1000", Libcs),
    ("ulimit -f 0", Libcs),
    ("ulimit -n 4", Ours),
    ("ulimit -n 16", Ours),
    ("ulimit -s 256", Ours),
    ("ulimit -c 0", Ours),
    ("set -- prlimit --sigpending=0 \"$@\"", Ours),
    ("ulimit -l 0", Ours),
    ("set -- setpriv --reuid 65534 --clear-groups prlimit --nproc=64 \"$@\"", Ours),
    ("set -- setpriv --reuid 65534 --clear-groups prlimit --memlock=0 \"$@\"", Ours),
    ("set -- chrt --fifo 1 \"$@\"", Ours),
    ("set -- chrt --rr 50 \"$@\"", Ours),
    ("set -- chrt --batch 0 \"$@\"", Ours),
    ("set -- chrt --idle 0 \"$@\"", Ours),
    ("set -- chrt --fifo 1 prlimit --rttime=5000000 \"$@\"", Ours),
    ("set -- taskset 1 \"$@\"", Ours),
    ("set -- unshare --user --map-root-user \"$@\"", Ours),
    ("set -- unshare --pid --fork \"$@\"", Ours),
    ("set -- unshare --mount sh -c 'mount -t tmpfs -o ro none /dev/shm && exec \"$@\"' sh \"$@\"", Ours),
    ("set -- unshare --mount sh -c 'mount -t tmpfs -o size=4096 none /dev/shm && exec \"$@\"' sh \"$@\"", Ours),
    ("set -- unshare --mount sh -c 'mount -t tmpfs none /proc && exec \"$@\"' sh \"$@\"", Ours),
];

/// System calls that the library makes and libc's locks do not, each by the error with which it is refused.
#[rustfmt::skip]
const CALLS: [(libc::c_long, &str, i32, Locks); 17] = [
    (libc::SYS_clock_nanosleep, "clock_nanosleep", libc::EPERM, Ours),
    (libc::SYS_ftruncate, "ftruncate", libc::EPERM, Libcs),
    (libc::SYS_get_robust_list, "get_robust_list", libc::EPERM, Ours),
    (libc::SYS_getrandom, "getrandom", libc::ENOSYS, Ours),
    (libc::SYS_lseek, "lseek", libc::EPERM, Ours),
    (libc::SYS_madvise, "madvise", libc::EPERM, Ours),
    (libc::SYS_madvise, "madvise", libc::ENOMEM, Libcs),
    (libc::SYS_membarrier, "membarrier", libc::EPERM, Ours),
    (libc::SYS_membarrier, "membarrier", libc::ENOSYS, Ours),
    (libc::SYS_memfd_create, "memfd_create", libc::EPERM, Libcs),
    (libc::SYS_process_vm_readv, "process_vm_readv", libc::EPERM, Ours),
    (libc::SYS_readlinkat, "readlinkat", libc::EPERM, Ours),
    (libc::SYS_sched_getaffinity, "sched_getaffinity", libc::EPERM, Ours),
    (libc::SYS_sched_getscheduler, "sched_getscheduler", libc::EPERM, Ours),
    (libc::SYS_sched_yield, "sched_yield", libc::EPERM, Ours),
    (libc::SYS_statx, "statx", libc::EPERM, Ours),
    (libc::SYS_tgkill, "tgkill", libc::EPERM, Ours),
];

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("it starts")
}

/// Whether a program said nothing, or that locks are left to libc, which it and its children may each say once.
fn is_quiet(output: &Output, locks: Locks) -> bool {
    let text = String::from_utf8_lossy(&output.stderr);
    let is_said = |line: &str| locks == Libcs && line.starts_with("retrial: locks are left to libc: ");
    output.stdout.is_empty() && text.lines().all(is_said)
}

/// Compares a program with libc alone and with the library; `command` makes the command that preloads these.
/// Whether it ran.
fn compare(place: &str, locks: Locks, name: &str, command: impl Fn(&[&Path]) -> Command) -> bool {
    let plain = run(&mut command(&[]));
    if !plain.status.success() {
        eprintln!("left out: {name} under `{place}` fails with libc alone: {}", plain.status);
        return false;
    }
    let output = run(&mut command(&[library()]));
    let found = format!("ended with {}:\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    let is_good = output.status.success() && is_quiet(&output, locks);
    // A limit that is nearly reached is exceeded now and then on a busy machine, whatever has the locks.
    if !is_good && (0..PLAIN_AGAIN).any(|_| !run(&mut command(&[])).status.success()) {
        eprintln!("left out: {name} under `{place}` fails with libc alone at times; now it {found}");
        return false;
    }
    assert!(is_good, "{name} under `{place}` {found}");
    true
}

/// Times that a program runs with libc alone after it has failed with the library.
const PLAIN_AGAIN: u32 = 5;

fn list(objects: &[&Path]) -> String {
    objects.iter().map(|object| object.display().to_string()).collect::<Vec<_>>().join(":")
}

#[test]
fn programs_pass_within_limits_namespaces_and_priorities() {
    let mut ran = 0;
    for name in PROGRAMS {
        let program = program(name);
        for (place, locks) in PLACES {
            ran += u32::from(compare(place, locks, name, |preloaded| {
                let mut command = Command::new("sh");
                command.args(["-c", &format!("{place} && exec \"$@\""), "sh", "env"]);
                command.arg(format!("LD_PRELOAD={}", list(preloaded))).arg(&program);
                command
            }));
        }
    }
    assert!(ran > 0);
}

/// From before the library starts, and from after it has started: constructors run from the last of the list
/// to the first.
#[test]
fn programs_pass_where_a_system_call_is_refused() {
    let refuse = compiled("refuse", &["-shared", "-fPIC"]);
    let mut ran = 0;
    for name in ["c11", "mutex_kinds"] {
        let program = program(name);
        for (number, call, error, locks) in CALLS {
            for is_late in [false, true] {
                let place = format!("{call} = error {error}, {}", if is_late { "late" } else { "early" });
                ran += u32::from(compare(&place, locks, name, |preloaded| {
                    let mut objects = preloaded.to_vec();
                    objects.insert(if is_late { 0 } else { preloaded.len() }, &refuse);
                    let mut command = Command::new(&program);
                    command.env("LD_PRELOAD", list(&objects)).env("REFUSE", format!("{number} {error}"));
                    command
                }));
            }
        }
    }
    assert!(ran > 0);
}

/// Every system call of the library fails once in each thread: the first of its kind.
#[test]
fn programs_pass_when_a_system_call_fails_once() {
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        not_tested("no strace");
        return;
    }
    let traced = |call: &str, what: &str| {
        let mut command = Command::new("strace");
        command.args(["-f", "--seccomp-bpf", "-qqq", "-o", "/dev/null", "-e"]).arg(format!("trace={call}"));
        command.args(["-e", what]);
        command
    };
    if !run(traced("tgkill", "inject=tgkill:error=EPERM").arg("true")).status.success() {
        not_tested("strace may not trace");
        return;
    }
    let program = program("c11");
    for (_, call, error, locks) in CALLS {
        let what = format!("inject={call}:error={error}:when=1");
        compare(&what, locks, "c11", |preloaded| {
            let mut command = traced(call, &what);
            command.arg("-E").arg(format!("LD_PRELOAD={}", list(preloaded))).arg(&program);
            command
        });
    }
}
