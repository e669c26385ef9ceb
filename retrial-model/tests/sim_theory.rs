//! The simulator against queueing theory: each number within the simulation's own interval of 99 %, at fixed seeds.

use retrial::P;
use retrial::views::Params;
use retrial_model::Distribution;
use retrial_model::sim::{Arrivals, Estimates, Machine, Measure, Sleeps, Workload, replicate};
use std::time::Duration;

const CONFIDENCE: f64 = 0.99;

/// Unit of time of these tests, in s: the mean holding time.
const S: f64 = 1e-4;

fn distribution(text: &str) -> Distribution {
    text.parse().unwrap()
}

fn exponential(mean: f64) -> Distribution {
    Distribution::exponential(mean).unwrap()
}

fn hyperexponential() -> Distribution {
    distribution("hyperexponential:probabilities=0.9/0.1,means=50us/550us")
}

fn scheme(name: &str) -> Params {
    Params::default().with(P::Scheme, retrial::wait::named(name).unwrap() as u64)
}

/// Spins for longer than any wait lasts.
fn endless(params: Params) -> Params {
    params.with(P::SpinCount, 10_000_000)
}

/// The paper's discipline: spins of `spin` holding times, sleeps of 10 ms by the mean, losers of a race sleep at once.
fn discipline_a(spin: f64) -> Params {
    let polls = Duration::from_secs_f64(spin * S).as_nanos() as u64;
    scheme("patch6904068").with(P::SpinCount, polls).with(P::OnLostRace, 1)
}

/// On a machine where nothing costs anything, in units of S.
fn ideal(arrivals: Arrivals, hold: Distribution, params: Params, duration: f64) -> Workload {
    let mut workload = Workload::new(arrivals, hold, duration * S);
    workload.warm_up = 0.05 * duration * S;
    workload.params = params;
    workload.machine = Machine::ideal();
    workload.sleeps = Sleeps::Exponential;
    workload
}

fn open(utilization: f64) -> Arrivals {
    Arrivals::Open { rate: utilization / S }
}

fn closed(sessions: u32, think: f64) -> Arrivals {
    Arrivals::Closed { sessions, think: exponential(think * S), on_processor: true }
}

/// Simulates, and compares what theory says (times in units of S).
fn agrees(case: &str, workload: &Workload, expected: &[(Measure, f64)]) {
    let estimates = replicate(workload, 1..11).unwrap();
    for &(measure, value) in expected {
        let unit = match measure.unit() {
            "s" => S,
            "1/s" => 1.0 / S,
            _ => 1.0,
        };
        let found = estimates.get(measure).unwrap();
        let (mean, half) = (found.mean / unit, found.half_width(CONFIDENCE) / unit);
        println!("{case}: {} {mean:.6} ± {half:.6}, theory {value:.6}", measure.name());
        assert!(half < 0.1 * value.abs(), "{case}: the interval of {} says nothing: {mean} ± {half}", measure.name());
        assert!(found.covers(value * unit, CONFIDENCE), "{case}: {} {mean} ± {half}, theory {value}", measure.name());
    }
    holds_littles_law(case, &estimates);
}

fn holds_littles_law(case: &str, estimates: &Estimates) {
    let mean = |measure| estimates.get(measure).unwrap().mean;
    let (waiting, product) = (mean(Measure::Waiting), mean(Measure::Throughput) * mean(Measure::Wait));
    // Both are of the same runs: they differ by the waits that cross the ends alone.
    assert!((waiting - product).abs() <= 0.02 * waiting, "{case}: L = {waiting}, λW = {product}");
}

/// Mean residual holding time seen by a miss, in units of S.
fn residual(hold: &Distribution) -> f64 {
    hold.second_moment() / (2.0 * hold.mean()) / S
}

#[test]
fn a_queue_that_wastes_no_time_is_pollaczek_and_khinchines() {
    let rho = 0.7;
    for (scheme_name, hold) in [
        ("10g", exponential(S)),
        ("10g", distribution("deterministic:mean=100us")),
        ("backoff", hyperexponential()),
        ("pthread", exponential(S)),
        ("pthread", distribution("deterministic:mean=100us")),
        ("latch", distribution("erlang:stages=4,mean=100us")),
        ("orbit", exponential(S)),
    ] {
        let wait = rho * residual(&hold) / (1.0 - rho);
        let case = format!("M/G/1, {scheme_name}, S_r = {:.3} S", residual(&hold));
        let workload = ideal(open(rho), hold, endless(scheme(scheme_name)), 60_000.0);
        let throughput = (Measure::Throughput, rho);
        agrees(
            &case,
            &workload,
            &[throughput, (Measure::Utilization, rho), (Measure::MissRatio, rho), (Measure::Wait, wait)],
        );
    }
}

#[test]
fn without_a_spin_it_is_the_retrial_queue() {
    // T = 10 ms = 100 S. W = ρ(T + S_r)/(1 − ρ), all of it asleep: the M/G/1 retrial queue.
    let (rho, sleep) = (0.5, 100.0);
    for hold in [exponential(S), hyperexponential()] {
        let wait = rho * (sleep + residual(&hold)) / (1.0 - rho);
        let case = format!("retrial queue, S_r = {:.3} S", residual(&hold));
        let workload = ideal(open(rho), hold, discipline_a(0.0), 60_000.0);
        let sleeps = (Measure::SleepsPerGet, wait / sleep);
        agrees(&case, &workload, &[(Measure::Wait, wait), sleeps, (Measure::MissRatio, rho)]);
        let inefficiency = replicate(&workload, 1..3).unwrap().get(Measure::SpinInefficiency).unwrap().mean;
        // But for the sleeps that the end has cut off.
        assert!((inefficiency - 1.0).abs() < 5e-3, "every try without a spin fails: {inefficiency}");
    }
}

#[test]
fn a_closed_population_is_the_machine_repairman() {
    for (sessions, think) in [(1, 5.0), (4, 5.0), (10, 5.0)] {
        // P(n at the mutex) ∝ N!/(N − n)! (S/Z)^n.
        let mut weight = 1.0;
        let mut sum = 1.0;
        for n in 0..sessions {
            weight *= f64::from(sessions - n) / think;
            sum += weight;
        }
        let throughput = 1.0 - 1.0 / sum;
        let wait = f64::from(sessions) / throughput - think - 1.0;
        let workload = ideal(closed(sessions, think), exponential(S), endless(scheme("10g")), 40_000.0);
        let case = format!("M/M/1//{sessions}");
        let expected = [(Measure::Throughput, throughput), (Measure::Utilization, throughput), (Measure::Wait, wait)];
        // Alone nobody waits.
        agrees(&case, &workload, if sessions > 1 { &expected } else { &expected[..2] });
    }
}

/// k, Γ, W and sleeps per get under the paper's discipline; computed from the Markov chain of the sleepers at
/// the gets by an independent implementation with quadrature over the holding time.
#[test]
fn the_papers_discipline_is_its_exact_chain() {
    let chain = |k, spin_time, wait, sleeps| {
        [
            (Measure::SpinInefficiency, k),
            (Measure::SpinTime, spin_time),
            (Measure::Wait, wait),
            (Measure::SleepsPerGet, sleeps),
        ]
    };
    let rare = ideal(open(0.3), exponential(S), discipline_a(1.0), 40_000.0);
    let expected = chain(0.451_175_863_4, 0.632_120_558_8, 15.950_530_95, 0.157_301_435_6);
    agrees("open chain, exponential", &rare, &expected);

    let skewed = ideal(open(0.6), hyperexponential(), discipline_a(2.0), 60_000.0);
    let expected = chain(0.625_344_892_8, 1.148_478_219, 62.682_578_12, 0.615_521_412_3);
    agrees("open chain, hyperexponential", &skewed, &expected);

    // T = 100 S, and 12 sessions with Z = 8 S.
    let few = ideal(closed(12, 8.0), hyperexponential(), discipline_a(1.0), 60_000.0);
    let mut expected = chain(0.530_770_189_9, 0.656_727_968_1, 21.235_080_51, 0.209_755_476_8).to_vec();
    expected.push((Measure::Throughput, 0.396_889_963_5));
    agrees("closed chain, hyperexponential", &few, &expected);
}

/// The same with T = 10 S: sleeps that are not much longer than holding times.
#[test]
fn short_sleeps_follow_the_chain_too() {
    const SCALE: f64 = 10.0;
    for (case, hold, spin, k, spin_time, wait) in [
        ("exponential", "exponential:mean=1ms", 2.0, 0.487_840_494_9, 0.864_664_716_8, 5.109_201_314),
        ("deterministic", "deterministic:mean=1ms", 0.5, 0.603_586_091_7, 0.373_965_743_7, 6.185_887_946),
    ] {
        let workload = ideal(open(0.6 / SCALE), distribution(hold), discipline_a(spin * SCALE), 300_000.0);
        let expected =
            [(Measure::SpinInefficiency, k), (Measure::SpinTime, spin_time * SCALE), (Measure::Wait, wait * SCALE)];
        agrees(&format!("open chain, T = 10 S, {case}"), &workload, &expected);
    }
}

/// Losers that spin on, for which no closed form is known: k, Γ and W with their intervals of 99 % (each way)
/// by an independent simulation of 1,500,000 gets.
#[test]
fn losers_that_spin_on_are_as_an_independent_simulation_has_them() {
    for (hold, spin, rho, inefficiency, spin_time, wait) in [
        (exponential(S), 2.0, 0.5, (0.2649, 0.0018), (1.0814, 0.0029), (15.94, 0.17)),
        (exponential(S), 5.0, 0.5, (0.0752, 0.0012), (1.6181, 0.0066), (4.776, 0.089)),
        (hyperexponential(), 2.0, 0.3, (0.4273, 0.0035), (1.2160, 0.0055), (15.44, 0.28)),
    ] {
        let workload = ideal(open(rho), hold, discipline_a(spin).with(P::OnLostRace, 0), 100_000.0);
        let estimates = replicate(&workload, 1..11).unwrap();
        for (measure, (value, half), unit) in [
            (Measure::SpinInefficiency, inefficiency, 1.0),
            (Measure::SpinTime, spin_time, S),
            (Measure::Wait, wait, S),
        ] {
            let found = estimates.get(measure).unwrap();
            let allowed = (half * unit).hypot(found.half_width(CONFIDENCE));
            let name = measure.name();
            println!("spin {spin}, ρ {rho}: {name} {} ± {}, expected {value}", found.mean / unit, allowed / unit);
            assert!(
                (found.mean - value * unit).abs() <= allowed,
                "spin {spin}: {name} {}, expected {value}",
                found.mean / unit
            );
        }
        holds_littles_law("losers spin on", &estimates);
    }
}
