//! The processes of a run.

use miette::{IntoDiagnostic, Report, miette};
use retrial_bench::cell::Stopped;
use retrial_bench::signals;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long nothing may happen, in steps. Steps and not a time: what stops the machine stops them too.
const PATIENCE: u32 = 1200;
const STEP: Duration = Duration::from_millis(100);

/// Processes under way: a process group, of which nothing is left at the end.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    errors: PathBuf,
    /// The longest time for which we did not run while we were to look.
    stall: Duration,
    /// The group has ended, and its number may be another's.
    is_over: bool,
}

impl Running {
    pub fn start(mut command: Command, directory: &Path) -> Result<Self, Report> {
        let errors = directory.join("errors");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&errors).into_diagnostic()?);
        let mut child = command.process_group(0).spawn().into_diagnostic()?;
        let (sender, lines) = channel();
        if let Some(output) = child.stdout.take() {
            // Ends with the last process, or with us.
            std::thread::spawn(move || {
                BufReader::new(output).lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
            });
        }
        Ok(Self { child, lines, errors, stall: Duration::ZERO, is_over: false })
    }

    /// Lets all begin: they wait for the end of their standard input.
    pub fn begin(&mut self) {
        drop(self.child.stdin.take());
    }

    /// The next line, which must begin with this word.
    pub fn line(&mut self, word: &str) -> Result<String, Stopped> {
        for _ in 0..PATIENCE {
            if signals::received().is_some() {
                return Err(Stopped::Interrupted);
            }
            let before = Instant::now();
            let received = self.lines.recv_timeout(STEP);
            self.stall = self.stall.max(before.elapsed().saturating_sub(STEP));
            match received {
                Ok(line) if line.split(' ').next() == Some(word) => return Ok(line),
                Ok(line) if line.is_empty() => {}
                Ok(line) => return Err(self.failure(&format!("a process says `{line}`, expected `{word}`")).into()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.failure(&format!("a process ended without `{word}`")).into());
                }
            }
        }
        Err(self.failure(&format!("no process says `{word}` for {} s: they hang", (STEP * PATIENCE).as_secs())).into())
    }

    /// Waits for the end of all, and says for how long at most we did not run while we were to look.
    pub fn end(mut self) -> Result<Duration, Stopped> {
        for _ in 0..PATIENCE {
            if let Some(status) = self.child.try_wait().into_diagnostic()? {
                if status.success() {
                    self.is_over = true;
                    return Ok(self.stall);
                }
                return Err(self.failure(&status.to_string()).into());
            }
            std::thread::sleep(STEP / 10);
        }
        Err(self.failure("the processes do not end").into())
    }

    /// Waits until nobody has the output any more: the last to let go of it has let go of the shared memory
    /// before.
    fn is_silent(&self) -> bool {
        (0..PATIENCE / 10).any(|_| matches!(self.lines.recv_timeout(STEP), Err(RecvTimeoutError::Disconnected)))
    }

    fn failure(&self, what: &str) -> Report {
        let errors = fs::read_to_string(&self.errors).unwrap_or_default();
        miette!(code = "bench::gtm::run", "{what} {}", errors.lines().take(3).collect::<Vec<_>>().join(" "))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let group = i32::try_from(self.child.id()).unwrap_or(i32::MAX);
        // Killed in the critical section, GT.M leaves what it cannot clean up itself: first they are told to
        // end. The group keeps its number as long as one process is in it.
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            // SAFETY: a process group is asked for by number.
            unsafe { libc::kill(-group, signal) };
            if self.is_silent() {
                break;
            }
        }
        let _ = self.child.wait();
    }
}
