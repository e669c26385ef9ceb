//! The controller of `adaptive` on a mutex's entry, and what waits count there for it and for `ydb`; the rules
//! are in [`crate::wait`].

use super::{Target, Wait, Waiter};
use crate::entries::{AdaptionCells, MutexEntry, TypeId};
use crate::fail;
use crate::operation_log::MutexId;
use crate::params::Params;
use crate::sys::{self, AtomicU64, Ordering};
use crate::wait::{Adaption, Counts};

/// Count of the soft spins at a mutex, where it is needed.
pub(super) fn soft_spins<'a>(entry: Option<&'a MutexEntry>, params: &Params) -> Option<&'a AtomicU64> {
    entry.map(|entry| &entry.adaption.soft_spins).filter(|_| params.counts_soft_spins())
}

impl<'a> Wait<'a> {
    /// State of the controller, while `adaptive` is in force.
    pub(super) fn adaptive(&self) -> Option<&'a AdaptionCells> {
        self.entry.map(|entry| &entry.adaption).filter(|_| self.params.is_adaptive())
    }

    /// Count of the soft spins at the mutex, where it is needed.
    pub(super) fn soft_spins(&self) -> Option<&'a AtomicU64> {
        soft_spins(self.entry, &self.params)
    }

    pub(super) fn pthread_in_use(&self) -> bool {
        self.adaptive().is_some_and(|cells| cells.state.load(Ordering::Relaxed) & 1 == 1)
    }

    /// For the controller of `adaptive`: a session has slept in the queue, or for want of room there.
    pub(super) fn count_queue_sleep(&self) {
        if let Some(cells) = self.adaptive() {
            cells.queue_sleeps.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Waiter<'_> {
    /// Runs the controller of `adaptive`; the caller has just got the target.
    pub fn adapt<T: Target>(&self, target: &T, mutex: MutexId, mutex_type: TypeId) {
        let params = self.params(mutex_type);
        let Some(entry) = self.instance.and_then(|instance| instance.tables.mutex_entry(mutex)) else {
            // Its entry is another mutex's by now. Without an entry no check would take the flag away.
            target.set_attention(false);
            return;
        };
        let cells = &entry.adaption;
        let state = cells.state.load(Ordering::Relaxed);
        if !params.is_adaptive() {
            // Another scheme may have been set while pthread was in use.
            if state != 0 {
                cells.state.store(0, Ordering::Relaxed);
            }
            target.set_attention(false);
            return;
        }
        let counts = [&cells.last_gets, &cells.last_misses, &cells.last_queue_sleeps, &cells.last_ns];
        let [gets, misses, queue_sleeps, mut now_ns] = counts.map(|cell| cell.load(Ordering::Relaxed));
        if now_ns == 0 {
            // The first time: what has been since the machine started is no time of this mutex.
            now_ns = sys::now_ns();
            cells.last_ns.store(now_ns, Ordering::Relaxed);
        }
        let last = Counts { gets, misses, queue_sleeps, now_ns };
        let now = Counts {
            gets: target.gets(),
            misses: cells.misses.load(Ordering::Relaxed),
            queue_sleeps: cells.queue_sleeps.load(Ordering::Relaxed),
            now_ns: sys::now_ns(),
        };
        let before = Adaption { pthread_in_use: state & 1 == 1, streak: state >> 1 };
        let Some(after) = before.check(&last, &now, target.parked(), &params) else { return };
        fail::point();
        for (cell, value) in counts.into_iter().zip([now.gets, now.misses, now.queue_sleeps, now.now_ns]) {
            cell.store(value, Ordering::Relaxed);
        }
        let switched = after.pthread_in_use != before.pthread_in_use;
        if switched {
            cells.switches.store(cells.switches.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
        // Each time: a session may have died after this in a switch.
        target.set_attention(after.pthread_in_use);
        fail::point();
        // The type in use is stored last; then the queued sessions start over.
        cells.state.store(after.streak << 1 | u64::from(after.pthread_in_use), Ordering::Release);
        fail::point();
        if switched {
            target.wake_all();
        }
    }
}
