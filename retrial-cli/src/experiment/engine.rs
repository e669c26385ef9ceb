//! 003, hot copies, and 004, the critical section of a database engine with up to 16,384 processes.

use super::claims::{At, Check, Claim, least, of};
use super::load::{Line, Load, Think, Vary, line};
use super::machine::{self, SOCKETS};
use super::quantities::Quantity as Q;
use super::{Experiment, Run, Sweep};
use crate::chart::Scale;
use retrial_bench::outcome::Kind;
use std::time::Duration;

pub const COPIES: Experiment = Experiment {
    name: "hot-copies",
    source: "003",
    shows: "copies of a hot object: before, after, and too many",
    text: "Sections of 1 us, exponential, and 3 of that for each processor between them as busy work: the processors are full, as the source's, and the mutex is held for a \
third of the time, on several sockets for more. 256 sessions on 192 processors, 8 here, scheme 2. The source's waits on `library cache: mutex X` fell from 1,443,752 to \
23,288 when the procedures were marked hot, and throughput rose; marking the cursors too moved the waits to the creation of handles and lowered throughput; with at most four \
copies it was best. A measured session uses the copy that its number gives, as with markhot, a simulated one any copy at each get. What a copy costs (its creation, its memory, its place in the caches) is in no load here, so more copies cannot lose.",
    x: "copies",
    x_scale: Scale::Binary,
    quantities: &[Q::Throughput, Q::WaitsPerS, Q::K, Q::Cpus],
    charts: &[(Q::Throughput, Scale::Linear), (Q::WaitsPerS, Scale::Decimal)],
    together: false,
    run: Run::Sweeps(
        &[
            Sweep { load: Load { name: "8 sessions", sessions: 8, ..OBJECT }, ..COPIED },
            Sweep {
                load: Load { name: "256 sessions", sessions: 256, ..OBJECT },
                here: &[],
                there: &[(&SOCKETS, NUMBERS)],
                ..COPIED
            },
        ],
        &[],
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
    ],
    takes_s: [22, 3],
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

const fn sweep(load: Load) -> Sweep {
    Sweep {
        load,
        vary: Vary::Sessions,
        lines: LINES,
        here: PROCESSES,
        measured_to: [4096.0, 256.0],
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
    text: "Three loads after those of the source, on the level of the mutex: 3n+1 (sections of 0.5 us, 5 us between them), interest posting (5 us and 20 us) and nothing but \
critical sections (0.2 us), all exponential. How long the sections are is supposed, from holding times of M databases (0.06 to 1.7 us with and without journal, longer for \
transactions). Published: 3n+1 with twice as many processes as processors took 12,576 ms with the engine's own mutex (V6.3-006) and 14,257 ms with that of \
pthread (V6.3-007), 13 % more; for interest posting the former was better up to 2,048 processes, the latter above, and `adaptive` followed the better one; for 3n+1 the former always was. \
Beyond 1,024 processes a measurement is shorter than it takes `ydb` to fill its queue.",
    x: "processes",
    x_scale: Scale::Binary,
    quantities: &[Q::Elapsed, Q::Cpus],
    charts: &[(Q::Elapsed, Scale::Decimal)],
    together: false,
    run: Run::Sweeps(&[sweep(UPDATES), sweep(INTEREST), sweep(SECTION)], &[]),
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
    takes_s: [200, 20],
};
