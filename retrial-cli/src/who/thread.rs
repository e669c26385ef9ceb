//! What a thread is at, as far as the kernel tells us: its state, where it sleeps in the kernel, its system
//! call, its stacks.

use super::unwind::Files;
use crate::run::symbols::Symbols;
use crate::run::variables::Modules;
use serde_json::{Value, json};
use std::fs;
use std::thread::sleep;
use std::time::Duration;

/// Looks at a thread that is found running: one that waits with a limit is awake for a moment at times. What
/// is between them.
const LOOKS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(1);

/// System calls that a thread may stay in; others are told by their number.
const CALLS: &[(i64, &str)] = &[
    (libc::SYS_accept, "accept"),
    (libc::SYS_accept4, "accept4"),
    (libc::SYS_clock_nanosleep, "clock_nanosleep"),
    (libc::SYS_connect, "connect"),
    (libc::SYS_epoll_pwait, "epoll_pwait"),
    (libc::SYS_fallocate, "fallocate"),
    (libc::SYS_fcntl, "fcntl"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_flock, "flock"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_futex, "futex"),
    (libc::SYS_io_getevents, "io_getevents"),
    (libc::SYS_io_uring_enter, "io_uring_enter"),
    (libc::SYS_ioctl, "ioctl"),
    (libc::SYS_madvise, "madvise"),
    (libc::SYS_mmap, "mmap"),
    (libc::SYS_msgrcv, "msgrcv"),
    (libc::SYS_msgsnd, "msgsnd"),
    (libc::SYS_msync, "msync"),
    (libc::SYS_munmap, "munmap"),
    (libc::SYS_nanosleep, "nanosleep"),
    (libc::SYS_openat, "openat"),
    (libc::SYS_ppoll, "ppoll"),
    (libc::SYS_pread64, "pread64"),
    (libc::SYS_pselect6, "pselect6"),
    (libc::SYS_pwrite64, "pwrite64"),
    (libc::SYS_read, "read"),
    (libc::SYS_readv, "readv"),
    (libc::SYS_recvfrom, "recvfrom"),
    (libc::SYS_recvmsg, "recvmsg"),
    (libc::SYS_restart_syscall, "restart_syscall"),
    (libc::SYS_rt_sigsuspend, "rt_sigsuspend"),
    (libc::SYS_rt_sigtimedwait, "rt_sigtimedwait"),
    (libc::SYS_sched_yield, "sched_yield"),
    (libc::SYS_semtimedop, "semtimedop"),
    (libc::SYS_sendmsg, "sendmsg"),
    (libc::SYS_sendto, "sendto"),
    (libc::SYS_unlinkat, "unlinkat"),
    (libc::SYS_wait4, "wait4"),
    (libc::SYS_waitid, "waitid"),
    (libc::SYS_write, "write"),
    (libc::SYS_writev, "writev"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_epoll_wait, "epoll_wait"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, "open"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_pause, "pause"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, "poll"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_select, "select"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, "unlink"),
];

/// A thread at one look.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Thread {
    pub state: State,
    /// The kernel's function that it sleeps in.
    pub wchan: Option<String>,
    /// The system call that it is in.
    pub call: Option<String>,
    /// Its calls, innermost first: where it sleeps in the kernel and its stack may be read.
    pub stack: Vec<String>,
    /// Those in the kernel, where we are root.
    pub kernel_stack: Vec<String>,
}

/// What the scheduler says of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum State {
    /// On a processor, or in the queue for one.
    Running,
    Asleep,
    /// By a signal; it goes on at SIGCONT.
    Stopped,
    Traced,
    Uninterruptible,
    Ending,
    /// There is no such thread that we see.
    #[default]
    Unseen,
}

impl State {
    const fn of(letter: char) -> Self {
        match letter {
            'R' => Self::Running,
            'T' => Self::Stopped,
            't' => Self::Traced,
            'D' => Self::Uninterruptible,
            'Z' | 'X' => Self::Ending,
            _ => Self::Asleep,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Asleep => "asleep",
            Self::Stopped => "stopped",
            Self::Traced => "stopped by a debugger",
            Self::Uninterruptible => "in an uninterruptible wait",
            Self::Ending => "ending",
            Self::Unseen => "not seen from here",
        }
    }
}

impl Thread {
    /// The state of a thread of this PID namespace.
    pub fn state_of(pid: u32, tid: u32) -> Option<State> {
        // `TID (NAME) STATE …`; a name may have anything in it.
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
        let letter = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next())?;
        Some(State::of(letter))
    }

    /// A thread of this PID namespace.
    pub fn of(pid: u32, tid: u32, files: &mut Files, symbols: &mut Symbols) -> Self {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{file}")).unwrap_or_default();
        let (syscall, stack) =
            at_rest(|| read("syscall"), |syscall| files.stack(pid, &Modules::of(pid), syscall.ip?, syscall.sp?));
        let Some(state) = Self::state_of(pid, tid) else { return Self::default() };
        Self {
            state,
            wchan: Some(read("wchan").trim().to_owned()).filter(|wchan| !matches!(wchan.as_str(), "" | "0")),
            call: syscall.and_then(Syscall::name),
            stack: stack.unwrap_or_default().iter().map(|place| symbols.text(place)).collect(),
            kernel_stack: kernel_stack(&read("stack")),
        }
    }

    /// `asleep in hrtimer_nanosleep (clock_nanosleep)`.
    pub fn text(&self) -> String {
        let state = self.state.name();
        match (&self.wchan, &self.call) {
            (Some(wchan), Some(call)) => format!("{state} in {wchan} ({call})"),
            (Some(one), None) | (None, Some(one)) => format!("{state} in {one}"),
            (None, None) => state.to_owned(),
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "state": self.state.name(),
            "wchan": self.wchan,
            "system_call": self.call,
            "stack": self.stack,
            "kernel_stack": self.kernel_stack,
        })
    }
}

/// The system call of a thread and its stack, which belong together: it was in the same call before the stack
/// was read and after. One that goes on running has neither.
fn at_rest<T>(mut syscall: impl FnMut() -> String, mut stack: impl FnMut(Syscall) -> T) -> (Option<Syscall>, T)
where
    T: Default,
{
    for look in 0..LOOKS {
        if look > 0 {
            sleep(PAUSE);
        }
        let text = syscall();
        if let Some(call) = Syscall::parse(&text) {
            let stack = stack(call);
            if syscall() == text {
                return (Some(call), stack);
            }
        } else if text.is_empty() {
            // We may not know.
            break;
        }
    }
    Default::default()
}

/// What the kernel says of a thread's system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Syscall {
    /// Below 0: it is in the kernel, but in no system call.
    pub number: i64,
    /// What it was called with; 0 where the kernel tells none.
    pub arguments: [u64; 6],
    pub sp: Option<u64>,
    pub ip: Option<u64>,
}

impl Syscall {
    /// `NUMBER ARGUMENTS… SP IP`, or `running`, or nothing where we may not know.
    pub fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [number, told @ .., sp, ip] = words.as_slice() else { return None };
        let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
        let arguments = std::array::from_fn(|i| told.get(i).copied().and_then(hex).unwrap_or(0));
        Some(Self { number: number.parse().ok()?, arguments, sp: hex(sp), ip: hex(ip) })
    }

    fn name(self) -> Option<String> {
        let known = CALLS.iter().find(|(number, _)| *number == self.number);
        known.map(|(_, name)| (*name).to_owned()).or_else(|| (self.number >= 0).then(|| self.number.to_string()))
    }
}

/// `[<0>] futex_wait_queue+0x65/0x90` → `futex_wait_queue`.
fn kernel_stack(text: &str) -> Vec<String> {
    let function = |line: &str| Some(line.split_whitespace().nth(1)?.split('+').next()?.to_owned());
    text.lines().filter_map(function).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_call_has_a_name_and_where_it_returns_to() {
        let asleep = Syscall::parse("230 0x0 0x0 0x7ffd 0x0 0x0 0x0 0x7ffd1020 0x7f0010\n").unwrap();
        assert_eq!((asleep.sp, asleep.ip), (Some(0x7ffd_1020), Some(0x7f_0010)));
        assert_eq!(asleep.arguments, [0, 0, 0x7ffd, 0, 0, 0]);
        if cfg!(target_arch = "x86_64") {
            assert_eq!(asleep.name().as_deref(), Some("clock_nanosleep"));
        }
        assert_eq!(Syscall { number: 9999, ..asleep }.name().as_deref(), Some("9999"));
        assert_eq!(Syscall::parse("-1 0x10 0x20").unwrap().name(), None);
        assert_eq!((Syscall::parse("running"), Syscall::parse("")), (None, None));
    }

    #[test]
    fn a_thread_that_wakes_up_for_a_moment_is_looked_at_until_it_is_at_rest() {
        let looks = |texts: &[&str]| {
            let mut left = texts.iter();
            let mut text = || left.next().map_or_else(String::new, |text| (*text).to_owned());
            let (call, sp) = at_rest(&mut text, |call| call.sp);
            assert_eq!(call.and_then(|call| call.sp), sp);
            (sp, left.len())
        };
        let [first, second] = ["202 0x0 0x10 0x1", "230 0x0 0x20 0x1"];
        assert_eq!(looks(&[first, first]), (Some(0x10), 0));
        assert_eq!(looks(&["running", first, second, second, second]), (Some(0x20), 0));
        assert_eq!(looks(&["running"; 10]), (None, 10 - LOOKS as usize));
        assert_eq!(looks(&["", first, first]), (None, 2));
    }

    #[test]
    fn a_stack_in_the_kernel_is_its_functions() {
        let text = "[<0>] futex_do_wait+0x38/0x70\n[<0>] __futex_wait+0x91/0x100\n";
        assert_eq!(kernel_stack(text), ["futex_do_wait", "__futex_wait"]);
    }

    #[test]
    fn a_thread_that_is_not_there_is_not_seen() {
        let thread = Thread::of(u32::MAX, 1, &mut Files::default(), &mut Symbols::default());
        assert_eq!((thread.state, thread.text()), (State::Unseen, "not seen from here".to_owned()));
    }
}
