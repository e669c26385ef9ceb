//! Samples the holders of mutexes in processes' memory from outside, while the program runs.
//!
//! Holders record nothing. A thread of `retrial run` reads the records of mutexes in the program's processes:
//! a *census* of all of them now and then, for their gets, and between two of these many *samples* of the
//! mutexes that are contended or used most, for their holders. It keeps its own cost below 1 % of a processor
//! by doing less.

mod again;
mod counted;
mod places;
mod seen;
mod waits;

use super::record::{self, Format, Formats, RECORD, Record};
use super::variables::Modules;
use crate::punctual::punctual;
use crate::recording::Pauses;
use again::Held;
use counted::Counted;
use places::Places;
use retrial::MutexId;
use retrial::sys::{now_ns, thread_cpu_ns};
use retrial::views::{Counter, MutexInfo, Place, Tables};
pub use seen::{Identity, Seen};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use waits::Waits;

/// Records that one call reads.
const BATCH: usize = 512;
/// Records that one census reads; a larger table takes several.
const CENSUS: usize = 4096;
/// Number of mutexes whose holders are sampled each time.
const OFTEN: usize = 24;
/// Number of mutexes whose holders are sampled now and then: a read costs about a microsecond for each.
const SELDOM: usize = 104;
/// Samples of the former for one of the latter.
const NOW_AND_THEN: u64 = 8;
/// The time from one look to the next is at least this many times what they cost: 0.8 % of a processor, so
/// that what cannot be helped stays below 1 %.
const TIMES_COST: u64 = 125;
/// The same for the census alone.
const TIMES_CENSUS: u64 = 250;
const CENSUS_EVERY_NS: u64 = 100_000_000;
const SAMPLE_EVERY_NS: u64 = 1_000_000;
const LONGEST_PAUSE_NS: u64 = 50_000_000;

/// What the observer cost.
#[derive(Clone, Copy, Default, Debug)]
pub struct Cost {
    pub cpu_ns: u64,
    pub wall_ns: u64,
    pub samples: u64,
    pub records: u64,
    /// Processes that may not be read.
    pub refused: u64,
}

impl Cost {
    /// Share of one processor.
    pub fn share(&self) -> f64 {
        if self.wall_ns == 0 { 0.0 } else { self.cpu_ns as f64 / self.wall_ns as f64 }
    }

    pub fn samples_per_s(&self) -> f64 {
        if self.wall_ns == 0 { 0.0 } else { self.samples as f64 * 1e9 / self.wall_ns as f64 }
    }
}

/// What was observed in the whole run.
#[derive(Default, Debug)]
pub struct Observation {
    pub mutexes: HashMap<Identity, Seen>,
    pub waits: Waits,
    pub cost: Cost,
}

/// Observes until `stop`, and calls `also` after each census. The caller unparks this thread after setting
/// it.
pub fn observe(tables: &Tables, also: impl Fn(), stop: &AtomicBool) -> Observation {
    punctual();
    let mut sampler = Sampler::new(tables);
    std::thread::park_timeout(Duration::from_nanos(SAMPLE_EVERY_NS));
    while !stop.load(Ordering::Acquire) {
        let pause_ns = sampler.round(&also);
        std::thread::park_timeout(Duration::from_nanos(pause_ns));
    }
    sampler.finish()
}

struct Sampler<'t> {
    tables: &'t Tables,
    seen: HashMap<Identity, Seen>,
    formats: Formats,
    places: Places,
    /// Mutexes that cannot be read any more.
    gone: HashSet<Identity>,
    /// Mutexes whose holders are sampled, by process: each time, and now and then.
    often: Vec<(u32, Vec<Identity>)>,
    seldom: Vec<(u32, Vec<Identity>)>,
    /// Those that the latest sample found held.
    held: Vec<Held>,
    /// Misses by mutex at the last census.
    misses: HashMap<MutexId, u64>,
    census_at_ns: u64,
    census_every_ns: u64,
    /// Where in the table the next census goes on.
    next: usize,
    counted: Counted,
    started_cpu_ns: u64,
    waits: Waits,
    cost: Cost,
    pauses: Pauses,
    buffer: Vec<[u8; RECORD]>,
}

impl<'t> Sampler<'t> {
    fn new(tables: &'t Tables) -> Self {
        let now = now_ns();
        Self {
            tables,
            seen: HashMap::new(),
            formats: Formats::default(),
            places: Places::default(),
            gone: HashSet::new(),
            often: Vec::new(),
            seldom: Vec::new(),
            held: Vec::new(),
            misses: HashMap::new(),
            census_at_ns: now,
            census_every_ns: SAMPLE_EVERY_NS,
            next: 0,
            counted: Counted { gets: tables.session_gets(), at_ns: now, started_ns: now },
            started_cpu_ns: thread_cpu_ns(),
            waits: Waits::default(),
            cost: Cost::default(),
            pauses: Pauses::default(),
            buffer: vec![[0; RECORD]; BATCH],
        }
    }

    /// One look at whatever is due. Returns the time to the next one, in ns.
    fn round(&mut self, also: &impl Fn()) -> u64 {
        if now_ns() >= self.census_at_ns {
            let before = thread_cpu_ns();
            self.census();
            also();
            let cost = thread_cpu_ns() - before;
            // A program that runs for a moment only is looked at too.
            self.census_every_ns = (self.census_every_ns * 2).min(CENSUS_EVERY_NS);
            self.census_at_ns = now_ns() + self.census_every_ns.max(cost * TIMES_CENSUS);
        }
        self.sample();
        let cpu = thread_cpu_ns() - self.started_cpu_ns;
        let elapsed = now_ns() - self.counted.started_ns;
        if self.often.is_empty() {
            // Nothing to sample before the next census.
            return self.census_at_ns.saturating_sub(now_ns()).clamp(SAMPLE_EVERY_NS, LONGEST_PAUSE_NS);
        }
        let affordable = (cpu * TIMES_COST).saturating_sub(elapsed);
        self.pauses.next(affordable.clamp(SAMPLE_EVERY_NS, LONGEST_PAUSE_NS))
    }

    fn sample(&mut self) {
        if self.cost.samples.is_multiple_of(NOW_AND_THEN) {
            let seldom = std::mem::take(&mut self.seldom);
            self.seldom = self.sample_all(seldom);
        }
        let often = std::mem::take(&mut self.often);
        self.often = self.sample_all(often);
        self.cost.samples += u64::from(!self.often.is_empty());
        self.look_again();
    }

    fn sample_all(&mut self, chosen: Vec<(u32, Vec<Identity>)>) -> Vec<(u32, Vec<Identity>)> {
        for (pid, identities) in &chosen {
            self.read(*pid, identities, true);
        }
        chosen
    }

    /// Looks at the table, reads the gets of all mutexes, and chooses those to sample.
    fn census(&mut self) {
        let infos = self.tables.mutexes();
        let before: HashMap<Identity, u64> = self.seen.iter().map(|(identity, seen)| (*identity, seen.gets)).collect();
        self.formats = Formats::of(self.tables);
        (self.counted.at_ns, self.counted.gets) = (now_ns(), self.tables.session_gets());
        let (mut private, mut by_first, mut processes) = (Vec::new(), HashMap::new(), HashMap::new());
        for info in infos {
            let identity = Identity::of(&info);
            if info.place == Place::Process && self.is_libcs(&info) {
                let first = self.places.first_of(&info, &mut processes, &mut self.seen);
                if !self.gone.contains(&identity) {
                    by_first.insert(first, identity);
                }
                if first != identity {
                    continue;
                }
            } else if info.place == Place::Process {
                private.push(identity);
            }
            let seen = self.seen.entry(identity).or_insert_with(|| Seen::new(info.clone()));
            seen.gets = seen.gets.max(info.gets.unwrap_or(0));
            seen.info = info;
        }
        // What lies in memory of several processes is read in one of them.
        private.extend(by_first.into_values());
        let total = private.len();
        if total > CENSUS {
            private.rotate_left(self.next % total);
            self.next = (self.next + CENSUS) % total;
            private.truncate(CENSUS);
        }
        for (pid, identities) in by_process(&private) {
            for batch in identities.chunks(BATCH) {
                self.read(pid, batch, false);
            }
        }
        let mut misses: HashMap<MutexId, u64> = HashMap::new();
        for (_, key, figures) in self.tables.figures() {
            *misses.entry(key.mutex).or_default() += figures.get(Counter::Misses);
        }
        self.choose(&private, &before, &misses);
        self.find_variables();
        self.misses = misses;
        self.waits.follow(self.tables);
    }

    /// Chooses those of these to sample, by their gets and misses since the last census.
    fn choose(&mut self, known: &[Identity], before: &HashMap<Identity, u64>, misses: &HashMap<MutexId, u64>) {
        let growth = |identity: &Identity| {
            let first = &self.places.first(identity);
            let Some(seen) = self.seen.get(first) else { return (0, 0) };
            let sum = |misses: &HashMap<MutexId, u64>| seen.ids().filter_map(|id| misses.get(&id)).sum::<u64>();
            let missed = sum(misses).saturating_sub(sum(&self.misses));
            (missed, seen.gets.saturating_sub(before.get(first).copied().unwrap_or(0)))
        };
        let mut contended: Vec<_> = known.iter().map(|identity| (growth(identity), *identity)).collect();
        contended.sort_unstable_by_key(|(growth, _)| std::cmp::Reverse(*growth));
        // Half of each choice for the most contended, half for those used most.
        let mut choose = |count: usize| {
            let mut chosen: Vec<Identity> = contended.drain(..contended.len().min(count / 2)).map(|(_, i)| i).collect();
            let mut by_use: Vec<_> = contended.iter().map(|((_, got), identity)| (*got, *identity)).collect();
            by_use.sort_unstable_by_key(|(got, _)| std::cmp::Reverse(*got));
            chosen.extend(by_use.iter().take(count / 2).map(|(_, identity)| identity));
            contended.retain(|(_, identity)| !chosen.contains(identity));
            by_process(&chosen)
        };
        let (often, seldom) = (choose(OFTEN), choose(SELDOM));
        (self.often, self.seldom) = (often, seldom);
        // The others' gets until they are chosen again are no gets of a sampled time.
        let chosen: HashSet<Identity> = self
            .often
            .iter()
            .chain(&self.seldom)
            .flat_map(|(_, all)| all)
            .map(|identity| self.places.first(identity))
            .collect();
        for (_, seen) in self.seen.iter_mut().filter(|(identity, _)| !chosen.contains(identity)) {
            seen.latest = None;
        }
    }

    /// Whether it keeps libc's format, and may lie in memory of several processes.
    fn is_libcs(&self, info: &MutexInfo) -> bool {
        !matches!(self.formats.format(info.mutex_type), Format::Library | Format::Private)
    }

    /// Finds out what the chosen ones are that have not been sampled before. A process's mappings are gone at
    /// its end.
    fn find_variables(&mut self) {
        for (pid, identities) in self.often.iter().chain(&self.seldom) {
            let is_new = |identity: &&Identity| {
                self.seen
                    .get(&self.places.first(identity))
                    .is_some_and(|seen| seen.samples == 0 && seen.variable.is_none())
            };
            let new: Vec<Identity> = identities.iter().filter(is_new).copied().collect();
            if new.is_empty() {
                continue;
            }
            let modules = Modules::of(*pid);
            for identity in new {
                let first = self.places.first(&identity);
                if let Some(seen) = self.seen.get_mut(&first) {
                    seen.variable = modules.locate(identity.address);
                }
            }
        }
    }

    /// Reads records of one process; a sample counts holders.
    fn read(&mut self, pid: u32, identities: &[Identity], sample: bool) {
        let mut left = identities;
        while !left.is_empty() {
            let batch = &left[..left.len().min(BATCH)];
            let read = match read_process(pid, batch, &mut self.buffer) {
                Ok(read) => read,
                Err(libc::EFAULT) => 0,
                Err(error) => {
                    self.cost.refused += u64::from(error == libc::EPERM);
                    self.gone.extend(left.iter().filter(|identity| self.places.has(identity)));
                    return;
                }
            };
            let now = now_ns();
            for (identity, bytes) in batch.iter().zip(&self.buffer[..read]) {
                let may_be_shared = self.places.has(identity);
                let Some(seen) = self.seen.get_mut(&self.places.first(identity)) else { continue };
                let format = self.formats.format(seen.info.mutex_type);
                let most = self.counted.most(format, now);
                let record = Record::parse(bytes, format);
                let found = match may_be_shared {
                    false => record.ours(identity.id, most, !seen.is_named),
                    true if format == Format::Libc => record.libcs().map(|(held, count)| {
                        (held, count.map_or(0, |count| seen.gets_by(count, most, || self.tables.session_gets())))
                    }),
                    true => None,
                };
                let Some((held, gets)) = found else { continue };
                seen.is_named |= record.has(identity.id);
                seen.gets = seen.gets.max(gets);
                if sample {
                    seen.sample(now, held, gets);
                    self.held.extend(Held::of(*identity, gets, &record).filter(|_| held && !may_be_shared));
                }
            }
            self.cost.records += read as u64;
            self.gone.extend(batch.get(read).filter(|identity| self.places.has(identity)));
            // The record after the last one that could be read is not there.
            left = &left[(read + usize::from(read < batch.len())).min(left.len())..];
        }
    }

    fn finish(mut self) -> Observation {
        self.cost.cpu_ns = thread_cpu_ns() - self.started_cpu_ns;
        self.cost.wall_ns = now_ns() - self.counted.started_ns;
        // The program has ended: its entries have what it noted then, and it may have left processes behind.
        self.census();
        self.places.presume(&mut self.seen);
        Observation { mutexes: self.seen, waits: self.waits, cost: self.cost }
    }
}

fn by_process(identities: &[Identity]) -> Vec<(u32, Vec<Identity>)> {
    let mut all: HashMap<u32, Vec<Identity>> = HashMap::new();
    for identity in identities {
        all.entry(identity.pid).or_default().push(*identity);
    }
    all.into_iter().collect()
}

fn read_process(pid: u32, identities: &[Identity], into: &mut [[u8; RECORD]]) -> Result<usize, i32> {
    record::read(pid, identities.iter().map(|identity| identity.address), into)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(word: u64, kind: u32, id: u32, gets: u64) -> [u64; 5] {
        [word, 0, u64::from(id) << 32 | u64::from(kind), gets, 1 << 32]
    }

    fn identity(record: &[u64; 5], id: u32) -> Identity {
        Identity { id: MutexId(id), pid: std::process::id(), address: record.as_ptr() as u64 }
    }

    #[test]
    fn records_are_read_and_holes_are_left_out() {
        let (held, free) = (record(5 << 32 | 1, 0, 1, 77), record(0, 0, 2, 8));
        let hole = Identity { id: MutexId(3), pid: std::process::id(), address: 8 };
        let mut buffer = vec![[0; RECORD]; 8];
        let all = [identity(&held, 1), identity(&free, 2), hole, identity(&held, 1)];
        assert_eq!(read_process(std::process::id(), &all, &mut buffer), Ok(2));
        let [first, second] = [0, 1].map(|i| Record::parse(&buffer[i], Format::Private));
        let read = |record: Record, id, most| record.ours(MutexId(id), most, false);
        assert_eq!((read(first, 1, 77), read(first, 1, 76)), (Some((true, 77)), None));
        assert_eq!((read(second, 2, 77), read(second, 1, 77)), (Some((false, 8)), None));
        assert_eq!(read_process(std::process::id(), &all[2..], &mut buffer), Err(libc::EFAULT));
    }
}
