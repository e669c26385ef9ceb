//! What is predicted of a change, figure by figure.

use super::Present;
use crate::output::{Table, column};
use crate::predict::check::{fits, is_predicted, is_sure, range, yes};
use crate::predict::prediction::{Prediction, percent};
use retrial_model::Measure;
use retrial_model::sim::Estimates;

/// Figures of a prediction beside the present, but for those of which nothing is predicted.
pub(super) fn table(prediction: &Prediction, present: &Present) -> Table {
    let figures = [
        ("gets_per_s", Measure::Throughput, 1.0),
        ("k", Measure::SpinInefficiency, 1.0),
        ("sleeps_per_get", Measure::SleepsPerGet, 1.0),
        ("wait_us", Measure::Wait, 1e6),
        ("wait_p99_us", Measure::WaitP99, 1e6),
        ("cpus", Measure::BusyProcessors, 1.0),
    ];
    let scaled = |value: Option<f64>, unit: f64| value.map(|value| value * unit);
    let mut rows: Vec<Outlook> = figures
        .into_iter()
        .filter_map(|(figure, measure, unit)| {
            let is_told = is_predicted(&present.compared, prediction, measure);
            let range = range(&present.compared, prediction, measure).map(|ends| ends.map(|end| end * unit));
            let told = |value: Option<f64>| scaled(value.filter(|_| is_told), unit);
            (is_told || range.is_some()).then(|| Outlook {
                figure,
                present: scaled(present.told.mean(measure), unit),
                predicted: told(prediction.mean(measure)),
                interval: told(prediction.interval(measure)),
                range,
                is_sure: is_sure(&present.compared, prediction, measure),
            })
        })
        .collect();
    if fits(&present.compared)
        && let (Some(before), Some(after)) = (&present.told.fixed, &prediction.fixed)
    {
        let of = |of: &Estimates| of.get(Measure::Throughput).map(|estimate| estimate.mean);
        let (figure, present, predicted) = ("gets_per_s_fixed", of(before), of(after));
        rows.push(Outlook { figure, present, predicted, ..Outlook::default() });
    }
    let columns = [
        column("figure", |row: &Outlook| row.figure),
        column("present", |row: &Outlook| row.present),
        column("predicted", |row: &Outlook| row.predicted),
        column("interval", |row: &Outlook| row.interval),
        column("from", |row: &Outlook| Some(row.range?[0])),
        column("to", |row: &Outlook| Some(row.range?[1])),
        column("sure", |row: &Outlook| row.is_sure.map(yes)),
        column("change_pct", |row: &Outlook| percent(row.predicted, row.present)),
    ];
    Table::of(&columns, rows)
}

/// A figure of a prediction beside the present.
#[derive(Default)]
struct Outlook {
    figure: &'static str,
    present: Option<f64>,
    predicted: Option<f64>,
    interval: Option<f64>,
    /// Between what it will be in nine of ten cases.
    range: Option<[f64; 2]>,
    /// Whether what is predicted comes true within 10 %, or 15 % of waits.
    is_sure: Option<bool>,
}
