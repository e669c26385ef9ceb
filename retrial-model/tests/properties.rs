//! What must hold between the formulas, whatever the distribution, and at the edges of their domains.

use rand::SeedableRng;
use rand::rngs::StdRng;
use retrial_model::chain;
use retrial_model::closed::{self, Branch, Population};
use retrial_model::closure;
use retrial_model::scheme::Prefix;
use retrial_model::tuning;
use retrial_model::wait::Orbit;
use retrial_model::{CallError, Distribution, Function, ModelError, functions, leftover, spin, statistics, tagged};
use serde_json::{Map, Value, json};

const FAMILIES: [&str; 15] = [
    "deterministic:mean=1us",
    "exponential:mean=1us",
    "erlang:stages=4,mean=1us",
    "gamma:shape=0.3,mean=1us",
    "gamma:shape=2.5,mean=1us",
    "gamma:shape=900,mean=1us",
    "hyperexponential:probabilities=0.9/0.1,means=0.5us/5.5us",
    "lognormal:median=1us,sigma=1.2",
    "lognormal:median=1us,sigma=0.1",
    "pareto:minimum=1us,shape=2.5",
    "pareto:minimum=1us,shape=1.5",
    "lomax:scale=2us,shape=3",
    "uniform:low=0.5us,high=2us",
    "histogram:edges=0us/1us/2us/5us/20us,weights=5/0/3/1",
    "sample:values=1us/0.3us/7us/1us/2.2us",
];

fn families() -> impl Iterator<Item = Distribution> {
    FAMILIES.iter().map(|text| text.parse().unwrap())
}

fn close(found: f64, expected: f64, error: f64, place: &str) {
    assert!((found - expected).abs() <= error * expected.abs(), "{place}: {found:e}, expected {expected:e}");
}

#[test]
fn slopes_of_one_miss_are_those_of_the_integrals() {
    for dist in families() {
        let mean = dist.mean();
        // Between the values of a sample and the edges of a histogram.
        for limit in [0.013, 0.37, 0.61, 1.53, 3.7, 11.1].map(|limit| limit * mean) {
            let (place, step) = (format!("{:?} {limit:e}", dist.family()), limit * 1e-4);
            let slope = |f: &dyn Fn(f64) -> f64| (f(limit + step) - f(limit - step)) / (2.0 * step);
            let k0 = dist.inefficiency(limit);
            if k0 > 1e-9 {
                close(slope(&|x| dist.inefficiency(x)), -dist.survival(limit) / mean, 1e-3, &place);
            }
            if k0 > 1e-6 {
                close(slope(&|x| dist.spin_time(x)), k0, 1e-4, &place);
            }
            if let (Some(all), Some(remaining)) = (dist.residual_mean(), dist.remaining(limit)) {
                close(dist.spin_time(limit) + remaining, all, 1e-12, &place);
            }
            assert!(dist.spin_time(limit) <= limit * (1.0 + 1e-15), "{place}");
            close(dist.minimum(limit) + dist.excess(limit), mean, 1e-12, &place);
        }
        assert_eq!((dist.inefficiency(0.0), dist.spin_time(0.0)), (1.0, 0.0));
        // As a small limit goes to 0: Γ = ∆, k₀ = 1.
        close(dist.spin_time(1e-12 * mean), 1e-12 * mean, 1e-6, "small");
    }
}

#[test]
fn a_think_time_of_nothing_is_an_error_where_numbers_end() {
    let holding: Distribution = "deterministic:mean=79.7us".parse().unwrap();
    let found = chain::closed(&holding, 24e-6, 60.0, 1e-9, 1e-2);
    assert!(matches!(found, Err(ModelError::Overflow { name: "misses", .. })), "{found:?}");
}

#[test]
fn k_falls_from_one_to_its_floor_and_without_competition_to_k0() {
    for dist in families() {
        let (mean, place) = (dist.mean(), format!("{:?}", dist.family()));
        let rate = 0.3 / mean;
        close(spin::inefficiency(&dist, 0.0, rate).unwrap(), 1.0, 1e-15, &place);
        let mut before = 1.0;
        for limit in [0.1, 0.5, 1.0, 3.0, 30.0, 1e4].map(|limit| limit * mean) {
            let k = spin::inefficiency(&dist, limit, rate).unwrap();
            let k0 = dist.inefficiency(limit);
            assert!(k <= before * (1.0 + 1e-13) && k >= k0, "{place} {limit:e}: {before:e} {k:e} {k0:e}");
            close(1.0 - k, dist.transform(rate, limit) / mean, 1e-9, &place);
            assert!(spin::inefficiency_paper(&dist, limit, rate).unwrap() <= k, "{place}");
            close(spin::inefficiency(&dist, limit, 0.0).unwrap(), dist.inefficiency(limit), 1e-15, &place);
            before = k;
        }
        let floor = spin::floor(&dist, rate).unwrap();
        let limit = before * (1.0 + 1e-13);
        assert!(floor <= limit && (dist.residual_mean().is_none() || before < floor * 1.001 + 1e-9), "{place}");
    }
}

#[test]
fn losers_that_spin_on_fail_less_than_those_that_sleep_and_more_than_one_alone() {
    for dist in families() {
        let (mean, place) = (dist.mean(), format!("{:?}", dist.family()));
        for (limit, utilization) in [(0.3, 0.1), (1.6, 0.8)] {
            let (limit, rate) = (limit * mean, utilization / mean);
            let found = leftover::open(&dist, limit, rate).unwrap();
            let sleeping = spin::open(&dist, limit, rate).unwrap().inefficiency;
            let (k, alone) = (found.inefficiency, dist.inefficiency(limit));
            assert!(alone < k && k < sleeping * (1.0 + 1e-6), "{place} {limit:e}: {alone} {k} {sleeping}");
            assert!(found.spin_time > dist.spin_time(limit) * 0.999 && found.leftover > 0.0, "{place}: {found:?}");
            // Little's law of attempts.
            close(found.attempt_rate, rate / (1.0 - k * utilization), 1e-9, &place);
        }
        // With few requests both say the same.
        let few = leftover::open(&dist, 0.8 * mean, 1e-4 / mean).unwrap();
        let linear = leftover::linear(&dist, 0.8 * mean, few.attempt_rate).unwrap();
        assert!((few.inefficiency - linear).abs() < 1e-7, "{place}: {few:?} {linear}");
    }
    // A time that is always the same and longer than the limit: a loser has no second release.
    let dist: Distribution = "deterministic:mean=1us".parse().unwrap();
    let (on, off) = (leftover::open(&dist, 0.8e-6, 5e5).unwrap(), spin::open(&dist, 0.8e-6, 5e5).unwrap());
    close(on.inefficiency, off.inefficiency, 1e-8, "deterministic");
    // Where it fails it says so.
    let dist: Distribution = "erlang:stages=4,mean=1us".parse().unwrap();
    assert!(matches!(leftover::open(&dist, 5e-6, 1e5), Err(ModelError::Domain { name: "limit", .. })));
}

#[test]
fn yields_under_competition_are_between_none_and_those_at_low_load() {
    for dist in families().filter(|dist| dist.residual_mean().is_some()) {
        let (mean, place) = (dist.mean(), format!("{:?}", dist.family()));
        let with = |limit: f64, utilization: f64, yields: f64| {
            tagged::open(&dist, limit * mean, utilization / mean, 1e4 * mean, yields, 0.5 * mean).unwrap()
        };
        // Without yields it is the open system; alone it is the low-load form. Both up to the cells of ages.
        let (none, open) = (with(0.8, 0.5, 0.0), spin::open(&dist, 0.8 * mean, 0.5 / mean).unwrap());
        close(none.prefix.all_fail, open.inefficiency, 0.03, &place);
        assert_eq!((none.yields, none.idle), (0.0, 0.0));
        let few = with(0.8, 1e-6, 1.0);
        let alone = Prefix::new(&dist, 0.8 * mean, 1e-6 / mean, 1e4 * mean, 1.0, 0.5 * mean).unwrap();
        assert!((few.prefix.all_fail - alone.all_fail).abs() < 0.03, "{place}: {few:?} {alone:?}");
        // Competition costs, a yield spares sleeps.
        let (one, two) = (with(0.8, 0.5, 1.0), with(0.8, 0.5, 2.0));
        assert!(one.prefix.all_fail > alone.all_fail && one.prefix.all_fail < none.prefix.all_fail, "{place}");
        assert!(two.wait().unwrap() < one.wait().unwrap() && one.wait().unwrap() < none.wait().unwrap(), "{place}");
        assert!(one.idle < 0.5 * mean && one.prefix.duration < 2.1 * mean, "{place}: {one:?}");
    }
}

#[test]
fn unequal_copies_cost_more_than_equal_ones_and_as_much_when_they_are_equal() {
    let dist: Distribution = "erlang:stages=4,mean=1us".parse().unwrap();
    let equal = tuning::shared(&dist, 2e-6, 1e6, 1e-3, 4.0, 0.0).unwrap();
    let shares = |shares: &[f64]| tuning::unequal(&dist, 2e-6, 1e6, 1e-3, shares);
    let same = shares(&[3.0; 4]).unwrap();
    close(same.waiting, equal.waiting, 1e-12, "equal");
    close(same.sleep_rate, equal.sleep_rate, 1e-12, "equal");
    close(same.copies, 4.0, 1e-12, "equal");
    assert!(shares(&[4.0, 3.0, 3.0, 2.0]).unwrap().waiting > equal.waiting);
    assert!(matches!(shares(&[1.0, 0.0]), Err(ModelError::NoSteadyState { .. })));
}

#[test]
fn an_open_system_meets_both_of_its_balances_up_to_full_load() {
    for dist in families() {
        let mean = dist.mean();
        for utilization in [1e-9, 0.1, 0.7, 0.99, 1.0 - 1e-9] {
            let (rate, limit) = (utilization / mean, 2.0 * mean);
            let found = spin::open(&dist, limit, rate).unwrap();
            let place = format!("{:?} {utilization}", dist.family());
            close(found.attempt_rate, rate / (1.0 - found.inefficiency * utilization), 1e-6, &place);
            let other = statistics::inefficiency(found.sleep_ratio, rate * mean).unwrap();
            close(other, found.inefficiency, 1e-9, &place);
        }
        let refused = spin::open(&dist, mean, 1.0 / mean * (1.0 + 1e-12));
        assert!(matches!(refused, Err(ModelError::NoSteadyState { .. })), "{refused:?}");
    }
}

#[test]
fn the_wait_goes_over_into_the_queues_that_are_known() {
    for dist in families().filter(|dist| dist.residual_mean().is_some()) {
        let (mean, residual, rho) = (dist.mean(), dist.residual_mean().unwrap(), 0.6);
        let orbit = |k: f64, limit: f64, sleep: f64| Orbit {
            utilization: rho,
            inefficiency: k,
            spin_time: dist.spin_time(limit),
            residual_mean: residual,
            sleep,
        };
        let queue = rho * residual / (1.0 - rho);
        close(orbit(0.5, mean, 0.0).waits().unwrap().wait, queue, 1e-12, "M/G/1");
        let retrial = rho * (mean + residual) / (1.0 - rho);
        close(orbit(1.0, 0.0, mean).waits().unwrap().wait, retrial, 1e-12, "M/G/1 retrial");
        let long = orbit(0.4, mean, 1e6 * mean);
        close(long.waits_paper().unwrap().wait, long.waits().unwrap().wait, 1e-5, "long sleeps");
    }
}

#[test]
fn chains_keep_littles_law_and_the_busy_time_identity() {
    for text in
        ["deterministic:mean=1us", "exponential:mean=1us", "uniform:low=0.5us,high=2us", "gamma:shape=2.5,mean=1us"]
    {
        let dist: Distribution = text.parse().unwrap();
        let (mean, residual, rho) = (dist.mean(), dist.residual_mean().unwrap(), 0.5);
        for (limit, sleep) in [(0.0, 5.0), (0.6, 1.0), (1.7, 20.0)] {
            let open = chain::open(&dist, limit * mean, rho / mean, sleep * mean).unwrap();
            close(open.throughput * mean, rho, 1e-9, text);
            close(open.wait, (rho * residual + open.idle_wait) / (1.0 - rho), 1e-9, text);
            if limit == 0.0 {
                close(open.wait, rho * (sleep * mean + residual) / (1.0 - rho), 1e-9, text);
            }
            for sessions in [1.0, 2.0, 7.0] {
                let think = 4.0 * mean;
                let closed = chain::closed(&dist, limit * mean, sessions, think, sleep * mean).unwrap();
                close(closed.throughput * (think + mean + closed.wait), sessions, 1e-9, text);
                assert!(sessions > 1.0 || closed.wait.abs() < 1e-12 * sleep * mean, "{text}: {closed:?}");
            }
        }
        // Many sessions that think long are an open system; the mean field of many sessions is the chain's.
        let (think, sleep) = (200.0 * mean, 30.0 * mean);
        let many = chain::closed(&dist, mean, 120.0, think, sleep).unwrap();
        let field = closed::sleeping(&dist, mean, Population { sessions: 120.0, think, away: false }, sleep).unwrap();
        close(field.throughput, many.throughput, 0.02, text);
    }
}

#[test]
fn closed_systems_begin_with_one_session_and_end_at_the_mutex() {
    let dist: Distribution = "exponential:mean=1us".parse().unwrap();
    let alone = |sessions: f64| Population { sessions, think: 4e-6, away: false };
    let systems = |population| {
        [
            closed::spinning(&dist, 2e-6, population, 1e-6).unwrap(),
            closed::fifo(&dist, 2e-6, population, 5e-6, Branch::Spinning).unwrap(),
            closed::fifo(&dist, 2e-6, population, 0.0, Branch::Convoy).unwrap(),
            closed::barging(&dist, 2e-6, population, 5e-6).unwrap(),
            closed::sleeping(&dist, 2e-6, population, 1e-3).unwrap(),
        ]
    };
    for (i, system) in systems(alone(1.0)).iter().enumerate() {
        // The mean field is for many.
        if i < 4 {
            close(system.throughput, 2e5, 1e-9, "alone");
            assert!(system.wait.abs() < 1e-15, "{system:?}");
        }
    }
    for (system, population) in systems(alone(50.0)).iter().zip(std::iter::repeat(alone(50.0))) {
        close(system.throughput * (population.think + 1e-6 + system.wait), 50.0, 1e-9, "Little");
        assert!(system.utilization <= 1.0 + 1e-12, "{system:?}");
    }
    let convoy = closed::fifo(&dist, 2e-6, alone(50.0), 5e-6, Branch::Convoy).unwrap();
    close(convoy.throughput, 1.0 / 6e-6, 0.05, "convoy");
}

#[test]
fn the_closure_is_the_chain_for_two_sessions_and_near_it_for_more() {
    for text in [
        "exponential:mean=1us",
        "hyperexponential:probabilities=0.9/0.1,means=0.5us/5.5us",
        "lognormal:median=1us,sigma=0.5",
    ] {
        let dist: Distribution = text.parse().unwrap();
        let mean = dist.mean();
        for (limit, think, sleep) in [(0.6, 3.0, 20.0), (2.1, 0.5, 4.0)].map(|(d, z, t)| (d * mean, z * mean, t * mean))
        {
            let closure = |sessions: f64, yields: f64| {
                closure::closed(&dist, limit, Population { sessions, think, away: false }, sleep, yields, 0.7 * mean)
                    .unwrap()
            };
            let (two, exact) = (closure(2.0, 0.0), chain::closed(&dist, limit, 2.0, think, sleep).unwrap());
            close(two.throughput, exact.throughput, 1e-8, text);
            close(two.wait, exact.wait, 1e-6, text);
            close(two.sleeps, exact.sleeps, 1e-6, text);
            let (some, exact) = (closure(7.0, 0.0), chain::closed(&dist, limit, 7.0, think, sleep).unwrap());
            close(some.throughput, exact.throughput, 0.05, text);
            assert!((some.throughput / exact.throughput - 1.0).abs() > 1e-6, "{text}: it is not exact for seven");
            // A yield before the first sleep spares some.
            let (one, twice) = (closure(3.0, 1.0), closure(3.0, 2.0));
            let none = closure(3.0, 0.0);
            assert!(none.sleeps > one.sleeps && one.sleeps > twice.sleeps && twice.sleeps > 0.0, "{text}: {none:?}");
            assert!(none.yields == 0.0 && one.yields > 0.0 && twice.yields > one.yields, "{text}: {one:?} {twice:?}");
            // All that a session does adds up to its cycle: it spins and yields for no longer than it waits.
            for system in [one, twice] {
                close(system.throughput * (think + mean + system.wait), 3.0, 1e-9, text);
                assert!(system.wait > system.sleeps * sleep, "{text}: {system:?}");
            }
        }
    }
    let dist: Distribution = "exponential:mean=1us".parse().unwrap();
    let refused = |sessions: f64, yields: f64| {
        let population = Population { sessions, think: 1e-6, away: false };
        closure::closed(&dist, 1e-6, population, 1e-3, yields, 1e-6).unwrap_err().to_string()
    };
    assert_eq!(refused(2.5, 0.0), "sessions 2.5, expected a whole number from 1");
    assert_eq!(refused(1001.0, 0.0), "sessions 1001, expected at most 1000");
    assert_eq!(refused(2.0, 11.0), "yields 11, expected at most 10");
    let one =
        closure::closed(&dist, 1e-6, Population { sessions: 1.0, think: 1e-6, away: false }, 1e-3, 1.0, 1e-6).unwrap();
    assert_eq!((one.throughput, one.wait, one.runnable), (5e5, 0.0, 1.0));
}

#[test]
fn no_other_spin_limit_is_cheaper_than_the_best() {
    for dist in families() {
        let mean = dist.mean();
        for (b, rate) in [(0.3, 0.0), (1.2, 0.0), (4.0, 0.0), (1.2, 0.2), (4.0, 0.2)] {
            let (b, rate) = (b * mean, rate / mean);
            let best = tuning::limit(&dist, b, rate).unwrap();
            for i in 0..120 {
                let limit = mean * 1e-3 * 1.12_f64.powi(i);
                let other = tuning::cost(&dist, limit, b, rate).unwrap();
                assert!(
                    best.cost <= other * (1.0 + 1e-9),
                    "{:?} {b:e} {rate:e}: {best:?} {limit:e} {other:e}",
                    dist.family()
                );
            }
        }
    }
}

#[test]
fn samples_have_the_mean_and_the_tail_of_their_distribution() {
    let mut rng = StdRng::seed_from_u64(7);
    for dist in families() {
        const N: i32 = 40_000;
        let limit = 1.3 * dist.mean();
        let (mut sum, mut above) = (0.0, 0.0);
        for _ in 0..N {
            let x = dist.sample(&mut rng);
            sum += x.min(limit);
            above += f64::from(x > limit);
        }
        let n = f64::from(N);
        let share = dist.survival(limit);
        let spread = (share * (1.0 - share) / n).sqrt();
        assert!((above / n - share).abs() <= 4.5 * spread + 1e-12, "{:?} {above} {share}", dist.family());
        let expected = dist.minimum(limit);
        let deviation = ((dist.minimum_squared(limit) - expected * expected).max(0.0) / n).sqrt();
        assert!((sum / n - expected).abs() <= 4.5 * deviation + 1e-12 * limit, "{:?}", dist.family());
    }
}

#[test]
fn distributions_survive_json_and_wrong_ones_are_refused() {
    for dist in families() {
        let text = serde_json::to_string(&dist).unwrap();
        assert_eq!(serde_json::from_str::<Distribution>(&text).unwrap(), dist);
    }
    for (text, expected) in [
        ("exponential:mean=0us", "mean 0, expected a positive number"),
        ("pareto:minimum=1us,shape=1", "shape 1, expected a number above 1"),
        ("uniform:low=2us,high=1us", "high 0.000001, expected more than low"),
        ("histogram:edges=0us/1us,weights=1/2", "2 edges, expected 3 for the weights"),
        ("histogram:edges=0us/1us/1us,weights=1/2", "ascending numbers"),
        ("histogram:edges=0us/1us,weights=0", "weights 0, expected a positive sum"),
        ("hyperexponential:probabilities=1/1,means=1us", "1 means, expected 2 for the probabilities"),
        ("sample:values=0us/0us", "mean 0, expected a positive time"),
        ("sample:values=-1us", "value -0.000001, expected no negative number"),
        ("exponential:mean=1us,mean", "`mean` of exponential, expected name=value"),
    ] {
        let error = text.parse::<Distribution>().unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

/// Any number, also absurd ones, gives finite results or an error with a reason; never a panic.
#[test]
fn no_input_gives_nan_or_infinity() {
    let numbers = ["0", "1e-300", "1e-9", "0.5", "1", "2", "1e9", "1e300", "-1"];
    for function in functions() {
        // The chains and the simulator are asked elsewhere: what is large takes its time.
        if function.name.starts_with("chain") || function.name == "simulate" {
            continue;
        }
        for dist in ["exponential:mean=1us", "lomax:scale=1e-3,shape=1.5", "sample:values=1us/3us"] {
            for number in numbers {
                for odd in 0..function.parameters.len() {
                    let mut case = Map::new();
                    for (i, known) in function.parameters.iter().enumerate() {
                        let value = match known.name {
                            "dist" => dist,
                            _ if i == odd => number,
                            "sessions" | "processors" => "3",
                            "rate" | "attempt_rate" => "1e5",
                            "limit" | "sleep" | "think" | "wake" | "yield_time" => "2us",
                            _ => "0.25",
                        };
                        case.insert(known.name.into(), value.into());
                    }
                    match function.call(&case) {
                        Ok(results) => {
                            let finite = |value: &Value| value.is_null() || value.as_f64().is_some_and(f64::is_finite);
                            assert!(results.values().all(finite), "{} {case:?}: {results:?}", function.name);
                        }
                        Err(error) => assert!(error.to_string().contains("expected"), "{error}"),
                    }
                }
            }
        }
    }
}

#[test]
fn a_call_takes_numbers_and_texts_alike() {
    let call = |case: Value| Function::named("residual").unwrap().call(case.as_object().unwrap());
    let one = call(json!({"dist": {"type": "exponential", "mean": 1e-6}, "limit": 2e-6})).unwrap();
    assert_eq!(call(json!({"dist": {"type": "exponential", "mean": "1us"}, "limit": "2us"})).unwrap(), one);
    assert_eq!(call(json!({"dist": "exponential:mean=1us", "limit": "2us"})).unwrap(), one);
    let refused = call(json!({"dist": "exponential:mean=1us", "limit": [1]}));
    assert!(matches!(refused, Err(CallError::Value { name: "limit", .. })), "{refused:?}");
}

#[test]
fn the_simulator_is_called_as_the_formulas_are() {
    let call = |case: Value| Function::named("simulate").unwrap().call(case.as_object().unwrap());
    let queue = json!({"dist": "exponential:mean=1us", "rate": "0.7/us", "machine": "ideal", "processors": 0,
        "warm_up": "1ms", "duration": "20ms", "replications": 8});
    let results = call(queue.clone()).unwrap();
    let (wait, interval) = (results["wait"].as_f64().unwrap(), results["wait_interval"].as_f64().unwrap());
    // M/M/1: ρ/(1 - ρ) holding times.
    assert!((wait - 0.7 / 0.3 * 1e-6).abs() < 1.5 * interval && interval < 0.1 * wait, "{wait} ± {interval}");
    assert_eq!(call(queue).unwrap(), results, "the same seed");
    for (case, expected) in [
        (json!({"sessions": 2, "rate": 1}), "both sessions and rate, expected one of the two"),
        (json!({}), "neither sessions nor rate, expected one of the two"),
        (json!({"rate": "2/us"}), "no steady state"),
        (json!({"sessions": 1.5}), "sessions 1.5, expected a whole number from 1"),
        (json!({"sessions": 2, "replications": 1}), "replications 1, expected a whole number from 2"),
        (json!({"sessions": 2, "machine": "fast"}), "machine `fast`, expected default, ideal, or costs"),
        (json!({"sessions": 2, "scheme": "orbitt"}), "expected one of yield, sleep"),
        (json!({"sessions": 2, "set": "fairness"}), "`fairness`, expected NAME=VALUE"),
        (json!({"sessions": 2, "set": "fairnes=fifo"}), "fairness"),
        (json!({"sessions": 2, "sleeps": "long"}), "expected `timed` or `exponential`"),
        (json!({"sessions": 2, "duration": 0}), "duration is 0, expected more than 0"),
        (json!({"sessions": 2, "scheme": 1}), "1, expected a text"),
    ] {
        let mut case = case.as_object().unwrap().clone();
        case.insert("dist".into(), "exponential:mean=1us".into());
        let error = Function::named("simulate").unwrap().call(&case).unwrap_err().to_string();
        assert!(error.contains(expected), "{case:?}: {error}");
    }
}
