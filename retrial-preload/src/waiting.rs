//! Waits: by the instance's scheme where there is an instance, by the default one before that and inside of
//! the library.

use crate::instance::instance;
use crate::profile::{self, Lock};
use crate::thread::Thread;
use crate::{caller, registry};
use libc::{ETIMEDOUT, c_int};
use retrial::interposer::{Ended, Target, Waiter, Want};
use retrial::sys::Deadline;
use retrial::views::{LocationId, TypeId};
use retrial::{Mode, MutexId};

/// What is wanted, and whose call it is.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) lock: Lock,
    /// Where the call returns to.
    pub(crate) caller: usize,
}

/// Waits for a target after a first try has failed. In a child that a handler of a signal has forked in the
/// wait, it begins anew, with the child's own target and session.
pub(crate) fn wait<T: Target>(
    thread: &Thread,
    target: impl Fn() -> T,
    ask: impl Fn() -> Ask,
    deadline: Option<Deadline>,
) -> Result<T::Got, Ended> {
    loop {
        // Finds out who the thread is, for the target too.
        thread.me();
        match wait_in_process(thread, &target(), &ask, deadline) {
            Err(Ended::Forked) => {}
            ended => {
                // It may have forked in the last step: what is counted from here on is the child's.
                thread.me();
                return ended;
            }
        }
    }
}

/// Waits in the process that began to; ends with [`Ended::Forked`] in another one.
fn wait_in_process<T: Target>(
    thread: &Thread,
    target: &T,
    ask: impl FnOnce() -> Ask,
    deadline: Option<Deadline>,
) -> Result<T::Got, Ended> {
    let (Some(instance), Some(_inside)) = (instance(), thread.enter()) else {
        // Nothing is recorded.
        let want = Want {
            mutex: MutexId(0),
            mutex_type: TypeId(0),
            location: LocationId(0),
            mode: Mode::Exclusive,
            from_queue: thread.from_condition.get(),
        };
        return Waiter::stranger().wait(target, want, deadline);
    };
    let Ask { lock, caller } = ask();
    let want = Want {
        mutex: lock.mutex,
        mutex_type: lock.object.id(),
        location: caller::location(instance, caller),
        mode: lock.mode,
        from_queue: thread.from_condition.get(),
    };
    let begun = profile::wait_begins();
    let got = thread.waiter(instance).wait(target, want, deadline);
    if let Some(since) = begun
        && !matches!(got, Err(Ended::Forked))
    {
        profile::waited(thread, lock, since);
    }
    got
}

/// Waits for an object of libc's format, whose number and missed gets are kept by address: what its call
/// returns.
pub(crate) fn wait_for_foreign<T: Target<Got = c_int>>(
    thread: &Thread,
    target: impl Fn() -> T,
    lock: Lock,
    caller: usize,
    deadline: Option<Deadline>,
) -> c_int {
    let (object, address) = (lock.object, lock.address);
    let ask = || Ask { lock: Lock { mutex: registry::number_of(object, address), ..lock }, caller };
    let result = wait(thread, target, ask, deadline).unwrap_or(ETIMEDOUT);
    registry::count_missed_get(object, address);
    result
}
