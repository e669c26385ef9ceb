//! A spin.

use crate::mode::Mode;
use crate::sys::{self, AtomicU64, Deadline, Ordering};
use crate::wait::Spin;
use crate::word::{Sid, Word};
use std::hint::black_box;

/// Maximum pauses between two looks of a spin that backs off: some half a microsecond, in which a cache line
/// comes over and goes back. With twice as many, sections of 1 us are over for longer before a spin sees it.
const BACKS_OFF_TO: u32 = 16;

/// Polls between two looks at the clock, where there is a deadline: a few tenths of a millisecond.
const POLLS_A_LOOK: u32 = 4096;

/// Looks without atomics, and tries the exchange when a look finds the target open. A spin that backs off
/// pauses twice as long after each look. A long one ends at the deadline.
#[inline(always)] // the looks of a poll are the caller's
#[allow(clippy::inline_always)]
pub(super) fn spin<G>(
    is_open: impl Fn(bool) -> bool,
    try_get: impl Fn(bool) -> Option<G>,
    how: Spin,
    deadline: Option<Deadline>,
) -> Option<G> {
    let (mut left, mut pauses) = (how.polls, 1);
    let next_look = |left: u32| if deadline.is_some() { left.saturating_sub(POLLS_A_LOOK) } else { 0 };
    let mut look_at = next_look(left);
    loop {
        if is_open(how.handed) {
            if let Some(got) = try_get(how.handed) {
                return Some(got);
            }
            if how.stops_at_lost_race {
                return None;
            }
        }
        if left <= look_at {
            if left == 0 || deadline.is_some_and(|deadline| deadline.left().is_none()) {
                return None;
            }
            look_at = next_look(left);
        }
        // One by itself: the compiler unrolls a loop around it, and the poll takes a tenth longer.
        sys::spin_loop();
        left -= 1;
        if how.backs_off {
            let more = (pauses - 1).min(left);
            left -= more;
            for _ in 0..more {
                sys::spin_loop();
            }
            pauses = (2 * pauses).min(BACKS_OFF_TO);
        }
    }
}

/// Time of a poll, in ns, at least 1: a spin at a word that another session holds.
pub(crate) fn measure_poll_ns() -> u64 {
    const POLLS: u32 = 2000;
    if cfg!(any(loom, shuttle)) {
        return 30;
    }
    let word = AtomicU64::new(Sid::new(1).bits());
    let grant = |handed| Word(black_box(&word).load(Ordering::Relaxed)).grant(Sid::NONE, Mode::Exclusive, handed);
    let how = black_box(Spin { polls: POLLS, handed: false, backs_off: false, stops_at_lost_race: false });
    let round = || {
        let start = sys::now_ns();
        let _ = spin(|handed| grant(handed).is_some(), grant, how, None);
        (sys::now_ns() - start + u64::from(POLLS) / 2) / u64::from(POLLS)
    };
    // The least of several rounds: the longer ones were interrupted.
    (0..5).map(|_| round()).min().unwrap_or(1).max(1)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::error::GetError;
    use crate::instance::Instance;
    use crate::params::P;
    use crate::segment::Capacity;
    use crate::session::Class;
    use crate::sys::Deadline;
    use std::time::{Duration, Instant};

    #[test]
    fn a_deadline_ends_a_spin_of_any_length() {
        let instance = Instance::anonymous(Capacity::default()).unwrap();
        let mutex = instance.mutex("m", "test", || 0u64).unwrap();
        let sessions = ["holds", "waits"].map(|name| instance.session(name, Class::Normal).unwrap());
        let _held = mutex.exclusive(&sessions[0], crate::location!()).unwrap();
        for p in [P::SpinCount, P::LatchSpinCount, P::HardSpinCount] {
            instance.set(p, None, u64::from(u32::MAX));
        }
        for scheme in 0..crate::wait::NAMES.len() as u64 {
            instance.set(P::Scheme, None, scheme);
            let began = Instant::now();
            let got =
                mutex.exclusive_until(&sessions[1], crate::location!(), Deadline::after(Duration::from_millis(5)));
            assert!(matches!(got, Err(GetError::TimedOut)), "{scheme}");
            // The longest spins take tens of seconds.
            assert!(began.elapsed() < Duration::from_secs(5), "scheme {scheme}: {:?}", began.elapsed());
        }
    }
}
