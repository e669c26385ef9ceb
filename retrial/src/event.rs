//! Waits for events: a semaphore's post, the last thread at a barrier, a condition's signal. Libc or an
//! interposer does the waiting; here it is counted and timed, apart from waits for mutexes, since an event
//! has no holder.

use crate::mode::Mode;
use crate::operation_log::{LocationId, MutexId};
use crate::recorder::{At, Recorder};
use crate::session::Session;
use crate::stats::{Counter, Key, WaitEvent};
use crate::sys;
use crate::trace::What;
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
        let recorder = wait.recorder(session);
        recorder.add(Counter::Parks, 1);
        recorder.begin(wait.begun_ns, At::Park);
        wait
    }

    /// The same session has waited.
    pub fn end(self, session: &Session<'_>) {
        let now_ns = sys::now_ns();
        let recorder = self.recorder(session);
        // While the wait counts as under way, as the parts of every wait: its time so far is not counted
        // twice.
        recorder.add(Counter::SleptNs, now_ns.saturating_sub(self.begun_ns));
        recorder.end(self.begun_ns, now_ns, What::Got);
    }

    fn recorder<'a>(&self, session: &'a Session<'a>) -> Recorder<'a> {
        Recorder::new(Some(session), self.key, Sid::NONE)
    }
}
