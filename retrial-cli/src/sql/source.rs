//! What is asked: a recording, or a live instance, which is the same in memory.

use super::database::Database;
use crate::duration;
use crate::instances::{Presence, has_gone, is_there};
use crate::output::short;
use crate::recording::store::{Recording, Rounds, Writer};
use crate::recording::{Pauses, Sampler, Scene, Span, Taker};
use crate::signals;
use miette::{Report, miette};
use retrial::sys::{now_ns, thread_cpu_ns};
use retrial::views::Tables;
use retrial::{Address, Observer};
use rusqlite::fallible_iterator::FallibleIterator;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Samples are so far apart while a live instance is looked at, unless something else is said.
pub const SAMPLE: Duration = Duration::from_millis(10);
/// A live instance is looked at no longer when there are so many samples: some 300 MB.
pub const SAMPLES_MAX: usize = 1_000_000;

/// What is asked.
pub enum Source {
    Recording(PathBuf),
    Live(Address),
}

impl Source {
    /// A database for a script, with the state at one moment; of what has happened in the last `over`, or
    /// since each instance was created.
    pub fn open(&self, over: Option<Duration>, script: &str) -> Result<Database, Report> {
        match self {
            Self::Recording(path) => recorded(path, over),
            Self::Live(address) => live(address, over, &tables_read(script)?),
        }
    }
}

/// A database without any rows, by which statements are checked.
pub fn nothing() -> Result<Database, Report> {
    let writer = Writer::in_memory(|_| false).map_err(|error| unwritten(&error))?;
    Database::new(writer.into_connection(), None)
}

fn recorded(path: &Path, over: Option<Duration>) -> Result<Database, Report> {
    let recording = Recording::open(path)?;
    let scene = scene(&recording, over)?;
    let database = Database::new(recording.into_connection(), None)?;
    database.show(scene);
    Ok(database)
}

/// The latest snapshot of each name in a recording, and the one before it that is so much older. Says how much
/// older that one is where it is more.
fn scene(recording: &Recording, over: Option<Duration>) -> Result<Scene, Report> {
    let snapshots = recording.snapshots()?;
    let names: BTreeMap<i64, String> = recording.instances()?.into_iter().collect();
    // The latest instance of each name.
    let latest: BTreeMap<&String, i64> = names.iter().map(|(id, name)| (name, *id)).collect();
    let mut scene = Scene::default();
    for instance in latest.into_values() {
        let of: Vec<_> = snapshots.iter().filter(|recorded| recorded.instance == instance).collect();
        let Some(to) = of.last() else { continue };
        let from = over.map(|over| {
            // Snapshots come a little early or late, and `record --for 8s` takes its first one a little later
            // than it begins.
            let nearly_ns = duration::nanos(over) / 20;
            let until_ns = to.at_ns.saturating_sub(duration::nanos(over) - nearly_ns);
            let earlier = of.iter().rev().find(|at| at.at_ns <= until_ns && at.at_ns < to.at_ns);
            if let Some(longer_ns) =
                earlier.map(|at| to.at_ns - at.at_ns).filter(|ns| *ns > duration::nanos(over) + nearly_ns)
            {
                let (over, length) = (duration::text(over), duration::text(Duration::from_nanos(longer_ns)));
                let name = &names[&instance];
                eprintln!("--over {over}: {name} has snapshots {length} apart, and the figures are of that time.");
            }
            earlier.ok_or_else(|| {
                let length = Duration::from_nanos(to.at_ns.saturating_sub(of[0].at_ns));
                miette!(
                    code = "retrial::sql::over",
                    help = format!("--over {}ms", length.as_millis()),
                    "--over {}, expected {} at most, which is what was recorded of {}",
                    duration::text(over),
                    duration::text(length),
                    names[&instance]
                )
            })
        });
        let from = from.transpose()?.map(|from| recording.snapshot(from.id)).transpose()?;
        scene.spans.push((instance, Span { from, to: recording.snapshot(to.id)? }));
    }
    Ok(scene)
}

/// The tables that the statements of a script read, up to the first that is none: running it will say so.
fn tables_read(script: &str) -> Result<BTreeSet<String>, Report> {
    let database = nothing()?;
    let mut batch = rusqlite::Batch::new(database.connection(), script);
    while let Ok(Some(_)) = batch.next() {}
    Ok(database.tables_read())
}

fn live(address: &Address, over: Option<Duration>, read: &BTreeSet<String>) -> Result<Database, Report> {
    let observer = Arc::new(Observer::open(address).map_err(crate::instances::attach_error)?);
    let (writer, span) = watched(&observer, over, SAMPLE, |table| read.contains(table))?;
    let database = Database::new(writer.into_connection(), Some(Arc::clone(&observer)))?;
    database.show(Scene { spans: vec![(1, span)], observer: Some(observer) });
    Ok(database)
}

/// A recording in memory of an instance as it is, or of what it does in the time to come, sampled every so
/// often or as often as can be. Of the tables of states it has those that will be read. Says how long it was
/// watched where it has gone before the time was over.
pub fn watched(
    observer: &Observer,
    over: Option<Duration>,
    every: Duration,
    is_read: impl Fn(&str) -> bool,
) -> Result<(Writer, Span), Report> {
    let mut writer = Writer::in_memory(is_read).map_err(|error| unwritten(&error))?;
    let mut taker = Taker::new(observer.tables());
    let mut sampler = Sampler::new(observer.tables());
    let before_ns = thread_cpu_ns();
    let from = over.map(|over| {
        let mut from = taker.snapshot();
        sampler.complete(&mut from);
        let began = Instant::now();
        watch(&mut sampler, observer.tables(), over, every);
        if !is_there(observer.tables()) {
            let (gone, watched) = (has_gone(observer.tables()), short(began.elapsed().as_secs_f64()));
            eprintln!("{gone}: watched for {watched} s of {}.", duration::text(over));
        }
        from
    });
    sampler.round();
    let mut to = taker.snapshot();
    let (samples, mut rounds) = sampler.complete(&mut to);
    rounds.recorder_ns = thread_cpu_ns() - before_ns;
    if let Some(from) = &from {
        writer.store(from, &[], Rounds::default())?;
    }
    writer.store(&to, &samples, rounds)?;
    Ok((writer, Span { from, to }))
}

/// Samples for so long, or until a signal, or until the instance has gone or there are as many as are kept.
fn watch(sampler: &mut Sampler<'_>, tables: &Tables, time: Duration, every: Duration) {
    let mut presence = Presence::of(tables);
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
    let (pauses, mut due) = (Pauses::default(), now_ns());
    let end = due.saturating_add(nanos(time));
    let mut is_over = || signals::received().is_some() || presence.has_gone();
    while now_ns() < end && sampler.count() < SAMPLES_MAX && !is_over() {
        sampler.round();
        let now = now_ns();
        // What took longer than the pause is not made up for.
        due = (due + pauses.next(nanos(every))).max(now).min(end);
        if due > now {
            retrial::sys::sleep(Duration::from_nanos(due - now));
        }
    }
}

fn unwritten(error: &rusqlite::Error) -> Report {
    miette!(code = "retrial::sql::database", help = "free -m", "no database in memory: {error}")
}
