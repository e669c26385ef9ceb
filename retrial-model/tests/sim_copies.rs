//! Copies of the simulated mutex against queueing theory: each number within the simulation's own interval of
//! 99 %, at fixed seeds.

use retrial::P;
use retrial::views::Params;
use retrial_model::Distribution;
use retrial_model::sim::{Arrivals, Machine, Measure, Outcome, Spread, Workload, replicate, run};

/// Mean holding time in s.
const S: f64 = 1e-4;

/// On a machine where nothing costs anything; spins for longer than any wait lasts.
fn workload(arrivals: Arrivals, copies: u32) -> Workload {
    let mut workload = Workload::new(arrivals, Distribution::exponential(S).unwrap(), 20_000.0 * S);
    let scheme = retrial::wait::named("10g").unwrap() as u64;
    workload.params = Params::default().with(P::Scheme, scheme).with(P::SpinCount, 10_000_000);
    workload.machine = Machine::ideal();
    workload.warm_up = 500.0 * S;
    workload.copies = copies;
    workload
}

fn agrees(workload: &Workload, measure: Measure, expected: f64) {
    let found = replicate(workload, 1..9).unwrap().get(measure).unwrap();
    let half = found.half_width(0.99);
    assert!(half < 0.1 * expected, "the interval of {} says nothing: {} ± {half}", measure.name(), found.mean);
    assert!(found.covers(expected, 0.99), "{}: {} ± {half}, theory {expected}", measure.name(), found.mean);
}

#[test]
fn copies_of_an_open_system_are_as_many_queues() {
    for copies in [1, 2, 5] {
        let workload = workload(Arrivals::Open { rate: 0.7 * f64::from(copies) / S }, copies);
        agrees(&workload, Measure::Utilization, 0.7);
        agrees(&workload, Measure::Wait, 0.7 * S / 0.3);
    }
}

#[test]
fn copies_of_a_closed_system_are_a_network_of_queues() {
    // Sessions without thought on m equal exponential queues, n sessions: X = n/(n + m - 1) of m/S (product form).
    let think = Distribution::exponential(S * 1e-6).unwrap();
    for (sessions, copies) in [(3, 2), (8, 4)] {
        let arrivals = Arrivals::Closed { sessions, think: think.clone(), on_processor: true };
        let (n, m) = (f64::from(sessions), f64::from(copies));
        agrees(&workload(arrivals, copies), Measure::Throughput, n / (n + m - 1.0) * m / S);
    }
}

#[test]
fn sessions_take_the_copy_of_their_processor() {
    // Each session stays on its processor. With a copy for each of them no get misses; with half as many, two
    // sessions have one: machine repairman, 1/5 of the time both think.
    let think = Distribution::exponential(S).unwrap();
    let on = |copies: u32| {
        let arrivals = Arrivals::Closed { sessions: 8, think: think.clone(), on_processor: true };
        let mut workload = workload(arrivals, copies);
        workload.machine.processors = Some(8);
        workload.spread = Spread::Processor;
        workload
    };
    assert_eq!(run(&on(8), 3).unwrap().profile.figures.get(retrial::views::Counter::Misses), 0);
    agrees(&on(4), Measure::Throughput, 4.0 * 0.8 / S);
    let anyhow = Workload { spread: Spread::Random, ..on(8) };
    assert!(run(&anyhow, 3).unwrap().profile.count(retrial::views::Counter::Misses) > 100.0);
}

#[test]
fn every_scheme_goes_on_with_copies_on_two_processors() {
    let summary = |outcome: &Outcome| (outcome.profile.gets.unwrap(), outcome.events, outcome.profile.figures);
    for scheme in 0..retrial::wait::NAMES.len() {
        let think = Distribution::exponential(S).unwrap();
        let mut workload = workload(Arrivals::Closed { sessions: 12, think, on_processor: true }, 3);
        workload.params = Params::default().with(P::Scheme, scheme as u64);
        workload.machine = Machine::default();
        let outcome = run(&workload, 7).unwrap();
        let name = retrial::wait::NAMES[scheme];
        assert!(outcome.profile.gets.unwrap() > 1000, "{name}: {} gets", outcome.profile.gets.unwrap());
        assert_eq!(outcome.profile.gets_by_session.iter().filter(|gets| **gets == 0).count(), 0, "{name}");
        assert_eq!(
            summary(&outcome),
            summary(&run(&workload, 7).unwrap()),
            "{name}: the same seed gives the same events"
        );
    }
}
