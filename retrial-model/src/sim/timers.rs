//! The pending events: a heap of four children a node in which each slot has at most one time, so that an
//! event is moved or taken back in place and nothing stale is ever popped.

use super::Time;

/// Bits of a slot in an entry, below those of the order in which the entries were made.
const SLOT_BITS: u32 = 20;

/// Slots from 0 to this one.
pub(super) const SLOTS_MAX: u32 = (1 << SLOT_BITS) - 1;

/// Slots of the timers: the next arrival, when spinning sessions see a release of the first copy of the
/// mutex, the begin of the time that is counted, the next interruption, then a quantum for each processor, then
/// the releases of the other copies, then the sessions.
pub(super) const ARRIVAL: u32 = 0;
pub(super) const RELEASE_SEEN: u32 = 1;
pub(super) const COUNTING: u32 = 2;
pub(super) const INTERRUPTION: u32 = 3;
pub(super) const FIRST_PROCESSOR: u32 = 4;

const NOWHERE: u32 = u32::MAX;

/// Children of a node: [`Timers::sink`] has four in hand.
const WIDTH: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Timers {
    /// Time, order and slot from high to low bits: what is due at the same time comes in the order in which
    /// it was set.
    heap: Vec<u128>,
    /// Where each slot is in the heap.
    places: Vec<u32>,
    set: u64,
    /// The first entry has been popped. The next slot that is set takes its place: most are due soon and stay near
    /// it, and the last entry, which would have to take it else, is on its way through the whole heap.
    is_vacant: bool,
}

const fn slot_of(entry: u128) -> u32 {
    entry as u32 & SLOTS_MAX
}

impl Timers {
    /// Sets or moves the time of a slot, which is not before that of the last event.
    pub(super) fn set(&mut self, slot: u32, at: Time) {
        self.set += 1;
        let entry = u128::from(at) << 64 | u128::from(self.set << SLOT_BITS | u64::from(slot));
        let index = slot as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, NOWHERE);
        }
        debug_assert!(!self.is_vacant || self.heap[0] < entry);
        match self.places[index] {
            NOWHERE if std::mem::take(&mut self.is_vacant) => self.sink(0, entry),
            NOWHERE => {
                self.heap.push(entry);
                self.rise(self.heap.len() - 1, entry);
            }
            place => self.replace(place as usize, entry),
        }
    }

    /// Moves the time of a slot that has one.
    pub(super) fn delay(&mut self, slot: u32, by: Time) {
        let place = self.places.get(slot as usize).copied().filter(|place| *place != NOWHERE);
        if let Some(place) = place {
            let at = (self.heap[place as usize] >> 64) as Time;
            self.set(slot, at.saturating_add(by));
        }
    }

    /// Takes the time of a slot back, if it has one.
    pub(super) fn clear(&mut self, slot: u32) {
        let Some(place) = self.places.get_mut(slot as usize) else { return };
        let place = std::mem::replace(place, NOWHERE);
        if place != NOWHERE {
            self.remove(place as usize);
        }
    }

    /// Whether a slot has a time.
    pub(super) fn is_set(&self, slot: u32) -> bool {
        self.places.get(slot as usize).is_some_and(|place| *place != NOWHERE)
    }

    /// Takes the earliest, unless it is later than that.
    pub(super) fn pop(&mut self, until: Time) -> Option<(Time, u32)> {
        if std::mem::take(&mut self.is_vacant) {
            self.remove(0);
        }
        let first = *self.heap.first().filter(|entry| (**entry >> 64) as Time <= until)?;
        self.places[slot_of(first) as usize] = NOWHERE;
        self.is_vacant = true;
        Some(((first >> 64) as Time, slot_of(first)))
    }

    fn remove(&mut self, place: usize) {
        let last = self.heap.pop().expect("a place is in the heap");
        if place < self.heap.len() {
            self.replace(place, last);
        }
    }

    fn replace(&mut self, place: usize, entry: u128) {
        if entry < self.heap[place] { self.rise(place, entry) } else { self.sink(place, entry) }
    }

    fn rise(&mut self, mut place: usize, entry: u128) {
        while place > 0 {
            let parent = (place - 1) / WIDTH;
            if self.heap[parent] <= entry {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    fn sink(&mut self, mut place: usize, entry: u128) {
        loop {
            let first = place * WIDTH + 1;
            let least = match self.heap.get(first..first + WIDTH) {
                // The processor compares two pairs at once.
                Some(&[a, b, c, d]) => {
                    let (left, right) = (if b < a { (b, 1) } else { (a, 0) }, if d < c { (d, 3) } else { (c, 2) });
                    first + if right.0 < left.0 { right.1 } else { left.1 }
                }
                _ => match (first..self.heap.len()).min_by_key(|child| self.heap[*child]) {
                    Some(least) => least,
                    None => break,
                },
            };
            if self.heap[least] >= entry {
                break;
            }
            self.put(place, self.heap[least]);
            place = least;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: u128) {
        self.heap[place] = entry;
        self.places[slot_of(entry) as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_come_in_the_order_in_which_they_were_set() {
        let mut timers = Timers::default();
        for slot in [5, 3, 9, 1] {
            timers.set(slot, 7);
        }
        timers.set(5, 7);
        let order: Vec<u32> = std::iter::from_fn(|| timers.pop(Time::MAX)).map(|(_, slot)| slot).collect();
        assert_eq!(order, [3, 9, 1, 5]);
    }

    #[test]
    fn random_changes_pop_as_a_sorted_map_does() {
        let mut timers = Timers::default();
        let mut expected = std::collections::BTreeMap::new();
        let mut random = 1u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let mut now = 0;
        for _ in 0..20_000 {
            let slot = next(100) as u32;
            match next(5) {
                0 => {
                    timers.clear(slot);
                    expected.retain(|_, found| *found != slot);
                }
                1 => {
                    let by = next(100);
                    timers.delay(slot, by);
                    if let Some(at) = expected.iter().find(|(_, found)| **found == slot).map(|((at, _), _)| *at) {
                        expected.retain(|_, found| *found != slot);
                        expected.insert((at + by, timers.set), slot);
                    }
                }
                2 => {
                    let popped = timers.pop(Time::MAX);
                    assert_eq!(popped, expected.pop_first().map(|((at, _), slot)| (at, slot)));
                    now = popped.map_or(now, |(at, _)| at);
                }
                _ => {
                    let at = now + next(1000);
                    timers.set(slot, at);
                    expected.retain(|_, found| *found != slot);
                    expected.insert((at, timers.set), slot);
                }
            }
            assert_eq!(timers.is_set(slot), expected.values().any(|found| *found == slot));
        }
    }
}
