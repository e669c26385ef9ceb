//! The program as our child: signals and its end are passed through.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, iter, ptr};

/// Signals that are not held and passed on to the program: faults and failed writes of this process.
const OWN: [i32; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS, libc::SIGPIPE];

/// What SIGPIPE did when this process was started. Before `main` Rust's runtime has it ignored.
static ON_PIPE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_ON_PIPE: extern "C" fn() = note_on_pipe;

extern "C" fn note_on_pipe() {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the action is writable, and no new one is set.
    unsafe { libc::sigaction(libc::SIGPIPE, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroed is a valid value, and the call above may have filled it.
    ON_PIPE.store(unsafe { action.assume_init() }.sa_sigaction, Ordering::Relaxed);
}

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
        unsafe { libc::sigfillset(taken.as_mut_ptr()) };
        for signal in OWN {
            // SAFETY: filled above, and the signals exist.
            unsafe { libc::sigdelset(taken.as_mut_ptr(), signal) };
        }
        // SAFETY: filled above.
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
        let (before, on_child, on_pipe) = (self.before, self.on_child, ON_PIPE.load(Ordering::Relaxed));
        let restore = move || {
            for (signal, action) in [(libc::SIGCHLD, on_child), (libc::SIGPIPE, on_pipe)] {
                // SAFETY: what it was before.
                unsafe { libc::signal(signal, action) };
            }
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
            match signal {
                libc::SIGCHLD => {
                    reap_orphans(pid);
                    if let Some(finished) = reap(pid) {
                        return finished;
                    }
                }
                1.. => pass_on(&info, pid),
                _ => continue,
            }
            stop_with(pid);
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

/// Signals that a terminal sends.
const OF_TERMINALS: [i32; 8] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGWINCH,
    libc::SIGHUP,
    libc::SIGCONT,
];

/// A signal that the kernel sent for a terminal has reached the whole process group, with the program while
/// it is in the same one. The kernel's other signals, such as that of an alarm set before this command was
/// executed, are for this process alone, and are passed on. So is a signal that another process sent, and the
/// hang-up of a terminal, which the kernel tells only the leader of its session. Not what the program has
/// sent itself, or a process that it has started: to its group, or to all.
fn pass_on(info: &libc::siginfo_t, pid: i32) {
    // SAFETY: a process is asked for by number, and the error is -1.
    let theirs = unsafe { libc::getpgid(pid) };
    // SAFETY: cannot fail.
    let ours = unsafe { libc::getpgrp() };
    // SAFETY: it takes a number.
    let leads = u32::try_from(unsafe { libc::getsid(0) }) == Ok(std::process::id());
    let is_passed = if info.si_code > 0 {
        theirs != ours || !OF_TERMINALS.contains(&info.si_signo) || (info.si_signo == libc::SIGHUP && leads)
    } else {
        // SAFETY: a process has sent it, and then there is its number.
        !is_from(unsafe { info.si_pid() }, pid)
    };
    if is_passed {
        // SAFETY: our child, not reaped yet, so that the number is still its own.
        unsafe { libc::kill(pid, info.si_signo) };
    }
}

/// Whether a process is the program, or one that it has started.
fn is_from(sender: i32, pid: i32) -> bool {
    iter::successors(Some(sender), |pid| parent(*pid)).any(|ancestor| ancestor == pid)
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may have anything in it.
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

/// Stops when the program has been stopped, so that the shell gets the terminal back. By SIGSTOP only in
/// front of a terminal: the process that sends that will continue the program alone, where no shell waits for
/// both.
fn stop_with(pid: i32) {
    let follows = |signal| signal != libc::SIGSTOP || has_terminal();
    if stopped(pid, libc::WNOWAIT).is_some_and(follows) && stopped(pid, 0).is_some() {
        // SAFETY: sent to ourselves.
        unsafe { libc::raise(libc::SIGSTOP) };
    }
}

/// Whether this process and its group have the terminal.
fn has_terminal() -> bool {
    fs::File::open("/dev/tty").is_ok_and(|terminal| {
        // SAFETY: it takes a descriptor.
        let front = unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) };
        // SAFETY: cannot fail.
        front == unsafe { libc::getpgrp() }
    })
}

/// The signal that has stopped the program, `None` while it runs.
fn stopped(pid: i32, option: i32) -> Option<i32> {
    waited_for(libc::P_PID, pid, libc::WSTOPPED | option).map(|(_, signal)| signal)
}

/// The number and the exit code or signal of a child that has changed so, `None` when there is none.
fn waited_for(kind: libc::idtype_t, pid: i32, options: i32) -> Option<(i32, i32)> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the information is writable.
    unsafe { libc::waitid(kind, pid.cast_unsigned(), info.as_mut_ptr(), options | libc::WNOHANG) };
    // SAFETY: zeroed is a valid value, and the call above may have filled it.
    let info = unsafe { info.assume_init() };
    // SAFETY: a child's, or 0.
    let found = unsafe { info.si_pid() };
    // SAFETY: as above.
    (found != 0).then(|| (found, unsafe { info.si_status() }))
}

/// As process 1, which all processes of a container come to whose parents have ended: reaps those.
fn reap_orphans(pid: i32) {
    if std::process::id() != 1 {
        return;
    }
    // Not the program yet: its usage goes with it.
    while let Some((ended, _)) = waited_for(libc::P_ALL, 0, libc::WEXITED | libc::WNOWAIT)
        && ended != pid
    {
        let _ = waited_for(libc::P_PID, ended, libc::WEXITED);
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
