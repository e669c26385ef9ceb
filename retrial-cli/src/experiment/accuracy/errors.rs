//! How far the simulator and theory are off, and how that compares with what is aimed at.

use super::super::load::Line;
use super::super::quantities::{How, Place, Quantity, Row};
use super::{Cell, LINES, OTHERS, QUANTITIES, rows};
use crate::output::{Table, column, short};
use retrial_bench::outcome::median;
use serde_json::Value;

/// Most that the simulator may be off, as a share.
const AIMS: [f64; QUANTITIES.len()] = [0.15, 0.25, 0.25, 0.25, 0.15];

/// Fewer yields, sleeps and parks say nothing of k, κ and sleeps per second.
const SLEEPS: u64 = 100;

/// Simulated and predicted against measured, of a cell; as shares.
pub(super) struct Errors {
    load: &'static str,
    line: &'static str,
    sessions: f64,
    simulated: [Option<f64>; QUANTITIES.len()],
    /// Throughput and k.
    predicted: [Option<f64>; 2],
    others: f64,
}

impl Errors {
    /// `None` where nothing was measured.
    pub(super) fn of(cell: &Cell) -> Option<Self> {
        let rows = rows(cell);
        let row = |how: How| rows.iter().find(|row| row.how == how);
        let (measured, simulated) = (row(How::Measured)?, row(How::Simulated)?);
        let sleeps: u64 = cell.measured.iter().map(|sample| sample.figures.sleeps()).sum();
        let error = |row: &Row, quantity: Quantity| {
            let is_known = matches!(quantity, Quantity::Throughput | Quantity::Cpus) || sleeps >= SLEEPS;
            let (found, seen) = (row.get(quantity)?.middle, measured.get(quantity)?.middle);
            (is_known && seen > 0.0).then(|| found / seen - 1.0)
        };
        let Place { load, line, x, .. } = cell.place;
        let mut errors = [None; QUANTITIES.len()];
        for (error_of, quantity) in errors.iter_mut().zip(QUANTITIES) {
            *error_of = error(simulated, *quantity);
        }
        let predicted = [Quantity::Throughput, Quantity::K].map(|quantity| error(row(How::Predicted)?, quantity));
        Some(Self { load, line, sessions: x, simulated: errors, predicted, others: cell.others })
    }

    /// The greatest error, in units of what is aimed at.
    fn worst(&self) -> f64 {
        let over = self.simulated.iter().zip(AIMS).map(|(error, aim)| error.map_or(0.0, |error| error.abs() / aim));
        over.fold(0.0, f64::max)
    }
}

fn percent(share: Option<f64>) -> Value {
    share.map(|share| share * 100.0).into()
}

pub(super) fn by_cell<'a>(errors: impl IntoIterator<Item = &'a Errors>) -> Table {
    let simulated = |i: usize| move |cell: &Errors| percent(cell.simulated[i]);
    let predicted = |i: usize| move |cell: &Errors| percent(cell.predicted[i]);
    let columns = [
        column("hold", |cell: &Errors| cell.load),
        column("scheme", |cell: &Errors| cell.line),
        column("sessions", |cell: &Errors| cell.sessions),
        column("gets_pct", simulated(0)),
        column("k_pct", simulated(1)),
        column("kappa_pct", simulated(2)),
        column("sleeps_pct", simulated(3)),
        column("cpus_pct", simulated(4)),
        column("theory_gets_pct", predicted(0)),
        column("theory_k_pct", predicted(1)),
        column("others_cpus", |cell: &Errors| cell.others),
    ];
    Table::of(&columns, errors)
}

pub(super) fn worst(errors: &[Errors]) -> Table {
    const CELLS: usize = 10;
    let mut sorted: Vec<&Errors> = errors.iter().collect();
    sorted.sort_by(|a, b| b.worst().total_cmp(&a.worst()));
    by_cell(sorted.into_iter().take(CELLS))
}

/// Median of the absolute errors, those within the aim, all.
fn judged<'a>(errors: impl IntoIterator<Item = &'a Errors>, i: usize) -> Option<(f64, usize, usize)> {
    let sizes: Vec<f64> = errors.into_iter().filter_map(|cell| Some(cell.simulated[i]?.abs())).collect();
    let within = sizes.iter().filter(|size| **size <= AIMS[i]).count();
    let all = sizes.len();
    Some((median(sizes)?, within, all))
}

pub(super) fn by_scheme(errors: &[Errors]) -> Table {
    let own = |line: &Line| {
        let name = line.name;
        errors.iter().filter(move |cell| cell.line == name)
    };
    let mut columns = vec![column("scheme", |line: &Line| line.name)];
    let names = [
        ("gets_pct", "gets_within"),
        ("k_pct", "k_within"),
        ("kappa_pct", "kappa_within"),
        ("sleeps_pct", "sleeps_within"),
        ("cpus_pct", "cpus_within"),
    ];
    for (i, (size, within)) in names.into_iter().enumerate() {
        columns.push(column(size, move |line: &Line| percent(judged(own(line), i).map(|(median, ..)| median))));
        columns.push(column(within, move |line: &Line| {
            judged(own(line), i).map(|(_, within, all)| format!("{within}/{all}"))
        }));
    }
    Table::of(&columns, LINES.iter().copied().filter(|line| own(line).next().is_some()))
}

/// A sentence for each figure, and one on who disturbed.
pub(super) fn summary(errors: &[Errors]) -> Vec<String> {
    let sentence = |i: usize| {
        let (median, within, all) = judged(errors, i)?;
        let (name, aim) = (QUANTITIES[i].name(), short(AIMS[i] * 100.0));
        Some(format!("{name}: median error {} %, {within} of {all} cells within {aim} %", short(median * 100.0)))
    };
    let disturbed = errors.iter().filter(|cell| cell.others > OTHERS).count();
    let note = (disturbed > 0).then(|| {
        format!(
            "others used more than {OTHERS} processors beside {disturbed} of {} cells: their figures are too low",
            errors.len()
        )
    });
    (0..QUANTITIES.len()).filter_map(sentence).chain(note).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::load::{Setup, Vary};
    use super::super::LOADS;
    use super::*;
    use retrial::views::{Counter, Figures};
    use retrial_model::Profile;

    fn sample(gets: u64, yields: u64, busy: u64) -> Profile {
        let mut figures = Figures::default();
        figures.counters[Counter::Yields as usize] = yields;
        figures.counters[Counter::Busy as usize] = busy;
        figures.counters[Counter::Misses as usize] = busy;
        let (gets, sessions, cpu_s) = (Some(gets), Some(2), Some(2.0));
        Profile { time_s: 1.0, gets, sessions, cpu_s, figures, ..Profile::default() }
    }

    fn cell(measured: Profile, simulated: Profile) -> Cell {
        let machine = super::super::super::machine::here(false);
        let setup = Setup::new(&LOADS[0], &LINES[0], Vary::Sessions, 2.0, &machine).unwrap();
        let workload = setup.workload(&machine, 0.01).unwrap();
        let place = Place { load: "1 us", line: "10g", x: 2.0, setup };
        let (measured, simulated) = (vec![measured], vec![simulated]);
        Cell { place, workload, measured, paces: Vec::new(), others: 0.0, simulated, theory: None }
    }

    #[test]
    fn errors_are_against_what_was_measured_and_judged_by_the_aims() {
        let near = Errors::of(&cell(sample(1000, 500, 1000), sample(1100, 600, 1000))).unwrap();
        let far = Errors::of(&cell(sample(1000, 500, 1000), sample(1300, 250, 1000))).unwrap();
        assert!((near.simulated[0].unwrap() - 0.1).abs() < 1e-9 && (near.simulated[1].unwrap() - 0.2).abs() < 1e-9);
        assert!((far.worst() - 2.0).abs() < 1e-9, "{}", far.worst());
        let (median, within, all) = judged([&near, &far], 0).unwrap();
        assert!((median - 0.2).abs() < 1e-9);
        assert_eq!((within, all), (1, 2));
    }

    #[test]
    fn too_few_sleeps_say_nothing_of_k() {
        let errors = Errors::of(&cell(sample(1000, SLEEPS - 1, 1000), sample(1000, 900, 1000))).unwrap();
        assert_eq!((errors.simulated[1], errors.simulated[0]), (None, Some(0.0)));
    }
}
