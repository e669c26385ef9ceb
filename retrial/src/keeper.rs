//! Sessions of threads that end before what they have lent does.
//!
//! A guard can be leaked together with its session, and what it guards can be lent to another thread: all in
//! safe Rust. When the thread of the session ends then, the mutex must stay as it is until the process has
//! gone. The kernel marks the session's lock though. So another thread, the *keeper*, takes a second lock of
//! the session first. The kernel marks the keeper's lock when the process ends or is replaced by `execve`, in
//! whatever way and PID namespace. A keeper is made only for a thread that ends with something in the log of
//! one of its sessions.

use crate::error::SessionError;
use crate::fail;
use crate::slot::Slot;
use crate::sys::{self, Ordering, ThreadEnd};
use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A session of the calling thread.
struct Entry {
    slot: *const Slot,
    /// Generation of the process that made it.
    generation: u64,
}

thread_local! {
    /// Sessions of this thread that have not been dropped. Nothing to drop, so that sessions end in
    /// destructors of other thread-locals.
    static SESSIONS: Cell<*mut Vec<Entry>> = const { Cell::new(null_mut()) };
}

/// Most sessions that one keeper keeps: the kernel marks 2,048 locks of a thread.
const KEPT_MAX: usize = 1024;

/// Bytes of a keeper's stack beyond the least that a thread may have: it takes locks and sleeps, with all
/// signals blocked.
const STACK: usize = 64 << 10;

/// Has a session outlive its thread, where something is in its log by then.
///
/// # Errors
///
/// [`SessionError::NoKey`]. The next session of the thread asks again then.
///
/// # Safety
///
/// The slot stays mapped until [`forget`] or for ever.
pub(crate) unsafe fn register(slot: &Slot, generation: u64) -> Result<(), SessionError> {
    if SESSIONS.get().is_null() {
        END.awaits()?;
        SESSIONS.set(Box::into_raw(Box::default()));
    }
    // SAFETY: this thread's own, made above, and no reference to it is kept.
    let sessions = unsafe { &mut *SESSIONS.get() };
    sessions.push(Entry { slot, generation });
    Ok(())
}

/// A session of the calling thread has ended. A child of fork has the entries of its parent's sessions too,
/// and may have a session in a slot of one of them.
pub(crate) fn forget(slot: &Slot, generation: u64) {
    if SESSIONS.get().is_null() {
        return;
    }
    // SAFETY: as in `register`.
    let sessions = unsafe { &mut *SESSIONS.get() };
    let is_its = |entry: &Entry| std::ptr::eq(entry.slot, slot) && entry.generation == generation;
    if let Some(index) = sessions.iter().position(is_its) {
        sessions.swap_remove(index);
    }
}

/// The destructors of Rust's thread-locals and of other keys may use sessions.
static END: ThreadEnd = ThreadEnd::new(keep_what_is_left);

fn keep_what_is_left() {
    let sessions = SESSIONS.replace(null_mut());
    // SAFETY: made by `register`, and nobody else has the pointer any more.
    let sessions = unsafe { Box::from_raw(sessions) };
    if fail::is_dead() {
        return;
    }
    let generation = sys::generation();
    // Those of another generation are a parent's.
    let own = sessions.iter().filter(|entry| entry.generation == generation);
    // SAFETY: the session has not been dropped: its slot stays mapped for ever.
    let slots = own.map(|entry| unsafe { &*entry.slot });
    let left: Vec<&'static Slot> = slots.filter(|slot| slot.owes_to().is_some()).collect();
    left.chunks(KEPT_MAX).for_each(keep);
}

/// What a keeper is to keep, and whether it does.
struct Task<'a> {
    slots: &'a [&'static Slot],
    is_done: AtomicBool,
}

/// Starts a keeper, and returns when it keeps these.
fn keep(slots: &[&'static Slot]) {
    let task = Task { slots, is_done: AtomicBool::new(false) };
    // Without a keeper the thread must not end.
    while !start(&task) {
        sys::sleep(Duration::from_millis(10));
    }
    // Acquire: pairs with the Release in `run`.
    while !task.is_done.load(Ordering::Acquire) {
        sys::sleep(Duration::from_micros(50));
    }
}

fn start(task: &Task<'_>) -> bool {
    // SAFETY: asks for a number.
    let least = unsafe { libc::sysconf(libc::_SC_THREAD_STACK_MIN) };
    let small = usize::try_from(least).unwrap_or(0).max(libc::PTHREAD_STACK_MIN) + STACK;
    // Thread-locals of the program are in the stack too: where they need more, it is as large as any
    // thread's.
    start_with(task, Some(small)) || start_with(task, None)
}

fn start_with(task: &Task<'_>, stack: Option<usize>) -> bool {
    let mut attributes = MaybeUninit::uninit();
    let attributes = attributes.as_mut_ptr();
    // SAFETY: writable.
    unsafe { libc::pthread_attr_init(attributes) };
    // SAFETY: made above.
    unsafe { libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED) };
    if let Some(stack) = stack {
        // SAFETY: as above.
        unsafe { libc::pthread_attr_setstacksize(attributes, stack) };
    }
    let (mut thread, task) = (0, std::ptr::from_ref(task).cast_mut().cast());
    let masked = sys::Masked::until_dropped();
    // SAFETY: `thread` is writable, and the task lives until `run` has done with it.
    let rc = unsafe { libc::pthread_create(&raw mut thread, attributes, run, task) };
    drop(masked);
    // SAFETY: made above.
    unsafe { libc::pthread_attr_destroy(attributes) };
    rc == 0
}

extern "C" fn run(task: *mut c_void) -> *mut c_void {
    // SAFETY: what `start` passes, alive until `is_done`.
    let task: &Task<'_> = unsafe { &*task.cast() };
    for slot in task.slots {
        // A keeper of a process that is gone may have it still, by what the kernel says.
        let _ = slot.kept.try_take();
    }
    // Release: pairs with the Acquire in `keep`. The task is gone after this.
    task.is_done.store(true, Ordering::Release);
    loop {
        sys::sleep(Duration::from_secs(1 << 30));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Instance;
    use crate::segment::Capacity;

    #[test]
    fn a_child_of_fork_forgets_its_own_session_not_the_one_that_its_parent_had_in_the_slot() {
        let instance = Instance::anonymous(Capacity::default()).unwrap();
        let slot = instance.tables.segment.departed();
        let (parent, child) = (1, 2);
        // The child's comes first when an entry before the parent's was taken out: the last one takes its
        // place.
        for order in [[parent, child], [child, parent]] {
            for generation in order {
                // SAFETY: forgotten below, while the instance is there.
                unsafe { register(slot, generation) }.unwrap();
            }
            forget(slot, child);
            // SAFETY: this thread's own, and no other reference to it is there.
            let left: Vec<u64> = unsafe { &*SESSIONS.get() }.iter().map(|entry| entry.generation).collect();
            assert_eq!(left, [parent]);
            forget(slot, parent);
        }
    }
}
