//! Sessions that sleep between two gets, many of them: there is room for all, unless waiting itself takes it
//! away.

use crate::contended::sessions;
use crate::measurement::Load;
use crate::peers::{self, Entry};
use crate::plan::Group;
use crate::report::{self, Options, Output, conditions};
use miette::Report;
use retrial_bench::arguments::{Kinds, time};
use retrial_bench::cell::Cell;
use retrial_bench::load::Start;
use retrial_bench::outcome::Kind;
use std::process::ExitCode;
use std::time::Duration;

/// Sessions that sleep between two gets, and how throughput goes on second by second
///
/// A peer has a second stable state if, after a start in which all ask at once, it stays below what it gives
/// when sessions start spread: compare the first window with the last, and the one start with the other.
/// Sleep is never counted as waiting.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// What a session is; between processes only peers that work there
    #[arg(long, value_enum, default_value = "processes")]
    kind: Kinds,
    /// Numbers of sessions [default: 1024, with --quick 64]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = sessions())]
    sessions: Vec<u32>,
    /// Time in the critical section, as busy work
    #[arg(long, value_name = "T", default_value = "1us", value_parser = time)]
    cs: Duration,
    /// Mean of the exponential sleep between two gets
    #[arg(long, value_name = "T", default_value = "20ms", value_parser = asleep)]
    think: Duration,
    /// What sessions do first
    #[arg(long, value_enum, default_value = "both")]
    start: Starts,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Starts {
    /// They sleep, as between two gets
    Spread,
    /// All ask at once
    Together,
    /// First the one, then the other
    Both,
}

const BOTH: [Start; 2] = [Start::Spread, Start::Together];

/// Shorter times are busy work.
fn asleep(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    if time < Duration::from_millis(1) { Err(format!("`{text}`, expected 1 ms at least")) } else { Ok(time) }
}

pub const SECTION: Duration = Duration::from_micros(1);
pub const SLEEP: Duration = Duration::from_millis(20);
pub const ROUNDS: u32 = 3;
pub const DURATION: Duration = Duration::from_secs(10);

/// The same load after one or both kinds of start.
pub fn groups(peers: &[Entry], options: &Options, cell: Cell, starts: &[Start]) -> Vec<Group> {
    let conditions = conditions(Load::Thinking, options.duration(DURATION));
    let group = |start: &Start| Group {
        load: Load::Thinking,
        cell: Cell { start: *start, ..cell },
        peers: peers.iter().copied().filter(|peer| peer.works_for(cell.kind)).collect(),
        rounds: options.rounds(ROUNDS),
        conditions: conditions.clone(),
    };
    starts.iter().map(group).collect()
}

/// As it is measured when nothing else is said, with this many sessions.
pub fn usual(peers: &[Entry], options: &Options, sessions: u32) -> Vec<Group> {
    let (kind, start) = (Kind::Processes, Start::Spread);
    groups(peers, options, Cell { sessions, kind, cs: SECTION, think: SLEEP, writes: 0, hogs: 0, start }, &BOTH)
}

pub fn run(args: &Args, output: &Output) -> Result<ExitCode, Report> {
    let options = &args.options;
    let peers = options.chosen(peers::mutexes())?;
    let starts = match args.start {
        Starts::Spread => &BOTH[..1],
        Starts::Together => &BOTH[1..],
        Starts::Both => &BOTH[..],
    };
    let mut all = Vec::new();
    for &kind in args.kind.list() {
        for sessions in options.or_quick(&args.sessions, &[1024], &[64]) {
            let (cs, think) = (args.cs, args.think);
            let cell = Cell { sessions, kind, cs, think, writes: 0, hogs: 0, start: Start::Spread };
            all.extend(groups(&peers, options, cell, starts));
        }
    }
    report::measure(&all, options, output)
}
