//! The whole grid, for one file of figures and one page.

use crate::contended::{self, think};
use crate::measurement::Load;
use crate::peers;
use crate::plan::Group;
use crate::readers;
use crate::report::{self, DURATION, Options, Output, ROUNDS, conditions};
use crate::thinking;
use miette::Report;
use retrial_bench::cell::{Cell, Conditions};
use retrial_bench::load::Start;
use retrial_bench::outcome::Kind;
use std::process::ExitCode;
use std::time::Duration;

/// Everything that we aim at: closed loops, beside hogs too, sessions that sleep, readers; one CSV file and
/// one page
///
/// Closed loops of threads and processes, sections from 0 to 50 us, up to 1,024 threads and 16,384 processes;
/// closed loops beside twice as many hogs as processors; 1,024 processes that sleep for 20 ms; readers with
/// 0, 1 and 10 % writers. How long that takes is said first. Figures are written group by group: after an
/// interruption go on with --resume.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
}

const FILE: &str = "bench.csv";
const PAGE: &str = "bench.html";

const SECTIONS: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_nanos(100),
    Duration::from_micros(1),
    Duration::from_micros(10),
    Duration::from_micros(20),
    Duration::from_micros(50),
];
/// Those measured beside other loads than threads alone.
const USUAL: std::ops::Range<usize> = 1..4;
const SESSIONS: [u32; 6] = [1, 2, 8, 64, 256, 1024];
/// Of processes, beyond these; measured in fewer and longer rounds, since they take long to make.
const CROWDS: [u32; 2] = [4096, 16_384];
const CROWD_ROUNDS: u32 = 2;
const CROWD_DURATION: Duration = Duration::from_secs(2);
const BESIDE_HOGS: [u32; 2] = [8, 64];
const WRITERS: [u64; 3] = [0, 100, 1000];
const KINDS: [Kind; 2] = [Kind::Threads, Kind::Processes];

/// What `--quick` has of these.
const FEW_SESSIONS: [u32; 2] = [2, 16];

pub fn run(args: &Args, mut output: Output) -> Result<ExitCode, Report> {
    let options = &args.options;
    output.csv.get_or_insert_with(|| FILE.into());
    output.html.get_or_insert_with(|| PAGE.into());
    report::measure(&groups(options)?, options, &output)
}

fn groups(options: &Options) -> Result<Vec<Group>, Report> {
    let mutexes = options.chosen(peers::mutexes())?;
    let locks = peers::read_write_locks();
    let usual = conditions(Load::Contended, options.duration(DURATION));
    let rounds = options.rounds(ROUNDS);
    let closed = |sessions: u32, kind: Kind, cs: Duration, hogs: u32| Cell {
        sessions,
        kind,
        cs,
        think: think(cs),
        writes: 0,
        hogs,
        start: Start::Together,
    };
    let usual_sections = if options.quick { &SECTIONS[1..2] } else { &SECTIONS[USUAL] };
    let sessions = if options.quick { &FEW_SESSIONS[..] } else { &SESSIONS };
    let mut groups = Vec::new();
    for kind in KINDS {
        for &cs in if options.quick || kind == Kind::Processes { usual_sections } else { &SECTIONS } {
            for &sessions in sessions {
                groups.push(contended::group(&mutexes, closed(sessions, kind, cs, 0), rounds, &usual));
            }
        }
    }
    if !options.quick {
        let crowd = Conditions { duration: CROWD_DURATION, window: CROWD_DURATION, ..usual.clone() };
        for sessions in CROWDS {
            for &cs in usual_sections {
                let cell = closed(sessions, Kind::Processes, cs, 0);
                groups.push(contended::group(&mutexes, cell, rounds.min(CROWD_ROUNDS), &crowd));
            }
        }
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let hogs = u32::try_from(2 * processors).unwrap_or(u32::MAX);
    for kind in KINDS {
        for &cs in usual_sections {
            for sessions in if options.quick { &FEW_SESSIONS[..] } else { &BESIDE_HOGS } {
                groups.push(contended::group(&mutexes, closed(*sessions, kind, cs, hogs), rounds, &usual));
            }
        }
    }
    groups.extend(thinking::usual(&mutexes, options, if options.quick { 64 } else { 1024 }));
    let sessions = if options.quick { &FEW_SESSIONS[..] } else { &readers::SESSIONS };
    let times = (SECTIONS[1], think(SECTIONS[1]));
    groups.extend(readers::groups(&locks, options, Kind::Threads, (&WRITERS, sessions), times));
    Ok(groups)
}
