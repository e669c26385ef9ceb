//! 003: copies of a hot object, how many are best, and what they cost where the object changes.

use super::claims::{At, Check, Claim, of};
use super::lab::Lab;
use super::load::{Load, Setup, Think, Vary, line};
use super::machine::SOCKETS;
use super::quantities::{Found, Quantity as Q};
use super::worked::{Figure, Job, Ran, row};
use super::{Experiment, Findings, Run, Sweep};
use crate::chart::Scale;
use crate::output::{Table, column};
use crate::work::Name;
use retrial::views::Counter;
use retrial_bench::cell::Stopped;
use retrial_model::sim::Spread;
use retrial_model::{Measure, tuning};
use std::time::Duration;

pub const COPIES: Experiment = Experiment {
    name: "hot-copies",
    source: "003",
    shows: "copies of a hot object: before, after, and too many",
    text: "On the level of the mutex: sections of 1 us, exponential, and 3 of that for each processor between them as busy work: the processors are full, as the source's, and the mutex is held for a \
third of the time, on several sockets for more. 256 sessions on 192 processors, 8 here, scheme 2. The source's waits on `library cache: mutex X` fell from 1,443,752 to \
23,288 when the procedures were marked hot, and throughput rose; with at most four \
copies it was best (see marked for its three runs). Of the 8 sessions here a measured one uses the copy that its number gives, a simulated one any copy at each get; the 256 take \
the copy of their processor, its number modulo the number of copies, as sessions of our cache do. \
In the cache itself (`retrial cache work library-cache`, no work in a call nor between calls, 8 threads) an object has no more copies in use than there are processors: two here, however many are \
marked, so that more can neither win nor lose. What copies cost shows where the object changes: each session changes the procedure after every ten calls, and \
the copies are made again. On the level of the mutex they cost nothing.",
    x: "copies",
    x_scale: Scale::Binary,
    quantities: &[
        Q::Throughput,
        Q::WaitsPerS,
        Q::K,
        Q::Cpus,
        Q::Executions,
        Q::LibraryMisses,
        Q::LibraryWaits,
        Q::CreationMisses,
    ],
    charts: &[
        (Q::Throughput, Scale::Linear),
        (Q::WaitsPerS, Scale::Decimal),
        (Q::Executions, Scale::Linear),
        (Q::LibraryMisses, Scale::Linear),
    ],
    together: false,
    run: Run::Both(
        &[
            Sweep { load: Load { name: "8 sessions", sessions: 8, ..OBJECT }, ..COPIED },
            Sweep {
                load: Load { name: "256 sessions", sessions: 256, copy: Spread::Processor, ..OBJECT },
                here: &[],
                there: &[(&SOCKETS, NUMBERS)],
                ..COPIED
            },
        ],
        in_a_cache,
        0.5,
    ),
    claims: &[
        Claim::new(
            "with the most copies the waits are a small part of what they were (1,443,752 to 23,288; a tenth and less)",
            Check::AtLeast(of(Q::WaitsPerS, &["backoff"], At::First), 10.0, of(Q::WaitsPerS, &["backoff"], At::Last)),
        ),
        Claim::new(
            "and throughput rises",
            Check::AtLeast(
                of(Q::Throughput, &["backoff"], At::X(4.0)),
                1.01,
                of(Q::Throughput, &["backoff"], At::First),
            ),
        ),
        Claim::new(
            "four copies are best: no more throughput with 32",
            Check::AtLeast(
                of(Q::Throughput, &["backoff"], At::X(4.0)),
                0.99,
                of(Q::Throughput, &["backoff"], At::Last),
            ),
        ),
        Claim::of(
            "with four copies the handle is found busy a half as often, and less",
            CALLS,
            Check::AtLeast(
                of(Q::LibraryMisses, &["backoff"], At::First),
                2.0,
                of(Q::LibraryMisses, &["backoff"], At::X(4.0)),
            ),
        ),
        Claim::of(
            "and throughput rises",
            CALLS,
            Check::AtLeast(
                of(Q::Executions, &["backoff"], At::X(4.0)),
                1.01,
                of(Q::Executions, &["backoff"], At::First),
            ),
        ),
        Claim::of(
            "(ours) more copies than processors change nothing (to 10 %)",
            CALLS,
            Check::Same(
                of(Q::Executions, &["backoff"], At::Last),
                of(Q::Executions, &["backoff"], At::Processors(1.0)),
                0.1,
            ),
        ),
        Claim::of(
            "marking too much loses: less throughput with four copies of what changes",
            CHANGED,
            Check::AtLeast(
                of(Q::Executions, &["backoff"], At::First),
                1.01,
                of(Q::Executions, &["backoff"], At::X(4.0)),
            ),
        ),
        Claim::of(
            "and sessions meet where copies are made (kglhdgn): half as often again as without copies, and more",
            CHANGED,
            Check::AtLeast(
                of(Q::CreationMisses, &["backoff"], At::X(4.0)),
                1.5,
                of(Q::CreationMisses, &["backoff"], At::First),
            ),
        ),
    ],
    takes_s: [45, 6],
};

const OBJECT: Load = Load::new(Duration::from_micros(1), Think::PerProcessor(3.0));
const NUMBERS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
const COPIED: Sweep = Sweep {
    load: OBJECT,
    vary: Vary::Copies,
    lines: &[line("backoff"), line("orbit")],
    here: NUMBERS,
    measured_to: [32.0, 32.0],
    there: &[],
    theory: [false, false],
    measured_s: 0.5,
    simulated_s: 0.5,
};

/// Calls of a procedure in the cache, and of one that is changed all the time.
const CALLS: &str = "calls";
const CHANGED: &str = "calls, changed";
/// Calls of a session after which it changes the procedure.
const CHANGE_AFTER: u64 = 10;
const MARKED: [u8; 5] = [1, 2, 4, 8, 16];

/// Where sessions wait for a handle: its mutex, and where one is made.
pub fn is_library(event: &str, at: &str) -> bool {
    event.starts_with("library cache: mutex X") || is_creation(event, at)
}

pub fn is_creation(_event: &str, at: &str) -> bool {
    at.starts_with("kglhdgn")
}

const FIGURES: [Figure; 5] = [
    (Q::Executions, |ran| Some(ran.executions_per_s())),
    (Q::LibraryMisses, |ran| Some(ran.per_s(Counter::Misses, is_library))),
    (Q::LibraryWaits, |ran| Some(ran.per_s(Counter::Waits, is_library))),
    (Q::CreationMisses, |ran| Some(ran.per_s(Counter::Misses, is_creation))),
    (Q::Cpus, |ran| Some(ran.cpus())),
];

/// The calls that are measured, and what theory has for the best number of copies.
fn in_a_cache(lab: &mut Lab) -> Result<Findings, Stopped> {
    let mut findings = Findings { tables: vec![best(lab)?], ..Findings::default() };
    if !lab.measures {
        return Ok(findings);
    }
    let mut jobs = Vec::new();
    let mut at = Vec::new();
    for (load, change_after) in [(CALLS, None), (CHANGED, Some(CHANGE_AFTER))] {
        for line in COPIED.lines {
            for copies in MARKED {
                let time = Duration::from_millis(300);
                let job = Job::new(Name::LibraryCache, line.scheme, COPIED_HERE);
                jobs.push((format!("{load} {}", line.name), Job { time, procedures: copies, change_after, ..job }));
                at.push((load, line.name, f64::from(copies)));
            }
        }
    }
    let runs: Vec<Vec<Ran>> = lab.do_jobs(0.45, &jobs)?;
    findings.rows = at.iter().zip(&runs).map(|((load, line, x), runs)| row(load, line, *x, runs, &FIGURES)).collect();
    Ok(findings)
}

/// Sessions here.
const COPIED_HERE: u32 = 8;
/// What a copy costs that is never made again, in waiting sessions, as `suggest-hot` supposes; and the time to
/// make one, in s.
const KEEPING: f64 = crate::predict::hot::KEEPING;
const MAKING_S: f64 = 1e-6;

/// The best number of copies of the object on the source's machine, by births per second, from the simulation
/// of its mutex without copies.
fn best(lab: &mut Lab) -> Result<(String, Table), Stopped> {
    type Best = (f64, Option<tuning::Copies>);
    lab.show(0.05, "predicted: the best number of copies");
    let load = Load { sessions: 256, copy: Spread::Processor, ..OBJECT };
    let setup = Setup::new(&load, &line("backoff"), Vary::Copies, 1.0, &SOCKETS)?;
    let seen = lab.simulate(&[setup.workload(&SOCKETS, lab.time(COPIED.simulated_s) / 4.0)?])?;
    let of = |measure: Measure| {
        Found::of(&seen.iter().flatten().filter_map(|run| measure.of(run)).collect::<Vec<_>>())
            .map_or(f64::NAN, |found| found.middle)
    };
    let (rate, utilization, wait_s) = (of(Measure::Throughput), of(Measure::MissRatio), of(Measure::Wait));
    let a = wait_s * (1.0 - utilization) / utilization;
    let at = |births_per_s: f64| {
        (births_per_s, tuning::copies(rate, utilization, a, 1.0, KEEPING + births_per_s * MAKING_S).ok())
    };
    let columns = [
        column("births_per_s", |best: &Best| best.0),
        column("best_copies", |best: &Best| best.1.map(|best| best.copies)),
        column("waiting_and_cost", |best: &Best| best.1.map(|best| best.cost)),
    ];
    let title = format!(
        "Best number of copies on {} by theory (`retrial model hot-copies`), 1 us for making one",
        SOCKETS.name
    );
    Ok((title, Table::of(&columns, [0.0, 1e3, 1e4, 1e5, 1e6].map(at))))
}
