//! `bench programs` on stand-ins for the programs and for `retrial`, so that nothing has to be installed.

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Programs of the test's own, found first; removed at the end.
struct Stage(PathBuf);

impl Stage {
    fn new(programs: &[(&str, &str)]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let stage = Self(std::env::temp_dir().join(format!("bench-stage-{}-{number}", std::process::id())));
        fs::create_dir_all(stage.0.join("files")).unwrap();
        for (name, script) in programs {
            let path = stage.0.join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        stage
    }

    fn bench(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
        let path = format!("{}:{}", self.0.display(), std::env::var("PATH").unwrap_or_default());
        command.args(["programs", "--retrial"]).arg(self.0.join("retrial"));
        command.arg("--directory").arg(self.0.join("files")).args(arguments.split(' ')).env("PATH", path);
        command
    }

    fn run(&self, arguments: &str) -> (Output, String) {
        let output = self.bench(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(fs::read_dir(self.0.join("files")).unwrap().count(), 0, "files are left: {said}");
        (output, said)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the program and reports these figures.
fn retrial(report: &str) -> String {
    format!(
        "while [ $1 != -- ]; do [ $1 = --report ] && report=$2; shift; done; shift; \"$@\" || exit; echo '{report}' > $report"
    )
}

const REPORT: &str = r#"{"elapsed_s": 2.0, "cpu_user_s": 0.5, "cpu_system_s": 0.1, "gets": 200, "misses": 3, "nothing_handled": null,
    "calls": [{"kind": "normal mutex", "handled": 200, "fallback": 0}, {"kind": "condition", "handled": 7, "fallback": 2}],
    "observer": {"cpu_pct": 0.4}}"#;

const DB_BENCH: &str = "echo 'Write rate: 0 ops/second'; echo 'fillrandom : 9.9 micros/op 1500 ops/sec 1.0 seconds'";

#[test]
fn figures_are_those_of_the_program_and_of_the_report() {
    let stage = Stage::new(&[("retrial", &retrial(REPORT)), ("db_bench", DB_BENCH)]);
    let (output, said) = stage.run("rocksdb-write --rounds 2 --seconds 1 --json");
    assert_eq!(output.status.code(), Some(0), "{said}");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert_eq!((&row["rounds"], &row["ops_per_s"]), (&2.into(), &1500.0.into()), "{row}");
    }
    let (plain, ours) = (&rows[0], &rows[1]);
    assert_eq!((&plain["under"], &plain["handled"]), (&"plain".into(), &Value::Null));
    assert_eq!((&ours["under"], &ours["ops_to_plain"]), (&"retrial orbit".into(), &1.0.into()));
    assert_eq!((&ours["handled"], &ours["fallback"]), (&207.0.into(), &2.0.into()));
    assert_eq!(
        (&ours["misses_pct"], &ours["cpu_us_per_op"], &ours["cpu_s_per_s"]),
        (&1.5.into(), &400.0.into(), &0.3.into())
    );
    let order: Vec<&str> = said.lines().filter(|line| line.contains("round")).collect();
    assert!(order[0].contains("plain") && order[1].contains("orbit") && order[2].contains("orbit"), "{order:?}");
}

#[test]
fn a_run_in_which_nothing_was_handled_is_shown_as_such() {
    let report = r#"{"gets": 0, "misses": 0, "calls": [], "nothing_handled": "it has no locks", "observer": {}}"#;
    let stage = Stage::new(&[("retrial", &retrial(report)), ("db_bench", DB_BENCH)]);
    let (output, said) = stage.run("rocksdb-write --rounds 1 --seconds 1 --json");
    assert_eq!(output.status.code(), Some(2), "{said}");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows[1]["failure"], "no lock was handled: it has no locks");
}

#[test]
fn a_program_that_fails_is_shown_with_what_it_said() {
    let stage = Stage::new(&[("retrial", &retrial(REPORT)), ("db_bench", "echo no such luck >&2; exit 3")]);
    let (output, said) = stage.run("rocksdb-write --rounds 2 --seconds 1 --json");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("ended with exit code 3") && said.contains("no such luck"), "{said}");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(rows.iter().all(|row| row["rounds"] == 0 && row["failure"] == "ended with exit code 3"), "{rows:?}");
}

#[test]
fn what_is_not_installed_is_left_out_with_the_line_to_type() {
    let stage = Stage::new(&[("retrial", "")]);
    let output = stage.bench("memcached rocksdb-read").env("PATH", "/nonexistent").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("not installed, left out: memcached, rocksdb-read"), "{said}");
    assert!(said.contains("apt-get install memcached rocksdb-tools"), "{said}");
}

#[test]
fn what_cannot_be_done_is_said() {
    let stage = Stage::new(&[]);
    for (arguments, expected) in [
        ("nonesuch", "no program `nonesuch`"),
        ("--scheme backof", "no scheme `backof`"),
        ("memcached", "cargo build --release, or name it with --retrial PATH"),
    ] {
        let (output, said) = stage.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{arguments}: {said}");
    }
}

/// A server that never listens: it says which process it is.
const SILENT: &str = "echo $$ > ../../../pid; exec sleep 100000";

fn until<T>(what: &str, mut so: impl FnMut() -> Option<T>) -> T {
    for _ in 0..60_000 {
        if let Some(value) = so() {
            return value;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("not within a minute: {what}");
}

/// The server's process id once it runs.
fn server(stage: &Stage) -> String {
    let pid = stage.0.join("pid");
    until("the server runs", || fs::read_to_string(&pid).ok()?.trim().parse::<u32>().ok()).to_string()
}

fn interrupt(bench: &Child, signal: i32) {
    // SAFETY: our own child, which has not been waited for.
    unsafe { libc::kill(i32::try_from(bench.id()).unwrap(), signal) };
}

#[test]
fn nothing_is_left_after_ctrl_c() {
    let stage = Stage::new(&[("retrial", &retrial(REPORT)), ("memcached", SILENT)]);
    let bench = stage.bench("memcached").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let server = server(&stage);
    interrupt(&bench, libc::SIGINT);
    let output = bench.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
    assert!(!Path::new("/proc").join(&server).exists(), "the server is left");
    assert_eq!(fs::read_dir(stage.0.join("files")).unwrap().count(), 0, "files are left");
}

#[test]
fn a_server_ends_with_a_bench_that_is_killed() {
    let stage = Stage::new(&[("retrial", &retrial(REPORT)), ("memcached", SILENT)]);
    let mut bench = stage.bench("memcached").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let server = Path::new("/proc").join(server(&stage)).join("cmdline");
    interrupt(&bench, libc::SIGKILL);
    bench.wait().unwrap();
    // Whoever inherits it may be slow to take note of its end.
    until("the server ends", || {
        fs::read(&server).is_ok_and(|line| line.is_empty()).then_some(()).or_else(|| (!server.exists()).then_some(()))
    });
}
