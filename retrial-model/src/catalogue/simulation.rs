//! The simulator, called as the formulas are.

use super::{DIST, Results, field, optional};
use crate::error::ModelError;
use crate::function::{CallError, Field, Function, Inputs, Unit};
use crate::sim::{Machine, Measure, Workload, replicate};
use serde_json::{Map, Value, json};
use std::ops::Range;

/// That half the width of an interval covers.
const CONFIDENCE: f64 = 0.95;

macro_rules! results {
    ($( $id:ident $interval:literal; )*) => {
        const RESULTS: &[Field] = &[ $(
            field(Measure::$id.name(), unit(Measure::$id), Measure::$id.description()),
            field($interval, unit(Measure::$id), "half the width of its 95 % interval"),
        )* ];
        const MEASURES: &[Measure] = &[ $( Measure::$id ),* ];
    };
}

results! {
    Throughput "throughput_interval";
    Utilization "utilization_interval";
    MissRatio "miss_ratio_interval";
    SpinInefficiency "spin_inefficiency_interval";
    SpinTime "spin_time_interval";
    SleepsPerGet "sleeps_per_get_interval";
    Wait "wait_interval";
    WaitP99 "wait_p99_interval";
    WaitMax "wait_max_interval";
    Waiting "waiting_interval";
    BusyProcessors "busy_processors_interval";
    WaitingProcessors "waiting_processors_interval";
    Fairness "fairness_interval";
}

const fn unit(measure: Measure) -> &'static str {
    if measure.unit().is_empty() { "1" } else { measure.unit() }
}

pub(super) static FUNCTIONS: &[Function] = &[Function {
    name: "simulate",
    summary: "what the wait schemes of the library themselves do, on a virtual clock",
    formula: "discrete events: sessions, the mutex, processors with run queues",
    domain: "any load; mode X, one mutex or copies of it; costs of the machine as given, caches and interrupts left out",
    source: "the library's code",
    parameters: &[
        DIST,
        optional("sessions", Unit::Number, "", "sessions that think between two gets, N; or rate"),
        optional("think", Unit::Distribution, "exponential:mean=1us", "think time of such sessions, Z"),
        optional("away", Unit::Number, "0", "1: a thinking session does not use its processor"),
        optional("work", Unit::Seconds, "0", "processor time of a session before each think time"),
        optional("rate", Unit::PerSecond, "", "sessions that come from outside, Poisson, each for one get"),
        optional("copies", Unit::Number, "1", "copies of the mutex; each get is of any of them"),
        optional("scheme", Unit::Text, "orbit", "wait scheme"),
        optional("set", Unit::Text, "", "other parameters, as mutex_spin_count=100,fairness=fifo"),
        optional(
            "machine",
            Unit::Text,
            "default",
            "default: round numbers; ideal: nothing costs anything; or costs as \
             retrial calibrate keeps them, poll 30 and so on in lines, which the command retrial takes where \
             nothing is said and they are kept",
        ),
        optional("processors", Unit::Number, "2", "0: one for each session"),
        optional("sleeps", Unit::Text, "timed", "timed, or exponential with the time asked for as the mean"),
        optional("warm_up", Unit::Seconds, "", "virtual time before anything is counted; enough for a steady state"),
        optional(
            "duration",
            Unit::Seconds,
            "",
            "virtual time that is counted, in each replication; enough for the load",
        ),
        optional("replications", Unit::Number, "4", "independent runs, from 2"),
        optional("seed", Unit::Number, "1", "of the first; the same seed gives the same numbers"),
    ],
    results: RESULTS,
    run: simulate,
}];

fn simulate(i: &Inputs) -> Results {
    let workload = workload(i)?;
    let seeds = seeds(i)?;
    let estimates = replicate(&workload, seeds)?;
    let both = |measure: &Measure| {
        let estimate = estimates.get(*measure);
        [estimate.map(|found| found.mean), estimate.map(|found| found.half_width(CONFIDENCE))]
    };
    Ok(MEASURES.iter().flat_map(both).collect())
}

/// What `simulate` runs with these parameters: the workload and the seeds of its replications.
///
/// # Errors
/// As `simulate`: unknown, missing or wrong parameters.
pub fn simulated(parameters: &Map<String, Value>) -> Result<(Workload, Range<u64>), CallError> {
    let inputs = FUNCTIONS[0].inputs(parameters)?;
    Ok((workload(&inputs)?, seeds(&inputs)?))
}

fn seeds(i: &Inputs) -> Result<Range<u64>, ModelError> {
    let first = whole("seed", i.number("seed"), 0.0)?;
    Ok(first..first + whole("replications", i.number("replications"), 2.0)?)
}

fn workload(i: &Inputs) -> Result<Workload, ModelError> {
    let arrivals = match (i.optional("sessions"), i.optional("rate")) {
        (Some(sessions), None) => json!({
            "type": "closed",
            "sessions": whole("sessions", sessions, 1.0)?,
            "think": i.optional_distribution("think"),
            "on_processor": i.number("away") == 0.0,
        }),
        (None, Some(rate)) => json!({ "type": "open", "rate": rate }),
        (sessions, _) => {
            let found = if sessions.is_some() { "both sessions and rate" } else { "neither sessions nor rate" };
            return Err(refused(format!("{found}, expected one of the two")));
        }
    };
    let processors = match whole("processors", i.number("processors"), 0.0)? {
        0 => None,
        count => Some(count as u32),
    };
    let machine = match i.text("machine") {
        "default" => Machine::default(),
        "ideal" => Machine::ideal(),
        costs => costs.parse::<retrial::views::Costs>().map(|measured| Machine::from(&measured)).map_err(|error| {
            refused(format!(
                "machine `{costs}`, expected default, ideal, or costs as retrial calibrate keeps them: {error}"
            ))
        })?,
    };
    let machine = Machine { processors, ..machine };
    let workload = json!({
        "arrivals": arrivals,
        "hold": i.distribution("dist"),
        "work": i.number("work"),
        "copies": whole("copies", i.number("copies"), 1.0)?,
        "params": params(i)?,
        "machine": machine,
        "sleeps": i.text("sleeps"),
        "duration": 1,
    });
    let mut workload: Workload = serde_json::from_value(workload).map_err(|error| refused(error.to_string()))?;
    let (warm_up, duration) = workload.spans(workload.gets_per_s_most());
    workload.warm_up = i.optional("warm_up").unwrap_or(warm_up);
    workload.duration = i.optional("duration").unwrap_or(duration);
    Ok(workload)
}

fn params(i: &Inputs) -> Result<Map<String, Value>, ModelError> {
    let mut params = Map::new();
    params.insert("mutex_wait_scheme".into(), i.text("scheme").into());
    for word in i.text("set").split(',').filter(|word| !word.is_empty()) {
        let (name, value) = word.split_once('=').ok_or_else(|| refused(format!("`{word}`, expected NAME=VALUE")))?;
        params.insert(name.trim().into(), value.trim().into());
    }
    Ok(params)
}

fn whole(name: &'static str, value: f64, from: f64) -> Result<u64, ModelError> {
    if value >= from && value.fract() == 0.0 && value < 4e9 {
        return Ok(value as u64);
    }
    Err(refused(format!("{name} {value}, expected a whole number from {from}")))
}

fn refused(message: String) -> ModelError {
    ModelError::Workload { message }
}
