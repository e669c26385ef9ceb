//! The sessions of a run: forked, started together, killed where that is asked for, ended, added up.

use super::{Done, Load};
use crate::instances::session_error;
use crate::signals;
use indicatif::{ProgressBar, ProgressStyle};
use miette::{Report, miette};
use retrial::{Class, Instance, Session, SessionError, sys};
use retrial_bench::limits::{self, THRONG};
use retrial_bench::load::Random;
use retrial_bench::outcome::Kind;
use retrial_bench::process::{Crew, Shared, Zeroed, children_cpu};
use retrial_bench::work::{Work, spin};
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

/// How long the next session may take to come to the start or, told to end, to the end.
const PATIENCE: Duration = Duration::from_mins(1);
/// Runs that take longer show their progress.
const SHORT: Duration = Duration::from_secs(2);

/// Counts that a load can have.
const COUNTS: usize = 9;

/// Values of `Gate::state`.
const GATHERS: u32 = 0;
const GOES: u32 = 1;
const ENDS: u32 = 2;

/// What a run is to be.
pub struct Plan {
    pub name: String,
    pub sessions: u32,
    pub kind: Kind,
    pub time: Duration,
    /// Busy work of an execution.
    pub run: Duration,
    /// Busy work between two executions.
    pub think: Duration,
    /// Executions after which a session changes the object of its load; `None`: it never does.
    pub change_after: Option<u64>,
    /// Processes to be killed.
    pub kills: u32,
    /// What its sessions count beside executions, by position.
    pub counts: &'static [&'static str],
    /// Whether a run that takes long shows its progress.
    pub shows: bool,
}

/// What came of a run.
pub struct Outcome {
    pub elapsed: Duration,
    pub executed: u64,
    /// The same up to the moment when the sessions were told to end: it takes a thousand processes longer than a short
    /// run to do so.
    pub told: (Duration, u64),
    /// Processor time of all sessions.
    pub cpu: Duration,
    pub killed: u32,
    /// What the load counted, by its names.
    pub counts: Vec<(&'static str, u64)>,
    /// What is wrong in the data that the sessions left.
    pub wrong: Vec<String>,
    /// Whether a session could not go on: it has said why.
    pub failed: bool,
}

/// What parent and sessions tell each other.
#[repr(C, align(64))]
struct Gate {
    /// Futex.
    state: AtomicU32,
    ready: AtomicU32,
    finished: AtomicU32,
    failed: AtomicU32,
    /// When the last session ended by itself, by the monotonic clock, in ns.
    finished_ns: AtomicU64,
}

/// What a session has done: it alone, or another one in its place after its death, writes it.
#[repr(C, align(64))]
struct Tally {
    executed: AtomicU64,
    counts: [AtomicU64; COUNTS],
}

// SAFETY: atomics.
unsafe impl Zeroed for Gate {}
// SAFETY: atomics.
unsafe impl Zeroed for Tally {}

/// A session at work.
pub struct Seat<'a> {
    pub session: Session<'a>,
    /// Which of the run's sessions, from 0.
    pub index: u32,
    gate: &'a Gate,
    tally: &'a Tally,
    /// Of [`spin`], for an execution and between two of them.
    rounds: [u64; 2],
    change_after: Option<u64>,
}

impl Seat<'_> {
    /// Whether it is to execute once more.
    pub fn goes_on(&self) -> bool {
        self.gate.state.load(Relaxed) == GOES
    }

    /// Counts an execution.
    pub fn executed(&self) {
        bump(&self.tally.executed);
    }

    /// Counts something else, by its position in [`Plan::counts`].
    pub fn count(&self, position: usize) {
        bump(&self.tally.counts[position]);
    }

    /// The busy work of an execution.
    pub fn run(&self) {
        spin(self.rounds[0]);
    }

    /// The busy work between two executions.
    pub fn think(&self) {
        spin(self.rounds[1]);
    }

    /// Whether the load's object is to be changed after this execution.
    pub fn is_to_change(&self) -> bool {
        self.change_after.is_some_and(|after| self.tally.executed.load(Relaxed).is_multiple_of(after))
    }
}

/// Adds one to what no other thread writes.
fn bump(cell: &AtomicU64) {
    cell.store(cell.load(Relaxed) + 1, Relaxed);
}

/// A run under way, as its parent and its sessions see it.
struct Run<'a> {
    plan: &'a Plan,
    load: &'a dyn Load,
    instance: &'a Instance,
    gate: Shared<Gate>,
    tallies: Shared<Tally>,
    rounds: [u64; 2],
}

/// Has the sessions work for the time of the plan. This process has one thread.
pub fn run(plan: &Plan, load: &dyn Load, instance: &Instance) -> Result<Outcome, Report> {
    let memory = |error: io::Error| miette!(code = "retrial::cache::memory", "no memory for the sessions: {error}");
    let work = Work::calibrate();
    let run = Run {
        plan,
        load,
        instance,
        gate: Shared::zeroed(1).map_err(memory)?,
        // The last one is that of the check.
        tallies: Shared::zeroed(plan.sessions as usize + 1).map_err(memory)?,
        rounds: [plan.run, plan.think].map(|time| work.rounds(time)),
    };
    let mut crew = Crew::default();
    run.gather(&mut crew)?;
    let before = children_cpu() + crew.cpu();
    // To wake a thousand sessions takes time, in which the first of them work.
    let (start, start_ns) = (Instant::now(), sys::now_ns());
    run.now(GOES);
    let killed = run.watch(&mut crew, start)?;
    // Such a load took until its last session had done its part, not until this process saw that.
    let is_through = run.gate().finished.load(Acquire) >= plan.sessions;
    let sum = |cell: &dyn Fn(&Tally) -> &AtomicU64| run.tallies.iter().map(|tally| cell(tally).load(Relaxed)).sum();
    let told = (start.elapsed(), sum(&|tally| &tally.executed));
    run.now(ENDS);
    let mut died = 0;
    let ended = until(&mut || {
        died += crew.reap();
        crew.len()
    });
    // What sessions do when the time is over, the last wait of each above all, is counted: so is the time for it.
    let (mut elapsed, cpu) = (start.elapsed(), children_cpu().saturating_sub(before));
    let gate = run.gate();
    if is_through {
        elapsed = Duration::from_nanos(gate.finished_ns.load(Acquire).saturating_sub(start_ns));
    }
    if !ended {
        let help = "retrial who; retrial report";
        return Err(miette!(
            code = "retrial::cache::stuck",
            help = help,
            "{} processes have not come to the end, none within {PATIENCE:?}",
            crew.len()
        ));
    }
    let executed = sum(&|tally| &tally.executed);
    let wrong = run.check(Done { executed, killed })?;
    let counts = plan.counts.iter().enumerate();
    let counts = counts.map(|(position, name)| (*name, sum(&|tally| &tally.counts[position]))).collect();
    let failed = gate.failed.load(Acquire) != 0 || died > 0;
    Ok(Outcome { elapsed, executed, told, cpu, killed, counts, wrong, failed })
}

impl Run<'_> {
    fn gate(&self) -> &Gate {
        &self.gate[0]
    }

    /// Tells the sessions.
    fn now(&self, state: u32) {
        let gate = self.gate();
        gate.state.store(state, Release);
        sys::futex_wake(&raw const gate.state, u32::MAX >> 1, false);
    }

    /// Forks the sessions and waits until all are ready.
    fn gather(&self, crew: &mut Crew) -> Result<(), Report> {
        let &Plan { sessions, kind, .. } = self.plan;
        limits::room(kind, sessions).map_err(|error| no_more(self.plan, 0, &error))?;
        match kind {
            Kind::Threads => crew.fork(|| self.threads()).map_err(|error| no_more(self.plan, 0, &error))?,
            Kind::Processes => {
                for index in 0..sessions {
                    self.wait_for(index.saturating_sub(THRONG))?;
                    crew.fork(|| self.session(index)).map_err(|error| no_more(self.plan, index, &error))?;
                }
            }
        }
        self.wait_for(sessions)
    }

    /// Waits until so many sessions are ready.
    fn wait_for(&self, sessions: u32) -> Result<(), Report> {
        let gate = self.gate();
        let failed = || gate.failed.load(Acquire) != 0;
        let is_tired = || signals::received().is_some();
        let left = || sessions.saturating_sub(gate.ready.load(Acquire)) as usize;
        let came = until(&mut || if failed() || is_tired() { 0 } else { left() });
        if came && !failed() && !is_tired() {
            return Ok(());
        }
        let ready = gate.ready.load(Acquire);
        Err(miette!(
            code = "retrial::cache::start",
            help = "retrial ps; retrial list",
            "{ready} of {} sessions came to the start",
            self.plan.sessions
        ))
    }

    /// All sessions, as threads of the calling process.
    fn threads(&self) {
        std::thread::scope(|scope| {
            for index in 0..self.plan.sessions {
                let thread = std::thread::Builder::new().stack_size(256 << 10);
                if let Err(error) = thread.spawn_scoped(scope, move || self.session(index)) {
                    self.fail(&no_more(self.plan, index, &error));
                    return;
                }
            }
        });
    }

    /// One session, in the calling thread.
    fn session(&self, index: u32) {
        // In each process: a kernel need not hand it on to a child.
        let _ = sys::register_for_barriers();
        let session = loop {
            match self.instance.session("cache work", Class::Normal) {
                Ok(session) => break session,
                Err(SessionError::Stuck) => {}
                Err(error) => return self.fail(&session_error(error)),
            }
        };
        session.set_action(&self.plan.name);
        let gate = self.gate();
        gate.ready.fetch_add(1, AcqRel);
        while gate.state.load(Acquire) == GATHERS {
            sys::futex_wait(&gate.state, GATHERS, None, false);
        }
        if let Err(error) = self.load.work(&self.seat(session, index)) {
            self.fail(&error);
        }
        gate.finished_ns.fetch_max(sys::now_ns(), AcqRel);
        gate.finished.fetch_add(1, AcqRel);
    }

    fn seat<'s>(&'s self, session: Session<'s>, index: u32) -> Seat<'s> {
        let (tally, change_after) = (&self.tallies[index as usize], self.plan.change_after);
        Seat { session, index, gate: self.gate(), tally, rounds: self.rounds, change_after }
    }

    /// Has the load look for what is wrong, after all sessions have ended.
    fn check(&self, done: Done) -> Result<Vec<String>, Report> {
        self.instance.recover_all();
        let session = self.instance.session("retrial cache", Class::Normal).map_err(session_error)?;
        self.load.check(&self.seat(session, self.plan.sessions), done)
    }

    /// Ends the run: a session cannot go on.
    fn fail(&self, error: &Report) {
        eprintln!("{error:?}");
        self.gate().failed.store(1, Release);
        self.now(ENDS);
    }

    /// Waits until the time is over or all sessions have ended, and kills some meanwhile: how many.
    fn watch(&self, crew: &mut Crew, start: Instant) -> Result<u32, Report> {
        let &Plan { sessions, time, kills, shows, .. } = self.plan;
        let bar = if shows && time > SHORT { ProgressBar::new(millis(time)) } else { ProgressBar::hidden() };
        // Drawn to stderr, and only when that is a terminal. No thread of its own: this process forks.
        let style = ProgressStyle::with_template("{bar:30} {msg}  {eta} left").unwrap_or(ProgressStyle::default_bar());
        bar.set_style(style);
        bar.set_message(format!("{}: {sessions} {}", self.plan.name, self.plan.kind.name()));
        let mut random = Random::new(sys::now_ns());
        let mut at: Vec<Duration> =
            (0..kills).map(|_| time.mul_f64(0.9 * random.below(1 << 20) as f64 / f64::from(1 << 20))).collect();
        at.sort_unstable();
        let (mut indices, mut killed) = ((0..sessions).collect::<Vec<_>>(), 0);
        let gate = self.gate();
        let goes_on = || {
            let is_over = gate.failed.load(Acquire) != 0 || gate.finished.load(Acquire) >= sessions;
            start.elapsed() < time && !is_over && signals::received().is_none()
        };
        while goes_on() {
            bar.set_position(millis(start.elapsed()));
            let next = at.get(killed).copied().unwrap_or(time);
            sys::sleep(next.saturating_sub(start.elapsed()).min(Duration::from_millis(20)));
            if killed < at.len() && start.elapsed() >= next {
                let victim = random.below(crew.len() as u64) as usize;
                crew.kill(victim);
                let index = indices.swap_remove(victim);
                crew.fork(|| self.session(index)).map_err(|error| no_more(self.plan, sessions - 1, &error))?;
                indices.push(index);
                killed += 1;
            }
        }
        bar.finish_and_clear();
        Ok(killed as u32)
    }
}

/// Waits until none is left, with patience as long as they become fewer. Whether none is.
fn until(left: &mut dyn FnMut() -> usize) -> bool {
    let (mut fewest, mut since, mut pause_us) = (usize::MAX, Instant::now(), 10);
    loop {
        let now = left();
        if now == 0 {
            return true;
        }
        if now < fewest {
            (fewest, since) = (now, Instant::now());
        }
        if since.elapsed() >= PATIENCE {
            return false;
        }
        sys::sleep(Duration::from_micros(pause_us));
        pause_us = (pause_us * 2).min(1000);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn no_more(plan: &Plan, made: u32, error: &io::Error) -> Report {
    limits::refused("retrial::cache::limit", made, plan.sessions, plan.kind, error)
}

/// Has a deed done at a seat of its own: what it has counted.
#[cfg(test)]
pub fn at_a_seat(instance: &Instance, deed: impl FnOnce(&Seat<'_>)) -> Vec<u64> {
    let (gate, tallies) = (Shared::<Gate>::zeroed(1).unwrap(), Shared::<Tally>::zeroed(1).unwrap());
    let session = instance.session("test", Class::Normal).unwrap();
    deed(&Seat { session, index: 0, gate: &gate[0], tally: &tallies[0], rounds: [0; 2], change_after: None });
    tallies[0].counts.iter().map(|count| count.load(Relaxed)).collect()
}
