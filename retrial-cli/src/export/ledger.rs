//! Counters under a bounded number of names: what was waited for most has names of its own, the rest is one,
//! `other`.
//!
//! What was counted is entered once, as growth since the last look, under the name that its mutex or place
//! has then. So no counter ever falls, and the sum of all is what was counted, whichever names there are.

use retrial::views::{Counter, Figures};
use retrial_model::profile::WAIT_PARTS;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What was counted of something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    pub figures: Figures,
    /// Where they are known.
    pub gets: Option<u64>,
}

impl Count {
    /// The same, but nothing below what was seen before. A wait under way counts as slept until its step has
    /// ended, when a part of it turns out to be longer than asked for: that part stays where it was told
    /// first, so that the parts add up to the time of the waits.
    fn raised(&self, seen: Option<&Self>) -> Self {
        let Some(seen) = seen else { return *self };
        let (now, then) = (|counter| self.figures.get(counter), |counter| seen.figures.get(counter));
        let mut figures = self.figures;
        for counter in Counter::ALL.iter().copied() {
            figures.counters[counter as usize] = now(counter).max(then(counter));
        }
        for (length, seen) in figures.lengths.0.iter_mut().zip(seen.figures.lengths.0) {
            *length = (*length).max(seen);
        }
        let parts = [Counter::SpinNs, Counter::YieldNs, Counter::SleptNs];
        let all = WAIT_PARTS.iter().map(|part| now(*part)).sum::<u64>();
        let told = parts.iter().map(|part| figures.get(*part)).sum::<u64>();
        figures.counters[Counter::OverNs as usize] = all.saturating_sub(told).max(then(Counter::OverNs));
        Self { figures, gets: self.gets.max(seen.gets) }
    }

    fn since(&self, earlier: Option<&Self>) -> Self {
        let Some(earlier) = earlier else { return *self };
        let gets = self.gets.map(|gets| gets.saturating_sub(earlier.gets.unwrap_or(0)));
        Self { figures: self.figures.since(&earlier.figures), gets }
    }

    fn add(&mut self, more: &Self) {
        self.figures.add(&more.figures);
        self.gets = more.gets.map(|gets| gets + self.gets.unwrap_or(0)).or(self.gets);
    }

    fn is_idle(&self) -> bool {
        self.figures.get(Counter::Misses) == 0
    }

    fn weight(&self) -> (u64, u64, u64) {
        (self.figures.get(Counter::WaitNs), self.figures.get(Counter::Misses), self.gets.unwrap_or(0))
    }
}

/// The counters of one family of names.
#[derive(Clone, Debug)]
pub struct Ledger<K> {
    /// Names at most, without `other`.
    most: usize,
    seen: BTreeMap<K, Count>,
    named: BTreeMap<K, Count>,
    other: Count,
    has_other: bool,
}

impl<K: Ord + Clone> Ledger<K> {
    pub fn new(most: usize) -> Self {
        Self { most, seen: BTreeMap::new(), named: BTreeMap::new(), other: Count::default(), has_other: false }
    }

    /// Enters what has been counted by now of all that there is.
    pub fn enter(&mut self, mut now: BTreeMap<K, Count>) {
        for (key, count) in &mut now {
            *count = count.raised(self.seen.get(key));
        }
        // What is gone gives its name back.
        let gone: Vec<K> = self.named.keys().filter(|key| !now.contains_key(key)).cloned().collect();
        for key in gone {
            self.unname(&key);
        }
        self.name_more(&now);
        for (key, count) in &now {
            let growth = count.since(self.seen.get(key));
            if let Some(named) = self.named.get_mut(key) {
                named.add(&growth);
            } else {
                self.other.add(&growth);
                self.has_other = true;
            }
        }
        self.seen = now;
    }

    /// What was waited for most gets the names that are free, and the names of idle mutexes or places.
    fn name_more(&mut self, now: &BTreeMap<K, Count>) {
        let mut nameless: Vec<(&K, &Count)> = now.iter().filter(|(key, _)| !self.named.contains_key(key)).collect();
        nameless.sort_by_key(|(_, count)| Reverse(count.weight()));
        for (key, count) in nameless {
            if self.named.len() >= self.most {
                let idle = self.named.keys().find(|key| now.get(key).is_none_or(Count::is_idle)).cloned();
                match idle.filter(|_| !count.is_idle()) {
                    Some(idle) => self.unname(&idle),
                    None => return,
                }
            }
            self.named.insert(key.clone(), Count::default());
        }
    }

    fn unname(&mut self, key: &K) {
        if let Some(count) = self.named.remove(key) {
            self.other.add(&count);
            self.has_other = true;
        }
    }

    /// Each name's counters; `None` is `other`, once something is in it.
    pub fn counts(&self) -> impl Iterator<Item = (Option<&K>, &Count)> {
        let named = self.named.iter().map(|(key, count)| (Some(key), count));
        named.chain(self.has_other.then_some((None, &self.other)))
    }

    pub fn is_named(&self, key: &K) -> bool {
        self.named.contains_key(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(wait_ns: u64, misses: u64, gets: u64) -> Count {
        let mut count = Count { gets: Some(gets), ..Count::default() };
        count.figures.counters[Counter::WaitNs as usize] = wait_ns;
        count.figures.counters[Counter::Misses as usize] = misses;
        count
    }

    fn found(ledger: &Ledger<u32>) -> Vec<(u32, u64, u64)> {
        let of = |(key, count): (Option<&u32>, &Count)| {
            (key.copied().unwrap_or(0), count.figures.get(Counter::WaitNs), count.gets.unwrap_or(0))
        };
        ledger.counts().map(of).collect()
    }

    #[test]
    fn the_most_waited_for_have_names_and_no_counter_falls() {
        let mut ledger = Ledger::new(2);
        ledger.enter(BTreeMap::from([
            (1, count(0, 0, 5)),
            (2, count(70, 1, 9)),
            (3, count(50, 1, 9)),
            (4, count(60, 1, 9)),
        ]));
        assert_eq!(found(&ledger), [(2, 70, 9), (4, 60, 9), (0, 50, 14)]);
        // 3 is the busiest now, but the names are taken: it goes on in `other`, which grows.
        ledger.enter(BTreeMap::from([
            (1, count(0, 0, 5)),
            (2, count(70, 1, 9)),
            (3, count(500, 9, 90)),
            (4, count(61, 1, 9)),
        ]));
        assert_eq!(found(&ledger), [(2, 70, 9), (4, 61, 9), (0, 500, 95)]);
        // 2 is gone: what it had is kept in `other`, and 3 has a name for what follows.
        ledger.enter(BTreeMap::from([(1, count(0, 0, 5)), (3, count(600, 9, 90)), (4, count(61, 1, 9))]));
        assert_eq!(found(&ledger), [(3, 100, 0), (4, 61, 9), (0, 570, 104)]);
    }

    #[test]
    fn the_parts_of_a_wait_add_up_when_its_step_was_longer_than_asked_for() {
        let parts = |spin, slept, over| {
            let mut count = Count::default();
            for (part, ns) in [(Counter::SpinNs, spin), (Counter::SleptNs, slept), (Counter::OverNs, over)] {
                count.figures.counters[part as usize] = ns;
            }
            BTreeMap::from([(1, count)])
        };
        let mut ledger = Ledger::new(1);
        let mut enter = |now| {
            ledger.enter(now);
            let (_, count) = ledger.counts().next().unwrap();
            WAIT_PARTS.map(|part| count.figures.get(part))
        };
        assert_eq!(enter(parts(1, 19, 0)), [1, 0, 19, 0], "under way");
        assert_eq!(enter(parts(1, 15, 4)), [1, 0, 19, 0], "it had asked for 15");
        assert_eq!(enter(parts(2, 30, 9)), [2, 0, 30, 9]);
    }

    #[test]
    fn idle_ones_have_names_while_there_is_room() {
        let mut ledger = Ledger::new(2);
        ledger.enter(BTreeMap::from([(1, count(0, 0, 5)), (2, count(0, 0, 6))]));
        assert_eq!(found(&ledger), [(1, 0, 5), (2, 0, 6)]);
        ledger.enter(BTreeMap::from([(1, count(0, 0, 5)), (2, count(0, 0, 6)), (3, count(9, 1, 1))]));
        assert_eq!(found(&ledger), [(2, 0, 6), (3, 9, 1), (0, 0, 5)]);
        assert!(ledger.is_named(&3) && !ledger.is_named(&1));
    }
}
