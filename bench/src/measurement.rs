//! The measurements of a peer under a kind of load.

use crate::peers::Entry;
use retrial_bench::outcome::{Outcome, median};
use retrial_model::Measure;
use std::time::Duration;

/// What kind of load a group is: a column, and the name of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    Contended,
    Thinking,
    Readers,
}

impl Load {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Contended => "contended",
            Self::Thinking => "thinking",
            Self::Readers => "readers",
        }
    }

    /// What tables do not show; files have all.
    pub fn hidden(self) -> Vec<&'static str> {
        let own: &[_] = match self {
            Self::Contended | Self::Readers => &["first_window_mops", "last_window_mops", "windows_kops"],
            Self::Thinking => &["to_best", "wait_p999_us"],
        };
        [&KEY, own].concat()
    }
}

/// Of all rows of a group alike, or in the notes.
const KEY: [&str; 11] = [
    "load",
    "kind",
    "sessions",
    "cs_ns",
    "think_ns",
    "writes_percent",
    "hogs",
    "start",
    "rounds",
    "duration_ms",
    "waiting",
];

/// A peer's rounds.
pub struct Measurement {
    pub peer: Entry,
    pub outcomes: Vec<Outcome>,
    /// Why there can be none.
    pub impossible: Option<String>,
}

impl Measurement {
    /// Gets per second; 0 of nothing.
    pub fn median_ops(&self) -> f64 {
        median(self.outcomes.iter().filter_map(|outcome| outcome.get(Measure::Throughput)).collect()).unwrap_or(0.0)
    }
}

/// Whether the parent woke up so late that the figures are not those of the peer.
pub fn was_away(outcome: &Outcome, duration: Duration) -> bool {
    outcome.stall > duration / 4
}
