//! 001 and 002: sleeps of another length, holders of another length.

use super::claims::{At, Check, Claim, of};
use super::load::{Line, Load, Think, Vary, line};
use super::machine::{T2000, T5240};
use super::quantities::Quantity as Q;
use super::{Experiment, Run, Sweep};
use crate::chart::Scale;
use retrial_bench::load::Distribution;
use std::time::Duration;

pub const GRANULARITY: Experiment = Experiment {
    name: "granularity",
    source: "001, platform sleeps granularity",
    shows: "scheme 0 with sleeps of 1 ms and of 10 ms (timers of 1000 Hz and 100 Hz): completion time and throughput against threads",
    text: "Sections of 7 us (a library cache mutex on a T2 is held for 2.5 to 12 us), and 0.4 of that for each processor between them; and the same with 100 us, since \
who gets the mutex within 99 yields never sleeps, which take 1.8 ms on the T2000 and more where others run meanwhile. The source changed the timer; here the time asked for is changed, which it says is the same. The simulator has no hardware threads that share a core.",
    x: "sessions",
    x_scale: Scale::Binary,
    quantities: &[Q::ElapsedEach, Q::Throughput, Q::Cpus],
    charts: &[(Q::ElapsedEach, Scale::Linear), (Q::Throughput, Scale::Linear)],
    together: false,
    run: Run::Sweeps(
        &[
            Sweep { load: Load { name: "sections of 7 us", ..granular(7) }, ..SLEEPS },
            Sweep { load: Load { name: "sections of 100 us", ..granular(100) }, simulated_s: 1.5, ..SLEEPS },
        ],
        &[],
    ),
    claims: &[
        Claim::new(
            "with few threads both are the same (to 3 %, a quarter as many threads as processors, 2 at least)",
            Check::Same(
                of(Q::Throughput, &["1 ms"], At::Processors(0.25)),
                of(Q::Throughput, &["10 ms"], At::Processors(0.25)),
                0.03,
            ),
        ),
        Claim::new(
            "with moderate contention (as many threads as processors) 1 ms is better, by up to 10 %",
            Check::AtLeast(
                of(Q::Throughput, &["1 ms"], At::Processors(1.0)),
                1.01,
                of(Q::Throughput, &["10 ms"], At::Processors(1.0)),
            ),
        ),
        Claim::new(
            "with high contention (the most threads) 10 ms wins",
            Check::AtLeast(of(Q::Throughput, &["10 ms"], At::Last), 1.01, of(Q::Throughput, &["1 ms"], At::Last)),
        ),
    ],
    takes_s: [75, 8],
};

const fn granular(hold_us: u64) -> Load {
    Load::new(Duration::from_micros(hold_us), Think::PerProcessor(0.4))
}

const SLEEPS: Sweep = Sweep {
    load: granular(7),
    vary: Vary::Sessions,
    lines: &[
        Line { name: "1 ms", scheme: "yield", set: &["wait_yield_sleep_time_msecs=1"] },
        Line { name: "10 ms", scheme: "yield", set: &["wait_yield_sleep_time_msecs=10"] },
    ],
    here: &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0],
    measured_to: [128.0, 128.0],
    there: &[(&T2000, &[1.0, 4.0, 8.0, 16.0, 24.0, 32.0, 48.0, 64.0, 128.0, 256.0])],
    theory: [false, false],
    measured_s: 0.5,
    simulated_s: 1.0,
};

pub const LONG_HOLDER: Experiment = Experiment {
    name: "long-holder",
    source: "002",
    shows: "a mutex that is held in X for long: 10g burns processor time, scheme 1 with 8 ms does not",
    text: "Sections of 20 ms as busy work, always the same, 100 ms asleep between them. On the T5240 nearly every hardware thread is free, so that a session that \
yields runs again at once; there the spinning threads slow down those that share their core, which the simulator does not know: there throughput is not the figure to look at.",
    x: "sessions",
    x_scale: Scale::Binary,
    quantities: &[Q::Cpus, Q::Throughput],
    charts: &[(Q::Cpus, Scale::Linear), (Q::Throughput, Scale::Linear)],
    together: false,
    run: Run::Sweeps(
        &[Sweep {
            load: Load {
                spread: Distribution::Fixed,
                ..Load::new(Duration::from_millis(20), Think::Time(Duration::from_millis(100)))
            },
            vary: Vary::Sessions,
            lines: &[
                line("10g"),
                Line { name: "sleep, 8 ms", scheme: "sleep", set: &["mutex_wait_time=8"] },
                line("backoff"),
                line("orbit"),
            ],
            here: &[1.0, 2.0, 4.0, 8.0, 16.0],
            measured_to: [16.0, 16.0],
            there: &[(&T5240, &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0])],
            theory: [false, false],
            measured_s: 1.0,
            simulated_s: 4.0,
        }],
        &[],
    ),
    claims: &[
        Claim::new(
            "waiters of 10g burn processor time: with the most sessions half as much again as scheme 1 with 8 ms, and more",
            Check::AtLeast(of(Q::Cpus, &["10g"], At::Last), 1.5, of(Q::Cpus, &["sleep, 8 ms"], At::Last)),
        ),
        Claim::new(
            "those of scheme 1 with 8 ms do not: no more than a tenth of a processor beside the holder's",
            Check::AtMost(of(Q::Cpus, &["sleep, 8 ms"], At::Last), 1.1),
        ),
        Claim::new(
            "scheme 1 with 8 ms gets the performance back: 10g's throughput with the most sessions (0.97 of it), or more",
            Check::AtLeast(of(Q::Throughput, &["sleep, 8 ms"], At::Last), 0.97, of(Q::Throughput, &["10g"], At::Last)),
        ),
    ],
    takes_s: [65, 6],
};
