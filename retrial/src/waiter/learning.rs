//! What a session learns from its waits.

use super::{Target, Wait};
use crate::wait::Yielded;

impl Wait<'_> {
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
