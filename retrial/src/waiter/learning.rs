//! What a session learns from its waits, for itself and for all that want the mutex.

use super::{Target, Wait};
use crate::entries::{MutexEntry, RestrictionCells};
use crate::instance::Instance;
use crate::params::Params;
use crate::wait::Restriction;

/// Whether one session may be active alone at a target: trials compare gets.
fn may_restrict<T: Target>(target: &T, params: &Params) -> bool {
    // Under a clock that stands still there is no trial.
    Restriction::applies(params) && target.counts_gets() && target.knows_its_parked() && !cfg!(any(loom, shuttle))
}

/// Where a target's restriction is, which all that want it share.
pub(super) fn restriction_of<'a, T: Target>(
    target: &T,
    instance: Option<&'a Instance>,
    entry: Option<&'a MutexEntry>,
) -> Option<&'a RestrictionCells> {
    match target.in_page() {
        Some(at) => Some(instance?.tables.segment.header().restriction_at(at)),
        None => entry.map(|entry| &entry.restriction),
    }
}

/// Whether one session is to be active alone.
pub(super) fn is_restricted<T: Target>(target: &T, cells: Option<&RestrictionCells>, params: &Params) -> bool {
    may_restrict(target, params) && cells.is_some_and(|cells| cells.load().is_on())
}

impl Wait<'_> {
    /// A spin has failed: goes on with the trial whether one session had better be active alone, when that is
    /// due.
    pub(super) fn learn_whether_alone<T: Target>(&self, target: &T) {
        let Some(cells) = self.restriction.filter(|_| may_restrict(target, &self.params)) else { return };
        let before = cells.load();
        let (interval, parked) = (self.params.handover_interval(), target.parked());
        if let Some(after) = before.see(self.now, interval, parked, || target.gets()) {
            cells.change(before, after);
        }
    }

    /// A yield has ended; the session has waited awake since a time.
    pub(super) fn begin_turn<T: Target>(&self, target: &T, since_ns: u64) {
        let was_away = self.waiter.session.is_some_and(|session| {
            session.experience(|known| {
                let was_away = known.was_away(&self.course, &self.params);
                known.begin_turn(self.last);
                was_away
            })
        });
        if let Some(cells) = self.restriction.filter(|_| may_restrict(target, &self.params)) {
            cells.waited_awake(since_ns, self.last, was_away);
        }
    }

    /// Its yields have brought the mutex, or it parks.
    pub(super) fn learn_whether_yields_pay(&self, got: bool) {
        if let Some(session) = self.waiter.session {
            session.experience(|known| known.yielded(&self.course, got));
        }
    }
}
