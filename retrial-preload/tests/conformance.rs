//! Programs in C and programs of the system, as they are and with the library preloaded, under every scheme.
//!
//! The C programs do not know who implements the calls: each has to pass as it is. A failure prints the command that
//! repeats it.

use retrial::wait::NAMES;
use retrial::{Address, CALLS, Capacity, Instance, P};
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// The programs. Those of `ONCE` hardly wait, and run under one scheme only; those of `SLOW` wait so often that they are
/// left out where each miss costs a long sleep.
const PROGRAMS: [&str; 16] = [
    "before_all",
    "c11",
    "cancel",
    "cond",
    "early",
    "fork",
    "fork_first",
    "left_locked",
    "mutex_exclusion",
    "mutex_kinds",
    "mutex_timed",
    "pi",
    "robust",
    "rwlock",
    "spin",
    "thread_churn",
];
const ONCE: [&str; 6] = ["before_all", "early", "fork_first", "left_locked", "mutex_kinds", "pi"];
const SLEEPY: [&str; 3] = ["sleep", "backoff", "patch6904068"];
const SLOW: [&str; 5] = ["c11", "cancel", "cond", "mutex_exclusion", "mutex_timed"];

/// The library, built by cargo if it is not there: a test of a library that is loaded by name cannot depend on it.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        // Of its own, since whoever runs us may have that of cargo locked.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload");
        let status = Command::new(cargo)
            .args(["build", "--release", "--quiet", "--lib", "--target-dir"])
            .arg(&target)
            .arg("--manifest-path")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the library builds");
        target.join("release/libretrial_preload.so")
    })
}

/// A program of `tests/c`, compiled.
fn program(name: &str) -> PathBuf {
    compiled(name, &[])
}

fn compiled(name: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name).with_extension("c");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c");
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    let thread = std::thread::current().name().unwrap_or_default().replace("::", "-");
    let binary = directory.join(format!("{name}-{thread}"));
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(compiler)
        .args(["-O2", "-pthread"])
        .args(options)
        .arg("-o")
        .arg(&binary)
        .arg(&source)
        .arg("-ldl")
        .status();
    assert!(status.expect("a C compiler is there").success(), "{} compiles", source.display());
    binary
}

fn preloaded(program: impl AsRef<OsStr>, scheme: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library()).env("RETRIAL_SCHEME", scheme);
    command
}

/// An instance that observers find, gone when dropped.
struct Named {
    instance: Instance,
    address: Address,
}

impl Named {
    fn new(name: &str) -> Self {
        let address = Address::new(&format!("test-{}-{name}", std::process::id())).expect("a name");
        let capacity = Capacity { sessions: 4096, mutexes: 16_384, locations: 4096, rows: 64, arena: 0 };
        let instance = Instance::create(&address, capacity, 0o600).expect("an instance can be made");
        Self { instance, address }
    }

    fn run(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library()).env("RETRIAL_INSTANCE", self.address.path());
        command
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.address.path());
    }
}

fn check(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    assert!(
        output.status.success(),
        "{command:?} ended with {}:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

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
fn every_symbol_is_exported_unversioned() {
    let output = check(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let text = String::from_utf8_lossy(&output.stdout);
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    for (family, calls) in [
        ("pthread_mutex_", "init destroy lock trylock timedlock clocklock unlock consistent"),
        ("__pthread_mutex_", "init destroy lock trylock unlock"),
        ("pthread_cond_", "init destroy wait timedwait clockwait signal broadcast"),
        (
            "pthread_rwlock_",
            "init destroy rdlock wrlock tryrdlock trywrlock timedrdlock timedwrlock clockrdlock clockwrlock unlock",
        ),
        ("__pthread_rwlock_", "init destroy rdlock wrlock tryrdlock trywrlock unlock"),
        ("pthread_spin_", "init destroy lock trylock unlock"),
        ("mtx_", "init destroy lock trylock timedlock unlock"),
        ("cnd_", "init destroy wait timedwait signal broadcast"),
        ("dl", "open"),
    ] {
        for call in calls.split(' ') {
            let name = format!("{family}{call}");
            assert!(names.contains(&name.as_str()), "{name}, without a version");
        }
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
    for ((name, handled), count) in CALLS.iter().zip(named.instance.calls()) {
        assert!(count > 0, "{name}, handled: {handled}");
    }
    assert!(named.instance.session_gets() > 0);
}

#[test]
fn what_missed_has_a_place_in_the_program() {
    let named = Named::new("places");
    named.instance.set(P::Scheme, None, retrial::wait::DEFAULT as u64);
    let binary = program("mutex_exclusion");
    check(&mut named.run(&binary));
    let figures = named.instance.figures();
    let names: Vec<String> = figures.iter().map(|(_, key, _)| named.instance.location_name(key.location)).collect();
    let prefix = format!("{}+0x", binary.canonicalize().expect("it is there").display());
    assert!(names.iter().any(|name| name.starts_with(&prefix)), "{prefix} is in {names:?}");
    let gets: u64 = named.instance.mutexes().iter().map(|mutex| mutex.gets).sum();
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
fn a_library_loaded_with_deepbind_shares_locks_with_the_program() {
    let library = compiled("deep_library", &["-shared", "-fPIC"]);
    let name = library.file_name().expect("it is a file");
    // Found by the program's own search path, as long as libc sees who calls.
    let program = compiled("deep", &["-Wl,--enable-new-dtags,-rpath,$ORIGIN"]);
    check(Command::new(&program).arg(name));
    check(preloaded(&program, "orbit").arg(name));
    check(preloaded(&program, "orbit").arg(name).env("RETRIAL_PRELOAD", "off"));
}

#[test]
fn thread_sanitizer_keeps_the_calls() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/no_race.c");
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c/sanitized");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    std::fs::create_dir_all(binary.parent().expect("it has one")).expect("a directory can be made");
    let mut compile = Command::new(compiler);
    compile.args(["-O2", "-pthread", "-fsanitize=thread", "-o"]).arg(&binary).arg(&source);
    if !compile.stderr(Stdio::null()).status().expect("a C compiler is there").success() {
        eprintln!("skipped: the compiler has no ThreadSanitizer");
        return;
    }
    if !Command::new(&binary).output().expect("it starts").status.success() {
        eprintln!("skipped: ThreadSanitizer does not run on this kernel");
        return;
    }
    let text = check(&mut preloaded(&binary, "orbit")).stderr;
    let text = String::from_utf8_lossy(&text);
    assert_eq!(text, "retrial: locks are left to libc: ThreadSanitizer takes the calls itself\n");
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
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut text = Vec::new();
    while text.len() < 8 << 20 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let _ = writeln!(text, "{random:016x}");
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
    assert!(named.instance.session_gets() > 0, "sort's locks were ours");
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
        println!("skipped: no python3");
        return;
    }
    let named = Named::new("python");
    let output = check(named.run("python3").args(["-c", SCRIPT]));
    assert_eq!(output.stdout, b"3996000\n");
    assert!(named.instance.session_gets() > 0, "python's locks were ours");
}
