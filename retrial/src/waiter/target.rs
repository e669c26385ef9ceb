//! What can be waited for.

use crate::parking::Parked;
use crate::wait::Park;
use crate::word::Sid;
use std::time::Duration;

/// Something that can be waited for: a mutex in a mode, ours or in a foreign format.
pub trait Target {
    /// What a get gives.
    type Got;

    /// Whether a plain look finds it open. `handed`: also when it was handed over.
    fn is_open(&self, handed: bool) -> bool;

    /// One exchange.
    fn try_get(&self, handed: bool) -> Option<Self::Got>;

    /// Queues for a wake-up.
    fn park(&self, how: Park) -> Parked<Self::Got>;

    /// Called when a wait of at least one step has ended, if `got` with the target. Parked sessions may need
    /// waking.
    fn ended(&self, got: bool) {
        let _ = got;
    }

    /// Called before something that may take long: releases count on it no longer.
    fn steps_aside(&self) {}

    /// Asks the next release to hand over, unless a session did so within `interval`. Whether it did.
    fn ask_for_handover(&self, now_ns: u64, interval: Duration) -> bool {
        let _ = (now_ns, interval);
        false
    }

    /// Sessions parked now.
    fn parked(&self) -> u32;

    /// The holder, and whether it keeps out sessions of every mode.
    fn blocker(&self) -> (Sid, bool);

    /// Whether the session waits for itself.
    fn is_hopeless(&self) -> bool {
        false
    }

    /// Whether the session parks at once and stays parked until a release wakes it or its time has passed: no
    /// look of its own could tell a release from other memory in the same place.
    fn parks_at_once(&self) -> bool {
        false
    }

    /// Called before a wait's first step but for a yield, before each later one and at its deadline, at
    /// `now_ns`: looks whether a blocker is dead. Unless `always`, it need not where the target has passed from
    /// one session to another since the last call.
    fn look_after_blocker(&self, now_ns: u64, always: bool) {
        let _ = (now_ns, always);
    }

    /// Whether `gets` counts all gets, not only those that missed.
    fn counts_gets(&self) -> bool {
        true
    }

    /// Whether what is known of the parked sessions is of this target alone.
    fn knows_its_parked(&self) -> bool {
        true
    }

    /// Gets so far.
    fn gets(&self) -> u64;

    /// Where in its page it lies, if each process has an entry of its own for it.
    fn in_page(&self) -> Option<usize> {
        None
    }

    /// Called by the holder: sends every get through the slow path, or no longer.
    fn set_attention(&self, on: bool) {
        let _ = on;
    }

    /// Wakes all parked sessions in queue order.
    fn wake_all(&self) {}
}
