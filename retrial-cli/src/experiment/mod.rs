//! The experiments of the sources: their figures and tables measured here, simulated for this machine and for
//! theirs, predicted.
//!
//! An [`Experiment`] is data: a row of [`EXPERIMENTS`]. To add one, write a `pub const` of it, in the file of
//! its source or in one of its own, and name it there; `--list`, the table, the picture, the page and the
//! claims follow. Most are [`Run::Sweeps`]: lines (wait schemes with parameters) at points (sessions, spin
//! counts, …) of a [`Load`]. Each point is measured by the engine of `retrial bench` in rounds that
//! interleave, simulated with several seeds, and predicted where [`theory`](retrial_model::theory) has a
//! formula. What does not fit there is [`Run::Own`]: a function that is given the [`Lab`] (which measures,
//! simulates, and shows the progress) and gives rows of figures, and tables of its own if it has any.
//! [`worked`] does the loads of `retrial cache work` for it.
//!
//! A new figure is a line in `quantities!` of [`quantities`], a new machine a constant in [`machine`]. What a
//! source says of its figure is a
//! [`Claim`]: a sentence with a check, which is made for each way and machine that has the figures.

mod accuracy;
pub mod claims;
mod copies;
mod costs;
mod engine;
mod holder;
pub mod lab;
pub mod load;
pub mod machine;
mod marked;
mod paper;
mod pins;
pub mod quantities;
pub mod render;
mod still;
pub mod svg;
mod worked;

use crate::chart::Scale;
use crate::output::Table;
use claims::Claim;
use lab::Lab;
use load::{Line, Load, Vary};
use machine::Machine;
use quantities::{Quantity, Row};
use retrial_bench::cell::Stopped;
use serde_json::Value;

/// All of them, in the order of the sources.
pub static EXPERIMENTS: &[&Experiment] = &[
    &paper::UTILIZATION,
    &paper::WAIT_TIME,
    &paper::SCHEMES,
    &paper::SPIN_COUNT,
    &paper::SQUARING,
    &costs::COSTS,
    &still::SPLIT,
    &holder::GRANULARITY,
    &holder::LONG_HOLDER,
    &marked::MARKED,
    &copies::COPIES,
    &pins::PINS,
    &engine::ENGINE,
    &accuracy::ACCURACY,
];

/// A figure or a table of a source.
pub struct Experiment {
    pub name: &'static str,
    /// Document and figure: `000, fig. 9`.
    pub source: &'static str,
    /// What it shows, in a line.
    pub shows: &'static str,
    /// What is done, for the page.
    pub text: &'static str,
    /// Name of the x axis and of its column.
    pub x: &'static str,
    pub x_scale: Scale,
    /// The columns.
    pub quantities: &'static [Quantity],
    /// Those that are drawn, each in a chart of its own for each machine.
    pub charts: &'static [(Quantity, Scale)],
    /// Whether all machines and ways are in one chart, each in its colour; the lines are numbered on the x
    /// axis then.
    pub together: bool,
    pub run: Run,
    pub claims: &'static [Claim],
    /// What it takes on a machine with two processors, in s: all of it, and with `--quick`.
    pub takes_s: [u32; 2],
}

/// How the figures are found.
pub enum Run {
    Sweeps(&'static [Sweep], &'static [Curve]),
    Own(Finds),
    /// Sweeps, then the function. The last number is the share of the experiment's time that the function
    /// takes.
    Both(&'static [Sweep], Finds, f64),
}

/// Finds figures.
type Finds = fn(&mut Lab) -> Result<Findings, Stopped>;

/// What an experiment has found.
#[derive(Default)]
pub struct Findings {
    pub rows: Vec<Row>,
    /// Tables beside that of the rows, with their titles.
    pub tables: Vec<(String, Table)>,
    /// Sentences for the reader of the figures.
    pub notes: Vec<String>,
}

/// Lines at points of a load.
pub struct Sweep {
    pub load: Load,
    pub vary: Vary,
    pub lines: &'static [Line],
    /// Points here; those up to the second number are measured, too, and with `--quick` those up to the
    /// third.
    pub here: &'static [f64],
    pub measured_to: [f64; 2],
    /// Points on other machines.
    pub there: &'static [(&'static Machine, &'static [f64])],
    /// Whether theory is asked: here, and on other machines.
    pub theory: [bool; 2],
    /// Time of a measurement and of a simulation, in s; fewer for many processors.
    pub measured_s: f64,
    pub simulated_s: f64,
}

/// A formula of the model, drawn beside the figures of all machines.
pub struct Curve {
    pub line: &'static str,
    pub function: &'static str,
    pub given: &'static [(&'static str, &'static str)],
    /// The parameter that x is, and what it is for x = 1.
    pub vary: (&'static str, f64),
    pub points: &'static [f64],
    pub result: &'static str,
    pub quantity: Quantity,
}

/// The experiment of a name.
pub fn named(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS.iter().copied().find(|experiment| experiment.name == name)
}

impl Experiment {
    /// An x by its name, where it has one.
    pub fn named(&self, x: f64) -> Value {
        self.x_scale.name(x).map_or_else(|| x.into(), Value::from)
    }

    /// Finds its figures.
    ///
    /// # Errors
    ///
    /// Interrupted, or a limit of the system.
    pub fn run(&self, lab: &mut Lab) -> Result<Findings, Stopped> {
        match self.run {
            Run::Sweeps(sweeps, curves) => lab.sweeps(self, sweeps, curves, 1.0),
            Run::Own(run) => run(lab),
            Run::Both(sweeps, run, share) => {
                let mut findings = lab.sweeps(self, sweeps, &[], 1.0 - share)?;
                let own = run(lab)?;
                findings.rows.extend(own.rows);
                findings.tables.extend(own.tables);
                findings.notes.extend(own.notes);
                Ok(findings)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::claims::{Check, Term};
    use super::load::Setup;
    use super::*;

    #[test]
    fn names_are_different_and_times_are_said() {
        for (i, experiment) in EXPERIMENTS.iter().enumerate() {
            let Experiment { name, takes_s: [full, quick], .. } = experiment;
            assert!(EXPERIMENTS[..i].iter().all(|other| other.name != *name), "{name}");
            assert!(*name != "all" && 0 < *quick && quick < full, "{name}");
            assert!(named(name).is_some_and(|found| std::ptr::eq(found, *experiment)), "{name}");
        }
    }

    /// Sweeps of an experiment, if it is made of them.
    fn sweeps(experiment: &Experiment) -> &'static [Sweep] {
        match experiment.run {
            Run::Sweeps(sweeps, _) | Run::Both(sweeps, ..) => sweeps,
            Run::Own(_) => &[],
        }
    }

    #[test]
    fn every_point_of_every_sweep_can_be_simulated() {
        for experiment in EXPERIMENTS {
            for sweep in sweeps(experiment) {
                let here = (&machine::EXADATA, sweep.here);
                for (machine, points) in sweep.there.iter().chain([&here]) {
                    for (line, x) in sweep.lines.iter().flat_map(|line| points.iter().map(move |x| (line, *x))) {
                        let setup = Setup::new(&sweep.load, line, sweep.vary, x, machine);
                        let workload = setup.and_then(|setup| setup.workload(machine, 1.0));
                        assert!(workload.is_ok(), "{} {} {x}: {workload:?}", experiment.name, line.name);
                    }
                }
            }
        }
    }

    /// The lines that a claim names.
    fn claimed(check: &Check) -> Vec<&'static str> {
        let of = |terms: &[&Term]| terms.iter().flat_map(|term| term.lines.iter().copied()).collect();
        match check {
            Check::AtLeast(first, _, second) | Check::Same(first, second, _) => of(&[first, second]),
            Check::Near(term, ..) | Check::AtMost(term, _) => of(&[term]),
            Check::FallsExponentially(_, line, _) | Check::Squares(_, line, _) => vec![line],
            Check::Follows(_, first, second, _) | Check::Cross(_, first, second) => vec![first, second],
        }
    }

    #[test]
    fn claims_are_about_lines_that_there_are() {
        for experiment in EXPERIMENTS {
            let Run::Sweeps(sweeps, curves) = experiment.run else { continue };
            let lines: Vec<&str> = sweeps.iter().flat_map(|sweep| sweep.lines).map(|line| line.name).collect();
            let is_known = |name: &&str| lines.contains(name) || curves.iter().any(|curve| curve.line == *name);
            for claim in experiment.claims {
                assert!(claimed(&claim.check).iter().all(is_known), "{}: {}", experiment.name, claim.says);
                let loads = || sweeps.iter().map(|sweep| sweep.load.name);
                assert!(claim.load.is_empty() || loads().any(|load| load == claim.load), "{}", claim.says);
            }
        }
    }
}
