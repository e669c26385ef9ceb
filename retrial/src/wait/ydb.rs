//! `ydb`: hard spin, soft spin, then a FIFO queue whose first session the releaser wakes to start over;
//! barging allowed.
//!
//! Wins for short sections up to some thousand processes, since a yield lets a preempted holder run again;
//! burns processors in yields when they are all taken. Source: the mutex of `YottaDB` r2.04 and GT.M. Two
//! faults of theirs are left out: no session sleeps a fixed 100 ms outside of the queue, and a full queue is
//! counted.

use super::{Attempt, Scheme, Step};
use crate::params::P;
use std::time::Duration;

pub(super) struct Ydb;

impl Scheme for Ydb {
    fn spins(&self, attempt: &Attempt<'_>) -> u32 {
        if attempt.parks == 0 { super::clamp(attempt.params.get(P::HardSpinCount)) } else { 1 }
    }

    fn step(&self, attempt: &Attempt<'_>) -> Step {
        let soft = attempt.parks == 0
            && attempt.parked == 0
            && attempt.soft_spins < attempt.params.get(P::SoftSpinCount);
        if !soft {
            return queue(attempt);
        }
        super::sleep(Duration::from_nanos(attempt.random & attempt.params.get(P::SpinSleepMask)))
    }
}

/// A place in the queue, or a look a millisecond later when all `mutex_slots` are taken; then after two, four,
/// up to 128 ms: a thousand sessions that each look every millisecond use two processors.
pub(super) fn queue(attempt: &Attempt<'_>) -> Step {
    if u64::from(attempt.parked) >= attempt.params.get(P::MutexSlots) {
        return Step::Overflow(Duration::from_millis(1 << attempt.since_park.min(7)));
    }
    Step::Park(Duration::from_millis(attempt.params.get(P::QueueTimeout)))
}
