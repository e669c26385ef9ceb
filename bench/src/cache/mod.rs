//! Objects found by name: `retrial-cache` beside caches of one process, LMDB and memcached.

mod gate;
mod lmdb;
mod memcached;
pub mod pins;
pub mod size;
mod stores;

use crate::report::{Output, header};
use clap::ValueEnum;
use gate::{Conditions, Kind, Work};
use miette::Report;
use retrial_bench::outcome::median;
use retrial_bench::output::{Table, column};
use std::process::ExitCode;
use std::time::Duration;
use stores::{DashMap, Moka, Ours, QuickCache, Store};

/// Gets of cached objects, and some that replace them
///
/// Sessions look for objects by their names and read the first and the last byte of what they find. With
/// `--writers 10` a tenth of the accesses puts another value in the place of one. All objects have room. Caches
/// of one process are measured by threads alone, and memcached answers over a Unix socket.
#[derive(clap::Args)]
pub struct Args {
    /// Numbers of sessions
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,8,64")]
    sessions: Vec<usize>,
    /// What the sessions are
    #[arg(long, value_enum, value_delimiter = ',', default_value = "threads,processes")]
    kind: Vec<Kind>,
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
    Memcached,
}

impl Peer {
    fn is_of(self, kind: Kind) -> bool {
        kind == Kind::Threads || matches!(self, Self::Retrial | Self::Lmdb | Self::Memcached)
    }

    /// The store, filled with objects of these names.
    fn filled(self, names: &[String], bytes: usize) -> Result<Box<dyn Store>, Report> {
        let value = || vec![1; bytes];
        let room = names.len() * 2;
        Ok(match self {
            Self::Retrial => Box::new(Ours::new(names, bytes)?),
            Self::QuickCache => {
                let cache = QuickCache::new(room);
                for name in names {
                    cache.insert(name.clone(), value().into());
                }
                Box::new(cache)
            }
            Self::Moka => {
                let cache = Moka::new(room as u64);
                for name in names {
                    cache.insert(name.clone(), value().into());
                }
                Box::new(cache)
            }
            Self::DashMap => {
                let map = DashMap::new();
                for name in names {
                    drop(map.insert(name.clone(), value().into()));
                }
                Box::new(map)
            }
            Self::Lmdb => Box::new(lmdb::Lmdb::new(names, bytes)?),
            Self::Memcached => Box::new(memcached::Memcached::new(names, bytes)?),
        })
    }
}

struct Row {
    kind: Kind,
    sessions: usize,
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
    // Processes first: they are forked while this one has one thread, and LMDB open nowhere.
    let mut kinds = args.kind.clone();
    kinds.sort_by_key(|kind| *kind == Kind::Threads);
    let peers: Vec<Peer> = peers.into_iter().filter(|peer| kinds.iter().any(|kind| peer.is_of(*kind))).collect();
    let mut rows = Vec::new();
    for &objects in &args.objects {
        let names: Vec<String> = (0..objects).map(|i| format!("SCHEMA.OBJECT_{i}")).collect();
        for &bytes in &args.bytes {
            let stores: Vec<_> =
                peers.iter().map(|peer| Ok((*peer, peer.filled(&names, bytes)?))).collect::<Result<_, Report>>()?;
            for &kind in &kinds {
                for &writers in &args.writers {
                    for &sessions in &args.sessions {
                        let duration = Duration::from_millis(args.duration);
                        let rounds = args.rounds;
                        let names = &names;
                        let cell = Conditions { kind, sessions, names, bytes, writers, rounds, duration };
                        rows.extend(measured(&cell, &stores)?);
                    }
                }
            }
        }
    }
    let columns = [
        column("kind", |row: &Row| row.kind.name()),
        column("sessions", |row: &Row| row.sessions as u64),
        column("objects", |row: &Row| row.objects as u64),
        column("value_bytes", |row: &Row| row.bytes as u64),
        column("writers_pct", |row: &Row| row.writers),
        column("peer", |row: &Row| format!("{:?}", row.peer)),
        column("M_accesses_per_s", |row: &Row| 1e3 / row.ns),
        column("low", |row: &Row| 1e3 / row.high),
        column("high", |row: &Row| 1e3 / row.low),
        column("retrial_to_it", |row: &Row| row.ours_to_it),
    ];
    output.whole(&header(), &Table::of(&columns, &rows))?;
    Ok(ExitCode::SUCCESS)
}

fn measured(cell: &Conditions<'_>, stores: &[(Peer, Box<dyn Store>)]) -> Result<Vec<Row>, Report> {
    let stores: Vec<_> = stores.iter().filter(|(peer, _)| peer.is_of(cell.kind)).collect();
    let works: Vec<_> = stores.iter().map(|(_, store)| |load: &gate::Load<'_>| store.work(load)).collect();
    let works: Vec<Work<'_>> = works.iter().map(|work| work as Work<'_>).collect();
    let rounds = gate::measure(cell, &works)?;
    let ours = stores.iter().position(|(peer, _)| *peer == Peer::Retrial);
    let row = |(i, (peer, _)): (usize, &&(Peer, Box<dyn Store>))| {
        let ratio = |ours: usize| rounds[i].iter().zip(&rounds[ours]).map(|(it, ours)| it / ours).collect();
        Row {
            kind: cell.kind,
            sessions: cell.sessions,
            objects: cell.names.len(),
            bytes: cell.bytes,
            writers: cell.writers,
            peer: *peer,
            ns: median(rounds[i].clone()).unwrap_or(f64::NAN),
            low: rounds[i].iter().copied().fold(f64::INFINITY, f64::min),
            high: rounds[i].iter().copied().fold(0.0, f64::max),
            ours_to_it: ours.and_then(|ours| median(ratio(ours))).unwrap_or(f64::NAN),
        }
    };
    Ok(stores.iter().enumerate().map(row).collect())
}
