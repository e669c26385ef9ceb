//! k against ρ by the paper's form factor, by that of requests, and simulated: the picture of docs/MODEL.md.

use super::refused;
use crate::chart::{Axis, Chart, Form, Legend, Point, Scale, Series};
use miette::Report;
use retrial_model::{CallError, Function};
use serde_json::{Map, Value, json};

/// Mean holding time and spin limit; sleeps of the scheme are 1000 of it.
const MEAN: f64 = 1e-5;
const LIMIT: f64 = 2e-5;

const FAMILIES: [(&str, &str); 3] = [
    ("always the same", "deterministic:mean=10us"),
    ("exponential", "exponential:mean=10us"),
    ("hyperexponential, c² = 5.1", "hyperexponential:probabilities=0.9/0.1,means=5us/55us"),
];

/// One chart for each holding time.
pub(super) fn charts() -> Result<Vec<Chart>, Report> {
    FAMILIES.iter().map(|(name, dist)| chart(name, dist).map_err(|error| refused(&error))).collect()
}

fn chart(name: &str, dist: &str) -> Result<Chart, CallError> {
    let series = |name: &str, form, colour, points: Vec<Point>| Series { name: name.to_owned(), form, colour, points };
    let rates = |steps: u32| (1..=steps).map(move |i| 0.95 * f64::from(i) / f64::from(steps));
    let curve = |function| {
        let k = |rho: f64| Ok((rho, call(function, dist, rho, &[("limit", LIMIT.into())])?["k"].as_f64()));
        let points: Result<Vec<_>, CallError> = rates(38).map(k).collect();
        points.map(|points| points.into_iter().filter_map(|(rho, k)| Some(Point::from((rho, k?)))).collect())
    };
    let simulated = rates(19).step_by(2).map(|rho| simulated(dist, rho)).collect::<Result<Vec<_>, _>>()?;
    Ok(Chart {
        title: format!("holding time {name}"),
        x: Axis::new("utilization ρ", Scale::Linear),
        y: Axis::new("failed spins by misses, k", Scale::Linear),
        series: vec![
            series("mean over intervals (paper)", Form::Dashes, 0, curve("spin-paper")?),
            series("mean over requests", Form::Line, 1, curve("spin-open")?),
            series("simulated, 95 %", Form::Points, 2, simulated.into_iter().flatten().collect()),
        ],
        legend: Legend::Beside,
    })
}

fn simulated(dist: &str, rho: f64) -> Result<Option<Point>, CallError> {
    let polls = (LIMIT * 1e9).round();
    let found = call(
        "simulate",
        dist,
        rho,
        &[
            ("scheme", "patch6904068".into()),
            ("set", format!("mutex_spin_count={polls},on_lost_race=sleep").into()),
            ("machine", "ideal".into()),
            ("processors", 0.into()),
            ("sleeps", "exponential".into()),
            ("warm_up", "2s".into()),
            ("duration", "2s".into()),
            ("replications", 8.into()),
        ],
    )?;
    let of = |name: &str| found[name].as_f64();
    let point = |y: f64, half: f64| Point { x: rho, y, interval: Some((y - half, y + half)) };
    Ok(of("spin_inefficiency").zip(of("spin_inefficiency_interval")).map(|(y, half)| point(y, half)))
}

fn call(function: &str, dist: &str, rho: f64, others: &[(&str, Value)]) -> Result<Map<String, Value>, CallError> {
    let mut parameters = Map::from_iter([("dist".into(), dist.into()), ("rate".into(), json!(rho / MEAN))]);
    parameters.extend(others.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    Function::named(function)?.call(&parameters)
}
