//! Waits for events, which are libc's own or a condition's: counted and timed. Only a wait that finds its
//! event not there yet comes here.

use crate::instance::{Type, instance};
use crate::process;
use crate::real;
use crate::thread::Thread;
use crate::{caller, registry};
use libc::{c_int, c_void};
use retrial::interposer::EventWait;
use retrial::sys::Errno;

/// What the wait is recorded as: nothing where the thread has no session.
pub(crate) fn begin(kind: Type, address: usize, from: usize, thread: &Thread) -> Option<EventWait> {
    // Finds out who the thread is.
    thread.me();
    let (instance, _inside) = (instance()?, thread.enter()?);
    let (_, session) = thread.known()?;
    Some(EventWait::begin(session, registry::number_of(kind, address), caller::location(instance, from)))
}

/// The wait is over. In a child of fork it was the parent's.
pub(crate) fn end(wait: Option<EventWait>, thread: &Thread) {
    if let (Some(wait), Some((_, session))) = (wait, thread.known()) {
        wait.end(session);
    }
}

/// A wait on a semaphore, on the stack of the shim.
#[repr(C)]
pub(crate) struct Event {
    wait: Option<EventWait>,
    thread: *const Thread,
}

const _: () = assert!(size_of::<Event>() <= 6 * 8, "struct event in condition.c has room for it");

/// Begins a wait on a semaphore.
#[unsafe(no_mangle)]
unsafe extern "C" fn retrial_semaphore_begin(
    event: *mut Event,
    semaphore: *const c_void,
    from: usize,
    thread: &Thread,
) {
    let _errno = Errno::keep();
    let wait = if process::is_on() { begin(Type::Semaphore, semaphore.addr(), from, thread) } else { None };
    // SAFETY: the shim has room for it.
    unsafe { event.write(Event { wait, thread }) };
}

/// Ends it, also when the thread is cancelled. The semaphore may be gone.
#[unsafe(no_mangle)]
unsafe extern "C" fn retrial_semaphore_end(event: &mut Event) {
    let _errno = Errno::keep();
    // SAFETY: the waiting thread's own.
    end(event.wait.take(), unsafe { &*event.thread });
}

/// Looks libc's functions up, for the shim.
#[unsafe(no_mangle)]
extern "C" fn retrial_resolve() {
    real::resolve_if_needed();
}

/// `pthread_barrier_wait`. Of the last one at the barrier it counts a wait that takes no time.
///
/// # Safety
///
/// That of the function.
pub(crate) unsafe extern "C" fn barrier_wait(barrier: *mut c_void, from: usize, thread: &Thread) -> c_int {
    let wait = if process::is_on() { begin(Type::Barrier, barrier.addr(), from, thread) } else { None };
    // SAFETY: the caller's.
    let result = unsafe { real::barrier_wait(barrier) };
    // The barrier may be gone.
    end(wait, thread);
    result
}
