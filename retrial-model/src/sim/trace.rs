//! The steps of a session's waits, folded into runs as the library's `trace.rs` folds them.

use super::Time;
use super::processors::NONE;
use retrial::views::{Event, LocationId, Sid, WaitEvent, What};
use retrial::{Mode, MutexId};
use std::collections::VecDeque;
use std::time::Duration;

/// Runs kept for a session; earlier ones are dropped.
const RUNS: usize = 1 << 16;

/// What is waited for: there is one mutex, got exclusively.
const MUTEX: MutexId = MutexId(1);
const EVENT: WaitEvent = WaitEvent { mode: Mode::Exclusive, on_x: false, for_event: false };

/// The SID of a session: they are numbered from 1.
fn sid(session: u32) -> Sid {
    if session == NONE { Sid::NONE } else { Sid::new(session + 1) }
}

fn duration(time: Time) -> Duration {
    Duration::from_nanos(time / super::NS)
}

/// The runs of one session.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace {
    runs: VecDeque<Event>,
    /// Number of the latest run, and the time that it took.
    last: u64,
    took: Time,
}

impl Trace {
    /// Notes a step that has ended. Times in ps.
    pub(super) fn note(&mut self, now: Time, what: What, asked: Time, took: Time, blocker: u32) {
        let folds = matches!(what, What::Yield | What::Sleep | What::Woken | What::TimedOut);
        let current = self
            .runs
            .back_mut()
            .filter(|run| folds && run.what == what && (what != What::Sleep || run.asked == duration(asked)));
        if let Some(run) = current {
            self.took += took;
            run.count += 1;
            run.asked = duration(asked);
            run.actual = duration(self.took);
            return;
        }
        if self.runs.len() == RUNS {
            self.runs.pop_front();
        }
        self.last += 1;
        self.took = took;
        self.runs.push_back(Event {
            number: self.last,
            what,
            count: 1,
            asked: duration(asked),
            actual: duration(took),
            started_ns: (now - took) / super::NS,
            mutex: MUTEX,
            location: LocationId(0),
            event: EVENT,
            blocker: sid(blocker),
        });
    }

    pub(super) fn into_events(self) -> Vec<Event> {
        self.runs.into()
    }
}
