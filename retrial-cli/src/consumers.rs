//! Everything that prints a measure prints the same number for the same profile: that of the table of
//! measures.

use crate::cmd::{show, what_if};
use crate::experiment::quantities::Quantity;
use crate::output::per;
use crate::predict::check::compare;
use crate::predict::condition::Condition;
use crate::predict::prediction::predict;
use crate::predict::recording::Holds;
use crate::recording::Snapshot;
use crate::run::outcome::Used;
use retrial::views::Counter;
use retrial::{Class, GetError, Mode, MutexId, Patience, location, wait};
use retrial_bench::cell::Cell;
use retrial_bench::load::Start;
use retrial_bench::ours::Ours;
use retrial_bench::outcome::{Kind, Outcome};
use retrial_bench::rounds::{Rounds, table};
use retrial_model::profile::{Samples, Waits};
use retrial_model::sim::{Arrivals, Machine, Workload, run};
use retrial_model::{Distribution, Function, Measure, Profile};
use serde_json::{Value, json};
use std::time::Duration;

/// A mutex with all figures: sessions that gave up, samples, waits under way, processor time.
fn profile() -> Profile {
    let mut profile = Profile {
        time_s: 2.0,
        gets: Some(1000),
        gets_by_session: vec![700, 300],
        sessions: Some(2),
        samples: Samples::over(500, 130, 2.0, 1000),
        waits: Some(Waits { p50_s: 1e-6, p99_s: 2e-5, p999_s: 3e-4, max_s: 4e-3 }),
        waiting_s: Some(0.5),
        cpu_s: Some(1.5),
        ..Profile::default()
    };
    let counters = [
        (Counter::Misses, 300),
        (Counter::Busy, 500),
        (Counter::Waits, 170),
        (Counter::Yields, 90),
        (Counter::Sleeps, 60),
        (Counter::Parks, 20),
        (Counter::GaveUp, 40),
        (Counter::WaitNs, 80_000_000),
        (Counter::SpinNs, 30_000_000),
        (Counter::YieldNs, 10_000_000),
        (Counter::SleptNs, 50_000_000),
        (Counter::OverNs, 9_000_000),
        (Counter::MaxNs, 3_000_000),
    ];
    for (counter, value) in counters {
        profile.figures.counters[counter as usize] = value;
    }
    profile.figures.lengths.count(200_000, 150);
    profile.figures.lengths.count(2_000_000, 20);
    profile
}

/// That a cell is the measure in the column's unit.
fn says(consumer: &str, found: &Value, measure: Measure, unit: &str, profile: &Profile) {
    let expected = measure.of(profile).map(|value| value * per(unit));
    let is_same = match (found.as_f64(), expected) {
        (Some(found), Some(expected)) => (found - expected).abs() <= 1e-9 * expected.abs(),
        (found, expected) => found.is_none() && expected.is_none(),
    };
    assert!(is_same, "{consumer}: {} is {found}, expected {expected:?}", measure.name());
}

#[test]
fn the_report_of_a_run_says_what_the_table_says() {
    let profile = profile();
    let used = Used {
        id: MutexId(1),
        name: String::new(),
        mutex_type: String::new(),
        pid: 1,
        address: 0,
        processes: 1,
        variable: None,
        profile: profile.clone(),
        places: Vec::new(),
        sessions: std::collections::HashSet::new(),
    };
    let row = &Used::table(&[used]).json()[0];
    for (name, measure, unit) in [
        ("gets_per_s", Measure::Throughput, ""),
        ("miss_ratio", Measure::MissRatio, ""),
        ("k", Measure::SpinInefficiency, ""),
        ("kappa", Measure::SleepRatio, ""),
        ("utilization", Measure::Utilization, ""),
        ("holding_us", Measure::HoldingTime, "us"),
        ("wait_ms", Measure::Registered, "ms"),
        ("avg_wait_ms", Measure::RegisteredMean, "ms"),
        ("p50_wait_ms", Measure::RegisteredP50, "ms"),
        ("p90_wait_ms", Measure::RegisteredP90, "ms"),
        ("p99_wait_ms", Measure::RegisteredP99, "ms"),
        ("max_wait_ms", Measure::RegisteredMax, "ms"),
        ("oversleep_pct", Measure::OverShare, "pct"),
    ] {
        says("run", &row[name], measure, unit, &profile);
    }
}

#[test]
fn the_bench_says_what_the_table_says() {
    // No more digits than the bench prints.
    let profile = profile();
    let outcomes = [Outcome { measured: Some(profile.clone()), ..Outcome::default() }];
    let (kind, start) = (Kind::Threads, Start::Together);
    let cell = Cell { sessions: 2, kind, cs: Duration::ZERO, think: Duration::ZERO, writes: 0, hogs: 0, start };
    let rows = table([Rounds { scheme: "orbit", copies: 1, cell, outcomes: &outcomes }]).json();
    for (name, measure, unit, digits) in [
        ("ops_per_s", Measure::Throughput, "", 1),
        ("cpu_s_per_s", Measure::BusyProcessors, "", 4),
        ("jain", Measure::Fairness, "", 4),
        ("wait_p99_us", Measure::WaitP99, "us", 3),
        ("wait_max_us", Measure::WaitMax, "us", 3),
        ("k", Measure::SpinInefficiency, "", 4),
        ("kappa", Measure::SleepRatio, "", 4),
        ("sleeps_per_s", Measure::SleepsPerS, "", 1),
    ] {
        let expected = crate::output::rounded(measure.of(&profile).unwrap() * per(unit), digits);
        assert_eq!(rows[0][name], json!(expected), "bench: {name}");
    }
}

#[test]
fn experiments_say_what_the_table_says() {
    let profile = profile();
    for (quantity, measure, unit) in [
        (Quantity::Throughput, Measure::Throughput, ""),
        (Quantity::Cpus, Measure::BusyProcessors, ""),
        (Quantity::CpuPerGet, Measure::ProcessorPerGet, "us"),
        (Quantity::MissRatio, Measure::MissRatio, ""),
        (Quantity::K, Measure::SpinInefficiency, ""),
        (Quantity::Kappa, Measure::SleepRatio, ""),
        (Quantity::Sleeps, Measure::SleepsPerS, ""),
        (Quantity::Waits, Measure::WaitsPerGet, ""),
    ] {
        says("experiment", &quantity.of(&profile).into(), measure, unit, &profile);
    }
}

fn workload() -> Workload {
    let time = |mean| Distribution::exponential(mean).unwrap();
    let arrivals = Arrivals::Closed { sessions: 4, think: time(2e-6), on_processor: true };
    let mut workload = Workload::new(arrivals, time(1e-6), 2e-3);
    workload.warm_up = 0.0;
    workload.machine = Machine::default();
    workload
}

/// The mean of a measure over two runs of the simulator, as a profile has it.
fn simulated(measure: Measure) -> f64 {
    let of = |seed| measure.of(&run(&workload(), seed).unwrap().profile).unwrap();
    f64::midpoint(of(1), of(2))
}

#[test]
fn predictions_say_what_the_table_says() {
    let (profile, prediction) = (profile(), predict(&workload(), &(1..3), &Holds::Given).unwrap());
    for row in compare(&profile, &prediction) {
        let (measure, unit) = match row.figure {
            "gets_per_s" => (Measure::Throughput, ""),
            "k" => (Measure::SpinInefficiency, ""),
            "kappa" => (Measure::SleepRatio, ""),
            "utilization" => (Measure::Utilization, ""),
            "wait_us" => (Measure::Wait, "us"),
            "cpus" => (Measure::BusyProcessors, ""),
            other => panic!("no measure known of `{other}`"),
        };
        says("advise", &row.measured.into(), measure, unit, &profile);
        assert!((row.simulated.unwrap() / (simulated(measure) * per(unit)) - 1.0).abs() < 1e-9, "{}", row.figure);
    }
    let condition: Condition = "k > 3%".parse().unwrap();
    let nobody_gave_up = {
        let mut before = profile.clone();
        before.figures.counters[Counter::GaveUp as usize] = 0;
        before
    };
    // 170 failed spins and 40 that gave up, of 500.
    assert!((condition.change(&nobody_gave_up, &profile).unwrap() - 100.0 * 40.0 / 170.0).abs() < 1e-9);
    let case = what_if::Predicted { workload: workload(), prediction: Ok(prediction) };
    let row = &what_if::table(&[case], None).json()[0];
    for (name, measure, unit) in [
        ("gets_per_s", Measure::Throughput, ""),
        ("miss_ratio", Measure::MissRatio, ""),
        ("k", Measure::SpinInefficiency, ""),
        ("kappa", Measure::SleepRatio, ""),
        ("wait_us", Measure::Wait, "us"),
        ("wait_max_us", Measure::WaitMax, "us"),
        ("fairness", Measure::Fairness, ""),
    ] {
        let found = row[name].as_f64().unwrap();
        assert!((found / (simulated(measure) * per(unit)) - 1.0).abs() < 1e-9, "what-if: {name} is {found}");
    }
}

#[test]
fn the_model_says_what_the_table_says() {
    let given = json!({ "dist": "exponential:mean=1us", "sessions": 4, "think": "exponential:mean=2us",
        "processors": 0, "replications": 2, "duration": "2ms", "warm_up": "0ms" });
    let found = Function::named("simulate").unwrap().call(given.as_object().unwrap()).unwrap();
    for measure in [Measure::Throughput, Measure::MissRatio, Measure::SpinInefficiency, Measure::Wait] {
        let found = found[measure.name()].as_f64().unwrap();
        let (workload, seeds) = retrial_model::catalogue::simulated(given.as_object().unwrap()).unwrap();
        let of = |seed| measure.of(&run(&workload, seed).unwrap().profile).unwrap();
        let expected = f64::midpoint(of(seeds.start), of(seeds.start + 1));
        assert!((found / expected - 1.0).abs() < 1e-9, "simulate: {} is {found}", measure.name());
    }
}

#[test]
fn the_views_of_an_instance_say_what_the_table_says() {
    let ours = Ours::new(2, wait::DEFAULT, &[]).unwrap();
    let session = |name| ours.instance.session(name, Class::Normal).unwrap();
    let (holder, waiter) = (session("holder"), session("waiter"));
    let mutex = &ours.place[0].mutex;
    // SAFETY: a session of the instance that the mutex is of; the same below.
    let held = unsafe { mutex.get(&holder, Mode::Exclusive, location!("consumers"), Patience::None) }.unwrap();
    let deadline = retrial::sys::Deadline::after(Duration::from_millis(2));
    // SAFETY: as above.
    let got = unsafe { mutex.get(&waiter, Mode::Exclusive, location!("consumers"), Patience::Until(deadline)) };
    assert!(matches!(got, Err(GetError::TimedOut)));
    drop(held);
    let info = &ours.instance.tables().mutexes()[0];
    let by_mutex = Profile::of(ours.instance.tables(), |_, key| Some(key.mutex));
    // Its gets are read in this process's memory.
    let profile =
        Profile { gets: Some(mutex.gets()), ..Profile::of_mutex(ours.instance.tables(), info, by_mutex.get(&info.id)) };
    let row = &show::figures::mutexes(&Snapshot::of(ours.instance.tables()), &show::Only::default()).json()[0];
    for (name, measure, unit) in [
        ("miss_ratio", Measure::MissRatio, ""),
        ("sleep_ratio", Measure::SleepRatio, ""),
        ("spin_inefficiency", Measure::SpinInefficiency, ""),
        ("wait_ms", Measure::Registered, "ms"),
    ] {
        says("show mutexes", &row[name], measure, unit, &profile);
    }
    // The parts of a whole add up, whatever they are: mutex and location, session.
    let whole = Profile::of(ours.instance.tables(), |_, _| Some(()));
    for parts in [
        Profile::of(ours.instance.tables(), |_, key| Some((key.mutex.0, key.location.0))),
        Profile::of(ours.instance.tables(), |sid, _| Some((sid.number(), 0))),
    ] {
        let sum = Profile::sum(parts.values());
        for measure in [Measure::SpinInefficiency, Measure::SleepRatio, Measure::Registered, Measure::OverShare] {
            assert_eq!(measure.of(&sum), measure.of(&whole[&()]), "{}", measure.name());
        }
    }
}
