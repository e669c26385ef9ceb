//! 004: the critical section of a database engine with up to 16,384 processes, in our engine and simulated.

use super::claims::{At, Check, Claim, least, of};
use super::lab::{Lab, thinned};
use super::load::{Line, Load, Think, Vary, line};
use super::machine::{self, HERE};
use super::quantities::{Quantity as Q, Row};
use super::worked::{Figure, Job, Ran, row};
use super::{Experiment, Findings, Run, Sweep};
use crate::chart::Scale;
use crate::output::{Table, column};
use crate::work::Name;
use retrial_bench::cell::Stopped;
use retrial_bench::outcome::{Kind, median};
use std::time::Duration;

const PROCESSES: &[f64] = &[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 2048.0, 4096.0, 16384.0];

/// 3n+1: an update, short, and the arithmetic between two of them.
const UPDATES: Load = Load {
    name: "3n+1",
    kind: Kind::Processes,
    ..Load::new(Duration::from_nanos(500), Think::Time(Duration::from_micros(5)))
};
/// Interest posting: a transaction is committed, the next one prepared.
const INTEREST: Load = Load {
    name: "interest posting",
    kind: Kind::Processes,
    ..Load::new(Duration::from_micros(5), Think::Time(Duration::from_micros(20)))
};
const SECTION: Load = Load {
    name: "critical section",
    kind: Kind::Processes,
    ..Load::new(Duration::from_nanos(200), Think::Time(Duration::ZERO))
};

const LINES: &[Line] = &[line("ydb"), line("pthread"), line("adaptive"), line("orbit")];

/// What our engine does for each of them, and the time of an execution in the critical section, or before it is
/// stored, and between two executions.
const ENGINES: [(&Load, Name, Duration, Duration); 3] = [
    (&UPDATES, Name::ThreeNPlusOne, Duration::from_micros(15), Duration::ZERO),
    (&INTEREST, Name::InterestPosting, Duration::from_micros(5), Duration::from_micros(20)),
    (&SECTION, Name::CriticalSection, Duration::from_nanos(200), Duration::ZERO),
];
/// 3n+1 ends by itself long before.
const LONGEST: Duration = Duration::from_secs(40);
/// Most processes that are measured: with `--full`, else, with `--quick`.
const MOST: [f64; 3] = [16_384.0, 4096.0, 64.0];

const fn sweep(load: Load) -> Sweep {
    Sweep {
        load,
        vary: Vary::Sessions,
        lines: LINES,
        here: PROCESSES,
        // Measured by `measured` in an engine.
        measured_to: [0.0, 0.0],
        there: &[(&machine::ENGINE, PROCESSES)],
        theory: [false, false],
        measured_s: 0.3,
        simulated_s: 0.2,
    }
}

pub const ENGINE: Experiment = Experiment {
    name: "engine",
    source: "004",
    shows: "critical sections of a database engine from 1 to 16,384 processes: ydb, pthread, adaptive, and orbit",
    text: "Measured: the loads of `retrial cache work` in processes, on a small engine whose results are verified. 3n+1 keeps the number of steps for all n below 16,384 \
(15 us of busy work for each; about three sections), interest posting changes accounts (5 us in the section, 20 us between two), the third one does nothing but \
critical sections (0.2 us). `elapsed` is the time for a million gets of the section's mutex, from the start: to the last session's end in 3n+1, to the moment at which the sessions were told to end in the others. \
Simulated, on the level of the mutex: sections of 0.5 us with 5 us between them, of 5 us with 20 us, of 0.2 us, all exponential. How long the source's sections are is supposed, \
from holding times of M databases (0.06 to 1.7 us with and without journal, longer for \
transactions). Published: 3n+1 with twice as many processes as processors took 12,576 ms with the engine's own mutex (V6.3-006) and 14,257 ms with that of \
pthread (V6.3-007), 13 % more; for interest posting the former was better up to 2,048 processes, the latter above, and `adaptive` followed the better one; for 3n+1 the former always was. \
Its graphs have no numbers. With thousands of processes a run of 3n+1 is a few numbers for each of them, which are done while the last ones are still being woken, and a measurement is one run; `--full` measures 16,384 processes, too.",
    x: "processes",
    x_scale: Scale::Binary,
    quantities: &[Q::Elapsed, Q::Cpus],
    charts: &[(Q::Elapsed, Scale::Decimal)],
    together: false,
    run: Run::Both(&[sweep(UPDATES), sweep(INTEREST), sweep(SECTION)], measured, 0.8),
    claims: &[
        Claim::of(
            "pthread takes longer with twice as many processes as processors (the source: 13 %)",
            "3n+1",
            Check::AtLeast(
                of(Q::Elapsed, &["pthread"], At::Processors(2.0)),
                1.03,
                of(Q::Elapsed, &["ydb"], At::Processors(2.0)),
            ),
        ),
        Claim::of(
            "ydb is always better: with 4,096 processes, too",
            "3n+1",
            Check::AtLeast(of(Q::Elapsed, &["pthread"], At::X(4096.0)), 1.0, of(Q::Elapsed, &["ydb"], At::X(4096.0))),
        ),
        Claim::of(
            "ydb is better with 256 processes",
            "interest posting",
            Check::AtLeast(of(Q::Elapsed, &["pthread"], At::X(256.0)), 1.0, of(Q::Elapsed, &["ydb"], At::X(256.0))),
        ),
        Claim::of(
            "pthread is better with 4,096 processes",
            "interest posting",
            Check::AtLeast(of(Q::Elapsed, &["ydb"], At::X(4096.0)), 1.0, of(Q::Elapsed, &["pthread"], At::X(4096.0))),
        ),
        Claim::new(
            "adaptive follows the better one with 256 processes (nine tenths of it)",
            Check::AtLeast(
                least(Q::Elapsed, &["ydb", "pthread"], At::X(256.0)),
                0.9,
                of(Q::Elapsed, &["adaptive"], At::X(256.0)),
            ),
        ),
        Claim::new(
            "and with 4,096",
            Check::AtLeast(
                least(Q::Elapsed, &["ydb", "pthread"], At::X(4096.0)),
                0.9,
                of(Q::Elapsed, &["adaptive"], At::X(4096.0)),
            ),
        ),
        Claim::new(
            "(ours) orbit is at most a tenth behind the best one with 64 processes",
            Check::AtLeast(
                least(Q::Elapsed, &["ydb", "pthread", "adaptive"], At::X(64.0)),
                0.9,
                of(Q::Elapsed, &["orbit"], At::X(64.0)),
            ),
        ),
        Claim::new(
            "(ours) and with 4,096",
            Check::AtLeast(
                least(Q::Elapsed, &["ydb", "pthread", "adaptive"], At::X(4096.0)),
                0.9,
                of(Q::Elapsed, &["orbit"], At::X(4096.0)),
            ),
        ),
    ],
    takes_s: [250, 22],
};

/// Of 3n+1, which ends by itself.
const ENDED: [Figure; 2] =
    [(Q::Elapsed, |ran| Some(1e6 * ran.elapsed_s() / ran.gets()?)), (Q::Cpus, |ran| Some(ran.cpus()))];
/// Of the others, whose executions are one get each.
const TIMED: [Figure; 2] = [(Q::Elapsed, |ran| Some(1e6 / ran.executions_per_s())), (Q::Cpus, |ran| Some(ran.cpus()))];

/// A run of a load under a scheme.
struct Cell {
    load: &'static Load,
    scheme: &'static str,
    processes: f64,
    job: Job,
    runs: Vec<Ran>,
}

/// The engine's loads here.
fn measured(lab: &mut Lab) -> Result<Findings, Stopped> {
    if !lab.measures {
        return Ok(Findings::default());
    }
    let most = MOST[if lab.full { 0 } else { 1 + usize::from(lab.quick) }];
    let mut cells = cells(&thinned(PROCESSES, lab.quick), most);
    let rounds = lab.rounds();
    let share = 1.0 / cells.iter().map(|cell| f64::from(rounds_of(cell, rounds)) * weight(cell)).sum::<f64>();
    for round in 1..=rounds {
        for cell in cells.iter_mut().filter(|cell| round <= rounds_of(cell, rounds)) {
            let name = format!("{} {}, {}", cell.load.name, cell.scheme, cell.processes);
            lab.show(0.8 * share * weight(cell), format!("measured, round {round}/{rounds}: {name}"));
            cell.runs.extend(lab.do_job(&cell.job)?);
        }
    }
    let of = |cell: &Cell| {
        let figures = if cell.job.load == Name::ThreeNPlusOne { ENDED } else { TIMED };
        row(cell.load.name, cell.scheme, cell.processes, &cell.runs, &figures)
    };
    let rows: Vec<Row> = cells.iter().map(of).collect();
    let tables = vec![published(&cells, 2.0 * f64::from(lab.here.processors))];
    Ok(Findings { rows, tables, ..Findings::default() })
}

/// Every load under every scheme.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // numbers of processes
fn cells(points: &[f64], most: f64) -> Vec<Cell> {
    let points: Vec<f64> = points.iter().copied().filter(|processes| *processes <= most).collect();
    let of = |(load, name, run, think): &(&'static Load, Name, Duration, Duration), scheme, processes: f64| {
        // A crowd takes longer to settle.
        let settled = Duration::from_millis(300).mul_f64((processes / CROWD).max(1.0));
        let time = if *name == Name::ThreeNPlusOne { LONGEST } else { settled };
        let job = Job::new(*name, scheme, processes as u32);
        let job = Job { kind: Kind::Processes, time, run: *run, think: *think, ..job };
        Cell { load, scheme, processes, job, runs: Vec::new() }
    };
    let mut cells = Vec::new();
    for engine in &ENGINES {
        for line in LINES {
            cells.extend(points.iter().map(|processes| of(engine, line.name, *processes)));
        }
    }
    cells
}

/// To start and end a thousand processes takes longer than what they do.
const CROWD: f64 = 1000.0;

fn rounds_of(cell: &Cell, rounds: u32) -> u32 {
    if cell.processes > CROWD { 1 } else { rounds }
}

/// About the seconds that a run takes.
fn weight(cell: &Cell) -> f64 {
    0.35 + cell.processes * 1e-3
}

/// Elapsed times of 3n+1 that the source gives, with the type of mutex.
const PUBLISHED: [(&str, &str, f64); 9] = [
    ("V6.3-006", "own", 12_576.0),
    ("r1.24", "own", 12_279.0),
    ("V6.3-007", "pthread", 14_257.0),
    ("r1.26", "pthread", 14_069.0),
    ("V7.0-005", "pthread", 14_868.0),
    ("r2.02", "pthread", 16_570.0),
    ("V7.1-002", "pthread", 15_519.0),
    ("r2.03-pre", "pthread", 14_956.0),
    ("r2.03-pre+", "pthread", 11_243.0),
];

/// The source's table of 3n+1 with twice as many processes as processors, and what our engine took for its
/// numbers; each beside the first with the engine's own mutex.
fn published(cells: &[Cell], processes: f64) -> (String, Table) {
    type Build = (String, &'static str, &'static str, f64, f64);
    let first = PUBLISHED[0].2;
    let source = PUBLISHED.iter().map(|(build, mutex, ms)| ((*build).to_owned(), *mutex, "published", *ms, ms / first));
    let own = |cell: &&Cell| cell.job.load == Name::ThreeNPlusOne && cell.processes.total_cmp(&processes).is_eq();
    let ms = |cell: &Cell| median(cell.runs.iter().map(|ran| ran.elapsed_s() * 1e3).collect());
    let ours: Vec<(&'static str, f64)> =
        cells.iter().filter(own).filter_map(|cell| Some((cell.scheme, ms(cell)?))).collect();
    let base = ours.first().map_or(f64::NAN, |(_, ms)| *ms);
    let here = ours.iter().map(|(scheme, ms)| ("this engine".to_owned(), *scheme, HERE, *ms, ms / base));
    let columns = [
        column("build", |build: &Build| build.0.clone()),
        column("mutex", |build: &Build| build.1),
        column("where", |build: &Build| build.2),
        column("elapsed_ms", |build: &Build| build.3),
        column("of_the_first", |build: &Build| build.4),
    ];
    let title =
        "3n+1 with twice as many processes as processors: the source's builds, and our engine with its own numbers";
    (title.to_owned(), Table::of(&columns, source.chain(here)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::lab::Lab;

    #[test]
    fn our_engine_is_beside_the_sources_builds_with_its_own_numbers() {
        let mut lab = Lab::new([true, false], true, 1, &[]);
        let mut cells = cells(&[1.0, 2.0], 2.0);
        assert_eq!(cells.len(), ENGINES.len() * LINES.len() * 2);
        for cell in cells.iter_mut().filter(|cell| cell.job.load == Name::ThreeNPlusOne && cell.processes > 1.0) {
            cell.runs.extend(lab.do_job(&cell.job).unwrap_or_else(|_| panic!("{}", cell.scheme)));
        }
        let (_, table) = published(&cells, 2.0);
        let rows = table.json();
        let rows = rows.as_array().unwrap();
        assert_eq!(rows.len(), PUBLISHED.len() + LINES.len(), "{rows:?}");
        for line in LINES {
            let own = rows.iter().find(|row| row["where"] == HERE && row["mutex"] == line.name).unwrap();
            assert!(own["elapsed_ms"].as_f64() > Some(0.0), "{own}");
        }
        // All numbers, each taken and stored at least, and looked at where it leads to a smaller one.
        let run = cells.iter().find_map(|cell| cell.runs.first()).unwrap();
        assert_eq!((run.outcome.executed, lab.errors), (16_383, 0));
        assert!(run.gets().unwrap() > 3.0 * 16_383.0 - 100.0, "{:?}", run.gets());
    }

    #[test]
    fn no_more_processes_are_measured_than_was_said() {
        for most in MOST {
            assert!(cells(PROCESSES, most).iter().all(|cell| cell.processes <= most));
        }
        assert_eq!(cells(PROCESSES, MOST[0]).len(), ENGINES.len() * LINES.len() * PROCESSES.len());
    }
}
