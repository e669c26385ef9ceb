//! The parameter table: what can be set, its range, unit and default. Everything that shows or sets a
//! parameter reads this table.

use crate::schemes;
use std::time::Duration;
use thiserror::Error;

/// What values a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Whole numbers from the first to the second, both included.
    Number(u64, u64),
    /// One of these names; the stored value is the position.
    Names(&'static [&'static str]),
}

/// When a change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// At the next step of every wait, also of those under way.
    NextStep,
}

impl Effect {
    /// The name that the views show.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NextStep => "next step",
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// As in the sources, without the leading underscore.
    pub name: &'static str,
    /// Value of a new instance.
    pub default: u64,
    /// Range or names.
    pub domain: Domain,
    /// Unit, where there is one.
    pub unit: &'static str,
    /// When a change takes effect.
    pub effect: Effect,
    /// What it does, in one sentence.
    pub description: &'static str,
}

impl Param {
    /// The value if it is in the domain; otherwise, since another program may have written it, the nearest
    /// that is.
    pub(crate) const fn clamped(&self, value: u64) -> u64 {
        match self.domain {
            Domain::Number(low, _) if value < low => low,
            Domain::Number(_, high) if value > high => high,
            Domain::Names(names) if value >= names.len() as u64 => self.default,
            _ => value,
        }
    }
}

macro_rules! params {
    ($( $id:ident $name:literal = $default:expr, $domain:expr, $unit:literal, $description:literal; )*) => {
        /// A parameter, as an index of [`PARAMS`] and of [`Params`].
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(usize)]
        #[allow(missing_docs)] // each is documented by its row
        pub enum P { $( $id ),* }

        /// Every parameter.
        pub const PARAMS: &[Param] = &[ $( Param {
            name: $name, default: $default, domain: $domain, unit: $unit, effect: Effect::NextStep,
            description: $description,
        } ),* ];

        impl P {
            /// Every parameter, in the order of the table.
            pub const ALL: &'static [P] = &[ $( P::$id ),* ];
        }
    };
}

use Domain::{Names, Number};

/// Names of `wait_yield_mode`.
const YIELD_MODES: &[&str] = &["yield", "sleep"];

params! {
    Scheme "mutex_wait_scheme" = schemes::DEFAULT as u64, Names(schemes::NAMES), "",
        "How a session waits for a busy mutex.";
    SpinCount "mutex_spin_count" = 255, Number(0, 10_000_000), "polls",
        "Polls of the word before each step of schemes 10g, patch6904068, 0, 1 and 2.";
    WaitTime "mutex_wait_time" = 1, Number(0, 360_000), "ms in scheme 1 (sleep), cs in scheme 2 (backoff)",
        "Sleep time of scheme 1, longest sleep of scheme 2.";
    OnLostRace "on_lost_race" = 0, Names(&["spin", "sleep"]), "",
        "What a spinning session does that loses the exchange after a release: spin on to its limit, or take its next step at once.";
    SleepJitter "sleep_jitter" = 0, Number(0, 1_000_000), "us",
        "Half width of a uniform random addition to every timed sleep of the published schemes, which keep their exact times at 0.";
    FirstSpare "first_spare_parameter" = 1, Number(0, 360_000), "cs",
        "Sleep time of scheme patch6904068; 0 turns it into 10g.";
    YieldMode "wait_yield_mode" = 0, Names(YIELD_MODES), "",
        "Scheme 0: yield and now and then sleep, or sleep and now and then yield.";
    YieldHpMode "wait_yield_hp_mode" = 0, Names(YIELD_MODES), "",
        "Scheme 0: the same for sessions of the high priority class.";
    YieldSleepTime "wait_yield_sleep_time_msecs" = 1, Number(0, 3_600_000), "ms",
        "Scheme 0: sleep time; 0 makes the yield mode yield for ever.";
    YieldSleepFreq "wait_yield_sleep_freq" = 100, Number(0, 100_000_000), "steps",
        "Scheme 0, yield mode: every n-th step sleeps; 0 and 1 sleep at every step.";
    YieldYieldFreq "wait_yield_yield_freq" = 20, Number(0, 100_000_000), "steps",
        "Scheme 0, sleep mode: every n-th step yields; 0 never yields.";
    LatchSpinCount "latch_spin_count" = 20_000, Number(0, 100_000_000), "polls",
        "Scheme latch: polls before a session queues.";
    HardSpinCount "hard_spin_count" = 128, Number(0, 100_000_000), "polls",
        "Scheme ydb: polls with a pause in each round.";
    SoftSpinCount "sleep_spin_count" = 128, Number(0, 100_000_000), "rounds",
        "Scheme ydb: rounds of hard spin and yield, those of all waiting sessions together, before a session queues.";
    SpinSleepMask "spin_sleep_mask" = 0, Number(0, 0x3fff_ffff), "ns",
        "Scheme ydb: a soft spin sleeps a random time up to this mask instead of yielding; 0 yields.";
    MutexSlots "mutex_slots" = 1024, Number(1, 1 << 24), "sessions",
        "Schemes ydb and latch: length of the queue; a session that finds it full is counted and looks again after 1, 2, 4, up to 128 ms.";
    QueueTimeout "queue_timeout" = 100, Number(1, 3_600_000), "ms",
        "Schemes latch and ydb: time to the look of the queued session that watches, which heals a lost wake-up; pthread: the longest such time, the first look of each wait is after 10 ms.";
    CheckEvery "adaptive_check_every" = 1024, Number(1, 1 << 32), "gets",
        "Scheme adaptive: gets between two checks.";
    YdbThreshold "adaptive_ydb_threshold" = 1024, Number(0, 1 << 32), "sessions",
        "Scheme adaptive, type ydb in use: a check counts when queue sleeps since the last one plus queued sessions exceed this.";
    PthreadThreshold "adaptive_pthread_threshold" = 614, Number(0, 1 << 32), "misses",
        "Scheme adaptive, type pthread in use: a check counts when misses since the last one are below this.";
    Streak "adaptive_streak" = 16, Number(1, 1 << 20), "checks",
        "Scheme adaptive: checks in a row that switch the type.";
    OrbitSpinTime "orbit_spin_time" = 4, Number(0, 100_000), "us",
        "Scheme orbit: spin before the first yield and after a wake-up; a quarter of it after each yield.";
    OrbitYields "orbit_yields" = 512, Number(0, 1_000_000), "yields",
        "Scheme orbit: most yields before a session parks; down to a 64th of them while they do not bring it the mutex.";
    OrbitRetryRate "orbit_retry_rate" = 25, Number(1, 1_000_000), "1/s",
        "Looks per second of all parked sessions of a mutex together, but for the one that watches; sets the time-out of a park.";
    HandoverInterval "orbit_handover_interval" = 1000, Number(1, 10_000_000), "us",
        "Scheme orbit: a session that has waited for longer and was woken in vain has the mutex handed to it, this often at most (fairness balanced). A session that misses it again and again yields once in a tenth of this.";
    Fairness "fairness" = 1, Names(&["throughput", "balanced", "fifo"]), "",
        "Scheme orbit: neither handovers nor turns; turns, and a handover now and then to a session that was woken in vain; turns, and a handover at every release beside parked sessions.";
    AlertThreshold "alert_threshold" = 15_000, Number(1, 86_400_000), "ms",
        "A wait longer than this is written to the alert log, one for each mutex, and 128 of all in a process, in this \
         time.";
}

/// Number of parameters.
pub const PARAM_COUNT: usize = PARAMS.len();

/// A value for every parameter: what a wait scheme sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params(pub [u64; PARAM_COUNT]);

impl Default for Params {
    fn default() -> Self {
        Self(std::array::from_fn(|i| PARAMS[i].default))
    }
}

impl Params {
    /// The value of a parameter.
    #[inline]
    #[must_use]
    pub const fn get(&self, p: P) -> u64 {
        self.0[p as usize]
    }

    /// `fairness`.
    #[must_use]
    pub const fn fairness(&self) -> Fairness {
        match self.get(P::Fairness) {
            0 => Fairness::Throughput,
            1 => Fairness::Balanced,
            _ => Fairness::Fifo,
        }
    }

    /// `alert_threshold`.
    #[must_use]
    pub const fn alert_threshold(&self) -> Duration {
        Duration::from_millis(self.get(P::AlertThreshold))
    }

    /// `orbit_handover_interval`.
    #[must_use]
    pub const fn handover_interval(&self) -> Duration {
        Duration::from_micros(self.get(P::HandoverInterval))
    }

    /// The same parameters with another value for one of them.
    #[must_use]
    pub const fn with(mut self, p: P, value: u64) -> Self {
        self.0[p as usize] = value;
        self
    }
}

/// To which sessions `orbit` hands a mutex over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fairness {
    /// To none.
    Throughput,
    /// To a session that was woken in vain, now and then.
    Balanced,
    /// To the session that parked first, at every release.
    Fifo,
}

/// Why a parameter could not be set.
#[derive(Error, Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParamError {
    /// No such name.
    #[error("no parameter `{found}`, expected one of the table{}", suggestion(.nearest.as_ref()))]
    Unknown {
        /// What was asked for.
        found: String,
        /// The name most like it.
        nearest: Option<&'static str>,
    },
    /// Not a number, or not one of the names.
    #[error("value `{found}` of {name}, expected {expected}")]
    Value {
        /// The parameter.
        name: &'static str,
        /// What was given.
        found: String,
        /// What it takes.
        expected: String,
    },
    /// A unit was given that is not the parameter's.
    #[error("unit `{found}` of {name}, expected {expected}")]
    Unit {
        /// The parameter.
        name: &'static str,
        /// What was given.
        found: String,
        /// Its unit.
        expected: String,
    },
    /// A setting without `=`.
    #[error("setting `{0}`, expected NAME=VALUE")]
    Form(String),
}

fn suggestion(name: Option<&&'static str>) -> String {
    name.map_or_else(String::new, |name| format!("; the nearest is `{name}`"))
}

impl P {
    /// Its row.
    #[must_use]
    pub const fn row(self) -> &'static Param {
        &PARAMS[self as usize]
    }

    /// The parameter of this name; a leading underscore is allowed.
    ///
    /// # Errors
    ///
    /// [`ParamError::Unknown`] with the nearest name.
    pub fn named(name: &str) -> Result<Self, ParamError> {
        let bare = name.trim_start_matches('_').to_ascii_lowercase();
        P::ALL.iter().copied().find(|p| p.row().name == bare).ok_or_else(|| ParamError::Unknown {
            found: name.to_owned(),
            nearest: PARAMS.iter().map(|row| row.name).min_by_key(|row| (!row.contains(&bare), distance(row, &bare))),
        })
    }

    /// The unit of its values while `scheme` is in use: `mutex_wait_time` is ms in scheme 1 and cs in scheme
    /// 2.
    #[must_use]
    pub fn unit(self, scheme: usize) -> &'static str {
        let of_scheme = if self == P::WaitTime { schemes::wait_time_unit(scheme) } else { None };
        of_scheme.unwrap_or(self.row().unit)
    }

    /// The value that `text` means.
    ///
    /// A number may carry the parameter's own unit (`30cs` while `mutex_wait_time` is in cs); any other unit
    /// is an error, since the sources differ in units where the names are the same. Of `mutex_wait_scheme`
    /// the sources' numbers 0, 1 and 2 are names too.
    ///
    /// # Errors
    ///
    /// [`ParamError::Value`] and [`ParamError::Unit`].
    pub fn parse(self, text: &str, scheme: usize) -> Result<u64, ParamError> {
        let row = self.row();
        let wrong = |expected: String| ParamError::Value { name: row.name, found: text.to_owned(), expected };
        match row.domain {
            Names(names) => {
                let lower = text.to_ascii_lowercase();
                let position = if self == P::Scheme { schemes::named(&lower) } else { None };
                position
                    .or_else(|| names.iter().position(|name| *name == lower))
                    .map(|position| position as u64)
                    .ok_or_else(|| wrong(format!("one of {}", names.join(", "))))
            }
            Number(low, high) => {
                let range = || wrong(format!("a whole number from {low} to {high} ({})", self.unit(scheme)));
                let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
                let (number, unit) = text.split_at(digits);
                if !unit.is_empty() && !number.is_empty() && unit.trim() != self.unit(scheme) {
                    return Err(ParamError::Unit {
                        name: row.name,
                        found: unit.trim().to_owned(),
                        expected: self.unit(scheme).to_owned(),
                    });
                }
                let value: u64 = number.parse().map_err(|_| range())?;
                if (low..=high).contains(&value) { Ok(value) } else { Err(range()) }
            }
        }
    }

    /// A value as text: a name, or a number.
    #[must_use]
    pub fn format(self, value: u64) -> String {
        match self.row().domain {
            Names(names) => usize::try_from(value)
                .ok()
                .and_then(|position| names.get(position))
                .map_or_else(|| value.to_string(), |name| (*name).to_owned()),
            Number(..) => value.to_string(),
        }
    }
}

/// Edits (insert, delete, replace a character) from one name to another.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let replace = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_in_its_domain() {
        for row in PARAMS {
            match row.domain {
                Number(low, high) => assert!((low..=high).contains(&row.default), "{}", row.name),
                Names(names) => assert!((row.default as usize) < names.len(), "{}", row.name),
            }
        }
    }

    #[test]
    fn a_value_survives_printing_and_parsing() {
        for &p in P::ALL {
            let value = p.row().default;
            assert_eq!(p.parse(&p.format(value), 0), Ok(value), "{}", p.row().name);
        }
    }

    #[test]
    fn the_unit_of_mutex_wait_time_follows_the_scheme() {
        assert_eq!(P::WaitTime.parse("30cs", schemes::BACKOFF), Ok(30));
        assert_eq!(P::WaitTime.parse("30ms", schemes::SLEEP), Ok(30));
        assert!(matches!(P::WaitTime.parse("30ms", schemes::BACKOFF), Err(ParamError::Unit { .. })));
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_nearest() {
        let Err(ParamError::Unknown { nearest, .. }) = P::named("mutex_spincount") else { panic!() };
        assert_eq!(nearest, Some("mutex_spin_count"));
        let Err(ParamError::Unknown { nearest, .. }) = P::named("jitter") else { panic!() };
        assert_eq!(nearest, Some("sleep_jitter"));
        assert_eq!(P::named("_MUTEX_SPIN_COUNT"), Ok(P::SpinCount));
    }

    #[test]
    fn out_of_range_says_the_range() {
        let error = P::MutexSlots.parse("0", 0).unwrap_err().to_string();
        assert!(error.contains("from 1 to 16777216"), "{error}");
    }
}
