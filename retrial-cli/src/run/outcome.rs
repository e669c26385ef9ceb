//! What a run came to: everything that a report says, computed once.

use super::child::Finished;
use super::profile::report::Profile as Calling;
use super::sampler::{Cost, Observation, Seen};
use super::symbols::Symbols;
use super::unseen::Unseen;
use crate::blocking::Deadlock;
use crate::predict::room::Room;
use retrial::views::{Counter, Figures, Key, LocationId, Params, Sid, Tables, TypeId, WaitEvent};
use retrial::{MutexId, P};
use retrial_bench::machine::Machine;
use retrial_model::profile::WAIT_PARTS;
use retrial_model::{Measure, Profile, sim};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A run that has ended.
#[derive(Debug)]
pub struct Outcome {
    pub command: String,
    pub finished: Finished,
    pub elapsed_s: f64,
    pub machine: Machine,
    /// Share of the machine that was busy, with anybody's work.
    pub machine_busy: Option<f64>,
    pub instance: String,
    pub kept: bool,
    pub params: Params,
    /// What the steps of a wait cost, as far as it was calibrated.
    pub costs: sim::Machine,
    /// Combinations of mutex, location and event that each thread counts apart.
    pub rows: u32,
    pub mutexes: Vec<Used>,
    /// All mutexes together.
    pub total: Profile,
    pub events: Vec<Event>,
    /// Semaphores, barriers and conditions, most waited for first: waits for something to happen, not for a
    /// holder.
    pub awaited: Vec<Used>,
    pub calls: Vec<Calls>,
    pub alerts: Vec<String>,
    pub deadlocks: Vec<Deadlock>,
    /// When the program had ended, by the monotonic clock.
    pub ended_ns: u64,
    pub recoveries: u64,
    pub unseen: Unseen,
    pub cost: Cost,
    /// Why no lock was handled, when none was.
    pub nothing: Option<String>,
    /// The calls that took the locks, when that was asked for.
    pub profile: Option<Calling>,
}

/// A mutex that was missed, with those that had its id before or after.
#[derive(Debug)]
pub struct Used {
    pub id: MutexId,
    pub name: String,
    pub mutex_type: String,
    /// Where it was seen first, and how many processes were seen to have it.
    pub pid: u32,
    pub address: u64,
    pub processes: usize,
    /// Module and offset of a static one, file and offset of what is in shared memory.
    pub variable: Option<String>,
    pub profile: Profile,
    /// Where it was asked for when it was busy, most waited for first.
    pub places: Vec<(String, Figures)>,
    /// Those that missed it.
    pub sessions: HashSet<Sid>,
}

/// A row of the wait events.
#[derive(Debug)]
pub struct Event {
    pub name: String,
    pub profile: Profile,
}

/// Calls of one kind of pthread object.
#[derive(Debug)]
pub struct Calls {
    pub kind: &'static str,
    pub handled: u64,
    pub fallback: u64,
}

/// The parts of the wait time, with their names and their shares.
pub const PARTS: [(&str, Counter, Measure); 4] = [
    ("spin", Counter::SpinNs, Measure::SpinShare),
    ("yield", Counter::YieldNs, Measure::YieldShare),
    ("slept", Counter::SleptNs, Measure::SleptShare),
    ("oversleep", Counter::OverNs, Measure::OverShare),
];

/// The parts of the wait time in tenths of a percent that add up to 1000, all 0 without waits.
pub fn split(figures: &Figures) -> [u64; 4] {
    let parts = WAIT_PARTS.map(|counter| u128::from(figures.get(counter)));
    let sum: u128 = parts.iter().sum();
    if sum == 0 {
        return [0; 4];
    }
    let mut tenths = parts.map(|part| u64::try_from(part * 1000 / sum).unwrap_or(0));
    let mut by_rest = [0, 1, 2, 3];
    by_rest.sort_by_key(|i| std::cmp::Reverse(parts[*i] * 1000 % sum));
    let missing = 1000 - tenths.iter().sum::<u64>();
    for i in by_rest.into_iter().take(usize::try_from(missing).unwrap_or(0)) {
        tenths[i] += 1;
    }
    tenths
}

impl Outcome {
    /// Whether the waits were for a processor rather than for a mutex: the machine was full and most of the
    /// wait time went by in the run queue, be it after a yield or after a sleep had ended.
    pub fn starved(&self) -> bool {
        let total = &self.total.figures;
        let yields = total.get(Counter::Yields);
        let yield_ns = total.get(Counter::YieldNs);
        // A yield while no other thread is ready takes below a microsecond.
        let yielded = if yields > 0 && yield_ns / yields > 5_000 { yield_ns } else { 0 };
        let queued = yielded + total.get(Counter::OverNs);
        let waited: u64 = WAIT_PARTS.iter().map(|counter| total.get(*counter)).sum();
        waited > 0 && queued * 2 > waited && self.machine_busy.is_some_and(|busy| busy > 0.9)
    }

    pub fn contended(&self) -> usize {
        self.mutexes.iter().filter(|mutex| mutex.id.0 != 0 && mutex.profile.figures.get(Counter::Misses) > 0).count()
    }

    pub fn scheme(&self) -> String {
        P::Scheme.format(self.params.get(P::Scheme))
    }
}

/// The mutexes that were missed, busiest first, with the events and totals.
pub struct Summary {
    pub mutexes: Vec<Used>,
    pub events: Vec<Event>,
    /// Semaphores, barriers and conditions, most waited for first.
    pub awaited: Vec<Used>,
    pub total: Profile,
    /// The number that a mutex with several goes by, by the others.
    pub firsts: HashMap<MutexId, MutexId>,
}

impl Summary {
    /// Whether nothing was got and nobody waited.
    pub fn is_empty(&self) -> bool {
        self.total.gets == Some(0) && self.mutexes.is_empty()
    }
}

/// Figures of one mutex, of its places, and the sessions that have counted them.
type Counted = (Figures, BTreeMap<LocationId, Figures>, HashSet<Sid>);

/// What the rows of the tables add up to.
#[derive(Default)]
struct Sums {
    total: Figures,
    mutexes: HashMap<MutexId, Counted>,
    awaited: HashMap<MutexId, Counted>,
    events: BTreeMap<(String, WaitEvent), Figures>,
}

impl Sums {
    /// `end_ns`: until when a wait counts that the program's end, or a death before it, has cut off.
    fn of(
        tables: &Tables,
        end_ns: impl Fn(Sid, u64) -> Option<u64>,
        seen: &HashMap<MutexId, Vec<&Seen>>,
        firsts: &HashMap<MutexId, MutexId>,
    ) -> Self {
        let type_of = |id: MutexId| {
            let known = seen.get(&id).and_then(|all| all.last()).map(|seen| seen.info.mutex_type);
            let known = known.or_else(|| tables.mutex_info(id).map(|info| info.mutex_type));
            let name = known.map_or_else(String::new, |known| tables.type_name(known));
            if name.is_empty() { "other".to_owned() } else { name }
        };
        let count = |of: &mut Counted, sid: Sid, key: Key, figures: &Figures| {
            of.0.add(figures);
            of.1.entry(key.location).or_default().add(figures);
            of.2.extend(Some(sid).filter(|sid| !sid.is_none()));
        };
        let mut sums = Self::default();
        for (sid, key, figures) in tables.rows_until(end_ns) {
            if key.event.for_event {
                count(sums.awaited.entry(key.mutex).or_default(), sid, key, &figures);
                continue;
            }
            sums.total.add(&figures);
            let id = firsts.get(&key.mutex).copied().unwrap_or(key.mutex);
            count(sums.mutexes.entry(id).or_default(), sid, key, &figures);
            sums.events.entry((key.event.name(&type_of(id)), key.event)).or_default().add(&figures);
        }
        sums
    }
}

/// Puts together what the tables, the observer, and the kernel say: of the threads at the begin, and when they were
/// last looked at.
pub fn summarize(
    tables: &Tables,
    observation: &Observation,
    [before, room]: &[Room; 2],
    elapsed_s: f64,
    ended_ns: u64,
) -> Summary {
    let (seen, firsts) = by_number(observation);
    let cut_off_ns = &observation.waits.cut_off_ns;
    let end_ns = |sid, since_ns| Some(cut_off_ns.get(&(sid, since_ns)).copied().unwrap_or(ended_ns));
    let Sums { total, mutexes: mut by_mutex, awaited, events } = Sums::of(tables, end_ns, &seen, &firsts);
    let mut symbols = Symbols::default();
    let mut mutexes: Vec<Used> = Vec::new();
    for (id, all) in &seen {
        mutexes.push(used(tables, *id, all, by_mutex.remove(id).unwrap_or_default(), elapsed_s));
    }
    // Mutexes that came and went between two looks, and what found no row of its own (id 0).
    for (id, counted) in by_mutex {
        mutexes.push(used(tables, id, &[], counted, elapsed_s));
    }
    let mut mutexes = busiest(mutexes, &mut symbols);
    // Not the sum of the mutexes' gets: some memory may have become something else unnoticed.
    let gets = Some(tables.session_gets());
    for used in mutexes.iter_mut().filter(|used| used.mutex_type.starts_with("pthread ")) {
        used.profile.gets = used.profile.gets.min(gets);
    }
    for used in mutexes.iter_mut().filter(|used| used.profile.samples.held > 0).take(TOP) {
        used.profile.gets_of_type = gets;
        room.put(&mut used.profile, &used.sessions, before);
    }
    let of = |gets, figures| Profile { time_s: elapsed_s, gets, figures, ..Profile::default() };
    let total = of(gets, total);
    let mut events: Vec<Event> =
        events.into_iter().map(|((name, _), figures)| Event { name, profile: of(None, figures) }).collect();
    events.sort_by_key(|Event { profile, .. }| {
        std::cmp::Reverse((profile.figures.get(Counter::WaitNs), profile.figures.get(Counter::Misses)))
    });
    let of_event = |(id, counted): (MutexId, Counted)| {
        let mut used = used(tables, id, &[], counted, elapsed_s);
        let variable = observation.waits.events.get(&id).cloned().flatten();
        used.name = variable.and_then(|variable| symbols.variable(&variable)).unwrap_or(used.name);
        used
    };
    let mut awaited: Vec<Used> = awaited.into_iter().map(of_event).collect();
    awaited.sort_by_key(|used| std::cmp::Reverse((used.id.0 != 0, used.profile.figures.get(Counter::WaitNs))));
    for (place, _) in awaited.iter_mut().take(TOP).flat_map(|used| &mut used.places) {
        *place = symbols.text(place);
    }
    Summary { mutexes, events, awaited, total, firsts }
}

/// The mutexes that were got or missed, busiest first, with the names that people know.
fn busiest(mut mutexes: Vec<Used>, symbols: &mut Symbols) -> Vec<Used> {
    mutexes.retain(|mutex| {
        mutex.profile.gets.is_some_and(|gets| gets > 0) || mutex.profile.figures.get(Counter::Misses) > 0
    });
    // What found no row of its own is no mutex of its own, and comes last.
    mutexes.sort_by_key(|m| {
        let Profile { figures, gets, .. } = &m.profile;
        std::cmp::Reverse((m.id.0 != 0, figures.get(Counter::WaitNs), figures.get(Counter::Misses), *gets))
    });
    for (place, _) in mutexes.iter_mut().take(TOP).flat_map(|mutex| &mut mutex.places) {
        *place = symbols.text(place);
    }
    for mutex in &mut mutexes {
        mutex.name = match mutex.variable.as_deref() {
            Some(variable) if mutex.name.is_empty() => symbols.variable(variable).unwrap_or_default(),
            _ => symbols.text(&mutex.name),
        };
    }
    mutexes
}

/// What was seen of the mutexes by their numbers, and the number by which one with several goes, by the
/// others. The latest of those that had a number is last, so that it gives the name.
fn by_number(observation: &Observation) -> (HashMap<MutexId, Vec<&Seen>>, HashMap<MutexId, MutexId>) {
    let mut seen: HashMap<MutexId, Vec<&Seen>> = HashMap::new();
    let mut firsts: HashMap<MutexId, MutexId> = HashMap::new();
    // A process's table of numbers has room for some mutexes only: what is at one address there is one,
    // whatever its numbers.
    let mut by_address: BTreeMap<(u32, u64, TypeId), BTreeSet<MutexId>> = BTreeMap::new();
    for mutex in observation.mutexes.values() {
        let info = &mutex.info;
        seen.entry(info.id).or_default().push(mutex);
        firsts.extend(mutex.others.iter().map(|other| (other.id, info.id)));
        if info.address != 0 {
            by_address.entry((info.pid, info.address, info.mutex_type)).or_default().insert(info.id);
        }
    }
    for mut ids in by_address.into_values() {
        let Some(first) = ids.pop_first() else { continue };
        for id in ids {
            let mut more = seen.remove(&id).unwrap_or_default();
            seen.entry(first).or_default().append(&mut more);
            firsts.insert(id, first);
        }
    }
    for seen in seen.values_mut() {
        seen.sort_by_key(|seen| seen.info.id);
    }
    (seen, firsts)
}

/// Mutexes that a report shows one by one.
pub const TOP: usize = 10;

fn used(tables: &Tables, id: MutexId, all: &[&Seen], (figures, locations, sessions): Counted, elapsed_s: f64) -> Used {
    let info = all.last().map(|seen| seen.info.clone()).or_else(|| tables.mutex_info(id));
    // A mutex that had several numbers in one process has all its gets in its record at each look.
    let mut gets: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for seen in all {
        let most = gets.entry((seen.info.pid, seen.info.address)).or_default();
        *most = seen.gets.max(*most);
    }
    let (gets, samples) = (gets.values().sum::<u64>(), Seen::samples(all));
    // Rwlocks, spin locks and adaptive mutexes in libc's format have no room to count all of them, or any.
    let are_all = gets + figures.get(Counter::GaveUp) >= figures.get(Counter::Misses) || samples.looks > 0;
    let mut places: Vec<(String, Figures)> =
        locations.into_iter().map(|(location, figures)| (tables.location_name(location), figures)).collect();
    places.sort_by_key(|(_, figures)| std::cmp::Reverse((figures.get(Counter::WaitNs), figures.get(Counter::Misses))));
    let of_others = all.iter().flat_map(|seen| seen.others.iter().map(|other| other.pid));
    let processes: BTreeSet<u32> = info.iter().map(|info| info.pid).chain(of_others).collect();
    Used {
        id,
        name: info.as_ref().map_or_else(String::new, |info| info.name.clone()),
        mutex_type: info.as_ref().map_or_else(String::new, |info| tables.type_name(info.mutex_type)),
        pid: info.as_ref().map_or(0, |info| info.pid),
        address: info.as_ref().map_or(0, |info| info.address),
        processes: processes.len(),
        variable: all.iter().find_map(|seen| seen.variable.clone()),
        profile: Profile {
            time_s: elapsed_s,
            gets: Some(gets).filter(|gets| *gets > 0 && are_all),
            figures,
            samples,
            held_queued_s: Seen::held_queued_s(all),
            ..Profile::default()
        },
        places,
        sessions,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sampler::Identity;
    use super::*;
    use retrial::views::{MutexInfo, Place};

    fn figures(parts: [u64; 4]) -> Figures {
        let mut figures = Figures::default();
        for (counter, part) in WAIT_PARTS.into_iter().zip(parts) {
            figures.counters[counter as usize] = part;
        }
        figures
    }

    #[test]
    fn a_lock_with_two_numbers_in_one_process_goes_by_the_first() {
        let info = |id, address| MutexInfo {
            id: MutexId(id),
            name: String::new(),
            mutex_type: TypeId(9),
            place: Place::Process,
            address,
            pid: 7,
            gets: Some(u64::from(id)),
            death: None,
            pthread_in_use: false,
            switches: 0,
            one_alone: false,
        };
        let mut observation = Observation::default();
        for info in [info(11, 64), info(6, 64), info(8, 128)] {
            observation.mutexes.insert(Identity::of(&info), Seen::new(info));
        }
        let (seen, firsts) = by_number(&observation);
        assert_eq!(firsts, [(MutexId(11), MutexId(6))].into());
        let ids = |id| seen[&MutexId(id)].iter().map(|seen| seen.info.id.0).collect::<Vec<_>>();
        assert_eq!((ids(6), ids(8), seen.len()), (vec![6, 11], vec![8], 2));
    }

    #[test]
    fn the_split_adds_up() {
        assert_eq!(split(&figures([0; 4])), [0; 4]);
        assert_eq!(split(&figures([1, 1, 1, 0])), [334, 333, 333, 0]);
        assert_eq!(split(&figures([u64::MAX, u64::MAX, 0, 1])).iter().sum::<u64>(), 1000);
        assert_eq!(split(&figures([7, 11, 13, 17])).iter().sum::<u64>(), 1000);
    }
}
