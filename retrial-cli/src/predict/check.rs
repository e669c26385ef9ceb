//! Whether the model fits: what was measured beside what is simulated. `advise` and `what-if` say the same.

use super::prediction::Prediction;
use super::recording::Holds;
use crate::output::{Table, column, short};
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
    pub measure: Measure,
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
/// judged. Waits are judged for themselves: where they alone are off, nothing is predicted of them.
const FIGURES: [(&str, Measure, f64, Option<f64>); 6] = [
    ("gets_per_s", Measure::Throughput, 1.0, Some(0.0)),
    ("k", Measure::SpinInefficiency, 1.0, Some(NOISE)),
    ("kappa", Measure::SleepRatio, 1.0, Some(NOISE)),
    ("utilization", Measure::Utilization, 1.0, Some(NOISE)),
    ("wait_us", Measure::Wait, 1e6, Some(0.0)),
    ("cpus", Measure::BusyProcessors, 1.0, None),
];

/// The figures side by side. Judged are throughput, utilization and, where enough gets found the mutex busy, k,
/// κ and waits. What differs by less than the simulation is unsure of is not refuted.
pub fn compare(measured: &Profile, prediction: &Prediction) -> Vec<Compared> {
    let enough = measured.count(retrial::views::Counter::Busy) >= TRIES;
    let compared = FIGURES.map(|(figure, measure, unit, noise)| {
        let (seen, simulated) = (measure.of(measured), prediction.mean(measure));
        let judged =
            seen.zip(noise).filter(|_| enough || matches!(measure, Measure::Throughput | Measure::Utilization));
        let fits = judged.map(|(seen, noise)| {
            let difference = (simulated.unwrap_or(0.0) - seen).abs();
            let unsure = prediction.interval(measure).unwrap_or(0.0);
            difference <= TOLERANCE * seen || difference <= noise || difference <= unsure
        });
        let scaled = |value: Option<f64>| value.map(|value| value * unit);
        let interval = scaled(prediction.interval(measure));
        Compared { figure, measure, measured: scaled(seen), simulated: scaled(simulated), interval, fits }
    });
    compared.into()
}

/// Whether all that is judged fits. Waits and sleeps per miss are judged for themselves: a few long waits make
/// most of them.
pub fn fits(compared: &[Compared]) -> bool {
    compared.iter().all(|row| row.fits != Some(false) || matches!(row.measure, Measure::Wait | Measure::SleepRatio))
}

/// Most that a wait may be unsure, as [`unsure`] has it, of which a number is told: the accuracy that waits are to
/// have. 21 of 27 within it came true within 15 %, and 33 of 76 beyond it (PREDICTION.md, Loads drawn at random).
const SURE_OF_WAITS: f64 = 0.15;

/// Whether something is predicted of a measure: the simulated present has it as it was measured, and of waits,
/// the simulation of the change is sure.
pub fn is_predicted(compared: &[Compared], changed: &Prediction, measure: Measure) -> bool {
    if !fits(compared) {
        return false;
    }
    if matches!(measure, Measure::Wait | Measure::WaitP99 | Measure::WaitMax) {
        // Where nobody waited there is nothing to be off.
        let is_judged = row(compared, Measure::Wait).is_some_and(|row| row.fits.is_some());
        return !is_judged || unsure(compared, changed, Measure::Wait).is_some_and(|unsure| unsure <= SURE_OF_WAITS);
    }
    row(compared, measure).is_none_or(|row| row.fits != Some(false))
}

/// What was compared of a measure.
fn row(compared: &[Compared], measure: Measure) -> Option<&Compared> {
    compared.iter().find(|row| row.measure == measure)
}

/// The value, where it is above 0.
fn positive(value: Option<f64>) -> Option<f64> {
    value.filter(|value| *value > 0.0)
}

/// The logarithm of a ratio, without its sign.
fn apart(a: f64, b: f64) -> f64 {
    (a / b).ln().abs()
}

/// How unsure the simulation of a change is of a measure: how far the simulated present is off, what holding times
/// that are all the same would change, and the replications' interval, as logarithms of ratios. `None` where
/// one of these is not known.
fn unsure(compared: &[Compared], changed: &Prediction, measure: Measure) -> Option<f64> {
    let value = positive(changed.mean(measure))?;
    let row = row(compared, measure)?;
    let fixed = match &changed.fixed {
        Some(fixed) => apart(positive(fixed.get(measure).map(|estimate| estimate.mean))?, value),
        None => 0.0,
    };
    let present = apart(positive(row.simulated)?, positive(row.measured)?);
    Some(present + fixed + changed.interval(measure).unwrap_or(0.0) / value)
}

/// Between what the gets per second or the waits of a change will be in nine of ten cases, where the model fits the
/// present.
///
/// A prediction is off by more the more [unsure](unsure) it is, and the larger the change. The sum of that, as
/// logarithms of ratios, with half of the change's and 2 % held for the gets of 91 % of the loads drawn at random that
/// it was chosen with, and of 94 % of others; with 10 % for the waits of 91 % and 94 % (PREDICTION.md, Loads
/// drawn at random).
pub fn range(compared: &[Compared], changed: &Prediction, measure: Measure) -> Option<[f64; 2]> {
    const OF_CHANGE: f64 = 0.5;
    let always = if measure == Measure::Throughput { 0.02 } else { 0.1 };
    let value = positive(changed.mean(measure))?;
    if !fits(compared) {
        return None;
    }
    let row = row(compared, measure).filter(|row| row.fits != Some(false))?;
    let (.., unit, _) = FIGURES.iter().find(|(_, of, ..)| *of == measure)?;
    let change = apart(value * unit, positive(row.simulated)?);
    let width = always + unsure(compared, changed, measure)? + OF_CHANGE * change;
    Some([value * (-width).exp(), value * width.exp()])
}

/// The verdict in words; `where_off`: what becomes of the predictions where the model does not fit.
pub fn verdict(compared: &[Compared], holds: &Holds, where_off: &str) -> String {
    let holds = match holds {
        Holds::Given => "as given".to_owned(),
        Holds::Timed(count) => format!("as {count} of them timed from outside"),
        Holds::Mean => "exponential: no more than their mean is known".to_owned(),
    };
    let off: Vec<&str> = compared.iter().filter(|row| row.fits == Some(false)).map(|row| row.figure).collect();
    let (off, tolerance) = (off.join(", "), short(TOLERANCE * 100.0));
    let sure =
        "in nine of ten cases the gets of a change come between `from` and `to`, its waits between `w_from` and `w_to`";
    if off.is_empty() {
        format!("the model fits the present within {tolerance} %; {sure}; holding times {holds}")
    } else if fits(compared) {
        format!(
            "the model fits the present within {tolerance} %, but for {off}, of which nothing is predicted; {sure}; \
             holding times {holds}"
        )
    } else {
        format!(
            "the model does not fit the present: {off} off by more than {tolerance} %; holding times {holds}. {where_off}"
        )
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::prediction::predict;
    use retrial_model::Distribution;
    use retrial_model::sim::{Arrivals, Workload, run};

    fn sessions(sessions: u32) -> Workload {
        let times = Distribution::exponential(10e-6).unwrap();
        Workload::new(Arrivals::Closed { sessions, think: times.clone(), on_processor: true }, times, 0.1)
    }

    #[test]
    fn a_prediction_is_as_sure_as_the_present_and_the_change_allow() {
        let predicted = |workload: &Workload| predict(workload, &(1..4), &Holds::Given).unwrap();
        let (one, two) = (predicted(&sessions(1)), predicted(&sessions(2)));
        let mut measured = run(&sessions(1), 1).unwrap().profile;
        let width = |measured: &Profile, changed: &Prediction| {
            let (gets, [from, to]) =
                (changed.mean(Measure::Throughput)?, range(&compare(measured, &one), changed, Measure::Throughput)?);
            assert!((gets / from - to / gets).abs() < 1e-9 && from < gets, "{from} {gets} {to}");
            Some((to / gets).ln())
        };
        let (same, change) = (width(&measured, &one).unwrap(), width(&measured, &two).unwrap());
        assert!((0.02..0.15).contains(&same), "{same}");
        // From 50,000 to 80,000 gets per second, less what steps cost: 0.23.
        assert!((0.1..0.35).contains(&(change - same)), "{change}");
        measured.gets = measured.gets.map(|gets| gets * 6 / 5);
        let off = width(&measured, &one).unwrap();
        assert!((off - same - 1.2_f64.ln()).abs() < 0.05, "{off}");
        measured.gets = measured.gets.map(|gets| gets * 2);
        assert_eq!(width(&measured, &one), None, "the model does not fit");
    }

    #[test]
    fn nothing_is_said_of_a_change_where_one_figure_of_the_present_is_off() {
        let measured = run(&sessions(4), 9).unwrap().profile;
        let simulated = predict(&sessions(4), &(1..4), &Holds::Given).unwrap();
        let mut compared = compare(&measured, &simulated);
        let said = |compared: &[Compared]| {
            [Measure::Throughput, Measure::Wait].map(|measure| range(compared, &simulated, measure).is_some())
        };
        assert_eq!(said(&compared), [true; 2]);
        compared.iter_mut().filter(|row| row.measure == Measure::Utilization).for_each(|row| row.fits = Some(false));
        assert_eq!(said(&compared), [false; 2]);
    }

    #[test]
    fn waits_are_predicted_only_where_those_of_the_present_come_true_and_the_simulation_is_sure() {
        let (present, measured) = (sessions(4), run(&sessions(4), 9).unwrap().profile);
        let of = |workload: &Workload| predict(workload, &(1..4), &Holds::Given).unwrap();
        let (simulated, changed) = (of(&present), of(&sessions(6)));
        let predicts = |measured: &Profile, changed: &Prediction| {
            let compared = compare(measured, &simulated);
            [Measure::Throughput, Measure::Wait, Measure::WaitP99]
                .map(|measure| is_predicted(&compared, changed, measure))
        };
        assert_eq!(predicts(&measured, &changed), [true; 3]);
        let off = Profile { waited_s: measured.waited_s.map(|waited| waited * 1.4), ..measured.clone() };
        assert_eq!(predicts(&off, &changed), [true, false, false]);
        let fixed = Some(of(&sessions(2)).estimates);
        assert_eq!(predicts(&measured, &Prediction { fixed, ..changed.clone() }), [true, false, false]);
        let few = Profile { gets: measured.gets.map(|gets| gets * 2), ..measured };
        assert_eq!(predicts(&few, &changed), [false; 3], "the model does not fit");
    }
}
