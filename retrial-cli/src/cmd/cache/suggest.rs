//! `retrial cache suggest-hot`: which objects to mark as hot, how many copies, and what that will come to.

use super::{One, cache_error, create_error, duration, session_error, signals};
use crate::cmd::period::TIME_MIN;
use crate::cmd::what_if::{SEEDS, impossible};
use crate::instances::{has_gone, is_there};
use crate::output::{Format, Table, column, counted, line, per, short};
use crate::predict::fit::machine_here;
use crate::predict::hot::{Hot, Limits, Suggestion, suggest};
use crate::predict::live::Seen;
use crate::predict::source::{bar, measured};
use miette::{Report, miette};
use retrial::views::Tables;
use retrial::{Capacity, Class, Instance, MutexId};
use retrial_cache::{BlockObject, Cache, CacheError, Hash, Key, Namespace, Observed, Shape};
use retrial_model::{Measure, Profile};
use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Objects whose changes are watched: those got most so far.
const WATCHED: usize = 16;
/// How often.
const LOOK: Duration = Duration::from_millis(1);
/// After this time no other object is simulated.
const SIMULATING: Duration = Duration::from_secs(30);

/// Measure the objects that sessions wait for most, and say which to mark as hot, with how many copies
///
/// For each object: gets per second, holding time, utilization and waits of its mutex; how often it is made
/// or changed; the number of copies that is best, and how many times fewer waits there will be, simulated.
/// Objects that change too often are not to be marked: their copies would have to be made again and again.
/// Changes nothing.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial cache suggest-hot -i shop --for 30s
  retrial cache suggest-hot -i shop --json")]
pub struct Args {
    #[command(flatten)]
    one: One,
    /// How long to measure, with its unit
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    time: String,
    /// Objects to look at: those that sessions waited for longest
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5)]
    limit: usize,
}

/// An object with all its copies.
struct Object {
    label: String,
    hash: Hash,
    hot: Hot,
}

/// An object and what is suggested.
type Row = (Object, Suggestion);

pub fn run(args: &Args, format: Format) -> Result<ExitCode, Report> {
    let time = duration::at_least("--for", &args.time, TIME_MIN)?;
    let observer = args.one.which.observe()?;
    let tables = observer.tables();
    // SAFETY: this process takes part in no cache.
    let caches = unsafe { Observed::all(tables) };
    let cache = caches.into_iter().find(|cache| cache.name() == args.one.cache);
    let cache = cache.ok_or_else(|| cache_error(CacheError::NotFound(args.one.cache.clone())))?;
    signals::catch();
    let before = objects(&cache);
    let start = Instant::now();
    let (seen, births) = watch(tables, &cache, &before, time);
    if !is_there(tables) {
        return Err(gone(tables, start.elapsed(), time));
    }
    let after = objects(&cache);
    let of = |objects: &[BlockObject]| objects.iter().map(|object| object.gets).sum::<u64>();
    let gets = of(&after).saturating_sub(of(&before));
    let seen: HashMap<MutexId, Seen> = seen.into_iter().map(|seen| (seen.info.id, seen)).collect();
    let creating = cache.shard_mutexes().filter_map(|id| Measure::Utilization.of(&seen.get(&id)?.measured));
    let mut limits = Limits {
        copies_max: cache.copies_max().into(),
        shards: cache.shards(),
        creating: creating.fold(0.0, f64::max),
        making_s: making_s()?,
        params: tables.params(None),
        machine: machine_here(tables),
        seeds: SEEDS,
    };
    let mut found = waited(&after, &seen, &births);
    found.truncate(args.limit);
    let (count, start) = (found.len(), Instant::now());
    let bar = bar(count as u64, "{bar:30} simulating {msg}  {pos}/{len}, {elapsed}");
    let mut rows: Vec<Row> = Vec::new();
    for (object, id) in found {
        if start.elapsed() > SIMULATING || signals::received().is_some() {
            break;
        }
        bar.set_message(object.label.clone());
        limits.params = tables.params(seen.get(&id).map(|seen| seen.info.mutex_type));
        let suggestion = suggest(&object.hot, &limits).map_err(|error| impossible(&error))?;
        rows.push((object, suggestion));
        bar.inc(1);
    }
    bar.finish_and_clear();
    print(args, &rows, limits.making_s, format);
    let left = (count - rows.len()) as u64;
    if left > 0 {
        let (left, took) = (counted(left, "object was", "objects were"), short(start.elapsed().as_secs_f64()));
        eprintln!("{left} not simulated: the others took {took} s. -n {} for these alone.", rows.len().max(1));
    }
    if count == 0 {
        let (gets, time) = (counted(gets, "get", "gets"), duration::text(time));
        format.say(&format!("No session waited for an object. {gets} of objects' mutexes were seen in {time}."));
    }
    Ok(ExitCode::SUCCESS)
}

fn gone(tables: &Tables, after: Duration, time: Duration) -> Report {
    miette!(
        code = "retrial::cache::gone",
        help = "retrial list",
        "{} after {} s, expected it to be there for {}",
        has_gone(tables),
        short(after.as_secs_f64()),
        duration::text(time)
    )
}

/// Time that it takes to make a copy and to execute it once, on this machine: of objects that are made again
/// and again in a cache of this process alone, each in the place of an earlier one.
fn making_s() -> Result<f64, Report> {
    const OBJECTS: u32 = 2000;
    let shape = Shape { bytes: 64 << 10, shards: 1 };
    let capacity = Capacity { sessions: 2, ..Capacity::default() };
    let capacity = Capacity { arena: shape.arena(capacity.sessions), ..capacity };
    let instance = Instance::anonymous(capacity).map_err(create_error)?;
    let cache = Cache::create(&instance, "making", shape).map_err(cache_error)?;
    let session = instance.session("retrial cache", Class::Normal).map_err(session_error)?;
    let client = cache.join(&session).map_err(cache_error)?;
    let make = |number: u32| {
        let name = number.to_string();
        let key = Key::new(Namespace::Child, "", &name);
        drop(client.get_or_insert(&key, &[0; 64])?);
        client.execute(&key, |_| ()).map(drop)
    };
    (0..OBJECTS).try_for_each(make).map_err(cache_error)?;
    let start = Instant::now();
    (OBJECTS..2 * OBJECTS).try_for_each(make).map_err(cache_error)?;
    Ok(start.elapsed().as_secs_f64() / f64::from(OBJECTS))
}

/// The objects that have a mutex.
fn objects(cache: &Observed<'_>) -> Vec<BlockObject> {
    let live = cache.blocks().into_iter().filter(|block| matches!(block.phase, "live" | "going"));
    live.filter_map(|block| block.object).filter(|object| object.mutex.is_some()).collect()
}

/// Measures all mutexes, and beside that how often objects are made or changed.
fn watch(
    tables: &Tables,
    cache: &Observed<'_>,
    objects: &[BlockObject],
    time: Duration,
) -> (Vec<Seen>, HashMap<Hash, f64>) {
    let mut watched: Vec<&BlockObject> = objects.iter().filter(|object| object.copy == 0).collect();
    watched.sort_by_key(|object| std::cmp::Reverse(object.gets));
    let hashes: Vec<Hash> = watched.into_iter().take(WATCHED).map(|object| object.hash).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let births = scope.spawn(|| births(cache, &hashes, &stop));
        let seen = measured(tables, time, None);
        stop.store(true, Ordering::Relaxed);
        (seen, births.join().unwrap_or_default())
    })
}

/// How often objects are made or changed, per second.
fn births(cache: &Observed<'_>, hashes: &[Hash], stop: &AtomicBool) -> HashMap<Hash, f64> {
    let mut known: Vec<Births> = hashes.iter().map(|hash| Births::first(cache.births(*hash))).collect();
    let (start, mut looks) = (Instant::now(), 0_u32);
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        looks += 1;
        hashes.iter().zip(&mut known).for_each(|(hash, known)| known.look(cache.births(*hash)));
    }
    let time_s = start.elapsed().as_secs_f64();
    hashes.iter().zip(known).map(|(hash, known)| (*hash, known.per_s(looks, time_s))).collect()
}

/// What looks at an object have found of its births.
#[derive(Default)]
struct Births {
    /// Numbers of the object's latest birth and of the latest one in its shard.
    latest: Option<(u32, u32)>,
    /// Looks that found another birth than the look before, and those that found the object.
    changed: u32,
    found: u32,
    /// Births in the shard from look to look, and those since the object's latest one, summed over the looks.
    of_all: u64,
    since: u64,
}

impl Births {
    fn first(latest: Option<(u32, u32)>) -> Self {
        Self { latest, ..Self::default() }
    }

    fn look(&mut self, now: Option<(u32, u32)>) {
        self.changed += u32::from(now.map(|(own, _)| own) != self.latest.map(|(own, _)| own));
        if let (Some((own, all)), before) = (now, self.latest) {
            self.found += 1;
            self.of_all += before.map_or(0, |(_, before)| u64::from(all.wrapping_sub(before)));
            self.since += u64::from(all.wrapping_sub(own));
        }
        self.latest = now.or(self.latest);
    }

    /// While few looks find a change, one for each change. Else by the share f of the shard's births that are
    /// the object's: there are 1/f - 1 others since its latest one, in the mean.
    fn per_s(&self, looks: u32, time_s: f64) -> f64 {
        if f64::from(self.changed) < 0.1 * f64::from(looks) {
            return f64::from(self.changed) / time_s;
        }
        let share = 1.0 / (1.0 + self.since as f64 / f64::from(self.found.max(1)));
        (share * self.of_all as f64 / time_s).max(f64::from(self.changed) / time_s)
    }
}

/// The objects by the time that sessions waited for them, longest first, each with one of its mutexes.
fn waited(after: &[BlockObject], seen: &HashMap<MutexId, Seen>, births: &HashMap<Hash, f64>) -> Vec<(Object, MutexId)> {
    let mut copies: BTreeMap<_, Vec<&BlockObject>> = BTreeMap::new();
    for object in after {
        let key = (object.namespace, &object.schema, &object.name, object.version);
        copies.entry(key).or_default().push(object);
    }
    let of = |copies: Vec<&BlockObject>| {
        let itself = copies.iter().find(|object| object.copy == 0)?;
        let profile = |object: &&BlockObject| Some(seen.get(&object.mutex?)?.measured.clone());
        let profiles: Vec<Profile> = copies.iter().filter_map(profile).collect();
        let measured = match profiles.as_slice() {
            [one] => one.clone(),
            // A session seen at several copies is one; how many were at all of them nobody has counted.
            many => Profile { sessions: many.iter().filter_map(|of| of.sessions).max(), ..Profile::sum(many) },
        };
        let births_per_s = births.get(&itself.hash).copied().unwrap_or(0.0);
        let hot = Hot { measured, copies: itself.copies.into(), births_per_s };
        Some((Object { label: itself.label(), hash: itself.hash, hot }, itself.mutex?))
    };
    let mut all: Vec<(Object, MutexId)> = copies.into_values().filter_map(of).collect();
    all.retain(|(object, _)| Measure::MissRatio.of(&object.hot.measured).is_some_and(|ratio| ratio > 0.0));
    let waited = |object: &Object| object.hot.measured.registered_s();
    all.sort_by(|(a, _), (b, _)| waited(b).total_cmp(&waited(a)).then_with(|| a.label.cmp(&b.label)));
    all
}

/// The command that does what is suggested.
fn command(args: &Args, (object, suggestion): &Row) -> Option<String> {
    let flags = args.one.flags();
    suggestion.copies.map(|copies| format!("retrial cache mark-hot {} {copies}{flags}", object.hash))
}

fn print(args: &Args, rows: &[Row], making_s: f64, format: Format) {
    let of = |row: &Row, measure: Measure| measure.of(&row.0.hot.measured);
    let micros = |seconds: Option<f64>| seconds.map(|seconds| seconds * per("us"));
    // From outside no sample shows the short times that an object's mutex is held to execute it.
    let hold = |row: &Row| Some(of(row, Measure::MissRatio)? / of(row, Measure::Throughput)?);
    let columns = [
        column("object", |row: &Row| row.0.label.clone()),
        column("hash", |row: &Row| row.0.hash.to_string()).for_programs(),
        column("copies_now", |row: &Row| row.0.hot.copies),
        column("gets_per_s", |row: &Row| of(row, Measure::Throughput)),
        column("holding_time_us", |row: &Row| micros(hold(row))),
        column("utilization", |row: &Row| of(row, Measure::MissRatio)),
        column("waiting", |row: &Row| row.1.waiting),
        column("waits_per_s", |row: &Row| of(row, Measure::WaitsPerS)),
        column("births_per_s", |row: &Row| row.0.hot.births_per_s),
        column("copies", |row: &Row| row.1.copies),
        column("waits_per_s_then", |row: &Row| row.1.waits_per_s),
        column("factor", |row: &Row| row.1.factor),
        column("making_us", |_: &Row| making_s * per("us")),
        column("creating_then", |row: &Row| row.1.creating),
        column("why", |row: &Row| row.1.why.clone()).for_programs(),
        column("command", |row: &Row| command(args, row)).for_programs(),
    ];
    Table::of(&columns, rows).print(format);
    if !format.is_text() {
        return;
    }
    for row in rows {
        let (Object { label, hot, .. }, Suggestion { copies, why, factor, waits_per_s, .. }) = row;
        match (copies, why) {
            (None, why) => line(&format!("{label}: not to be marked: {}", why.as_deref().unwrap_or_default())),
            (Some(copies), why) => {
                let times = match (factor, waits_per_s) {
                    (Some(factor), _) => format!("{} times fewer", short(*factor)),
                    (None, Some(_)) => "none of the".to_owned(),
                    (None, None) => "an unknown number of".to_owned(),
                };
                let but = why.as_ref().map_or(String::new(), |why| format!("; {why}: take the figure with care"));
                line(&format!("{label}: {copies} copies in place of {}: {times} waits{but}", hot.copies));
            }
        }
        if let Some(command) = command(args, row) {
            line(&format!("  {command}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at an object that has this share of the births of its shard, of which there are so many for each
    /// look.
    fn estimated(share: f64, births_per_look: f64) -> f64 {
        const LOOKS: u32 = 20_000;
        let (mut random, mut due, mut own, mut all) = (1_u64, 0.0, 0, 0_u32);
        let mut births = Births::first(Some((0, 0)));
        for _ in 0..LOOKS {
            due += births_per_look;
            while due >= 1.0 {
                due -= 1.0;
                all += 1;
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if ((random >> 11) as f64) < share * (1_u64 << 53) as f64 {
                    own = all;
                }
            }
            births.look(Some((own, all)));
        }
        births.per_s(LOOKS, 1.0) / (f64::from(all) * share)
    }

    #[test]
    fn births_are_counted_however_many_there_are_between_two_looks() {
        for (share, births_per_look) in [(1.0, 0.01), (1.0, 30.0), (0.1, 30.0), (0.01, 30.0), (0.5, 0.5)] {
            let ratio = estimated(share, births_per_look);
            assert!((0.85..1.15).contains(&ratio), "share {share} of {births_per_look}: {ratio} of what there were");
        }
        assert!(Births::default().per_s(0, 1.0).abs() < 1e-9);
    }
}
