//! Whether the model fits: what was measured beside what is simulated.

use super::measured::Measured;
use super::prediction::Prediction;
use crate::output::Table;
use retrial_model::sim::Measure;
use serde_json::Value;

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
    pub simulated: f64,
    pub interval: Option<f64>,
    /// Whether it fits; `None` where that is not judged.
    pub fits: Option<bool>,
}

impl Compared {
    /// Simulated against measured, as a share.
    pub fn error(&self) -> Option<f64> {
        self.measured.filter(|measured| *measured > 0.0).map(|measured| self.simulated / measured - 1.0)
    }
}

/// The figures side by side. Judged are throughput and, where enough gets found the mutex busy, k and κ.
pub fn compare(measured: &Measured, prediction: &Prediction) -> Vec<Compared> {
    let judged = |seen: f64, simulated: f64, noise: f64| {
        let difference = (simulated - seen).abs();
        difference <= TOLERANCE * seen || difference <= noise
    };
    let enough = measured.count(retrial::views::Counter::Busy) >= TRIES;
    let throughput = prediction.mean(Measure::Throughput);
    let k = prediction.mean(Measure::SpinInefficiency);
    let share = |seen: Option<f64>, simulated: f64| seen.filter(|_| enough).map(|seen| judged(seen, simulated, NOISE));
    let interval = |measure: Measure, unit: f64| Some(prediction.interval(measure) * unit);
    vec![
        Compared {
            figure: "gets_per_s",
            measured: Some(measured.gets_per_s()),
            simulated: throughput,
            interval: interval(Measure::Throughput, 1.0),
            fits: Some(judged(measured.gets_per_s(), throughput, 0.0)),
        },
        Compared {
            figure: "k",
            measured: measured.spin_inefficiency(),
            simulated: k,
            interval: interval(Measure::SpinInefficiency, 1.0),
            fits: share(measured.spin_inefficiency(), k),
        },
        Compared {
            figure: "kappa",
            measured: measured.sleep_ratio(),
            simulated: prediction.sleep_ratio(),
            interval: None,
            fits: share(measured.sleep_ratio(), prediction.sleep_ratio()),
        },
        Compared {
            figure: "utilization",
            measured: Some(measured.utilization()),
            simulated: prediction.mean(Measure::Utilization),
            interval: interval(Measure::Utilization, 1.0),
            fits: None,
        },
        Compared {
            figure: "wait_us",
            measured: Some(measured.wait_s() * 1e6),
            simulated: prediction.mean(Measure::Wait) * 1e6,
            interval: interval(Measure::Wait, 1e6),
            fits: None,
        },
        Compared {
            figure: "cpus",
            measured: measured.cpus(),
            simulated: prediction.mean(Measure::BusyProcessors),
            interval: interval(Measure::BusyProcessors, 1.0),
            fits: None,
        },
    ]
}

/// Whether all that is judged fits.
pub fn fits(compared: &[Compared]) -> bool {
    compared.iter().all(|row| row.fits != Some(false))
}

/// As a table; `second`: what the simulated figures are called.
pub fn table(compared: &[Compared], second: &'static str) -> Table {
    let mut table = Table::new(&["figure", "measured", second, "interval", "error_pct", "fits"]);
    for row in compared {
        table.row(vec![
            row.figure.into(),
            row.measured.into(),
            row.simulated.into(),
            row.interval.into(),
            row.error().map(|error| error * 100.0).into(),
            row.fits.map_or(Value::Null, |fits| if fits { "yes" } else { "no" }.into()),
        ]);
    }
    table
}
