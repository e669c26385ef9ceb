//! The simulator, and theory where it has a formula, against this machine: cell by cell, and how far they are
//! off.
//!
//! The costs are those of `retrial calibrate`, but for what a busy neighbour changes: it measures on a
//! machine that does nothing else, while in all that is contended the other processors are busy, and share
//! cores, caches and clock rates. [`Beside`] measures that. Work is calibrated by its fastest; how long it
//! takes in the mean changes from one second to the next, and is measured beside each cell.

use super::lab::Lab;
use super::load::{Line, Load, Setup, Think, Vary, line};
use super::machine::{HERE, Machine};
use super::quantities::{How, Place, Quantity, Row};
use super::{Experiment, Findings, Run};
use crate::chart::Scale;
use crate::output::{Table, short};
use miette::Report;
use retrial_bench::cell::Stopped;
use retrial_bench::machine::Ticks;
use retrial_bench::outcome::median;
use retrial_bench::process::children_cpu;
use retrial_bench::work;
use retrial_model::Profile;
use retrial_model::sim::{Arrivals, Workload};
use retrial_model::theory::{Theory, theory};
use std::time::{Duration, Instant};

use beside::Beside;
use errors::{Errors, by_cell, by_scheme, summary, worst};

mod beside;
mod errors;

pub const ACCURACY: Experiment = Experiment {
    name: "accuracy",
    source: "of our own",
    shows: "how far the simulator and theory are from this machine",
    text: "Eight wait schemes, 2 to 1,024 sessions, exponential holding times of 1, 10 and 100 us, and as much time between two gets for each two \
processors: two sessions do not fill the mutex, eight do. Measured, simulated with the costs of this machine beside busy processors, and predicted where theory has a \
formula. Errors are against what was measured; aimed at is 15 % of the throughput and of the processor time, 25 % of k, κ and sleeps per second.",
    x: "sessions",
    x_scale: Scale::Binary,
    quantities: QUANTITIES,
    charts: &[(Quantity::Throughput, Scale::Decimal), (Quantity::K, Scale::Linear), (Quantity::Sleeps, Scale::Decimal)],
    together: false,
    run: Run::Own(run),
    claims: &[],
    takes_s: [400, 30],
};

const QUANTITIES: &[Quantity] = &[Quantity::Throughput, Quantity::K, Quantity::Kappa, Quantity::Sleeps, Quantity::Cpus];

const LINES: &[Line] = &[
    line("10g"),
    line("patch6904068"),
    line("yield"),
    line("sleep"),
    line("backoff"),
    line("ydb"),
    line("pthread"),
    line("orbit"),
];

const LOADS: [Load; 3] = [load("1 us", 1), load("10 us", 10), load("100 us", 100)];

const SESSIONS: [f64; 4] = [2.0, 8.0, 64.0, 1024.0];

/// Least time of a measurement, and of a simulation, in s.
const SPAN_S: f64 = 0.5;

const fn load(name: &'static str, hold_us: u64) -> Load {
    Load { name, ..Load::new(Duration::from_micros(hold_us), Think::PerProcessor(0.5)) }
}

/// A measurement beside which others took more of the processors than this is made again, so often at most.
const OTHERS: f64 = 0.1;
const TRIES: u32 = 3;

/// A scheme with so many sessions and one holding time.
struct Cell {
    place: Place,
    workload: Workload,
    measured: Vec<Profile>,
    /// Of each measurement.
    paces: Vec<f64>,
    /// Most processors that others used beside a measurement.
    others: f64,
    simulated: Vec<Profile>,
    theory: Option<Theory>,
}

fn run(lab: &mut Lab) -> Result<Findings, Stopped> {
    let beside = if lab.measures { Some(Beside::measure(lab)?) } else { None };
    let machine = beside.map_or_else(|| lab.here.clone(), |beside| beside.on(&lab.here));
    let mut cells = cells(lab, &machine)?;
    // Simulating takes about a tenth of the time.
    let share = if lab.measures { 0.9 / f64::from(lab.rounds()) / cells.len() as f64 } else { 0.0 };
    for round in 1..=if lab.measures { lab.rounds() } else { 0 } {
        for cell in &mut cells {
            let Place { load, line, x, .. } = cell.place;
            lab.show(share, format!("measured, round {round}/{}: {load} {line} at {x}", lab.rounds()));
            let Some((sample, pace, others)) = undisturbed(lab, &cell.place.setup, cell.workload.duration)? else {
                continue;
            };
            cell.others = cell.others.max(others);
            cell.paces.push(pace);
            cell.measured.push(sample);
        }
    }
    if let Some(beside) = beside {
        cells.iter_mut().try_for_each(|cell| cell.keep_pace(beside))?;
    }
    let share = if lab.measures { 0.1 } else { 1.0 } / cells.len() as f64;
    for part in cells.chunks_mut(8) {
        lab.show(share * part.len() as f64, format!("simulated: {} {}", part[0].place.load, part[0].place.line));
        let workloads: Vec<Workload> = part.iter().map(|cell| cell.workload.clone()).collect();
        for (cell, simulated) in part.iter_mut().zip(lab.simulate(&workloads)?) {
            cell.simulated = simulated;
            cell.theory = theory(&cell.workload).ok();
        }
    }
    let errors: Vec<Errors> = cells.iter().filter_map(Errors::of).collect();
    let mut notes: Vec<String> = beside.iter().map(|beside| beside.note()).collect();
    let paces = || cells.iter().flat_map(|cell| cell.paces.iter().copied());
    if let (Some(least), Some(middle), Some(most)) =
        (paces().reduce(f64::min), median(paces().collect()), paces().reduce(f64::max))
    {
        notes.push(format!(
            "work took {} to {} times as long as at its fastest, in the middle {}: each cell is simulated with its own",
            short(least),
            short(most),
            short(middle)
        ));
    }
    notes.extend(summary(&errors));
    let titled = |title: &str, table: Table| (!table.is_empty()).then(|| (title.to_owned(), table));
    let tables = [
        titled("errors by cell, in %", by_cell(&errors)),
        titled("errors by scheme: median in %, cells within the aim", by_scheme(&errors)),
        titled("the worst cells", worst(&errors)),
    ];
    Ok(Findings { rows: cells.iter().flat_map(rows).collect(), tables: tables.into_iter().flatten().collect(), notes })
}

/// All of them; where it is quick without every second number of sessions.
fn cells(lab: &Lab, machine: &Machine) -> Result<Vec<Cell>, Report> {
    let sessions = if lab.quick { &[2.0, 64.0][..] } else { &SESSIONS };
    let mut cells = Vec::new();
    for load in &LOADS {
        for &x in sessions {
            for line in LINES {
                let setup = Setup::new(load, line, Vary::Sessions, x, machine)?;
                let mut workload = setup.workload(machine, lab.time(SPAN_S))?;
                // A crowd has to have had its turns: some schemes have another throughput before.
                workload.duration = workload.duration.max(lab.time(workload.machine.round_s(setup.sessions)));
                // Sessions of the bench come to the start one after the other, and have had their turns
                // there.
                (workload.warm_up, _) = workload.spans(workload.gets_per_s_most());
                let place = Place { load: load.name, line: line.name, x, setup };
                let (measured, simulated) = (Vec::new(), Vec::new());
                cells.push(Cell { place, workload, measured, paces: Vec::new(), others: 0.0, simulated, theory: None });
            }
        }
    }
    Ok(cells)
}

impl Cell {
    /// Holding and think times as long as work took beside the measurements.
    fn keep_pace(&mut self, beside: Beside) -> Result<(), Report> {
        let Some(pace) = median(self.paces.clone()) else { return Ok(()) };
        self.workload.hold = beside.time(self.place.setup.hold, pace)?;
        if let Arrivals::Closed { think, .. } = &mut self.workload.arrivals {
            *think = beside.time(self.place.setup.think, pace)?;
        }
        Ok(())
    }
}

/// Work of this time, so often in a row, says how long it takes now.
const SAMPLE: Duration = Duration::from_micros(100);
const SAMPLES: u32 = 100;

/// How much longer work takes now, in the mean, than at its fastest.
fn pace(lab: &Lab) -> f64 {
    let rounds = lab.work().rounds(SAMPLE);
    let start = Instant::now();
    (0..SAMPLES).for_each(|_| work::spin(rounds));
    start.elapsed().as_secs_f64() / (SAMPLE * SAMPLES).as_secs_f64()
}

/// Measures, again while others disturb. With the pace before and after, and the processors that others used,
/// of the best of the tries.
fn undisturbed(lab: &mut Lab, setup: &Setup, seconds: f64) -> Result<Option<(Profile, f64, f64)>, Stopped> {
    let mut best: Option<(Profile, f64, f64)> = None;
    for _ in 0..TRIES {
        let before = pace(lab);
        let (ticks, cpu, start) = (Ticks::now(), children_cpu(), Instant::now());
        let Some(sample) = lab.measure(setup, seconds)? else { continue };
        let own_s = children_cpu().saturating_sub(cpu).as_secs_f64();
        let busy = ticks.and_then(|then| Ticks::now()?.busy_since(then)).unwrap_or_default();
        let others = (busy * f64::from(lab.here.processors) - own_s / start.elapsed().as_secs_f64()).max(0.0);
        if best.as_ref().is_none_or(|(_, _, least)| others < *least) {
            best = Some((sample, f64::midpoint(before, pace(lab)), others));
        }
        if others <= OTHERS {
            break;
        }
    }
    Ok(best)
}

fn rows(cell: &Cell) -> Vec<Row> {
    let mut rows = Vec::new();
    for (how, samples) in [(How::Measured, &cell.measured), (How::Simulated, &cell.simulated)] {
        if !samples.is_empty() {
            rows.push(Row::of(&cell.place, how, HERE, QUANTITIES, samples));
        }
    }
    let Place { load, line, x, .. } = cell.place;
    if let Some(theory) = &cell.theory {
        let values = [(Quantity::Throughput, theory.gets_per_s), (Quantity::K, theory.k)];
        let values = values.into_iter().filter_map(|(quantity, value)| Some((quantity, value?.into()))).collect();
        rows.push(Row { load, line, x, how: How::Predicted, machine: HERE, values });
    }
    rows
}
