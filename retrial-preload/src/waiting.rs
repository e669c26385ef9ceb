//! Waits: by the instance's scheme where there is an instance, by a plain one before that and inside of the library.

use crate::profile::{self, Lock};
use crate::thread::Thread;
use crate::{caller, process, registry};
use libc::{ETIMEDOUT, c_int};
use retrial::interposer::{Ended, Park, Parked, Target, Want};
use retrial::sys::{self, Deadline};
use std::time::Duration;

/// What is wanted, and whose call it is.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) lock: Lock,
    /// Where the call returns to.
    pub(crate) caller: usize,
}

/// Waits for a target after a first try has failed.
pub(crate) fn wait<T: Target>(
    thread: &Thread,
    target: &T,
    ask: impl FnOnce() -> Ask,
    deadline: Option<Deadline>,
) -> Result<T::Got, Ended> {
    let (Some(instance), Some(_inside)) = (process::instance(), thread.enter()) else {
        let got = wait_plainly(target, deadline);
        target.ended(got.is_ok());
        return got;
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
    if let Some(since) = begun {
        profile::waited(thread, lock, since);
    }
    got
}

/// Waits for an object of libc's format, whose number and missed gets are kept by address: what its call returns.
pub(crate) fn wait_for_foreign<T: Target<Got = c_int>>(
    thread: &Thread,
    target: &T,
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

/// Spin, yield, park: without an instance, or from inside of one.
fn wait_plainly<T: Target>(target: &T, deadline: Option<Deadline>) -> Result<T::Got, Ended> {
    const SPINS: u32 = 100;
    const YIELDS: u32 = 8;
    const PARK: Duration = Duration::from_millis(10);
    for round in 0.. {
        for _ in 0..SPINS {
            if target.is_open(true)
                && let Some(got) = target.try_get(true)
            {
                return Ok(got);
            }
            std::hint::spin_loop();
        }
        let left = match deadline.map(Deadline::left) {
            Some(None) => break,
            Some(Some(left)) => left,
            None => Duration::MAX,
        };
        if target.parks_at_once() {
            let Parked::Got(got) = target.park(Park::lasting(left)) else { break };
            return Ok(got);
        }
        if round < YIELDS {
            sys::yield_now();
        } else if let Parked::Got(got) = target.park(Park::lasting(left.min(PARK))) {
            return Ok(got);
        }
    }
    Err(Ended::TimedOut)
}
