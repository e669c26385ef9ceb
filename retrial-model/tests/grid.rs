//! The formulas against the simulator, on every so many of the points that `examples/grid.rs` makes its table from.

#![allow(dead_code)] // what only the example uses

mod points;

use points::{Effort, Verdict, grid, judge};

/// Standard deviations that no claim may be off by.
const FAR: f64 = 4.5;

#[test]
fn formulas_meet_the_simulator_as_far_off_as_they_say() {
    let effort = Effort { replications: 8, gets: 3_000.0, stride: 7 };
    let mut points = grid::points(effort.gets);
    // Equal shares are turns of 0.02 S: a hundred times the events, for the example.
    points.retain(|point| point.row != "equal shares");
    let verdicts = judge(&points, effort);
    for verdict in &verdicts {
        let Verdict { function, field, name, found, expected, allowed, sigmas, .. } = verdict;
        assert!(
            *sigmas < FAR,
            "{function}, {field} of {name}: {expected}, simulated {found}, {sigmas:.1} σ beyond {allowed} of it"
        );
    }
    let exact: Vec<&Verdict> = verdicts.iter().filter(|verdict| verdict.is_exact()).collect();
    let outside = exact.iter().filter(|verdict| verdict.sigmas > 2.0).count();
    println!("{} claims, {} exact, {outside} of these outside 2 σ", verdicts.len(), exact.len());
    assert!(exact.len() > 100 && outside * 10 < exact.len(), "{outside} of {} outside 2 σ", exact.len());
}
