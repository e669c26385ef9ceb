//! Groups of measurements: all peers under one load, in rounds that go through all of them.

use crate::measurement::{Load, Measurement, was_away};
use crate::peers::{Entry, Tick};
use crate::report::bar;
use crate::row::{self, Key, Row};
use indicatif::ProgressBar;
use retrial::P;
use retrial_bench::cell::{Cell, Conditions, Stopped};
use retrial_bench::outcome::{Kind, Outcome};
use std::time::Duration;

/// Times that a round is measured at most.
const TRIES: u32 = 3;

/// All peers under one load.
pub struct Group {
    pub load: Load,
    pub cell: Cell,
    pub peers: Vec<Entry>,
    pub rounds: u32,
    pub conditions: Conditions,
}

impl Group {
    pub fn key(&self) -> Key {
        Key::new(self.load, &self.cell)
    }

    /// Its rows for people, under a title.
    pub fn table(&self, rows: &[Row]) -> String {
        let table = row::shown(rows, &self.load.hidden()).text();
        format!("{}: {}\n{table}", self.load.name(), self.key().title())
    }

    /// What it will take. On a machine of 2 processors a process takes about a quarter of a millisecond from
    /// its fork to its end, a thread a tenth of that.
    pub fn time(&self) -> Duration {
        let session = if self.cell.kind == Kind::Processes { 250 } else { 25 };
        let around = Duration::from_millis(10) + Duration::from_micros(session) * self.cell.sessions;
        (self.conditions.duration + around) * self.rounds * u32::try_from(self.peers.len()).unwrap_or(u32::MAX)
    }

    /// One round of a peer; once more when the machine was away meanwhile.
    fn outcome(&self, peer: &Entry, settings: &[(P, String)], tick: Tick) -> Result<Outcome, Stopped> {
        for _ in 1..TRIES {
            let outcome = peer.measure(settings, &self.cell, &self.conditions, tick)?;
            if outcome.errors > 0 || !was_away(&outcome, self.conditions.duration) {
                return Ok(outcome);
            }
        }
        peer.measure(settings, &self.cell, &self.conditions, tick)
    }

    /// Measures it; gives the rows, and whether there was time for all. `done` is the time that went before,
    /// for the bar.
    fn measure(&self, settings: &[(P, String)], bar: &ProgressBar, done: Duration) -> (Vec<Row>, bool) {
        let fresh = |peer: &Entry| Measurement { peer: *peer, outcomes: Vec::new(), impossible: None };
        let mut measurements: Vec<Measurement> = self.peers.iter().map(fresh).collect();
        let each = self.time() / (self.rounds * u32::try_from(self.peers.len()).unwrap_or(1)).max(1);
        let (mut at, mut whole) = (done, true);
        'all: for round in 0..self.rounds {
            for index in order(self.peers.len(), round as usize) {
                let measurement = &mut measurements[index];
                let name = measurement.peer.name;
                bar.set_message(format!("{}, {name}, round {}/{}", self.key().title(), round + 1, self.rounds));
                let from = at;
                at += each;
                let tick = |time: Duration| bar.set_position(ms(from + time));
                tick(Duration::ZERO);
                if measurement.impossible.is_some() {
                    continue;
                }
                match self.outcome(&measurement.peer, settings, &tick) {
                    Ok(outcome) => {
                        bar.suspend(|| outcome.complaints.iter().for_each(|line| eprintln!("ERROR: {line}")));
                        measurement.outcomes.push(outcome);
                    }
                    Err(Stopped::Failed(report)) => measurement.impossible = Some(report.to_string()),
                    Err(Stopped::Interrupted) => {
                        whole = false;
                        break 'all;
                    }
                }
            }
        }
        (Row::group(&self.key(), self.conditions.duration, &measurements), whole)
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The order of a round: by a step that has no divisor in common with the number, from round to round another
/// one, so that who goes first changes, and who goes before whom.
fn order(count: usize, round: usize) -> impl Iterator<Item = usize> {
    let steps: Vec<usize> = (1..=count.max(1)).filter(|step| gcd(*step, count) == 1).collect();
    let step = steps[round % steps.len()];
    (0..count).map(move |i| (round + i * step) % count)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// What they all will take.
pub fn time<'a>(groups: impl IntoIterator<Item = &'a Group>) -> Duration {
    groups.into_iter().map(Group::time).sum()
}

/// Measures groups one after the other; `each` gets the rows of every one when it is done. Gives whether all
/// were measured: not after Ctrl-C.
pub fn run<E>(
    groups: &[&Group],
    settings: &[(P, String)],
    mut each: impl FnMut(&Group, Vec<Row>) -> Result<(), E>,
) -> Result<bool, E> {
    let bar = bar(ms(time(groups.iter().copied())));
    let mut done = Duration::ZERO;
    for group in groups {
        let (rows, whole) = group.measure(settings, &bar, done);
        done += group.time();
        bar.suspend(|| each(group, rows))?;
        if !whole {
            bar.finish_and_clear();
            return Ok(false);
        }
    }
    bar.finish_and_clear();
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_goes_through_all_and_neighbours_change() {
        for count in 1..25 {
            for round in 0..8 {
                let mut seen: Vec<usize> = order(count, round).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..count).collect::<Vec<_>>(), "{count} in round {round}");
            }
        }
        let pairs = |round| {
            let order: Vec<usize> = order(20, round).collect();
            order.windows(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>()
        };
        assert!(pairs(0).iter().all(|pair| !pairs(1).contains(pair)));
    }
}
