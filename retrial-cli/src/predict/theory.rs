//! Which formula of the model is about a workload's scheme, and with which parameters.

use retrial::{P, wait};
use retrial_model::sim::{Arrivals, Workload};
use retrial_model::{Distribution, Function};
use serde_json::{Map, Value, json};

/// What a formula says.
#[derive(Clone, Debug, PartialEq)]
pub struct Theory {
    /// Its name, for `retrial model`.
    pub function: &'static str,
    pub gets_per_s: Option<f64>,
    pub k: Option<f64>,
    pub wait_s: Option<f64>,
}

/// Most sessions of the exact chain: it takes time as their cube.
const CHAIN: u32 = 200;

/// What theory says of a workload, or why it says nothing.
pub fn theory(workload: &Workload) -> Result<Theory, String> {
    match &workload.arrivals {
        Arrivals::Closed { sessions, think, .. } => closed(workload, *sessions, think),
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

/// Yields before the first sleep of a scheme that sleeps for one time, and what that sleep takes, in s.
fn sleeps(workload: &Workload) -> Option<(u32, f64)> {
    let params = &workload.params;
    let (yields, ms) = match scheme(workload) {
        "patch6904068" => (0, 10 * params.get(P::FirstSpare)),
        "sleep" => (1, params.get(P::WaitTime)),
        // Its sleeps grow beyond the first above 1 cs.
        "backoff" if params.get(P::WaitTime) == 1 => (2, 10),
        _ => return None,
    };
    (ms > 0).then(|| (yields, ns(workload.machine.slept_ns(ms * 1_000_000))))
}

fn scheme(workload: &Workload) -> &'static str {
    usize::try_from(workload.params.get(P::Scheme)).ok().and_then(|i| wait::NAMES.get(i)).copied().unwrap_or("unknown")
}

/// Why a scheme has no formula.
fn without(scheme: &str) -> String {
    let why = match scheme {
        "orbit" => "few sessions in turns and throttled wake-ups",
        "adaptive" => "a controller that changes between two schemes",
        "backoff" => "sleeps that grow",
        "latch" | "ydb" | "pthread" => "a queue, of sessions that come from outside",
        _ => "the parameters as they are set",
    };
    format!("no formula for {scheme}: {why}")
}

fn closed(workload: &Workload, sessions: u32, think: &Distribution) -> Result<Theory, String> {
    if workload.copies > 1 {
        return Err("no formula for sessions that go from copy to copy; the simulator has them".to_owned());
    }
    let machine = &workload.machine;
    let processors = machine.processors.filter(|processors| *processors < sessions);
    let mut given =
        json!({ "dist": workload.hold, "sessions": sessions, "think": think.mean(), "limit": limit(workload) });
    let mut set = |name: &str, value: f64| given[name] = value.into();
    let name = scheme(workload);
    let function = match name {
        "10g" | "yield" if workload.params.get(P::YieldMode) == 0 => {
            set("yield_time", ns(machine.yield_alone_ns));
            match processors {
                None => "closed-spin",
                Some(processors) => {
                    set("processors", processors.into());
                    "closed-spin-turns"
                }
            }
        }
        "latch" | "ydb" | "pthread" => {
            set("limit", queue_limit(workload));
            set("wake", ns(machine.wake_call_ns + machine.wake_far_ns));
            "closed-barge"
        }
        _ => {
            let (yields, sleep) = sleeps(workload).ok_or_else(|| without(name))?;
            set("sleep", sleep);
            if yields == 0 && processors.is_none() && sessions <= CHAIN {
                "chain-closed"
            } else {
                set("yields", yields.into());
                set("yield_time", ns(machine.yield_alone_ns));
                if let Some(processors) = processors {
                    set("processors", processors.into());
                }
                "closed-scheme"
            }
        }
    };
    let found = call(function, given)?;
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

/// Spins, and yields between them, of the schemes that queue, up to the queue; in s.
fn queue_limit(workload: &Workload) -> f64 {
    let (params, machine) = (&workload.params, &workload.machine);
    let polls = |p: P| params.get(p) as f64 * ns(machine.poll_ns);
    match scheme(workload) {
        "latch" => polls(P::LatchSpinCount),
        "ydb" => {
            let rounds = params.get(P::SoftSpinCount) as f64;
            (rounds + 1.0) * polls(P::HardSpinCount) + rounds * ns(machine.yield_alone_ns)
        }
        _ => 0.0,
    }
}

fn open(workload: &Workload, rate: f64) -> Result<Theory, String> {
    let (name, each) = (scheme(workload), rate / f64::from(workload.copies));
    if name == "10g" || name == "yield" && workload.params.get(P::YieldMode) == 0 {
        let residual =
            workload.hold.residual_mean().ok_or("no wait: the second moment of the holding time is infinite")?;
        let given = json!({ "utilization": each * workload.hold.mean(), "residual_mean": residual });
        let found = call("wait-identity", given)?;
        let wait_s = found.get("wait").and_then(Value::as_f64);
        return Ok(Theory { function: "wait-identity", gets_per_s: Some(rate), k: None, wait_s });
    }
    let (yields, sleep) = sleeps(workload).ok_or_else(|| without(name))?;
    let mut given = json!({ "dist": workload.hold, "limit": limit(workload), "rate": each, "sleep": sleep });
    let function = if yields == 0 { "wait" } else { "scheme-open" };
    if yields > 0 {
        given["yields"] = yields.into();
        given["yield_time"] = ns(workload.machine.yield_alone_ns).into();
    }
    let found = call(function, given)?;
    let number = |name: &str| found.get(name).and_then(Value::as_f64);
    Ok(Theory { function, gets_per_s: Some(rate), k: number("k"), wait_s: number("wait") })
}

fn call(function: &'static str, given: Value) -> Result<Map<String, Value>, String> {
    let Value::Object(given) = given else { unreachable!("an object was given") };
    let found = Function::named(function).and_then(|known| known.call(&given));
    found.map_err(|error| format!("{function}: {error}"))
}
