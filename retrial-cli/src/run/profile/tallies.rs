//! Samples added up by lock, mode and stack.

use super::stacks::{Location, Locations, Stacks};
use retrial::interposer::samples::Sample;
use std::collections::HashMap;
use std::ops::AddAssign;
use std::path::Path;

/// Which lock: a static variable, of all processes together, or one on the heap or on a stack of one process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Lock {
    Static(Location),
    Heap { pid: u32, address: u64 },
}

/// What is known of a lock besides.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its number in the instance, of one of the processes; 0 when it has none.
    pub mutex: u32,
    pub mutex_type: u32,
    pub pid: u32,
    pub address: u64,
}

/// What a sample is of: a lock, the mode, and the calls that led there.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct By {
    pub lock: Lock,
    pub is_shared: bool,
    /// Where the calls return to, innermost first.
    pub stack: Vec<Location>,
}

/// Parts of a miss that are counted.
const UNIT: u64 = 1024;

/// Sums over samples, each times what it stands for.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    pub gets: u64,
    /// Gets that waited, times [`UNIT`].
    missed: u64,
    pub wait_ns: u64,
    /// Gets of which it is known how long they held, and how long that was.
    timed_gets: u64,
    timed_ns: u64,
}

impl Tally {
    /// Gets that waited.
    pub fn misses(&self) -> u64 {
        (self.missed + UNIT / 2) / UNIT
    }

    /// How long the gets held; `None` when that is known of none.
    pub fn hold_ns(&self) -> Option<u64> {
        let hold = (u128::from(self.timed_ns) * u128::from(self.gets)).checked_div(u128::from(self.timed_gets))?;
        Some(u64::try_from(hold).unwrap_or(u64::MAX))
    }

    /// How long one of them held, in ns.
    pub fn mean_hold_ns(&self) -> Option<f64> {
        (self.timed_gets > 0).then(|| self.timed_ns as f64 / self.timed_gets as f64)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.gets += other.gets;
        self.missed += other.missed;
        self.wait_ns += other.wait_ns;
        self.timed_gets += other.timed_gets;
        self.timed_ns += other.timed_ns;
    }
}

/// All samples so far.
pub struct Tallies {
    stacks: Stacks,
    rows: HashMap<By, Tally>,
    locks: HashMap<Lock, About>,
    /// Sampled gets by key, until their holds end, with what they stand for; and ends that came before their
    /// gets.
    open: HashMap<u64, (By, u64)>,
    ended: HashMap<u64, u64>,
    pub gets: u64,
    pub waits: u64,
}

impl Tallies {
    /// Of programs that leave their mappings in this directory.
    pub fn new(place: &Path) -> Self {
        Self {
            stacks: Stacks::new(place),
            rows: HashMap::new(),
            locks: HashMap::new(),
            open: HashMap::new(),
            ended: HashMap::new(),
            gets: 0,
            waits: 0,
        }
    }

    /// The lock and the calls of a sample.
    fn by(&mut self, sample: &Sample, stack: &[u8]) -> By {
        // First, since it finds modules that are new, of which the lock may be.
        let stack = self.stacks.unwind(sample, stack);
        let lock = match self.stacks.variable(sample) {
            Some(location) => Lock::Static(location),
            None => Lock::Heap { pid: sample.pid, address: sample.address },
        };
        let Sample { mutex, mutex_type, pid, address, .. } = *sample;
        let about = self.locks.entry(lock).or_insert(About { mutex, mutex_type, pid, address });
        if mutex != 0 {
            about.mutex = mutex;
        }
        By { lock, is_shared: sample.is_shared != 0, stack }
    }

    pub fn get(&mut self, sample: &Sample, stack: &[u8]) {
        self.gets += 1;
        let by = self.by(sample, stack);
        *self.rows.entry(by.clone()).or_default() += Tally { gets: sample.weight, ..Tally::default() };
        match self.ended.remove(&sample.key) {
            Some(hold_ns) => self.held(by, sample.weight, hold_ns),
            None => drop(self.open.insert(sample.key, (by, sample.weight))),
        }
    }

    pub fn wait(&mut self, sample: &Sample, stack: &[u8]) {
        self.waits += 1;
        let by = self.by(sample, stack);
        // It stands for so many of its length.
        let missed = sample.weight.saturating_mul(UNIT) / sample.value_ns.max(1);
        *self.rows.entry(by).or_default() += Tally { wait_ns: sample.weight, missed, ..Tally::default() };
    }

    pub fn hold(&mut self, sample: &Sample) {
        match self.open.remove(&sample.key) {
            Some((by, weight)) => self.held(by, weight, sample.value_ns),
            None => drop(self.ended.insert(sample.key, sample.value_ns)),
        }
    }

    fn held(&mut self, by: By, weight: u64, hold_ns: u64) {
        let timed = Tally { timed_gets: weight, timed_ns: weight.saturating_mul(hold_ns), ..Tally::default() };
        *self.rows.entry(by).or_default() += timed;
    }

    /// The sums by lock, mode and stack, what is known of each lock, and the locations' names.
    pub fn finish(self) -> (HashMap<By, Tally>, HashMap<Lock, About>, Locations) {
        (self.rows, self.locks, self.stacks.locations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(kind: u32, weight: u64, value_ns: u64) -> Sample {
        Sample { kind, weight, value_ns, key: 7, address: 64, ..Sample::default() }
    }

    #[test]
    fn a_hold_finds_its_get_whichever_comes_first() {
        use retrial::interposer::samples::{GET, HOLD};
        for get_first in [true, false] {
            let mut tallies = Tallies::new(Path::new("/nonexistent"));
            let (get, hold) = (sample(GET, 8, 0), sample(HOLD, 0, 100));
            if get_first {
                tallies.get(&get, &[]);
                tallies.hold(&hold);
            } else {
                tallies.hold(&hold);
                tallies.get(&get, &[]);
            }
            let (rows, _, _) = tallies.finish();
            let tally = rows.into_values().next().unwrap();
            assert_eq!((tally.gets, tally.misses(), tally.hold_ns()), (8, 0, Some(800)), "get first: {get_first}");
        }
    }

    #[test]
    fn a_short_wait_stands_for_many_and_a_long_one_for_itself() {
        use retrial::interposer::samples::WAIT;
        let mut tallies = Tallies::new(Path::new("/nonexistent"));
        tallies.wait(&sample(WAIT, 1024, 4), &[]);
        tallies.wait(&sample(WAIT, 5000, 5000), &[]);
        let (rows, _, _) = tallies.finish();
        let tally = rows.into_values().next().unwrap();
        assert_eq!((tally.misses(), tally.wait_ns), (257, 6024));
    }

    #[test]
    fn gets_without_an_end_hold_as_long_as_the_others() {
        let mut tally = Tally { gets: 4, timed_gets: 1, timed_ns: 50, ..Tally::default() };
        assert_eq!(tally.hold_ns(), Some(200));
        tally.timed_gets = 0;
        assert_eq!(tally.hold_ns(), None);
    }
}
