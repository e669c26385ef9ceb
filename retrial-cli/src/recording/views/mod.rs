//! Views with the sources' names, as data: a name, columns with their units, and the rows that they are of.
//! Whatever shows a view reads this list.

mod events;
mod instances;
mod mutexes;
mod objects;
mod sessions;

use super::scene::{Scene, Span};
use super::store::schema::{self, Kind};
use crate::output::per;
use retrial::views::Counter;
use retrial_model::{Measure, Profile};
use rusqlite::types::Value;
use std::sync::Arc;

/// A view.
pub struct View {
    pub name: &'static str,
    pub doc: &'static str,
    pub heads: Vec<schema::Column>,
    rows: Box<dyn Fn(Arc<Scene>) -> Arc<dyn Rows> + Send + Sync>,
}

impl View {
    /// Its rows in a scene.
    pub fn rows(&self, scene: &Arc<Scene>) -> Arc<dyn Rows> {
        (self.rows)(Arc::clone(scene))
    }
}

/// The rows of a view; cells are computed when they are asked for.
pub trait Rows: Send + Sync {
    fn count(&self) -> usize;
    fn cell(&self, row: usize, column: usize) -> Value;
}

/// Every view.
pub fn all() -> Vec<View> {
    let mut all = instances::views();
    all.extend(mutexes::views());
    all.extend(sessions::views());
    all.extend(events::views());
    all.extend(objects::views());
    all
}

/// A cell of what there are cells of.
trait Cell {
    const KIND: Kind;
    fn cell(self) -> Value;
}

macro_rules! cells {
    ($( $type:ty: $kind:ident, $value:expr; )*) => { $(
        impl Cell for $type {
            const KIND: Kind = Kind::$kind;
            fn cell(self) -> Value {
                ($value as fn($type) -> Value)(self)
            }
        }
    )* };
}

cells! {
    u64: Integer, |number| Value::Integer(number.cast_signed());
    u32: Integer, |number| Value::Integer(number.into());
    u8: Integer, |number| Value::Integer(number.into());
    usize: Integer, |number| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    bool: Integer, |flag| Value::Integer(flag.into());
    f64: Real, Value::Real;
    String: Text, Value::Text;
    &str: Text, |text| Value::Text(text.to_owned());
}

impl<T: Cell> Cell for Option<T> {
    const KIND: Kind = T::KIND;
    fn cell(self) -> Value {
        self.map_or(Value::Null, Cell::cell)
    }
}

/// A column of rows of one kind.
struct Column<R> {
    head: schema::Column,
    value: Box<Make<R>>,
}

/// Makes a cell of a row.
type Make<R> = dyn Fn(&Span, &R) -> Value + Send + Sync;

fn column<R, C: Cell>(
    name: &'static str,
    unit: &'static str,
    doc: &'static str,
    value: impl Fn(&Span, &R) -> C + Send + Sync + 'static,
) -> Column<R> {
    let head = schema::Column { name, kind: C::KIND, unit, doc };
    Column { head, value: Box::new(move |span, row| value(span, row).cell()) }
}

/// A text of the snapshot, or of the row.
fn text<R>(
    name: &'static str,
    doc: &'static str,
    value: impl for<'a> Fn(&'a Span, &'a R) -> &'a str + Send + Sync + 'static,
) -> Column<R> {
    let head = schema::Column { name, kind: Kind::Text, unit: "", doc };
    Column { head, value: Box::new(move |span, row| Value::Text(value(span, row).to_owned())) }
}

/// A measure in a unit.
fn measure<R>(
    name: &'static str,
    measure: Measure,
    unit: &'static str,
    of: impl Fn(&R) -> &Profile + Send + Sync + 'static,
) -> Column<R> {
    let head = schema::Column {
        name,
        kind: Kind::Real,
        unit: if unit.is_empty() { measure.unit() } else { unit },
        doc: measure.description(),
    };
    Column { head, value: Box::new(move |_, row| measure.of(of(row)).map(|value| value * per(unit)).cell()) }
}

/// A counter under its name.
fn counter<R>(counter: Counter, of: impl Fn(&R) -> &Profile + Send + Sync + 'static) -> Column<R> {
    let position = counter as usize;
    column(Counter::NAMES[position], "", Counter::DESCRIPTIONS[position], move |_, row| of(row).figures.get(counter))
}

/// Steps that left the processor.
fn sleeps<R>(of: impl Fn(&R) -> &Profile + Send + Sync + 'static) -> Column<R> {
    const DOC: &str = "Steps that left the processor: yields, sleeps and parks";
    column("sleeps", "", DOC, move |_, row| of(row).figures.sleeps())
}

/// The parts of the time of waits, and what follows from them: the same columns wherever waits are shown.
fn wait_columns<R: 'static>(of: fn(&R) -> &Profile) -> Vec<Column<R>> {
    vec![
        counter(Counter::Waits, of).renamed("total_waits"),
        measure("time_waited_ms", Measure::Registered, "ms", of),
        measure("average_wait_ms", Measure::RegisteredMean, "ms", of),
        measure("max_wait_ms", Measure::RegisteredMax, "ms", of),
        measure("p50_wait_ms", Measure::RegisteredP50, "ms", of),
        measure("p90_wait_ms", Measure::RegisteredP90, "ms", of),
        measure("p99_wait_ms", Measure::RegisteredP99, "ms", of),
        measure("spin_pct", Measure::SpinShare, "pct", of),
        measure("yield_pct", Measure::YieldShare, "pct", of),
        measure("slept_pct", Measure::SleptShare, "pct", of),
        measure("over_pct", Measure::OverShare, "pct", of),
        counter(Counter::Misses, of),
        sleeps(of),
    ]
}

/// A bucket of a histogram: where it begins in us, where it ends, and what it counts.
type Bucket = (u64, Option<u64>, u64);

/// Each bucket of what rows have counted as a row of its own.
fn buckets<K: Clone>(rows: impl IntoIterator<Item = (K, Profile)>) -> Vec<(K, Bucket)> {
    let of = |(key, profile): (K, Profile)| {
        profile.figures.lengths.filled().map(|bucket| (key.clone(), bucket)).collect::<Vec<_>>()
    };
    rows.into_iter().flat_map(of).collect()
}

/// The columns of such a row.
fn bucket_columns<K: 'static>() -> Vec<Column<(K, Bucket)>> {
    vec![
        column(
            "wait_time_micro",
            "us",
            "Length below which the waits of this row were, and not below half of it; null in the last one, which has no end",
            |_: &Span, row: &(K, Bucket)| row.1.1,
        ),
        column(
            "wait_count",
            "",
            "Waits of that length that have ended, also those that gave up",
            |_: &Span, row: &(K, Bucket)| row.1.2,
        ),
    ]
}

impl<R> Column<R> {
    fn renamed(mut self, name: &'static str) -> Self {
        self.head.name = name;
        self
    }
}

/// The rows of a kind, each with the position of its instance.
struct Filled<R> {
    scene: Arc<Scene>,
    rows: Vec<(usize, R)>,
    columns: Arc<Vec<Column<R>>>,
}

impl<R: Send + Sync> Rows for Filled<R> {
    fn count(&self) -> usize {
        self.rows.len()
    }

    fn cell(&self, row: usize, column: usize) -> Value {
        let (span, row) = &self.rows[row];
        (self.columns[column].value)(&self.scene.spans[*span].1, row)
    }
}

/// A view of rows that `rows` makes of each instance. Its first column is the instance.
fn view<R: Send + Sync + 'static>(
    name: &'static str,
    doc: &'static str,
    rows: fn(&Span) -> Vec<R>,
    columns: Vec<Column<R>>,
) -> View {
    let of_span = move |(position, (_, span)): (usize, &(i64, Span))| {
        rows(span).into_iter().map(move |row| (position, row)).collect::<Vec<_>>()
    };
    view_of_scene(name, doc, move |scene| scene.spans.iter().enumerate().flat_map(of_span).collect(), columns)
}

/// The same of rows that are not in the instances' snapshots, each with the position of its instance.
fn view_of_scene<R: Send + Sync + 'static>(
    name: &'static str,
    doc: &'static str,
    rows: impl Fn(&Scene) -> Vec<(usize, R)> + Send + Sync + 'static,
    columns: Vec<Column<R>>,
) -> View {
    let mut all = vec![text("instance", "The instance", |span: &Span, _: &R| span.to.instance.name.as_str())];
    all.extend(columns);
    let columns = Arc::new(all);
    View {
        name,
        doc,
        heads: columns.iter().map(|column| column.head).collect(),
        rows: Box::new(move |scene: Arc<Scene>| {
            let rows = rows(&scene);
            Arc::new(Filled { scene, rows, columns: Arc::clone(&columns) })
        }),
    }
}
