//! The points: open systems, closed ones, yields before the first sleep, too few processors, copies.

use super::closed::{Turns, alone, closed, closed_spinning, closed_yielding, crowded, crowded_sleepers};
use super::open::{best_limit, copied, queue, sleeping, spinning_on, yielding};
use super::{Claim, Parameters, Point, Seen, With};
use retrial::P;
use retrial::views::Params;
use retrial_model::sim::{Arrivals, Machine, Measure, Sleeps, Workload};
use retrial_model::{Distribution, Function};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// What a session of these points sleeps by the mean, in seconds: the schemes' own units are ms and cs.
pub(super) const SLEEP: f64 = 0.01;
/// What a yield takes on these machines, in S.
pub(super) const YIELD: f64 = 0.7;

/// A holding time with so many seconds as its mean.
pub(super) type Family = fn(f64) -> Value;
/// A number of a run.
pub(super) type Found = fn(&Seen) -> f64;

/// Holding times by name.
pub(super) const FAMILIES: [(&str, Family); 7] = [
    ("deterministic", |mean| json!({"type": "deterministic", "mean": mean})),
    ("uniform", |mean| json!({"type": "uniform", "low": 0.0, "high": 2.0 * mean})),
    ("Erlang-4", |mean| json!({"type": "erlang", "stages": 4, "mean": mean})),
    ("exponential", |mean| json!({"type": "exponential", "mean": mean})),
    ("lognormal, c² = 1.7", |mean| json!({"type": "lognormal", "median": mean * (-0.5_f64).exp(), "sigma": 1.0})),
    ("Lomax, c² = 1.3", |mean| json!({"type": "lomax", "scale": 7.0 * mean, "shape": 8.0})),
    (
        "hyperexponential, c² = 5.1",
        |mean| json!({"type": "hyperexponential", "probabilities": [0.9, 0.1], "means": [0.5 * mean, 5.5 * mean]}),
    ),
];

/// Those that stand for regular, memoryless and skewed times.
pub(super) const FEW: [usize; 4] = [0, 2, 3, 6];

/// All points; `gets` in each run, about.
pub fn points(gets: f64) -> Vec<Point> {
    let mut all = Vec::new();
    for family in 0..FAMILIES.len() {
        for rho in [0.1, 0.3, 0.5, 0.7] {
            for limit in [0.5, 2.1, 5.1] {
                for sleep in [10.0, 100.0] {
                    all.push(sleeping(family, rho, limit, sleep, gets));
                }
            }
        }
        for limit in [0.5, 2.1] {
            all.push(alone(family, limit, gets));
        }
        for rho in [0.3, 0.5, 0.7] {
            all.push(queue(family, rho, gets));
        }
    }
    for family in [3, 6] {
        for (rho, limit) in [(0.1, 2.1), (0.5, 0.5), (0.5, 2.1), (0.5, 8.1)] {
            all.push(sleeping(family, rho, limit, 1000.0, gets));
        }
    }
    for family in FEW {
        for rho in [0.1, 0.3, 0.5, 0.7] {
            for limit in [0.5, 0.9, 2.0] {
                all.push(spinning_on(family, rho, limit, gets));
            }
            for yields in [1, 2] {
                all.push(yielding(family, rho, yields, gets));
            }
            for copies in [2, 4] {
                all.push(copied(family, rho, copies, gets));
            }
        }
        for sessions in [2, 4, 8, 32] {
            let think = f64::from(sessions) / 2.0 + 3.0;
            for limit in [0.5, 2.1] {
                all.push(closed(family, sessions, think, limit, gets));
            }
            for yields in [1, 2] {
                all.push(closed_yielding(family, sessions, think, yields, gets));
            }
            all.push(closed_spinning(family, sessions, think, gets));
        }
        for processors in [4, 8] {
            for sessions in [processors * 3 / 2, processors * 2, processors * 3] {
                for turns in [Turns::Short, Turns::Long, Turns::Pure] {
                    all.push(crowded(family, sessions, processors, turns, gets));
                }
            }
        }
        for sessions in [24, 32, 48] {
            all.push(crowded_sleepers(family, sessions, 4, gets));
        }
    }
    for family in [3, 5, 6] {
        all.push(best_limit(family, gets));
    }
    all
}

pub(super) fn k(seen: &Seen) -> f64 {
    seen.get(Measure::SpinInefficiency)
}

pub(super) fn spin_time(seen: &Seen) -> f64 {
    seen.get(Measure::SpinTime)
}

pub(super) fn wait(seen: &Seen) -> f64 {
    seen.get(Measure::Wait)
}

pub(super) fn throughput(seen: &Seen) -> f64 {
    seen.get(Measure::Throughput)
}

pub(super) fn sleeps(seen: &Seen) -> f64 {
    seen.get(Measure::SleepsPerGet)
}

/// κ: sleeps by fresh misses.
pub(super) fn sleep_ratio(seen: &Seen) -> f64 {
    sleeps(seen) / seen.get(Measure::MissRatio)
}

/// φ: a get that finds spinners is a miss whose spin has not failed.
pub(super) fn unattended(seen: &Seen) -> f64 {
    1.0 - sleeps(seen) * (1.0 / k(seen) - 1.0)
}

pub(super) fn utilization(seen: &Seen) -> f64 {
    seen.get(Measure::Utilization)
}

pub(super) fn sleep_rate(seen: &Seen) -> f64 {
    throughput(seen) * sleeps(seen)
}

pub(super) fn waiting(seen: &Seen) -> f64 {
    seen.get(Measure::Waiting)
}

pub(super) fn scheme(name: &str) -> Params {
    Params::default().with(P::Scheme, retrial::wait::named(name).expect("a scheme of the library") as u64)
}

/// Claims about the same parameters.
pub(super) fn given(
    parameters: &[(&'static str, f64)],
    claims: &[(&'static str, &'static str, Found, f64)],
) -> Vec<Claim> {
    let claim = |(function, field, found, allowed): &(&'static str, &'static str, Found, f64)| Claim {
        function,
        field,
        found: *found,
        parameters: With::Given(parameters.to_vec()),
        allowed: *allowed,
    };
    claims.iter().map(claim).collect()
}

/// A claim about what each run has measured.
pub(super) fn measured(
    function: &'static str,
    field: &'static str,
    found: Found,
    allowed: f64,
    parameters: impl Fn(&Seen) -> Parameters + Sync + 'static,
) -> Claim {
    Claim { function, field, found, parameters: With::Measured(Box::new(parameters)), allowed }
}

/// Λ of a run, beside a spin limit.
pub(super) fn attempts(limit: f64) -> impl Fn(&Seen) -> Parameters + Sync + 'static {
    move |seen| vec![("limit", limit), ("attempt_rate", seen.attempt_rate())]
}

/// k and Γ of a run, beside what is known.
pub(super) fn known(utilization: f64, residual: f64, sleep: f64) -> impl Fn(&Seen) -> Parameters + Sync + 'static {
    move |seen| {
        let (k, spin_time) = (k(seen), spin_time(seen));
        vec![
            ("utilization", utilization),
            ("k", k),
            ("spin_time", spin_time),
            ("residual_mean", residual),
            ("sleep", sleep),
        ]
    }
}

/// A family on a machine where nothing costs anything but a yield; sleeps are `sleep` times S, and exponential.
pub(super) struct Setting {
    pub(super) family: usize,
    pub(super) unit: f64,
    pub(super) arrivals: Arrivals,
    pub(super) params: Params,
    /// Spin limit and yield in S.
    pub(super) limit: f64,
    pub(super) pause: f64,
    /// Of each run, in S: what is counted, and what comes before.
    pub(super) duration: f64,
    pub(super) warm_up: f64,
}

impl Setting {
    pub(super) fn point(self, what: &str, row: String, column: String, claims: Vec<Claim>) -> Point {
        let (name, family) = FAMILIES[self.family];
        let dist = family(self.unit);
        let hold: Distribution = serde_json::from_value(dist.clone()).expect("a family with good parameters");
        // Of 1 ns each.
        let polls = ns(self.limit * self.unit);
        let mut workload = Workload::new(self.arrivals, hold, self.duration * self.unit);
        workload.warm_up = self.warm_up * self.unit;
        workload.params = self.params.with(P::SpinCount, polls);
        workload.sleeps = Sleeps::Exponential;
        let yield_ns = ns(self.pause * self.unit).max(1);
        workload.machine = Machine { yield_alone_ns: yield_ns, ..Machine::ideal() };
        Point { name: format!("{what}, {name}"), row, column, unit: self.unit, dist, workload, claims }
    }
}

pub(super) fn ns(seconds: f64) -> u64 {
    Duration::from_secs_f64(seconds).as_nanos() as u64
}

pub(super) fn open(rho: f64, unit: f64) -> Arrivals {
    Arrivals::Open { rate: rho / unit }
}

/// Sessions that think for an exponential time of mean `think` S.
pub(super) fn population(sessions: u32, think: f64, unit: f64) -> Arrivals {
    let think = Distribution::exponential(think * unit).expect("a positive time");
    Arrivals::Closed { sessions, think, on_processor: true }
}

pub(super) fn residual(family: usize) -> f64 {
    let dist: Distribution = serde_json::from_value(FAMILIES[family].1(1.0)).expect("a family with good parameters");
    dist.residual_mean().expect("a finite second moment")
}

/// A result of a function for a family, in units of S.
pub(super) fn theory(family: usize, function: &str, field: &str, parameters: &Parameters) -> f64 {
    let mut named: Map<String, Value> =
        parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
    named.insert("dist".into(), FAMILIES[family].1(1.0));
    let results = Function::named(function).expect("it is in the catalogue").call(&named);
    results.expect("good parameters")[field].as_f64().expect("a number")
}

/// Yields once and sleeps, or twice: the schemes 1 and 2 with their sleeps at 10 ms.
pub(super) fn yields_first(yields: u32) -> Params {
    let params = if yields == 1 { scheme("sleep").with(P::WaitTime, 10) } else { scheme("backoff") };
    params.with(P::OnLostRace, 1)
}
