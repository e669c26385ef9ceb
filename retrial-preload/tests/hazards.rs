//! What breaks interposers: one test for each hazard that no program of `conformance.rs` has.

mod kit;

use kit::{Named, check, compiled, library, not_tested, preloaded, program, sanitized};
use retrial::P;
use retrial::interposer::samples;
use retrial::wait::NAMES;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A copy of a program under a name of its own.
fn copy(program: &Path, name: &str) -> PathBuf {
    let path = program.with_file_name(format!("{name}-{}", std::process::id()));
    std::fs::copy(program, &path).expect("there is space");
    path
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
fn a_library_in_a_namespace_of_its_own_is_excluded_by_the_programs_mutex() {
    let library = compiled("deep_library", &["-shared", "-fPIC"]);
    let program = program("namespace");
    check(Command::new(&program).arg(&library));
    for scheme in ["orbit", "pthread"] {
        check(preloaded(&program, scheme).arg(&library));
    }
}

#[test]
fn no_lock_call_allocates_or_needs_the_loader() {
    let library = compiled("no_allocation_library", &["-shared", "-fPIC"]);
    let program = compiled("no_allocation", &["-rdynamic"]);
    check(Command::new(&program).arg(&library));
    for scheme in ["orbit", "pthread", "adaptive"] {
        check(preloaded(&program, scheme).arg(&library));
    }
}

/// An instance in which a session that has waited for so long looks what the holder is at.
fn alerting(name: &str, after_ms: u64) -> Named {
    let named = Named::new(name);
    named.instance.set(P::AlertThreshold, None, after_ms);
    named
}

/// The empty file of a profile, in a directory of its own.
fn profile(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    let mut head = samples::MAGIC.to_ne_bytes().to_vec();
    head.extend(samples::GAP_NS.to_ne_bytes());
    let path = directory.join(samples::FILE);
    std::fs::write(&path, head).expect("there is space");
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("it was written");
    file.set_len(size_of::<samples::Ring>() as u64).expect("it is sparse");
    directory
}

/// Cancellation points of POSIX and of glibc (`pthreads(7)`, and what `SYSCALL_CANCEL` is in its source), without the
/// thread's own (`pthread_join`) and the waits that are the library's.
const CANCELLATION_POINTS: &str = "accept accept4 aio_suspend clock_nanosleep close connect copy_file_range creat \
    epoll_pwait epoll_pwait2 epoll_wait fallocate fcntl fdatasync fsync getmsg getpmsg getrandom lockf mq_receive \
    mq_send mq_timedreceive mq_timedsend msgrcv msgsnd msync nanosleep open open_by_handle_at openat pause poll \
    posix_fallocate ppoll pread preadv preadv2 pselect pthread_testcancel putmsg putpmsg pwrite pwritev pwritev2 read \
    readv recv recvfrom recvmmsg recvmsg select sem_clockwait sem_timedwait sem_wait send sendmmsg sendmsg sendto \
    sigpause sigsuspend sigtimedwait sigwait sigwaitinfo sleep splice sync_file_range system tcdrain tee usleep \
    vmsplice wait wait3 wait4 waitid waitpid write writev";

/// Those that the library refers to, for its constructor and for a panic: `no_allocation.c` watches each of them.
const REFERRED_TO: &str = "close open open64 pread64 read write writev";

#[test]
fn the_cancellation_points_that_the_library_refers_to_are_those_that_are_watched() {
    let output = check(Command::new("nm").args(["-D", "--undefined-only"]).arg(library()));
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.split_whitespace().last()?.split('@').next());
    let is_one = |name: &&str| {
        let plain = name.trim_start_matches("__").trim_end_matches("_2").trim_end_matches("64");
        CANCELLATION_POINTS.split_whitespace().any(|point| point == plain)
    };
    for name in names.filter(is_one) {
        assert!(REFERRED_TO.split(' ').any(|known| known == name), "{name} is a cancellation point");
    }
}

#[test]
fn no_slow_lock_call_allocates_or_is_a_cancellation_point() {
    let library = compiled("no_allocation_library", &["-shared", "-fPIC"]);
    let program = compiled("no_allocation", &["-rdynamic"]);
    check(Command::new(&program).arg(&library).arg("slow"));
    for has_dl_find_object in [true, false] {
        for is_profiled in [false, true] {
            let named = alerting(&format!("slow-{has_dl_find_object}-{is_profiled}"), 1);
            let mut command = named.run(&program);
            command.arg(&library).arg("slow");
            if !has_dl_find_object {
                command.env("HIDE_DL_FIND_OBJECT", "");
            }
            let directory = is_profiled.then(|| profile("slow"));
            if let Some(directory) = &directory {
                command.env(samples::VARIABLE, directory);
            }
            check(&mut command);
            // It was slow: gets were alerted, and places were looked up.
            let alerts = named.instance.tables().alerts(0);
            assert!(alerts.iter().any(|alert| alert.2.contains("has waited")), "{alerts:?}");
            if let Some(directory) = directory {
                let samples = std::fs::read(directory.join(samples::FILE)).expect("it is there");
                let bytes = std::mem::offset_of!(samples::Ring, bytes);
                assert!(samples[bytes..bytes + 8] != [0; 8], "samples were taken");
                let _ = std::fs::remove_dir_all(directory);
            }
        }
    }
}

#[test]
fn a_get_that_is_alerted_is_no_cancellation_point() {
    let program = program("cancel_alerted");
    check(&mut Command::new(&program));
    let named = alerting("alerted", 200);
    check(&mut named.run(&program));
    let alerts = named.instance.tables().alerts(0);
    assert!(alerts.iter().any(|alert| alert.2.contains("has waited")), "{alerts:?}");
}

#[test]
fn who_gets_a_mutex_again_at_once_leaves_turns_to_those_that_wait() {
    check(&mut preloaded(program("turns"), "orbit"));
}

/// Not so without the library: libc's wait has looked before the fork who the thread is.
#[test]
fn a_child_that_a_handler_forks_gets_a_robust_mutex_in_its_own_name() {
    check(preloaded(program("handler_forks"), "orbit").arg("robust"));
}

#[test]
fn a_child_does_not_wait_for_waiters_of_its_parent() {
    check(&mut preloaded(program("child_destroys"), "orbit"));
}

#[test]
fn a_library_that_was_closed_stays() {
    check(Command::new(program("closed")).arg(library()));
}

/// Set-user-ID to somebody else, who need not exist.
#[test]
fn a_set_user_id_program_is_left_alone() {
    const NOBODY: u32 = 65_534;
    let program = program("mutex_exclusion");
    let (plain, secure) = (copy(&program, "plain"), copy(&program, "secure"));
    let run = |path: &Path| stderr(&check(preloaded(path, "orbit").env("RETRIAL_INSTANCE", "/nonexistent/instance")));
    assert!(run(&plain).contains("locks are left to libc"), "{}", run(&plain));
    if chown(&secure, Some(NOBODY), None).is_err() {
        not_tested("only root gives files away");
    } else {
        std::fs::set_permissions(&secure, std::fs::Permissions::from_mode(0o4755)).expect("it is ours");
        assert_eq!(run(&secure), "");
    }
    for path in [plain, secure] {
        let _ = std::fs::remove_file(path);
    }
}

#[test]
fn thread_sanitizer_keeps_the_calls() {
    for options in [&["-fsanitize=thread"][..], &["-fsanitize=thread", "-static-libtsan"]] {
        let Some(program) = sanitized("no_race", options) else { continue };
        let expected = if options.len() == 1 { "ThreadSanitizer".into() } else { program.display().to_string() };
        let expected = format!("retrial: locks are left to libc: {expected} takes the calls itself\n");
        assert_eq!(stderr(&check(&mut preloaded(&program, "orbit"))), expected);
        // Started by another one, which it is not known of beforehand.
        assert_eq!(stderr(&check(preloaded("sh", "orbit").arg("-c").arg(&program))), expected);
    }
}

/// As libfaketime does: the moments of its timed waits are not the kernel's, and only some calls would come
/// here.
#[test]
fn a_library_that_takes_calls_on_conditions_or_the_clock_keeps_them() {
    for (takes, is_first) in [("-DCONDITIONS", true), ("-DCLOCK", true), ("-DCLOCK", false)] {
        let taker = compiled("takes_calls", &["-shared", "-fPIC", takes]);
        let list = [library(), &*taker].map(|path| path.to_str().expect("a path without surprises"));
        let list = if is_first { [list[1], list[0]] } else { list }.join(":");
        let output = check(preloaded(program("cond"), "orbit").env("LD_PRELOAD", list));
        let expected = format!("retrial: locks are left to libc: {} takes the calls itself\n", taker.display());
        assert_eq!(stderr(&output), expected, "{takes} {is_first}");
    }
}

#[test]
fn other_sanitizers_run_and_address_sanitizer_says_what_it_needs() {
    if let Some(program) = sanitized("no_race", &["-fsanitize=undefined"]) {
        assert_eq!(stderr(&check(&mut preloaded(&program, "orbit"))), "");
    }
    if let Some(program) = sanitized("no_race", &["-fsanitize=address"]) {
        let output = preloaded(&program, "orbit").env_remove("ASAN_OPTIONS").output().expect("it starts");
        let text = stderr(&output);
        assert!(!output.status.success() && text.lines().count() == 1, "{text}");
        assert!(text.contains("ASan runtime does not come first"), "{text}");
        let output = check(preloaded(&program, "orbit").env("ASAN_OPTIONS", "verify_asan_link_order=0"));
        assert_eq!(stderr(&output), "");
    }
}

/// They follow libc's calls: with the locks in our format each access under a lock would be a race to them.
#[test]
fn checkers_of_threads_keep_the_calls() {
    let program = program("no_race");
    for (tool, is_left) in [("helgrind", true), ("drd", true), ("memcheck", false)] {
        let run = |preload: bool| {
            let mut command = Command::new("valgrind");
            command.args(["--quiet", "--error-exitcode=3", &format!("--tool={tool}")]).arg(&program);
            if preload {
                command.env("LD_PRELOAD", library());
            }
            command
        };
        if !run(false).output().is_ok_and(|output| output.status.success()) {
            not_tested(format_args!("no {tool}, or it does not run here"));
            continue;
        }
        let text = stderr(&check(&mut run(true)));
        let line = format!("vgpreload_{tool}-");
        let is_said = text.starts_with("retrial: locks are left to libc: ") && text.contains(&line);
        assert_eq!((is_said, text.lines().count()), (is_left, usize::from(is_left)), "{tool}: {text}");
    }
}

#[test]
fn programs_are_excluded_by_name() {
    let program = program("mutex_exclusion");
    let name = program.file_name().expect("a file").to_str().expect("a plain name");
    let link = program.with_file_name(format!("link-{}", std::process::id()));
    let _ = std::fs::remove_file(&link);
    symlink(&program, &link).expect("a link can be made");
    let link_name = link.file_name().expect("a file").to_str().expect("a plain name");
    let gets = |path: &Path, excluded: &str| {
        let named = Named::new("excluded");
        let output = check(named.run(path).env("RETRIAL_EXCLUDE", excluded));
        assert_eq!(stderr(&output), "", "{excluded}");
        named.instance.tables().session_gets()
    };
    let question = format!("?{}", &name[1..]);
    let list = format!("other,,{name}");
    for excluded in [name, "*", "mutex_*", "*programs*", "m*_excl*name", &question, &list] {
        assert_eq!(gets(&program, excluded), 0, "{excluded}");
    }
    for excluded in ["", ",", "mutex_exclusion", "*mutex_exclusion", "mutex_?", "sh,cc*"] {
        assert!(gets(&program, excluded) > 0, "{excluded}");
    }
    for excluded in [name, link_name] {
        assert_eq!(gets(&link, excluded), 0, "{excluded}");
    }
    let _ = std::fs::remove_file(link);
}

#[test]
fn only_the_excluded_of_a_tree_are_left_alone() {
    let program = program("mutex_exclusion");
    let excluded = copy(&program, "excluded");
    let gets = |path: &Path| {
        let named = Named::new("tree");
        let script = format!("{0}; {1}; {0}", excluded.display(), path.display());
        check(named.run("sh").args(["-c", &script]).env("RETRIAL_EXCLUDE", "excluded-*"));
        named.instance.tables().session_gets()
    };
    assert_eq!(gets(&excluded), 0);
    assert!(gets(&program) > 0);
    let _ = std::fs::remove_file(excluded);
}

/// Three processes in a row: the program, what it leaves in the background, what that becomes.
#[test]
fn who_forks_into_the_background_and_execs_keeps_its_instance() {
    const GETS: u64 = 1000;
    let program = program("daemon");
    check(&mut Command::new(&program));
    let named = Named::new("daemon");
    let output = check(&mut named.run(&program));
    assert_eq!(stderr(&output), "");
    assert_eq!(named.instance.tables().session_gets(), 3 * GETS);
}

/// Makes waiters do all that they ever do within the two seconds that the program has a lock held.
fn sandboxed(scheme: &str, how: &str, used: &str) -> Output {
    let named = Named::new(&format!("sandbox-{scheme}-{how}-{used}"));
    named.instance.set(P::Scheme, None, NAMES.iter().position(|name| *name == scheme).expect("a scheme") as u64);
    named.instance.set(P::AlertThreshold, None, 1500);
    let output = check(named.run(compiled("sandbox", &[])).args([how, used]));
    assert!(named.instance.tables().session_gets() > 0, "{scheme}: the locks were ours");
    output
}

#[test]
fn a_program_lives_in_a_sandbox_that_kills_at_any_call_but_those_of_libcs_locks() {
    let sandbox = compiled("sandbox", &[]);
    for how in ["prctl", "syscall", "seccomp"] {
        check(Command::new(&sandbox).args([how, "used"]));
        for used in ["used", "unused"] {
            assert_eq!(stderr(&sandboxed("orbit", how, used)), "");
        }
    }
}

#[test]
fn a_program_lives_in_a_sandbox_under_each_scheme() {
    for scheme in NAMES.iter().filter(|name| **name != "orbit") {
        assert_eq!(stderr(&sandboxed(scheme, "seccomp", "used")), "");
    }
}

/// The command with a limit of its own.
fn limited(mut command: Command, resource: libc::__rlimit_resource_t, limit: u64) -> Command {
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    let set = move || {
        // SAFETY: the limit is readable.
        let rc = unsafe { libc::setrlimit(resource, &raw const limit) };
        if rc == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the call is one that may be made between fork and exec.
    unsafe { command.pre_exec(set) };
    command
}

#[test]
fn limits_of_memory_and_of_files_are_asked_first() {
    let program = program("limits");
    check(&mut Command::new(&program));
    assert_eq!(stderr(&check(&mut preloaded(&program, "orbit"))), "", "little is locked");
    let run = |resource, limit| stderr(&check(&mut limited(preloaded(&program, "orbit"), resource, limit)));
    assert_eq!(run(libc::RLIMIT_FSIZE, 100_000 << 10), "", "fewer sessions fit");
    assert_eq!(run(libc::RLIMIT_AS, 64 << 20), "", "few are mapped");
    let text = run(libc::RLIMIT_FSIZE, 64 << 10);
    assert!(text.starts_with("retrial: locks are left to libc: ") && text.lines().count() == 1, "{text}");
}
