//! Samples the holders of mutexes in processes' memory from outside, while the program runs.
//!
//! Nothing is recorded by who holds a mutex. A thread of ours reads the records of mutexes in the program's processes:
//! a *census* of all of them now and then, for their gets, and between two of these many *samples* of those that are
//! contended or used most, for their holders. It keeps its own cost below 1 % of a processor by doing less.
//!
//! What lies in memory that several processes have is one mutex, though each of them has registered it: the kernel says what
//! their mappings are as long as they live.

use super::record::{self, Format, Formats, RECORD, Record};
use super::variables::{Modules, Shared};
use crate::blocking::{Deadlock, Look};
use crate::naming::Names;
use retrial::MutexId;
use retrial::sys::{now_ns, thread_cpu_ns};
use retrial::views::{Counter, MutexInfo, Place, Sid, Tables, TypeId};
use retrial_model::profile::Samples;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Records that one call reads.
const BATCH: usize = 512;
/// Records that one census reads; a larger table takes several.
const CENSUS: usize = 4096;
/// Mutexes whose holders are sampled each time.
const OFTEN: usize = 24;
/// Those whose holders are sampled now and then: a read costs about a microsecond for each.
const SELDOM: usize = 104;
/// Samples of the former for one of the latter.
const NOW_AND_THEN: u64 = 8;
/// The time from one look to the next is at least this many times what they cost: 0.8 % of a processor, so that what
/// cannot be helped stays below 1 %.
const TIMES_COST: u64 = 125;
/// The same for the census alone.
const TIMES_CENSUS: u64 = 250;
const CENSUS_EVERY_NS: u64 = 100_000_000;
const SAMPLE_EVERY_NS: u64 = 1_000_000;
const LONGEST_PAUSE_NS: u64 = 50_000_000;
/// Semaphores, barriers and conditions whose variables are looked up.
const NAMED_EVENTS: usize = 256;
/// Length of a wait from which on it is looked at for a deadlock, and shortest time between two such looks.
const LONG_WAIT_NS: u64 = 200_000_000;

/// A mutex, apart from others that have its id later.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    pub id: MutexId,
    pub pid: u32,
    pub address: u64,
}

impl Identity {
    pub const fn of(info: &MutexInfo) -> Self {
        Self { id: info.id, pid: info.pid, address: info.address }
    }
}

/// What was seen of a mutex.
#[derive(Clone, Debug)]
pub struct Seen {
    pub info: MutexInfo,
    /// The same as others have registered it, of what lies in memory of several processes.
    pub others: Vec<Identity>,
    /// Gets at the latest look, of its record or noted in its entry.
    pub gets: u64,
    pub samples: u64,
    pub held: u64,
    /// Module and offset of a static one, file and offset of what is in shared memory; looked up when it is first sampled.
    pub variable: Option<String>,
    /// Whether its record has had its number.
    is_named: bool,
    /// What a mutex of libc's format had counted at the latest look.
    count: Option<u32>,
    /// The latest sample of the period under way, in which it is among those that are sampled, and the gets then.
    latest: Option<(u64, u64)>,
    /// Time from each sample to the next, over all periods; the part of it that ended with a sample that found it held; and
    /// the gets meanwhile.
    sampled_ns: u64,
    busy_ns: u64,
    sampled_gets: u64,
}

impl Seen {
    pub fn new(info: MutexInfo) -> Self {
        Self {
            gets: info.gets.unwrap_or(0),
            info,
            others: Vec::new(),
            samples: 0,
            held: 0,
            variable: None,
            is_named: false,
            count: None,
            latest: None,
            sampled_ns: 0,
            busy_ns: 0,
            sampled_gets: 0,
        }
    }

    /// All numbers that it has.
    pub fn ids(&self) -> impl Iterator<Item = MutexId> {
        std::iter::once(self.info.id).chain(self.others.iter().map(|other| other.id))
    }

    /// Gets by the count of a mutex in libc's format, which wraps, and is 0 again when the mutex is made anew. `all` is what
    /// the program has got so far: a file may have a count from before.
    fn gets_by(&mut self, count: u32, all: impl FnOnce() -> u64) -> u64 {
        let more = match self.count.replace(count) {
            None if u64::from(count) > all() => 0,
            None => count,
            Some(before) => Some(count.wrapping_sub(before)).filter(|more| *more <= u32::MAX / 2).unwrap_or(count),
        };
        self.gets + u64::from(more)
    }

    /// Takes a sample: when, whether somebody had it, and its gets so far.
    fn sample(&mut self, now_ns: u64, held: bool, gets: u64) {
        self.samples += 1;
        self.held += u64::from(held);
        if let Some((then_ns, gets_then)) = self.latest.replace((now_ns, gets)) {
            let took_ns = now_ns.saturating_sub(then_ns);
            self.sampled_ns += took_ns;
            self.busy_ns += if held { took_ns } else { 0 };
            // Fewer than before: another mutex has its memory.
            self.sampled_gets += gets.checked_sub(gets_then).unwrap_or(gets);
        }
    }

    /// What was seen of the holders of these, which have had the same number.
    pub fn samples(all: &[&Self]) -> Samples {
        let s = |of: fn(&Self) -> u64| sum(all, of) as f64 / 1e9;
        Samples {
            looks: sum(all, |seen| seen.samples),
            held: sum(all, |seen| seen.held),
            time_s: s(|seen| seen.sampled_ns),
            held_s: s(|seen| seen.busy_ns),
            gets: sum(all, |seen| seen.sampled_gets),
        }
    }

    /// Gets and seconds while it was sampled.
    pub fn while_sampled(&self) -> Option<(u64, f64)> {
        (self.sampled_gets > 0 && self.sampled_ns > 0).then(|| (self.sampled_gets, self.sampled_ns as f64 / 1e9))
    }
}

fn sum(all: &[&Seen], of: fn(&Seen) -> u64) -> u64 {
    all.iter().map(|seen| of(seen)).sum()
}

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
    /// When a session was first seen dead in the wait that began then.
    pub cut_off_ns: HashMap<(Sid, u64), u64>,
    /// Static variables that were waited for as events.
    pub events: HashMap<MutexId, Option<String>>,
    /// Sessions that waited for each other.
    pub deadlocks: Vec<Deadlock>,
    pub cost: Cost,
}

/// Observes until `stop`. The caller unparks this thread after setting it.
pub fn observe(tables: &Tables, stop: &AtomicBool) -> Observation {
    let mut sampler = Sampler::new(tables);
    std::thread::park_timeout(Duration::from_nanos(SAMPLE_EVERY_NS));
    while !stop.load(Ordering::Acquire) {
        let pause_ns = sampler.round();
        std::thread::park_timeout(Duration::from_nanos(pause_ns));
    }
    sampler.finish()
}

struct Sampler<'t> {
    tables: &'t Tables,
    seen: HashMap<Identity, Seen>,
    formats: Formats,
    /// Of each mutex that may lie in memory of several processes, in each of them, the one that it was first seen as.
    firsts: HashMap<Identity, Identity>,
    /// The same by where it lies.
    shared: HashMap<(TypeId, Shared), Identity>,
    /// And by type and address: `None` where processes have different things there.
    at: HashMap<(TypeId, u64), Option<Identity>>,
    /// Those whose process had ended, or may not be read, when it was looked at first.
    unknown: Vec<(TypeId, Identity)>,
    /// Those that cannot be read any more.
    gone: HashSet<Identity>,
    /// Those whose holders are sampled, by process: each time, and now and then.
    often: Vec<(u32, Vec<Identity>)>,
    seldom: Vec<(u32, Vec<Identity>)>,
    /// Misses by mutex at the last census.
    misses: HashMap<MutexId, u64>,
    census_at_ns: u64,
    census_every_ns: u64,
    /// Where in the table the next census goes on.
    next: usize,
    started_ns: u64,
    started_cpu_ns: u64,
    cut_off_ns: HashMap<(Sid, u64), u64>,
    /// Static variables that are waited for as events.
    events: HashMap<MutexId, Option<String>>,
    deadlocks: Vec<Deadlock>,
    /// When deadlocks are looked for next.
    ring_at_ns: u64,
    cost: Cost,
    random: u64,
    buffer: Vec<[u8; RECORD]>,
}

impl<'t> Sampler<'t> {
    fn new(tables: &'t Tables) -> Self {
        let now = now_ns();
        Self {
            tables,
            seen: HashMap::new(),
            formats: Formats::default(),
            firsts: HashMap::new(),
            shared: HashMap::new(),
            at: HashMap::new(),
            unknown: Vec::new(),
            gone: HashSet::new(),
            often: Vec::new(),
            seldom: Vec::new(),
            misses: HashMap::new(),
            census_at_ns: now,
            census_every_ns: SAMPLE_EVERY_NS,
            next: 0,
            started_ns: now,
            started_cpu_ns: thread_cpu_ns(),
            cut_off_ns: HashMap::new(),
            events: HashMap::new(),
            deadlocks: Vec::new(),
            ring_at_ns: 0,
            cost: Cost::default(),
            random: now | 1,
            buffer: vec![[0; RECORD]; BATCH],
        }
    }

    /// One look at whatever is due. Returns the time to the next one, in ns.
    fn round(&mut self) -> u64 {
        if now_ns() >= self.census_at_ns {
            let before = thread_cpu_ns();
            self.census();
            let cost = thread_cpu_ns() - before;
            // A program that runs for a moment only is looked at too.
            self.census_every_ns = (self.census_every_ns * 2).min(CENSUS_EVERY_NS);
            self.census_at_ns = now_ns() + self.census_every_ns.max(cost * TIMES_CENSUS);
        }
        self.sample();
        let cpu = thread_cpu_ns() - self.started_cpu_ns;
        let elapsed = now_ns() - self.started_ns;
        if self.often.is_empty() {
            // Nothing to sample before the next census.
            return self.census_at_ns.saturating_sub(now_ns()).clamp(SAMPLE_EVERY_NS, LONGEST_PAUSE_NS);
        }
        let affordable = (cpu * TIMES_COST).saturating_sub(elapsed);
        // Uneven pauses, so that no rhythm of the program's is met at always the same point.
        let pause = affordable.clamp(SAMPLE_EVERY_NS, LONGEST_PAUSE_NS);
        pause / 2 + self.random_below(pause)
    }

    fn random_below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    fn sample(&mut self) {
        if self.cost.samples.is_multiple_of(NOW_AND_THEN) {
            let seldom = std::mem::take(&mut self.seldom);
            self.seldom = self.sample_all(seldom);
        }
        let often = std::mem::take(&mut self.often);
        self.often = self.sample_all(often);
        self.cost.samples += u64::from(!self.often.is_empty());
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
        let (mut private, mut by_first, mut processes) = (Vec::new(), HashMap::new(), HashMap::new());
        for info in infos {
            let identity = Identity::of(&info);
            if info.place == Place::Process && self.is_libcs(&info) {
                let first = self.first_of(&info, &mut processes);
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
        let growth = |identity: &Identity| {
            let first = &self.first(identity);
            let Some(seen) = self.seen.get(first) else { return (0, 0) };
            let sum = |misses: &HashMap<MutexId, u64>| seen.ids().filter_map(|id| misses.get(&id)).sum::<u64>();
            let missed = sum(&misses).saturating_sub(sum(&self.misses));
            (missed, seen.gets.saturating_sub(before.get(first).copied().unwrap_or(0)))
        };
        let mut contended: Vec<_> = private.iter().map(|identity| (growth(identity), *identity)).collect();
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
            .map(|identity| self.first(identity))
            .collect();
        for (_, seen) in self.seen.iter_mut().filter(|(identity, _)| !chosen.contains(identity)) {
            seen.latest = None;
        }
        self.find_variables();
        self.name_events();
        self.misses = misses;
        self.follow_waits();
    }

    /// Finds out what static variables the first of the semaphores, barriers and conditions are that are waited for.
    fn name_events(&mut self) {
        let mut modules: HashMap<u32, Modules> = HashMap::new();
        let room = NAMED_EVENTS.saturating_sub(self.events.len());
        let is_new = |info: &MutexInfo| !self.events.contains_key(&info.id);
        let new: Vec<MutexInfo> = self.tables.events().into_iter().filter(is_new).take(room).collect();
        for info in new {
            let modules = modules.entry(info.pid).or_insert_with(|| Modules::of(info.pid));
            self.events.insert(info.id, modules.locate(info.address));
        }
    }

    /// Notes waits that a death has cut off, and looks for deadlocks among long ones.
    fn follow_waits(&mut self) {
        let now = now_ns();
        let mut is_long = false;
        for (sid, key, since_ns) in self.tables.waits() {
            if self.tables.is_dead(sid) {
                self.cut_off_ns.entry((sid, since_ns)).or_insert(now);
            } else if !key.event.for_event {
                is_long |= now.saturating_sub(since_ns) > LONG_WAIT_NS;
            }
        }
        for deadlock in self.deadlocks.iter_mut().filter(|deadlock| deadlock.ended_ns.is_none()) {
            deadlock.ended_ns = (!deadlock.lasts(self.tables)).then_some(now);
        }
        if is_long && now >= self.ring_at_ns {
            for links in Look::at_awaited(self.tables).deadlocks() {
                if !self.deadlocks.iter().any(|known| known.links == links) {
                    self.deadlocks.push(Deadlock::new(links, &mut Names::new(self.tables)));
                }
            }
            self.ring_at_ns = now + LONG_WAIT_NS;
        }
    }

    /// Whether it keeps libc's format, and may lie in memory of several processes.
    fn is_libcs(&self, info: &MutexInfo) -> bool {
        !matches!(self.formats.format(info.mutex_type), Format::Library | Format::Private)
    }

    /// What a known mutex was first seen as.
    fn first(&self, identity: &Identity) -> Identity {
        *self.firsts.get(identity).unwrap_or(identity)
    }

    /// What a mutex was first seen as, perhaps in another process.
    fn first_of(&mut self, info: &MutexInfo, processes: &mut HashMap<u32, Modules>) -> Identity {
        let identity = Identity::of(info);
        if let Some(first) = self.firsts.get(&identity) {
            return *first;
        }
        let modules = processes.entry(info.pid).or_insert_with(|| Modules::of(info.pid));
        let found = modules.shared(info.address);
        let found = found.map(|shared| *self.shared.entry((info.mutex_type, shared)).or_insert(identity));
        if *modules == Modules::default() {
            self.unknown.push((info.mutex_type, identity));
        } else {
            let at = self.at.entry((info.mutex_type, info.address)).or_insert(found);
            *at = found.filter(|_| *at == found);
        }
        let first = found.unwrap_or(identity);
        if let Some(seen) = self.seen.get_mut(&first) {
            seen.others.push(identity);
        }
        self.firsts.insert(identity, first);
        first
    }

    /// Takes what was not looked at in time for what other processes have at its address, if that is one thing in shared memory:
    /// children of a fork have their parent's mappings.
    fn presume(&mut self) {
        for (mutex_type, identity) in std::mem::take(&mut self.unknown) {
            if let Some(Some(first)) = self.at.get(&(mutex_type, identity.address))
                && let Some(seen) = self.seen.get_mut(first)
            {
                seen.others.push(identity);
                self.seen.remove(&identity);
            }
        }
    }

    /// Finds out what the chosen ones are that have not been sampled before. A process's mappings are gone at its end.
    fn find_variables(&mut self) {
        for (pid, identities) in self.often.iter().chain(&self.seldom) {
            let is_new = |identity: &&Identity| {
                self.seen.get(&self.first(identity)).is_some_and(|seen| seen.samples == 0 && seen.variable.is_none())
            };
            let new: Vec<Identity> = identities.iter().filter(is_new).copied().collect();
            if new.is_empty() {
                continue;
            }
            let modules = Modules::of(*pid);
            for identity in new {
                let first = self.first(&identity);
                if let Some(seen) = self.seen.get_mut(&first) {
                    seen.variable = modules.locate(identity.address);
                }
            }
        }
    }

    /// How often a mutex can have been got: a get takes more than a nanosecond. A second for what was before us.
    fn most_gets(&self) -> u64 {
        now_ns() - self.started_ns + 1_000_000_000
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
                    self.gone.extend(left.iter().filter(|identity| self.firsts.contains_key(identity)));
                    return;
                }
            };
            let (now, most) = (now_ns(), self.most_gets());
            for (identity, bytes) in batch.iter().zip(&self.buffer[..read]) {
                let first = self.firsts.get(identity);
                let Some(seen) = self.seen.get_mut(first.unwrap_or(identity)) else { continue };
                let format = self.formats.format(seen.info.mutex_type);
                let record = Record::parse(bytes, format);
                let found = match first {
                    None => record.ours(identity.id, most, !seen.is_named),
                    Some(_) if format == Format::Libc => record.libcs().map(|(held, count)| {
                        (held, count.map_or(0, |count| seen.gets_by(count, || self.tables.session_gets())))
                    }),
                    Some(_) => None,
                };
                let Some((held, gets)) = found else { continue };
                seen.is_named |= record.has(identity.id);
                seen.gets = seen.gets.max(gets);
                if sample {
                    seen.sample(now, held, gets);
                }
            }
            self.cost.records += read as u64;
            self.gone.extend(batch.get(read).filter(|identity| self.firsts.contains_key(identity)));
            // What follows the last one that could be read is not there.
            left = &left[(read + usize::from(read < batch.len())).min(left.len())..];
        }
    }

    fn finish(mut self) -> Observation {
        self.cost.cpu_ns = thread_cpu_ns() - self.started_cpu_ns;
        self.cost.wall_ns = now_ns() - self.started_ns;
        // The program has ended: its entries have what it noted then, and it may have left processes behind.
        self.census();
        self.presume();
        let Self { seen, cut_off_ns, events, deadlocks, cost, .. } = self;
        Observation { mutexes: seen, cut_off_ns, events, deadlocks, cost }
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
    use retrial_model::{Measure, Profile};

    fn record(word: u64, kind: u32, id: u32, gets: u64) -> [u64; 5] {
        [word, 0, u64::from(id) << 32 | u64::from(kind), gets, 0]
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

    fn info() -> MutexInfo {
        MutexInfo {
            id: MutexId(1),
            name: String::new(),
            mutex_type: TypeId(0),
            place: Place::Process,
            address: 0,
            pid: 1,
            gets: None,
            death: None,
            pthread_in_use: false,
            switches: 0,
        }
    }

    #[test]
    fn time_and_gets_between_two_periods_of_samples_are_left_out() {
        let mut seen = Seen::new(info());
        // Busy for 3 of 4 ms, with 60 gets.
        for (at_ms, held, gets) in
            [(10, false, 100), (11, true, 120), (12, true, 130), (13, false, 140), (14, true, 160)]
        {
            seen.sample(at_ms * 1_000_000, held, gets);
        }
        // Not sampled for a while, in which it was got a million times; another mutex has its memory then.
        seen.latest = None;
        for (at_ms, held, gets) in [(1000, false, 1_000_160), (1003, true, 1_000_180), (1004, true, 10)] {
            seen.sample(at_ms * 1_000_000, held, gets);
        }
        assert_eq!((seen.sampled_ns, seen.busy_ns, seen.sampled_gets), (8_000_000, 7_000_000, 90));
        let profile = Profile { samples: Seen::samples(&[&seen]), ..Profile::default() };
        let of = |measure: Measure| measure.of(&profile).unwrap();
        assert!((of(Measure::Utilization) - 0.875).abs() < 1e-12);
        assert!((of(Measure::HoldingTime) - 7e-3 / 90.0).abs() < 1e-12);
    }

    #[test]
    fn a_count_wraps_starts_over_and_may_be_from_before_the_run() {
        let looks = |counts: &[u32], all: u64| {
            let mut seen = Seen::new(info());
            for count in counts {
                seen.gets = seen.gets_by(*count, || all);
            }
            seen.gets
        };
        assert_eq!(looks(&[10, 25], 100), 25);
        assert_eq!(looks(&[u32::MAX - 9, 10], u64::MAX), u64::from(u32::MAX) + 11);
        assert_eq!(looks(&[1000, 30, 50], 2000), 1050);
        assert_eq!(looks(&[500, 520], 100), 20);
    }
}
