//! Closed loops: sessions that get one mutex again and again, with little between.

use crate::measurement::Load;
use crate::peers::{self, Entry};
use crate::plan::Group;
use crate::report::{self, DURATION, Options, Output, ROUNDS, conditions};
use miette::Report;
use retrial_bench::arguments::{Kinds, time};
use retrial_bench::cell::{Cell, Conditions};
use retrial_bench::load::Start;
use std::process::ExitCode;
use std::time::Duration;

/// Sessions that get one mutex again and again: throughput, processor time, fairness and waits
///
/// Exclusion is checked in every section; every wait is timed, those that the end cuts short included. The
/// check and the clock add some 20 ns to a section. Times between two gets are exponential. Sessions have no
/// deadline: those that still wait half a second after the end are killed and counted (`waiting`), with their
/// wait up to the end.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// What a session is; between processes only peers that work there
    #[arg(long, value_enum, default_value = "threads")]
    kind: Kinds,
    /// Numbers of sessions [default: 1,2,8,64,256, with --quick 2,64]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = sessions())]
    sessions: Vec<u32>,
    /// Times in the critical section, as busy work [default: 0,100ns,1us, with --quick 100ns]
    #[arg(long, value_name = "T,…", value_delimiter = ',', value_parser = time)]
    cs: Vec<Duration>,
    /// Mean time between two gets, as busy work, from 1 ms on asleep [default: the section and 200 ns]
    #[arg(long, value_name = "T", value_parser = time)]
    think: Option<Duration>,
    /// Numbers of processes beside the sessions that only compute, so that holders lose their processor
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0")]
    hogs: Vec<u32>,
}

pub fn sessions() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=1_000_000)
}

/// What lies between two gets unless it is said.
pub fn think(cs: Duration) -> Duration {
    cs + Duration::from_nanos(200)
}

/// A group of closed loops.
pub fn group(peers: &[Entry], cell: Cell, rounds: u32, conditions: &Conditions) -> Group {
    let peers = peers.iter().copied().filter(|peer| peer.works_for(cell.kind)).collect();
    Group { load: Load::Contended, cell, peers, rounds, conditions: conditions.clone() }
}

pub fn run(args: &Args, output: &Output) -> Result<ExitCode, Report> {
    let options = &args.options;
    let peers = options.chosen(peers::mutexes())?;
    let sessions = options.or_quick(&args.sessions, &[1, 2, 8, 64, 256], &[2, 64]);
    let ns = Duration::from_nanos;
    let cs = options.or_quick(&args.cs, &[ns(0), ns(100), ns(1000)], &[ns(100)]);
    let (rounds, conditions) = (options.rounds(ROUNDS), conditions(Load::Contended, options.duration(DURATION)));
    let mut groups = Vec::new();
    for &kind in args.kind.list() {
        for &hogs in &args.hogs {
            for &cs in &cs {
                for &sessions in &sessions {
                    let think = args.think.unwrap_or(think(cs));
                    let cell = Cell { sessions, kind, cs, think, writes: 0, hogs, start: Start::Together };
                    groups.push(group(&peers, cell, rounds, &conditions));
                }
            }
        }
    }
    report::measure(&groups, options, output)
}
