//! Waits for events: a semaphore's post, the last one at a barrier, a condition's signal. Libc or an interposer does the waiting; here it is
//! counted and timed, apart from waits for mutexes, for nobody holds what is waited for.

use crate::mode::Mode;
use crate::operation_log::{LocationId, MutexId};
use crate::session::Session;
use crate::stats::{Counter, Key, WaitEvent};
use crate::sys::{self, Ordering};
use crate::trace::{self, Note, What};
use crate::word::Sid;

/// A wait for an event, from [`EventWait::begin`] to [`EventWait::end`].
#[derive(Clone, Copy, Debug)]
#[must_use = "its session waits for ever otherwise"]
pub struct EventWait {
    key: Key,
    begun_ns: u64,
}

impl EventWait {
    /// The session is about to wait for what has this number, at a location.
    pub fn begin(session: &Session<'_>, mutex: MutexId, location: LocationId) -> Self {
        let event = WaitEvent { mode: Mode::Exclusive, on_x: false, for_event: true };
        let wait = Self { key: Key { mutex, location, event }, begun_ns: sys::now_ns() };
        let slot = session.slot;
        wait.count(session, &[(Counter::Waits, 1), (Counter::Parks, 1)]);
        slot.wait_since_ns.store(wait.begun_ns, Ordering::Relaxed);
        slot.wait_blocker.store(0, Ordering::Relaxed);
        // Release: whoever finds the wait finds the rest of it.
        slot.wait.store(wait.key.pack(), Ordering::Release);
        wait.note(session, What::Began, wait.begun_ns, 0);
        wait
    }

    /// The same session has waited.
    pub fn end(self, session: &Session<'_>) {
        let now_ns = sys::now_ns();
        let took_ns = now_ns.saturating_sub(self.begun_ns);
        session.slot.wait.store(0, Ordering::Relaxed);
        // Release: pairs with the Acquire fence in `Tables::rows_until`.
        sys::fence(Ordering::Release);
        self.count(session, &[(Counter::SleptNs, took_ns), (Counter::WaitNs, took_ns)]);
        self.note(session, What::Got, now_ns, took_ns);
    }

    fn count(self, session: &Session<'_>, growth: &[(Counter, u64)]) {
        let rows = session.instance.tables.segment.rows(session.sid().number() as usize);
        let row = crate::stats::find(rows, &session.slot.rows_used, self.key);
        for (counter, n) in growth {
            row.add(*counter, *n);
            if matches!(counter, Counter::WaitNs) {
                row.longest(*n);
            }
        }
    }

    fn note(self, session: &Session<'_>, what: What, now_ns: u64, took_ns: u64) {
        let ring = session.instance.tables.segment.runs(session.sid().number() as usize);
        let note = Note { now_ns, key: self.key, blocker: Sid::NONE, what, asked_ns: 0, took_ns };
        trace::note(ring, &session.slot.last_run, note);
    }
}
