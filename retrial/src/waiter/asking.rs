//! Waits that ask their session now and then whether to give up.

use super::Wait;
use crate::session::Session;
use std::time::Duration;

/// Minimum time between two questions: a language's answer takes some 100 ns.
const EVERY: Duration = Duration::from_millis(1);

/// Maximum step of a session that is asked. A signal ends a step; this is for one that comes right before it.
const AT_LEAST_EVERY: Duration = Duration::from_millis(500);

impl Wait<'_> {
    /// The longest next step of so much time that is left; `None` when the session gives up.
    pub(super) fn ask(&mut self, left: Duration) -> Option<Duration> {
        let Some(gives_up) = self.waiter.session.and_then(Session::gives_up) else { return Some(left) };
        if self.now.saturating_sub(self.asked) >= EVERY.as_nanos() as u64 {
            self.asked = self.now;
            if gives_up() {
                return None;
            }
        }
        Some(left.min(AT_LEAST_EVERY))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::views::Counter::{GaveUp, Waits};
    use crate::{Capacity, Class, GetError, Instance, Mode, Patience, location};
    use std::cell::Cell;
    use std::time::{Duration, Instant};

    thread_local!(static ASKED: Cell<u32> = const { Cell::new(0) });

    #[test]
    fn a_wait_ends_when_the_session_gives_up_and_is_one_wait_until_then() {
        let instance = Instance::anonymous(Capacity::default()).unwrap();
        let mutex = instance.mutex("m", "t", || 0u64).unwrap();
        let (holder, waiter) =
            (instance.session("h", Class::Normal).unwrap(), instance.session("w", Class::Normal).unwrap());
        waiter.ask_while_waiting(|| {
            ASKED.set(ASKED.get() + 1);
            ASKED.get() == 5
        });
        let hold = mutex.exclusive(&holder, location!()).unwrap();
        let begin = Instant::now();
        let got = mutex.get(&waiter, Mode::Exclusive, location!(), Patience::Endless);
        assert!(matches!(got, Err(GetError::TimedOut)));
        assert_eq!(ASKED.get(), 5);
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        let (_, _, figures) = instance.tables().figures()[0];
        let counted = |counter| figures.get(counter);
        assert_eq!((counted(Waits), counted(GaveUp)), (1, 1));
        drop(hold);
    }
}
