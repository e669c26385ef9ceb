//! Simulates the grid and writes how far each formula is off, as the tables of docs/MODEL.md; with `all`
//! every claim as CSV.
//!
//! `cargo run --release -p retrial-model --example grid`

#[path = "../tests/points/mod.rs"]
mod points;

use points::{Effort, Verdict, grid, judge};
use std::collections::BTreeMap;
use std::time::Instant;

const EFFORT: Effort = Effort { replications: 12, gets: 20_000.0, stride: 1 };

/// In the order of the grid.
fn groups<'a, K: Ord>(verdicts: &'a [Verdict], key: impl Fn(&'a Verdict) -> K) -> Vec<(K, Vec<&'a Verdict>)> {
    let mut places = BTreeMap::new();
    for (i, verdict) in verdicts.iter().enumerate() {
        places.entry(key(verdict)).or_insert_with(Vec::new).push(i);
    }
    let mut groups: Vec<(K, Vec<usize>)> = places.into_iter().collect();
    groups.sort_by_key(|(_, places)| places[0]);
    groups.into_iter().map(|(key, places)| (key, places.into_iter().map(|i| &verdicts[i]).collect())).collect()
}

fn percent(error: f64) -> String {
    let value = 100.0 * error;
    if value.abs() < 1.0 { format!("{value:+.2} %") } else { format!("{value:+.1} %") }
}

/// The claim that is off most, and the middle error; of those that the simulation resolves.
fn errors<'a>(of: &[&'a Verdict]) -> Option<(&'a Verdict, f64)> {
    let mut resolved: Vec<&Verdict> = of.iter().copied().filter(|verdict| verdict.is_resolved()).collect();
    resolved.sort_by(|a, b| a.error.abs().total_cmp(&b.error.abs()));
    Some((resolved.last()?, resolved[resolved.len() / 2].error.abs()))
}

fn table(verdicts: &[Verdict]) {
    println!("| formula | points | within 95 % | median error | worst error | at |\n|---|---|---|---|---|---|");
    for ((function, field, exact), of) in groups(verdicts, |v| (v.function, v.field, v.is_exact())) {
        let inside = of.iter().filter(|verdict| verdict.error.abs() <= verdict.interval).count();
        let share = format!("{inside} ({:.0} %)", 100.0 * inside as f64 / of.len() as f64);
        let share = if exact { share } else { String::new() };
        let Some((worst, middle)) = errors(&of) else { continue };
        let (points, middle, most, at) =
            (of.len(), format!("{:.2} %", 100.0 * middle), percent(worst.error), &worst.name);
        println!("| `{function}`: {field} | {points} | {share} | {middle} | {most} | {at} |");
    }
}

/// Worst errors by region, of the formulas that are not exact.
fn regions(verdicts: &[Verdict]) {
    let rough: Vec<Verdict> = verdicts.iter().filter(|verdict| !verdict.is_exact()).cloned().collect();
    for ((function, field, row), of) in groups(&rough, |v| (v.function, v.field, &v.row)) {
        let of: Vec<Verdict> = of.into_iter().cloned().collect();
        let cells: Vec<String> = groups(&of, |v| &v.column)
            .into_iter()
            .filter_map(|(column, of)| Some(format!("{column}: {}", percent(errors(&of)?.0.error))))
            .collect();
        println!("| `{function}`: {field} | {row} | {} |", cells.join(", "));
    }
}

fn main() {
    let start = Instant::now();
    let points = grid::points(EFFORT.gets);
    let verdicts = judge(&points, EFFORT);
    if std::env::args().nth(1).as_deref() == Some("all") {
        println!("function,field,point,found,expected,error,interval,allowed,sigmas");
        for v in &verdicts {
            let (found, expected, error, interval) = (v.found, v.expected, v.error, v.interval);
            let name = &v.name;
            println!(
                "{},{},\"{name}\",{found:.6},{expected:.6},{error:.5},{interval:.5},{:.4},{:.2}",
                v.function, v.field, v.allowed, v.sigmas
            );
        }
        return;
    }
    table(&verdicts);
    println!();
    regions(&verdicts);
    let exact: Vec<&Verdict> = verdicts.iter().filter(|verdict| verdict.is_exact()).collect();
    let inside = exact.iter().filter(|verdict| verdict.error.abs() <= verdict.interval).count();
    println!("\n{} points, {} claims in {:.0} s", points.len(), verdicts.len(), start.elapsed().as_secs_f64());
    println!("exact: {} claims, {inside} within their 95 % intervals", exact.len());
}
