//! What a run gives: the library's figures, and measures that theory has too.

use super::tally::{Tally, Use};
use super::{NS, Time, seconds};
use retrial::views::{Counter, Derived, Event, Figures};
use serde::{Deserialize, Serialize};

/// Time of all processors together by what they did, in s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProcessorTime {
    /// Thinking.
    pub think: f64,
    /// Running while they held the mutex.
    pub hold: f64,
    /// Spinning.
    pub spin: f64,
    /// Yields with nobody else ready to run.
    pub yields: f64,
    /// Wake-ups of others, and barriers.
    pub call: f64,
    /// Switches from one session to another, and the way from idleness to a woken session.
    pub switch: f64,
}

impl ProcessorTime {
    /// All together.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.think + self.hold + self.spin + self.yields + self.call + self.switch
    }
}

/// What came of a run: the figures of the time that was counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Time that was counted, in s.
    pub time: f64,
    /// Processors that there were.
    pub processors: u32,
    /// Sessions that there were; of those that arrive from outside, most at once.
    pub sessions: u32,
    /// Gets of the mutex.
    pub gets: u64,
    /// Releases.
    pub releases: u64,
    /// The counters of the library, over all sessions.
    pub figures: Figures,
    /// What the processors did.
    pub processor_time: ProcessorTime,
    /// Gets of each session; empty when sessions arrive from outside.
    pub gets_by_session: Vec<u64>,
    /// Times that a processor began to run another session.
    pub switches: u64,
    /// Times that `adaptive` changed its type.
    pub type_switches: u64,
    /// Whether `adaptive` had `pthread` in use at the end.
    pub pthread_in_use: bool,
    /// Events of the simulation, from its start.
    pub events: u64,
    /// The steps of the waits of the sessions that were traced, from the start, as `retrial trace` shows them.
    pub traces: Vec<Vec<Event>>,
    /// Sums in s: holding, of each copy of the mutex; time from requests to gets, and the part of the waits within the time that was counted.
    busy: f64,
    wait: f64,
    waiting: f64,
    wait_p99: f64,
}

/// What a run ends with.
pub(super) struct End {
    pub(super) tally: Tally,
    pub(super) now: Time,
    pub(super) events: u64,
    pub(super) processors: u32,
    pub(super) sessions: u32,
    pub(super) copies: u32,
    pub(super) gets: Vec<u64>,
    pub(super) pthread_in_use: bool,
    pub(super) traces: Vec<Vec<Event>>,
}

impl Outcome {
    pub(super) fn new(end: End) -> Self {
        let End { tally, now, .. } = end;
        let used = |used: Use| seconds(tally.processor[used as usize]);
        Self {
            time: seconds((now - tally.since).into()),
            processors: end.processors,
            sessions: end.sessions,
            gets: tally.gets,
            releases: tally.releases,
            figures: figures(&tally),
            processor_time: ProcessorTime {
                think: used(Use::Think),
                hold: used(Use::Hold),
                spin: used(Use::Spin),
                yields: used(Use::Yield),
                call: used(Use::Call),
                switch: used(Use::Switch),
            },
            gets_by_session: end.gets,
            switches: tally.switches,
            type_switches: tally.type_switches,
            pthread_in_use: end.pthread_in_use,
            events: end.events,
            traces: end.traces,
            busy: seconds(tally.busy) / f64::from(end.copies),
            wait: seconds(tally.wait),
            waiting: seconds(tally.waiting_time),
            wait_p99: tally.quantile(0.99) * 1e-12,
        }
    }

    /// The derived statistics of table 4, from the counters as an observer of a real instance has them.
    #[must_use]
    pub fn derived(&self) -> Derived {
        Derived::new(self.gets, &self.figures, self.time, Some(self.get(Measure::Utilization)))
    }
}

/// The counters in the library's units; the parts of the waits add up exactly.
fn figures(tally: &Tally) -> Figures {
    let ns = |time: u128| u64::try_from(time / u128::from(NS)).unwrap_or(u64::MAX);
    let mut figures = Figures(tally.counters);
    let mut set = |counter: Counter, value: u64| figures.0[counter as usize] = value;
    let parts = [
        (Counter::SpinNs, ns(tally.spin)),
        (Counter::YieldNs, ns(tally.yields)),
        (Counter::SleptNs, ns(tally.slept)),
        (Counter::OverNs, ns(tally.over)),
    ];
    for (counter, value) in parts {
        set(counter, value);
    }
    set(Counter::WaitNs, parts.iter().map(|(_, value)| value).sum());
    set(Counter::MaxNs, tally.longest / NS);
    figures
}

macro_rules! measures {
    ($( $id:ident $name:literal $unit:literal $doc:literal $of:expr; )*) => {
        /// A number that a run gives, with the same meaning in theory.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[repr(usize)]
        pub enum Measure { $( #[doc = $doc] $id ),* }

        impl Measure {
            /// Every measure.
            pub const ALL: &'static [Measure] = &[ $( Measure::$id ),* ];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str { [ $( $name ),* ][self as usize] }

            /// Its unit; empty for a number without one.
            #[must_use]
            pub const fn unit(self) -> &'static str { [ $( $unit ),* ][self as usize] }

            /// What it is.
            #[must_use]
            pub const fn description(self) -> &'static str { [ $( $doc ),* ][self as usize] }
        }

        impl Outcome {
            /// A measure; 0 where there is nothing that it could be computed from.
            #[must_use]
            pub fn get(&self, measure: Measure) -> f64 {
                match measure { $( Measure::$id => ($of as fn(&Self) -> f64)(self) ),* }
            }
        }
    };
}

measures! {
    Throughput "throughput" "1/s" "Gets per second, λ." |o| ratio(o.gets as f64, o.time);
    Utilization "utilization" "" "Share of the time in which the mutex was held, ρ." |o| ratio(o.busy, o.time);
    MissRatio "miss_ratio" "" "Share of the gets that found the mutex busy at the first try."
        |o| ratio(o.count(Counter::Misses), o.gets as f64);
    SpinInefficiency "spin_inefficiency" "" "Share of the tries that found the mutex busy whose spin failed, k."
        |o| ratio(o.figures.sleeps() as f64, o.count(Counter::Busy));
    SpinTime "spin_time" "s" "Processor time of the spin of a try that found the mutex busy, Γ."
        |o| ratio(o.processor_time.spin, o.count(Counter::Busy));
    SleepsPerGet "sleeps_per_get" "" "Steps that left the processor, per get: yields, sleeps, parks."
        |o| ratio(o.figures.sleeps() as f64, o.gets as f64);
    Wait "wait" "s" "Mean time from request to get, W." |o| ratio(o.wait, o.gets as f64);
    WaitP99 "wait_p99" "s" "Time from request to get that 99 of 100 gets do not exceed, up to an eighth too long." |o| o.wait_p99;
    WaitMax "wait_max" "s" "Longest time from a first failed spin to the get." |o| o.count(Counter::MaxNs) * 1e-9;
    Waiting "waiting" "" "Mean number of sessions between request and get, L." |o| ratio(o.waiting, o.time);
    BusyProcessors "busy_processors" "" "Mean number of processors that were not idle."
        |o| ratio(o.processor_time.total(), o.time);
    WaitingProcessors "waiting_processors" "" "Mean number of processors that did nothing but wait for the mutex: spins and yields."
        |o| ratio(o.processor_time.spin + o.processor_time.yields, o.time);
    Fairness "fairness" "" "Jain's index of the gets by session: from 1/sessions, where one has them all, to 1; 0 when sessions arrive from outside."
        |o| jain(&o.gets_by_session);
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

fn jain(gets: &[u64]) -> f64 {
    let sum: f64 = gets.iter().map(|n| *n as f64).sum();
    let squares: f64 = gets.iter().map(|n| (*n as f64).powi(2)).sum();
    ratio(sum * sum, gets.len() as f64 * squares)
}

impl Outcome {
    fn count(&self, counter: Counter) -> f64 {
        self.figures.get(counter) as f64
    }
}
