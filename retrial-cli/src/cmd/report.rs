//! `retrial report`.

use super::period::{Part, PeriodArgs};
use crate::instances::{self, Which, attach_error, of_process};
use crate::output::{Format, quoted};
use crate::recording::Span;
use crate::recording::findings::Source;
use crate::recording::report::Report;
use crate::recording::store::{Recorded, Recording};
use crate::{duration, signals, sql};
use miette::Report as Failure;
use retrial::Observer;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Report what an instance did in a period: load, top events, the mutexes behind them, who kept whom waiting
///
/// Of a recording the whole of it, or the part between two of its snapshots; of a live instance what it does from now on for a time. The
/// parts of the sessions' time add up to 100 %: waits as they were counted, holding as it was sampled, and the rest. With --csv the top
/// events alone.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial report retrial.db
  retrial report retrial.db --from 2026-11-22T14:00 --to 2026-11-22T14:10
  retrial report retrial.db --from 10min
  retrial report -i demo --for 30s")]
pub struct Args {
    /// A recording; the live instance otherwise
    file: Option<PathBuf>,
    #[command(flatten)]
    which: Which,
    /// The instance of a program under `retrial run`
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["instance", "file"])]
    pid: Option<u32>,
    #[command(flatten)]
    period: PeriodArgs,
    /// Of a live instance: watch it for so long
    #[arg(long = "for", value_name = "TIME", default_value = "30s", conflicts_with = "file")]
    time: String,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Failure> {
    let report = match &args.file {
        Some(file) => recorded(file, &args)?,
        None => live(&args)?,
    };
    report.print(format)?;
    Ok(ExitCode::SUCCESS)
}

fn live(args: &Args) -> Result<Report, Failure> {
    let time = duration::argument("--for", &args.time)?;
    let address = args.pid.map_or_else(|| args.which.address(), |pid| instances::address(&of_process(pid)?))?;
    let observer = Observer::open(&address).map_err(attach_error)?;
    signals::catch();
    let (writer, span) = sql::watched(&observer, Some(time), sql::SAMPLE)?;
    let recording = Recording::of(writer.into_connection());
    let (of, next) = ("the live instance".to_owned(), format!("retrial sql -i {address} 'SELECT * FROM v$mutex_wait'"));
    let snapshots = recording.snapshots()?;
    report(&recording, [snapshots[0], snapshots[snapshots.len() - 1]], span, of, next, Source::Live)
}

fn recorded(file: &Path, args: &Args) -> Result<Report, Failure> {
    let recording = Recording::open(file)?;
    let Part { from, to, span, note } = args.period.of(&recording, file, args.which.instance.as_deref(), "report")?;
    let shown = quoted(&file.to_string_lossy()).into_owned();
    let next = format!("retrial sql {shown} 'SELECT * FROM v$mutex_wait'");
    report(&recording, [from, to], span, format!("{shown}{note}"), next, Source::File(shown))
}

fn report(
    recording: &Recording,
    [from, to]: [Recorded; 2],
    span: Span,
    of: String,
    next: String,
    source: Source,
) -> Result<Report, Failure> {
    let rounds = recording.rounds(to.instance, from.id, to.id)?;
    let blockers = recording.blockers(to.instance, from.at_ns, to.at_ns)?;
    Ok(Report { span, rounds, blockers, of, source, next })
}
