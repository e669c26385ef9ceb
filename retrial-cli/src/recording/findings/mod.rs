//! What slows the sessions of a period: each finding has its evidence, the time at stake, and the command to
//! type.

mod evidence;
mod rules;
#[cfg(test)]
mod tests;

pub use evidence::{Blocker, Evidence, Source, session_text};
pub use rules::RULES;

use crate::output::{in_line, short};
use serde_json::{Value, json};

/// A rule: one entry of [`RULES`].
pub struct Rule {
    pub name: &'static str,
    pub urgency: Urgency,
    pub find: fn(&Evidence<'_>) -> Vec<Found>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Urgency {
    /// Nothing ends it by itself: reported before everything else, whatever it costs.
    Stuck,
    /// Ordered by the time that it costs.
    Time,
}

/// What a rule has found.
pub struct Found {
    pub sentence: String,
    pub evidence: Vec<String>,
    /// Time of the sessions at stake, in s.
    pub time_s: f64,
    /// What to type next.
    pub command: String,
}

/// A finding with its place among the others.
pub struct Finding {
    pub rule: &'static str,
    pub found: Found,
    /// Share of the time of all sessions at stake.
    pub share: f64,
}

/// Findings that cost a smaller share of the sessions' time are left out.
pub const TRIFLE: f64 = crate::predict::rules::TRIFLE;

/// What all rules find: first what nothing ends, then the rest by the time that it costs.
pub fn findings(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut all: Vec<(Urgency, Finding)> = Vec::new();
    for rule in RULES {
        for found in (rule.find)(evidence) {
            let share = if evidence.all_s > 0.0 { (found.time_s / evidence.all_s).min(1.0) } else { 0.0 };
            if share >= TRIFLE || rule.urgency == Urgency::Stuck {
                all.push((rule.urgency, Finding { rule: rule.name, found, share }));
            }
        }
    }
    all.sort_by(|(urgency, a), (other, b)| urgency.cmp(other).then(b.share.total_cmp(&a.share)));
    all.into_iter().map(|(_, finding)| finding).collect()
}

impl Finding {
    pub fn text(&self, number: usize) -> String {
        let mut text = format!("{number}. {} ({})", in_line(&self.found.sentence), self.stake());
        for line in &self.found.evidence {
            text += "\n   ";
            text += &in_line(line);
        }
        text + "\n   type: " + &self.found.command
    }

    /// What is at stake, for people.
    pub fn stake(&self) -> String {
        format!("{} % of the sessions' time", short(100.0 * self.share))
    }

    pub fn json(&self) -> Value {
        json!({
            "rule": self.rule,
            "finding": self.found.sentence,
            "evidence": self.found.evidence,
            "time_s": self.found.time_s,
            "pct_session_time": 100.0 * self.share,
            "command": self.found.command,
        })
    }
}
