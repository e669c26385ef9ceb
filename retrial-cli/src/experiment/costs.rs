//! 000, table 5: what holding, spinning and yielding take.

use super::claims::{At, Check, Claim, of};
use super::lab::Lab;
use super::load::{Load, Setup, Think, Vary, line};
use super::machine::{EXADATA, HERE};
use super::quantities::{Found, How, Quantity, Row};
use super::{Experiment, Findings, Run};
use crate::chart::Scale;
use retrial::views::{Cost, Costs};
use retrial_bench::cell::Stopped;
use retrial_model::Measure;
use std::time::Duration;

pub const COSTS: Experiment = Experiment {
    name: "costs",
    source: "000, table 5",
    shows: "holding, spin and yield times",
    text: "Published: without contention, a spin of 255 polls, a yield, and the range of the holding times of two mutexes in X. Here: 255 polls and a yield as \
`retrial calibrate` measures them, and a mutex that one session gets and releases, with a section of a few increments, the check and the clock of the bench.",
    x: "number",
    x_scale: Scale::Linear,
    quantities: &[Quantity::Time],
    charts: &[(Quantity::Time, Scale::Decimal)],
    together: true,
    run: Run::Own(run),
    claims: &[
        Claim::new(
            "a sleep of 10 ms is thousands of times longer than a spin (the paper says ten thousand)",
            Check::AtLeast(
                of(Quantity::Time, &["sleep of 10 ms"], At::Last),
                2000.0,
                of(Quantity::Time, &["spin"], At::First),
            ),
        ),
        Claim::new(
            "a spin is longer than what is done under a mutex",
            Check::AtLeast(
                of(Quantity::Time, &["spin"], At::First),
                1.0,
                of(Quantity::Time, &["shortest section"], At::First),
            ),
        ),
    ],
    takes_s: [7, 1],
};

/// Rows of the paper's table in us; of what it measured on a T2.
const PUBLISHED: [(&str, &str, f64, f64); 8] = [
    (EXADATA.name, "spin", 1.8, 1.8),
    (EXADATA.name, "yield", 0.7, 0.7),
    (EXADATA.name, "library cache mutex", 0.3, 5.0),
    (EXADATA.name, "cursor pin mutex", 0.1, 2.0),
    ("Sparc T2", "spin", 8.7, 8.7),
    ("Sparc T2", "yield", 9.5, 9.5),
    ("Sparc T2", "library cache mutex", 2.5, 12.0),
    ("Sparc T2", "cursor pin mutex", 3.2, 11.0),
];

/// In this order on the x axis.
const LINES: [&str; 6] =
    ["spin", "yield", "library cache mutex", "cursor pin mutex", "shortest section", "sleep of 10 ms"];

fn row(line: &'static str, how: How, machine: &'static str, time: Found) -> Row {
    let x = LINES.iter().position(|known| *known == line).unwrap_or(0) as f64 + 1.0;
    Row { load: "", line, x, how, machine, values: vec![(Quantity::Time, time)] }
}

fn run(lab: &mut Lab) -> Result<Findings, Stopped> {
    let mut rows: Vec<Row> = PUBLISHED
        .iter()
        .map(|(machine, line, low, high)| row(line, How::Published, machine, Found::within(*low, *high)))
        .collect();
    if !lab.measures {
        return Ok(Findings { rows, ..Findings::default() });
    }
    let rounds = lab.rounds();
    let (mut costs, mut sections) = (Vec::new(), Vec::new());
    let load = Load::new(Duration::ZERO, Think::Time(Duration::ZERO));
    let alone = Setup::new(&load, &line("orbit"), Vary::Sessions, 1.0, &lab.here)?;
    for round in 1..=rounds {
        lab.show(1.0 / f64::from(rounds), format!("measured, round {round}/{rounds}: costs"));
        costs.push(Costs::measure(|_| {}));
        let seconds = lab.time(1.0);
        sections
            .extend(lab.measure(&alone, seconds)?.and_then(|profile| Some(1e6 / Measure::Throughput.of(&profile)?)));
    }
    let of = |cost: Cost, times: f64| {
        let values: Vec<f64> = costs.iter().filter_map(|costs| Some(costs.get(cost)? as f64 * times / 1e3)).collect();
        Found::of(&values)
    };
    let measured = [
        ("spin", of(Cost::Poll, 255.0)),
        ("yield", of(Cost::YieldAlone, 1.0)),
        ("shortest section", Found::of(&sections)),
        ("sleep of 10 ms", of(Cost::Sleep10ms, 1.0)),
    ];
    rows.extend(measured.into_iter().filter_map(|(line, time)| Some(row(line, How::Measured, HERE, time?))));
    Ok(Findings { rows, ..Findings::default() })
}
