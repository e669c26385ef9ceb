//! 001, part II, and the traces of 000: a session waits while another one keeps the mutex, and what its wait
//! is made of.

use super::claims::{At, Check, Claim, most, of};
use super::lab::Lab;
use super::load::{Line, Load, Setup, Think, Vary, line};
use super::machine::{HERE, Machine, T2000};
use super::quantities::{How, Place, Quantity, Row};
use super::{Experiment, Findings, Run};
use crate::chart::Scale;
use crate::instances::session_error;
use crate::signals;
use miette::{Report, miette};
use retrial::sys::Deadline;
use retrial::views::{Counter, Figures};
use retrial::{Class, Mode, Patience, location};
use retrial_bench::cell::Stopped;
use retrial_bench::load::Distribution;
use retrial_bench::ours::Ours;
use retrial_model::Profile;
use retrial_model::sim::{self, Outcome};
use std::sync::Barrier;
use std::time::Duration;

const QUANTITIES: &[Quantity] = &[Quantity::Awake, Quantity::Steps, Quantity::WaiterCpus];

pub const SPLIT: Experiment = Experiment {
    name: "split",
    source: "001, §I and II; traces of 000",
    shows: "what a wait beside a held mutex is made of: 31 s of yields and 18 s of sleeps in 49 s",
    text: "One session keeps the mutex asleep, another one waits for it. Published are the steps of 49 s: 2,734,166 yields of 18 us (10g, as 11.2.0.1 waits), 1,739,264 of scheme \
0 with a sleep of 1.03 ms after every 99, 4,748 sleeps of the patch, 25,637 of scheme 1, 4,237 of scheme 2, 4,356 of scheme 0 with sleeps of 10 ms alone. The \
documents do not say which machine each trace is from; they are shown with the T2000's. In simulations the holder keeps its processor; its time is not in the waiter's.",
    x: "number",
    x_scale: Scale::Linear,
    quantities: QUANTITIES,
    charts: &[
        (Quantity::Awake, Scale::Linear),
        (Quantity::Steps, Scale::Decimal),
        (Quantity::WaiterCpus, Scale::Linear),
    ],
    together: true,
    run: Run::Own(run),
    claims: &[
        Claim::new("10g never sleeps", Check::Near(of(Quantity::Awake, &["10g"], At::First), 1.0, 0.01)),
        Claim::new(
            "scheme 0 spins and yields for 31 s of 49 (63 %)",
            Check::Near(of(Quantity::Awake, &["yield"], At::First), 31.0 / 49.0, 0.1),
        ),
        Claim::new(
            "so it takes about two thirds of the processor time of 10g (36 s and 55 s)",
            Check::Near(of(Quantity::WaiterCpus, &["yield"], At::First), 36.0 / 55.0, 0.15),
        ),
        Claim::new(
            "the patch sleeps 4,748 times in 49 s",
            Check::Near(of(Quantity::Steps, &["patch6904068"], At::First), 4748.0 / 49.0, 0.1),
        ),
        Claim::new(
            "scheme 1 sleeps 25,637 times in 49 s (1.9 ms each: not the 1.03 ms of 001)",
            Check::Near(of(Quantity::Steps, &["sleep"], At::First), 25_637.0 / 49.0, 0.1),
        ),
        Claim::new(
            "scheme 2 sleeps 4,237 times in 49 s",
            Check::Near(of(Quantity::Steps, &["backoff"], At::First), 4237.0 / 49.0, 0.1),
        ),
        Claim::new(
            "schemes 1 and 2 and the patch take next to no processor time (a tenth of 10g's)",
            Check::AtLeast(
                of(Quantity::WaiterCpus, &["10g"], At::First),
                10.0,
                most(Quantity::WaiterCpus, &["sleep", "backoff", "patch6904068"], At::First),
            ),
        ),
    ],
    takes_s: [33, 3],
};

const LINES: &[Line] = &[
    line("10g"),
    line("yield"),
    line("patch6904068"),
    line("sleep"),
    line("backoff"),
    Line {
        name: "yield, sleeps of 10 ms only",
        scheme: "yield",
        set: &["wait_yield_sleep_time_msecs=10", "wait_yield_sleep_freq=0"],
    },
    line("orbit"),
];

/// Steps in 49 s, and the share of them awake where it is published.
const PUBLISHED: [(&str, f64, Option<f64>); 6] = [
    ("10g", 2_734_166.0, Some(1.0)),
    ("yield", 1_739_264.0, Some(31.0 / 49.0)),
    ("patch6904068", 4748.0, None),
    ("sleep", 25_637.0, None),
    ("backoff", 4237.0, None),
    ("yield, sleeps of 10 ms only", 4356.0, None),
];

fn run(lab: &mut Lab) -> Result<Findings, Stopped> {
    let load =
        Load { spread: Distribution::Fixed, ..Load::new(Duration::from_millis(500), Think::Time(Duration::ZERO)) };
    let (rounds, mut rows) = (lab.rounds(), Vec::new());
    let share = 1.0 / (LINES.len() * 3) as f64;
    for (number, line) in LINES.iter().enumerate() {
        let x = number as f64 + 1.0;
        let place = |machine: &Machine| -> Result<Place, Report> {
            let setup = Setup::new(&load, line, Vary::Sessions, 2.0, machine)?;
            Ok(Place { load: "", line: line.name, x, setup })
        };
        if lab.measures {
            lab.show(share, format!("measured: {}", line.name));
            let (at, hold) = (place(&lab.here)?, Duration::from_secs_f64(lab.time(1.5)));
            let samples = (0..rounds).map(|_| waited(&at.setup, hold)).collect::<Result<Vec<_>, _>>()?;
            rows.push(Row::of(&at, How::Measured, HERE, QUANTITIES, &samples));
        }
        for machine in [&lab.here.clone(), &T2000] {
            lab.show(share, format!("simulated for {}: {}", machine.name, line.name));
            let at = place(machine)?;
            let outcome = sim::run(&at.setup.workload(machine, 2.0)?, lab.seed);
            // Without the holder's: it is on a processor all the time.
            let samples: Vec<Profile> = outcome
                .into_iter()
                .map(|Outcome { profile, .. }| Profile {
                    cpu_s: profile.cpu_s.map(|cpu_s| cpu_s - profile.samples.held_s),
                    ..profile
                })
                .collect();
            rows.push(Row::of(&at, How::Simulated, machine.name, QUANTITIES, &samples));
        }
        for (_, steps, awake) in PUBLISHED.iter().filter(|(published, ..)| *published == line.name) {
            let mut values = vec![(Quantity::Steps, (steps / 49.0).into())];
            values.extend(awake.map(|share| (Quantity::Awake, share.into())));
            rows.push(Row { load: "", line: line.name, x, how: How::Published, machine: T2000.name, values });
        }
    }
    Ok(Findings { rows, ..Findings::default() })
}

/// A session waits while this thread keeps the mutex for a time, asleep. Its steps, the parts of its wait,
/// its processor time.
fn waited(setup: &Setup, hold: Duration) -> Result<Profile, Stopped> {
    if signals::received().is_some() {
        return Err(Stopped::Interrupted);
    }
    let ours = Ours::new(2, setup.scheme, &setup.settings)?;
    let mutex = &ours.place[0].mutex;
    let failed = |what: &str| miette!(code = "retrial::experiment::wait", "the wait of the experiment: {what}");
    let is_held = Barrier::new(2);
    let wait = || {
        let session = ours.instance.session("waiter", Class::Normal).map_err(session_error)?;
        is_held.wait();
        let began_s = processor_s();
        let patience = Patience::Until(Deadline::after(hold * 10));
        // SAFETY: both are of the same instance.
        let got = unsafe { mutex.get(&session, Mode::Exclusive, location!("experiment"), patience) };
        got.map(|held| (processor_s() - began_s, drop(held)).0).map_err(|error| failed(&error.to_string()))
    };
    let took_s = std::thread::scope(|scope| {
        let waiter = scope.spawn(wait);
        let holder = ours.instance.session("holder", Class::Normal).map_err(session_error)?;
        // SAFETY: both are of the same instance.
        let held = unsafe { mutex.get(&holder, Mode::Exclusive, location!("experiment"), Patience::None) };
        is_held.wait();
        std::thread::sleep(hold);
        drop(held);
        waiter.join().unwrap_or_else(|_| Err(failed("no thread")))
    })?;
    let mut figures = Figures::default();
    ours.instance.tables().figures().iter().for_each(|(_, _, row)| figures.add(row));
    let time_s = figures.get(Counter::WaitNs) as f64 / 1e9;
    Ok(Profile { time_s, sessions: Some(1), cpu_s: Some(took_s), figures, ..Profile::default() })
}

/// Processor time of this thread so far, where the kernel says it.
fn processor_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).map_or(f64::NAN, |ns| ns / 1e9)
}
