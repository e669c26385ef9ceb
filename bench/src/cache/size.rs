//! What one object costs against how many there are: to build, to find, to evict.

use super::stores::{Ours, fill, key, look};
use crate::report::{Output, header};
use miette::{IntoDiagnostic, Report};
use retrial::Class;
use retrial_bench::chart::{Axis, Chart, Form, Legend, Point, Scale, Series, svg};
use retrial_bench::outcome::median;
use retrial_bench::output::{Table, column};
use retrial_cache::{Cache, Client, Shape};
use std::hint::black_box;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Cost of one cached object against the number of objects
///
/// A cache is filled (build), each object is found once in a random order (find), and as many others are built, for
/// each of which another one goes (evict). `memory` is what the processor's caches alone make of a size: one load
/// from each of as many blocks of that length, in the same order, each of which says where the next one is.
#[derive(clap::Args)]
pub struct Args {
    /// Numbers of objects
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1000,10000,100000,1000000")]
    objects: Vec<usize>,
    /// Bytes of each value
    #[arg(long, default_value_t = 64)]
    bytes: usize,
    /// Rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Draw the costs into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// What is measured, ns an object.
const COSTS: [&str; 4] = ["build", "find", "evict", "memory"];

struct Row {
    objects: usize,
    /// Each cost in each round.
    ns: [Vec<f64>; 4],
    /// Bytes of a cache that is full of such objects, for each, beside name and value.
    overhead: f64,
}

impl Row {
    fn of(&self, cost: usize) -> (f64, f64, f64) {
        let all = &self.ns[cost];
        let ends = |pick: fn(f64, f64) -> f64, start| all.iter().copied().fold(start, pick);
        (median(all.clone()).unwrap_or(f64::NAN), ends(f64::min, f64::INFINITY), ends(f64::max, 0.0))
    }
}

pub fn run(args: &Args, output: &Output) -> Result<ExitCode, Report> {
    let mut rows: Vec<Row> =
        args.objects.iter().map(|&objects| Row { objects, ns: Default::default(), overhead: 0.0 }).collect();
    for round in 0..args.rounds {
        for row in &mut rows {
            let (ns, overhead) = measured(row.objects, args.bytes, round)?;
            row.ns.iter_mut().zip(ns).for_each(|(all, ns)| all.push(ns));
            row.overhead = overhead;
        }
    }
    let columns = [
        column("objects", |row: &Row| row.objects as u64),
        column("build_ns", |row: &Row| row.of(0).0),
        column("find_ns", |row: &Row| row.of(1).0),
        column("evict_ns", |row: &Row| row.of(2).0),
        column("memory_ns", |row: &Row| row.of(3).0),
        column("overhead_bytes", |row: &Row| row.overhead),
    ];
    output.whole(&header(), &Table::of(&columns, &rows))?;
    if let Some(path) = &args.svg {
        std::fs::write(path, svg(&[chart(args.bytes, &rows)], 1)?).into_diagnostic()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn chart(bytes: usize, rows: &[Row]) -> Chart {
    let series = |(cost, name): (usize, &&str)| {
        let point = |row: &Row| {
            let (y, low, high) = row.of(cost);
            Point { x: row.objects as f64, y, interval: Some((low, high)) }
        };
        let form = if *name == "memory" { Form::Dashes } else { Form::Line };
        Series { name: (*name).to_owned(), form, colour: cost, points: rows.iter().map(point).collect() }
    };
    Chart {
        title: format!("cost of an object of {bytes} bytes, medians and extremes"),
        x: Axis::new("objects", Scale::Decimal),
        y: Axis::new("ns", Scale::Decimal),
        series: COSTS.iter().enumerate().map(series).collect(),
        legend: Legend::Beside,
    }
}

/// ns an object of each cost, and the bytes that one takes beside its name and value.
fn measured(objects: usize, bytes: usize, round: usize) -> Result<([f64; 4], f64), Report> {
    let names: Vec<String> = (0..2 * objects).map(|i| format!("SCHEMA.OBJECT_{i:07}")).collect();
    let each = (112 + bytes + names[0].len()).next_multiple_of(16);
    // As many as are built fit, and hardly any more: a chain's head for each 256 bytes, and a shard's head.
    let shards = Shape::of((objects * each) as u64).shards;
    let shape = Shape { bytes: ((objects * each) as u64 * 65 / 64).max(4096) + u64::from(shards) * 4096, shards };
    let Ours(instance) = Ours::empty(shape)?;
    let cache = Cache::open(&instance, "bench").into_diagnostic()?;
    let session = instance.session("size", Class::Normal).into_diagnostic()?;
    let client = cache.join(&session).into_diagnostic()?;
    let order = shuffled(objects, round as u64);
    // Once around, so that no page is touched for the first time while the clock runs.
    build(&client, &names[objects..], bytes)?;
    cache.flush(&session).into_diagnostic()?;
    let built = timed(objects, || build(&client, &names[..objects], bytes))?;
    let totals = cache.totals(&session).into_diagnostic()?;
    let key_bytes = names[0].len() as u64 * totals.objects;
    let overhead = (totals.taken - totals.values - key_bytes) as f64 / totals.objects as f64;
    let found = timed(objects, || {
        for &which in &order {
            if let Some(pin) = client.get(&key(&names[which])).into_diagnostic()? {
                look(&pin);
            }
        }
        Ok(())
    })?;
    let evicted = timed(objects, || build(&client, &names[objects..], bytes))?;
    Ok(([built, found, evicted, loads(&order, each)?], overhead))
}

fn build(client: &Client<'_>, names: &[String], bytes: usize) -> Result<(), Report> {
    names.iter().try_for_each(|name| client.get_or_create(&key(name), bytes, fill(1)).map(drop).into_diagnostic())
}

fn timed(objects: usize, what: impl FnOnce() -> Result<(), Report>) -> Result<f64, Report> {
    let start = Instant::now();
    what()?;
    Ok(start.elapsed().as_nanos() as f64 / objects as f64)
}

/// Numbers below `count` in a random order (Fisher and Yates).
fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut random = retrial_bench::load::Random::new(seed);
    let mut order: Vec<usize> = (0..count).collect();
    for end in (1..count).rev() {
        order.swap(end, random.below(end as u64 + 1) as usize);
    }
    order
}

/// ns of one load that depends on the one before it, from as many blocks of this length.
fn loads(order: &[usize], each: usize) -> Result<f64, Report> {
    let words = each / 8;
    let mut memory = vec![0_u64; order.len() * words];
    for pair in order.windows(2) {
        memory[pair[0] * words] = (pair[1] * words) as u64;
    }
    timed(order.len(), || {
        let mut at = order[0] * words;
        for _ in 1..order.len() {
            at = memory[at] as usize;
        }
        black_box(at);
        Ok(())
    })
}
