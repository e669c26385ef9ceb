//! Whether the model fits: what was measured beside what is simulated.

use super::prediction::Prediction;
use crate::output::{Table, column};
use retrial_model::{Measure, Profile};

/// Most that the simulated figures may differ from the measured ones, as a share.
pub const TOLERANCE: f64 = 0.25;

/// Differences of shares below this are noise.
const NOISE: f64 = 0.05;

/// Fewer tries that found the mutex busy say nothing of k and κ.
const TRIES: f64 = 100.0;

/// A figure measured and simulated.
#[derive(Clone, Debug)]
pub struct Compared {
    pub figure: &'static str,
    pub measured: Option<f64>,
    pub simulated: Option<f64>,
    pub interval: Option<f64>,
    /// Whether it fits; `None` where that is not judged.
    pub fits: Option<bool>,
}

impl Compared {
    /// Simulated against measured, as a share.
    pub fn error(&self) -> Option<f64> {
        Some(self.simulated? / self.measured.filter(|measured| *measured > 0.0)? - 1.0)
    }
}

/// What is compared: its name, the measure in which unit, and the difference that is noise where it is
/// judged.
const FIGURES: [(&str, Measure, f64, Option<f64>); 6] = [
    ("gets_per_s", Measure::Throughput, 1.0, Some(0.0)),
    ("k", Measure::SpinInefficiency, 1.0, Some(NOISE)),
    ("kappa", Measure::SleepRatio, 1.0, Some(NOISE)),
    ("utilization", Measure::Utilization, 1.0, None),
    ("wait_us", Measure::Wait, 1e6, None),
    ("cpus", Measure::BusyProcessors, 1.0, None),
];

/// The figures side by side. Judged are throughput and, where enough gets found the mutex busy, k and κ.
pub fn compare(measured: &Profile, prediction: &Prediction) -> Vec<Compared> {
    let enough = measured.count(retrial::views::Counter::Busy) >= TRIES;
    let compared = FIGURES.map(|(figure, measure, unit, noise)| {
        let (seen, simulated) = (measure.of(measured), prediction.mean(measure));
        let judged = seen.zip(noise).filter(|_| enough || measure == Measure::Throughput);
        let fits = judged.map(|(seen, noise)| {
            let difference = (simulated.unwrap_or(0.0) - seen).abs();
            difference <= TOLERANCE * seen || difference <= noise
        });
        let scaled = |value: Option<f64>| value.map(|value| value * unit);
        let interval = scaled(prediction.interval(measure));
        Compared { figure, measured: scaled(seen), simulated: scaled(simulated), interval, fits }
    });
    compared.into()
}

/// Whether all that is judged fits.
pub fn fits(compared: &[Compared]) -> bool {
    compared.iter().all(|row| row.fits != Some(false))
}

/// As a table; `second`: what the simulated figures are called.
pub fn table(compared: &[Compared], second: &'static str) -> Table {
    let columns = [
        column("figure", |row: &Compared| row.figure),
        column("measured", |row: &Compared| row.measured),
        column(second, |row: &Compared| row.simulated),
        column("interval", |row: &Compared| row.interval),
        column("error_pct", |row: &Compared| Some(row.error()? * 100.0)),
        column("fits", |row: &Compared| Some(if row.fits? { "yes" } else { "no" })),
    ];
    Table::of(&columns, compared)
}
