//! Loads of `retrial cache work` as experiments do them: each run in a cache and an instance of its own.

use super::lab::Lab;
use super::machine::HERE;
use super::quantities::{Found, How, Quantity, Row};
use crate::calibration;
use crate::instances::{cache_error, create_error};
use crate::output::Table;
use crate::recording::{Period, Snapshot};
use crate::signals;
use crate::work::crew::{self, Outcome, Plan};
use crate::work::{Name, prepare, report};
use miette::{Report, miette};
use retrial::views::{Counter, Key as Place};
use retrial::{Capacity, Instance, P, wait};
use retrial_bench::cell::Stopped;
use retrial_bench::outcome::Kind;
use retrial_cache::{Cache, Key, Namespace, Shape};
use retrial_model::Profile;
use std::time::Duration;

const CACHE: &str = "objects";
/// Bytes for objects: room for all objects of a load with all their copies.
const BYTES: u64 = 1 << 20;
/// Bytes of the arena beside the cache: the tables of `tpcc`, the cells of an engine.
const TABLES: u64 = 4 << 20;
/// Sessions of this process beside those of the load.
const OWN: u32 = 8;

/// A run of a load.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub load: Name,
    pub scheme: &'static str,
    pub sessions: u32,
    pub kind: Kind,
    pub time: Duration,
    /// Busy work of an execution, and between two of them.
    pub run: Duration,
    pub think: Duration,
    /// Executions after which a session changes the object.
    pub change_after: Option<u64>,
    /// Copies of each procedure and of each cursor; with 1 they are not marked.
    pub procedures: u8,
    pub cursors: u8,
    /// Whether readers are counted in the objects' mutexes.
    pub is_counted: bool,
}

impl Job {
    /// Threads that do nothing else, for half a second; no object is marked.
    pub const fn new(load: Name, scheme: &'static str, sessions: u32) -> Self {
        Self {
            load,
            scheme,
            sessions,
            kind: Kind::Threads,
            time: Duration::from_millis(500),
            run: Duration::ZERO,
            think: Duration::ZERO,
            change_after: None,
            procedures: 1,
            cursors: 1,
            is_counted: false,
        }
    }

    fn plan(&self) -> Plan {
        let Self { load, sessions, kind, time, run, think, change_after, .. } = *self;
        let (name, counts) = (load.text(), load.uses().1);
        Plan { name, sessions, kind, time, run, think, change_after, kills: 0, counts, shows: false }
    }

    /// Copies that an object is to have.
    fn copies(&self, key: &Key<'_>) -> u8 {
        if key.namespace() == Namespace::Procedure { self.procedures } else { self.cursors }
    }

    fn instance(&self) -> Result<Instance, Report> {
        let (shape, sessions) = (Shape::of(BYTES), self.sessions + OWN);
        let capacity = Capacity { sessions, arena: shape.arena(sessions) + TABLES, ..Capacity::default() };
        let instance = Instance::anonymous(capacity).map_err(create_error)?;
        calibration::apply(&instance);
        let scheme = wait::named(self.scheme);
        let scheme = scheme.ok_or_else(|| miette!(code = "retrial::experiment::scheme", "{}", self.scheme))?;
        instance.set(P::Scheme, None, scheme as u64);
        Ok(instance)
    }

    fn done(&self) -> Result<Ran, Report> {
        let instance = self.instance()?;
        let cache = Cache::create(&instance, CACHE, Shape::of(BYTES)).map_err(cache_error)?;
        cache.set_counted(self.is_counted);
        let load = self.load.load(&instance, CACHE)?;
        let objects = load.objects();
        let marked = objects.iter().map(|key| (key, self.copies(key))).filter(|(_, copies)| *copies > 1);
        prepare(&instance, CACHE, &objects, &marked.collect::<Vec<_>>())?;
        let before = Snapshot::of(instance.tables());
        let outcome = crew::run(&self.plan(), &*load, &instance)?;
        let after = Snapshot::of(instance.tables());
        Ok(Ran { sessions: self.sessions, outcome, seen: [before, after] })
    }
}

/// What came of it.
pub struct Ran {
    sessions: u32,
    pub outcome: Outcome,
    seen: [Snapshot; 2],
}

impl Ran {
    pub const fn elapsed_s(&self) -> f64 {
        self.outcome.elapsed.as_secs_f64()
    }

    /// Until the sessions were told to end.
    pub fn executions_per_s(&self) -> f64 {
        let (elapsed, executed) = self.outcome.told;
        executed as f64 / elapsed.as_secs_f64()
    }

    /// Processors that the sessions had.
    pub fn cpus(&self) -> f64 {
        self.outcome.cpu.as_secs_f64() / self.elapsed_s()
    }

    fn period(&self) -> Period<'_> {
        let [before, after] = &self.seen;
        Period::between(before, after)
    }

    /// Gets of all mutexes.
    pub fn gets(&self) -> Option<f64> {
        self.period().total().gets.map(|gets| gets as f64)
    }

    /// The sum over the events and locations that are meant.
    fn sum(&self, is_meant: impl Fn(&str, &str) -> bool, of: impl Fn(&Profile) -> f64) -> f64 {
        let period = self.period();
        let is_it = |_, key: Place| is_meant(&period.to.event_name(key), period.to.place(key.location)).then_some(());
        period.of(is_it).values().fold(0.0, |sum, profile| sum + of(profile))
    }

    /// What was counted of them per second.
    pub fn per_s(&self, counter: Counter, is_meant: impl Fn(&str, &str) -> bool) -> f64 {
        self.sum(is_meant, |profile| profile.count(counter)) / self.elapsed_s()
    }

    /// The share of the sessions' time that they waited there.
    pub fn waiting(&self, is_meant: impl Fn(&str, &str) -> bool) -> f64 {
        self.sum(is_meant, Profile::registered_s) / self.sessions_s()
    }

    /// Time of all sessions.
    fn sessions_s(&self) -> f64 {
        self.elapsed_s() * f64::from(self.sessions)
    }

    /// Waits by event and location, as `retrial cache work` shows them.
    pub fn waits(&self) -> Table {
        report::waits(self.period(), self.sessions_s())
    }
}

/// A figure of a run.
pub type Figure = (Quantity, fn(&Ran) -> Option<f64>);

/// The figures of several runs together, as measured here.
pub fn row(load: &'static str, line: &'static str, x: f64, runs: &[Ran], figures: &[Figure]) -> Row {
    let found = |(quantity, of): &Figure| {
        let values: Vec<f64> = runs.iter().filter_map(of).filter(|value| value.is_finite()).collect();
        Some((*quantity, Found::of(&values)?))
    };
    Row { load, line, x, how: How::Measured, machine: HERE, values: figures.iter().filter_map(found).collect() }
}

impl Lab {
    /// Does a job. Nothing where its sessions got stuck, which is counted under `errors` as wrong data are, or
    /// where the system has no room for so many.
    ///
    /// # Errors
    ///
    /// Interrupted, or what kept a session from going on.
    pub fn do_job(&mut self, job: &Job) -> Result<Option<Ran>, Stopped> {
        let done = job.done();
        if signals::received().is_some() {
            return Err(Stopped::Interrupted);
        }
        let what = format!("{}, {} sessions, {}", job.load.text(), job.sessions, job.scheme);
        match done {
            Ok(ran) => {
                let wrong = &ran.outcome.wrong;
                self.errors += wrong.len() as u64 + u64::from(ran.outcome.failed);
                self.say(|| wrong.iter().for_each(|wrong| eprintln!("ERROR: {what}: {wrong}")));
                Ok((!ran.outcome.failed).then_some(ran))
            }
            Err(report) => {
                let code = report.code().map(|code| code.to_string()).unwrap_or_default();
                if !matches!(code.as_str(), "retrial::cache::stuck" | "retrial::cache::limit") {
                    return Err(Stopped::Failed(report));
                }
                self.errors += u64::from(code.ends_with("stuck"));
                self.say(|| eprintln!("{what}: {report}"));
                Ok(None)
            }
        }
    }

    /// Does jobs in rounds that interleave, each for about its share of the experiment's time. The runs of
    /// each job, in the order of the jobs.
    ///
    /// # Errors
    ///
    /// As [`Lab::do_job`].
    pub fn do_jobs(&mut self, share: f64, jobs: &[(String, Job)]) -> Result<Vec<Vec<Ran>>, Stopped> {
        let rounds = self.rounds();
        let mut runs: Vec<Vec<Ran>> = jobs.iter().map(|_| Vec::new()).collect();
        let each = share / f64::from(rounds) / jobs.len().max(1) as f64;
        for round in 1..=rounds {
            for ((name, job), runs) in jobs.iter().zip(&mut runs) {
                self.show(each, format!("measured, round {round}/{rounds}: {name}"));
                let time = Duration::from_secs_f64(self.time(job.time.as_secs_f64()));
                runs.extend(self.do_job(&Job { time, ..*job })?);
            }
        }
        Ok(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(job: &Job) -> Ran {
        job.done().unwrap()
    }

    #[test]
    fn a_run_says_what_it_did_and_where_it_waited() {
        let time = Duration::from_millis(200);
        let ran = ran(&Job { time, ..Job::new(Name::LibraryCache, "yield", 4) });
        assert!(ran.outcome.executed > 0 && ran.cpus() > 0.0 && ran.executions_per_s() > 0.0);
        let all = ran.per_s(Counter::Misses, |_, _| true);
        let calls = ran.per_s(Counter::Misses, |event, at| event == "library cache: mutex X" && at.starts_with("kglp"));
        let nowhere = ran.per_s(Counter::Misses, |_, at| at == "nowhere");
        assert!(calls <= all && nowhere.abs() < 1e-9, "{calls} of {all}, {nowhere}");
        assert!((0.0..=1.0).contains(&ran.waiting(|_, _| true)), "{}", ran.waiting(|_, _| true));
    }

    #[test]
    fn gets_of_an_engine_are_counted() {
        let time = Duration::from_millis(100);
        let ran = ran(&Job { time, ..Job::new(Name::CriticalSection, "orbit", 2) });
        // One for each execution, and those of the reset and the check.
        let more = ran.gets().unwrap() - ran.outcome.executed as f64;
        assert!(ran.outcome.executed > 0 && (0.0..=2.0).contains(&more), "{more}");
    }

    #[test]
    fn marked_objects_have_copies_and_others_have_none() {
        let shape = Shape::of(BYTES);
        for (procedures, expected) in [(1, 0), (4, 1)] {
            let job = Job { procedures, ..Job::new(Name::LibraryCache, "orbit", 1) };
            let instance = job.instance().unwrap();
            let cache = Cache::create(&instance, CACHE, shape).unwrap();
            let objects = job.load.load(&instance, CACHE).unwrap().objects();
            let hot: Vec<_> = objects.iter().map(|key| (key, job.copies(key))).filter(|hot| hot.1 > 1).collect();
            prepare(&instance, CACHE, &objects, &hot).unwrap();
            let session = instance.session("test", retrial::Class::Normal).unwrap();
            let found = cache.objects(&session).unwrap();
            assert_eq!(found.iter().filter(|object| object.copies == 4).count(), expected, "{found:?}");
        }
    }
}
