//! The simulator, and theory where it has a formula, against this machine: cell by cell, and how far they are off.
//!
//! The costs are those of `retrial calibrate`, but for what a busy neighbour changes: it measures on a
//! machine that does nothing else, while in all that is contended the other processors are busy, and share
//! cores, caches and clock rates. [`Beside`] measures that. Work is calibrated by its fastest; how long it
//! takes in the mean changes from one second to the next, and is measured beside each cell.

use super::figures::{How, Place, Quantity, Row};
use super::lab::Lab;
use super::load::{Line, Load, Setup, Think, Vary, line};
use super::machine::{HERE, Machine};
use super::{Experiment, Findings, Run};
use crate::chart::Scale;
use crate::output::{Table, column, short, whole};
use miette::{Report, miette};
use retrial::sys::{self, Deadline};
use retrial::views::Counter;
use retrial::{Mode, P, Patience, location, wait};
use retrial_bench::cell::Stopped;
use retrial_bench::machine::Ticks;
use retrial_bench::ours::Ours;
use retrial_bench::outcome::median;
use retrial_bench::process::{Crew, children_cpu};
use retrial_bench::work;
use retrial_model::sim::{Arrivals, Workload};
use retrial_model::theory::{Theory, theory};
use retrial_model::{Distribution as Times, Measure, Profile};
use serde_json::Value;
use std::time::{Duration, Instant};

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
    takes_s: [240, 30],
};

const QUANTITIES: &[Quantity] = &[Quantity::Throughput, Quantity::K, Quantity::Kappa, Quantity::Sleeps, Quantity::Cpus];

/// Most that the simulator may be off, as a share.
const AIMS: [f64; QUANTITIES.len()] = [0.15, 0.25, 0.25, 0.25, 0.15];

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

/// Time of a measurement, and of a simulation, in s.
const SPAN_S: f64 = 0.5;

const fn load(name: &'static str, hold_us: u64) -> Load {
    Load { name, ..Load::new(Duration::from_micros(hold_us), Think::PerProcessor(0.5)) }
}

/// A measurement beside which others took more of the processors than this is made again, so often at most.
const OTHERS: f64 = 0.1;
const TRIES: u32 = 3;

/// Fewer yields, sleeps and parks say nothing of k, κ and sleeps per second.
const SLEEPS: u64 = 100;

/// What costs differ in while the other processors are busy, and what the harness of the bench costs itself.
#[derive(Clone, Copy, Debug)]
struct Beside {
    /// Time of work at its fastest, over its time on a machine that does nothing else.
    slowdown: f64,
    poll_ns: f64,
    step_ns: f64,
    yield_ns: f64,
    /// Clock, check and count of a round, beside the section and the think time.
    harness_ns: f64,
}

/// The least: where others ran in between, times are longer. The neighbours are busy in all of them.
fn least(times: impl IntoIterator<Item = f64>) -> f64 {
    times.into_iter().reduce(f64::min).unwrap_or_default()
}

/// The spin and the yield of a step, in ns, while another session keeps the mutex.
fn steps(ours: &Ours, polls: u64) -> Result<(f64, f64), Report> {
    const ROUNDS: u32 = 31;
    let none = || miette!(code = "retrial::experiment::session", "no session in an instance of its own");
    ours.instance.set(P::SpinCount, None, polls);
    let (holder, waiter) = (ours.session().ok_or_else(none)?, ours.session().ok_or_else(none)?);
    let mutex = &ours.place[0].mutex;
    // SAFETY: both are of the same instance.
    let _held = unsafe { mutex.get(&holder, Mode::Exclusive, location!("accuracy: hold"), Patience::Endless) };
    let round = |_| {
        let sum =
            |counter| ours.instance.tables().figures().iter().map(|(_, _, figures)| figures.get(counter)).sum::<u64>();
        let before = [Counter::Yields, Counter::SpinNs, Counter::YieldNs].map(sum);
        let deadline = Patience::Until(Deadline::after(Duration::from_millis(2)));
        // SAFETY: both are of the same instance.
        drop(unsafe { mutex.get(&waiter, Mode::Exclusive, location!("accuracy: wait"), deadline) });
        let [yields, spin_ns, yield_ns] = [Counter::Yields, Counter::SpinNs, Counter::YieldNs].map(sum);
        let yields = (yields - before[0]).max(1) as f64;
        ((spin_ns - before[1]) as f64 / yields, (yield_ns - before[2]) as f64 / yields)
    };
    let rounds: Vec<(f64, f64)> = (0..ROUNDS).map(round).collect();
    Ok((least(rounds.iter().map(|round| round.0)), least(rounds.iter().map(|round| round.1))))
}

impl Beside {
    fn measure(lab: &mut Lab) -> Result<Self, Stopped> {
        const POLLS: u64 = 1000;
        lab.show(0.0, "what steps cost beside busy processors");
        let mut hogs = Crew::default();
        for _ in 1..lab.here.processors {
            let hog = || {
                loop {
                    work::spin(1 << 20);
                }
            };
            hogs.fork(hog).map_err(|error| miette!(code = "retrial::experiment::fork", "no process: {error}"))?;
        }
        let time = |what: &dyn Fn()| {
            let start = Instant::now();
            what();
            start.elapsed().as_nanos() as f64
        };
        let each = |what: &dyn Fn()| least((0..301).map(|_| time(what)));
        let rounds = lab.work().rounds(SAMPLE);
        let slowdown = each(&|| work::spin(rounds)) / SAMPLE.as_nanos() as f64;
        let yield_ns = each(&|| (0..100).for_each(|_| sys::yield_now())) / 100.0;
        let ours = Ours::new(2, wait::named("10g").unwrap_or(wait::DEFAULT), &[])?;
        let ((short_ns, step_ns), (long_ns, _)) = (steps(&ours, 0)?, steps(&ours, POLLS)?);
        drop(hogs);
        let poll_ns = (long_ns - short_ns) / POLLS as f64;
        // One session alone that neither holds nor thinks: what is left is the harness, and the get.
        let nothing = Load::new(Duration::ZERO, Think::Time(Duration::ZERO));
        let setup = Setup::new(&nothing, &line("10g"), Vary::Sessions, 1.0, &lab.here)?;
        let mut rounds_ns = Vec::new();
        for _ in 0..5 {
            rounds_ns
                .extend(lab.measure(&setup, 0.05)?.and_then(|profile| Some(1e9 / Measure::Throughput.of(&profile)?)));
        }
        let round_ns = least(rounds_ns);
        let harness_ns = (round_ns - lab.here.costs.exchange_ns as f64).max(0.0);
        let step_ns = short_ns + (step_ns - yield_ns).max(0.0);
        Ok(Self { slowdown: slowdown.max(1.0), poll_ns, step_ns, yield_ns, harness_ns })
    }

    /// A machine with these costs.
    fn on(self, machine: &Machine) -> Machine {
        let mut machine = machine.clone();
        let costs = &mut machine.costs;
        costs.poll_ns = whole(self.poll_ns).max(1);
        costs.step_ns = whole(self.step_ns);
        costs.yield_alone_ns = whole(self.yield_ns).max(1);
        machine
    }

    /// Holding or think times in s: that many times slower, at this pace, with half of the harness.
    fn time(self, mean: Duration, pace: f64) -> Result<Times, Report> {
        Times::exponential(mean.as_secs_f64() * self.slowdown * pace + self.harness_ns / 2e9)
            .map_err(|error| miette!(code = "retrial::experiment::time", "{error}"))
    }

    fn note(self) -> String {
        format!(
            "beside busy processors work takes {} times as long, a poll {} ns, a yield {} ns, the rest of a step {} ns; the harness takes {} ns a round, half of them in the section",
            short(self.slowdown),
            short(self.poll_ns),
            short(self.yield_ns),
            short(self.step_ns),
            short(self.harness_ns)
        )
    }
}

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
            let Some((sample, pace, others)) = undisturbed(lab, &cell.place.setup)? else { continue };
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
                // The bench counts from the start, too.
                workload.warm_up = 0.0;
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
fn undisturbed(lab: &mut Lab, setup: &Setup) -> Result<Option<(Profile, f64, f64)>, Stopped> {
    let mut best: Option<(Profile, f64, f64)> = None;
    for _ in 0..TRIES {
        let before = pace(lab);
        let (ticks, cpu, start) = (Ticks::now(), children_cpu(), Instant::now());
        let Some(sample) = lab.measure(setup, lab.time(SPAN_S))? else { continue };
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

/// Simulated and predicted against measured, of a cell; as shares.
struct Errors {
    load: &'static str,
    line: &'static str,
    sessions: f64,
    simulated: [Option<f64>; QUANTITIES.len()],
    /// Throughput and k.
    predicted: [Option<f64>; 2],
    others: f64,
}

impl Errors {
    /// `None` where nothing was measured.
    fn of(cell: &Cell) -> Option<Self> {
        let rows = rows(cell);
        let row = |how: How| rows.iter().find(|row| row.how == how);
        let (measured, simulated) = (row(How::Measured)?, row(How::Simulated)?);
        let sleeps: u64 = cell.measured.iter().map(|sample| sample.figures.sleeps()).sum();
        let error = |row: &Row, quantity: Quantity| {
            let is_known = matches!(quantity, Quantity::Throughput | Quantity::Cpus) || sleeps >= SLEEPS;
            let (found, seen) = (row.get(quantity)?.middle, measured.get(quantity)?.middle);
            (is_known && seen > 0.0).then(|| found / seen - 1.0)
        };
        let Place { load, line, x, .. } = cell.place;
        let mut errors = [None; QUANTITIES.len()];
        for (error_of, quantity) in errors.iter_mut().zip(QUANTITIES) {
            *error_of = error(simulated, *quantity);
        }
        let predicted = [Quantity::Throughput, Quantity::K].map(|quantity| error(row(How::Predicted)?, quantity));
        Some(Self { load, line, sessions: x, simulated: errors, predicted, others: cell.others })
    }

    /// The greatest error, in units of what is aimed at.
    fn worst(&self) -> f64 {
        let over = self.simulated.iter().zip(AIMS).map(|(error, aim)| error.map_or(0.0, |error| error.abs() / aim));
        over.fold(0.0, f64::max)
    }
}

fn percent(share: Option<f64>) -> Value {
    share.map(|share| share * 100.0).into()
}

fn by_cell<'a>(errors: impl IntoIterator<Item = &'a Errors>) -> Table {
    let simulated = |i: usize| move |cell: &Errors| percent(cell.simulated[i]);
    let predicted = |i: usize| move |cell: &Errors| percent(cell.predicted[i]);
    let columns = [
        column("hold", |cell: &Errors| cell.load),
        column("scheme", |cell: &Errors| cell.line),
        column("sessions", |cell: &Errors| cell.sessions),
        column("gets_pct", simulated(0)),
        column("k_pct", simulated(1)),
        column("kappa_pct", simulated(2)),
        column("sleeps_pct", simulated(3)),
        column("cpus_pct", simulated(4)),
        column("theory_gets_pct", predicted(0)),
        column("theory_k_pct", predicted(1)),
        column("others_cpus", |cell: &Errors| cell.others),
    ];
    Table::of(&columns, errors)
}

fn worst(errors: &[Errors]) -> Table {
    const CELLS: usize = 10;
    let mut sorted: Vec<&Errors> = errors.iter().collect();
    sorted.sort_by(|a, b| b.worst().total_cmp(&a.worst()));
    by_cell(sorted.into_iter().take(CELLS))
}

/// Median of the absolute errors, those within the aim, all.
fn judged<'a>(errors: impl IntoIterator<Item = &'a Errors>, i: usize) -> Option<(f64, usize, usize)> {
    let sizes: Vec<f64> = errors.into_iter().filter_map(|cell| Some(cell.simulated[i]?.abs())).collect();
    let within = sizes.iter().filter(|size| **size <= AIMS[i]).count();
    let all = sizes.len();
    Some((median(sizes)?, within, all))
}

fn by_scheme(errors: &[Errors]) -> Table {
    let own = |line: &Line| {
        let name = line.name;
        errors.iter().filter(move |cell| cell.line == name)
    };
    let mut columns = vec![column("scheme", |line: &Line| line.name)];
    let names = [
        ("gets_pct", "gets_within"),
        ("k_pct", "k_within"),
        ("kappa_pct", "kappa_within"),
        ("sleeps_pct", "sleeps_within"),
        ("cpus_pct", "cpus_within"),
    ];
    for (i, (size, within)) in names.into_iter().enumerate() {
        columns.push(column(size, move |line: &Line| percent(judged(own(line), i).map(|(median, ..)| median))));
        columns.push(column(within, move |line: &Line| {
            judged(own(line), i).map(|(_, within, all)| format!("{within}/{all}"))
        }));
    }
    Table::of(&columns, LINES.iter().copied().filter(|line| own(line).next().is_some()))
}

/// A sentence for each figure, and one on who disturbed.
fn summary(errors: &[Errors]) -> Vec<String> {
    let sentence = |i: usize| {
        let (median, within, all) = judged(errors, i)?;
        let (name, aim) = (QUANTITIES[i].name(), short(AIMS[i] * 100.0));
        Some(format!("{name}: median error {} %, {within} of {all} cells within {aim} %", short(median * 100.0)))
    };
    let disturbed = errors.iter().filter(|cell| cell.others > OTHERS).count();
    let note = (disturbed > 0).then(|| {
        format!(
            "others used more than {OTHERS} processors beside {disturbed} of {} cells: their figures are too low",
            errors.len()
        )
    });
    (0..QUANTITIES.len()).filter_map(sentence).chain(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use retrial::views::Figures;

    fn sample(gets: u64, yields: u64, busy: u64) -> Profile {
        let mut figures = Figures::default();
        figures.0[Counter::Yields as usize] = yields;
        figures.0[Counter::Busy as usize] = busy;
        figures.0[Counter::Misses as usize] = busy;
        let (gets, sessions, cpu_s) = (Some(gets), Some(2), Some(2.0));
        Profile { time_s: 1.0, gets, sessions, cpu_s, figures, ..Profile::default() }
    }

    fn cell(measured: Profile, simulated: Profile) -> Cell {
        let machine = super::super::machine::here(false);
        let setup = Setup::new(&LOADS[0], &LINES[0], Vary::Sessions, 2.0, &machine).unwrap();
        let workload = setup.workload(&machine, 0.01).unwrap();
        let place = Place { load: "1 us", line: "10g", x: 2.0, setup };
        let (measured, simulated) = (vec![measured], vec![simulated]);
        Cell { place, workload, measured, paces: Vec::new(), others: 0.0, simulated, theory: None }
    }

    #[test]
    fn errors_are_against_what_was_measured_and_judged_by_the_aims() {
        let near = Errors::of(&cell(sample(1000, 500, 1000), sample(1100, 600, 1000))).unwrap();
        let far = Errors::of(&cell(sample(1000, 500, 1000), sample(1300, 250, 1000))).unwrap();
        assert!((near.simulated[0].unwrap() - 0.1).abs() < 1e-9 && (near.simulated[1].unwrap() - 0.2).abs() < 1e-9);
        assert!((far.worst() - 2.0).abs() < 1e-9, "{}", far.worst());
        let (median, within, all) = judged([&near, &far], 0).unwrap();
        assert!((median - 0.2).abs() < 1e-9);
        assert_eq!((within, all), (1, 2));
    }

    #[test]
    fn too_few_sleeps_say_nothing_of_k() {
        let errors = Errors::of(&cell(sample(1000, SLEEPS - 1, 1000), sample(1000, 900, 1000))).unwrap();
        assert_eq!((errors.simulated[1], errors.simulated[0]), (None, Some(0.0)));
    }
}
