//! 000: A. Nikolaev, *Exploring mutexes, the Oracle RDBMS retrial spinlocks*.

use super::claims::{At, Check, Claim, least, most, of};
use super::load::{Line, Load, Think, Vary, line};
use super::machine::{EXADATA, SOCKETS};
use super::quantities::Quantity as Q;
use super::{Curve, Experiment, Run, Sweep};
use crate::chart::Scale;
use std::time::Duration;

const SESSIONS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
const THREADS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 32.0, 48.0, 64.0];
const MANY: &[f64] = &[1.0, 8.0, 32.0, 64.0, 96.0, 128.0, 192.0, 256.0, 384.0];

/// A call of an empty procedure: the library cache mutex is held for some us (table 5), and the rest of the
/// call is so much longer that less than half of the processors can keep it busy.
const CALLS: Load = Load::new(Duration::from_micros(4), Think::PerProcessor(0.4));

pub const UTILIZATION: Experiment = Experiment {
    name: "k-utilization",
    source: "000, fig. 4",
    shows: "spin inefficiency k against utilization ρ",
    text: "64 sessions, of which each asks again after a time asleep that gives the utilization; holding times exponential with a mean of 50 us, a spin \
limit of twice that, sleeps of 10 ms spread by 1 ms (sleeps of exactly one length synchronise). `losers sleep` is the paper's discipline: who \
spins when the mutex is released and does not get it sleeps at once. Utilization is what the gets found: misses per get.

If only the holder and one spinner had a processor, nobody would compete, and k would be k₀ = e⁻² = 0.135 whatever ρ is.",
    x: "miss_ratio",
    x_scale: Scale::Linear,
    quantities: &[Q::K, Q::Kappa, Q::Sleeps, Q::Throughput],
    charts: &[(Q::K, Scale::Linear)],
    together: false,
    run: Run::Sweeps(
        &[Sweep {
            load: Load { sessions: 64, spin: Duration::from_micros(100), ..Load::new(Duration::from_micros(50), Think::Time(Duration::ZERO)) },
            vary: Vary::Utilization,
            lines: &[
                Line { name: "losers sleep", scheme: "patch6904068", set: &["on_lost_race=sleep", "sleep_jitter=1000"] },
                Line { name: "losers spin on", scheme: "patch6904068", set: &["sleep_jitter=1000"] },
            ],
            here: RATIOS,
            measured_to: [1.0, 1.0],
            there: &[(&EXADATA, RATIOS)],
            theory: [false, false],
            measured_s: 1.0,
            simulated_s: 3.0,
        }],
        &[
            curve("k of the paper (eq. 9)", "spin-paper", RATE),
            Curve {
                given: &[("dist", "exponential:mean=50us"), ("limit", "100us"), ("a", "0.5")],
                ..curve("the paper's line in ρ", "spin-linear", ("utilization", 1.0))
            },
            curve("k derived anew", "spin-open", RATE),
        ],
    ),
    claims: &[
        Claim::new(
            "k grows with ρ: the experiments roughly agree with a line (half as much again from the first to the last point)",
            Check::AtLeast(of(Q::K, &["losers sleep"], At::Last), 1.5, of(Q::K, &["losers sleep"], At::First)),
        ),
        Claim::new(
            "k is what eq. 9 says (to 10 % at every point)",
            Check::Follows(Q::K, "losers sleep", "k of the paper (eq. 9)", 0.1),
        ),
        Claim::new(
            "(ours, not the paper's) k is what is derived anew (to 10 % at every point)",
            Check::Follows(Q::K, "losers sleep", "k derived anew", 0.1),
        ),
    ],
    takes_s: [40, 3],
};

const RATIOS: &[f64] = &[0.05, 0.1, 0.2, 0.3, 0.4, 0.5];

const fn curve(line: &'static str, function: &'static str, vary: (&'static str, f64)) -> Curve {
    Curve {
        line,
        function,
        given: &[("dist", "exponential:mean=50us"), ("limit", "100us")],
        vary,
        points: &[0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
        result: "k",
        quantity: Q::K,
    }
}

/// Requests per second for ρ = 1.
const RATE: (&str, f64) = ("rate", 2e4);

pub const WAIT_TIME: Experiment = Experiment {
    name: "wait-time",
    source: "000, fig. 8",
    shows: "scheme 1: throughput against threads for several wait times",
    text: "Sections of 4 us, exponential, and 0.4 of that for each processor between them as busy work (0.8 of them on two processors, 9.6 on 24).",
    x: "sessions",
    x_scale: Scale::Binary,
    quantities: &[Q::Throughput, Q::Cpus, Q::Waits],
    charts: &[(Q::Throughput, Scale::Linear)],
    together: false,
    run: Run::Sweeps(
        &[Sweep {
            load: CALLS,
            vary: Vary::Sessions,
            lines: &[
                Line { name: "1 ms", scheme: "sleep", set: &["mutex_wait_time=1"] },
                Line { name: "4 ms", scheme: "sleep", set: &["mutex_wait_time=4"] },
                Line { name: "10 ms", scheme: "sleep", set: &["mutex_wait_time=10"] },
                Line { name: "30 ms", scheme: "sleep", set: &["mutex_wait_time=30"] },
            ],
            here: SESSIONS,
            measured_to: [64.0, 64.0],
            there: &[(&EXADATA, THREADS)],
            theory: [true, true],
            measured_s: 0.4,
            simulated_s: 0.5,
        }],
        &[],
    ),
    claims: &[
        Claim::new(
            "at moderate concurrency (half as many threads as processors, 2 at least) 1 ms gives more throughput than 30 ms",
            Check::AtLeast(
                of(Q::Throughput, &["1 ms"], At::Processors(0.5)),
                1.01,
                of(Q::Throughput, &["30 ms"], At::Processors(0.5)),
            ),
        ),
        Claim::new(
            "and so it does with as many threads as processors",
            Check::AtLeast(
                of(Q::Throughput, &["1 ms"], At::Processors(1.0)),
                1.01,
                of(Q::Throughput, &["30 ms"], At::Processors(1.0)),
            ),
        ),
        Claim::new(
            "the shorter the sleep, the more: 1 ms at least 4 ms with as many threads as processors",
            Check::AtLeast(
                of(Q::Throughput, &["1 ms"], At::Processors(1.0)),
                1.0,
                of(Q::Throughput, &["4 ms"], At::Processors(1.0)),
            ),
        ),
    ],
    takes_s: [45, 7],
};

/// The schemes of the paper; ours and the others are drawn beside them.
const PAPERS: &[&str] = &["10g", "yield", "sleep", "backoff", "patch6904068"];

pub const SCHEMES: Experiment = Experiment {
    name: "schemes",
    source: "000, fig. 9",
    shows: "all schemes: throughput, processor time and elapsed time against threads",
    text: "The load of `wait-time`. Besides the paper's five schemes, 10g, the patch, 0 (`yield`), 1 (`sleep`) and 2 (`backoff`), those of the other sources, \
and `orbit`. Simulated also for 4 sockets with 192 processors. Elapsed is the time in which each session does a million gets, as the paper's testcase.",
    x: "sessions",
    x_scale: Scale::Binary,
    quantities: &[Q::Throughput, Q::Cpus, Q::ElapsedEach],
    charts: &[(Q::Throughput, Scale::Linear), (Q::Cpus, Scale::Linear), (Q::ElapsedEach, Scale::Decimal)],
    together: false,
    run: Run::Sweeps(
        &[Sweep {
            load: CALLS,
            vary: Vary::Sessions,
            lines: &EVERY,
            here: SESSIONS,
            measured_to: [64.0, 64.0],
            there: &[(&EXADATA, THREADS), (&SOCKETS, MANY)],
            theory: [true, false],
            measured_s: 0.3,
            simulated_s: 0.3,
        }],
        &[],
    ),
    claims: &[
        Claim::new(
            "10g is the fastest of the five at medium concurrency (half as many threads as processors, 2 at least)",
            Check::AtLeast(
                of(Q::Throughput, &["10g"], At::Processors(0.5)),
                0.97,
                most(Q::Throughput, PAPERS, At::Processors(0.5)),
            ),
        ),
        Claim::new(
            "its throughput falls when there are more threads than processors (a tenth below its peak at the last point)",
            Check::AtLeast(of(Q::Throughput, &["10g"], At::Peak), 1.1, of(Q::Throughput, &["10g"], At::Last)),
        ),
        Claim::new(
            "and its processor time grows beyond that point: most of all five",
            Check::AtLeast(of(Q::Cpus, &["10g"], At::Last), 0.99, most(Q::Cpus, PAPERS, At::Last)),
        ),
        Claim::new(
            "the patch has the least processor time of the five with as many threads as processors",
            Check::AtLeast(
                least(Q::Cpus, PAPERS, At::Processors(1.0)),
                0.97,
                of(Q::Cpus, &["patch6904068"], At::Processors(1.0)),
            ),
        ),
        Claim::new(
            "and the lowest throughput",
            Check::AtLeast(
                least(Q::Throughput, PAPERS, At::Processors(1.0)),
                0.97,
                of(Q::Throughput, &["patch6904068"], At::Processors(1.0)),
            ),
        ),
        Claim::new(
            "scheme 0 has nearly the throughput of 10g at medium concurrency (0.9 of it)",
            Check::AtLeast(
                of(Q::Throughput, &["yield"], At::Processors(0.5)),
                0.9,
                of(Q::Throughput, &["10g"], At::Processors(0.5)),
            ),
        ),
        Claim::new(
            "scheme 2 is well balanced: more throughput than the patch with as many threads as processors",
            Check::AtLeast(
                of(Q::Throughput, &["backoff"], At::Processors(1.0)),
                1.05,
                of(Q::Throughput, &["patch6904068"], At::Processors(1.0)),
            ),
        ),
        Claim::new(
            "scheme 2 is well balanced: less processor time than 10g with as many threads as processors",
            Check::AtLeast(
                of(Q::Cpus, &["10g"], At::Processors(1.0)),
                1.05,
                of(Q::Cpus, &["backoff"], At::Processors(1.0)),
            ),
        ),
        Claim::new(
            "scheme 1 is for systems short of processors: beside many threads it beats 10g (they cross)",
            Check::Cross(Q::Throughput, "10g", "sleep"),
        ),
        Claim::new(
            "(ours) orbit has at least 0.95 of the best throughput with as many threads as processors",
            Check::AtLeast(
                of(Q::Throughput, &["orbit"], At::Processors(1.0)),
                0.95,
                most(Q::Throughput, ALL, At::Processors(1.0)),
            ),
        ),
        Claim::new(
            "(ours) and with the most threads",
            Check::AtLeast(of(Q::Throughput, &["orbit"], At::Last), 0.95, most(Q::Throughput, ALL, At::Last)),
        ),
    ],
    takes_s: [120, 15],
};

/// All schemes, by the names of the lines of [`SCHEMES`].
const ALL: &[&str] = retrial::wait::NAMES;

/// A line for each of them.
const EVERY: [Line; ALL.len()] = {
    let mut lines = [line(ALL[0]); ALL.len()];
    let mut next = 1;
    while next < lines.len() {
        lines[next] = line(ALL[next]);
        next += 1;
    }
    lines
};

pub const SPIN_COUNT: Experiment = Experiment {
    name: "spin-count",
    source: "000, fig. 10",
    shows: "elapsed and processor time, waits and throughput against the spin count",
    text: "Scheme 2, the paper's default. Sections of 2 us, exponential, and as much for each processor between them as busy work; two sessions on two \
processors, 12 on 24: a mutex that is held half of the time. A wait is a miss whose first spin failed. 255 polls, the default, are 1.8 us on the paper's machine.",
    x: "spin_count",
    x_scale: Scale::Linear,
    quantities: &[Q::ElapsedEach, Q::CpuPerGet, Q::Waits, Q::Throughput],
    charts: &[
        (Q::ElapsedEach, Scale::Linear),
        (Q::CpuPerGet, Scale::Linear),
        (Q::Waits, Scale::Decimal),
        (Q::Throughput, Scale::Linear),
    ],
    together: false,
    run: Run::Sweeps(
        &[
            Sweep { load: Load { name: "2 sessions", sessions: 2, ..HALF }, ..SPINS },
            Sweep {
                load: Load { name: "12 sessions", sessions: 12, ..HALF },
                here: &[],
                there: &[(&EXADATA, LONG_COUNTS)],
                ..SPINS
            },
        ],
        &[],
    ),
    claims: &[
        Claim::new(
            "elapsed time falls rapidly with the spin count (a fifth and more)",
            Check::AtLeast(
                of(Q::ElapsedEach, &["backoff"], At::First),
                1.2,
                of(Q::ElapsedEach, &["backoff"], At::Last),
            ),
        ),
        Claim::new(
            "while processor time increases smoothly: not by more than half",
            Check::AtLeast(
                of(Q::CpuPerGet, &["backoff"], At::First),
                1.0 / 1.5,
                of(Q::CpuPerGet, &["backoff"], At::Last),
            ),
        ),
        Claim::new(
            "the number of waits is nearly a falling straight line in log scale",
            Check::FallsExponentially(Q::Waits, "backoff", 0.95),
        ),
        Claim::new(
            "throughput rises",
            Check::AtLeast(of(Q::Throughput, &["backoff"], At::Last), 1.2, of(Q::Throughput, &["backoff"], At::First)),
        ),
    ],
    takes_s: [25, 3],
};

const HALF: Load = Load::new(Duration::from_micros(2), Think::PerProcessor(1.0));
const SPINS: Sweep = Sweep {
    load: HALF,
    vary: Vary::SpinCount,
    lines: &[line("backoff")],
    here: COUNTS,
    measured_to: [1e9, 1e9],
    there: &[],
    theory: [true, true],
    measured_s: 1.0,
    simulated_s: 2.0,
};

const COUNTS: &[f64] = &[255.0, 383.0, 510.0, 638.0, 765.0, 893.0, 1020.0];
/// A poll takes less there.
const LONG_COUNTS: &[f64] = &[255.0, 510.0, 765.0, 1020.0, 1275.0, 1530.0, 1785.0, 2040.0];

pub const SQUARING: Experiment = Experiment {
    name: "squaring",
    source: "000, scaling rule",
    shows: "doubling the spin count squares the sleep ratio",
    text: "Two sessions, so that nobody competes for a released mutex, and eight; exponential holding times with a mean of 50 us, 200 us between them, sleeps of 1 ms \
after every failed spin. x is the spin limit in mean holding times; k₀ = e⁻ˣ is theory's. Exponential times have no memory, so the rule is exact for two \
sessions with a processor each. With eight on enough processors k has a floor: others compete for a release (MODEL.md). On two processors only \
one spins at a time.",
    x: "spin_time",
    x_scale: Scale::Linear,
    quantities: &[Q::K, Q::CpuPerGet],
    charts: &[(Q::K, Scale::Decimal)],
    together: false,
    run: Run::Sweeps(
        &[
            Sweep { load: Load { name: "2 sessions", sessions: 2, ..HELD }, ..DOUBLED },
            Sweep { load: Load { name: "8 sessions", sessions: 8, ..HELD }, there: &[(&EXADATA, TIMES)], ..DOUBLED },
        ],
        &[Curve {
            line: "k₀",
            function: "residual",
            given: &[("dist", "exponential:mean=50us")],
            vary: ("limit", 5e-5),
            points: TIMES,
            result: "k0",
            quantity: Q::K,
        }],
    ),
    claims: &[
        Claim::new(
            "doubling the spin count squares the sleep ratio (the power is 2 to 15 %)",
            Check::Squares(Q::K, "sleeps of 1 ms", 0.15),
        ),
        Claim::new("in theory (k₀, exact)", Check::Squares(Q::K, "k₀", 1e-9)),
        Claim::of(
            "and adds to the processor time what is of the order of k: less than a tenth from x = 2 to 4",
            "2 sessions",
            Check::AtLeast(
                of(Q::CpuPerGet, &["sleeps of 1 ms"], At::X(2.0)),
                1.0 / 1.1,
                of(Q::CpuPerGet, &["sleeps of 1 ms"], At::X(4.0)),
            ),
        ),
    ],
    takes_s: [50, 4],
};

const HELD: Load = Load::new(Duration::from_micros(50), Think::Time(Duration::from_micros(200)));
const TIMES: &[f64] = &[0.25, 0.5, 1.0, 2.0, 4.0];
const DOUBLED: Sweep = Sweep {
    load: HELD,
    vary: Vary::SpinTime,
    lines: &[Line {
        name: "sleeps of 1 ms",
        scheme: "yield",
        set: &["wait_yield_sleep_freq=0", "wait_yield_sleep_time_msecs=1"],
    }],
    here: TIMES,
    measured_to: [1e9, 1e9],
    there: &[],
    theory: [false, false],
    measured_s: 1.5,
    simulated_s: 6.0,
};
