//! An instance per test, commands on it, and waiting for what they say.

#![allow(dead_code, missing_docs, unreachable_pub)] // each test file uses a part

pub mod directory;
pub mod load;

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub const RETRIAL: &str = env!("CARGO_BIN_EXE_retrial");

/// An instance that is removed at the end.
pub struct Scratch {
    pub name: String,
}

impl Scratch {
    pub fn new() -> Self {
        Self::with(&["--sessions", "16", "--mutexes", "64", "--locations", "64", "--arena", "64K"])
    }

    pub fn with(capacity: &[&str]) -> Self {
        let scratch = Self::unborn();
        let output = command(&[&["create", &scratch.name], capacity].concat()).output().unwrap();
        assert!(output.status.success(), "{}", both(&output));
        scratch
    }

    /// A name only.
    pub fn unborn() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { name: format!("test-{}-{}-{n}", env!("CARGO_CRATE_NAME"), std::process::id()) }
    }

    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/shm/retrial.{}", self.name))
    }

    pub fn observer(&self) -> retrial::Observer {
        retrial::Observer::open(&retrial::Address::new(&self.name).unwrap()).unwrap()
    }

    pub fn instance(&self) -> retrial::Instance {
        retrial::Instance::attach(&retrial::Address::new(&self.name).unwrap()).unwrap()
    }

    fn on<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        [arguments, &["-i", &self.name]].concat()
    }

    pub fn output(&self, arguments: &[&str]) -> Output {
        command(&self.on(arguments)).output().unwrap()
    }

    /// Runs a command that must succeed; what it prints.
    pub fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", both(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The rows that a command prints with `--json`.
    pub fn rows(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.run(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {text}"))
    }

    /// Runs a command that must fail; what it says.
    pub fn fail(&self, arguments: &[&str]) -> String {
        failed(&self.output(arguments))
    }

    pub fn start(&self, arguments: &[&str]) -> Running {
        Running::new(&mut command(&self.on(arguments)))
    }

    /// Starts a hold and waits until it holds.
    pub fn hold(&self, arguments: &[&str]) -> Running {
        let mut hold = self.start(&[&["hold"], arguments].concat());
        hold.until(" holds ");
        hold
    }

    pub fn word(&self, mutex: &str) -> retrial::views::Word {
        let observer = self.observer();
        let id = observer.tables().mutex_named(mutex).unwrap();
        observer.tables().mutex_state(id).unwrap().word
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.path());
    }
}

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(RETRIAL);
    // One line per message, however long; no colours.
    command.args(arguments).env("NO_COLOR", "1").env("XDG_CACHE_HOME", "/nonexistent").stdin(Stdio::null());
    command
}

pub fn both(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Standard error, words only: it is wrapped to the terminal's width.
pub fn words(output: &Output) -> String {
    stderr(output).replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The words of a failed command.
pub fn failed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{}", both(output));
    words(output)
}

/// A command under way; killed at the end.
pub struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    pub fn new(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next line; empty at the end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line
    }

    /// Waits for a line with this text.
    pub fn until(&mut self, text: &str) -> String {
        loop {
            let line = self.line();
            assert!(!line.is_empty(), "the command ended before it said `{text}`");
            if line.contains(text) {
                return line;
            }
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal and waits for the end: its exit code and what else it said.
    pub fn signal(mut self, signal: i32) -> (Option<i32>, String) {
        let pid = libc::pid_t::try_from(self.child.id()).unwrap();
        // SAFETY: our own child, which has not been waited for.
        unsafe { libc::kill(pid, signal) };
        self.finish()
    }

    /// Sends a signal that the command is to die of, once it has said what else it has to say.
    pub fn die_of(mut self, signal: i32) -> String {
        let pid = libc::pid_t::try_from(self.child.id()).unwrap();
        // SAFETY: our own child, which has not been waited for.
        unsafe { libc::kill(pid, signal) };
        let (_, rest) = self.finish();
        assert_eq!(self.child.wait().unwrap().signal(), Some(signal), "{rest}");
        rest
    }

    /// Waits for the end by itself.
    pub fn end(mut self) -> (Option<i32>, String) {
        self.finish()
    }

    fn finish(&mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Looks until it is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < Duration::from_mins(1), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The processors that this thread may run on, and one of them.
pub fn processors() -> (libc::cpu_set_t, libc::cpu_set_t) {
    // SAFETY: numbers, of which 0 is one.
    let (mut all, mut one): (libc::cpu_set_t, libc::cpu_set_t) = unsafe { std::mem::zeroed() };
    // SAFETY: the set is writable, and so long.
    assert_eq!(unsafe { libc::sched_getaffinity(0, size_of_val(&all), &raw mut all) }, 0);
    // SAFETY: the numbers are within the set.
    let first = (0..libc::CPU_SETSIZE as usize).find(|cpu| unsafe { libc::CPU_ISSET(*cpu, &all) }).unwrap();
    // SAFETY: as above.
    unsafe { libc::CPU_SET(first, &mut one) };
    (all, one)
}

/// Has the calling thread, and what it starts from now on, run on these processors.
pub fn run_on(processors: &libc::cpu_set_t) {
    // SAFETY: the set is readable, and so long.
    assert_eq!(unsafe { libc::sched_setaffinity(0, size_of_val(processors), processors) }, 0);
}
