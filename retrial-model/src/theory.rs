//! What theory there is for each wait scheme: one table, and which formula of the model it leads to.

use crate::sim::{Arrivals, Workload};
use crate::{Distribution, Function};
use retrial::views::Params;
use retrial::{P, wait};
use serde_json::{Map, Value, json};

/// The waits that there are formulas for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// A spin and a yield, over and over.
    Yields,
    /// A spin after the miss and after each of so many yields; then sleeps of one time, each with a spin
    /// after it.
    Sleeps { yields: u32, ms: u64 },
    /// So many polls and yields; then a queue, and a wake-up by a release.
    Queue { polls: u64, yields: u64 },
    /// None, and why.
    None(&'static str),
}

/// What follows a spin that has failed: longer spins spare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spared {
    /// A yield to another session.
    Yield,
    /// A sleep that nobody ends.
    Sleep,
    /// A wake-up by the releaser.
    WakeUp,
}

/// What is known of a wait scheme.
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    name: &'static str,
    /// Parameter that is its spin limit, in polls, and what a longer one spares. `None` where there is none
    /// to be advised.
    pub limit: Option<(P, Spared)>,
    /// How it waits with these parameters.
    wait: fn(&Params) -> Wait,
}

/// Why parameters other than the published ones have no formula.
const AS_SET: Wait = Wait::None("the parameters as they are set");

/// All schemes, in the order of [`wait::NAMES`].
const SCHEMES: [Scheme; wait::NAMES.len()] = [
    Scheme {
        name: "yield",
        limit: Some((P::SpinCount, Spared::Yield)),
        wait: |params| if params.get(P::YieldMode) == 0 { Wait::Yields } else { AS_SET },
    },
    Scheme {
        name: "sleep",
        limit: Some((P::SpinCount, Spared::Sleep)),
        wait: |params| sleeps(1, params.get(P::WaitTime)),
    },
    Scheme {
        name: "backoff",
        limit: Some((P::SpinCount, Spared::Sleep)),
        // Its sleeps grow beyond the first above 1 cs.
        wait: |params| if params.get(P::WaitTime) == 1 { sleeps(2, 10) } else { Wait::None("sleeps that grow") },
    },
    Scheme { name: "10g", limit: Some((P::SpinCount, Spared::Yield)), wait: |_| Wait::Yields },
    Scheme {
        name: "patch6904068",
        limit: Some((P::SpinCount, Spared::Sleep)),
        wait: |params| sleeps(0, 10 * params.get(P::FirstSpare)),
    },
    Scheme {
        name: "latch",
        limit: Some((P::LatchSpinCount, Spared::WakeUp)),
        wait: |params| Wait::Queue { polls: params.get(P::LatchSpinCount), yields: 0 },
    },
    Scheme {
        name: "ydb",
        limit: None,
        wait: |params| {
            let yields = params.get(P::SoftSpinCount);
            Wait::Queue { polls: (yields + 1) * params.get(P::HardSpinCount), yields }
        },
    },
    Scheme { name: "pthread", limit: None, wait: |_| Wait::Queue { polls: 0, yields: 0 } },
    Scheme { name: "adaptive", limit: None, wait: |_| Wait::None("a controller that changes between two schemes") },
    Scheme { name: "orbit", limit: None, wait: |_| Wait::None("few sessions in turns and throttled wake-ups") },
];

const fn sleeps(yields: u32, ms: u64) -> Wait {
    if ms > 0 { Wait::Sleeps { yields, ms } } else { AS_SET }
}

impl Scheme {
    /// That of a workload; the default one for a number that no build knows, as in the library.
    #[must_use]
    pub fn of(workload: &Workload) -> Self {
        let position = usize::try_from(workload.params.get(P::Scheme)).ok();
        position.and_then(|i| SCHEMES.get(i)).copied().unwrap_or(SCHEMES[wait::DEFAULT])
    }

    /// Why it has no formula.
    fn without(&self, why: &str) -> String {
        format!("no formula for {}: {why}", self.name)
    }
}

/// What a formula says.
#[derive(Clone, Debug, PartialEq)]
pub struct Theory {
    /// Its name, for `retrial model`.
    pub function: &'static str,
    /// Gets per second, by all sessions.
    pub gets_per_s: Option<f64>,
    /// Failed spins by attempts that found the mutex busy.
    pub k: Option<f64>,
    /// Mean wait of a get in s.
    pub wait_s: Option<f64>,
}

/// Most sessions of the exact chain: it takes time as their cube.
const CHAIN: u32 = 200;

/// What theory says of a workload.
///
/// # Errors
///
/// Why it says nothing, as a sentence.
pub fn theory(workload: &Workload) -> Result<Theory, String> {
    match &workload.arrivals {
        Arrivals::Closed { sessions, think, on_processor } => closed(workload, *sessions, think, *on_processor),
        Arrivals::Open { rate } => open(workload, *rate),
    }
}

/// A time of the machine in s.
fn ns(time: u64) -> f64 {
    time as f64 / 1e9
}

/// ∆ of the schemes that have `mutex_spin_count`, in s.
fn limit(workload: &Workload) -> f64 {
    workload.params.get(P::SpinCount) as f64 * ns(workload.machine.poll_ns)
}

fn closed(workload: &Workload, sessions: u32, think: &Distribution, on_processor: bool) -> Result<Theory, String> {
    if workload.copies > 1 {
        return Err("no formula for sessions that go from copy to copy; the simulator has them".to_owned());
    }
    let (machine, scheme) = (&workload.machine, Scheme::of(workload));
    let processors = machine.processors.filter(|processors| *processors < sessions);
    let few = processors.map(|processors| ("processors", f64::from(processors)));
    let away = ("away", f64::from(u8::from(!on_processor)));
    let pause = ("yield_time", ns(machine.yield_alone_ns));
    let think_s = workload.work + think.mean();
    let ask = |function: &'static str, more: &mut dyn Iterator<Item = (&str, f64)>| {
        let mut given =
            json!({ "dist": workload.hold, "sessions": sessions, "think": think_s, "limit": limit(workload) });
        more.for_each(|(name, value)| given[name] = value.into());
        call(function, given).map(|found| (function, found))
    };
    let (function, found) = match (scheme.wait)(&workload.params) {
        Wait::Yields => {
            let function = if few.is_none() { "closed-spin" } else { "closed-spin-turns" };
            ask(function, &mut [away, pause].into_iter().chain(few))?
        }
        Wait::Queue { polls, yields } => {
            let limit = polls as f64 * ns(machine.poll_ns) + yields as f64 * ns(machine.yield_alone_ns);
            let wake = ns(machine.wake_call_ns + machine.wake_far_ns);
            ask("closed-barge", &mut [away, ("limit", limit), ("wake", wake)].into_iter())?
        }
        Wait::Sleeps { yields, ms } => {
            let sleep = ("sleep", ns(machine.slept_ns(ms * 1_000_000)));
            let scheme = [away, sleep, ("yields", yields.into()), pause];
            let shared = few.map(|few| ask("closed-scheme", &mut scheme.into_iter().chain([few]))).transpose()?;
            // The exact chain has a processor for each session that runs.
            let enough = shared.as_ref().is_none_or(|(_, found)| found["slowdown"] == 1.0);
            match shared {
                _ if yields == 0 && sessions <= CHAIN && enough => ask("chain-closed", &mut [sleep].into_iter())?,
                Some(shared) => shared,
                None => ask("closed-scheme", &mut scheme.into_iter())?,
            }
        }
        Wait::None(why) => return Err(scheme.without(why)),
    };
    let number = |name: &str| found.get(name).and_then(Value::as_f64);
    if let (Some(processors), Some(runnable)) = (processors.filter(|_| function == "closed-barge"), number("runnable"))
        && runnable > f64::from(processors)
    {
        return Err(format!(
            "{function} has a processor for each session that runs: {runnable:.1} do, there are {processors}"
        ));
    }
    Ok(Theory { function, gets_per_s: number("throughput"), k: number("k"), wait_s: number("wait") })
}

fn open(workload: &Workload, rate: f64) -> Result<Theory, String> {
    let (scheme, each) = (Scheme::of(workload), rate / f64::from(workload.copies));
    let (function, given) = match (scheme.wait)(&workload.params) {
        Wait::Yields => {
            let residual = workload.hold.residual_mean();
            let residual = residual.ok_or("no wait: the second moment of the holding time is infinite")?;
            let given = json!({ "utilization": each * workload.hold.mean(), "residual_mean": residual });
            ("wait-identity", given)
        }
        Wait::Sleeps { yields, ms } => {
            let sleep = ns(workload.machine.slept_ns(ms * 1_000_000));
            let mut given = json!({ "dist": workload.hold, "limit": limit(workload), "rate": each, "sleep": sleep });
            if yields > 0 {
                given["yields"] = yields.into();
                given["yield_time"] = ns(workload.machine.yield_alone_ns).into();
            }
            (if yields == 0 { "wait" } else { "scheme-open" }, given)
        }
        Wait::Queue { .. } => return Err(scheme.without("a queue, of sessions that come from outside")),
        Wait::None(why) => return Err(scheme.without(why)),
    };
    let found = call(function, given)?;
    let number = |name: &str| found.get(name).and_then(Value::as_f64);
    Ok(Theory { function, gets_per_s: Some(rate), k: number("k"), wait_s: number("wait") })
}

fn call(function: &'static str, given: Value) -> Result<Map<String, Value>, String> {
    let Value::Object(given) = given else { unreachable!("an object was given") };
    let found = Function::named(function).and_then(|known| known.call(&given));
    found.map_err(|error| format!("{function}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_has_a_formula_or_says_why_there_is_none() {
        for (number, (scheme, name)) in SCHEMES.iter().zip(wait::NAMES).enumerate() {
            assert_eq!(scheme.name, *name, "scheme {number}");
            if let Wait::None(why) = (scheme.wait)(&Params::default()) {
                assert!(!why.is_empty(), "{name}");
            }
        }
    }

    /// What a workload's theory says of its gets per second, and by which formula.
    fn gets_per_s(scheme: usize, on_processor: bool) -> (&'static str, f64) {
        let think = Distribution::exponential(3e-3).unwrap();
        let params = Params::default().with(P::Scheme, scheme as u64);
        let arrivals = Arrivals::Closed { sessions: 24, think, on_processor };
        let workload = Workload { params, ..Workload::new(arrivals, Distribution::exponential(50e-6).unwrap(), 0.1) };
        let found = theory(&workload).unwrap();
        (found.function, found.gets_per_s.unwrap())
    }

    #[test]
    fn sessions_that_think_away_from_the_processors_need_none() {
        let scheme = |name: &str| wait::NAMES.iter().position(|known| *known == name).unwrap();
        // 24 sessions want 8,000 gets/s; two processors have time for 656 that think on them.
        for (name, formula, least) in [
            ("patch6904068", "chain-closed", 4_200.0),
            ("sleep", "closed-scheme", 6_500.0),
            ("10g", "closed-spin-turns", 7_500.0),
        ] {
            let (function, away) = gets_per_s(scheme(name), false);
            let (_, on) = gets_per_s(scheme(name), true);
            assert_eq!(function, formula);
            assert!(away > least && on < 660.0, "{name}: {away} away, {on} on the processors");
        }
    }

    #[test]
    fn parameters_decide_which_formula_it_is() {
        let wait = |name: &str, p, value| {
            let scheme = SCHEMES.iter().find(|scheme| scheme.name == name).unwrap();
            (scheme.wait)(&Params::default().with(p, value))
        };
        assert_eq!(wait("sleep", P::WaitTime, 3), Wait::Sleeps { yields: 1, ms: 3 });
        assert_eq!(wait("backoff", P::WaitTime, 1), Wait::Sleeps { yields: 2, ms: 10 });
        assert_eq!(wait("backoff", P::WaitTime, 2), Wait::None("sleeps that grow"));
        assert_eq!(wait("yield", P::YieldMode, 1), AS_SET);
        assert_eq!(wait("patch6904068", P::FirstSpare, 0), AS_SET);
        assert_eq!(wait("ydb", P::SoftSpinCount, 1), {
            let polls = 2 * Params::default().get(P::HardSpinCount);
            Wait::Queue { polls, yields: 1 }
        });
    }
}
