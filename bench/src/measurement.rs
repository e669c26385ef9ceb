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

    /// What is shown in tables; files have all.
    pub const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Contended | Self::Readers => &CONTENDED,
            Self::Thinking => &THINKING,
        }
    }
}

const CONTENDED: [&str; 14] = [
    "peer",
    "mops_per_s",
    "mops_min",
    "mops_max",
    "to_best",
    "cpu_s_per_s",
    "cpu_us_per_get",
    "jain",
    "wait_p50_us",
    "wait_p99_us",
    "wait_p999_us",
    "wait_max_us",
    "errors",
    "note",
];

const THINKING: [&str; 15] = [
    "peer",
    "mops_per_s",
    "mops_min",
    "mops_max",
    "first_window_mops",
    "last_window_mops",
    "cpu_s_per_s",
    "cpu_us_per_get",
    "jain",
    "wait_p50_us",
    "wait_p99_us",
    "wait_max_us",
    "windows_kops",
    "errors",
    "note",
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
