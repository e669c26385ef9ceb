//! Where experiments are done: measures by the engine of `retrial bench`, simulates, asks theory, shows the
//! progress.

use super::load::{Setup, Vary};
use super::machine::{HERE, Machine, here};
use super::quantities::{How, Place, Quantity, Row};
use super::{Curve, Experiment, Findings, Sweep};
use crate::predict::source::bar;
use crate::signals;
use indicatif::ProgressBar;
use miette::{Report, miette};
use rayon::prelude::*;
use retrial::wait;
use retrial_bench::cell::Stopped;
use retrial_bench::clock::Clock;
use retrial_bench::ours::{InMode, Ours};
use retrial_bench::outcome::Outcome;
use retrial_bench::work::Work;
use retrial_model::Function;
use retrial_model::Profile;
use retrial_model::sim::{self, Workload};
use retrial_model::theory::theory;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The machine of a curve, which is about none.
pub const ANY: &str = "any";

/// What an experiment is given.
pub struct Lab {
    pub here: Machine,
    /// Fewer points, shorter times, one round.
    pub quick: bool,
    /// Up to as many processes as the sources had.
    pub full: bool,
    pub measures: bool,
    /// Of the first simulation of each point.
    pub seed: u64,
    /// Errors that the bench has found.
    pub errors: u64,
    work: Work,
    clock: Clock,
    bar: ProgressBar,
    /// Position of the bar, in ms: where the experiment under way began, what it takes, the share of it that
    /// is done.
    began: u64,
    takes: u64,
    done: f64,
}

impl Lab {
    /// `experiments`: what it will be used for.
    pub fn new([quick, full]: [bool; 2], measures: bool, seed: u64, experiments: &[&Experiment]) -> Self {
        let total_s: u32 = experiments.iter().map(|experiment| experiment.takes_s[usize::from(quick)]).sum();
        let here = here(measures);
        let (work, clock) = (Work::calibrate(), Clock::calibrate());
        // No thread of its own, which would run beside measurements.
        let bar = bar(u64::from(total_s) * 1000, "{bar:30} {msg}  {eta} left");
        Self { here, quick, full, measures, seed, errors: 0, work, clock, bar, began: 0, takes: 0, done: 0.0 }
    }

    /// What work takes at its fastest.
    pub const fn work(&self) -> Work {
        self.work
    }

    /// An experiment begins.
    pub fn begin(&mut self, experiment: &Experiment) {
        self.began += self.takes;
        self.takes = u64::from(experiment.takes_s[usize::from(self.quick)]) * 1000;
        self.done = 0.0;
        self.bar.set_position(self.began);
    }

    /// All have ended.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// Prints while the bar is away.
    pub fn say(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Shows what is done now, and that `share` of the experiment has been done since this was called last.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // ms of a progress bar
    pub fn show(&mut self, share: f64, what: impl Into<std::borrow::Cow<'static, str>>) {
        self.done += share;
        self.bar.set_message(what);
        self.bar.set_position(self.began + (self.done * self.takes as f64) as u64);
    }

    pub const fn rounds(&self) -> u32 {
        if self.quick { 1 } else { 3 }
    }

    pub const fn seeds(&self) -> u64 {
        if self.quick { 2 } else { 3 }
    }

    /// A time of the experiment's data, shortened where it is quick.
    pub fn time(&self, seconds: f64) -> f64 {
        if self.quick { seconds / 4.0 } else { seconds }
    }

    /// Measures a load here. Nothing where sessions got stuck, which is counted under `errors`, as everything
    /// is that the bench complains of.
    ///
    /// # Errors
    ///
    /// Interrupted, or a limit of the system.
    pub fn measure(&mut self, setup: &Setup, seconds: f64) -> Result<Option<Profile>, Stopped> {
        let duration = Duration::from_secs_f64(seconds);
        let Setup { sessions, copies, scheme, .. } = *setup;
        let peer = InMode::<1>(Ours::with_copies(sessions, copies, None, scheme, &setup.settings)?);
        let conditions = setup.conditions(duration, self.work, self.clock);
        let Outcome { measured, errors, complaints, .. } =
            setup.cell().measure(wait::NAMES[scheme], &peer, &conditions, &|_| ())?;
        self.errors += errors;
        self.bar.suspend(|| complaints.iter().for_each(|line| eprintln!("ERROR: {line}")));
        Ok(measured)
    }

    /// Simulates each workload with each seed, on all processors. In the order of the workloads; none where
    /// one has no steady state.
    ///
    /// # Errors
    ///
    /// Interrupted.
    pub fn simulate(&self, workloads: &[Workload]) -> Result<Vec<Vec<Profile>>, Stopped> {
        let seeds = usize::try_from(self.seeds()).unwrap_or(1);
        let run = |job: usize| {
            let is_wanted = signals::received().is_none();
            let outcome = is_wanted.then(|| sim::run(&workloads[job / seeds], self.seed + (job % seeds) as u64));
            outcome?.ok().map(|outcome| outcome.profile)
        };
        let results: Vec<Option<Profile>> = (0..workloads.len() * seeds).into_par_iter().map(run).collect();
        if signals::received().is_some() {
            return Err(Stopped::Interrupted);
        }
        Ok(results.chunks(seeds).map(|runs| runs.iter().flatten().cloned().collect()).collect())
    }

    /// All figures of an experiment that is sweeps and curves, which take this share of its time.
    ///
    /// # Errors
    ///
    /// Interrupted, a limit of the system, a mistake in the data.
    pub fn sweeps(
        &mut self,
        experiment: &Experiment,
        sweeps: &[Sweep],
        curves: &[Curve],
        share: f64,
    ) -> Result<Findings, Stopped> {
        let mut rows = Vec::new();
        let total = sweeps.iter().map(|sweep| self.weight(sweep)).sum::<f64>() / share;
        for sweep in sweeps {
            let is_by_miss_ratio = sweep.vary == Vary::Utilization;
            let quantities =
                &[experiment.quantities, if is_by_miss_ratio { &[Quantity::MissRatio] } else { &[] }].concat();
            let first = rows.len();
            let places = places(sweep, &self.here, self.quick, sweep.here)?;
            rows.extend(self.measured(sweep, &places, quantities, total)?);
            rows.extend(self.simulated(sweep, &places, &self.here.clone(), quantities, total)?);
            for (machine, points) in sweep.there {
                let places = self::places(sweep, machine, self.quick, points)?;
                rows.extend(self.simulated(sweep, &places, machine, quantities, total)?);
            }
            if is_by_miss_ratio {
                for row in &mut rows[first..] {
                    row.x = row.get(Quantity::MissRatio).map_or(row.x, |found| found.middle);
                }
            }
        }
        for curve in curves {
            rows.extend(predicted(curve)?);
        }
        Ok(Findings { rows, ..Findings::default() })
    }

    /// What measuring a point, or simulating it on a machine, is taken for in the progress bar: about its
    /// seconds.
    fn weight_of_measuring(&self, sweep: &Sweep, x: f64) -> f64 {
        f64::from(self.rounds()) * (self.time(sweep.measured_s) * longer(sessions(sweep, x), &self.here) + 0.05)
    }

    fn weight_of_simulating(&self, sweep: &Sweep, x: f64, machine: &Machine) -> f64 {
        self.seeds() as f64 * self.time(sweep.simulated_s) * longer(sessions(sweep, x), machine) * 0.5
    }

    /// The same of a sweep.
    fn weight(&self, sweep: &Sweep) -> f64 {
        let here = thinned(sweep.here, self.quick);
        let measured = here.iter().filter(|x| self.measures && **x <= self.measured_to(sweep));
        let measured: f64 = measured.map(|x| self.weight_of_measuring(sweep, *x)).sum();
        let on = |machine: &Machine, points: &[f64]| -> f64 {
            points.iter().map(|x| self.weight_of_simulating(sweep, *x, machine)).sum()
        };
        let there: f64 = sweep.there.iter().map(|(machine, points)| on(machine, &thinned(points, self.quick))).sum();
        sweep.lines.len() as f64 * (measured + on(&self.here, &here) + there)
    }

    fn measured_to(&self, sweep: &Sweep) -> f64 {
        sweep.measured_to[usize::from(self.quick)]
    }

    fn measured(
        &mut self,
        sweep: &Sweep,
        places: &[Place],
        quantities: &[Quantity],
        total: f64,
    ) -> Result<Vec<Row>, Stopped> {
        let most = self.measured_to(sweep);
        let places: Vec<&Place> = places.iter().filter(|place| self.measures && place.x <= most).collect();
        let mut samples: Vec<Vec<Profile>> = vec![Vec::new(); places.len()];
        let (rounds, seconds) = (self.rounds(), self.time(sweep.measured_s));
        for round in 1..=rounds {
            for (place, samples) in places.iter().zip(&mut samples) {
                let Place { load, line, x, .. } = place;
                let share = self.weight_of_measuring(sweep, *x) / f64::from(rounds) / total;
                self.show(share, format!("measured, round {round}/{rounds}: {} at {x}", name(load, line)));
                let longer = longer(place.setup.sessions, &self.here);
                samples.extend(self.measure(&place.setup, seconds * longer)?);
            }
        }
        let rows =
            places.iter().zip(&samples).map(|(at, samples)| Row::of(at, How::Measured, HERE, quantities, samples));
        Ok(rows.collect())
    }

    /// Simulated, and predicted where theory is asked.
    fn simulated(
        &mut self,
        sweep: &Sweep,
        places: &[Place],
        machine: &Machine,
        quantities: &[Quantity],
        total: f64,
    ) -> Result<Vec<Row>, Stopped> {
        let seconds = self.time(sweep.simulated_s);
        let mut rows = Vec::new();
        // A few at a time: the bar moves, and both processors are busy most of the time.
        for part in places.chunks(8) {
            let weight: f64 = part.iter().map(|place| self.weight_of_simulating(sweep, place.x, machine)).sum();
            let Place { load, line, .. } = part[0];
            self.show(weight / total, format!("simulated for {}: {}", machine.name, name(load, line)));
            let workload = |place: &Place| {
                let busy = f64::from(place.setup.sessions.min(machine.processors));
                let shorter = (24.0 / busy).clamp(0.25, 1.0);
                place.setup.workload(machine, seconds * shorter * longer(place.setup.sessions, machine))
            };
            let workloads = part.iter().map(workload).collect::<Result<Vec<_>, _>>()?;
            for ((place, workload), samples) in part.iter().zip(&workloads).zip(self.simulate(&workloads)?) {
                rows.push(Row::of(place, How::Simulated, machine.name, quantities, &samples));
                let asks = sweep.theory[usize::from(machine.name != HERE)];
                rows.extend(asks.then(|| by_theory(place, workload, machine.name, quantities)).flatten());
            }
        }
        Ok(rows)
    }
}

/// A load, where it has a name, and a line.
fn name(load: &str, line: &str) -> String {
    format!("{load} {line}").trim_start().to_owned()
}

/// How much longer a crowd takes to settle: its sessions come to the end of their spins in turns.
fn longer(sessions: u32, machine: &Machine) -> f64 {
    (f64::from(sessions) / f64::from(machine.processors) / CROWD).max(1.0)
}

/// Sessions at a point.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole numbers of an experiment's data
fn sessions(sweep: &Sweep, x: f64) -> u32 {
    if sweep.vary == Vary::Sessions { x as u32 } else { sweep.load.sessions }
}

/// Sessions for each processor from which on it takes longer.
const CROWD: f64 = 512.0;

/// All points of a sweep on a machine, those of a line one after the other.
fn places(sweep: &Sweep, machine: &Machine, quick: bool, points: &[f64]) -> Result<Vec<Place>, Report> {
    let points = thinned(points, quick);
    let at = |line: &'static super::Line, x: f64| {
        let setup = Setup::new(&sweep.load, line, sweep.vary, x, machine)?;
        Ok(Place { load: sweep.load.name, line: line.name, x, setup })
    };
    sweep.lines.iter().flat_map(|line| points.iter().map(move |x| at(line, *x))).collect()
}

/// The points that are taken: where it is quick and there are many, the first, every second one from the
/// second on, and the last.
pub fn thinned(points: &[f64], quick: bool) -> Vec<f64> {
    let is_taken = |i: usize| !quick || points.len() <= 6 || i == 0 || i % 2 == 1 || i + 1 == points.len();
    points.iter().enumerate().filter(|(i, _)| is_taken(*i)).map(|(_, x)| *x).collect()
}

/// What theory says of a point, where it says something.
fn by_theory(place: &Place, workload: &Workload, machine: &'static str, quantities: &[Quantity]) -> Option<Row> {
    let found = theory(workload).ok()?;
    let rate = found.gets_per_s.filter(|rate| *rate > 0.0);
    let value = |quantity: &Quantity| {
        let value = match quantity {
            Quantity::Throughput => rate?,
            Quantity::Elapsed => 1e6 / rate?,
            Quantity::ElapsedEach => f64::from(place.setup.sessions) * 1e6 / rate?,
            Quantity::K => found.k?,
            _ => return None,
        };
        Some((*quantity, value.into()))
    };
    let values: Vec<_> = quantities.iter().filter_map(value).collect();
    let Place { load, line, x, .. } = *place;
    (!values.is_empty()).then_some(Row { load, line, x, how: How::Predicted, machine, values })
}

/// The points of a curve.
fn predicted(curve: &Curve) -> Result<Vec<Row>, Report> {
    let wrong = |error| miette!(code = "retrial::experiment::curve", "{}: {error}", curve.function);
    let function = Function::named(curve.function).map_err(wrong)?;
    let at = |x: &f64| {
        let mut given: Map<String, Value> =
            curve.given.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        given.insert(curve.vary.0.to_owned(), json!(x * curve.vary.1));
        let found = function.call(&given).map_err(wrong)?;
        let value = found.get(curve.result).and_then(Value::as_f64);
        let values = value.map(|value| (curve.quantity, value.into())).into_iter().collect();
        Ok(Row { load: "", line: curve.line, x: *x, how: How::Predicted, machine: ANY, values })
    };
    curve.points.iter().map(at).collect()
}
