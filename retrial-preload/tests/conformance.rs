//! Programs in C and programs of the system, as they are and with the library preloaded, under every scheme.
//!
//! The C programs do not know who implements the calls: each has to pass as it is. A failure prints the command that
//! repeats it.

mod kit;

use kit::{Named, check, compiled, has_cpp, library, not_tested, preloaded, program};
use retrial::P;
use retrial::interposer::CALLS;
use retrial::wait::NAMES;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The programs. Those of `ONCE` hardly wait, and run under one scheme only; those of `SLOW` wait so often
/// that they are left out where each miss costs a long sleep.
const PROGRAMS: [&str; 31] = [
    "before_all",
    "c11",
    "cancel",
    "cond",
    "cond_users",
    "depth",
    "early",
    "events",
    "execs",
    "fork",
    "fork_first",
    "handler_forks",
    "idle",
    "jumps_out",
    "last_touch",
    "left_locked",
    "min_stack",
    "mutex_exclusion",
    "mutex_kinds",
    "mutex_timed",
    "object_gone",
    "own_wait",
    "past_us",
    "peers",
    "pi",
    "robust",
    "rwlock",
    "signal_held",
    "signal_owed",
    "spin",
    "thread_churn",
];
const ONCE: [&str; 15] = [
    "before_all",
    "cond_users",
    "depth",
    "early",
    "events",
    "execs",
    "fork_first",
    "idle",
    "jumps_out",
    "last_touch",
    "left_locked",
    "mutex_kinds",
    "peers",
    "pi",
    "semaphore",
];
const SLEEPY: [&str; 3] = ["sleep", "backoff", "patch6904068"];
const SLOW: [&str; 8] =
    ["c11", "cancel", "cond", "min_stack", "mutex_exclusion", "mutex_timed", "object_gone", "past_us"];

fn all_programs_pass_under(scheme: &str) {
    let default = NAMES[retrial::wait::DEFAULT];
    for name in PROGRAMS {
        if SLEEPY.contains(&scheme) && SLOW.contains(&name) || scheme != default && ONCE.contains(&name) {
            continue;
        }
        let output = check(&mut preloaded(program(name), scheme));
        assert!(output.stdout.is_empty(), "nothing on standard output");
        assert!(output.stderr.is_empty(), "nothing on standard error");
    }
}

macro_rules! schemes {
    ($( $test:ident $scheme:literal; )*) => {
        $(
            #[test]
            fn $test() {
                all_programs_pass_under($scheme);
            }
        )*

        #[test]
        fn every_scheme_is_tested() {
            assert_eq!([$($scheme),*], NAMES);
        }
    };
}

schemes! {
    programs_pass_under_yield "yield";
    programs_pass_under_sleep "sleep";
    programs_pass_under_backoff "backoff";
    programs_pass_under_10g "10g";
    programs_pass_under_patch6904068 "patch6904068";
    programs_pass_under_latch "latch";
    programs_pass_under_ydb "ydb";
    programs_pass_under_pthread "pthread";
    programs_pass_under_adaptive "adaptive";
    programs_pass_under_orbit "orbit";
}

#[test]
fn programs_pass_as_they_are() {
    for name in PROGRAMS {
        check(&mut Command::new(program(name)));
    }
}

#[test]
fn programs_pass_when_it_is_off() {
    for name in PROGRAMS {
        check(preloaded(program(name), "orbit").env("RETRIAL_PRELOAD", "off"));
    }
}

#[test]
fn a_program_in_cpp_passes_as_it_is_and_with_us() {
    if !has_cpp() {
        not_tested("no C++ compiler");
        return;
    }
    let unwinding = program("unwinding");
    check(&mut Command::new(&unwinding));
    check(preloaded(&unwinding, "orbit").env("RETRIAL_PRELOAD", "off"));
    let output = check(&mut preloaded(&unwinding, "orbit"));
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn every_symbol_is_exported_unversioned() {
    let output = check(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let text = String::from_utf8_lossy(&output.stdout);
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    for (family, calls) in [
        (
            "pthread_mutex_",
            "init destroy lock trylock timedlock clocklock unlock consistent getprioceiling setprioceiling",
        ),
        ("__pthread_mutex_", "init destroy lock trylock unlock"),
        ("pthread_cond_", "init destroy wait timedwait clockwait signal broadcast"),
        (
            "pthread_rwlock_",
            "init destroy rdlock wrlock tryrdlock trywrlock timedrdlock timedwrlock clockrdlock clockwrlock unlock",
        ),
        ("__pthread_rwlock_", "init destroy rdlock wrlock tryrdlock trywrlock unlock"),
        ("pthread_spin_", "init destroy lock trylock unlock"),
        ("pthread_barrier_", "wait"),
        ("sem_", "wait timedwait clockwait"),
        ("mtx_", "init destroy lock trylock timedlock unlock"),
        ("cnd_", "init destroy wait timedwait signal broadcast"),
        ("dl", "open"),
        ("", "prctl syscall"),
    ] {
        for call in calls.split(' ') {
            let name = format!("{family}{call}");
            assert!(names.contains(&name.as_str()), "{name}, without a version");
        }
    }
}

/// As they are in the libc of this machine, whatever its version.
#[test]
fn every_call_of_libc_on_such_an_object_is_exported() {
    let symbols = |file: &Path| {
        let output = check(Command::new("nm").args(["-D", "--defined-only"]).arg(file));
        let text = String::from_utf8(output.stdout).expect("names");
        text.lines().filter_map(|line| line.split_whitespace().nth(2).map(str::to_owned)).collect::<Vec<_>>()
    };
    let ours = symbols(library());
    assert!(ours.iter().all(|name| !name.contains('@')), "a symbol has a version: {ours:?}");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the kernel's list");
    let mut libc: Vec<&str> = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).collect();
    libc.retain(|path| path.contains("/libc.so.6") || path.contains("/libc-2.") || path.contains("/libpthread"));
    libc.dedup();
    let mut calls: Vec<String> = libc.into_iter().flat_map(|path| symbols(Path::new(path))).collect();
    for name in &mut calls {
        name.truncate(name.find('@').unwrap_or(name.len()));
    }
    let families = ["pthread_mutex_", "pthread_cond_", "pthread_rwlock_", "pthread_spin_", "mtx_", "cnd_"];
    calls.retain(|name| families.iter().any(|family| name.trim_start_matches('_').starts_with(family)));
    assert!(calls.len() > 40, "libc's are found: {calls:?}");
    for name in calls {
        assert!(ours.contains(&name), "{name} is exported");
    }
}

/// A probe is a `nop` in code that waits or wakes: a lock that nobody else has is got and given back without one.
#[test]
fn probes_are_there_and_none_is_in_a_call_that_locks() {
    let read = |program: &str, options: &[&str]| {
        let output = check(Command::new(program).args(options).arg(library()));
        String::from_utf8(output.stdout).expect("text")
    };
    let number = |hex: &str| u64::from_str_radix(hex.trim_start_matches("0x"), 16).expect("an address");
    let notes = read("readelf", &["-nW"]);
    for name in ["miss", "wait_begin", "park", "step", "wait_end", "wake", "death", "recovery"] {
        assert!(notes.lines().any(|line| line.trim() == format!("Name: {name}")), "{name} in {notes}");
    }
    let places = notes.lines().filter_map(|line| line.trim().strip_prefix("Location: ")?.split(',').next());
    let places: Vec<u64> = places.map(number).collect();
    // What the exported calls jump to.
    let locks =
        ["mutex::lock", "mutex::unlock", "mutex::lock_any", "mutex::unlock_any", "spin::lock", "rwlock::unlock"];
    let mut seen = Vec::new();
    for line in read("nm", &["-SC", "--defined-only"]).lines() {
        let [start, length, _, name] = line.split_whitespace().collect::<Vec<_>>()[..] else { continue };
        let Some(call) = name.strip_prefix("retrial_preload::").filter(|call| locks.contains(call)) else { continue };
        let range = number(start)..number(start) + number(length);
        assert!(places.iter().all(|place| !range.contains(place)), "a probe in {name}");
        seen.push(call.to_owned());
    }
    for call in locks {
        assert!(seen.iter().any(|seen| seen == call), "{call} is a function: {seen:?}");
    }
}

#[test]
fn a_program_finds_every_symbol_here() {
    check(&mut Command::new(program("symbols")));
    check(preloaded(program("symbols"), "orbit").arg("libretrial_preload.so"));
}

#[test]
fn every_kind_is_counted() {
    let named = Named::new("kinds");
    for name in PROGRAMS {
        check(&mut named.run(program(name)));
    }
    for ((name, handled), count) in CALLS.iter().zip(named.instance.tables().calls()) {
        assert!(count > 0, "{name}, handled: {handled}");
    }
    assert!(named.instance.tables().session_gets() > 0);
}

#[test]
fn what_missed_has_a_place_in_the_program() {
    let named = Named::new("places");
    named.instance.set(P::Scheme, None, retrial::wait::DEFAULT as u64);
    let binary = program("mutex_exclusion");
    check(&mut named.run(&binary));
    let figures = named.instance.tables().figures();
    let names: Vec<String> =
        figures.iter().map(|(_, key, _)| named.instance.tables().location_name(key.location)).collect();
    let prefix = format!("{}+0x", binary.canonicalize().expect("it is there").display());
    assert!(names.iter().any(|name| name.starts_with(&prefix)), "{prefix} is in {names:?}");
    let gets: u64 = named.instance.tables().mutexes().iter().filter_map(|mutex| mutex.gets).sum();
    assert!(gets > 0, "the gets outlive the process");
}

/// Under libc alone some rounds leave them asleep for ever, so this program is not asked to pass as it is.
#[test]
fn who_contends_with_the_killed_goes_on() {
    for scheme in ["pthread", "orbit"] {
        check(preloaded(program("killed"), scheme).arg("30"));
    }
}

#[test]
fn an_allocator_that_locks_may_be_preloaded_before_or_after() {
    let allocator = compiled("allocator", &["-shared", "-fPIC"]);
    for list in [[library(), &*allocator], [&*allocator, library()]] {
        let list = list.map(|path| path.to_str().expect("a path without surprises")).join(":");
        for name in ["early", "cond", "thread_churn"] {
            check(preloaded(program(name), "orbit").env("LD_PRELOAD", &list));
        }
    }
}

#[test]
fn conditions_are_ours_where_libc_has_their_flags_elsewhere() {
    // Without libraries of its own it has no versions, and is found by those of libc's calls.
    let newer = compiled("newer_conditions", &["-shared", "-fPIC", "-nostdlib"]);
    let list = format!("{}:{}", library().display(), newer.display());
    for name in ["c11", "cancel", "cond"] {
        let output = check(preloaded(program(name), "orbit").env("LD_PRELOAD", &list));
        assert!(output.stderr.is_empty(), "nothing on standard error");
    }
}

#[test]
fn programs_pass_where_the_kernel_has_no_barriers() {
    let old_kernel = program("old_kernel");
    for name in ["cancel", "cond", "left_locked", "mutex_exclusion", "mutex_kinds", "mutex_timed", "thread_churn"] {
        check(preloaded(&old_kernel, "orbit").arg(program(name)));
    }
}

#[test]
fn locks_from_before_stay_ours_when_the_instance_is_not_there() {
    let (old_kernel, before_all) = (program("old_kernel"), program("before_all"));
    let run = |mut command: Command| {
        let output = check(command.env("RETRIAL_INSTANCE", "/nonexistent/instance"));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("retrial: locks wait without an instance: "), "{text}");
    };
    run(preloaded(&before_all, "orbit"));
    let mut command = preloaded(&old_kernel, "orbit");
    command.arg(&before_all);
    run(command);
}

#[test]
fn an_instance_that_is_not_there_is_said_once_and_libc_goes_on() {
    let mut command = preloaded("/bin/echo", "orbit");
    let output = check(command.arg("hello").env("RETRIAL_INSTANCE", "/nonexistent/instance"));
    assert_eq!(output.stdout, b"hello\n");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("retrial: locks are left to libc: "), "{text}");
}

/// Lines that no two runs of a generator would give in the same order.
fn random_lines() -> Vec<u8> {
    let state = std::cell::Cell::new(0x9e37_79b9_7f4a_7c15);
    let mut text = Vec::new();
    while text.len() < 8 << 20 {
        let _ = writeln!(text, "{:016x}", retrial::wait::random(&state));
    }
    text
}

#[test]
fn sort_gives_the_same_bytes() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lines-{}", std::process::id()));
    std::fs::write(&path, random_lines()).expect("there is space");
    let sort =
        |mut command: Command| check(command.env("LC_ALL", "C").args(["--parallel=8", "-S", "64M"]).arg(&path)).stdout;
    let (expected, named) = (sort(Command::new("sort")), Named::new("sort"));
    assert!(expected == sort(named.run("sort")), "the same bytes");
    assert!(named.instance.tables().session_gets() > 0, "sort's locks were ours");
    let _ = std::fs::remove_file(path);
}

#[test]
fn threads_of_python_share_a_queue() {
    const SCRIPT: &str = "
import queue, threading
shared = queue.Queue(8)
sums = []
def put():
    for i in range(1000): shared.put(i)
def get():
    sums.append(sum(shared.get() for _ in range(1000)))
threads = [threading.Thread(target=put if i % 2 else get) for i in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sum(sums))
";
    if Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_err() {
        not_tested("no python3");
        return;
    }
    let named = Named::new("python");
    let output = check(named.run("python3").args(["-c", SCRIPT]));
    assert_eq!(output.stdout, b"3996000\n");
    assert!(named.instance.tables().session_gets() > 0, "python's locks were ours");
}
