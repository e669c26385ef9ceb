//! What a session learns from its waits, for itself and for all that want the mutex.

use super::{Target, Wait};
use crate::entries::MutexEntry;
use crate::params::{Fairness, P, Params};
use crate::sys::Ordering;
use crate::wait::{self, Restriction, Yielded};

/// Whether one session may be active alone at a target: trials compare gets, and `fifo` hands over in any case.
fn may_restrict<T: Target>(target: &T, params: &Params) -> bool {
    // Under a clock that stands still there is no trial.
    wait::scheme(params.get(P::Scheme)).is_orbit()
        && params.fairness() != Fairness::Fifo
        && target.counts_gets()
        && target.knows_its_parked()
        && !cfg!(any(loom, shuttle))
}

/// Whether one session is to be active alone.
pub(super) fn is_restricted<T: Target>(target: &T, entry: Option<&MutexEntry>, params: &Params) -> bool {
    let is_on = |entry: &MutexEntry| Restriction::unpack(entry.restriction()).is_on();
    may_restrict(target, params) && entry.is_some_and(is_on)
}

impl Wait<'_> {
    /// A spin has failed: goes on with the trial whether one session had better be active alone, when that is due.
    pub(super) fn learn_whether_alone<T: Target>(&self, target: &T) {
        let Some(entry) = self.entry.filter(|_| may_restrict(target, &self.params)) else { return };
        let before = entry.restriction();
        let (interval, parked) = (self.params.handover_interval(), target.parked());
        let after = Restriction::unpack(before).see(self.now, interval, parked, || target.gets());
        let ([_, then_ns, _], Some([state, since_ns, gets])) = (before, after.map(Restriction::pack)) else { return };
        let cells = &entry.restriction;
        // One of all that see it. Should it die here, the next trial puts things right.
        if cells[1].compare_exchange(then_ns, since_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            cells[2].store(gets, Ordering::Relaxed);
            cells[0].store(state, Ordering::Relaxed);
        }
    }

    /// A yield has ended that took so long and began after so many gets: the session learns from it.
    pub(super) fn learn<T: Target>(&self, target: &T, took_ns: u64, before: u64) {
        let Some(session) = self.waiter.session else { return };
        // Where they are not counted, a yield teaches nothing but its end.
        let gets = if target.counts_gets() { target.gets().wrapping_sub(before) } else { 0 };
        let (mutex, now_ns, is_open) = (self.want.mutex.0, self.last, target.is_open(false));
        session.experience(|known| known.learn(&self.params, Yielded { mutex, took_ns, now_ns, gets, is_open }));
    }

    /// Its yields have brought the mutex, or it parks.
    pub(super) fn learn_whether_yields_pay(&self, got: bool) {
        if let Some(session) = self.waiter.session {
            session.experience(|known| known.yielded(&self.course, got));
        }
    }
}
