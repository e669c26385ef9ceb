//! What is simulated, as data: which sessions come, how long they hold, how they wait, on which machine.

use super::error::{SimulationError, check};
use super::machine::{Machine, PROCESSORS_MAX};
use super::timers::{FIRST_PROCESSOR, SLOTS_MAX};
use crate::distribution::Distribution;
use crate::quantity;
use retrial::P;
use retrial::views::Params;
use retrial::wait::{DEFAULT, named};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeMap};

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

/// Which copy of the mutex a get is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// Any of them, all equally likely.
    #[default]
    Random,
    /// The one of the processor on which the session asks: its number modulo the number of copies.
    Processor,
}

/// What is simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// How sessions come.
    pub arrivals: Arrivals,
    /// How long they hold the mutex.
    pub hold: Distribution,
    /// Processor time of a session between a release and its think time, in s: calls and timers, where it thinks
    /// away from the processors.
    #[serde(default, deserialize_with = "quantity::time")]
    pub work: f64,
    /// Copies of the mutex; each get is of one of them. From 1.
    #[serde(default = "one")]
    pub copies: u32,
    /// Which one.
    #[serde(default)]
    pub spread: Spread,
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

/// Most copies of the mutex.
const COPIES_MAX: u32 = 4096;

impl Workload {
    /// A workload with the parameters at their defaults on the default machine, without a time before
    /// anything is counted.
    #[must_use]
    pub fn new(arrivals: Arrivals, hold: Distribution, duration: f64) -> Self {
        Self {
            arrivals,
            hold,
            work: 0.0,
            copies: 1,
            spread: Spread::default(),
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

    /// Gets per second that it cannot exceed: those that arrive, or those of sessions that never wait for a
    /// mutex that is held all the time.
    #[must_use]
    pub fn gets_per_s_most(&self) -> f64 {
        match &self.arrivals {
            Arrivals::Open { rate } => *rate,
            Arrivals::Closed { sessions, think, .. } => {
                let alone = f64::from(*sessions) / (self.hold.mean() + self.work + think.mean());
                alone.min(f64::from(self.copies) / self.hold.mean())
            }
        }
    }

    /// Seconds of the virtual clock before anything is counted, and those that are counted, with so many gets
    /// per second: enough gets for a narrow interval, and many of the longest sleeps and of the rounds of
    /// turns.
    #[must_use]
    pub fn spans(&self, gets_per_s: f64) -> (f64, f64) {
        const GETS: f64 = 200_000.0;
        let round = match self.arrivals {
            Arrivals::Open { .. } => 0.0,
            Arrivals::Closed { sessions, .. } => self.machine.round_s(sessions),
        };
        let counted = (GETS / gets_per_s.max(1.0)).clamp(0.3, 5.0).max((10.0 * round).min(10.0));
        ((counted / 10.0).max((2.0 * round).min(2.0)), counted)
    }

    /// Whether it can be simulated.
    pub(super) fn check(&self) -> Result<(), SimulationError> {
        check("warm_up", self.warm_up, 0.0..=LONGEST, "0 to 5e6 s")?;
        check("duration", self.duration, f64::MIN_POSITIVE..=LONGEST, "more than 0, to 5e6 s")?;
        check("work", self.work, 0.0..=LONGEST, "0 to 5e6 s")?;
        check("dist", self.hold.mean(), 0.0..=LONGEST, "a mean of up to 5e6 s")?;
        self.machine.check()?;
        check("copies", self.copies.into(), 1.0..=COPIES_MAX.into(), "1 to 4096")?;
        let most = f64::from(SLOTS_MAX - FIRST_PROCESSOR - PROCESSORS_MAX - COPIES_MAX);
        check("sessions_max", self.sessions_max.into(), 1.0..=most, "1 to about 1,040,000")?;
        match &self.arrivals {
            Arrivals::Closed { sessions, think, .. } => {
                check("think", think.mean(), 0.0..=LONGEST, "a mean of up to 5e6 s")?;
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
    fn a_crowd_is_simulated_for_rounds_of_its_turns() {
        let spans = |sessions: u32| {
            let think = Distribution::exponential(10e-6).unwrap();
            let arrivals = Arrivals::Closed { sessions, think: think.clone(), on_processor: true };
            let workload = Workload::new(arrivals, think, 1.0);
            let (warm_up, counted) = workload.spans(workload.gets_per_s_most());
            [warm_up, counted].map(|s| (s * 1e3).round())
        };
        // In ms: 200,000 gets of 10 us; 32 and 512 turns of a tick of 4 ms.
        assert_eq!(spans(2), [200.0, 2000.0]);
        assert_eq!(spans(64), [256.0, 2000.0]);
        assert_eq!(spans(1024), [2000.0, 10_000.0]);
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
