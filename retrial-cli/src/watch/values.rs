//! Figures that expressions may name: the measures of the one table, and what an instance is at the moment.

use super::expression::{Value, Wrong, brief};
use super::waiting::Waiting;
use crate::instances::is_called;
use crate::output::per;
use crate::recording::{Mutex, Period, Snapshot, State};
use retrial::views::{Sid, TypeId};
use retrial::{Mode, MutexId};
use retrial_model::{Measure, Profile};
use std::collections::HashMap;

/// A figure by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name {
    /// In its own unit, or in the one that the name ends with.
    Measure(Measure, &'static str),
    /// By its position in [`MOMENTARY`].
    Momentary(usize),
}

/// Units that may follow the name of a measure.
const UNITS: [&str; 4] = ["ms", "us", "ns", "pct"];

/// A figure that no measure is.
pub struct Momentary {
    pub name: &'static str,
    pub unit: &'static str,
    pub description: &'static str,
    of: fn(&Scope<'_>) -> Option<f64>,
}

/// Every such figure.
pub const MOMENTARY: &[Momentary] = &[
    Momentary {
        name: "wait_ms_per_s",
        unit: "ms/s",
        description: "Time in waits per second since the last look: 1000 is one session that waits all the time",
        of: |scope| {
            let profile = scope.profile()?;
            Some(Measure::Registered.of(&profile)? * 1e3 / Some(profile.time_s).filter(|time| *time > 0.0)?)
        },
    },
    Momentary {
        name: "holder_age",
        unit: "s",
        description: "How long the present holder has been seen at every look, with no get meanwhile; of several the longest",
        of: |scope| scope.mutexes().filter_map(|mutex| scope.ages.age_s(mutex, scope.period.to)).reduce(f64::max),
    },
    Momentary {
        name: "longest_wait",
        unit: "s",
        description: "The longest of the waits under way",
        of: |scope| Some(scope.waits().map(|(_, s)| s).fold(0.0, f64::max)),
    },
    Momentary {
        name: "waiters",
        unit: "",
        description: "Sessions that wait for a mutex now",
        of: |scope| Some(scope.waits().count() as f64),
    },
    Momentary {
        name: "held",
        unit: "",
        description: "Mutexes that are held now",
        of: |scope| Some(scope.mutexes().filter(|mutex| !mutex.holders.is_empty()).count() as f64),
    },
    Momentary {
        name: "poisoned",
        unit: "",
        description: "Mutexes whose holder died and whose data nobody has declared consistent since",
        of: |scope| Some(scope.mutexes().filter(|mutex| mutex.is_poisoned).count() as f64),
    },
    Momentary {
        name: "deaths",
        unit: "",
        description: "Deaths of holders since the last look; of the instance only",
        of: |scope| {
            let before = scope.period.from().map_or(0, |from| from.recoveries);
            scope.of_instance(scope.period.to.recoveries.saturating_sub(before))
        },
    },
    Momentary {
        name: "dead",
        unit: "",
        description: "Sessions whose thread is gone and that have not been recovered; of the instance only",
        of: |scope| scope.of_instance(scope.sessions(State::Dead)),
    },
    Momentary {
        name: "deadlocked",
        unit: "",
        description: "Sessions that wait for each other; of the instance only",
        of: |scope| scope.of_instance(scope.sessions(State::Deadlocked)),
    },
    Momentary {
        name: "alerts",
        unit: "",
        description: "New lines of the alert log since the last look; of the instance only",
        of: |scope| {
            let last = |snapshot: &Snapshot| snapshot.alerts.last().map_or(0, |alert| alert.number);
            let before = scope.period.from().map_or(0, last);
            scope.of_instance(last(scope.period.to).saturating_sub(before))
        },
    },
    Momentary {
        name: "sessions",
        unit: "",
        description: "Living sessions; of the instance only",
        of: |scope| scope.of_instance(scope.period.to.sessions.len() as u64 - scope.sessions(State::Dead)),
    },
    Momentary {
        name: "busy",
        unit: "",
        description: "Share of the machine's processors that were busy since the last look; of the instance only",
        of: |scope| scope.alone(scope.period.busy()),
    },
    Momentary {
        name: "pressure",
        unit: "",
        description: "Share of the time since the last look in which a thread waited for a processor; of the instance only",
        of: |scope| scope.alone(scope.period.pressed()),
    },
];

impl Name {
    /// The figure of this name; the error says what is near it.
    pub fn find(word: &str) -> Result<Self, String> {
        if let Some(at) = MOMENTARY.iter().position(|momentary| momentary.name == word) {
            return Ok(Self::Momentary(at));
        }
        let measure = |name: &str| Measure::ALL.iter().copied().find(|measure| measure.name() == name);
        if let Some(measure) = measure(word) {
            return Ok(Self::Measure(measure, ""));
        }
        for unit in UNITS {
            let of_unit = |measure: &Measure| (measure.unit() == "s") != (unit == "pct");
            let bare = word.strip_suffix(unit).and_then(|rest| measure(rest.strip_suffix('_')?));
            if let Some(measure) = bare.filter(of_unit) {
                return Ok(Self::Measure(measure, unit));
            }
        }
        let known: Vec<&str> = names().map(|(name, ..)| name).collect();
        Err(format!("`{}` is no figure{}; retrial watch --names has them all", brief(word), meant(word, &known)))
    }

    fn of(self, scope: &Scope<'_>) -> Option<f64> {
        match self {
            Self::Measure(measure, unit) => Some(measure.of(&scope.profile()?)? * per(unit)),
            Self::Momentary(at) => (MOMENTARY[at].of)(scope),
        }
    }
}

/// `, did you mean …?`, or some of the names that there are where none is near.
fn meant(word: &str, known: &[&str]) -> String {
    // One slip in a short word, two in a long one.
    let slips = if word.chars().count() < 6 { 1 } else { 2 };
    let near = known.iter().map(|name| (strsim::damerau_levenshtein(word, name), name));
    let nearest = near.filter(|(slip, _)| *slip <= slips).min_by_key(|(slip, _)| *slip);
    let some = || format!(", expected one such as {}", known.iter().take(8).copied().collect::<Vec<_>>().join(", "));
    nearest.map_or_else(some, |(_, name)| format!(", did you mean `{name}`?"))
}

/// Name, unit and description of every figure.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let momentary = MOMENTARY.iter().map(|figure| (figure.name, figure.unit, figure.description));
    momentary.chain(Measure::ALL.iter().map(|measure| (measure.name(), measure.unit(), measure.description())))
}

/// What a name in brackets means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    Instance,
    Mutex(MutexId),
    Type(TypeId),
}

impl Of {
    /// A mutex by name, label or `#` and number; a mutex type.
    fn find(snapshot: &Snapshot, of: Option<&str>) -> Option<Self> {
        let Some(text) = of else { return Some(Self::Instance) };
        let named = |mutex: &&Mutex| {
            !mutex.is_event
                && (is_called(&mutex.name, text) || mutex.label() == text || format!("#{}", mutex.info.id.0) == text)
        };
        let mutex = snapshot.mutexes.iter().find(named).map(|mutex| Self::Mutex(mutex.info.id));
        let of_type = || snapshot.types.iter().find(|(_, name)| *name == text).map(|(id, _)| Self::Type(*id));
        mutex.or_else(of_type)
    }
}

/// Looks for names that mean nothing now.
pub fn check(text: &str, values: &[&Value], snapshot: &Snapshot) -> Result<(), Wrong> {
    let unknown = values.iter().find(|value| Of::find(snapshot, value.of.as_deref()).is_none());
    let Some(value) = unknown else { return Ok(()) };
    let of = value.of.as_deref().unwrap_or_default();
    let mutexes = snapshot.mutexes.iter().filter(|mutex| !mutex.is_event && !mutex.name.is_empty());
    let types = snapshot.types.values().map(String::as_str);
    let known: Vec<&str> = mutexes.map(|mutex| mutex.name.as_str()).chain(types).collect();
    let shown = brief(of);
    let what = format!("`{shown}` is no mutex and no mutex type of the instance{}", meant(of, &known));
    Err(Wrong::new(text, value.at, format!("{what}; `retrial show mutexes` has them all")))
}

/// What was seen between two looks, of what a figure is of.
struct Scope<'s> {
    period: Period<'s>,
    ages: &'s Ages,
    waiting: &'s Waiting,
    of: Of,
}

impl<'s> Scope<'s> {
    fn profile(&self) -> Option<Profile> {
        let profile = match self.of {
            Of::Instance => self.period.total(),
            Of::Mutex(id) => self.period.mutex(self.period.to.mutex(id)?),
            Of::Type(id) => self.period.types().remove(&id)?,
        };
        let waited = self.waiting.share(self.mutexes().map(|mutex| mutex.info.id));
        Some(Profile { waiting_s: waited.map(|share| share * profile.time_s), ..profile })
    }

    fn covers(&self, mutex: &Mutex) -> bool {
        !mutex.is_event
            && match self.of {
                Of::Instance => true,
                Of::Mutex(id) => mutex.info.id == id,
                Of::Type(id) => mutex.info.mutex_type == id,
            }
    }

    fn mutexes(&self) -> impl Iterator<Item = &'s Mutex> {
        self.period.to.mutexes.iter().filter(|mutex| self.covers(mutex))
    }

    /// Waits under way with their length in s.
    fn waits(&self) -> impl Iterator<Item = (Sid, f64)> {
        let to = self.period.to;
        to.sessions.iter().filter(|session| session.state != State::Dead).filter_map(move |session| {
            let (key, since_ns, _) = session.info.wait.filter(|(key, ..)| !key.event.for_event)?;
            to.mutex(key.mutex).filter(|mutex| self.covers(mutex))?;
            Some((session.info.sid, to.at.monotonic_ns.saturating_sub(since_ns) as f64 / 1e9))
        })
    }

    fn sessions(&self, state: State) -> u64 {
        self.period.to.sessions.iter().filter(|session| session.state == state).count() as u64
    }

    fn of_instance(&self, count: u64) -> Option<f64> {
        self.alone(Some(count as f64))
    }

    /// What only the whole instance has.
    fn alone(&self, value: Option<f64>) -> Option<f64> {
        value.filter(|_| self.of == Of::Instance)
    }
}

/// The value of a figure between two looks.
pub fn value(value: &Value, period: Period<'_>, ages: &Ages, waiting: &Waiting) -> Option<f64> {
    let of = Of::find(period.to, value.of.as_deref())?;
    value.name.of(&Scope { period, ages, waiting, of }).filter(|x| x.is_finite())
}

/// Since when each mutex has had the holders that it has.
#[derive(Default)]
pub struct Ages(HashMap<MutexId, Seen>);

/// Of a mutex, with its gets, and when they were seen first, by the monotonic clock.
struct Seen {
    holders: Vec<(Sid, Mode)>,
    gets: Option<u64>,
    since_ns: u64,
}

impl Ages {
    /// Takes a look into account.
    pub fn see(&mut self, snapshot: &Snapshot) {
        let mut seen = HashMap::new();
        for mutex in snapshot.mutexes.iter().filter(|mutex| !mutex.holders.is_empty()) {
            let now_ns = snapshot.at.monotonic_ns;
            let before = self.0.remove(&mutex.info.id);
            let same = before.filter(|before| before.holders == mutex.holders && before.gets == mutex.gets);
            let since_ns = same.map_or(now_ns, |before| before.since_ns);
            seen.insert(mutex.info.id, Seen { holders: mutex.holders.clone(), gets: mutex.gets, since_ns });
        }
        self.0 = seen;
    }

    fn age_s(&self, mutex: &Mutex, now: &Snapshot) -> Option<f64> {
        let since_ns = self.0.get(&mutex.info.id)?.since_ns;
        Some(now.at.monotonic_ns.saturating_sub(since_ns) as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_may_have_its_unit_in_the_name() {
        assert_eq!(Name::find("wait_max"), Ok(Name::Measure(Measure::WaitMax, "")));
        assert_eq!(Name::find("wait_max_us"), Ok(Name::Measure(Measure::WaitMax, "us")));
        assert_eq!(Name::find("miss_ratio_pct"), Ok(Name::Measure(Measure::MissRatio, "pct")));
        for wrong in ["miss_ratio_ms", "wait_max_pct", "_ms", "waitmax"] {
            assert!(Name::find(wrong).is_err(), "{wrong}");
        }
        assert!(Name::find("holder_aeg").unwrap_err().contains("did you mean `holder_age`?"));
        for far in ["xyzzy", "gets", "jain"] {
            let said = Name::find(far).unwrap_err();
            assert!(!said.contains("did you mean") && said.contains("one such as wait_ms_per_s"), "{said}");
        }
    }

    #[test]
    fn a_figure_is_that_of_the_table_for_the_time_between_two_looks() {
        let instance = retrial::Instance::anonymous(retrial::Capacity::default()).unwrap();
        let (holder, waiter) = (
            instance.session("", retrial::Class::Normal).unwrap(),
            instance.session("", retrial::Class::Normal).unwrap(),
        );
        let [m, n] = ["m", "n"].map(|name| instance.mutex(name, "t", || 0_u64).unwrap());
        let first = Snapshot::of(instance.tables());
        let held = m.exclusive(&holder, retrial::location!("x")).unwrap();
        drop(n.exclusive(&holder, retrial::location!("x")).unwrap());
        let patience = std::time::Duration::from_millis(5);
        let late = retrial::sys::Deadline::after(patience);
        assert!(m.exclusive_until(&waiter, retrial::location!("x"), late).is_err());
        drop(held);
        let mut last = Snapshot::of(instance.tables());
        // Two seconds later.
        last.at.monotonic_ns = first.at.monotonic_ns + 2_000_000_000;
        let (period, ages) = (Period::between(&first, &last), Ages::default());
        let of = |text: &str| {
            let expression = crate::watch::expression::Expression::parse(&format!("{text} > 0")).unwrap();
            value(expression.values()[0], period, &ages, &Waiting::default())
        };
        let profile = period.mutex(period.to.mutexes.iter().find(|mutex| mutex.name == "m").unwrap());
        assert!(profile.registered_s() > 0.004, "{profile:?}");
        assert_eq!(of("wait_ms_per_s('m')"), Some(profile.registered_s() * 1e3 / 2.0));
        assert_eq!(of("wait_ms_per_s('t')"), of("wait_ms_per_s"));
        assert_eq!(
            (of("miss_ratio('m')"), of("throughput('t')"), of("throughput('n')")),
            (Some(0.5), Some(1.0), Some(0.5))
        );
        assert_eq!(
            (of("wait_ms_per_s('n')"), of("deaths"), of("deaths('m')"), of("waiters")),
            (Some(0.0), Some(0.0), None, Some(0.0))
        );
        assert_eq!(of("miss_ratio('nope')"), None);
    }

    #[test]
    fn names_are_different() {
        let mut all: Vec<&str> = names().map(|(name, ..)| name).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn a_holder_is_as_old_as_the_looks_that_found_it_and_no_get() {
        let instance = retrial::Instance::anonymous(retrial::Capacity::default()).unwrap();
        let session = instance.session("s", retrial::Class::Normal).unwrap();
        let mutex = instance.mutex("m", "t", || 0_u64).unwrap();
        let get = || mutex.exclusive(&session, retrial::location!("x")).unwrap();
        let held = get();
        let mut ages = Ages::default();
        let look = |ages: &mut Ages, at_s: u64| {
            let mut snapshot = Snapshot::of(instance.tables());
            snapshot.at.monotonic_ns = at_s * 1_000_000_000;
            ages.see(&snapshot);
            ages.age_s(&snapshot.mutexes[0], &snapshot)
        };
        assert_eq!((look(&mut ages, 10), look(&mut ages, 14)), (Some(0.0), Some(4.0)));
        drop(held);
        let held = get();
        assert_eq!(look(&mut ages, 20), Some(0.0), "the same session, but it has got it anew");
        drop(held);
        assert_eq!(look(&mut ages, 30), None);
    }
}
