//! Measures the mutexes of a live instance from outside, without a session in it: counters at the begin and
//! the end, samples of holders between, and bursts of looks at the mutex that is meant, or held most.

use super::holds::{Burst, Timed};
use super::room::{Room, at_mutexes};
use crate::duration::nanos;
use crate::instances::Presence;
use crate::output::whole;
use crate::punctual::punctual;
use crate::run::record::{Format, Formats};
use crate::run::sampler::{self, Identity};
use crate::signals;
use retrial::MutexId;
use retrial::sys::now_ns;
use retrial::views::{Counter, Figures, MutexInfo, Place, Sid, Tables};
use retrial::wait;
use retrial_model::Profile;
use retrial_model::profile::{Samples, WAIT_PARTS};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// From one sample to the next, in ns, at least: this, and up to twice as much, so that no rhythm is met at always
/// the same point.
const SAMPLE_NS: u64 = 500_000;

/// The same where only holds are timed, for which a hundredth of a processor is enough.
const HOLDS_NS: u64 = 5_000_000;

/// So many samples say enough of a utilization, where so many of them find the mutex held. More would disturb the
/// sessions: where all processors are busy a sample takes one from a session, perhaps from the holder.
const SAMPLES: u64 = 2000;
const HELD: u64 = 500;

/// Mutexes that are sampled.
const SAMPLED: usize = 256;

/// Looks at the sessions' logs are so far apart at least, in ns, and so many times as long as they take.
const LOOK_NS: u64 = 10_000_000;
const LOOKS: u64 = 100;

/// The time from one burst to the next is this many bursts, and once more as many for each so many holds that are
/// timed.
const BURSTS: u64 = 50;
const TIMED: u64 = 500;

/// Length of a burst in ns, in holds at least so many.
const BURST_NS: std::ops::RangeInclusive<u64> = 20_000..=2_000_000;
const BURST_HOLDS: f64 = 30.0;

/// A mutex and what was measured of it.
#[derive(Debug)]
pub struct Seen {
    pub info: MutexInfo,
    pub measured: Profile,
    pub timed: Timed,
}

/// What is gathered of a mutex.
#[derive(Default)]
struct Gathered {
    gets: u64,
    samples: u64,
    held: u64,
    /// Second looks at the holder, and those of them that found it in a run queue.
    again: u64,
    queued: u64,
    /// Sessions that waited, summed over the looks.
    waiting: u64,
    sessions: HashSet<Sid>,
    timed: Timed,
}

/// Measures all mutexes for so long, or until a signal, or until the instance has gone; `tick` is told the time
/// passed. The mutex that is `meant` is sampled first, and its holds are timed; else those of the mutex that is
/// held most.
pub fn measure(tables: &Tables, interval: Duration, meant: Option<MutexId>, tick: &dyn Fn(Duration)) -> Vec<Seen> {
    let is_private = |mutex: &MutexInfo| mutex.place == Place::Process;
    if !tables.mutexes().iter().any(is_private) {
        return gather(tables, interval, meant, tick, HashMap::new);
    }
    // Mutexes in processes' memory are read through these.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| sampler::observe(tables, || {}, &stop));
        gather(tables, interval, meant, tick, || {
            stop.store(true, Ordering::Release);
            sampler.thread().unpark();
            sampler.join().map(|observation| observation.mutexes).unwrap_or_default()
        })
    })
}

fn gather(
    tables: &Tables,
    interval: Duration,
    meant: Option<MutexId>,
    tick: &dyn Fn(Duration),
    private: impl FnOnce() -> HashMap<Identity, sampler::Seen>,
) -> Vec<Seen> {
    let mut sampler = Sampler::new(tables, meant);
    let began_ns = now_ns();
    let (mut figures, before) = (sums(tables), Room::now(tables));
    let (mut room, length_ns, mut look_at_ns) = (before.clone(), nanos(interval), 0);
    sampler.run(length_ns, |sampler, elapsed| {
        tick(Duration::from_nanos(elapsed));
        sampler.any_session(&mut room);
        if elapsed >= look_at_ns {
            let before_ns = now_ns();
            sampler.sessions();
            look_at_ns = elapsed + LOOK_NS.max(LOOKS * (now_ns() - before_ns));
        }
        sampler.pause_ns(length_ns)
    });
    let Sampler { gets, mut gathered, looks, .. } = sampler;
    let private = private();
    let mut figures_at_end = sums(tables);
    // What several processes have in shared memory is one mutex, by its first number.
    for (id, other) in private.values().flat_map(|seen| seen.others.iter().map(|other| (seen.info.id, other.id))) {
        for figures in [&mut figures, &mut figures_at_end] {
            for (sid, of_other) in figures.remove(&other).unwrap_or_default() {
                figures.entry(id).or_default().entry(sid).or_default().add(&of_other);
            }
        }
    }
    let interval_s = ns(now_ns() - began_ns);
    room.look(tables);
    let ended = End { figures: figures_at_end, interval_s, looks, room, before };
    for (id, count) in self::gets(tables) {
        gathered.entry(id).or_default().gets = count.saturating_sub(gets.get(&id).copied().unwrap_or(0));
    }
    for seen in private.into_values() {
        let mutex = gathered.entry(seen.info.id).or_default();
        // From its first sample to its last, as if it had been so all the time.
        mutex.gets += seen.while_sampled().map_or(0, |(gets, s)| whole(gets as f64 * ended.interval_s / s));
        mutex.samples += seen.samples;
        mutex.held += seen.held;
        mutex.again += seen.again;
        mutex.queued += seen.queued;
    }
    ended.all(tables, gathered, &figures)
}

/// Holds of the mutex that is held most, timed in bursts for so long, or until a signal, or until the
/// instance has gone. Not of one in a process's memory, which is read too slowly for that.
pub fn holds(tables: &Tables, interval: Duration) -> Option<(MutexId, Timed)> {
    let mut sampler = Sampler::new(tables, None);
    sampler.run(nanos(interval), |sampler, _| sampler.uneven(HOLDS_NS));
    let most = sampler.gathered.into_iter().max_by_key(|(id, mutex)| (mutex.timed.count(), id.0));
    most.map(|(id, mutex)| (id, mutex.timed))
}

struct Sampler<'a> {
    tables: &'a Tables,
    meant: Option<MutexId>,
    /// Gets of each mutex at the begin.
    gets: BTreeMap<MutexId, u64>,
    /// Those that are sampled: those with the most gets so far.
    sampled: Vec<MutexId>,
    gathered: HashMap<MutexId, Gathered>,
    /// The mutex that is looked at in bursts, and their length in ns.
    focus: Option<(MutexId, u64)>,
    random: Cell<u64>,
    burst_at_ns: u64,
    looks: u64,
}

impl<'a> Sampler<'a> {
    fn new(tables: &'a Tables, meant: Option<MutexId>) -> Self {
        punctual();
        let (gets, random) = (gets(tables), Cell::new(now_ns() | 1));
        let mut sampled: Vec<MutexId> = gets.keys().copied().collect();
        sampled.sort_by_key(|id| (meant != Some(*id), Reverse(gets[id])));
        sampled.truncate(SAMPLED);
        Self { tables, meant, gets, sampled, gathered: HashMap::new(), focus: None, random, burst_at_ns: 0, looks: 0 }
    }

    /// Takes samples for so long, or until a signal, or until the instance has gone. `then` is told the time
    /// passed after each, and gives the pause to the next one; all in ns.
    fn run(&mut self, length_ns: u64, mut then: impl FnMut(&mut Self, u64) -> u64) {
        let (began_ns, mut presence) = (now_ns(), Presence::of(self.tables));
        loop {
            let elapsed = now_ns().saturating_sub(began_ns);
            if elapsed >= length_ns || signals::received().is_some() || presence.has_gone() {
                return;
            }
            self.sample(elapsed);
            let pause_ns = then(self, elapsed);
            std::thread::sleep(Duration::from_nanos(pause_ns.min(length_ns - elapsed)));
        }
    }

    /// A pause of at least so long, and of less than twice as much, in ns.
    fn uneven(&self, least_ns: u64) -> u64 {
        least_ns + wait::random(&self.random) % least_ns
    }

    /// From one sample to the next, where the whole takes so long.
    fn pause_ns(&self, length_ns: u64) -> u64 {
        let most = || self.gathered.values().max_by_key(|mutex| mutex.held);
        let most = self.meant.map_or_else(most, |meant| self.gathered.get(&meant));
        let (samples, held) = most.map_or((0, 0), |mutex| (mutex.samples, mutex.held));
        self.uneven(least_pause_ns(length_ns, samples, held))
    }

    /// Samples the holders of the mutexes; now and then in a burst.
    fn sample(&mut self, elapsed_ns: u64) {
        for id in &self.sampled {
            let Some(state) = self.tables.mutex_state(*id) else { continue };
            let mutex = self.gathered.entry(*id).or_default();
            mutex.samples += 1;
            if state.word.kind().is_some() {
                mutex.held += 1;
                mutex.sessions.insert(state.word.sid());
            }
        }
        if elapsed_ns < self.burst_at_ns {
            return;
        }
        if let Some((id, length_ns)) = self.focus {
            self.burst(id, length_ns);
        }
        // What is meant, or held most, and what its holding time seems to be.
        let is_timed =
            |(id, mutex): &(&MutexId, &Gathered)| mutex.held >= 5 && self.meant.is_none_or(|meant| meant == **id);
        let busiest = self.gathered.iter().filter(is_timed).max_by_key(|(id, mutex)| (mutex.held, id.0));
        self.focus = busiest.and_then(|(id, mutex)| {
            let gets = self.tables.mutex_state(*id)?.gets.saturating_sub(self.gets[id]);
            let hold_ns = mutex.held as f64 / mutex.samples as f64 * elapsed_ns as f64 / gets.max(1) as f64;
            Some((*id, whole(BURST_HOLDS * hold_ns).clamp(*BURST_NS.start(), *BURST_NS.end())))
        });
        let length_ns = self.focus.map_or(*BURST_NS.start(), |(_, length_ns)| length_ns);
        let timed = self.focus.map_or(0, |(id, _)| self.gathered[&id].timed.count());
        self.burst_at_ns = elapsed_ns + BURSTS * length_ns * (1 + timed / TIMED);
    }

    fn burst(&mut self, id: MutexId, length_ns: u64) {
        let timed = &mut self.gathered.entry(id).or_default().timed;
        let (mut burst, mut now) = (Burst::new(timed, length_ns / 10), now_ns());
        let end = now + length_ns;
        while now < end {
            let Some(state) = self.tables.mutex_state(id) else { return };
            burst.look(now, state);
            now = now_ns();
        }
    }

    /// Whether one session, any of them, is away.
    fn any_session(&self, room: &mut Room) {
        let place = wait::random(&self.random) % self.tables.sids().count().max(1) as u64;
        let session = self.tables.sids().nth(place as usize).and_then(|sid| self.tables.session_info(sid));
        session.inspect(|session| room.look_at(session));
    }

    /// Which sessions are at which mutex, and which of them wait for it, by their logs.
    fn sessions(&mut self) {
        self.looks += 1;
        for session in self.tables.sids().filter_map(|sid| self.tables.session_info(sid)) {
            for standing in at_mutexes(&session) {
                let mutex = self.gathered.entry(standing.record.mutex).or_default();
                mutex.sessions.insert(session.sid);
                mutex.waiting += u64::from(standing.waits || standing.is_busy);
            }
        }
    }
}

/// The least pause of those with which enough samples are made in the whole, where so many have been made and have
/// found the mutex held. Pauses are one and a half of it on average.
fn least_pause_ns(length_ns: u64, samples: u64, held: u64) -> u64 {
    let enough = SAMPLES.max(HELD * samples / held.max(1));
    (length_ns / enough * 2 / 3).max(SAMPLE_NS)
}

/// What is there at the end.
struct End {
    figures: HashMap<MutexId, HashMap<Sid, Figures>>,
    interval_s: f64,
    looks: u64,
    room: Room,
    /// The room at the begin.
    before: Room,
}

impl End {
    fn all(
        &self,
        tables: &Tables,
        mut gathered: HashMap<MutexId, Gathered>,
        before: &HashMap<MutexId, HashMap<Sid, Figures>>,
    ) -> Vec<Seen> {
        let (infos, formats) = (tables.mutexes(), Formats::of(tables));
        let mut by_type: HashMap<_, u64> = HashMap::new();
        for info in &infos {
            *by_type.entry(info.mutex_type).or_default() += gathered.get(&info.id).map_or(0, |mutex| mutex.gets);
        }
        let seen = infos.into_iter().map(|info| {
            let mut mutex = gathered.remove(&info.id).unwrap_or_default();
            let mut figures = Figures::default();
            for (sid, now) in self.figures.get(&info.id).into_iter().flatten() {
                let growth = before.get(&info.id).and_then(|by| by.get(sid)).map_or(*now, |before| now.since(before));
                if growth.get(Counter::Misses) > 0 || WAIT_PARTS.iter().any(|part| growth.get(*part) > 0) {
                    mutex.sessions.insert(*sid);
                }
                figures.add(&growth);
            }
            // Sessions of the interposer have no log: L is not known, and W is without the first spins.
            let is_logged = self.looks > 0 && formats.format(info.mutex_type) == Format::Library;
            let mut measured = Profile {
                time_s: self.interval_s,
                gets: Some(mutex.gets),
                gets_of_type: Some(by_type[&info.mutex_type]),
                figures,
                samples: Samples::over(mutex.samples, mutex.held, self.interval_s, mutex.gets),
                waiting_s: is_logged.then(|| self.interval_s * mutex.waiting as f64 / self.looks as f64),
                ..Profile::default()
            };
            if mutex.again > 0 {
                measured.held_queued_s = Some(measured.samples.held_s * mutex.queued as f64 / mutex.again as f64);
            }
            self.room.put(&mut measured, &mutex.sessions, &self.before);
            Seen { info, measured, timed: mutex.timed }
        });
        seen.collect()
    }
}

fn ns(time: u64) -> f64 {
    time as f64 / 1e9
}

/// Gets of the mutexes in the arena so far.
fn gets(tables: &Tables) -> BTreeMap<MutexId, u64> {
    let mutexes = tables.mutexes().into_iter();
    mutexes.filter_map(|mutex| Some((mutex.id, tables.mutex_state(mutex.id)?.gets))).collect()
}

/// Figures by mutex and session so far.
fn sums(tables: &Tables) -> HashMap<MutexId, HashMap<Sid, Figures>> {
    let mut sums: HashMap<MutexId, HashMap<Sid, Figures>> = HashMap::new();
    for (sid, key, figures) in tables.figures() {
        sums.entry(key.mutex).or_default().entry(sid).or_default().add(&figures);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_wait_for_a_mutex_of_the_interposer_is_not_known() {
        let instance = retrial::Instance::anonymous(retrial::Capacity::default()).unwrap();
        for name in ["pthread mutex", "mine"] {
            instance.register_mutex(instance.register_type(name).unwrap(), 0, name).unwrap();
        }
        let seen = measure(instance.tables(), Duration::from_millis(5), None, &|_| {});
        let waiting_s = |name| seen.iter().find(|seen| seen.info.name == name).unwrap().measured.waiting_s;
        assert_eq!([waiting_s("pthread mutex"), waiting_s("mine")], [None, Some(0.0)]);
    }

    #[test]
    fn what_is_meant_is_sampled_and_timed_and_what_is_got_most() {
        let instance = retrial::Instance::anonymous(retrial::Capacity::default()).unwrap();
        let mutex = |i: usize| instance.mutex(&format!("m{i}"), "t", || 0u64).unwrap();
        let mutexes: Vec<_> = (0..SAMPLED + 9).map(mutex).collect();
        let session = instance.session("holds", retrial::Class::Normal).unwrap();
        let held = [0, 1, SAMPLED + 8].map(|i| &mutexes[i]);
        // All others are got more often than the first one.
        mutexes[1..].iter().for_each(|mutex| drop(mutex.exclusive(&session, retrial::location!()).unwrap()));
        let _holds = held.map(|mutex| mutex.exclusive(&session, retrial::location!()).unwrap());
        let timed = |meant: Option<MutexId>| {
            let mut sampler = Sampler::new(instance.tables(), meant);
            (0..6).for_each(|i| sampler.sample(i * 10_000_000));
            sampler.focus.map(|(id, _)| id)
        };
        let [first, second, last] = held.map(retrial::Mutex::id);
        assert_eq!(timed(None), Some(last), "of those that are got most the last one that is held");
        assert_eq!([first, second, last].map(|meant| timed(Some(meant))), [first, second, last].map(Some));
    }

    #[test]
    fn no_more_samples_are_made_than_it_takes() {
        const LENGTH_NS: u64 = 10_000_000_000;
        let made = |samples, held| LENGTH_NS * 2 / 3 / least_pause_ns(LENGTH_NS, samples, held);
        assert_eq!(made(100, 100), 2000);
        assert_eq!(made(100, 10), 5000, "500 of them find it held");
        let most = LENGTH_NS * 2 / 3 / SAMPLE_NS;
        assert_eq!((made(100, 0), made(1000, 1)), (most, most));
    }
}
