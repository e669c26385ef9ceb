//! Bad input: exit code 2, what was found, what was expected, what to type; and nothing has changed.

#![allow(missing_docs)]

mod kit;
#[path = "../../retrial/tests/kit/not_tested.rs"]
mod not_tested;

use kit::directory::Directory;
use kit::{Scratch, both, command, failed};
use not_tested::not_tested;
use retrial::{Address, Capacity, Class, GetError, Instance, location};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn assert_says(error: &str, parts: &[&str]) {
    for part in parts.iter().chain(&["retrial::", "help:"]) {
        assert!(error.contains(part), "`{part}` in: {error}");
    }
    assert!(error.contains("expected") || error.contains("this build reads"), "what was expected in: {error}");
}

/// An instance with a mutex `m`, that nobody is in.
fn instance() -> Scratch {
    let scratch = Scratch::new();
    scratch.run(&["hold", "m", "--create", "--for", "0s"]);
    scratch
}

#[test]
fn what_is_typed_wrong_is_answered_and_changes_nothing() {
    let scratch = instance();
    let before = fs::read(scratch.path()).unwrap();
    let wrong: &[(&[&str], &[&str])] = &[
        (&["set", "mutex_wait_scheme=3g"], &["`3g`", "10g", "orbit", "retrial show params mutex_wait_scheme"]),
        (&["set", "mutex_spincount=1"], &["`mutex_spincount`", "mutex_spin_count", "retrial show params"]),
        (&["set", "mutex_spin_count=-1"], &["`-1`", "from 0 to 10000000"]),
        (&["set", "mutex_spin_count=10000001"], &["`10000001`", "from 0 to 10000000"]),
        (&["set", "mutex_spin_count=99999999999999999999999"], &["from 0 to 10000000"]),
        (&["set", "mutex_spin_count="], &["from 0 to 10000000"]),
        (&["set", "mutex_spin_count"], &["NAME=VALUE", "retrial set mutex_spin_count=255"]),
        (&["set", "wait_yield_sleep_time_msecs=1cs"], &["unit `cs`", "expected ms"]),
        (&["set", "mutex_wait_scheme=1", "mutex_wait_time=30cs"], &["unit `cs`", "expected ms"]),
        (&["set", "mutex_wait_scheme=2", "mutex_wait_time=30ms"], &["unit `ms`", "expected cs"]),
        // The first is fine and is not set either.
        (&["set", "mutex_spin_count=1", "fairness=none"], &["`none`", "throughput, balanced, fifo"]),
        (&["set", "fairness=fifo", "fairness=balanced"], &["twice"]),
        (&["set", "--type", "Cursor Pn", "fairness=fifo"], &["`Cursor Pn`", "Cursor Pin", "retrial show types"]),
        (&["show", "params", "nope"], &["`nope`"]),
        (&["show", "params", "--type", "nope"], &["`nope`"]),
        (&["show", "events", "nope"], &["a name with view events"]),
        (&["show", "events", "--type", "Cursor Pin"], &["--type with view events"]),
        (&["show", "mutexes", "nope"], &["`nope`", "one of: m"]),
        (&["hold", "m", "--mode", "Z"], &["mode `Z`", "S, X, LX or E"]),
        (&["hold", "m", "--for", "50"], &["`50` without a unit", "ms, s, min", "--for 50s"]),
        (&["hold", "m", "--for", "5w"], &["`5w`"]),
        (&["hold", "m", "--wait", "soon"], &["--wait: duration `soon`"]),
        (&["hold", "nope"], &["no mutex `nope`", "retrial hold nope --create -i "]),
        (&["hold", "#7"], &["no mutex `#7`"]),
        (&["trace", "--for", "1"], &["`1` without a unit"]),
        (&["trace", "--mutex", "nope"], &["no mutex `nope`", "help: retrial show mutexes -i "]),
        (&["trace", "--session", "17"], &["session 17", "1 to 16"]),
        (&["peek", "nope"], &["no mutex `nope`"]),
        (&["peek", "0xfffffffffffffff8"], &["0xfffffffffffffff8", "below"]),
        (&["peek", "0x4"], &["multiple of 8"]),
        (&["peek", "0x", "1"], &["`0x`", "offset in hex"]),
        (&["peek", "0x0", "99999999999999999"], &["below"]),
        (&["poke", "m", "1", "extra-is-no-yes", "--yes"], &[]),
        (&["poke", "m", "0xg", "--yes"], &["`0xg`", "64 bits"]),
        (&["poke", "m", "18446744073709551616", "--yes"], &["64 bits"]),
        (&["poke", "0x3", "0", "--yes"], &["multiple of 8"]),
        (&["poke", "m", "1"], &["no terminal", "--yes"]),
        (&["recover", "--session", "1"], &["no session 1", "retrial ps"]),
        (&["recover", "--clear-poison", "nope"], &["no mutex `nope`"]),
    ];
    for (arguments, parts) in wrong {
        let output = scratch.output(arguments);
        if parts.is_empty() {
            // What clap refuses by itself.
            assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        } else {
            assert_says(&failed(&output), parts);
        }
        assert!(fs::read(scratch.path()).unwrap() == before, "{arguments:?} changed the instance");
    }
}

#[test]
fn capacities_and_names_that_cannot_be_create_nothing() {
    let scratch = Scratch::unborn();
    let wrong: &[(&[&str], &[&str])] = &[
        (&["--sessions", "0"], &["sessions is 0", "1 to 1048576"]),
        (&["--mutexes", "16777217"], &["mutexes is 16777217"]),
        (&["--locations", "65536"], &["locations is 65536", "1 to 65535"]),
        (&["--rows", "0"], &["rows is 0"]),
        (&["--arena", "lots"], &["`lots`", "K, M or G"]),
        (&["--arena", "99999999999G"], &["K, M or G"]),
        (&["--arena", "2048G"], &["arena is 2199023255552"]),
        (&["--mode", "0400"], &["`0400`", "0600 to 0777"]),
        (&["--mode", "888"], &["`888`"]),
    ];
    for (arguments, parts) in wrong {
        assert_says(&failed(&command(&[&["create", &scratch.name], *arguments].concat()).output().unwrap()), parts);
        assert!(!scratch.path().exists(), "{arguments:?}");
    }
    for name in [".hidden", "", "a b", "-", &"x".repeat(65), "umlaut-ü"] {
        let error = failed(&command(&["create", "--", name]).output().unwrap());
        assert_says(&error, &["instance name", "1 to 64"]);
    }
    for name in [".", "..", "/", "/dev/shm/"] {
        assert_eq!(command(&["create", name]).output().unwrap().status.code(), Some(2), "{name}");
        assert_eq!(command(&["rm", name, "--force"]).output().unwrap().status.code(), Some(2), "{name}");
    }
    let missing = failed(&command(&["create", "/nowhere/at/all"]).output().unwrap());
    assert!(missing.contains("cannot create /nowhere/at/all") && missing.contains("help:"), "{missing}");
}

#[test]
fn an_instance_that_is_not_there_is_said_to_every_command() {
    let scratch = Scratch::unborn();
    let commands: &[&[&str]] = &[
        &["show"],
        &["ps"],
        &["set", "fairness=fifo"],
        &["hold", "m"],
        &["trace"],
        &["peek", "0x0"],
        &["poke", "0x0", "0", "-y"],
        &["alerts"],
        &["recover"],
    ];
    for arguments in commands {
        let error = scratch.fail(arguments);
        assert_says(&error, &[&format!("no instance `{}`", scratch.name), "retrial create"]);
    }
    let error = failed(&command(&["rm", &scratch.name]).output().unwrap());
    assert_says(&error, &["no instance"]);
    assert!(!scratch.path().exists());
}

/// Commands that only look, and commands that take part.
const BOTH: [&[&str]; 3] = [&["show"], &["hold", "m", "--create", "--for", "0s"], &["set", "fairness=fifo"]];

fn refused(path: &str, parts: &[&str]) {
    for arguments in BOTH {
        let error = failed(&command(&[arguments, &["-i", path]].concat()).output().unwrap());
        assert_says(&error, parts);
    }
}

#[test]
fn a_file_that_is_no_segment_of_this_build_is_refused_and_left_alone() {
    let scratch = instance();
    let directory = Directory::new();
    let segment = fs::read(scratch.path()).unwrap();
    let with = |at: usize, bytes: &[u8]| {
        let mut copy = segment.clone();
        copy[at..at + bytes.len()].copy_from_slice(bytes);
        copy
    };
    // Header: magic, fingerprint, capacities.
    let mut random = vec![0u8; 65_536];
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    for byte in &mut random {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *byte = (x >> 56) as u8;
    }
    let files: &[(&str, Vec<u8>, &[&str])] = &[
        ("version", with(8, &0x1234_5678_9abc_def0_u64.to_le_bytes()), &["0x123456789abcdef0", "rm", "--force"]),
        ("truncated", segment[..segment.len() - 4096].to_vec(), &["truncated", &segment.len().to_string()]),
        ("header", segment[..4096].to_vec(), &["4096 bytes", "truncated"]),
        ("half", segment[..20].to_vec(), &["20 bytes", "truncated"]),
        ("tiny", segment[..7].to_vec(), &["not a retrial segment"]),
        ("empty", Vec::new(), &["not a retrial segment"]),
        ("random", random, &["not a retrial segment"]),
        ("text", b"hello, this is a text file and no segment\n".to_vec(), &["0x74202c6f6c6c6568"]),
        ("none", with(16, &0u64.to_le_bytes()), &["sessions 0", "damaged"]),
        ("huge", with(16, &u64::MAX.to_le_bytes()), &["sessions 18446744073709551615", "damaged"]),
        ("greedy", with(48, &(1u64 << 40).to_le_bytes()), &["truncated"]),
    ];
    for (name, bytes, parts) in files {
        let path = directory.path(name);
        fs::write(&path, bytes).unwrap();
        refused(&path, parts);
        assert!(fs::read(&path).unwrap() == *bytes, "{name} was changed");
    }
    // A copy that is whole is a segment, by its path.
    let path = directory.path("copy");
    fs::write(&path, &segment).unwrap();
    assert!(command(&["show", "-i", &path]).output().unwrap().status.success());
    // `rm` asks for --force where it cannot look, and never removes what is no segment.
    let version = directory.path("version");
    assert_says(&failed(&command(&["rm", &version]).output().unwrap()), &["--force", "0x123456789abcdef0"]);
    assert!(command(&["rm", &version, "--force"]).output().unwrap().status.success());
    assert!(!Path::new(&version).exists());
    let random = directory.path("random");
    assert_says(&failed(&command(&["rm", &random, "--force"]).output().unwrap()), &["not a retrial segment"]);
    assert!(Path::new(&random).exists());
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let scratch = instance();
    let directory = Directory::new();
    refused(directory.to_str().unwrap(), &["is a directory", "regular file"]);
    let link = directory.path("link");
    symlink(scratch.path(), &link).unwrap();
    refused(&link, &["is a symbolic link", "regular file"]);
    let fifo = directory.path("fifo");
    let c_path = std::ffi::CString::new(fifo.clone()).unwrap();
    // SAFETY: the path is a string with its 0.
    assert_eq!(unsafe { libc::mkfifo(c_path.as_ptr(), 0o600) }, 0);
    refused(&fifo, &["is a FIFO", "regular file"]);
    refused("/dev/null", &["is a device or socket", "regular file"]);
    // Nor is one replaced by a new instance.
    for path in [directory.to_str().unwrap(), &link, &fifo] {
        assert_says(&failed(&command(&["create", path]).output().unwrap()), &["exists"]);
    }
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn an_instance_of_another_version_is_listed_with_its_error() {
    let scratch = instance();
    let mut bytes = fs::read(scratch.path()).unwrap();
    bytes[8..16].copy_from_slice(&7u64.to_le_bytes());
    let other = Scratch::unborn();
    fs::write(other.path(), &bytes).unwrap();
    let output = command(&["list", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    assert!(row(&other.name)["error"].as_str().unwrap().contains("0x0000000000000007"));
    assert_eq!((&row(&scratch.name)["error"], &row(&scratch.name)["mutexes"]), (&serde_json::Value::Null, &1.into()));
}

#[test]
fn a_full_session_table_is_said_and_nothing_is_made() {
    let scratch = Scratch::with(&["--sessions", "1"]);
    let _holder = scratch.hold(&["m", "--create", "--mode", "S"]);
    let before = fs::read(scratch.path()).unwrap();
    let error = scratch.fail(&["hold", "new", "--create", "--mode", "S"]);
    assert_says(&error, &["all 1 sessions are taken", "--sessions 2", "retrial ps"]);
    assert!(fs::read(scratch.path()).unwrap() == before);
    let error = scratch.fail(&["recover", "--clear-poison", "m"]);
    assert_says(&error, &["all 1 sessions are taken"]);
    assert_eq!(scratch.rows(&["show", "mutexes"]).len(), 1);
}

#[test]
fn a_full_arena_or_table_is_said() {
    let scratch = Scratch::with(&["--arena", "128", "--mutexes", "8"]);
    scratch.run(&["hold", "a", "--create", "--for", "0s"]);
    scratch.run(&["hold", "b", "--create", "--for", "0s"]);
    let error = scratch.fail(&["hold", "c", "--create", "--for", "0s"]);
    assert!(error.contains("arena") && error.contains("help: retrial create NAME --arena 256"), "{error}");
    let scratch = Scratch::with(&["--mutexes", "1"]);
    scratch.run(&["hold", "a", "--create", "--for", "0s"]);
    let error = scratch.fail(&["hold", "b", "--create", "--for", "0s"]);
    assert!(error.contains("mutexes") && error.contains("help: retrial create NAME --mutexes 2"), "{error}");
    assert_eq!(scratch.rows(&["show", "mutexes"]).len(), 1);
}

fn is_root() -> bool {
    retrial::sys::euid() == 0
}

/// The command as another user; it is copied to where that user can run it.
fn as_nobody(directory: &Directory, arguments: &[&str]) -> Command {
    let copy = directory.path("retrial");
    if !Path::new(&copy).exists() {
        // By another process: a child that another test makes meanwhile would have the file open for writing,
        // and nobody could run it.
        let copied = Command::new("install").args(["-m", "755", kit::RETRIAL, &copy]).status().unwrap();
        assert!(copied.success());
    }
    let mut command = Command::new(copy);
    command.args(arguments).current_dir("/").uid(65_534).gid(65_534);
    command
}

#[test]
fn a_command_without_figures_refuses_their_formats_and_does_not_list_them() {
    let scratch = instance();
    for arguments in [
        &["export", "--once", "-i", &scratch.name][..],
        &["demo"],
        &["man", "/nonexistent/x"],
        &["completions", "bash"],
    ] {
        for format in ["--json", "--csv"] {
            for typed in [[arguments, &[format]].concat(), [&[format], arguments].concat()] {
                let error = failed(&command(&typed).output().unwrap());
                assert_says(&error, &[&format!("`{}", arguments[0]), "with --json or --csv, expected neither"]);
            }
        }
        let help = both(&command(&[arguments[0], "--help"]).output().unwrap());
        assert!(!help.contains("--json") && !help.contains("--csv"), "{help}");
    }
}

#[test]
fn without_permission_nothing_is_opened_or_changed() {
    let scratch = instance();
    let before = fs::read(scratch.path()).unwrap();
    if !is_root() {
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o000)).unwrap();
        for arguments in BOTH {
            assert_says(&scratch.fail(arguments), &["no permission to open", "mode 0000"]);
        }
        return;
    }
    let directory = Directory::new();
    // Another user can look in.
    fs::set_permissions(&*directory, fs::Permissions::from_mode(0o755)).unwrap();
    for arguments in BOTH {
        let arguments = [arguments, &["-i", &scratch.name]].concat();
        let error = failed(&as_nobody(&directory, &arguments).output().unwrap());
        assert!(
            error.contains("no permission to open") && error.contains("belongs to user 0 with mode 0600"),
            "{error}"
        );
        assert!(error.contains("we are user 65534") && error.contains("help:"), "{error}");
    }
    // Of another user's process it is not known what it takes part in.
    let other = instance();
    let holder = other.hold(&["m", "--for", "300s"]);
    let pid = holder.pid().to_string();
    let error = failed(&as_nobody(&directory, &["who", "-p", &pid]).output().unwrap());
    assert_says(&error, &["environ: Permission denied", "it is user 0's", &format!("sudo retrial … -p {pid}")]);
    drop(holder);
    let error = failed(&as_nobody(&directory, &["show", "-i", "no-such-instance"]).output().unwrap());
    assert!(!error.contains(&scratch.name), "what cannot be read is not suggested: {error}");
    let error = failed(&as_nobody(&directory, &["rm", &scratch.name, "--force"]).output().unwrap());
    assert!(error.contains("no permission"), "{error}");
    // A third user's file is not trusted with a part in it, however open it is. To look is safe.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o666)).unwrap();
    chown(scratch.path(), Some(12_345), None).unwrap();
    let [look, change @ ..] = BOTH;
    let look = [look, &["-i", &scratch.name]].concat();
    assert!(as_nobody(&directory, &look).output().unwrap().status.success());
    for arguments in change {
        let arguments = [arguments, &["-i", &scratch.name]].concat();
        let error = failed(&as_nobody(&directory, &arguments).output().unwrap());
        assert_says(&error, &["belongs to user 12345", "user 65534 or root", "sudo -u '#12345' retrial"]);
        let error = failed(&command(&arguments).output().unwrap());
        assert_says(&error, &["belongs to user 12345", "user 0 or root"]);
    }
    // Somebody who may not write in the directory creates nothing.
    let path = directory.path("new");
    let error = failed(&as_nobody(&directory, &["create", &path]).output().unwrap());
    assert!(error.contains(&format!("cannot create {path}")) && error.contains("help:"), "{error}");
    assert!(!Path::new(&path).exists());
    assert!(fs::read(scratch.path()).unwrap() == before);
}

/// A file system of some KB.
struct Small(Directory);

impl Small {
    fn new(size: &str) -> Option<Self> {
        let directory = Directory::new();
        let at = std::ffi::CString::new(directory.to_str().unwrap()).unwrap();
        let data = std::ffi::CString::new(format!("size={size}")).unwrap();
        // SAFETY: all are strings with their 0.
        let rc = unsafe { libc::mount(c"tmpfs".as_ptr(), at.as_ptr(), c"tmpfs".as_ptr(), 0, data.as_ptr().cast()) };
        if rc != 0 {
            not_tested(format_args!("mounting a tmpfs is not permitted here: {}", std::io::Error::last_os_error()));
            return None;
        }
        Some(Self(directory))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let at = std::ffi::CString::new(self.0.to_str().unwrap()).unwrap();
        // SAFETY: a string with its 0.
        unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn a_full_file_system_is_said_at_whatever_step_it_fills_up() {
    let (mut created, mut held) = (0, 0);
    // From nothing to enough for all: the first step that finds no memory says so, whichever it is.
    for kb in (8..=320).step_by(4) {
        let Some(small) = Small::new(&format!("{kb}k")) else { return };
        let path = small.0.path("instance");
        let output = command(&["create", &path]).output().unwrap();
        if !output.status.success() {
            assert_says(&failed(&output), &["no space", "df -h"]);
            assert_eq!(fs::read_dir(&*small.0).unwrap().count(), 0, "nothing is left");
            continue;
        }
        created += 1;
        assert!(command(&["show", "-i", &path]).output().unwrap().status.success());
        let output = command(&["hold", "m", "--create", "--for", "0s", "-i", &path]).output().unwrap();
        if !output.status.success() {
            assert_says(&failed(&output), &["no space", "df -h"]);
            assert!(command(&["ps", "-i", &path]).output().unwrap().status.success());
            continue;
        }
        held += 1;
    }
    assert!(held > 0 && created > held, "{created} created, {held} held");
}

#[test]
fn waits_beyond_those_that_there_is_memory_for_go_on_uncounted_in_a_full_file_system() {
    const MUTEXES: usize = 100;
    let Some(small) = Small::new("2m") else { return };
    let instance = Instance::create(&Address::new(&small.0.path("instance")).unwrap(), Capacity::default(), 0o600);
    let instance = instance.unwrap();
    let mutexes: Vec<_> = (0..MUTEXES).map(|i| instance.mutex(&format!("m{i}"), "test", || 0u64).unwrap()).collect();
    let holder = instance.session("holder", Class::Normal).unwrap();
    let _held: Vec<_> = mutexes.iter().map(|mutex| mutex.exclusive(&holder, location!("hold")).unwrap()).collect();
    let waiter = instance.session("waiter", Class::Normal).unwrap();
    let mut rest = fs::File::create(small.0.path("rest")).unwrap();
    while rest.write_all(&[1; 4096]).is_ok() {}
    for mutex in &mutexes {
        let in_a_moment = retrial::sys::Deadline::after(Duration::from_millis(1));
        assert!(matches!(mutex.exclusive_until(&waiter, location!("wait"), in_a_moment), Err(GetError::TimedOut)));
    }
    let counted = instance.tables().figures().len();
    assert!(counted > 0 && counted < MUTEXES, "{counted}");
}

#[test]
fn the_help_is_about_what_was_wrong_and_can_be_typed_as_it_is() {
    let scratch = instance();
    for name in ["", &"x".repeat(100)] {
        let error = scratch.fail(&["hold", name, "--create"]);
        assert_says(&error, &["object name", "retrial::mutex::name", "expected 1 to 64"]);
        assert!(!error.contains("df -h"), "{error}");
    }
    let error = failed(&command(&["create", "/nonexistent/dir/x"]).output().unwrap());
    assert!(error.contains("ls -ld /nonexistent/dir"), "{error}");
    let error = scratch.fail(&["hold", "it's a b"]);
    assert!(error.contains(r"retrial hold 'it'\''s a b' --create"), "{error}");
    let error = failed(&command(&["show", "-i", "/tmp/no such file"]).output().unwrap());
    assert!(error.contains("retrial create '/tmp/no such file'"), "{error}");
    for arguments in [&["--json", "list", "--csv"][..], &["list", "--json", "--csv"], &["--csv", "--json", "list"]] {
        let error = failed(&command(arguments).output().unwrap());
        assert!(error.contains("cannot be used with"), "{arguments:?}: {error}");
    }
}

#[test]
fn the_next_command_of_a_list_is_not_about_an_instance_that_cannot_be_read() {
    let scratch = instance();
    // First of all by its name.
    let broken = format!("/dev/shm/retrial.0-broken-{}", std::process::id());
    fs::write(&broken, "no instance").unwrap();
    let output = command(&["list"]).output().unwrap();
    fs::remove_file(&broken).unwrap();
    let text = both(&output);
    assert!(text.contains("0-broken") && text.contains(&scratch.name), "{text}");
    assert!(text.contains("Next: retrial show -i ") && !text.contains("show -i 0-broken"), "{text}");
}

#[test]
fn what_cannot_be_written_is_an_error_and_a_closed_pipe_is_none() {
    let scratch = instance();
    let commands: &[&[&str]] = &[
        &["completions", "bash"],
        &["list"],
        &["show", "-i", &scratch.name],
        &["show", "mutexes", "-i", &scratch.name, "--json"],
        &["ps", "-i", &scratch.name],
        &["model", "--list"],
        &["--version"],
        &["who", "--help"],
    ];
    for arguments in commands {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(arguments).stdout(full).output().unwrap();
        assert!(failed(&output).contains("cannot write to standard output"), "{arguments:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(arguments).stdout(writer).output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGPIPE), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
}
