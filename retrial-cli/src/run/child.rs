//! The program as our child: signals and its end are passed through.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

/// Signals that are passed on to the program.
const PASSED: [i32; 9] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGCONT,
    libc::SIGTSTP,
];

/// How the program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Exit(i32),
    Signal(i32),
}

impl End {
    /// `exit 0`, `killed by signal 15 (SIGTERM)`.
    pub fn text(self) -> String {
        match self {
            Self::Exit(code) => format!("exit {code}"),
            Self::Signal(signal) => match name(signal) {
                Some(name) => format!("killed by signal {signal} ({name})"),
                None => format!("killed by signal {signal}"),
            },
        }
    }
}

fn name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}

/// The program's end and the processor time of it and of all children that it waited for.
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    pub end: End,
    pub user_s: f64,
    pub system_s: f64,
}

/// Signals held back from this process, to be taken one by one. Made before any thread is started.
pub struct Signals {
    before: libc::sigset_t,
    taken: libc::sigset_t,
    on_child: libc::sighandler_t,
}

impl Signals {
    pub fn hold() -> Self {
        let mut taken = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `taken` is writable.
        unsafe { libc::sigemptyset(taken.as_mut_ptr()) };
        for signal in PASSED.into_iter().chain([libc::SIGCHLD]) {
            // SAFETY: made empty above, and the signals exist.
            unsafe { libc::sigaddset(taken.as_mut_ptr(), signal) };
        }
        // SAFETY: made empty above.
        let taken = unsafe { taken.assume_init() };
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: one set is readable, the other writable.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const taken, before.as_mut_ptr()) };
        // SAFETY: the call above has filled it.
        let before = unsafe { before.assume_init() };
        // Our parent may have ignored it, and then no child could be waited for.
        // SAFETY: the default action is always valid.
        let on_child = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        Self { before, taken, on_child }
    }

    /// Starts a program with the signals as we had them when we were started.
    pub fn start(&self, command: &mut Command) -> io::Result<i32> {
        let (before, on_child) = (self.before, self.on_child);
        let restore = move || {
            // SAFETY: what it was before.
            unsafe { libc::signal(libc::SIGCHLD, on_child) };
            // SAFETY: the set is readable, and no old one is asked for.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
            Ok(())
        };
        // SAFETY: only async-signal-safe calls are made between fork and exec.
        unsafe { command.pre_exec(restore) };
        let child = command.spawn()?;
        i32::try_from(child.id()).map_err(io::Error::other)
    }

    /// Passes signals on until the program has ended.
    pub fn wait(&self, pid: i32) -> Finished {
        loop {
            let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
            // SAFETY: the set is readable and the information writable.
            let signal = unsafe { libc::sigwaitinfo(&raw const self.taken, info.as_mut_ptr()) };
            // SAFETY: zeroed is a valid value, and the call above may have filled it.
            let info = unsafe { info.assume_init() };
            if signal == libc::SIGCHLD {
                if let Some(finished) = reap(pid) {
                    return finished;
                }
            } else if signal > 0 {
                pass_on(signal, pid, info.si_code > 0);
            }
        }
    }

    /// Ends this process by the signal that ended the program. Returns when the signal does not end a
    /// process.
    pub fn die_of(&self, signal: i32) {
        let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the limit is readable. The program has left its core, if there is to be one.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core) };
        // SAFETY: the default action is always valid.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        let mut one = self.before;
        // SAFETY: a set that the kernel has filled.
        unsafe { libc::sigemptyset(&raw mut one) };
        // SAFETY: the signal comes from the kernel.
        unsafe { libc::sigaddset(&raw mut one, signal) };
        // SAFETY: the set is readable, and no old one is asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const one, ptr::null_mut()) };
        // SAFETY: sent to ourselves.
        unsafe { libc::raise(signal) };
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the set is readable, and no old one is asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut()) };
    }
}

/// A signal that the kernel sent (a terminal's, mostly) has reached the whole process group, with the program
/// while it is in the same one. A signal that another process sent to this one alone is passed on, and so is
/// the hang-up of a terminal, which the kernel tells only the leader of its session.
fn pass_on(signal: i32, pid: i32, from_kernel: bool) {
    // SAFETY: a process is asked for by number, and the error is -1.
    let theirs = unsafe { libc::getpgid(pid) };
    // SAFETY: cannot fail.
    let ours = unsafe { libc::getpgrp() };
    // SAFETY: it takes a number.
    let leads = u32::try_from(unsafe { libc::getsid(0) }) == Ok(std::process::id());
    if !from_kernel || theirs != ours || (signal == libc::SIGHUP && leads) {
        // SAFETY: our child, not reaped yet, so that the number is still its own.
        unsafe { libc::kill(pid, signal) };
    }
    if signal == libc::SIGTSTP {
        // The shell gets the terminal back once we have stopped too.
        // SAFETY: sent to ourselves.
        unsafe { libc::raise(libc::SIGSTOP) };
    }
}

/// The program's end, `None` while it runs.
fn reap(pid: i32) -> Option<Finished> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: status and usage are writable.
    let reaped = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    if reaped != pid {
        return None;
    }
    // SAFETY: zeroed is a valid value, and the call above has filled it.
    let usage = unsafe { usage.assume_init() };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let end = if libc::WIFSIGNALED(status) {
        End::Signal(libc::WTERMSIG(status))
    } else {
        End::Exit(libc::WEXITSTATUS(status))
    };
    Some(Finished { end, user_s: seconds(usage.ru_utime), system_s: seconds(usage.ru_stime) })
}
