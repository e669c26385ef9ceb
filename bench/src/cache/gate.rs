//! Rounds of sessions that stay from round to round: threads of this process, or processes.
//!
//! A process that has just been forked has no page of the shared memory in its page table. Sessions that
//! stay have them, as those of a server have.

use miette::{IntoDiagnostic, Report, miette};
use retrial_bench::process::{Crew, Shared, Zeroed};
use std::cell::Cell;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

pub use retrial_bench::outcome::Kind;

/// What the sessions of one store and those who measure them share.
#[repr(C)]
#[derive(Default)]
pub struct Gate {
    /// Sessions that are ready for the round, and those that have ended it.
    ready: AtomicU32,
    done: AtomicU32,
    goes: AtomicU32,
    count: AtomicU64,
}

// SAFETY: atomics.
unsafe impl Zeroed for Gate {}

/// What a session is to do.
pub struct Load<'a> {
    pub names: &'a [String],
    pub bytes: usize,
    /// Percentage of accesses that replace.
    pub writers: u64,
    kind: Kind,
    number: usize,
    gate: &'a Gate,
    begin: &'a PipeReader,
    random: Cell<u64>,
}

impl Load<'_> {
    /// Gets every object, which brings the memory into the page table of this process.
    pub fn warm(&self, get: impl Fn(&str) -> bool) {
        if self.kind == Kind::Processes || self.number == 0 {
            self.names.iter().for_each(|name| assert!(get(name), "{name} is not there"));
        }
    }

    /// Accesses in a random order in each round. `get` says whether the object was there.
    pub fn run(&self, get: impl Fn(&str) -> bool, put: impl Fn(&str, u8)) {
        let mut how = [0];
        while matches!((&mut &*self.begin).read(&mut how), Ok(1)) && how == [1] {
            self.gate.ready.fetch_add(1, Release);
            while self.gate.goes.load(Acquire) == 0 {
                std::thread::yield_now();
            }
            self.gate.count.fetch_add(self.round(&get, &put), Relaxed);
            self.gate.done.fetch_add(1, Release);
        }
    }

    fn round(&self, get: impl Fn(&str) -> bool, put: impl Fn(&str, u8)) -> u64 {
        let (mut random, mut count) = (self.random.get(), 0);
        while self.gate.goes.load(Relaxed) == 1 {
            // The constants of Knuth's MMIX.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let name = &self.names[((random >> 33) as usize) % self.names.len()];
            if random >> 20 & 127 < self.writers * 128 / 100 {
                put(name, random as u8);
            } else {
                assert!(get(name), "{name} is not there");
            }
            count += 1;
        }
        self.random.set(random);
        count
    }
}

/// What all stores are measured by.
#[derive(Clone, Copy)]
pub struct Conditions<'a> {
    pub kind: Kind,
    pub sessions: usize,
    pub names: &'a [String],
    pub bytes: usize,
    /// Percentage of accesses that replace.
    pub writers: u64,
    pub rounds: usize,
    pub duration: Duration,
}

/// What a session does: it takes part in every round.
pub type Work<'a> = &'a (dyn Fn(&Load<'_>) + Sync);

/// Measures all of these in rounds that go through them, in an order that changes from round to round: ns an
/// access of each in each round, all sessions together.
pub fn measure(conditions: &Conditions<'_>, works: &[Work<'_>]) -> Result<Vec<Vec<f64>>, Report> {
    let gates = Shared::<Gate>::zeroed(works.len()).into_diagnostic()?;
    let pipes: Vec<(PipeReader, PipeWriter)> =
        works.iter().map(|_| pipe()).collect::<Result<_, _>>().into_diagnostic()?;
    let session = &|which: usize, number: usize| {
        let load = Load {
            names: conditions.names,
            bytes: conditions.bytes,
            writers: conditions.writers,
            kind: conditions.kind,
            number,
            gate: &gates[which],
            begin: &pipes[which].0,
            random: Cell::new(number as u64 * 2 + 1),
        };
        works[which](&load);
    };
    let all = || (0..works.len()).flat_map(|which| (0..conditions.sessions).map(move |number| (which, number)));
    let rounds = |is_well: &mut dyn FnMut() -> bool| {
        let mut rounds = vec![Vec::new(); works.len()];
        for round in 0..conditions.rounds {
            for i in 0..works.len() {
                let which = (i + round) % works.len();
                let ns = one_round(conditions, &gates[which], &pipes[which].1, is_well)?;
                rounds[which].push(ns);
            }
        }
        Ok(rounds)
    };
    if conditions.kind == Kind::Processes {
        let mut crew = Crew::default();
        for (which, number) in all() {
            crew.fork(|| session(which, number)).into_diagnostic()?;
        }
        // Those that are left are killed and reaped here.
        return rounds(&mut || {
            let before = crew.len();
            crew.reap();
            crew.len() == before
        });
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = all().map(|(which, number)| scope.spawn(move || session(which, number))).collect();
        let rounds = rounds(&mut || threads.iter().all(|thread| !thread.is_finished()));
        for (_, begin) in &pipes {
            (&mut &*begin).write_all(&vec![0; conditions.sessions]).into_diagnostic()?;
        }
        rounds
    })
}

fn one_round(
    conditions: &Conditions<'_>,
    gate: &Gate,
    begin: &PipeWriter,
    is_well: &mut dyn FnMut() -> bool,
) -> Result<f64, Report> {
    for at_0 in [&gate.ready, &gate.done, &gate.goes] {
        at_0.store(0, Relaxed);
    }
    gate.count.store(0, Relaxed);
    (&mut &*begin).write_all(&vec![1; conditions.sessions]).into_diagnostic()?;
    let mut until_all = |so_many: &AtomicU32| {
        while (so_many.load(Acquire) as usize) < conditions.sessions {
            if !is_well() {
                return Err(miette!("a session has ended before its time"));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    };
    until_all(&gate.ready)?;
    let start = Instant::now();
    gate.goes.store(1, Release);
    std::thread::sleep(conditions.duration);
    gate.goes.store(2, Release);
    let elapsed = start.elapsed();
    until_all(&gate.done)?;
    Ok(elapsed.as_nanos() as f64 / gate.count.load(Relaxed).max(1) as f64)
}
