//! What is simulated, as data: who comes, how long they hold, how they wait, on which machine.

use super::timers::{FIRST_PROCESSOR, SLOTS_MAX};
use crate::distribution::Distribution;
use crate::quantity;
use retrial::P;
use retrial::views::{Cost, Params};
use retrial::wait::{DEFAULT, named};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeMap};
use thiserror::Error;

/// How sessions come to the mutex.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Arrivals {
    /// A Poisson process: each arrival is a session that gets the mutex once.
    Open {
        /// Arrivals per second.
        rate: f64,
    },
    /// So many sessions, each of which thinks, gets the mutex, holds it, releases it, and thinks again.
    Closed {
        /// From 1.
        sessions: u32,
        /// Time from a release to the next request of the session.
        think: Distribution,
        /// Whether a thinking session uses its processor; otherwise it is away, as a client is.
        #[serde(default = "yes")]
        on_processor: bool,
    },
}

fn yes() -> bool {
    true
}

/// How long a timed sleep of a wait lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sleeps {
    /// As long as the scheme asks, and as late as the machine's timer is.
    #[default]
    Timed,
    /// Exponential with the time that the scheme asks for as its mean: what the theory supposes.
    Exponential,
}

/// What the steps of a wait cost, and what there is to run on. Times in ns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Machine {
    /// Processors; without a number every session has one of its own.
    pub processors: Option<u32>,
    /// How long a session runs while others of its processor are ready.
    pub quantum_ns: u64,
    /// How long it runs at least before one that wakes up preempts it, at most a quantum; without a number
    /// nobody is preempted by a wake-up.
    pub preempt_after_ns: Option<u64>,
    /// One poll of the word with the processor's pause; from 1.
    pub poll_ns: u64,
    /// A get by the processor that had the mutex last.
    pub exchange_ns: u64,
    /// The mutex's way from one processor to another and back: what a get by another processor costs. A
    /// spinning session sees a release after half of it.
    pub line_ns: u64,
    /// What each further processor that polls the mutex adds to `line_ns`: the line's home serves those who
    /// ask for it one after the other (Boyd-Wickizer et al., *Non-scalable locks are dangerous*, 2012, §3).
    pub line_crowd_ns: u64,
    /// A yield with nobody else ready to run; from 1.
    pub yield_alone_ns: u64,
    /// A switch from one session to another; from 1.
    pub yield_switch_ns: u64,
    /// What a miss takes before its first poll, and a step beside the yield, sleep or park that it is: reads
    /// the clock and the parameters, and records.
    pub step_ns: u64,
    /// The waker's own call, for a session whose processor is idle.
    pub wake_call_ns: u64,
    /// From that call until the woken session runs.
    pub wake_far_ns: u64,
    /// The same for a session of the waker's processor, the switch included.
    pub wake_near_ns: u64,
    /// What the first session that parks pays for the barrier on all processors.
    pub barrier_ns: u64,
    /// Processor time of a timed sleep: the call, the timer and its interrupt.
    pub sleep_call_ns: u64,
    /// What sleeps of 1 us, 100 us, 1 ms and 10 ms take.
    pub sleep_ns: [u64; 4],
}

/// What was asked for in [`Machine::sleep_ns`].
const ASKED_NS: [u64; 4] = [1_000, 100_000, 1_000_000, 10_000_000];

impl Default for Machine {
    /// Guesses, all of them: round numbers for a virtual machine with two processors and other work on it.
    /// The comments say what `retrial calibrate` has measured on one (Intel Xeon, Linux 6.18); it measures
    /// all but the first three, `line_crowd_ns`, `step_ns` and `sleep_call_ns`.
    fn default() -> Self {
        Self {
            processors: Some(2),
            quantum_ns: 3_000_000,
            preempt_after_ns: Some(1_000_000),
            poll_ns: 30,            // measured 17
            exchange_ns: 6,         // 10
            line_ns: 420,           // 130
            line_crowd_ns: 25,      // takes more processors
            yield_alone_ns: 600,    // 223
            yield_switch_ns: 1_500, // 1,632
            step_ns: 200,           // 215 to 240, beside a busy neighbour
            wake_call_ns: 13_000,   // 2,219
            wake_far_ns: 30_000,    // 6,209
            wake_near_ns: 5_000,    // 1,634
            barrier_ns: 1_000,      // 1,854
            sleep_call_ns: 6_000,   // 4,000 to 9,000, 200 threads
            // 54,832, 154,445, 1,060,033, 10,064,523
            sleep_ns: [76_000, 180_000, 1_090_000, 10_090_000],
        }
    }
}

impl From<&retrial::views::Machine> for Machine {
    /// As measured by `retrial calibrate`; what was not measured is as in [`Machine::default`].
    fn from(measured: &retrial::views::Machine) -> Self {
        let or = |cost: Cost, default: u64| measured.get(cost).unwrap_or(default);
        let default = Self::default();
        let [us, us100, ms, ms10] = default.sleep_ns;
        Self {
            poll_ns: or(Cost::Poll, default.poll_ns),
            exchange_ns: or(Cost::Exchange, default.exchange_ns),
            line_ns: or(Cost::Line, default.line_ns),
            yield_alone_ns: or(Cost::YieldAlone, default.yield_alone_ns),
            yield_switch_ns: or(Cost::YieldSwitch, default.yield_switch_ns),
            wake_call_ns: or(Cost::WakeCall, default.wake_call_ns),
            wake_far_ns: or(Cost::WakeFar, default.wake_far_ns),
            wake_near_ns: or(Cost::WakeNear, default.wake_near_ns),
            barrier_ns: or(Cost::Barrier, default.barrier_ns),
            sleep_ns: [
                or(Cost::Sleep1us, us),
                or(Cost::Sleep100us, us100),
                or(Cost::Sleep1ms, ms),
                or(Cost::Sleep10ms, ms10),
            ],
            ..default
        }
    }
}

impl Machine {
    /// A machine on which nothing costs anything and every session has a processor: the one of queueing
    /// theory. A poll, a yield and a switch take 1 ns, since what takes no time can be repeated for ever.
    #[must_use]
    pub const fn ideal() -> Self {
        Self {
            processors: None,
            quantum_ns: 3_000_000,
            preempt_after_ns: None,
            poll_ns: 1,
            exchange_ns: 0,
            line_ns: 0,
            line_crowd_ns: 0,
            yield_alone_ns: 1,
            yield_switch_ns: 1,
            step_ns: 0,
            wake_call_ns: 0,
            wake_far_ns: 0,
            wake_near_ns: 0,
            barrier_ns: 0,
            sleep_call_ns: 0,
            sleep_ns: ASKED_NS,
        }
    }

    /// The same with so many processors.
    #[must_use]
    pub const fn with_processors(mut self, processors: u32) -> Self {
        self.processors = Some(processors);
        self
    }

    /// What a sleep of this length takes: measured lateness, in between by straight lines.
    #[must_use]
    pub fn slept_ns(&self, asked_ns: u64) -> u64 {
        let late = |i: usize| self.sleep_ns[i].saturating_sub(ASKED_NS[i]);
        let above = ASKED_NS.iter().position(|known| asked_ns <= *known);
        let late_ns = match above {
            Some(0) => late(0),
            None => late(ASKED_NS.len() - 1),
            Some(i) => {
                let (from, to) = (ASKED_NS[i - 1], ASKED_NS[i]);
                (late(i - 1) * (to - asked_ns) + late(i) * (asked_ns - from)) / (to - from)
            }
        };
        asked_ns.saturating_add(late_ns)
    }
}

/// What is simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// How sessions come.
    pub arrivals: Arrivals,
    /// How long they hold the mutex.
    pub hold: Distribution,
    /// Copies of the mutex; each get is of any of them. From 1.
    #[serde(default = "one")]
    pub copies: u32,
    /// The parameters in force. In JSON by their names, those that are not at their default.
    #[serde(default, with = "settings")]
    pub params: Params,
    /// The machine.
    #[serde(default)]
    pub machine: Machine,
    /// How long a timed sleep lasts.
    #[serde(default)]
    pub sleeps: Sleeps,
    /// Time before anything is counted, in s.
    #[serde(default, deserialize_with = "quantity::time")]
    pub warm_up: f64,
    /// Time that is counted, in s.
    #[serde(deserialize_with = "quantity::time")]
    pub duration: f64,
    /// Sessions whose steps are kept as events: the first so many.
    #[serde(default)]
    pub traced: u32,
    /// Most sessions that may be there at once when sessions arrive from outside.
    #[serde(default = "sessions_max")]
    pub sessions_max: u32,
    /// Most events of the run.
    #[serde(default = "events_max")]
    pub events_max: u64,
}

const fn one() -> u32 {
    1
}

const fn sessions_max() -> u32 {
    100_000
}

const fn events_max() -> u64 {
    100_000_000_000
}

/// Longest time that can be simulated, in s: the clock counts ps in 64 bits.
const LONGEST: f64 = 5e6;

/// Most processors.
const PROCESSORS_MAX: u32 = 4096;

/// Most copies of the mutex.
const COPIES_MAX: u32 = 4096;

/// Why a workload cannot be simulated to its end.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// A value of the workload out of its range.
    #[error("{name} is {found}, expected {expected}")]
    Parameter {
        /// Its name.
        name: &'static str,
        /// What was found.
        found: f64,
        /// What is allowed.
        expected: &'static str,
    },
    /// Sessions ask for more than all the time of the mutex.
    #[error("no steady state: sessions ask for the mutex {utilization} of the time, expected less than 1")]
    Utilization {
        /// Arrival rate times mean holding time.
        utilization: f64,
    },
    /// Sessions come faster than they get the mutex.
    #[error(
        "no steady state: {sessions} sessions are there after {after} s, {gets} have got the mutex; at most {limit} may be there"
    )]
    Population {
        /// Sessions that are there.
        sessions: u32,
        /// The workload's `sessions_max`.
        limit: u32,
        /// Time since the start, in s.
        after: f64,
        /// Gets since the start.
        gets: u64,
    },
    /// More events than allowed.
    #[error("{events} events in the first {after} s, expected no more until the end")]
    Events {
        /// The workload's `events_max`.
        events: u64,
        /// Time since the start, in s.
        after: f64,
    },
}

fn check(
    name: &'static str,
    value: f64,
    range: std::ops::RangeInclusive<f64>,
    expected: &'static str,
) -> Result<(), SimulationError> {
    let fits = range.contains(&value);
    if fits { Ok(()) } else { Err(SimulationError::Parameter { name, found: value, expected }) }
}

impl Workload {
    /// A workload with the parameters at their defaults on the default machine, without a time before
    /// anything is counted.
    #[must_use]
    pub fn new(arrivals: Arrivals, hold: Distribution, duration: f64) -> Self {
        Self {
            arrivals,
            hold,
            copies: 1,
            params: Params::default(),
            machine: Machine::default(),
            sleeps: Sleeps::default(),
            warm_up: 0.0,
            duration,
            traced: 0,
            sessions_max: sessions_max(),
            events_max: events_max(),
        }
    }

    /// Whether it can be simulated.
    pub(super) fn check(&self) -> Result<(), SimulationError> {
        let machine = &self.machine;
        check("warm_up", self.warm_up, 0.0..=LONGEST, "0 to 5e6 s")?;
        check("duration", self.duration, f64::MIN_POSITIVE..=LONGEST, "more than 0, to 5e6 s")?;
        check("poll_ns", machine.poll_ns as f64, 1.0..=1e9, "1 to 1e9 ns")?;
        check("yield_alone_ns", machine.yield_alone_ns as f64, 1.0..=1e9, "1 to 1e9 ns")?;
        check("yield_switch_ns", machine.yield_switch_ns as f64, 1.0..=1e9, "1 to 1e9 ns")?;
        check("quantum_ns", machine.quantum_ns as f64, 1.0..=1e12, "1 to 1e12 ns")?;
        for (name, ns) in [
            ("exchange_ns", machine.exchange_ns),
            ("line_ns", machine.line_ns),
            ("line_crowd_ns", machine.line_crowd_ns),
            ("step_ns", machine.step_ns),
            ("wake_call_ns", machine.wake_call_ns),
            ("wake_far_ns", machine.wake_far_ns),
            ("wake_near_ns", machine.wake_near_ns),
            ("barrier_ns", machine.barrier_ns),
            ("sleep_call_ns", machine.sleep_call_ns),
        ] {
            check(name, ns as f64, 0.0..=1e9, "0 to 1e9 ns")?;
        }
        for ns in machine.sleep_ns {
            check("sleep_ns", ns as f64, 0.0..=1e9, "0 to 1e9 ns")?;
        }
        let after_ns = machine.preempt_after_ns.unwrap_or(0);
        check("preempt_after_ns", after_ns as f64, 0.0..=machine.quantum_ns as f64, "0 to quantum_ns")?;
        if let Some(processors) = machine.processors {
            check("processors", processors.into(), 1.0..=PROCESSORS_MAX.into(), "1 to 4096")?;
        }
        check("copies", self.copies.into(), 1.0..=COPIES_MAX.into(), "1 to 4096")?;
        let most = f64::from(SLOTS_MAX - FIRST_PROCESSOR - PROCESSORS_MAX - COPIES_MAX);
        check("sessions_max", self.sessions_max.into(), 1.0..=most, "1 to about 1,040,000")?;
        match &self.arrivals {
            Arrivals::Closed { sessions, .. } => {
                check("sessions", (*sessions).into(), 1.0..=most, "1 to about 1,040,000")
            }
            Arrivals::Open { rate } => {
                check("rate", *rate, f64::MIN_POSITIVE..=1e12, "more than 0, to 1e12 per s")?;
                let utilization = rate * self.hold.mean() / f64::from(self.copies);
                if utilization < 1.0 { Ok(()) } else { Err(SimulationError::Utilization { utilization }) }
            }
        }
    }
}

/// Parameters as a map from names to values, as `retrial set` takes them.
mod settings {
    use super::{DEFAULT, Deserialize, Deserializer, P, Params, SerializeMap, Serializer, named};
    use serde::de::Error as _;
    use std::collections::BTreeMap;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Value {
        Number(u64),
        Text(String),
    }

    pub(super) fn serialize<S: Serializer>(params: &Params, serializer: S) -> Result<S::Ok, S::Error> {
        let set = P::ALL.iter().filter(|p| params.get(**p) != p.row().default);
        let mut map = serializer.serialize_map(None)?;
        for p in set {
            map.serialize_entry(p.row().name, &p.format(params.get(*p)))?;
        }
        map.end()
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Params, D::Error> {
        let map: BTreeMap<String, Value> = BTreeMap::deserialize(deserializer)?;
        let texts = map.into_iter().map(|(name, value)| {
            let text = match value {
                Value::Number(number) => number.to_string(),
                Value::Text(text) => text,
            };
            P::named(&name).map(|p| (p, text)).map_err(D::Error::custom)
        });
        let texts = texts.collect::<Result<Vec<_>, _>>()?;
        // The scheme says which unit `mutex_wait_time` has.
        let scheme = texts.iter().find(|(p, _)| *p == P::Scheme).and_then(|(_, text)| named(text)).unwrap_or(DEFAULT);
        texts.iter().try_fold(Params::default(), |params, (p, text)| {
            Ok(params.with(*p, p.parse(text, scheme).map_err(D::Error::custom)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_lies_between_what_was_measured() {
        let machine = Machine { sleep_ns: [76_000, 180_000, 1_090_000, 10_090_000], ..Machine::ideal() };
        assert_eq!(machine.slept_ns(500), 75_500);
        assert_eq!(machine.slept_ns(100_000), 180_000);
        assert_eq!(machine.slept_ns(550_000), 550_000 + 85_000);
        assert_eq!(machine.slept_ns(1_000_000_000), 1_000_090_000);
        assert_eq!(Machine::ideal().slept_ns(12_345), 12_345);
    }

    #[test]
    fn a_workload_survives_json() {
        let text = r#"{"arrivals": {"type": "closed", "sessions": 3, "think": {"type": "exponential", "mean": "5us"}},
            "hold": {"type": "deterministic", "mean": 1e-6}, "duration": "1ms",
            "params": {"mutex_wait_scheme": "backoff", "mutex_wait_time": "30cs", "mutex_spin_count": 100},
            "machine": {"processors": null, "line_ns": 7}}"#;
        let workload: Workload = serde_json::from_str(text).unwrap();
        assert_eq!(workload.params.get(P::WaitTime), 30);
        assert_eq!(workload.params.get(P::SpinCount), 100);
        assert_eq!((workload.machine.processors, workload.machine.line_ns), (None, 7));
        let again: Workload = serde_json::from_str(&serde_json::to_string(&workload).unwrap()).unwrap();
        assert_eq!(again, workload);
    }

    #[test]
    fn a_wrong_setting_is_answered_with_the_nearest_name() {
        let text = r#"{"arrivals": {"type": "open", "rate": 1}, "hold": {"type": "deterministic", "mean": 0.1},
            "duration": 1, "params": {"mutex_spincount": 1}}"#;
        let error = serde_json::from_str::<Workload>(text).unwrap_err().to_string();
        assert!(error.contains("mutex_spin_count"), "{error}");
    }
}
