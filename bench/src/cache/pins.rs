//! Pins by the session's row alone beside references that are counted in the object's mutex.

use super::gate::{self, Conditions, Kind, Load, Work};
use super::stores::{Ours, Store, get, key, look, replace};
use crate::report::{Output, header};
use clap::ValueEnum;
use miette::{IntoDiagnostic, Report};
use retrial_bench::outcome::median;
use retrial_bench::output::{Table, column};
use retrial_cache::{Client, Shape};
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::time::{Duration, Instant};

/// Private pins beside counted references
///
/// Threads read objects of a few, and change some in place (`exclusive`) or put another value in their place
/// (`replace`). First a get of one object alone, beside a compare-exchange and a store of one word.
#[derive(clap::Args)]
pub struct Args {
    /// Numbers of threads
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,8")]
    sessions: Vec<usize>,
    /// Numbers of objects
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,16")]
    objects: Vec<usize>,
    /// Percentages of accesses that change
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',', default_value = "0,1,10,50")]
    writers: Vec<u64>,
    /// How they change
    #[arg(long, value_enum, value_delimiter = ',', default_value = "exclusive,replace")]
    how: Vec<How>,
    /// Rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Time of each measurement in ms
    #[arg(long, value_name = "MS", default_value_t = 150)]
    duration: u64,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Exclusive,
    Replace,
}

/// A cache of a few objects, and how they are changed.
struct Few {
    ours: Ours,
    how: How,
}

impl Few {
    fn new(names: &[String], how: How, is_counted: bool) -> Result<Self, Report> {
        let ours = Ours::empty(Shape { bytes: 4 << 20, shards: 4 })?;
        ours.joined(|cache, _| cache.set_counted(is_counted))?;
        ours.fill(names, 64)?;
        Ok(Self { ours, how })
    }
}

impl Store for Few {
    fn work(&self, load: &Load<'_>) {
        let work = |client: &Client<'_>| {
            let put = |name: &str, with| match self.how {
                How::Exclusive => client.exclusive(&key(name)).expect("in X").expect("there").fill(with),
                How::Replace => replace(client, name, load.bytes, with),
            };
            load.run(|name| get(client, name), put);
        };
        self.ours.joined(|_, client| work(client)).expect("a session");
    }
}

struct Row {
    how: How,
    objects: usize,
    sessions: usize,
    writers: u64,
    /// M accesses per second of each round, by private pins where that is faster, and counted.
    private: Vec<f64>,
    counted: Vec<f64>,
}

fn of(all: &[f64]) -> f64 {
    median(all.to_vec()).unwrap_or(f64::NAN)
}

pub fn run(args: &Args, output: &Output) -> Result<ExitCode, Report> {
    let names: Vec<String> =
        (0..args.objects.iter().copied().max().unwrap_or(1)).map(|i| format!("SCHEMA.OBJECT_{i}")).collect();
    let alone = Few::new(&names, How::Exclusive, false)?;
    let [get, handle, pair] = alone.ours.joined(|_, client| beside_a_pair(client, &names[0], args.rounds))??;
    output.say(&format!(
        "one object alone: get and unpin {get:.1} ns, by a handle {handle:.1} ns, compare-exchange and store {pair:.1} ns"
    ));
    let mut rows = Vec::new();
    for &how in &args.how {
        let both = [Few::new(&names, how, false)?, Few::new(&names, how, true)?];
        for &objects in &args.objects {
            for &writers in &args.writers {
                for &sessions in &args.sessions {
                    let (kind, bytes, rounds) = (Kind::Threads, 64, args.rounds);
                    let (names, duration) = (&names[..objects], Duration::from_millis(args.duration));
                    let cell = Conditions { kind, sessions, names, bytes, writers, rounds, duration };
                    let works = both.each_ref().map(|few| move |load: &Load<'_>| few.work(load));
                    let works = works.each_ref().map(|work| work as Work<'_>);
                    let all = gate::measure(&cell, &works)?;
                    let [private, counted] = [0, 1].map(|i| all[i].iter().map(|ns| 1e3 / ns).collect());
                    rows.push(Row { how, objects, sessions, writers, private, counted });
                }
            }
        }
    }
    let ratio = |row: &Row| {
        of(&row.private.iter().zip(&row.counted).map(|(private, counted)| private / counted).collect::<Vec<_>>())
    };
    let columns = [
        column("change", |row: &Row| format!("{:?}", row.how)),
        column("objects", |row: &Row| row.objects as u64),
        column("sessions", |row: &Row| row.sessions as u64),
        column("writers_pct", |row: &Row| row.writers),
        column("private_M_per_s", |row: &Row| of(&row.private)),
        column("counted_M_per_s", |row: &Row| of(&row.counted)),
        column("private_to_counted", ratio),
    ];
    output.whole(&header(), &Table::of(&columns, &rows))?;
    Ok(ExitCode::SUCCESS)
}

/// ns of a get of one object with its unpin, of the same by a handle, and of a compare-exchange and a store
/// of one word: medians.
fn beside_a_pair(client: &Client<'_>, name: &str, rounds: usize) -> Result<[f64; 3], Report> {
    let handle = client.handle(&key(name)).into_diagnostic()?;
    let word = AtomicU64::new(0);
    let mut all = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        all[0].push(timed(|| client.get(&key(black_box(name))).expect("a get").iter().for_each(|pin| look(pin))));
        all[1].push(timed(|| black_box(&handle).read(look).expect("read").expect("there")));
        all[2].push(timed(|| {
            let _ = black_box(&word).compare_exchange(0, 1, AcqRel, Relaxed);
            word.store(0, Release);
        }));
    }
    Ok(all.each_ref().map(|rounds| of(rounds)))
}

/// ns of it, a million times.
fn timed(what: impl Fn()) -> f64 {
    const TIMES: u32 = 1_000_000;
    let start = Instant::now();
    (0..TIMES).for_each(|_| what());
    start.elapsed().as_nanos() as f64 / f64::from(TIMES)
}
