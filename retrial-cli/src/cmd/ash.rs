//! `retrial ash`.

use super::period::{Part, PeriodArgs, TIME_MIN};
use crate::ash::{Answer, Axis, Groups, Heatmap, Looked, Question, columns};
use crate::errors::unwritable;
use crate::flame;
use crate::instances::{Which, attach_error};
use crate::output::{self, Format, quoted};
use crate::recording::store::Recording;
use crate::recording::{Scene, Span};
use crate::sql::{self, Database, SAMPLES_MAX};
use crate::{duration, signals};
use clap::value_parser;
use miette::{Report, miette};
use retrial::Observer;
use retrial_bench::errors::directory;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Group samples of who holds and who waits by anything that is known of them
///
/// How many sessions held or waited on average, and which share of all that is, for each mutex, place, mode,
/// session, action, step or holder, or any of them together. A live instance is sampled from outside for a
/// time; a recording has its samples. Groups that are not shown are added up as others. `retrial sql '.views
/// ash'` describes the columns.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial ash -i demo                                             who holds and who waits, by mutex and place
  retrial ash -i demo --holders --every 100us --by mutex,location,mode
  retrial ash retrial.db --from 10min --waiters --by mutex,holder_location,blocker
  retrial ash retrial.db --heatmap                                what they waited in, over time
  retrial ash -i demo --flame waits.svg --waiters --by mutex,holder_location,location
  retrial ash retrial.db --by step,location --where \"mutex = 'accounts' AND action LIKE 'load%'\"")]
pub struct Args {
    /// A recording; the live instance otherwise
    #[arg(conflicts_with = "pid")]
    file: Option<PathBuf>,
    #[command(flatten)]
    which: Which,
    /// Columns to group by; the state is the first one where both holders and waiters are shown.
    /// mutex,location when left out, class,step of a heatmap
    #[arg(long, value_name = "COLUMN,…")]
    by: Option<String>,
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
    /// Show the groups over time: a line for each, a cell for each sixtieth of the period or more; as rows
    /// with --json and --csv
    #[arg(long, conflicts_with = "flame")]
    heatmap: bool,
    /// Print the groups as folded stacks, a frame for each column and the time in ns, as flame graph programs
    /// read them; into a file whose name ends in .svg the flame graph itself
    #[arg(long, value_name = "FILE.svg", num_args = 0..=1)]
    #[allow(clippy::option_option)] // without, alone, and with a file
    flame: Option<Option<PathBuf>>,
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

/// No sample takes less.
const EVERY_MIN: Duration = Duration::from_micros(1);

/// Samples to be asked.
struct Taken {
    recording: Recording,
    instance: i64,
    span: Span,
    /// Which of several instances of the name.
    note: String,
    looked: Looked,
    /// When it was sampled, by the real-time clock in ns.
    sampled_ns: Vec<Range<u64>>,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let question = question(&args)?;
    check_flame(&args, format)?;
    let Taken { recording, instance, span, note, looked, sampled_ns } = match &args.file {
        Some(file) => recorded(file, &args)?,
        None => live(&args)?,
    };
    let database = Database::new(recording.into_connection(), None)?;
    database.show(Scene { spans: vec![(instance, span.clone())], observer: None });
    let groups = question.ask(&database, looked.time_s())?;
    if let Some(flame) = &args.flame {
        let Some(file) = flame else {
            output::write(&flame::folded(&groups.stacks()));
            return Ok(ExitCode::SUCCESS);
        };
        draw(file, &span.to.instance.name, &groups)?;
        format.say(&format!("{} is the flame graph.", file.display()));
    }
    let top = usize::try_from(args.top).unwrap_or(usize::MAX);
    let heatmap = args.heatmap.then(|| {
        let from_ns = span.from.as_ref().map(|from| from.at.real_ns);
        let from_ns = from_ns.or_else(|| sampled_ns.iter().map(|part| part.start).min()).unwrap_or(0);
        let axis = Axis::new(from_ns..span.to.at.real_ns, &sampled_ns, looked.rounds.rounds);
        let when = question.ask_when(&database, &axis, looked.time_s())?;
        Ok::<_, Report>(Heatmap::new(axis, when, top))
    });
    let heatmap = heatmap.transpose()?;
    Answer { question, groups, span, note, looked, top, heatmap }.print(format);
    Ok(ExitCode::SUCCESS)
}

/// That the picture is not to go where something else is meant to be.
fn check_flame(args: &Args, format: Format) -> Result<(), Report> {
    match &args.flame {
        Some(Some(file)) if file.extension().is_none_or(|end| !end.eq_ignore_ascii_case("svg")) => Err(miette!(
            code = "retrial::ash::flame",
            help = "retrial ash retrial.db --flame ash.svg; retrial ash retrial.db --flame > ash.folded",
            "--flame {}, expected a name that ends in .svg, or none for folded stacks; a recording goes before it",
            file.display()
        )),
        Some(Some(file)) if !directory(file).is_dir() => Err(miette!(
            code = "retrial::ash::flame",
            help = format!("mkdir -p {}", quoted(&directory(file).to_string_lossy())),
            "--flame {}: no directory {}, expected one that is there",
            file.display(),
            directory(file).display()
        )),
        Some(None) if !format.is_text() => Err(miette!(
            code = "retrial::ash::flame",
            help = "retrial ash --flame > ash.folded; retrial ash --flame ash.svg --json",
            "--flame with --json or --csv, expected a file for the flame graph: folded stacks are neither"
        )),
        _ => Ok(()),
    }
}

fn draw(file: &Path, instance: &str, groups: &Groups) -> Result<(), Report> {
    let svg = flame::svg(&format!("sessions of {instance} that held or waited"), &groups.stacks());
    std::fs::write(file, svg).map_err(|error| unwritable(file, &error))
}

fn question(args: &Args) -> Result<Question, Report> {
    let state = match (args.holders, args.waiters) {
        (true, _) => Some("holds"),
        (_, true) => Some("waits"),
        _ => None,
    };
    let by = args.by.as_deref().unwrap_or(if args.heatmap { "class,step" } else { "mutex,location" });
    let by = if state.is_some() { by.to_owned() } else { format!("state,{by}") };
    let question = Question { by: columns(&by)?, state, condition: args.condition.clone() };
    question.check()?;
    Ok(question)
}

fn live(args: &Args) -> Result<Taken, Report> {
    let time = duration::at_least("--for", &args.time, TIME_MIN)?;
    let every = duration::at_least("--every", &args.every, EVERY_MIN)?;
    let address = args.which.address()?;
    let observer = Observer::open(&address).map_err(attach_error)?;
    signals::catch();
    let (writer, span) = sql::watched(&observer, Some(time), every, |_| false)?;
    let recording = Recording::of(writer.into_connection());
    let snapshots = recording.snapshots()?;
    let (from, to) = (snapshots[0], snapshots[snapshots.len() - 1]);
    let rounds = recording.rounds(to.instance, from.id, to.id)?;
    let sampled_ns = recording.sampled(to.instance, from.id, to.id)?;
    let is_full = recording.samples()? >= SAMPLES_MAX;
    let looked = Looked { rounds, every: Some(every), is_full };
    Ok(Taken { recording, instance: to.instance, span, note: String::new(), looked, sampled_ns })
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
    let sampled_ns = recording.sampled(to.instance, after, to.id)?;
    let looked = Looked { rounds, every: None, is_full: false };
    Ok(Taken { recording, instance: to.instance, span, note, looked, sampled_ns })
}
