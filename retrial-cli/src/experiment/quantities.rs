//! What an experiment finds: figures of lines at points, each with how it was found and on which machine.

use super::load::Setup;
use retrial_bench::outcome::median;
use retrial_model::{Measure, Profile};

macro_rules! quantities {
    ($( $id:ident $name:literal $title:literal $of:expr; )*) => {
        /// A figure, with its unit in its name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Quantity { $( $id ),* }

        impl Quantity {
            /// The name of its column.
            pub const fn name(self) -> &'static str { [ $( $name ),* ][self as usize] }
            /// What a chart calls it.
            pub const fn title(self) -> &'static str { [ $( $title ),* ][self as usize] }
            /// What a run of a load says of it.
            pub fn of(self, profile: &Profile) -> Option<f64> {
                let value = match self { $( Quantity::$id => ($of as fn(&Profile) -> Option<f64>)(profile) ),* };
                value.filter(|value| value.is_finite())
            }
        }
    };
}

quantities! {
    Throughput "gets_per_s" "gets/s" |p| Measure::Throughput.of(p);
    Cpus "cpus" "processors busy" |p| Measure::BusyProcessors.of(p);
    CpuPerGet "cpu_us_per_get" "processor time per get, us" |p| Some(Measure::ProcessorPerGet.of(p)? * 1e6);
    ElapsedEach "elapsed_each_s" "s for a million gets of each session"
        |p| Some(f64::from(p.sessions?) * 1e6 / Measure::Throughput.of(p)?);
    Elapsed "elapsed_s" "s for a million gets" |p| Some(1e6 / Measure::Throughput.of(p)?);
    MissRatio "miss_ratio" "misses per request, ρ" |p| Measure::MissRatio.of(p);
    K "k" "failed spins per try that found it busy, k" |p| Measure::SpinInefficiency.of(p);
    Kappa "kappa" "sleeps per miss, κ" |p| Measure::SleepRatio.of(p);
    Waits "waits_per_get" "waits per get" |p| Measure::WaitsPerGet.of(p);
    WaitsPerS "waits_per_s" "waits/s" |p| Measure::WaitsPerS.of(p);
    Sleeps "sleeps_per_s" "sleeps/s" |p| Measure::SleepsPerS.of(p);
    Awake "awake" "share of a wait in spins and yields"
        |p| Some(Measure::SpinShare.of(p)? + Measure::YieldShare.of(p)?);
    WaiterCpus "waiter_cpus" "processors that a waiter takes" |p| Measure::BusyProcessors.of(p);
    Steps "steps_per_s" "yields and sleeps of a waiter per s" |p| Measure::SleepsPerS.of(p);
    Executions "executions_per_s" "executions/s" |_| None;
    LibraryMisses "handle_misses_per_s" "misses/s for handles" |_| None;
    LibraryWaits "handle_waits_per_s" "waits/s for handles" |_| None;
    CreationMisses "creation_misses_per_s" "misses/s where handles are made" |_| None;
    CreationWaits "creation_waits_per_s" "waits/s where handles are made" |_| None;
    HandleShare "handle_wait_share" "share of sessions' time in waits for handles" |_| None;
    CursorShare "cursor_wait_share" "share of sessions' time in waits for cursors" |_| None;
    CursorMisses "cursor_misses_per_s" "misses/s for cursors" |_| None;
    CursorWaits "cursor_waits_per_s" "waits/s for cursors" |_| None;
    Time "time_us" "time, us" |_| None;
}

/// The median over the runs, with the least and the greatest of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    pub middle: f64,
    pub low: f64,
    pub high: f64,
}

impl From<f64> for Found {
    fn from(value: f64) -> Self {
        Self { middle: value, low: value, high: value }
    }
}

impl Found {
    /// Between two values.
    pub const fn within(low: f64, high: f64) -> Self {
        Self { middle: f64::midpoint(low, high), low, high }
    }

    /// Of the runs that have the figure.
    pub fn of(values: &[f64]) -> Option<Self> {
        let ends = |pick: fn(f64, f64) -> f64| values.iter().copied().reduce(pick);
        Some(Self { middle: median(values.to_vec())?, low: ends(f64::min)?, high: ends(f64::max)? })
    }
}

/// How a figure was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    Measured,
    Simulated,
    Predicted,
    Published,
}

impl How {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Simulated => "simulated",
            Self::Predicted => "predicted",
            Self::Published => "published",
        }
    }
}

/// The figures of a line at a point.
#[derive(Clone, Debug)]
pub struct Row {
    /// What is compared: an experiment may have several loads, each with its own chart.
    pub load: &'static str,
    pub line: &'static str,
    pub x: f64,
    pub how: How,
    pub machine: &'static str,
    pub values: Vec<(Quantity, Found)>,
}

impl Row {
    pub fn get(&self, quantity: Quantity) -> Option<Found> {
        self.values.iter().find(|(known, _)| *known == quantity).map(|(_, found)| *found)
    }

    /// What several runs of a load say together.
    pub fn of(at: &Place, how: How, machine: &'static str, quantities: &[Quantity], samples: &[Profile]) -> Self {
        let found = |quantity: &Quantity| {
            let values: Vec<f64> = samples.iter().filter_map(|sample| quantity.of(sample)).collect();
            Some((*quantity, Found::of(&values)?))
        };
        let values = quantities.iter().filter_map(found).collect();
        Self { load: at.load, line: at.line, x: at.x, how, machine, values }
    }
}

/// Where in an experiment a figure belongs, and what gives it.
#[derive(Clone, Debug)]
pub struct Place {
    pub load: &'static str,
    pub line: &'static str,
    pub x: f64,
    pub setup: Setup,
}

#[cfg(test)]
mod tests {
    use super::*;
    use retrial::views::Counter;

    /// 1000 gets of 4 sessions in half a second.
    fn profile(counters: &[(Counter, u64)]) -> Profile {
        let (gets, sessions, cpu_s) = (Some(1000), Some(4), Some(0.75));
        let mut profile = Profile { time_s: 0.5, gets, sessions, cpu_s, ..Profile::default() };
        for (counter, value) in counters {
            profile.figures.counters[*counter as usize] = *value;
        }
        profile
    }

    #[test]
    fn figures_follow_from_the_counters() {
        use Counter::{Busy, Misses, OverNs, Sleeps, SleptNs, SpinNs, Waits, YieldNs, Yields};
        let counters =
            [(Misses, 200), (Busy, 400), (Waits, 80), (Yields, 90), (Sleeps, 10), (SpinNs, 30), (YieldNs, 10)];
        let profile = profile(&[&counters[..], &[(SleptNs, 50), (OverNs, 10)]].concat());
        for (quantity, expected) in [
            (Quantity::Throughput, 2000.0),
            (Quantity::CpuPerGet, 750.0),
            (Quantity::ElapsedEach, 2000.0),
            (Quantity::Elapsed, 500.0),
            (Quantity::MissRatio, 0.2),
            (Quantity::K, 0.25),
            (Quantity::Kappa, 0.5),
            (Quantity::Waits, 0.08),
            (Quantity::WaitsPerS, 160.0),
            (Quantity::Sleeps, 200.0),
            (Quantity::Awake, 0.4),
            (Quantity::Steps, 200.0),
        ] {
            let found = quantity.of(&profile).unwrap();
            assert!((found - expected).abs() < 1e-9, "{}: {found}, expected {expected}", quantity.name());
        }
    }

    #[test]
    fn what_has_nothing_to_be_computed_from_is_absent() {
        assert_eq!(Quantity::K.of(&profile(&[])), None);
        assert_eq!(Found::of(&[]), None);
        assert_eq!(Found::of(&[3.0, 1.0, 2.0]), Some(Found { middle: 2.0, low: 1.0, high: 3.0 }));
    }
}
