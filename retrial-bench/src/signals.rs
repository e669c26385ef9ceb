//! Ctrl-C and its like: a command gives back what it holds, says what it has to say, and dies of the signal,
//! as one that has nothing to give back does at once. A second signal ends the command at once.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

static RECEIVED: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    RECEIVED.store(signal, Ordering::Relaxed);
    retrial::sys::end_deadlines();
}

/// From now on SIGINT, SIGTERM and SIGHUP are noted, and end the waits of this process that have a deadline.
pub fn catch() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: all zero is a valid value of this plain C struct.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = note as *const () as libc::sighandler_t;
        // The second signal has its default effect. No SA_RESTART: the sleep under way ends.
        action.sa_flags = libc::SA_RESETHAND;
        // SAFETY: `action` is readable, and the handler does nothing but store to atomics.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

/// From now on a write beyond the limit of a file's size fails, as one to a full disk does, and does not end
/// this process.
pub fn outlive_file_limit() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: all zero is a valid value of this plain C struct.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // A handler, which programs that this process starts do not inherit; to ignore it they would.
    action.sa_sigaction = nothing as *const () as libc::sighandler_t;
    // SAFETY: `action` is readable, and the handler does nothing.
    unsafe { libc::sigaction(libc::SIGXFSZ, &raw const action, std::ptr::null_mut()) };
}

/// The signal that was noted.
pub fn received() -> Option<i32> {
    match RECEIVED.load(Ordering::Relaxed) {
        0 => None,
        signal => Some(signal),
    }
}

/// Ends this process by a signal, as if nobody had caught it: to a shell 128 and the signal's number.
pub fn die_of(signal: i32) -> ! {
    // SAFETY: the default action is always valid.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: writable.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: filled above.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    // SAFETY: filled above, and no old one is asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut()) };
    // SAFETY: sent to ourselves.
    unsafe { libc::raise(signal) };
    std::process::exit(128 + signal);
}

/// How often a terminal's job was asked to stop, and has gone on after a stop.
static STOPS: AtomicI32 = AtomicI32::new(0);
static CONTINUED: AtomicI32 = AtomicI32::new(0);

extern "C" fn note_stop(_: libc::c_int) {
    STOPS.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn note_continue(_: libc::c_int) {
    CONTINUED.fetch_add(1, Ordering::Relaxed);
}

fn handle(signal: i32, handler: libc::sighandler_t) {
    // SAFETY: all zero is a valid value of this plain C struct.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: `action` is readable, and the handlers do nothing but add to atomics.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
}

/// From now on SIGTSTP is noted, so that the terminal can be given back before [`stop`], and SIGCONT, so that
/// it can be taken again.
pub fn catch_stops() {
    handle(libc::SIGTSTP, note_stop as *const () as libc::sighandler_t);
    handle(libc::SIGCONT, note_continue as *const () as libc::sighandler_t);
}

/// Whether a SIGTSTP has been noted since the last question.
pub fn stop_asked() -> bool {
    STOPS.swap(0, Ordering::Relaxed) > 0
}

/// Whether this process has gone on after a stop since the last question.
pub fn continued() -> bool {
    CONTINUED.swap(0, Ordering::Relaxed) > 0
}

/// Stops this process as SIGTSTP does, until it is continued.
pub fn stop() {
    handle(libc::SIGTSTP, libc::SIG_DFL);
    // SAFETY: sent to ourselves.
    unsafe { libc::raise(libc::SIGTSTP) };
    catch_stops();
}

/// Sends this process a signal, as if the terminal had.
pub fn send(signal: i32) {
    // SAFETY: sent to ourselves.
    unsafe { libc::raise(signal) };
}

/// Waits so long at most for a key; whether the terminal that is standard input has gone.
pub fn hung_up(time: Duration) -> bool {
    let mut input = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
    let time_ms = libc::c_int::try_from(time.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: one writable entry.
    let ready = unsafe { libc::poll(&raw mut input, 1, time_ms) };
    ready > 0 && input.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
}
