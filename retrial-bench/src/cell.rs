//! One cell: the parent's side. Forks the sessions, starts and ends them, and adds up.

use crate::board::{Board, Ledger, Missing};
use crate::clock::Clock;
use crate::histogram::Total;
use crate::limits::{self, THRONG};
use crate::load::{Distribution, Start, Think, Times};
use crate::ours::no_memory;
use crate::outcome::{Kind, Outcome};
use crate::peer::Peer;
use crate::process::Crew;
use crate::signals;
use crate::work::{self, Work};
use crate::worker::Task;
use miette::Report;
use retrial::sys;
use retrial_model::Profile;
use retrial_model::profile::Waits;
use std::time::Duration;

/// What sessions there are and what they do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cell {
    pub sessions: u32,
    pub kind: Kind,
    pub cs: Duration,
    pub think: Duration,
    /// Gets alone where others are beside each other, out of 10,000.
    pub writes: u64,
    /// Processes beside them that only compute.
    pub hogs: u32,
    pub start: Start,
}

/// What is the same in all cells.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// Gets are beside each other, but for those that write.
    pub reads: bool,
    pub section: Distribution,
    pub think: Distribution,
    pub duration: Duration,
    /// Part of the duration that is counted apart; at most [`crate::board::WINDOWS`] of them.
    pub window: Duration,
    /// How long nothing may happen that should.
    pub stuck_after: Option<Duration>,
    pub ending: Ending,
    pub work: Work,
    pub clock: Clock,
}

/// What becomes of sessions that still wait after the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// They have a deadline: one that does not come is an error, and the cell has no figures.
    Proper,
    /// They have none: after this time they are killed, and counted.
    Within(Duration),
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

/// What has gone wrong in the sections of a cell so far.
struct Faults {
    violations: u64,
    failures: u64,
}

impl Faults {
    fn of(board: &Board) -> Self {
        let ledgers = board.ledgers().iter();
        Self {
            violations: ledgers.clone().map(Ledger::violations).sum(),
            failures: ledgers.map(Ledger::failures).sum(),
        }
    }
}

impl Cell {
    /// Measures a peer, which has no sessions yet. `tick` is called now and then with the time since the
    /// start.
    pub fn measure<P: Peer>(
        &self,
        name: &str,
        peer: &P,
        conditions: &Conditions,
        tick: &dyn Fn(Duration),
    ) -> Result<Outcome, Stopped> {
        let board = Board::new(self.sessions).map_err(|e| no_memory(&e))?;
        let task = Task {
            peer,
            board: &board,
            reads: conditions.reads,
            writes: self.writes,
            section: Times::new(conditions.work.rounds(self.cs), conditions.section),
            think: Think::new(self.think, conditions.think, conditions.work),
            start: self.start,
            window: conditions.clock.ticks_in(conditions.window).max(1),
        };
        let mut crew = Crew::default();
        if !self.gather(&task, &mut crew, conditions)? {
            return Ok(self.stuck(name, board.ready(), "came to the start"));
        }
        let hogs = self.hogs()?;
        // Time to wake everybody, so that they begin together.
        let delay = Duration::from_millis(1) + Duration::from_micros(20) * self.sessions;
        let (cpu_before, end) = (crew.cpu(), board.start(delay, conditions.duration, conditions.clock));
        let mut stall = Duration::ZERO;
        while let Some(left) = end.left() {
            tick(conditions.duration.saturating_sub(left));
            let wanted = sys::Deadline::after(left.min(Duration::from_millis(100)));
            while let Some(left) = wanted.left() {
                sys::sleep(left);
            }
            stall = stall.max(late(wanted));
            if signals::received().is_some() {
                return Err(Stopped::Interrupted);
            }
        }
        let cpu = crew.cpu().saturating_sub(cpu_before);
        let figures = task.peer.figures().unwrap_or_default();
        // Beside many that compute, we may come late: the time is that of our look, for those that go on
        // until they are told.
        let over = if board.finished() < self.sessions { late(end) } else { Duration::ZERO };
        let cpu_s_per_s = cpu.as_secs_f64() / (conditions.duration + over).as_secs_f64();
        drop(hogs);
        let came = self.wait(conditions, (&board, &mut crew), || board.finished(), self.sessions, conditions.ending)?;
        if !came && conditions.ending == Ending::Proper {
            return Ok(self.stuck(name, board.finished(), "came to the end"));
        }
        let waiting = self.sessions.saturating_sub(board.finished());
        // What goes wrong from here on is our doing: one is killed in its section, and another finds that.
        let faults = Faults::of(&board);
        // Their ledgers stand still then.
        drop(crew);
        let mut outcome = self.add_up(name, (peer, &board), conditions, (waiting, faults));
        if let Some(measured) = &mut outcome.measured {
            measured.figures = figures;
            measured.cpu_s = Some(cpu_s_per_s * measured.time_s);
        }
        Ok(Outcome { stall, ..outcome })
    }

    /// Processes that compute until they are dropped.
    fn hogs(&self) -> Result<Crew, Report> {
        let mut hogs = Crew::default();
        for index in 0..self.hogs {
            hogs.fork(|| {
                loop {
                    work::spin(1 << 20);
                }
            })
            .map_err(|e| self.no_more(index, &e))?;
        }
        Ok(hogs)
    }

    /// Forks the sessions and waits until they are ready. Whether they are.
    fn gather<P: Peer>(&self, task: &Task<'_, P>, crew: &mut Crew, conditions: &Conditions) -> Result<bool, Stopped> {
        let board = task.board;
        let mut on_the_way = true;
        limits::room(self.kind, self.sessions).map_err(|e| self.no_more(0, &e))?;
        if self.kind == Kind::Threads {
            crew.fork(|| task.threads(self.sessions)).map_err(|e| self.no_more(0, &e))?;
        } else {
            for index in 0..self.sessions {
                let first = index.saturating_sub(THRONG);
                if !self.wait(conditions, (board, crew), || board.ready(), first, Ending::Proper)? {
                    on_the_way = false;
                    break;
                }
                crew.fork(|| task.session(index)).map_err(|e| self.no_more(index, &e))?;
            }
        }
        let gathered =
            on_the_way && self.wait(conditions, (board, crew), || board.ready(), self.sessions, Ending::Proper)?;
        match board.missing() {
            Some(Missing::Thread(threads, errno)) => {
                Err(self.no_more(threads, &std::io::Error::from_raw_os_error(errno)).into())
            }
            Some(Missing::Session) => Err(no_memory(&std::io::Error::from_raw_os_error(libc::ENOMEM)).into()),
            None => Ok(gathered),
        }
    }

    /// Waits until a count has come to `target`. Whether it has: not when it stands still, or cannot rise any
    /// more, or not in the time there is.
    fn wait(
        &self,
        conditions: &Conditions,
        (board, crew): (&Board, &mut Crew),
        count: impl Fn() -> u32,
        target: u32,
        ending: Ending,
    ) -> Result<bool, Stopped> {
        let patience = conditions.stuck_after.unwrap_or(Duration::from_secs(20) + 20 * (self.cs + self.think));
        let (mut last, mut limit) = (count(), sys::Deadline::after(patience));
        let last_moment = match ending {
            Ending::Proper => None,
            Ending::Within(time) => Some(sys::Deadline::after(time)),
        };
        let mut rounds = 0u32;
        loop {
            let now = count();
            if now >= target {
                return Ok(true);
            }
            if signals::received().is_some() {
                return Err(Stopped::Interrupted);
            }
            if board.missing().is_some() || last_moment.is_some_and(|moment| moment.left().is_none()) {
                return Ok(false);
            }
            if now != last {
                (last, limit) = (now, sys::Deadline::after(patience));
            }
            rounds += 1;
            // All ended, and looked at once more: they count before they end.
            let deserted = rounds.is_multiple_of(64) && { crew.reap() > 0 || crew.is_empty() } && count() < target;
            if deserted || limit.left().is_none() {
                return Ok(false);
            }
            sys::sleep(Duration::from_micros(u64::from(rounds.min(1000))));
        }
    }

    fn add_up<P: Peer>(
        &self,
        name: &str,
        (peer, board): (&P, &Board),
        conditions: &Conditions,
        (waiting, Faults { violations, failures }): (u32, Faults),
    ) -> Outcome {
        let (ledgers, clock) = (board.ledgers(), conditions.clock);
        let ops: Vec<u64> = ledgers.iter().map(Ledger::ops).collect();
        // Who was killed has counted sections that it cannot tell of.
        // Each copy of the mutex by itself, with its own sessions.
        let copies = peer.copies();
        let lost_by = |copy: u32| {
            let own = ledgers.iter().skip(copy as usize).step_by(copies as usize);
            peer.protected_by(copy).lost(own.map(Ledger::alone).sum())
        };
        let lost = if waiting > 0 { 0 } else { (0..copies).map(lost_by).sum() };
        let mut waits = Total::default();
        for ledger in ledgers {
            waits.add(&ledger.waits);
            if let Some(asked) = ledger.asked() {
                waits.record(board.end_ticks().saturating_sub(asked));
            }
        }
        let who = self.name(name);
        let complaints = [
            (violations, "MUTUAL EXCLUSION BROKEN: ", format!("sections of {who} had somebody else inside")),
            (lost, "MUTUAL EXCLUSION BROKEN: ", format!("sections of {who} were lost from the protected count")),
            (failures, "", format!("gets of {who} failed")),
        ];
        let complaints = complaints.into_iter().filter(|(n, ..)| *n > 0).map(|(n, what, of)| format!("{what}{n} {of}"));
        let time = |share: f64| Some(clock.ns(waits.quantile(share)?) / 1e9);
        let waits = time(0.5).zip(time(0.99)).zip(time(0.999)).map(|((p50_s, p99_s), p999_s)| Waits {
            p50_s,
            p99_s,
            p999_s,
            max_s: clock.ns(waits.max()) / 1e9,
        });
        let measured = Profile {
            time_s: conditions.duration.as_secs_f64(),
            sessions: Some(self.sessions),
            gets: Some(ops.iter().sum()),
            gets_by_session: ops,
            waits,
            ..Profile::default()
        };
        let window_rate = |window: usize| {
            let length = conditions.window.min(conditions.duration.saturating_sub(conditions.window * window as u32));
            let granted: u64 = ledgers.iter().map(|ledger| ledger.granted(window)).sum();
            granted as f64 / length.as_secs_f64()
        };
        let windows = conditions.duration.as_nanos().div_ceil(conditions.window.as_nanos().max(1)) as usize;
        Outcome {
            measured: Some(measured),
            windows: (0..windows.min(crate::board::WINDOWS)).map(window_rate).collect(),
            waiting,
            errors: violations + lost + failures,
            complaints: complaints.collect(),
            ..Outcome::default()
        }
    }

    fn stuck(&self, name: &str, arrived: u32, what: &str) -> Outcome {
        let missing = self.sessions.saturating_sub(arrived);
        let complaint =
            format!("{}: only {arrived} of {} sessions {what}; they were killed", self.name(name), self.sessions);
        Outcome { errors: u64::from(missing.max(1)), complaints: vec![complaint], ..Outcome::default() }
    }

    fn name(&self, peer: &str) -> String {
        format!("{peer} with {} {}", self.sessions, self.kind.name())
    }

    fn no_more(&self, made: u32, error: &std::io::Error) -> Report {
        limits::refused("retrial::bench::limit", made, self.sessions, self.kind, error)
    }
}

/// Time since a deadline.
fn late(deadline: sys::Deadline) -> Duration {
    Duration::from_nanos(sys::now_ns().saturating_sub(deadline.at_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Protected;
    use crate::peer::Miss;
    use crate::process::Shared;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// The first session keeps it for ever, the last one fails once the first has been killed.
    struct Kept {
        first: Shared<AtomicU32>,
        protected: Shared<Protected>,
        last: u32,
    }

    impl Peer for Kept {
        type Session<'a> = u32;

        fn session(&self, index: u32) -> Option<u32> {
            Some(index)
        }

        fn protected(&self) -> &Protected {
            &self.protected[0]
        }

        fn with(&self, session: &u32, _: bool, _: sys::Deadline, _: impl FnOnce()) -> Result<(), Miss> {
            if *session == 0 {
                self.first[0].store(std::process::id(), Ordering::Relaxed);
            }
            if *session != self.last {
                sys::sleep(Duration::from_mins(1));
            }
            while !self.first_is_dead() {}
            Err(Miss::Failed)
        }
    }

    impl Kept {
        fn first_is_dead(&self) -> bool {
            let path = format!("/proc/{}/stat", self.first[0].load(Ordering::Relaxed));
            std::fs::read_to_string(path).is_ok_and(|stat| stat.contains(") Z"))
        }
    }

    /// Hundreds between the two give the last one time to see the death of the first before its own.
    #[test]
    fn what_fails_because_others_were_killed_at_the_end_is_no_error() {
        let sessions = 400;
        let peer = Kept {
            first: Shared::of(AtomicU32::new(0)).unwrap(),
            protected: Shared::of(Protected::default()).unwrap(),
            last: sessions - 1,
        };
        let duration = Duration::from_millis(100);
        let cell = Cell {
            sessions,
            kind: Kind::Processes,
            cs: Duration::ZERO,
            think: Duration::ZERO,
            writes: 0,
            hogs: 0,
            start: Start::Together,
        };
        let conditions = Conditions {
            reads: false,
            section: Distribution::Fixed,
            think: Distribution::Fixed,
            duration,
            window: duration,
            stuck_after: None,
            ending: Ending::Within(Duration::ZERO),
            work: Work::calibrate(),
            clock: Clock::calibrate(),
        };
        let outcome = cell.measure("kept", &peer, &conditions, &|_| {}).map_err(|_| "stopped").unwrap();
        assert_eq!((outcome.errors, outcome.complaints), (0, vec![]));
        assert!(outcome.waiting > 0);
    }
}
