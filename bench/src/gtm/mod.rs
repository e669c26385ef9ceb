//! GT.M, a stock database whose processes share a robust pthread mutex for each database file, under our
//! waiting.

mod database;
mod row;
mod running;
mod workload;

use crate::command::{self, Measured};
use crate::report::{self, Output, header};
use crate::row as table;
use database::Database;
use miette::Report;
use retrial::wait::NAMES;
use retrial_bench::cell::Stopped;
use retrial_bench::signals;
use row::{HIDDEN, Load, Row};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use workload::{WORKLOADS, Workload, workload};

/// GT.M's critical section under our waiting: 3n+1 and interest posting, as other engines are compared
///
/// Processes begin together on a fresh database and work for a while; an operation is an integer whose steps
/// to 1 are found, or a posting to an account in a transaction. `plain` is GT.M as it is, other schemes are
/// run under `retrial run`. Processor time is that of the processes while they work. After each run what the
/// database has is compared with what it must have.
#[derive(clap::Args)]
pub struct Args {
    /// What the processes do; may be repeated [default: both]
    #[arg(long = "workload", value_name = "WORKLOAD", value_parser = workload)]
    workloads: Vec<&'static Workload>,
    /// Numbers of processes
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "2,4,8,16,32,64,128,256")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    processes: Vec<u32>,
    /// `plain`, and how sessions wait under `retrial run`
    #[arg(long, value_name = "SCHEME,…", value_delimiter = ',', default_value = "plain,ydb,pthread,adaptive,orbit")]
    #[arg(value_parser = scheme)]
    schemes: Vec<String>,
    /// Rounds through all schemes
    #[arg(long, value_name = "N", default_value_t = report::ROUNDS, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Time of a run, in whole seconds
    #[arg(long, value_name = "S", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// The command `retrial` [default: beside this one]
    #[arg(long, value_name = "PATH")]
    retrial: Option<PathBuf>,
}

const PLAIN: &str = "plain";

fn scheme(text: &str) -> Result<String, String> {
    if text == PLAIN || NAMES.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}`, expected {PLAIN} or one of {}", NAMES.join(", ")))
    }
}

pub fn run(args: &Args, output: &Output) -> Result<ExitCode, Report> {
    let under_retrial = args.schemes.iter().any(|scheme| scheme != PLAIN);
    let retrial = if under_retrial { command::retrial(args.retrial.as_deref())? } else { PathBuf::new() };
    let database = Database::new()?;
    signals::catch();
    let workloads: Vec<&'static Workload> =
        if args.workloads.is_empty() { WORKLOADS.iter().collect() } else { args.workloads.clone() };
    let mut lines = header();
    lines.push(format!(
        "{}; {} rounds of {} s; ops: {}; cpu_us: processor time of an operation",
        database.run("version^worker")?.trim(),
        args.rounds,
        args.seconds,
        workloads.iter().map(|w| format!("{}: {}", w.name, w.operation)).collect::<Vec<_>>().join(", ")
    ));
    output.say(&lines.join("\n"));
    let mut rows: Vec<Row> = Vec::new();
    let mut whole = true;
    'all: for workload in workloads {
        let first = rows.len();
        for &processes in &args.processes {
            let load = Load { workload, processes, seconds: args.seconds };
            let measured = rounds(args, &database, &retrial, &load, &mut whole);
            let plain = args.schemes.iter().position(|scheme| scheme == PLAIN).map(|i| &measured[i]);
            let begun = args.schemes.iter().zip(&measured).filter(|(_, m)| m.is_begun());
            rows.extend(begun.map(|(scheme, own)| Row::new(&load, scheme, own, plain)));
            if let Some(path) = &output.csv {
                report::write(path, &table::csv(&rows, true)?)?;
            }
            if !whole {
                break;
            }
        }
        output.say(&format!("\n{}\n{}", workload.name, table::shown(&rows[first..], &HIDDEN).text()));
        if !whole {
            break 'all;
        }
    }
    output.end(&lines, &table::table(&rows))?;
    let failed = rows.iter().any(|row| row.failure.is_some());
    Ok(if failed || !whole { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

/// All rounds of the schemes under a load; `whole` is no longer so after Ctrl-C.
fn rounds(args: &Args, database: &Database, retrial: &Path, load: &Load, whole: &mut bool) -> Vec<Measured> {
    let mut measured: Vec<Measured> = args.schemes.iter().map(|_| Measured::default()).collect();
    for round in 0..args.rounds as usize {
        for i in 0..measured.len() {
            let i = (round + i) % measured.len();
            if measured[i].failure.is_some() {
                continue;
            }
            let scheme = args.schemes[i].as_str();
            let name = load.workload.name;
            eprintln!("{name}, {} processes, {scheme}, round {}/{}", load.processes, round + 1, args.rounds);
            match database.measure(load, (scheme != PLAIN).then_some((retrial, scheme))) {
                Ok(run) => measured[i].runs.push(run),
                Err(Stopped::Interrupted) => {
                    *whole = false;
                    return measured;
                }
                Err(Stopped::Failed(report)) => {
                    measured[i].failure = Some(report.to_string());
                    eprintln!("{report:?}");
                }
            }
        }
    }
    measured
}
