//! Sessions that read beside each other, and some that write.

use crate::contended::{sessions, think};
use crate::measurement::Load;
use crate::peers::{self, Entry};
use crate::plan::Group;
use crate::report::{self, DURATION, Options, Output, ROUNDS, conditions};
use miette::Report;
use retrial_bench::arguments::{Kinds, percent, time};
use retrial_bench::cell::Cell;
use retrial_bench::load::Start;
use retrial_bench::outcome::Kind;
use std::process::ExitCode;
use std::time::Duration;

/// S and X against read-write locks
///
/// As `contended`, but sections are beside each other, but for those that write. Waits are those of both.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// What a session is; between processes only peers that work there
    #[arg(long, value_enum, default_value = "threads")]
    kind: Kinds,
    /// Numbers of sessions [default: 1,2,4,8,16,32,64, with --quick 2,16]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = sessions())]
    sessions: Vec<u32>,
    /// Percentages of gets that write
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',', default_value = "0,1,10", value_parser = percent)]
    writers: Vec<u64>,
    /// Time in the section, as busy work
    #[arg(long, value_name = "T", default_value = "100ns", value_parser = time)]
    cs: Duration,
    /// Mean time between two gets, as busy work, from 1 ms on asleep [default: the section and 200 ns]
    #[arg(long, value_name = "T", value_parser = time)]
    think: Option<Duration>,
}

/// The load of this kind and these writers, for these numbers of sessions.
pub fn groups(
    peers: &[Entry],
    options: &Options,
    kind: Kind,
    (writers, sessions): (&[u64], &[u32]),
    (cs, think): (Duration, Duration),
) -> Vec<Group> {
    let conditions = conditions(Load::Readers, options.duration(DURATION));
    let mut groups = Vec::new();
    for &writes in writers {
        for &sessions in sessions {
            groups.push(Group {
                load: Load::Readers,
                cell: Cell { sessions, kind, cs, think, writes, hogs: 0, start: Start::Together },
                peers: peers.iter().copied().filter(|peer| peer.works_for(kind)).collect(),
                rounds: options.rounds(ROUNDS),
                conditions: conditions.clone(),
            });
        }
    }
    groups
}

pub const SESSIONS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

pub fn run(args: &Args, output: &Output) -> Result<ExitCode, Report> {
    let options = &args.options;
    let peers = options.chosen(peers::read_write_locks())?;
    let sessions = options.or_quick(&args.sessions, &SESSIONS, &[2, 16]);
    let times = (args.cs, args.think.unwrap_or(think(args.cs)));
    let of_kind = |kind: &Kind| groups(&peers, options, *kind, (&args.writers, &sessions), times);
    let groups: Vec<Group> = args.kind.list().iter().flat_map(of_kind).collect();
    report::measure(&groups, options, output)
}
