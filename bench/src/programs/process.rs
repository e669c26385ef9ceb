//! Processes that are started and surely ended: each line is a process group, ended with the value that
//! stands for it.

use super::pace::{Pace, STEP};
use crate::command::ends_with_this_thread;
use miette::{Context, IntoDiagnostic, Report, miette};
use retrial_bench::cell::Stopped;
use std::ffi::OsString;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Where lines are run.
pub struct Place {
    pub directory: PathBuf,
    pub variables: Vec<(&'static str, String)>,
}

/// How a line ended.
#[derive(Clone, Copy)]
pub struct Ended {
    status: ExitStatus,
    pub elapsed: Duration,
    /// Processor time of its processes, user and system.
    pub cpu_s: f64,
}

/// A line under way; its whole group is ended at the end.
pub struct Running {
    line: String,
    pid: i32,
    started: Instant,
    directory: PathBuf,
    ended: Option<Ended>,
}

/// Files that a line's output goes to, in its directory.
const OUT: &str = "out";
const ERR: &str = "err";

/// Lines of standard error that an error shows, and characters of each.
const LAST: usize = 12;
const WIDEST: usize = 200;

/// How long a group may take to end by itself once it is told to.
const ENDING: Duration = Duration::from_mins(1);

impl Place {
    /// Starts a line under another command, or nothing.
    pub fn start(&self, line: &str, under: &[OsString]) -> Result<Running, Report> {
        let file = |name| File::create(self.directory.join(name)).into_diagnostic();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("set -e\n{line}"), "sh"]).args(under).current_dir(&self.directory);
        command.envs(self.variables.iter().map(|(name, value)| (name, value))).process_group(0);
        command.stdin(Stdio::null()).stdout(file(OUT)?).stderr(file(ERR)?);
        ends_with_this_thread(&mut command);
        let child = command.spawn().into_diagnostic().wrap_err("sh cannot be started")?;
        Ok(Running {
            line: line.to_owned(),
            pid: i32::try_from(child.id()).into_diagnostic()?,
            started: Instant::now(),
            directory: self.directory.clone(),
            ended: None,
        })
    }

    /// Runs a line to its good end.
    pub fn run(&self, line: &str) -> Result<(), Stopped> {
        self.start(line, &[])?.wait(&mut Pace::new(Duration::from_mins(10)))?;
        Ok(())
    }

    pub fn output(&self) -> String {
        text(&self.directory.join(OUT))
    }
}

impl Running {
    /// Waits for its end, which must be a good one.
    pub fn wait(&mut self, pace: &mut Pace) -> Result<Ended, Stopped> {
        loop {
            if let Some(ended) = self.reap() {
                return if ended.status.success() { Ok(ended) } else { Err(self.failure(&said(ended.status)).into()) };
            }
            if !pace.step()? {
                return Err(self.failure("does not end").into());
            }
        }
    }

    /// Waits until it listens at a socket in its directory.
    pub fn until_listening(&mut self, socket: &str, pace: &mut Pace) -> Result<(), Stopped> {
        let path = self.directory.join(socket);
        while std::os::unix::net::UnixStream::connect(&path).is_err() {
            if let Some(ended) = self.reap() {
                return Err(self.failure(&format!("{} before it listened", said(ended.status))).into());
            }
            if !pace.step()? {
                return Err(self.failure("does not listen").into());
            }
        }
        Ok(())
    }

    /// Tells it to end, and waits for its good end.
    pub fn stop(&mut self) -> Result<Ended, Stopped> {
        self.send(self.pid, libc::SIGTERM);
        self.wait(&mut Pace::new(ENDING))
    }

    /// Processor time so far of its processes; with `under` those of the program alone, not of what it is run
    /// under.
    pub fn cpu_s(&self, under: bool) -> f64 {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        // SAFETY: cannot fail.
        let per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        pids.filter(|pid| !under || *pid != self.pid).filter_map(|pid| ticks(pid, self.pid)).sum::<u64>() as f64 / per_s
    }

    /// Its end, `None` while it runs. Who is left of the group is ended with the leader.
    fn reap(&mut self) -> Option<Ended> {
        if self.ended.is_some() || !self.has_ended() {
            return self.ended;
        }
        // Before the leader is waited for: until then the group's number is nobody else's.
        self.send(-self.pid, libc::SIGKILL);
        let elapsed = self.started.elapsed();
        let mut status = 0;
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: status and usage are writable.
        unsafe { libc::wait4(self.pid, &raw mut status, 0, usage.as_mut_ptr()) };
        // SAFETY: zeroed is a valid value, and the call above has filled it.
        let usage = unsafe { usage.assume_init() };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        let cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
        self.ended = Some(Ended { status: ExitStatus::from_raw(status), elapsed, cpu_s });
        self.ended
    }

    /// Whether the leader is only waited for.
    fn has_ended(&self) -> bool {
        let mut information = MaybeUninit::<libc::siginfo_t>::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: the information is writable.
        unsafe { libc::waitid(libc::P_PID, self.pid.unsigned_abs(), information.as_mut_ptr(), options) };
        // SAFETY: zeroed is a valid value, and the call above may have filled it.
        unsafe { information.assume_init() }.si_signo != 0
    }

    /// To the leader, or as `-pid` to the group.
    fn send(&self, to: i32, signal: i32) {
        if self.ended.is_none() {
            // SAFETY: not waited for, so that the numbers of process and group are still its own.
            unsafe { libc::kill(to, signal) };
        }
    }

    /// What was wrong, with the last lines of what it said.
    pub fn failure(&self, what: &str) -> Report {
        let said = [ERR, OUT].map(|name| text(&self.directory.join(name)));
        let said = said.iter().find(|text| !text.trim().is_empty()).map_or("nothing", |text| text.trim_end());
        let lines: Vec<String> = said.split(['\n', '\r']).map(|line| line.chars().take(WIDEST).collect()).collect();
        let last = lines[lines.len().saturating_sub(LAST)..].join("\n");
        miette!(code = "bench::programs", help = format!("{}\nsaid at last:\n{last}", self.line), "{what}")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.send(-self.pid, libc::SIGTERM);
        // Not with a [`Pace`], which a Ctrl-C ends.
        let mut left = ENDING.as_millis() / STEP.as_millis();
        while self.reap().is_none() {
            std::thread::sleep(STEP);
            left = left.saturating_sub(1);
            if left == 0 {
                self.send(-self.pid, libc::SIGKILL);
            }
        }
    }
}

fn said(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, signal) => format!("was killed by signal {}", signal.unwrap_or(0)),
    }
}

/// Processor time of a process of the group and of the children that it has waited for; `None` for others.
fn ticks(pid: i32, group: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Its name is in brackets and may have any in it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
    (fields.get(2)?.parse() == Ok(group)).then(|| (11..15).filter_map(number).sum())
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
