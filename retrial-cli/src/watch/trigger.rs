//! When a condition counts as true: after it has held for a time, once, until it is over.

use std::time::{Duration, Instant};

/// A condition with its hysteresis.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// It must hold so long.
    hold: Duration,
    since: Option<Instant>,
    is_on: bool,
}

/// What has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    None,
    /// It has held for long enough.
    Began,
    /// It is over.
    Ended,
}

impl Trigger {
    pub const fn new(hold: Duration) -> Self {
        Self { hold, since: None, is_on: false }
    }

    /// Takes a look into account: whether the condition holds, and whether what ends it does.
    pub fn see(&mut self, now: Instant, holds: bool, is_over: bool) -> Change {
        if self.is_on {
            if !is_over {
                return Change::None;
            }
            (self.is_on, self.since) = (false, None);
            return Change::Ended;
        }
        if !holds {
            self.since = None;
            return Change::None;
        }
        let since = *self.since.get_or_insert(now);
        self.is_on = now.saturating_duration_since(since) >= self.hold;
        if self.is_on { Change::Began } else { Change::None }
    }

    /// How long it has held.
    pub fn held(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Change::{Began, Ended, None};

    #[test]
    fn it_begins_once_when_it_has_held_and_ends_when_it_is_over() {
        let mut trigger = Trigger::new(Duration::from_secs(2));
        let start = Instant::now();
        let mut see = |s, holds, is_over| trigger.see(start + Duration::from_secs(s), holds, is_over);
        assert_eq!((see(0, true, false), see(1, false, true), see(2, true, false)), (None, None, None));
        assert_eq!((see(3, true, false), see(4, true, false), see(9, true, false)), (None, Began, None));
        // Between the two thresholds nothing changes.
        assert_eq!((see(10, false, false), see(11, true, false), see(12, false, true)), (None, None, Ended));
        assert_eq!((see(13, true, false), see(15, true, false)), (None, Began));
    }
}
