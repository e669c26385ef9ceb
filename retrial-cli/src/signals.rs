//! Ctrl-C and its like end a hold or a trace properly; a second one ends the command at once.

use std::sync::atomic::{AtomicI32, Ordering};

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

/// The signal that was noted.
pub fn received() -> Option<i32> {
    match RECEIVED.load(Ordering::Relaxed) {
        0 => None,
        signal => Some(signal),
    }
}
