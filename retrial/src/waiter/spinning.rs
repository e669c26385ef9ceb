//! A spin.

use super::Target;
use crate::sys;
use crate::wait::Spin;

/// Maximum pauses between two looks of a spin that backs off: some half a microsecond, in which a cache line
/// comes over and goes back. With twice as many, sections of 1 us are over for longer before a spin sees it.
const BACKS_OFF_TO: u32 = 16;

/// Looks without atomics, and tries the exchange when a look finds the target open. A spin that backs off
/// pauses twice as long after each look.
pub(super) fn spin<T: Target>(target: &T, how: Spin) -> Option<T::Got> {
    let (mut left, mut pauses) = (how.polls, 1);
    loop {
        if target.is_open(how.handed) {
            if let Some(got) = target.try_get(how.handed) {
                return Some(got);
            }
            if how.stops_at_lost_race {
                return None;
            }
        }
        if left == 0 {
            return None;
        }
        let now = pauses.min(left);
        left -= now;
        for _ in 0..now {
            sys::spin_loop();
        }
        if how.backs_off {
            pauses = (2 * pauses).min(BACKS_OFF_TO);
        }
    }
}
