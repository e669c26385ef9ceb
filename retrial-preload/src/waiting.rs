//! Waits: by the instance's scheme where there is an instance, by a plain one before that and inside of the library.

use crate::thread::Thread;
use crate::{caller, process};
use retrial::sys::{self, Deadline};
use retrial::{Ended, Mode, MutexId, Park, Parked, Target, TypeId, Waiter, Want};
use std::time::Duration;

/// What is wanted, and whose call it is.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) mutex: MutexId,
    pub(crate) mutex_type: TypeId,
    pub(crate) mode: Mode,
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
        return wait_plainly(target, deadline);
    };
    let Ask { mutex, mutex_type, mode, caller } = ask();
    let want = Want {
        mutex,
        mutex_type,
        location: caller::location(instance, caller),
        mode,
        queues: thread.from_condition.get(),
    };
    Waiter { instance, session: thread.session() }.wait(target, want, deadline)
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
        if round < YIELDS {
            sys::yield_now();
        } else if let Parked::Got(got) = target.park(Park { timeout: left.min(PARK), ..Park::default() }) {
            return Ok(got);
        }
    }
    Err(Ended::TimedOut)
}
