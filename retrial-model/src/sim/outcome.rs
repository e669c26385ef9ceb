//! What a run gives: a profile as the library's, and what only a simulator can see.

use super::tally::{Tally, Use};
use super::{NS, Time, seconds};
use crate::measure::Measure;
use crate::profile::{Profile, Samples, Waits};
use retrial::views::{Counter, Event, Figures};
use serde::Serialize;

/// Time of all processors together by what they did, in s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProcessorTime {
    /// Thinking.
    pub think: f64,
    /// Running while they held the mutex.
    pub hold: f64,
    /// Spinning.
    pub spin: f64,
    /// Yields with no other session ready to run.
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
    /// What was counted and timed.
    pub profile: Profile,
    /// Processors that there were.
    pub processors: u32,
    /// Releases.
    pub releases: u64,
    /// What the processors did.
    pub processor_time: ProcessorTime,
    /// Times that a processor began to run another session.
    pub switches: u64,
    /// Times that `adaptive` changed its type.
    pub type_switches: u64,
    /// Whether `adaptive` had `pthread` in use at the end.
    pub pthread_in_use: bool,
    /// Events of the simulation, from its start.
    pub events: u64,
    /// The steps of the waits of the sessions that were traced, from the start, as `retrial trace` shows
    /// them.
    pub traces: Vec<Vec<Event>>,
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
        let processor_time = ProcessorTime {
            think: used(Use::Think),
            hold: used(Use::Hold),
            spin: used(Use::Spin),
            yields: used(Use::Yield),
            call: used(Use::Call),
            switch: used(Use::Switch),
        };
        let time_s = seconds((now - tally.since).into());
        let quantile = |share| tally.quantile(share) * 1e-12;
        let profile = Profile {
            time_s,
            gets: Some(tally.gets),
            gets_by_session: end.gets,
            // Of those that arrive from outside, most at once.
            sessions: Some(end.sessions),
            figures: figures(&tally),
            samples: Samples {
                time_s: time_s * f64::from(end.copies),
                held_s: seconds(tally.busy),
                gets: tally.gets,
                ..Samples::default()
            },
            waiting_s: Some(seconds(tally.waiting_time)),
            waited_s: Some(seconds(tally.wait)),
            waits: (tally.gets > 0).then(|| Waits {
                p50_s: quantile(0.5),
                p99_s: quantile(0.99),
                p999_s: quantile(0.999),
                max_s: seconds(tally.wait_max.into()),
            }),
            cpu_s: Some(processor_time.total()),
            spin_cpu_s: Some(processor_time.spin),
            waiting_cpu_s: Some(processor_time.spin + processor_time.yields),
            ..Profile::default()
        };
        Self {
            profile,
            processors: end.processors,
            releases: tally.releases,
            processor_time,
            switches: tally.switches,
            type_switches: tally.type_switches,
            pthread_in_use: end.pthread_in_use,
            events: end.events,
            traces: end.traces,
        }
    }

    /// A measure; `None` where there is nothing that it could be computed from.
    #[must_use]
    pub fn get(&self, measure: Measure) -> Option<f64> {
        measure.of(&self.profile)
    }
}

/// The counters in the library's units; the parts of the waits add up exactly.
fn figures(tally: &Tally) -> Figures {
    let ns = |time: u128| u64::try_from(time / u128::from(NS)).unwrap_or(u64::MAX);
    let mut figures = Figures { counters: tally.counters, lengths: tally.lengths };
    let mut set = |counter: Counter, value: u64| figures.counters[counter as usize] = value;
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
