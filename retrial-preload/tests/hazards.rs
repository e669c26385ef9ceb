//! What breaks interposers: one test for each hazard that no program of `conformance.rs` has.

mod kit;

use kit::{Named, check, compiled, library, preloaded, program, sanitized};
use retrial::P;
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
        eprintln!("skipped: only root gives files away");
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
            eprintln!("skipped: no {tool}, or it does not run here");
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
        named.instance.session_gets()
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
        named.instance.session_gets()
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
    assert_eq!(named.instance.session_gets(), 3 * GETS);
}

/// Makes waiters do all that they ever do within the two seconds that the program has a lock held.
fn sandboxed(scheme: &str, how: &str, used: &str) -> Output {
    let named = Named::new(&format!("sandbox-{scheme}-{how}-{used}"));
    named.instance.set(P::Scheme, None, NAMES.iter().position(|name| *name == scheme).expect("a scheme") as u64);
    named.instance.set(P::AlertThreshold, None, 1500);
    let output = check(named.run(compiled("sandbox", &[])).args([how, used]));
    assert!(named.instance.session_gets() > 0, "{scheme}: the locks were ours");
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
