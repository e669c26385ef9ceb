//! What a source says of its figure, as data with a check, and whether the figures found say so.

use super::lab::ANY;
use super::machine::Machine;
use super::quantities::{How, Quantity, Row};
use crate::chart::Scale;
use crate::output::short;

/// A statement of the source.
pub struct Claim {
    /// In our words.
    pub says: &'static str,
    pub check: Check,
    /// The load that it is about; empty: all of them.
    pub load: &'static str,
}

impl Claim {
    pub const fn new(says: &'static str, check: Check) -> Self {
        Self { says, check, load: "" }
    }

    pub const fn of(says: &'static str, load: &'static str, check: Check) -> Self {
        Self { says, check, load }
    }
}

/// When the figures agree.
pub enum Check {
    /// The first is at least so many times the second. Not judged where both are 0.
    AtLeast(Term, f64, Term),
    /// It is the number, to this share of it.
    Near(Term, f64, f64),
    /// It is at most the number.
    AtMost(Term, f64),
    /// They are the same, to this share of the second.
    Same(Term, Term, f64),
    /// The line is the curve at every point, to this share of it.
    Follows(Quantity, &'static str, &'static str, f64),
    /// The logarithm falls along a straight line: its correlation with x is at most minus this.
    FallsExponentially(Quantity, &'static str, f64),
    /// Twice the x squares the value, between all points where x is doubled: the power is 2 to this share of
    /// it.
    Squares(Quantity, &'static str, f64),
    /// From left to right the first line is above the second by 2 %, and then below by as much.
    Cross(Quantity, &'static str, &'static str),
}

/// A figure of the best, or of the worst, of some lines.
pub struct Term {
    pub quantity: Quantity,
    pub lines: &'static [&'static str],
    pub pick: Pick,
    pub at: At,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    Most,
    Least,
}

/// Where on the x axis; the nearest point, if one is within [`NEAR`].
#[derive(Clone, Copy)]
pub enum At {
    X(f64),
    /// This times the number of processors, but 2 at least: one session alone meets no other.
    Processors(f64),
    First,
    Last,
    /// Where the figure is greatest.
    Peak,
}

/// A point this many times to the left or right still stands for the one that is meant.
const NEAR: f64 = 1.6;

/// A figure of one line.
pub const fn of(quantity: Quantity, line: &'static [&'static str; 1], at: At) -> Term {
    Term { quantity, lines: line, pick: Pick::Most, at }
}

/// The greatest figure of several.
pub const fn most(quantity: Quantity, lines: &'static [&'static str], at: At) -> Term {
    Term { quantity, lines, pick: Pick::Most, at }
}

/// The least figure of several.
pub const fn least(quantity: Quantity, lines: &'static [&'static str], at: At) -> Term {
    Term { quantity, lines, pick: Pick::Least, at }
}

/// Whether figures found in one way on one machine agree with a claim.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub says: &'static str,
    pub load: &'static str,
    pub how: How,
    pub machine: &'static str,
    pub agrees: bool,
    /// The figures that decided.
    pub found: String,
}

impl Verdict {
    /// A line for people.
    pub fn line(&self) -> String {
        let verdict = if self.agrees { "agrees" } else { "DOES NOT AGREE" };
        let load = if self.load.is_empty() { String::new() } else { format!("{}: ", self.load) };
        let machine = if self.machine == ANY { String::new() } else { format!(" ({})", self.machine) };
        format!("{verdict}, {}{machine}: {load}{} [{}]", self.how.name(), self.says, self.found)
    }
}

/// Every claim against every way and machine that has the figures for it. Figures are at an x of this scale.
pub fn verdicts(claims: &'static [Claim], rows: &[Row], machines: &[&Machine], scale: Scale) -> Vec<Verdict> {
    let mut groups: Vec<(&'static str, How, &'static str)> = Vec::new();
    for row in rows.iter().filter(|row| row.how != How::Published) {
        let group = (row.load, row.how, row.machine);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let judge = |claim: &'static Claim, (load, how, machine): (&'static str, How, &'static str)| {
        let is_in = |row: &&Row| (row.load, row.how, row.machine) == (load, how, machine);
        let processors = machines.iter().find(|known| known.name == machine).map(|known| known.processors);
        let curves = rows.iter().filter(|row| row.machine == ANY).collect();
        let figures = Group { rows: rows.iter().filter(is_in).collect(), curves, processors, scale };
        let (agrees, found) = claim.check.judge(&figures)?;
        Some(Verdict { says: claim.says, load, how, machine, agrees, found })
    };
    let about = |claim: &Claim, load: &str| claim.load.is_empty() || claim.load == load;
    let pairs = claims.iter().flat_map(|claim| groups.iter().map(move |group| (claim, *group)));
    pairs.filter(|(claim, group)| about(claim, group.0)).filter_map(|(claim, group)| judge(claim, group)).collect()
}

/// Figures found in one way on one machine, and the curves beside them.
struct Group<'a> {
    rows: Vec<&'a Row>,
    curves: Vec<&'a Row>,
    processors: Option<u32>,
    scale: Scale,
}

impl Group<'_> {
    fn points(&self, line: &str, quantity: Quantity) -> Vec<(f64, f64)> {
        points_of(&self.rows, line, quantity)
    }
}

/// The points of a line by rising x.
fn points_of(rows: &[&Row], line: &str, quantity: Quantity) -> Vec<(f64, f64)> {
    let own = rows.iter().filter(|row| row.line == line);
    let mut points: Vec<(f64, f64)> = own.filter_map(|row| Some((row.x, row.get(quantity)?.middle))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// The value at x on the straight line between its neighbours; nothing outside.
fn between(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let pair = points.windows(2).find(|pair| pair[0].0 <= x && x <= pair[1].0)?;
    let ((x1, y1), (x2, y2)) = (pair[0], pair[1]);
    Some(if x1 < x2 { y1 + (y2 - y1) * (x - x1) / (x2 - x1) } else { y1 })
}

impl Term {
    /// Its value and the line and x that have it.
    fn value(&self, group: &Group) -> Option<(f64, String)> {
        let mut chosen: Option<(f64, String)> = None;
        for line in self.lines {
            let points = group.points(line, self.quantity);
            let distance = |(other, _): &(f64, f64), x: f64| (other / x).ln().abs();
            let near = |x: f64| {
                let nearest = points.iter().min_by(|a, b| distance(a, x).total_cmp(&distance(b, x)));
                nearest.filter(|point| distance(point, x) < NEAR.ln())
            };
            let point = match self.at {
                At::X(x) => near(x),
                At::Processors(share) => near((share * f64::from(group.processors?)).max(2.0)),
                At::First => points.first(),
                At::Last => points.last(),
                At::Peak => points.iter().max_by(|a, b| a.1.total_cmp(&b.1)),
            };
            let (x, y) = *point?;
            let is_better =
                chosen.as_ref().is_none_or(|(best, _)| if self.pick == Pick::Most { y > *best } else { y < *best });
            if is_better {
                chosen = Some((y, format!("{line} at {}: {}", place(group.scale, x), short(y))));
            }
        }
        chosen
    }
}

impl Check {
    /// Whether the figures agree, and which they are; nothing where they are not there.
    fn judge(&self, group: &Group) -> Option<(bool, String)> {
        match self {
            Self::AtLeast(greater, factor, smaller) => {
                let ((greater, first), (smaller, second)) = (greater.value(group)?, smaller.value(group)?);
                // Nothing is any number of times nothing.
                (greater > 0.0 || smaller > 0.0).then_some(())?;
                Some((greater >= factor * smaller, format!("{first}; {second}")))
            }
            Self::Near(term, expected, share) => {
                let (value, found) = term.value(group)?;
                let expects = format!("{found}; expected {} ± {:.0} %", short(*expected), share * 100.0);
                Some(((value - expected).abs() <= share * expected.abs(), expects))
            }
            Self::Same(one, other, share) => {
                let ((one, first), (other, second)) = (one.value(group)?, other.value(group)?);
                Some(((one - other).abs() <= share * other.abs(), format!("{first}; {second}")))
            }
            Self::AtMost(term, most) => {
                let (value, found) = term.value(group)?;
                Some((value <= *most, format!("{found}; expected at most {}", short(*most))))
            }
            Self::Follows(quantity, line, curve, share) => {
                let curve_points = points_of(&group.curves, curve, *quantity);
                let error = |(x, y): &(f64, f64)| Some((*x, y / between(&curve_points, *x)? - 1.0));
                let errors: Vec<(f64, f64)> = group.points(line, *quantity).iter().filter_map(error).collect();
                let text = |(x, error): &(f64, f64)| format!("{:+.0} % at {}", error * 100.0, number(*x));
                let found: Vec<String> = errors.iter().map(text).collect();
                let follows = errors.iter().all(|(_, error)| error.abs() <= *share);
                (!errors.is_empty()).then(|| (follows, format!("{line} against {curve}: {}", found.join(", "))))
            }
            Self::FallsExponentially(quantity, line, least) => {
                let points = group.points(line, *quantity);
                let logs: Vec<(f64, f64)> =
                    points.iter().filter(|(_, y)| *y > 0.0).map(|(x, y)| (*x, y.ln())).collect();
                let r = (logs.len() > 2).then(|| correlation(&logs))?;
                let ends = format!("{} to {}", short(points.first()?.1), short(points.last()?.1));
                Some((r <= -least, format!("{line}: {ends}, correlation of ln y with x {r:.3}")))
            }
            Self::Squares(quantity, line, share) => {
                let points = group.points(line, *quantity);
                let twice = |x: f64| points.iter().find(|(other, _)| (other / x / 2.0 - 1.0).abs() < 1e-6);
                let pairs: Vec<_> = points.iter().filter_map(|(x, y)| Some((*x, *y, twice(*x)?.1))).collect();
                // The power that twice the x raises it to.
                let power = |y: f64, other: f64| other.ln() / y.ln();
                let is_near = |(_, y, other): &(f64, f64, f64)| (power(*y, *other) / 2.0 - 1.0).abs() <= *share;
                let text = |(x, y, other): &(f64, f64, f64)| {
                    let (x, twice, raised) = (number(*x), number(2.0 * x), short(power(*y, *other)));
                    format!("{} at {x}, {} at {twice}: power {raised}", short(*y), short(*other))
                };
                let found: Vec<String> = pairs.iter().map(text).collect();
                (!pairs.is_empty()).then(|| (pairs.iter().all(is_near), format!("{line}: {}", found.join("; "))))
            }
            Self::Cross(quantity, first, second) => {
                let (first_points, second_points) = (group.points(first, *quantity), group.points(second, *quantity));
                let ratio = |(x, y): &(f64, f64)| {
                    Some((*x, y / second_points.iter().find(|(other, _)| other.total_cmp(x).is_eq())?.1))
                };
                let ratios: Vec<(f64, f64)> = first_points.iter().filter_map(ratio).collect();
                let above = ratios.iter().position(|(_, ratio)| *ratio > 1.02);
                let below = above.and_then(|from| ratios[from..].iter().find(|(_, ratio)| *ratio < 0.98));
                let found: Vec<String> =
                    ratios.iter().map(|(x, ratio)| format!("{} at {}", short(*ratio), number(*x))).collect();
                (!ratios.is_empty()).then(|| (below.is_some(), format!("{first}/{second}: {}", found.join(", "))))
            }
        }
    }
}

/// An x by its name, or as a number.
pub fn place(scale: Scale, x: f64) -> String {
    scale.name(x).map_or_else(|| number(x), str::to_owned)
}

/// Whole numbers without a fraction.
pub fn number(x: f64) -> String {
    if x.fract() == 0.0 { format!("{x:.0}") } else { short(x) }
}

/// Pearson's.
fn correlation(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x_mean, y_mean) = (mean(|p| p.0), mean(|p| p.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, y)| of(x - x_mean, y - y_mean)).sum::<f64>();
    sum(&|x, y| x * y) / (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::items_after_statements)] // each claim is beside its figures

    use super::*;
    use crate::experiment::machine::HERE;

    fn row(line: &'static str, x: f64, y: f64) -> Row {
        let values = vec![(Quantity::K, y.into())];
        Row { load: "", line, x, how: How::Simulated, machine: HERE, values }
    }

    fn rows(line: &'static str, points: &[(f64, f64)]) -> Vec<Row> {
        points.iter().map(|(x, y)| row(line, *x, *y)).collect()
    }

    fn here() -> Machine {
        Machine { name: HERE, processors: 8, ..crate::experiment::machine::EXADATA }
    }

    fn judged(claims: &'static [Claim], rows: &[Row]) -> Vec<bool> {
        verdicts(claims, rows, &[&here()], Scale::Linear).iter().map(|verdict| verdict.agrees).collect()
    }

    #[test]
    fn a_claim_that_does_not_hold_is_said_so() {
        const CLAIMS: &[Claim] = &[Claim::new(
            "a is twice b in the middle",
            Check::AtLeast(of(Quantity::K, &["a"], At::Processors(0.5)), 2.0, most(Quantity::K, &["b", "c"], At::Last)),
        )];
        let others = [rows("b", &[(1.0, 9.0), (16.0, 2.0)]), rows("c", &[(1.0, 1.0), (16.0, 1.0)])].concat();
        let good = [rows("a", &[(1.0, 1.0), (4.0, 4.0), (16.0, 1.0)]), others.clone()].concat();
        let broken = [rows("a", &[(1.0, 9.0), (4.0, 3.9), (16.0, 9.0)]), others].concat();
        assert_eq!(judged(CLAIMS, &good), [true]);
        let verdicts = verdicts(CLAIMS, &broken, &[&here()], Scale::Linear);
        assert!(!verdicts[0].agrees);
        let line = verdicts[0].line();
        for part in ["DOES NOT AGREE", "simulated (here)", "a is twice b", "a at 4: 3.90", "b at 16: 2.00"] {
            assert!(line.contains(part), "`{part}` is not in {line}");
        }
    }

    #[test]
    fn a_claim_without_figures_is_not_judged() {
        const CLAIMS: &[Claim] = &[Claim::new(
            "",
            Check::AtLeast(of(Quantity::K, &["a"], At::First), 1.0, of(Quantity::K, &["b"], At::First)),
        )];
        assert!(judged(CLAIMS, &rows("a", &[(1.0, 1.0)])).is_empty());
        const FAR: &[Claim] = &[Claim::new("", Check::AtMost(of(Quantity::K, &["a"], At::X(2.0)), 9.0))];
        assert!(judged(FAR, &rows("a", &[(1.0, 1.0), (4.0, 1.0)])).is_empty());
        assert_eq!(judged(FAR, &rows("a", &[(1.5, 1.0)])), [true]);
        let published = Row { how: How::Published, ..row("b", 1.0, 1.0) };
        assert!(judged(CLAIMS, &[row("a", 1.0, 1.0), published]).is_empty());
    }

    #[test]
    fn nothing_is_not_ten_times_nothing() {
        const CLAIMS: &[Claim] = &[Claim::new(
            "",
            Check::AtLeast(of(Quantity::K, &["a"], At::First), 10.0, of(Quantity::K, &["a"], At::Last)),
        )];
        assert!(judged(CLAIMS, &rows("a", &[(1.0, 0.0), (2.0, 0.0)])).is_empty());
        assert_eq!(judged(CLAIMS, &rows("a", &[(1.0, 1.0), (2.0, 0.0)])), [true]);
        assert_eq!(judged(CLAIMS, &rows("a", &[(1.0, 0.0), (2.0, 1.0)])), [false]);
    }

    #[test]
    fn a_place_with_a_name_is_called_by_it() {
        const CLAIMS: &[Claim] = &[Claim::new("", Check::AtMost(of(Quantity::K, &["a"], At::Last), 2.0))];
        let scale = Scale::Names(&["before", "after"]);
        let verdicts = verdicts(CLAIMS, &rows("a", &[(1.0, 1.0), (2.0, 1.5)]), &[&here()], scale);
        assert!(verdicts[0].found.starts_with("a at after: 1.50"), "{}", verdicts[0].found);
    }

    #[test]
    fn a_claim_about_a_load_is_about_no_other() {
        const CLAIMS: &[Claim] = &[Claim::of("", "heavy", Check::Near(of(Quantity::K, &["a"], At::First), 1.0, 0.1))];
        let light = row("a", 1.0, 1.0);
        let heavy = Row { load: "heavy", ..row("a", 1.0, 1.2) };
        assert_eq!(judged(CLAIMS, &[light, heavy]), [false]);
    }

    #[test]
    fn every_check_says_yes_and_no() {
        const SQUARES: &[Claim] = &[Claim::new("", Check::Squares(Quantity::K, "a", 0.1))];
        assert_eq!(judged(SQUARES, &rows("a", &[(1.0, 0.5), (2.0, 0.26), (4.0, 0.065)])), [true]);
        assert_eq!(judged(SQUARES, &rows("a", &[(1.0, 0.5), (2.0, 0.26), (4.0, 0.09)])), [false]);
        const FALLS: &[Claim] = &[Claim::new("", Check::FallsExponentially(Quantity::K, "a", 0.98))];
        assert_eq!(judged(FALLS, &rows("a", &[(1.0, 0.1), (2.0, 0.01), (3.0, 0.001)])), [true]);
        assert_eq!(judged(FALLS, &rows("a", &[(1.0, 0.1), (2.0, 0.01), (3.0, 0.01), (4.0, 0.01)])), [false]);
        assert_eq!(judged(FALLS, &rows("a", &[(1.0, 0.1), (2.0, 1.0), (3.0, 10.0)])), [false]);
        const CROSS: &[Claim] = &[Claim::new("", Check::Cross(Quantity::K, "a", "b"))];
        let b = rows("b", &[(1.0, 1.0), (2.0, 1.0), (4.0, 1.0)]);
        assert_eq!(judged(CROSS, &[rows("a", &[(1.0, 1.0), (2.0, 1.5), (4.0, 0.5)]), b.clone()].concat()), [true]);
        assert_eq!(judged(CROSS, &[rows("a", &[(1.0, 0.5), (2.0, 1.5), (4.0, 1.0)]), b].concat()), [false]);
        const NEAR: &[Claim] = &[Claim::new("", Check::Near(of(Quantity::K, &["a"], At::Peak), 2.0, 0.1))];
        assert_eq!(judged(NEAR, &rows("a", &[(1.0, 2.1), (2.0, 1.0)])), [true]);
        assert_eq!(judged(NEAR, &rows("a", &[(1.0, 2.1), (2.0, 2.3)])), [false]);
        const FOLLOWS: &[Claim] = &[Claim::new("", Check::Follows(Quantity::K, "a", "curve", 0.1))];
        let curve = rows("curve", &[(0.0, 0.0), (1.0, 2.0)]).into_iter();
        let curve: Vec<Row> = curve.map(|row| Row { how: How::Predicted, machine: ANY, ..row }).collect();
        assert_eq!(judged(FOLLOWS, &[rows("a", &[(0.25, 0.53), (0.5, 1.0)]), curve.clone()].concat()), [true]);
        assert_eq!(judged(FOLLOWS, &[rows("a", &[(0.25, 0.53), (0.5, 1.2)]), curve.clone()].concat()), [false]);
        assert!(judged(FOLLOWS, &[rows("a", &[(1.5, 3.0)]), curve].concat()).is_empty());
        const AT_MOST: &[Claim] = &[Claim::new("", Check::AtMost(of(Quantity::K, &["a"], At::Last), 2.0))];
        assert_eq!(judged(AT_MOST, &rows("a", &[(1.0, 3.0), (2.0, 2.0)])), [true]);
        assert_eq!(judged(AT_MOST, &rows("a", &[(1.0, 1.0), (2.0, 2.1)])), [false]);
        const SAME: &[Claim] =
            &[Claim::new("", Check::Same(of(Quantity::K, &["a"], At::First), of(Quantity::K, &["a"], At::Last), 0.1))];
        assert_eq!(judged(SAME, &rows("a", &[(1.0, 1.05), (2.0, 1.0)])), [true]);
        assert_eq!(judged(SAME, &rows("a", &[(1.0, 1.15), (2.0, 1.0)])), [false]);
        assert_eq!(judged(SAME, &rows("a", &[(1.0, 0.85), (2.0, 1.0)])), [false]);
        const LEAST: &[Claim] = &[Claim::new(
            "",
            Check::AtLeast(of(Quantity::K, &["a"], At::X(1.0)), 1.0, least(Quantity::K, &["a", "b"], At::X(1.0))),
        )];
        assert_eq!(judged(LEAST, &[rows("a", &[(1.0, 1.0)]), rows("b", &[(1.0, 5.0)])].concat()), [true]);
    }
}
