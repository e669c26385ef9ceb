//! When a release hands over.

use super::Parking;
use crate::params::{Fairness, Params};
use std::time::Duration;

/// Intervals after which a release finds a handover due that no session has asked for. One that asks is
/// awake, or the holder would wait for it.
const FOUND_AFTER: u32 = 2;

/// Maximum of that time, but for intervals that are longer: the stamp comes round after 2.1 s.
const LONGEST_FOUND: Duration = Duration::from_secs(1);

/// What decides about handovers beside parameters and [`Parking`].
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// By the monotonic clock.
    pub now_ns: u64,
    /// Whether the calling thread is scheduled by a real-time policy: a system call, and only asked where it
    /// matters. Such a thread keeps its processor until it waits: the mutex would wait for a thread that
    /// waits for a processor.
    pub is_real_time: fn() -> bool,
}

impl Circumstances {
    /// Whether the calling thread may ask for a handover: none was asked for within `interval`, and with
    /// `balanced` it is not scheduled by a real-time policy.
    fn allow(self, parking: Parking, interval: Duration) -> bool {
        parking.handover_is_due(self.now_ns, interval) && (interval.is_zero() || !(self.is_real_time)())
    }

    /// Asks for a handover unless that was done within `interval`. Whether it was done now.
    pub fn ask(
        self,
        parking: Parking,
        interval: Duration,
        for_x: bool,
        change: impl FnOnce(&dyn Fn(Parking) -> Parking) -> Parking,
    ) -> bool {
        self.allow(parking, interval)
            && change(&|all| all.starve_if_due(self.now_ns, interval, for_x)).handover_is_due(self.now_ns, interval)
    }
}

/// Whether a release after so many `gets` hands over: a session has asked for it, or sessions are parked and
/// the last handover is long ago. Sessions that were woken may have no processor to ask on, as long as those
/// that keep coming back use all.
pub fn hands_over(parking: Parking, gets: u64, found: impl FnOnce() -> (Params, Circumstances)) -> bool {
    if !parking.may_be_due(gets) {
        return parking.starving().0;
    }
    let (params, circumstances) = found();
    let interval = params.handover_interval();
    let found_after = interval.max(LONGEST_FOUND.min(interval * FOUND_AFTER));
    params.fairness() == Fairness::Balanced && circumstances.allow(parking, found_after)
}
