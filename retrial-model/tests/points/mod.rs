//! The grid on which every formula that the simulator can check meets it: points, what is claimed at each,
//! and how far it is off.
//!
//! All in units of the mean holding time S. Each point is simulated a number of times; a claim compares a
//! number of each run with what the formula says, for the same parameters or for what that run has measured.

#![allow(unreachable_pub)] // of a test and of an example

mod closed;
pub mod grid;
mod open;

use rayon::prelude::*;
use retrial_model::Function;
use retrial_model::sim::{Measure, Workload, run};
use serde_json::{Map, Value};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// What a run has measured, times in units of S.
#[derive(Clone, Debug)]
pub struct Seen(Vec<f64>);

impl Seen {
    pub fn get(&self, measure: Measure) -> f64 {
        self.0[measure as usize]
    }

    /// Λ: fresh requests and, for each failed spin, a retry.
    pub fn attempt_rate(&self) -> f64 {
        self.get(Measure::Throughput) * (1.0 + self.get(Measure::SleepsPerGet))
    }
}

/// Parameters of a function but the distribution, in units of S.
pub type Parameters = Vec<(&'static str, f64)>;

/// What a formula says of a point.
pub struct Claim {
    pub function: &'static str,
    /// Of its results.
    pub field: &'static str,
    /// The same number of a run.
    pub found: fn(&Seen) -> f64,
    pub parameters: With,
    /// How far it may be off, as a share of what is simulated; 0 where it is exact.
    pub allowed: f64,
}

/// Where the parameters of a claim come from.
pub enum With {
    Given(Parameters),
    /// Some of them are what a run has measured.
    Measured(Box<dyn Fn(&Seen) -> Parameters + Sync>),
}

/// What is simulated, and what theory says of it.
pub struct Point {
    /// What is simulated, with the distribution, for people.
    pub name: String,
    /// Where it stands in the table of errors.
    pub row: String,
    pub column: String,
    /// S in seconds, and the holding time as the functions take it.
    pub unit: f64,
    pub dist: Value,
    pub workload: Workload,
    pub claims: Vec<Claim>,
}

/// How a claim has stood the simulation.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub function: &'static str,
    pub field: &'static str,
    pub name: String,
    pub row: String,
    pub column: String,
    pub found: f64,
    pub expected: f64,
    pub allowed: f64,
    /// Formula over simulation - 1.
    pub error: f64,
    /// Half the width of the 95 % interval of `error`.
    pub interval: f64,
    /// Distance beyond what is allowed, in standard deviations of a normal distribution that is as improbable.
    pub sigmas: f64,
}

impl Verdict {
    /// Whether the simulation says something: its interval is narrow beside the value or the error.
    pub fn is_resolved(&self) -> bool {
        self.interval < (self.error.abs() / 4.0).max(0.03)
    }

    pub fn is_exact(&self) -> bool {
        self.allowed == 0.0
    }
}

/// What is simulated of each point.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub replications: u64,
    /// In each, about.
    pub gets: f64,
    /// Every so many points.
    pub stride: usize,
}

/// Simulates the points on all processors, and judges each claim. The same seeds give the same verdicts.
pub fn judge(points: &[Point], effort: Effort) -> Vec<Verdict> {
    let judge = |(i, point): (usize, &Point)| {
        let seeds = (0..effort.replications).map(|replication| (i as u64) << 16 | replication);
        point.judge(seeds)
    };
    points.par_iter().enumerate().step_by(effort.stride).flat_map_iter(judge).collect()
}

impl Point {
    fn judge(&self, seeds: impl Iterator<Item = u64>) -> Vec<Verdict> {
        let seen: Vec<Seen> = seeds.map(|seed| self.seen(seed)).collect();
        self.claims.iter().map(|claim| self.verdict(claim, &seen)).collect()
    }

    fn seen(&self, seed: u64) -> Seen {
        let outcome = run(&self.workload, seed).unwrap_or_else(|error| panic!("{}, seed {seed}: {error}", self.name));
        let scaled = |measure: &Measure| outcome.get(*measure).unwrap_or(0.0) / self.scale(measure.unit());
        Seen(Measure::ALL.iter().map(scaled).collect())
    }

    fn scale(&self, unit: &str) -> f64 {
        match unit {
            "s" => self.unit,
            "1/s" => 1.0 / self.unit,
            "s²" => self.unit * self.unit,
            _ => 1.0,
        }
    }

    fn verdict(&self, claim: &Claim, seen: &[Seen]) -> Verdict {
        let n = seen.len() as f64;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / n;
        let found: Vec<f64> = seen.iter().map(claim.found).collect();
        let expected: Vec<f64> = match &claim.parameters {
            With::Given(parameters) => vec![self.call(claim, parameters); seen.len()],
            With::Measured(parameters) => seen.iter().map(|seen| self.call(claim, &parameters(seen))).collect(),
        };
        let off: Vec<f64> = found.iter().zip(&expected).map(|(found, expected)| expected - found).collect();
        let (found, expected, distance) = (mean(&found), mean(&expected), mean(&off));
        let squares: f64 = off.iter().map(|off| (off - distance).powi(2)).sum();
        let deviation = (squares / (n - 1.0) / n).sqrt();
        let student = StudentsT::new(0.0, 1.0, n - 1.0).expect("there is a degree of freedom");
        let beyond = (distance.abs() - claim.allowed * found.abs()).max(0.0);
        let sigmas = if beyond == 0.0 { 0.0 } else { as_normal(student.sf(beyond / deviation)) };
        Verdict {
            function: claim.function,
            field: claim.field,
            name: self.name.clone(),
            row: self.row.clone(),
            column: self.column.clone(),
            found,
            expected,
            allowed: claim.allowed,
            error: distance / found,
            interval: student.inverse_cdf(0.975) * deviation / found.abs(),
            sigmas,
        }
    }

    /// A formula in units of S.
    fn call(&self, claim: &Claim, parameters: &Parameters) -> f64 {
        let function = Function::named(claim.function).expect("it is in the catalogue");
        let mut named = Map::new();
        for known in function.parameters {
            if let Some((_, value)) = parameters.iter().find(|(name, _)| *name == known.name) {
                named.insert(known.name.into(), (value * self.scale(known.unit.name())).into());
            } else if known.name == "dist" {
                named.insert("dist".into(), self.dist.clone());
            }
        }
        let results = function.call(&named).unwrap_or_else(|error| panic!("{}: {named:?}: {error}", self.name));
        let field = function.results.iter().find(|field| field.name == claim.field).expect("it has this result");
        let value = results[claim.field].as_f64().unwrap_or_else(|| panic!("{}: {results:?}", self.name));
        value / self.scale(field.unit)
    }
}

/// The distance from the mean that a normal variable exceeds with this probability.
fn as_normal(probability: f64) -> f64 {
    let normal = Normal::standard();
    // Beyond 8 it does not matter by how much.
    if probability < 1e-15 { 8.0 } else { -normal.inverse_cdf(probability) }
}
