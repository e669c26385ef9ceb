//! What changes beside busy processors.

use super::super::lab::Lab;
use super::super::load::{Load, Setup, Think, Vary, line};
use super::super::machine::Machine;
use super::SAMPLE;
use crate::output::{short, whole};
use miette::{Report, miette};
use retrial::sys::{self, Deadline};
use retrial::views::Counter;
use retrial::{Mode, P, Patience, location, wait};
use retrial_bench::cell::Stopped;
use retrial_bench::ours::Ours;
use retrial_bench::process::Crew;
use retrial_bench::work;
use retrial_model::{Distribution as Times, Measure};
use std::time::{Duration, Instant};

/// What costs differ in while the other processors are busy, and what the harness of the bench costs itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    /// Time of work at its fastest, over its time on a machine that does nothing else.
    slowdown: f64,
    poll_ns: f64,
    step_ns: f64,
    yield_ns: f64,
    /// Clock, check and count of a round, beside the section and the think time.
    harness_ns: f64,
}

/// The least: where others ran in between, times are longer. The neighbours are busy in all of them.
fn least(times: impl IntoIterator<Item = f64>) -> f64 {
    times.into_iter().reduce(f64::min).unwrap_or_default()
}

/// The spin and the yield of a step, in ns, while another session keeps the mutex.
fn steps(ours: &Ours, polls: u64) -> Result<(f64, f64), Report> {
    const ROUNDS: u32 = 31;
    let none = || miette!(code = "retrial::experiment::session", "no session in an instance of its own");
    ours.instance.set(P::SpinCount, None, polls);
    let (holder, waiter) = (ours.session().ok_or_else(none)?, ours.session().ok_or_else(none)?);
    let mutex = &ours.place[0].mutex;
    // SAFETY: both are of the same instance.
    let _held = unsafe { mutex.get(&holder, Mode::Exclusive, location!("accuracy: hold"), Patience::Endless) };
    let round = |_| {
        let sum =
            |counter| ours.instance.tables().figures().iter().map(|(_, _, figures)| figures.get(counter)).sum::<u64>();
        let before = [Counter::Yields, Counter::SpinNs, Counter::YieldNs].map(sum);
        let deadline = Patience::Until(Deadline::after(Duration::from_millis(2)));
        // SAFETY: both are of the same instance.
        drop(unsafe { mutex.get(&waiter, Mode::Exclusive, location!("accuracy: wait"), deadline) });
        let [yields, spin_ns, yield_ns] = [Counter::Yields, Counter::SpinNs, Counter::YieldNs].map(sum);
        let yields = (yields - before[0]).max(1) as f64;
        ((spin_ns - before[1]) as f64 / yields, (yield_ns - before[2]) as f64 / yields)
    };
    let rounds: Vec<(f64, f64)> = (0..ROUNDS).map(round).collect();
    Ok((least(rounds.iter().map(|round| round.0)), least(rounds.iter().map(|round| round.1))))
}

impl Beside {
    pub(super) fn measure(lab: &mut Lab) -> Result<Self, Stopped> {
        const POLLS: u64 = 1000;
        lab.show(0.0, "what steps cost beside busy processors");
        let mut hogs = Crew::default();
        for _ in 1..lab.here.processors {
            let hog = || {
                loop {
                    work::spin(1 << 20);
                }
            };
            hogs.fork(hog).map_err(|error| miette!(code = "retrial::experiment::fork", "no process: {error}"))?;
        }
        let time = |what: &dyn Fn()| {
            let start = Instant::now();
            what();
            start.elapsed().as_nanos() as f64
        };
        let each = |what: &dyn Fn()| least((0..301).map(|_| time(what)));
        let rounds = lab.work().rounds(SAMPLE);
        let slowdown = each(&|| work::spin(rounds)) / SAMPLE.as_nanos() as f64;
        let yield_ns = each(&|| (0..100).for_each(|_| sys::yield_now())) / 100.0;
        let ours = Ours::new(2, wait::named("10g").unwrap_or(wait::DEFAULT), &[])?;
        let ((short_ns, step_ns), (long_ns, _)) = (steps(&ours, 0)?, steps(&ours, POLLS)?);
        drop(hogs);
        let poll_ns = (long_ns - short_ns) / POLLS as f64;
        // One session alone that neither holds nor thinks: what is left is the harness, and the get.
        let nothing = Load::new(Duration::ZERO, Think::Time(Duration::ZERO));
        let setup = Setup::new(&nothing, &line("10g"), Vary::Sessions, 1.0, &lab.here)?;
        let mut rounds_ns = Vec::new();
        for _ in 0..5 {
            rounds_ns
                .extend(lab.measure(&setup, 0.05)?.and_then(|profile| Some(1e9 / Measure::Throughput.of(&profile)?)));
        }
        let round_ns = least(rounds_ns);
        let harness_ns = (round_ns - lab.here.costs.exchange_ns as f64).max(0.0);
        let step_ns = short_ns + (step_ns - yield_ns).max(0.0);
        Ok(Self { slowdown: slowdown.max(1.0), poll_ns, step_ns, yield_ns, harness_ns })
    }

    /// A machine with these costs.
    pub(super) fn on(self, machine: &Machine) -> Machine {
        let mut machine = machine.clone();
        let costs = &mut machine.costs;
        costs.poll_ns = whole(self.poll_ns).max(1);
        costs.step_ns = whole(self.step_ns);
        costs.yield_alone_ns = whole(self.yield_ns).max(1);
        machine
    }

    /// Holding or think times in s: that many times slower, at this pace, with half of the harness.
    pub(super) fn time(self, mean: Duration, pace: f64) -> Result<Times, Report> {
        Times::exponential(mean.as_secs_f64() * self.slowdown * pace + self.harness_ns / 2e9)
            .map_err(|error| miette!(code = "retrial::experiment::time", "{error}"))
    }

    pub(super) fn note(self) -> String {
        format!(
            "beside busy processors work takes {} times as long, a poll {} ns, a yield {} ns, the rest of a step {} ns; the harness takes {} ns a round, half of them in the section",
            short(self.slowdown),
            short(self.poll_ns),
            short(self.yield_ns),
            short(self.step_ns),
            short(self.harness_ns)
        )
    }
}
