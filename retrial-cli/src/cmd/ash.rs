//! `retrial ash`.

use super::period::{Part, PeriodArgs};
use crate::ash::{Answer, Looked, Question, columns};
use crate::instances::{self, Which, attach_error, of_process};
use crate::output::{Format, quoted};
use crate::recording::store::Recording;
use crate::recording::{Scene, Span};
use crate::sql::{self, Database, SAMPLES_MAX};
use crate::{duration, signals};
use clap::value_parser;
use miette::{Report, miette};
use retrial::Observer;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Group samples of who holds and who waits by anything that is known of them
///
/// How many sessions held or waited on average, and which share of all that is, for each mutex, place, mode, session,
/// action, step or holder, or any of them together. A live instance is sampled from outside for a time; a recording
/// has its samples. Groups that are not shown are added up as others. `retrial sql '.views ash'` describes the columns.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial ash -i demo                                             who holds and who waits, by mutex and place
  retrial ash -i demo --holders --every 100us --by mutex,location,mode
  retrial ash retrial.db --from 10min --waiters --by mutex,holder_location,blocker
  retrial ash retrial.db --by step,location --where \"mutex = 'accounts' AND action LIKE 'load%'\"")]
pub struct Args {
    /// A recording; the live instance otherwise
    file: Option<PathBuf>,
    #[command(flatten)]
    which: Which,
    /// The instance of a program under `retrial run`
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["instance", "file"])]
    pid: Option<u32>,
    /// Columns to group by; the state is the first one where both holders and waiters are shown
    #[arg(long, value_name = "COLUMN,…", default_value = "mutex,location")]
    by: String,
    /// Only sessions that hold
    #[arg(long, conflicts_with = "waiters")]
    holders: bool,
    /// Only sessions that wait
    #[arg(long)]
    waiters: bool,
    /// Only samples of which this holds: SQL over the same columns
    #[arg(long = "where", value_name = "EXPRESSION")]
    condition: Option<String>,
    /// Show so many groups, and the others as one
    #[arg(long, value_name = "N", default_value = "20", value_parser = value_parser!(u32).range(1..))]
    top: u32,
    #[command(flatten)]
    period: PeriodArgs,
    /// Of a live instance: watch it for so long
    #[arg(long = "for", value_name = "TIME", default_value = "10s", conflicts_with = "file")]
    time: String,
    /// Of a live instance: from one sample to the next, or as often as the machine can; a short time keeps a
    /// processor busy
    #[arg(long, value_name = "TIME", default_value = "10ms", conflicts_with = "file")]
    every: String,
}

/// Samples to be asked.
struct Taken {
    recording: Recording,
    instance: i64,
    span: Span,
    /// Which of several instances of the name.
    note: String,
    looked: Looked,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let question = question(&args)?;
    let Taken { recording, instance, span, note, looked } = match &args.file {
        Some(file) => recorded(file, &args)?,
        None => live(&args)?,
    };
    let database = Database::new(recording.into_connection(), None)?;
    database.show(Scene { spans: vec![(instance, span.clone())] });
    let groups = question.ask(&database, looked.time_s())?;
    let top = usize::try_from(args.top).unwrap_or(usize::MAX);
    Answer { question, groups, span, note, looked, top }.print(format);
    Ok(ExitCode::SUCCESS)
}

fn question(args: &Args) -> Result<Question, Report> {
    let state = match (args.holders, args.waiters) {
        (true, _) => Some("holds"),
        (_, true) => Some("waits"),
        _ => None,
    };
    let by = if state.is_some() { args.by.clone() } else { format!("state,{}", args.by) };
    let question = Question { by: columns(&by)?, state, condition: args.condition.clone() };
    question.check()?;
    Ok(question)
}

fn live(args: &Args) -> Result<Taken, Report> {
    let time = duration::argument("--for", &args.time)?;
    let every = duration::argument("--every", &args.every)?;
    if every.is_zero() {
        return Err(miette!(code = "retrial::ash::every", help = "--every 10ms", "--every 0, expected 1ns at least"));
    }
    let address = args.pid.map_or_else(|| args.which.address(), |pid| instances::address(&of_process(pid)?))?;
    let observer = Observer::open(&address).map_err(attach_error)?;
    signals::catch();
    let (writer, span) = sql::watched(&observer, Some(time), every)?;
    let recording = Recording::of(writer.into_connection());
    let snapshots = recording.snapshots()?;
    let (from, to) = (snapshots[0], snapshots[snapshots.len() - 1]);
    let rounds = recording.rounds(to.instance, from.id, to.id)?;
    let is_full = recording.samples()? >= SAMPLES_MAX;
    let looked = Looked { rounds, every: Some(every), is_full };
    Ok(Taken { recording, instance: to.instance, span, note: String::new(), looked })
}

fn recorded(file: &Path, args: &Args) -> Result<Taken, Report> {
    let recording = Recording::open(file)?;
    let Part { from, to, span, note } = args.period.of(&recording, file, args.which.instance.as_deref(), "ash")?;
    let after = if span.from.is_some() { from.id } else { 0 };
    let rounds = recording.rounds(to.instance, after, to.id)?;
    if rounds.rounds == 0 {
        let shown = quoted(&file.to_string_lossy()).into_owned();
        return Err(miette!(
            code = "retrial::ash::samples",
            help = format!("retrial record {shown} --sample 10ms"),
            "no samples in this period of {shown}, expected what was recorded with them"
        ));
    }
    let looked = Looked { rounds, every: None, is_full: false };
    Ok(Taken { recording, instance: to.instance, span, note, looked })
}
