//! Waits: by the instance's scheme where there is an instance, by a plain one before that and inside of the library.

use crate::profile::{self, Lock};
use crate::thread::Thread;
use crate::{caller, process};
use retrial::sys::{self, Deadline};
use retrial::{Ended, Park, Parked, Target, Waiter, Want};
use std::time::Duration;

/// Whoever has no more time than this does not queue at once.
const SHORT: Duration = Duration::from_millis(100);

/// What is wanted, and whose call it is.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) lock: Lock,
    /// Where the call returns to.
    pub(crate) caller: usize,
    /// Whether the thread's turn is over.
    pub(crate) over: bool,
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
    let Ask { lock, caller, over } = ask();
    let has_time = deadline.is_none_or(|deadline| deadline.left().is_some_and(|left| left > SHORT));
    let may_queue = has_time && thread.holds_none();
    let want = Want {
        mutex: lock.mutex,
        mutex_type: lock.kind.id(),
        location: caller::location(instance, caller),
        mode: lock.mode,
        queues: thread.from_condition.get() || over && may_queue,
        may_queue,
    };
    let begun = profile::wait_begins();
    let got = Waiter { instance, session: thread.session() }.wait(target, want, deadline);
    if let Some(since) = begun {
        profile::waited(thread, lock, since);
    }
    got
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
