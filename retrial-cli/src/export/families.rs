//! From snapshots to metrics.

use super::ledger::{Count, Ledger};
use super::text::{Family, Kind, Labels, Sample, Value};
use crate::clock::time;
use crate::recording::{Period, Snapshot, State};
use retrial::views::{Counter, Key, LocationId, Sid};
use retrial::{MutexId, P};
use retrial_model::profile::WAIT_PARTS;
use std::collections::BTreeMap;

/// In place of a name, for all that have none of their own.
const OTHER: &str = "other";

/// The counters of an instance, from its creation on.
pub struct Exported {
    mutexes: Ledger<MutexId>,
    places: Ledger<LocationId>,
    events: Ledger<String>,
    /// Names, also of mutexes that are gone.
    labels: BTreeMap<MutexId, [(&'static str, String); 2]>,
}

impl Exported {
    /// With so many mutexes, places and events under names of their own.
    pub fn new(most: usize) -> Self {
        let (mutexes, places, events) = (Ledger::new(most), Ledger::new(most), Ledger::new(most));
        Self { mutexes, places, events, labels: BTreeMap::new() }
    }

    /// Enters what an instance has counted by now, and gives all metrics of it.
    pub fn families(&mut self, now: &Snapshot) -> Vec<Family> {
        self.enter(now);
        let mut families = of_instance(now);
        families.extend(self.of_mutexes(now));
        families.extend(waits("retrial_place", &self.places, |place| {
            vec![("place", place.map_or(OTHER, |id| now.place(*id)).to_owned())]
        }));
        families.extend(waits("retrial_event", &self.events, |event| {
            vec![("event", event.map_or(OTHER, String::as_str).to_owned())]
        }));
        families
    }

    fn enter(&mut self, now: &Snapshot) {
        let period = Period::since_creation(now);
        let of_mutexes = period.mutexes().into_iter();
        let mutexes =
            of_mutexes.map(|(mutex, p)| (mutex.info.id, Count { figures: p.figures, gets: p.gets })).collect();
        self.mutexes.enter(mutexes);
        for (id, _) in self.mutexes.counts() {
            if let Some(mutex) = id.and_then(|id| now.mutex(*id)) {
                let of_type = now.type_name(mutex.info.mutex_type).to_owned();
                self.labels.insert(mutex.info.id, [("mutex", mutex.label()), ("type", of_type)]);
            }
        }
        self.labels.retain(|id, _| self.mutexes.is_named(id));
        let count = |profile: retrial_model::Profile| Count { figures: profile.figures, gets: None };
        let places = period.of(|_, key: Key| Some(key.location));
        self.places.enter(places.into_iter().map(|(place, profile)| (place, count(profile))).collect());
        let by_name = |_: Sid, key: Key| Some(now.event_name(key));
        let events = period.of(by_name).into_iter().chain(period.of_events(by_name));
        self.events.enter(events.map(|(event, profile)| (event, count(profile))).collect());
    }

    fn of_mutexes(&self, now: &Snapshot) -> Vec<Family> {
        let name = |id: Option<&MutexId>| {
            let known = id.and_then(|id| self.labels.get(id)).map(|labels| labels.to_vec());
            known.unwrap_or_else(|| vec![("mutex", OTHER.to_owned()), ("type", OTHER.to_owned())])
        };
        let mut families = waits("retrial_mutex", &self.mutexes, name);
        let gets = self
            .mutexes
            .counts()
            .filter_map(|(id, count)| Some(Sample { labels: name(id), value: (count.gets? as f64).into() }));
        families.insert(
            0,
            Family {
                name: "retrial_mutex_gets".into(),
                kind: Kind::Counter,
                unit: "",
                help: "First requests that were granted, where they are counted.",
                samples: gets.collect(),
            },
        );
        let mut waiting: BTreeMap<Option<MutexId>, u64> = BTreeMap::new();
        for session in now.sessions.iter().filter(|session| !session.info.dead) {
            if let Some((key, ..)) = session.info.wait.filter(|(key, ..)| !key.event.for_event) {
                *waiting.entry(Some(key.mutex).filter(|id| self.mutexes.is_named(id))).or_default() += 1;
            }
        }
        let of_now = |of: &dyn Fn(&MutexId) -> f64, of_others: f64| {
            let samples = self
                .mutexes
                .counts()
                .map(|(id, _)| Sample { labels: name(id), value: id.map_or(of_others, of).into() });
            samples.collect::<Vec<_>>()
        };
        let others = |is: &dyn Fn(&crate::recording::Mutex) -> bool| {
            let nameless = now.mutexes.iter().filter(|mutex| !mutex.is_event && !self.mutexes.is_named(&mutex.info.id));
            nameless.filter(|mutex| is(mutex)).count() as f64
        };
        let is = |id: &MutexId, is: &dyn Fn(&crate::recording::Mutex) -> bool| {
            f64::from(u8::from(now.mutex(*id).is_some_and(is)))
        };
        let (held, poisoned) = (
            |mutex: &crate::recording::Mutex| !mutex.holders.is_empty(),
            |mutex: &crate::recording::Mutex| mutex.is_poisoned,
        );
        let count = |id: Option<MutexId>| waiting.get(&id).copied().unwrap_or(0) as f64;
        families.push(gauge(
            "retrial_mutex_waiters",
            "Sessions that wait for it now.",
            of_now(&|id| count(Some(*id)), count(None)),
        ));
        families.push(gauge(
            "retrial_mutex_held",
            "Whether it is held now; of the others, how many are.",
            of_now(&|id| is(id, &held), others(&held)),
        ));
        families.push(gauge(
            "retrial_mutex_poisoned",
            "Whether its holder died and nobody has declared its data consistent since; of the others, how many are.",
            of_now(&|id| is(id, &poisoned), others(&poisoned)),
        ));
        families
    }
}

/// Counters of waits under the names of a ledger.
fn waits<K: Ord + Clone>(of: &str, ledger: &Ledger<K>, name: impl Fn(Option<&K>) -> Labels) -> Vec<Family> {
    const COUNTERS: [(&str, Counter, &str); 2] = [
        ("misses", Counter::Misses, "Requests that found it busy at the first try."),
        ("waits", Counter::Waits, "Waits, each from its first failed spin on."),
    ];
    let counters = COUNTERS.iter().map(|(what, counter, help)| {
        let sample = |(key, count): (Option<&K>, &Count)| Sample {
            labels: name(key),
            value: (count.figures.get(*counter) as f64).into(),
        };
        let samples = ledger.counts().map(sample).collect();
        Family { name: format!("{of}_{what}").into(), kind: Kind::Counter, unit: "", help, samples }
    });
    let mut families: Vec<Family> = counters.collect();
    let sleeps = |(key, count): (Option<&K>, &Count)| Sample {
        labels: name(key),
        value: (count.figures.sleeps() as f64).into(),
    };
    families.push(Family {
        name: format!("{of}_sleeps").into(),
        kind: Kind::Counter,
        unit: "",
        help: "Steps of waits that left the processor: yields, sleeps, parks.",
        samples: ledger.counts().map(sleeps).collect(),
    });
    let parts = |(key, count): (Option<&K>, &Count)| {
        let (labels, figures) = (name(key), count.figures);
        WAIT_PARTS.map(|counter| Sample {
            labels: [labels.clone(), vec![("part", Counter::NAMES[counter as usize].replace("_ns", ""))]].concat(),
            value: (figures.get(counter) as f64 / 1e9).into(),
        })
    };
    families.push(Family {
        name: format!("{of}_wait_seconds").into(),
        kind: Kind::Counter,
        unit: "seconds",
        help: "Time in waits, those under way too, by what it was spent with: spins, yields, sleeps and parks as asked for, and longer than that.",
        samples: ledger.counts().flat_map(parts).collect(),
    });
    let lengths = |(key, count): (Option<&K>, &Count)| Sample {
        labels: name(key),
        value: Value::Lengths(Box::new(count.figures.lengths), count.figures.get(Counter::WaitNs) as f64 / 1e9),
    };
    families.push(Family {
        name: format!("{of}_wait_duration_seconds").into(),
        kind: Kind::Histogram,
        unit: "seconds",
        help: "Waits that have ended, each from its first failed spin on; the sum has those under way, too.",
        samples: ledger.counts().map(lengths).collect(),
    });
    families
}

fn gauge(name: &'static str, help: &'static str, samples: Vec<Sample>) -> Family {
    Family { name: name.into(), kind: Kind::Gauge, unit: "", help, samples }
}

fn alone(value: f64) -> Vec<Sample> {
    vec![Sample { labels: Vec::new(), value: value.into() }]
}

/// What an instance has as a whole.
fn of_instance(now: &Snapshot) -> Vec<Family> {
    let counter = |name: &'static str, help, value: f64| Family {
        name: name.into(),
        kind: Kind::Counter,
        unit: "",
        help,
        samples: alone(value),
    };
    let labels = vec![
        ("name", now.instance.name.clone()),
        ("created", time(now.instance.created_ns)),
        ("scheme", P::Scheme.format(now.param(P::Scheme, None))),
    ];
    let sessions = State::ALL.iter().map(|state| Sample {
        labels: vec![("state", state.name().to_lowercase())],
        value: (now.sessions.iter().filter(|session| session.state == *state).count() as f64).into(),
    });
    vec![
        Family {
            name: "retrial_instance".into(),
            kind: Kind::Info,
            unit: "",
            help: "The instance whose metrics these are.",
            samples: vec![Sample { labels, value: 1.0.into() }],
        },
        gauge("retrial_sessions", "Sessions by what they do.", sessions.collect()),
        gauge(
            "retrial_mutexes",
            "Mutexes that are registered.",
            alone(now.mutexes.iter().filter(|mutex| !mutex.is_event).count() as f64),
        ),
        counter("retrial_owner_deaths", "Deaths of holders.", now.recoveries as f64),
        counter("retrial_alerts", "Lines of the alert log.", now.alerts.last().map_or(0, |alert| alert.number) as f64),
    ]
}
