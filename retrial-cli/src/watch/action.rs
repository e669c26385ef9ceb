//! The command that is run when a condition holds: one at a time, with a time-out, told what has happened on
//! its standard input.

use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Time between being asked to end and being killed.
const GRACE: Duration = Duration::from_secs(2);

/// A command under way, in a process group of its own.
pub struct Action {
    child: Child,
    began: Instant,
    timeout: Duration,
    /// When it was asked to end.
    asked: Option<Instant>,
    is_killed: bool,
}

impl Action {
    /// Starts it by the shell.
    pub fn start(command: &str, input: &str, timeout: Duration) -> io::Result<Self> {
        let mut shell = Command::new("sh");
        let mut child = shell.args(["-c", command]).stdin(Stdio::piped()).process_group(0).spawn()?;
        if let Some(mut to) = child.stdin.take() {
            // A command that does not read has ended, or has no use for it. It is less than a pipe holds.
            let _ = to.write_all(input.as_bytes());
        }
        Ok(Self { child, began: Instant::now(), timeout, asked: None, is_killed: false })
    }

    /// How it has ended, once it has. Beyond its time it is asked to end, then killed.
    pub fn ended(&mut self) -> Option<String> {
        let took = self.began.elapsed();
        if let Ok(Some(status)) = self.child.try_wait() {
            return Some(self.text(status, took));
        }
        if took >= self.timeout && self.asked.is_none() {
            self.ask_to_end();
        }
        if self.asked.is_some_and(|asked| asked.elapsed() >= GRACE) && !self.is_killed {
            self.is_killed = true;
            self.signal(libc::SIGKILL);
        }
        None
    }

    /// Whether it has ended well, by what [`Self::ended`] said.
    pub fn is_well(ended: &str) -> bool {
        ended.starts_with("done")
    }

    pub fn ask_to_end(&mut self) {
        self.asked.get_or_insert_with(Instant::now);
        self.signal(libc::SIGTERM);
    }

    fn text(&self, status: ExitStatus, took: Duration) -> String {
        let took = crate::duration::text(took);
        match (self.asked, status.code(), status.signal()) {
            (Some(_), ..) => format!("failed: still running after {}, ended", crate::duration::text(self.timeout)),
            (_, Some(0), _) => format!("done in {took}"),
            (_, Some(code), _) => format!("failed: exit code {code} after {took}"),
            (.., signal) => format!("failed: killed by signal {} after {took}", signal.unwrap_or(0)),
        }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the group of our own child, which has not been waited for.
        unsafe { libc::kill(-self.child.id().cast_signed(), signal) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(command: &str, timeout: Duration) -> String {
        let mut action = Action::start(command, "{\"x\":1}\n", timeout).unwrap();
        loop {
            if let Some(ended) = action.ended() {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn it_is_told_on_its_standard_input_and_how_it_ends_is_told() {
        let minute = Duration::from_mins(1);
        assert!(end("read line && test \"$line\" = '{\"x\":1}'", minute).starts_with("done in "));
        assert!(end("exit 3", minute).starts_with("failed: exit code 3 after "));
        assert!(end("kill -9 $$", minute).starts_with("failed: killed by signal 9 "));
        assert!(end("no-such-command-anywhere 2>/dev/null", minute).starts_with("failed: exit code 127"));
        assert!(Action::is_well("done in 1 s") && !Action::is_well("failed: exit code 3"));
    }

    #[test]
    fn beyond_its_time_it_is_ended_with_all_that_it_started() {
        assert_eq!(end("sleep 600; true", Duration::from_millis(50)), "failed: still running after 50.0 ms, ended");
        assert_eq!(
            end("trap '' TERM; sleep 600 & wait; wait", Duration::ZERO),
            "failed: still running after 0 s, ended"
        );
    }
}
