//! One cell: the parent's side. Makes an instance, forks the sessions, starts and stops them, and adds up.

use super::board::{Board, Missing};
use super::figures::{Kind, Measured, Outcome, jain};
use super::limits;
use super::load::{Distribution, Think, Times};
use super::process::Crew;
use super::work::Work;
use super::worker::{Task, time_every};
use crate::instances::create_error;
use crate::signals;
use miette::{Report, miette};
use retrial::{Capacity, Counter, Instance, Mode, P, sys};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Processes that may be on their way to a session at a time.
const THRONG: u32 = 64;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// Position in [`retrial::wait::NAMES`].
    pub scheme: usize,
    pub sessions: u32,
    pub kind: Kind,
    pub cs: Duration,
    pub think: Duration,
}

/// What is the same in all cells.
#[derive(Clone, Debug)]
pub struct Conditions {
    pub mode: Mode,
    /// Gets in X instead, out of 10,000.
    pub writes: u64,
    pub distribution: Distribution,
    pub duration: Duration,
    pub settings: Vec<(P, String)>,
    /// How long nothing may happen that should.
    pub stuck_after: Option<Duration>,
    pub work: Work,
}

/// Why a cell gave no row.
#[derive(Debug)]
pub enum Stopped {
    /// Ctrl-C.
    Interrupted,
    /// No cell like this can be measured here.
    Failed(Report),
}

impl From<Report> for Stopped {
    fn from(report: Report) -> Self {
        Self::Failed(report)
    }
}

impl Cell {
    /// Measures it. `tick` is called now and then with the time since the start.
    pub fn measure(&self, conditions: &Conditions, tick: &dyn Fn(Duration)) -> Result<Outcome, Stopped> {
        let board = Board::new(self.sessions).map_err(|e| no_memory(&e))?;
        let instance = self.instance(conditions)?;
        let mutex_type = instance.register_type("bench").map_err(|e| internal(&e))?;
        board.guarded().mutex.register(&instance, mutex_type, "bench").map_err(|e| internal(&e))?;
        let task = Task {
            instance: &instance,
            board: &board,
            mode: conditions.mode,
            writes: conditions.writes,
            section: Times::new(conditions.work.rounds(self.cs), conditions.distribution),
            think: Think::new(self.think, conditions.distribution, conditions.work),
            time_every: time_every(self.cs),
        };
        let mut crew = Crew::default();
        if !self.gather(&task, &mut crew, conditions)? {
            return Ok(self.stuck(board.ready(), "came to the start"));
        }
        // Time to wake everybody, so that they begin together.
        let delay = Duration::from_millis(1) + Duration::from_micros(10) * self.sessions;
        let (cpu_before, end) = (crew.cpu(), board.start(delay, conditions.duration));
        while let Some(left) = end.left() {
            tick(conditions.duration.saturating_sub(left));
            sys::sleep(left.min(Duration::from_millis(100)));
            if signals::received().is_some() {
                return Err(Stopped::Interrupted);
            }
        }
        board.stop();
        let cpu = crew.cpu().saturating_sub(cpu_before);
        // Beside many that compute, we may come late: the time is that of our look, not that of the stop.
        let cpu_s_per_s = cpu.as_secs_f64() / (conditions.duration + late(end)).as_secs_f64();
        if !self.wait(conditions, (&board, &mut crew), || board.finished(), self.sessions)? {
            return Ok(self.stuck(board.finished(), "came to the end"));
        }
        Ok(self.add_up(&board, &instance, cpu_s_per_s))
    }

    fn instance(&self, conditions: &Conditions) -> Result<Instance, Report> {
        let capacity = Capacity { sessions: self.sessions + 2, mutexes: 8, locations: 16, rows: 8, arena: 0 };
        let instance = Instance::anonymous(capacity).map_err(create_error)?;
        instance.set(P::Scheme, None, self.scheme as u64);
        for (p, text) in &conditions.settings {
            let value = p.parse(text, self.scheme).map_err(|e| crate::instances::param_error(&e))?;
            instance.set(*p, None, value);
        }
        Ok(instance)
    }

    /// Forks the sessions and waits until they are ready. Whether they are.
    fn gather(&self, task: &Task<'_>, crew: &mut Crew, conditions: &Conditions) -> Result<bool, Stopped> {
        let board = task.board;
        let mut on_the_way = true;
        if self.kind == Kind::Threads {
            if limits::threads().is_some_and(|limit| u64::from(self.sessions) > limit) {
                return Err(self.no_more(0, &std::io::Error::from_raw_os_error(libc::ENOMEM)).into());
            }
            crew.fork(|| task.threads(self.sessions)).map_err(|e| self.no_more(0, &e))?;
        } else {
            for index in 0..self.sessions {
                if !self.wait(conditions, (board, crew), || board.ready(), index.saturating_sub(THRONG))? {
                    on_the_way = false;
                    break;
                }
                crew.fork(|| task.session(index)).map_err(|e| self.no_more(index, &e))?;
            }
        }
        let gathered = on_the_way && self.wait(conditions, (board, crew), || board.ready(), self.sessions)?;
        match board.missing() {
            Some(Missing::Thread(threads, errno)) => {
                Err(self.no_more(threads, &std::io::Error::from_raw_os_error(errno)).into())
            }
            Some(Missing::Session) => Err(no_memory(&std::io::Error::from_raw_os_error(libc::ENOMEM)).into()),
            None => Ok(gathered),
        }
    }

    /// Waits until a count has come to `target`. Whether it has: not when it stands still, or cannot rise any more.
    fn wait(
        &self,
        conditions: &Conditions,
        (board, crew): (&Board, &mut Crew),
        count: impl Fn() -> u32,
        target: u32,
    ) -> Result<bool, Stopped> {
        let patience = conditions.stuck_after.unwrap_or(Duration::from_secs(20) + 20 * (self.cs + self.think));
        let (mut last, mut limit) = (count(), sys::Deadline::after(patience));
        let mut rounds = 0u32;
        loop {
            let now = count();
            if now >= target {
                return Ok(true);
            }
            if signals::received().is_some() {
                return Err(Stopped::Interrupted);
            }
            if board.missing().is_some() {
                return Ok(false);
            }
            if now != last {
                (last, limit) = (now, sys::Deadline::after(patience));
            }
            rounds += 1;
            // All ended, and looked at once more: they count before they end.
            let deserted = rounds.is_multiple_of(64) && { crew.reap() > 0 || crew.len() == 0 } && count() < target;
            if deserted || limit.left().is_none() {
                return Ok(false);
            }
            sys::sleep(Duration::from_micros(u64::from(rounds.min(1000))));
        }
    }

    fn add_up(&self, board: &Board, instance: &Instance, cpu_s_per_s: f64) -> Outcome {
        let results = board.results();
        let sum = |of: fn(&super::board::Result) -> &std::sync::atomic::AtomicU64| -> u64 {
            results.iter().map(|result| of(result).load(Ordering::Relaxed)).sum()
        };
        let ops: Vec<u64> = results.iter().map(|result| result.ops.load(Ordering::Relaxed)).collect();
        let (violations, failures) = (sum(|r| &r.violations), sum(|r| &r.failures));
        let lost = board.guarded().lost(sum(|r| &r.alone));
        let mut complaints = Vec::new();
        let name = self.name();
        if violations > 0 {
            complaints
                .push(format!("MUTUAL EXCLUSION BROKEN: {violations} sections of {name} had somebody else inside"));
        }
        if lost > 0 {
            complaints
                .push(format!("MUTUAL EXCLUSION BROKEN: {lost} sections of {name} were lost from the protected count"));
        }
        if failures > 0 {
            complaints.push(format!("{failures} gets of {name} failed"));
        }
        let interval_s = board.interval_s().max(1e-9);
        // Not every get is timed, but the library times every wait that is worth it.
        let longest = instance.figures().iter().map(|(_, _, figures)| figures.get(Counter::MaxNs)).max().unwrap_or(0);
        let us = |share: f64| board.waits().quantile(share).unwrap_or(0) as f64 / 1e3;
        let measured = Measured {
            ops_per_s: ops.iter().sum::<u64>() as f64 / interval_s,
            cpu_s_per_s,
            jain: jain(&ops),
            wait_p50_us: us(0.5),
            wait_p99_us: us(0.99),
            wait_p999_us: us(0.999),
            wait_max_us: board.waits().max_ns().max(longest) as f64 / 1e3,
        };
        Outcome { measured: Some(measured), errors: violations + lost + failures, complaints }
    }

    fn stuck(&self, arrived: u32, what: &str) -> Outcome {
        let missing = self.sessions.saturating_sub(arrived);
        let complaint =
            format!("{}: only {arrived} of {} sessions {what}; they were killed", self.name(), self.sessions);
        Outcome { measured: None, errors: u64::from(missing.max(1)), complaints: vec![complaint] }
    }

    fn name(&self) -> String {
        format!("{} with {} {}", retrial::wait::NAMES[self.scheme], self.sessions, self.kind.name())
    }

    fn no_more(&self, made: u32, error: &std::io::Error) -> Report {
        miette!(
            code = "retrial::bench::limit",
            help = format!("limits here: {}", limits::line()),
            "the system made {made} of {} {}: {error}",
            self.sessions,
            self.kind.name()
        )
    }
}

/// Time since a deadline.
fn late(deadline: sys::Deadline) -> Duration {
    Duration::from_nanos(sys::now_ns().saturating_sub(deadline.at_ns))
}

fn no_memory(error: &std::io::Error) -> Report {
    miette!(code = "retrial::bench::memory", help = "fewer --sessions", "no shared memory for the sessions: {error}")
}

fn internal(error: &dyn std::error::Error) -> Report {
    miette!(code = "retrial::bench::instance", "{error}")
}
