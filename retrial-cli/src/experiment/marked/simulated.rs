//! The three runs on the source's machine: each mutex simulated alone, with the waits for the others in the
//! time between its gets.

use super::super::lab::Lab;
use super::super::load::{Line, Load, Setup, Think, Vary};
use super::super::machine::SOCKETS;
use super::super::quantities::{Found, How, Quantity as Q, Row};
use super::{HOT, RUNS};
use retrial_bench::cell::Stopped;
use retrial_model::sim::{Spread, Workload};
use retrial_model::{Measure, Profile};
use std::time::Duration;

const SESSIONS: u32 = 256;
/// Work of a transaction, in s: sessions wait a tenth of their time before anything is marked, as the source's.
const WORK_S: f64 = 1.8e-3;
const HOLD: Duration = Duration::from_micros(1);
/// Rounds after which the waits are in the times between gets.
const ROUNDS: usize = 6;
const SIMULATED_S: f64 = 0.1;

/// What a mutex is got for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Procedure,
    Cursor,
    Handle,
}

/// What is counted together, and the quantities of its misses and waits.
type Kind = (fn(Of) -> bool, Q, Q);

/// So many equal mutexes of a kind, and how often a transaction gets each.
struct Mutexes {
    of: Of,
    count: f64,
    gets: f64,
    copies: u8,
}

/// Shares of NEWORD and PAYMENT, and their cursors.
const PROCEDURES: [(f64, f64); 2] = [(0.45, 4.0), (0.43, 3.0)];

/// The mutexes of a run.
fn mutexes([procedures, cursors]: [u8; 2]) -> Vec<Mutexes> {
    let mut all = Vec::new();
    for (number, (share, own)) in PROCEDURES.iter().enumerate() {
        // The source marked the four cursors that were executed most.
        let is_marked = number == 0;
        all.push(Mutexes { of: Of::Procedure, count: 1.0, gets: 2.0 * share, copies: procedures });
        let copies = if is_marked { cursors } else { 1 };
        all.push(Mutexes { of: Of::Cursor, count: *own, gets: 2.0 * share, copies });
    }
    if cursors > 1 {
        let (share, own) = PROCEDURES[0];
        all.push(Mutexes { of: Of::Handle, count: 1.0, gets: share * own, copies: 1 });
    }
    all
}

impl Mutexes {
    /// The load of one of them, with transactions of this length.
    fn workload(&self, line: &Line, transaction_s: f64, seconds: f64) -> Result<Workload, Stopped> {
        let think = Duration::from_secs_f64((transaction_s / self.gets - HOLD.as_secs_f64()).max(1e-9));
        let load = Load { sessions: SESSIONS, copy: Spread::Processor, ..Load::new(HOLD, Think::Time(think)) };
        let setup = Setup::new(&load, line, Vary::Copies, self.copies.into(), &SOCKETS)?;
        Ok(setup.workload(&SOCKETS, seconds)?)
    }
}

/// The median of a measure over the seeds.
fn middle(runs: &[Profile], measure: Measure) -> f64 {
    let values: Vec<f64> = runs.iter().filter_map(|run| measure.of(run)).collect();
    Found::of(&values).map_or(0.0, |found| found.middle)
}

/// The three runs under a scheme.
pub fn rows(lab: &Lab, line: &Line) -> Result<Vec<Row>, Stopped> {
    RUNS.iter().zip(HOT).enumerate().map(|(at, (_, hot))| of_run(lab, line, at, hot)).collect()
}

fn of_run(lab: &Lab, line: &Line, at: usize, hot: [u8; 2]) -> Result<Row, Stopped> {
    let mutexes = mutexes(hot);
    let seconds = lab.time(SIMULATED_S);
    let held_s: f64 = mutexes.iter().map(|of| of.count * of.gets * HOLD.as_secs_f64()).sum();
    let mut waits_s = vec![0.0; mutexes.len()];
    let mut seen: Vec<Vec<Profile>> = Vec::new();
    for _ in 0..ROUNDS {
        let all_s = WORK_S + held_s + waits_s.iter().sum::<f64>();
        // A mutex's own waits are in its simulation.
        let without = |(of, waits_s): (&Mutexes, &f64)| of.workload(line, all_s - waits_s / of.count, seconds);
        let workloads = mutexes.iter().zip(&waits_s).map(without).collect::<Result<Vec<_>, _>>()?;
        seen = lab.simulate(&workloads)?;
        let waits = |(of, runs): (&Mutexes, &Vec<Profile>)| of.count * of.gets * middle(runs, Measure::Wait);
        // Halfway: longer waits make rarer gets, which wait less.
        let found: Vec<f64> = mutexes.iter().zip(&seen).map(waits).collect();
        waits_s.iter_mut().zip(&found).for_each(|(waits_s, found)| *waits_s = f64::midpoint(*waits_s, *found));
    }
    let pairs = || mutexes.iter().zip(&seen);
    // The slowest one says how many transactions there are.
    let transactions =
        pairs().map(|(of, runs)| middle(runs, Measure::Throughput) / of.gets).fold(f64::INFINITY, f64::min);
    let per_s = |is_it: fn(Of) -> bool, measure: Measure| {
        let own = pairs().filter(|(of, _)| is_it(of.of));
        own.fold(0.0, |sum, (of, runs)| sum + of.count * of.gets * transactions * middle(runs, measure))
    };
    let kinds: [Kind; 3] = [
        (|of| of != Of::Cursor, Q::LibraryMisses, Q::LibraryWaits),
        (|of| of == Of::Handle, Q::CreationMisses, Q::CreationWaits),
        (|of| of == Of::Cursor, Q::CursorMisses, Q::CursorWaits),
    ];
    let share = |is_it: fn(Of) -> bool| per_s(is_it, Measure::Wait) / f64::from(SESSIONS);
    let mut values = vec![
        (Q::Executions, transactions.into()),
        (Q::HandleShare, share(|of| of != Of::Cursor).into()),
        (Q::CursorShare, share(|of| of == Of::Cursor).into()),
    ];
    for (is_it, misses, waits) in kinds {
        values.push((misses, per_s(is_it, Measure::MissRatio).into()));
        values.push((waits, per_s(is_it, Measure::WaitsPerGet).into()));
    }
    Ok(Row { load: "", line: line.name, x: at as f64 + 1.0, how: How::Simulated, machine: SOCKETS.name, values })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_gets_what_its_marks_say() {
        let [before, procedures, cursors] = HOT.map(mutexes);
        assert!(before.iter().all(|of| of.copies == 1));
        assert!(procedures.iter().all(|of| (of.copies > 1) == (of.of == Of::Procedure)));
        assert_eq!(cursors.iter().filter(|of| of.of == Of::Handle).count(), 1);
        // Of the cursors only the most executed ones.
        assert_eq!(cursors.iter().filter(|of| of.of == Of::Cursor && of.copies > 1).count(), 1);
    }
}
