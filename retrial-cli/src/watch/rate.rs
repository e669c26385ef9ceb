//! `--at-most 3/min`: how often something is done.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// So many within a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rate {
    count: usize,
    within: Duration,
    done: VecDeque<Instant>,
}

impl Rate {
    /// `3/min`, `1/10s`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("rate `{text}`, expected how often within what time, as in 3/min or 1/10s");
        let (count, time) = text.split_once('/').ok_or_else(wrong)?;
        let time = if time.starts_with(|c: char| c.is_ascii_digit()) { time.to_owned() } else { format!("1{time}") };
        let count = count.trim().parse().ok().filter(|count| (1..=1000).contains(count)).ok_or_else(wrong)?;
        let within = crate::duration::parse(&time).ok().filter(|time| !time.is_zero()).ok_or_else(wrong)?;
        Ok(Self { count, within, done: VecDeque::new() })
    }

    /// Whether one more may be done now; then it is counted.
    pub fn may(&mut self, now: Instant) -> bool {
        while self.done.front().is_some_and(|then| now.saturating_duration_since(*then) >= self.within) {
            self.done.pop_front();
        }
        let may = self.done.len() < self.count;
        if may {
            self.done.push_back(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_so_many_within_any_such_time() {
        let mut rate = Rate::parse("2/10s").unwrap();
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let may: Vec<bool> = [0, 4, 5, 9, 10, 11, 14].into_iter().map(|s| rate.may(at(s))).collect();
        assert_eq!(may, [true, true, false, false, true, false, true]);
        assert_eq!(Rate::parse("3/min").unwrap().within, Duration::from_mins(1));
        for wrong in ["", "3", "0/s", "3/", "x/s", "3/0s", "3/fortnight"] {
            assert!(Rate::parse(wrong).unwrap_err().contains("expected how often"), "{wrong}");
        }
    }
}
