//! Objects found by name: `retrial-cache` beside caches of one process, and LMDB.

use crate::report::Output;
use clap::ValueEnum;
use miette::{IntoDiagnostic, Report};
use retrial::{Capacity, Class, Instance};
use retrial_bench::outcome::median;
use retrial_bench::output::{Format, Table, column};
use retrial_cache::{Cache, Client, Key, Namespace, Shape};
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Gets of cached objects, and some that replace them
///
/// Threads look for objects by their names and read the first and the last byte of what they find. With
/// `--writers 10` a tenth of the accesses puts another value in the place of one. All objects have room.
#[derive(clap::Args)]
pub struct Args {
    /// Numbers of threads
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,8")]
    threads: Vec<usize>,
    /// Numbers of objects
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "10000")]
    objects: Vec<usize>,
    /// Bytes of each value
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "64,4096")]
    bytes: Vec<usize>,
    /// Percentages of accesses that replace
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',', default_value = "0,10")]
    writers: Vec<u64>,
    /// Rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Time of each measurement in ms
    #[arg(long, value_name = "MS", default_value_t = 300)]
    duration: u64,
    /// Peers
    #[arg(long, value_enum, value_delimiter = ',')]
    peers: Vec<Peer>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Peer {
    Retrial,
    QuickCache,
    Moka,
    DashMap,
    Lmdb,
}

/// A store of objects, as a thread uses it.
trait Store: Sync {
    /// Runs accesses until told to stop: how many.
    fn work(&self, load: &Load<'_>, thread: u64) -> u64;
}

struct Load<'a> {
    names: &'a [String],
    bytes: usize,
    writers: u64,
    stop: &'a AtomicBool,
}

impl Load<'_> {
    /// Accesses in a random order until the end. `get` says whether the object was there.
    fn run(&self, thread: u64, mut get: impl FnMut(&str) -> bool, mut put: impl FnMut(&str, u8)) -> u64 {
        let (mut random, mut count) = (thread * 2 + 1, 0);
        while !self.stop.load(Ordering::Relaxed) {
            for _ in 0..64 {
                // The constants of Knuth's MMIX.
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let name = &self.names[((random >> 33) as usize) % self.names.len()];
                if random >> 20 & 127 < self.writers * 128 / 100 {
                    put(name, random as u8);
                } else {
                    assert!(get(name), "{name} is not there");
                }
            }
            count += 64;
        }
        count
    }
}

fn look(bytes: &[u8]) {
    black_box((bytes[0], bytes[bytes.len() - 1]));
}

struct Ours(&'static Cache<'static>, &'static Instance);

impl Ours {
    fn new(names: &[String], bytes: usize) -> Self {
        let room = names.len() as u64 * (bytes as u64 + 160) * 5 / 4;
        let shape = Shape::of(room.max(1 << 20));
        let capacity = Capacity { sessions: 64, arena: shape.arena(64), ..Capacity::default() };
        let instance = Box::leak(Box::new(Instance::anonymous(capacity).expect("memory")));
        let cache = Box::leak(Box::new(Cache::create(instance, "bench", shape).expect("a cache")));
        let session = instance.session("fill", Class::Normal).expect("a session");
        let client = cache.join(&session).expect("a client");
        for name in names {
            drop(client.get_or_insert(&key(name), &vec![1; bytes]).expect("room"));
        }
        Self(cache, instance)
    }
}

fn key(name: &str) -> Key<'_> {
    Key::new(Namespace::Object, "", name)
}

impl Store for Ours {
    fn work(&self, load: &Load<'_>, thread: u64) -> u64 {
        let session = self.1.session("bench", Class::Normal).expect("a session");
        let client: Client<'_> = self.0.join(&session).expect("a client");
        let get = |name: &str| client.get(&key(name)).expect("a get").inspect(|pin| look(pin)).is_some();
        let put = |name: &str, with| {
            let fill = |bytes: &mut [u8]| {
                bytes.fill(with);
                Ok::<_, std::convert::Infallible>(())
            };
            drop(client.replace(&key(name), load.bytes, fill).expect("replaced"));
        };
        load.run(thread, get, put)
    }
}

impl Store for quick_cache::sync::Cache<String, Arc<[u8]>> {
    fn work(&self, load: &Load<'_>, thread: u64) -> u64 {
        let get = |name: &str| Self::get(self, name).inspect(|value| look(value)).is_some();
        load.run(thread, get, |name, with| self.insert(name.to_owned(), vec![with; load.bytes].into()))
    }
}

impl Store for moka::sync::Cache<String, Arc<[u8]>> {
    fn work(&self, load: &Load<'_>, thread: u64) -> u64 {
        let get = |name: &str| Self::get(self, name).inspect(|value| look(value)).is_some();
        load.run(thread, get, |name, with| self.insert(name.to_owned(), vec![with; load.bytes].into()))
    }
}

impl Store for dashmap::DashMap<String, Box<[u8]>> {
    fn work(&self, load: &Load<'_>, thread: u64) -> u64 {
        let get = |name: &str| Self::get(self, name).inspect(|value| look(value.value())).is_some();
        load.run(thread, get, |name, with| drop(self.insert(name.to_owned(), vec![with; load.bytes].into())))
    }
}

/// A transaction for each access, as processes that share a file have to.
struct Lmdb(heed::Env, heed::Database<heed::types::Str, heed::types::Bytes>, #[allow(dead_code)] tempfile::TempDir);

impl Lmdb {
    fn new(names: &[String], bytes: usize) -> Result<Self, Report> {
        let directory = tempfile::tempdir_in("/dev/shm").into_diagnostic()?;
        let mut options = heed::EnvOpenOptions::new();
        options.map_size((names.len() * (bytes + 400) * 3).next_multiple_of(1 << 20).max(1 << 26));
        // SAFETY: nothing is synchronised to a disk, and there is none below; a file of this process alone.
        unsafe { options.flags(heed::EnvFlags::NO_SYNC) };
        // SAFETY: as above.
        let env = unsafe { options.open(directory.path()) }.into_diagnostic()?;
        let mut txn = env.write_txn().into_diagnostic()?;
        let database = env.create_database(&mut txn, None).into_diagnostic()?;
        for name in names {
            database.put(&mut txn, name.as_str(), vec![1; bytes].as_slice()).into_diagnostic()?;
        }
        txn.commit().into_diagnostic()?;
        Ok(Self(env, database, directory))
    }
}

impl Store for Lmdb {
    fn work(&self, load: &Load<'_>, thread: u64) -> u64 {
        let get = |name: &str| {
            let txn = self.0.read_txn().expect("a transaction");
            self.1.get(&txn, name).expect("a get").inspect(|value| look(value)).is_some()
        };
        let put = |name: &str, with| {
            let mut txn = self.0.write_txn().expect("a transaction");
            self.1.put(&mut txn, name, vec![with; load.bytes].as_slice()).expect("a put");
            txn.commit().expect("committed");
        };
        load.run(thread, get, put)
    }
}

fn store(peer: Peer, names: &[String], bytes: usize) -> Result<Box<dyn Store>, Report> {
    let value = || vec![1; bytes];
    Ok(match peer {
        Peer::Retrial => Box::new(Ours::new(names, bytes)),
        Peer::QuickCache => {
            let cache = quick_cache::sync::Cache::<String, Arc<[u8]>>::new(names.len() * 2);
            for name in names {
                cache.insert(name.clone(), value().into());
            }
            Box::new(cache)
        }
        Peer::Moka => {
            let cache = moka::sync::Cache::<String, Arc<[u8]>>::new(names.len() as u64 * 2);
            for name in names {
                cache.insert(name.clone(), value().into());
            }
            Box::new(cache)
        }
        Peer::DashMap => {
            let map = dashmap::DashMap::<String, Box<[u8]>>::new();
            for name in names {
                map.insert(name.clone(), value().into());
            }
            Box::new(map)
        }
        Peer::Lmdb => Box::new(Lmdb::new(names, bytes)?),
    })
}

struct Row {
    threads: usize,
    objects: usize,
    bytes: usize,
    writers: u64,
    peer: Peer,
    ns: f64,
    low: f64,
    high: f64,
    /// Median of the rounds' ratios of our rate to the peer's.
    ours_to_it: f64,
}

pub fn run(args: &Args, output: &Output) -> Result<ExitCode, Report> {
    let peers = if args.peers.is_empty() { Peer::value_variants().to_vec() } else { args.peers.clone() };
    let mut rows = Vec::new();
    for &objects in &args.objects {
        let names: Vec<String> = (0..objects).map(|i| format!("SCHEMA.OBJECT_{i}")).collect();
        for &bytes in &args.bytes {
            let stores: Vec<_> = peers.iter().map(|peer| store(*peer, &names, bytes)).collect::<Result<_, _>>()?;
            for &writers in &args.writers {
                for &threads in &args.threads {
                    let cell = (threads, objects, bytes, writers);
                    rows.extend(measure(cell, &peers, &stores, &names, args));
                }
            }
        }
    }
    let columns = [
        column("threads", |row: &Row| row.threads as u64),
        column("objects", |row: &Row| row.objects as u64),
        column("value_bytes", |row: &Row| row.bytes as u64),
        column("writers_pct", |row: &Row| row.writers),
        column("peer", |row: &Row| format!("{:?}", row.peer)),
        column("M_accesses_per_s", |row: &Row| 1e3 / row.ns),
        column("low", |row: &Row| 1e3 / row.high),
        column("high", |row: &Row| 1e3 / row.low),
        column("retrial_to_it", |row: &Row| row.ours_to_it),
    ];
    Table::of(&columns, &rows).print(Format { json: output.json, csv: false });
    Ok(ExitCode::SUCCESS)
}

fn measure(
    (threads, objects, bytes, writers): (usize, usize, usize, u64),
    peers: &[Peer],
    stores: &[Box<dyn Store>],
    names: &[String],
    args: &Args,
) -> Vec<Row> {
    // ns an access of each peer in each round, all threads together.
    let mut rounds: Vec<Vec<f64>> = vec![Vec::new(); peers.len()];
    for round in 0..args.rounds {
        for i in 0..peers.len() {
            let which = (i + round) % peers.len();
            let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
            let load = Load { names, bytes, writers, stop: &stop };
            let start = Instant::now();
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let (load, count) = (&load, &count);
                    let store = &stores[which];
                    scope.spawn(move || {
                        count.fetch_add(store.work(load, thread as u64 + 1 + round as u64 * 100), Ordering::Relaxed)
                    });
                }
                std::thread::sleep(Duration::from_millis(args.duration));
                stop.store(true, Ordering::Relaxed);
            });
            rounds[which].push(start.elapsed().as_nanos() as f64 / count.into_inner() as f64);
        }
    }
    let ours = peers.iter().position(|peer| *peer == Peer::Retrial);
    let row = |(i, peer): (usize, &Peer)| {
        let ratios: Vec<f64> = ours
            .map(|ours| rounds[i].iter().zip(&rounds[ours]).map(|(it, ours)| it / ours).collect())
            .unwrap_or_default();
        Row {
            threads,
            objects,
            bytes,
            writers,
            peer: *peer,
            ns: median(rounds[i].clone()).unwrap_or(f64::NAN),
            low: rounds[i].iter().copied().fold(f64::INFINITY, f64::min),
            high: rounds[i].iter().copied().fold(0.0, f64::max),
            ours_to_it: median(ratios).unwrap_or(f64::NAN),
        }
    };
    peers.iter().enumerate().map(row).collect()
}
