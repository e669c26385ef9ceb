//! Two periods side by side: what changed, by how much, and whether that is more than it varies within them.
//!
//! Each period is divided at its snapshots into parts of about the same length. How much a figure varies from
//! part to part says how far its mean may be from that of a longer period (Student's t, 95 %). A smaller
//! change is noise.

use super::Report;
use super::course::{Course, Step};
use crate::output::{self, Format, Table, column, line, per, short};
use crate::page::{Bar, Page, Part, Picture};
use crate::recording::snapshot::Parameter;
use miette::Report as Failure;
use retrial_model::sim::Estimate;
use retrial_model::{Measure, Profile};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Rows of a table for people.
const TOP: usize = 10;
/// Probability with which the interval around a mean covers the true value.
const CONFIDENCE: f64 = 0.95;
/// Minimum number of parts of a period that say how much a figure varies.
const PARTS_MIN: usize = 3;

/// A period as a whole, and its parts.
pub struct Side {
    pub whole: Report,
    pub parts: Vec<Report>,
}

/// Two periods, the earlier one or the one to compare with first.
pub struct Diff {
    pub before: Side,
    pub after: Side,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Section {
    Load,
    Time,
    Place,
    Mutex,
}

impl Section {
    const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Time, "time", "TIME OF THE SESSIONS: MEAN NUMBER OF SESSIONS, THE LARGEST CHANGE FIRST"),
        (Self::Load, "load", "LOAD"),
        (Self::Place, "place", "SESSIONS THAT WAIT, BY PLACE"),
        (Self::Mutex, "mutex", "MUTEXES, THE LARGEST CHANGE OF WAITING FIRST"),
    ];
}

/// What a figure is of, and which one it is.
type Key = (Section, String, &'static str);

/// A figure of both periods.
struct Row {
    of: String,
    figure: &'static str,
    before: Option<f64>,
    after: Option<f64>,
    /// A smaller change is noise. Not known where a period has too few parts.
    spread: Option<f64>,
}

/// Mean number of sessions at something: where nothing was counted of it, there were none.
const SESSIONS: &str = "sessions";
const WAITING: &str = "sessions waiting";
/// Figures of a mutex beside [`WAITING`], with the units they are shown in.
const OF_MUTEX: [(&str, Measure, &str); 4] = [
    ("gets/s", Measure::Throughput, ""),
    ("ρ", Measure::MissRatio, ""),
    ("S (us)", Measure::HoldingTime, "us"),
    ("U", Measure::Utilization, ""),
];
const OF_LOAD: [(&str, Measure); 4] = [
    ("gets/s", Measure::Throughput),
    ("miss ratio ρ", Measure::MissRatio),
    ("waits/s", Measure::WaitsPerS),
    ("sleeps/s", Measure::SleepsPerS),
];

impl Side {
    fn json(&self) -> Value {
        json!({
            "of": self.whole.of,
            "instance": self.whole.span.to.instance.name,
            "from": self.whole.begin_ns().map(crate::clock::time),
            "to": crate::clock::time(self.whole.span.to.at.real_ns),
            "period_s": self.whole.period().time_s(),
            "parts": self.parts.len(),
        })
    }

    fn text(&self, name: &str) -> String {
        let (from, to) = (self.whole.begin_ns(), self.whole.span.to.at.real_ns);
        format!(
            "{name}: {} from {}, from {} to {}: {} s in {} parts",
            self.whole.span.to.instance.name,
            self.whole.of,
            from.map_or_else(|| "its creation".to_owned(), crate::clock::time),
            crate::clock::time(to),
            short(self.whole.period().time_s()),
            self.parts.len()
        )
    }
}

/// Everything that is compared, of one period or of one part of it.
fn figures(report: &Report) -> BTreeMap<Key, f64> {
    let period = report.period();
    let time_s = period.time_s();
    let mut all = BTreeMap::new();
    if time_s <= 0.0 {
        return all;
    }
    for (event, event_s) in report.time().times() {
        *all.entry((Section::Time, event.to_owned(), SESSIONS)).or_insert(0.0) += event_s / time_s;
    }
    let total = period.total();
    let load = OF_LOAD.iter().map(|(name, measure)| (*name, measure.of(&total)));
    for (name, value) in load.chain([("processors busy (%)", period.busy().map(|busy| 100.0 * busy))]) {
        all.extend(value.map(|value| ((Section::Load, "all".to_owned(), name), value)));
    }
    for (location, profile) in period.of(|_, key| Some(key.location)) {
        let place = report.span.to.place(location).to_owned();
        *all.entry((Section::Place, place, WAITING)).or_insert(0.0) += profile.registered_s() / time_s;
    }
    let is_used = |profile: &Profile| profile.gets != Some(0) || profile.registered_s() > 0.0;
    for (mutex, profile) in period.mutexes().into_iter().filter(|(_, profile)| is_used(profile)) {
        let label = mutex.label();
        all.insert((Section::Mutex, label.clone(), WAITING), profile.registered_s() / time_s);
        for (name, measure, unit) in OF_MUTEX {
            all.extend(measure.of(&profile).map(|value| ((Section::Mutex, label.clone(), name), value * per(unit))));
        }
    }
    all
}

/// What a figure was over the whole period, and the half width of the interval around it.
struct Figures {
    whole: BTreeMap<Key, f64>,
    parts: Vec<BTreeMap<Key, f64>>,
}

impl Figures {
    fn of(side: &Side) -> Self {
        Self { whole: figures(&side.whole), parts: side.parts.iter().map(figures).collect() }
    }

    fn whole(&self, key: &Key) -> Option<f64> {
        self.whole.get(key).copied().or_else(|| nothing(key))
    }

    fn half_width(&self, key: &Key) -> Option<f64> {
        let values: Vec<f64> =
            self.parts.iter().filter_map(|part| part.get(key).copied().or_else(|| nothing(key))).collect();
        (values.len() >= PARTS_MIN).then(|| Estimate::of(&values)).flatten().map(|of| of.half_width(CONFIDENCE))
    }
}

/// What a figure is where nothing was counted.
fn nothing((.., figure): &Key) -> Option<f64> {
    [SESSIONS, WAITING].contains(figure).then_some(0.0)
}

impl Row {
    fn change(&self) -> Option<f64> {
        Some(self.after? - self.before?)
    }

    fn pct(&self) -> Option<f64> {
        let before = self.before.filter(|before| *before != 0.0)?;
        Some(100.0 * self.change()? / before)
    }

    /// `more` or `less` where the change exceeds the spread.
    fn verdict(&self) -> &'static str {
        match (self.change(), self.spread) {
            (Some(change), Some(spread)) if change.abs() <= spread => "noise",
            (Some(change), Some(_)) => {
                if change > 0.0 {
                    "more"
                } else {
                    "less"
                }
            }
            _ => "not known",
        }
    }

    /// Whether it is more than noise, and the sessions that it costs. Time elsewhere costs nothing.
    fn cost(&self) -> (bool, f64) {
        if self.of.ends_with("elsewhere") {
            return (false, -1.0);
        }
        (self.verdict() != "noise", self.change().map_or(0.0, f64::abs))
    }
}

impl Diff {
    pub fn print(&self, format: Format) {
        if format.is_text() {
            line(&self.page().text());
        } else if format.json {
            output::json(&self.json());
        } else {
            let rows: Vec<Row> = self.sections().into_iter().flat_map(|(_, rows)| rows).collect();
            table(&rows).print(format);
        }
    }

    /// The rows of each section, what costs most first, and noise last; the figures of a mutex together.
    fn sections(&self) -> Vec<(Section, Vec<Row>)> {
        let (before, after) = (Figures::of(&self.before), Figures::of(&self.after));
        let keys: BTreeSet<&Key> = before.whole.keys().chain(after.whole.keys()).collect();
        let row = |key: &Key| {
            let spread = before.half_width(key).zip(after.half_width(key)).map(|(a, b)| a.hypot(b));
            Row { of: key.1.clone(), figure: key.2, before: before.whole(key), after: after.whole(key), spread }
        };
        let of = |section: Section| {
            let of_section = keys.iter().filter(|key| key.0 == section);
            let mut rows: Vec<Row> = of_section.map(|key| row(key)).collect();
            let waiting = |row: &Row| row.figure == WAITING || section != Section::Mutex;
            let costs: BTreeMap<String, (bool, f64)> =
                rows.iter().filter(|row| waiting(row)).map(|row| (row.of.clone(), row.cost())).collect();
            let cost = |row: &Row| if section == Section::Load { (true, 0.0) } else { costs[&row.of] };
            rows.sort_by(|a, b| {
                let ((a_is, a_cost), (b_is, b_cost)) = (cost(a), cost(b));
                b_is.cmp(&a_is).then(b_cost.total_cmp(&a_cost)).then_with(|| a.of.cmp(&b.of))
            });
            rows
        };
        Section::ALL.iter().map(|(section, ..)| (*section, of(*section))).collect()
    }

    /// Parameters whose values at the ends of the periods differ.
    fn parameters(&self) -> Table {
        let (before, after) = (&self.before.whole.span.to, &self.after.whole.span.to);
        let type_name =
            |parameter: &Parameter| parameter.of.map_or("the instance", |of| after.type_name(of)).to_owned();
        let then = |now: &Parameter| {
            let name = type_name(now);
            let is_same = |then: &&Parameter| {
                then.parameter == now.parameter && then.of.map_or("the instance", |of| before.type_name(of)) == name
            };
            before.params.iter().find(is_same).map(|then| then.parameter.format(then.value))
        };
        let changed =
            after.params.iter().filter(|now| then(now).is_some_and(|then| then != now.parameter.format(now.value)));
        let columns = [
            column("name", |now: &&Parameter| now.parameter.row().name),
            column("of", |now: &&Parameter| type_name(now)),
            column("before", |now: &&Parameter| then(now)),
            column("after", |now: &&Parameter| now.parameter.format(now.value)),
        ];
        Table::of(&columns, changed)
    }

    fn json(&self) -> Value {
        let sections = self.sections();
        let mut all = json!({
            "before": self.before.json(),
            "after": self.after.json(),
            "parameters": self.parameters().json(),
        });
        for ((_, rows), (_, name, _)) in sections.iter().zip(Section::ALL) {
            all[name] = table(rows).json();
        }
        all
    }

    fn page(&self) -> Page {
        let sides = [("before", &self.before), ("after ", &self.after)];
        let bar = |(name, side): (&'static str, &Side)| Bar { name, shares: side.whole.time().shares().collect() };
        let course = |(name, side): (&'static str, &Side)| Course {
            name: name.trim_end(),
            steps: side.parts.iter().map(Step::of).collect(),
        };
        let mut parts = Vec::new();
        for ((section, rows), (_, _, title)) in self.sections().iter().zip(Section::ALL) {
            let most = if *section == Section::Mutex { TOP * (1 + OF_MUTEX.len()) } else { TOP };
            let mut table = table(rows);
            table.shorten(most);
            let picture = match section {
                Section::Time => Picture::Bars(sides.map(bar).into()),
                Section::Load => Picture::Charts(sides.map(course).into()),
                _ => Picture::None,
            };
            parts.push(Part::pictured(title, picture, table));
        }
        parts.push(Part::section("PARAMETERS THAT DIFFER", self.parameters(), "None."));
        let mut head: Vec<String> = sides.iter().map(|(name, side)| side.text(name)).collect();
        head.push("a change is noise unless it exceeds the spread: what the parts vary by, at 95 %".to_owned());
        Page { title: "retrial report --diff".to_owned(), head, parts, next: None }
    }

    /// The same with pictures, as one file of HTML.
    pub fn html(&self) -> Result<String, Failure> {
        self.page().html()
    }
}

fn table(rows: &[Row]) -> Table {
    let columns = [
        column("of", |row: &&Row| row.of.clone()),
        column("figure", |row: &&Row| row.figure),
        column("before", |row: &&Row| row.before),
        column("after", |row: &&Row| row.after),
        column("change", |row: &&Row| row.change()),
        column("change_pct", |row: &&Row| row.pct()).titled("change (%)"),
        column("spread", |row: &&Row| row.spread),
        column("verdict", |row: &&Row| row.verdict()),
    ];
    Table::of(&columns, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(before: Option<f64>, after: f64, spread: Option<f64>) -> &'static str {
        Row { of: String::new(), figure: SESSIONS, before, after: Some(after), spread }.verdict()
    }

    #[test]
    fn a_change_within_the_spread_is_noise() {
        assert_eq!(verdict(Some(1.0), 1.2, Some(0.3)), "noise");
        assert_eq!(verdict(Some(1.0), 1.2, Some(0.1)), "more");
        assert_eq!(verdict(Some(1.0), 0.8, Some(0.1)), "less");
        assert_eq!(verdict(Some(1.0), 9.0, None), "not known");
        assert_eq!(verdict(None, 9.0, Some(0.1)), "not known");
    }

    #[test]
    fn how_much_a_figure_varies_is_known_from_three_parts_on() {
        let key = |figure| (Section::Mutex, "m".to_owned(), figure);
        let part = |figure, value: f64| BTreeMap::from([(key(figure), value)]);
        let figures = |parts| Figures { whole: BTreeMap::new(), parts };
        let two = figures(vec![part("U", 0.1), part("U", 0.3)]);
        assert_eq!((two.half_width(&key("U")), two.whole(&key("U"))), (None, None));
        // Where nobody waited there is no row: that is 0. A utilization that nobody saw is not.
        let three = figures(vec![part(WAITING, 1.0), part("U", 0.1), part("U", 0.3)]);
        assert_eq!((three.half_width(&key("U")), three.whole(&key(WAITING))), (None, Some(0.0)));
        // Mean 1/3, deviation 1/√3, t 4.303.
        let width = three.half_width(&key(WAITING)).unwrap();
        assert!((width - 4.3027 / 3.0).abs() < 1e-4, "{width}");
    }
}
