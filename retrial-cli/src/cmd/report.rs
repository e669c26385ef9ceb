//! `retrial report`.

use super::period::{Part, PeriodArgs, TIME_MIN};
use crate::errors::unwritable;
use crate::instances::{Which, attach_error, is_there};
use crate::output::{Format, quoted};
use crate::page;
use crate::recording::findings::Source;
use crate::recording::report::diff::{Diff, Side};
use crate::recording::report::{self, Report, Step};
use crate::recording::store::{Recorded, Recording};
use crate::recording::{Snapshot, Span, deadlocks};
use crate::{duration, predict, signals, sql};
use miette::{Report as Failure, miette};
use retrial::Observer;
use retrial_bench::errors::directory;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Report what an instance did in a period: load, top events, the mutexes behind them, who kept whom waiting
///
/// Of a recording the whole of it, or the part between two of its snapshots; of a live instance what it does
/// from now on for a time. The parts of the sessions' time add up to 100 %: waits as they were counted,
/// holding as it was sampled, and the rest. With --csv the top events alone. With --html the same as a page
/// with pictures.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial report retrial.db
  retrial report retrial.db --from 2026-11-22T14:00 --to 2026-11-22T14:10
  retrial report retrial.db --from 10min
  retrial report -i demo --for 30s
  retrial report retrial.db --html report.html
  retrial report --diff before.db after.db
  retrial report --diff retrial.db --from 10min --to 5min --other-from 5min")]
pub struct Args {
    /// A recording; the live instance otherwise
    #[arg(conflicts_with = "pid")]
    file: Option<PathBuf>,
    /// With --diff: the recording that is compared with the first one; a period of the same one otherwise
    #[arg(value_name = "OTHER", requires = "diff")]
    other: Option<PathBuf>,
    /// Compare two recordings, or two periods of one: what changed, by how much, and whether that is more
    /// than it varies
    ///
    /// Each period is divided into up to 16 parts at its snapshots. How much a figure varies among them is
    /// its spread; a smaller change is noise.
    #[arg(long, requires = "file")]
    diff: bool,
    /// With --diff: the beginning of the second period, as --from
    #[arg(long, value_name = "TIME", requires = "diff")]
    other_from: Option<String>,
    /// With --diff: the end of the second period, as --to
    #[arg(long, value_name = "TIME", requires = "diff")]
    other_to: Option<String>,
    /// Write the report into this file as a page, with the load over the period as charts, rather than print
    /// it
    ///
    /// One file that is read without a network, in light and dark, and printed on A4. With --json and --csv
    /// the figures are printed as well.
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    period: PeriodArgs,
    /// Of a live instance: watch it for so long
    #[arg(long = "for", value_name = "TIME", default_value = "30s", conflicts_with = "file")]
    time: String,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Failure> {
    args.html.as_deref().map(check_page).transpose()?;
    // The page is instead of the text.
    let prints = args.html.is_none() || !format.is_text();
    let page = if let Some(file) = args.file.as_deref().filter(|_| args.diff) {
        let diff = compared(file, &args)?;
        if prints {
            diff.print(format);
        }
        args.html.as_ref().map(|_| diff.html())
    } else {
        let report = args.file.as_ref().map_or_else(|| live(&args), |file| recorded(file, &args))?;
        if prints {
            report.print(format);
        }
        args.html.as_ref().map(|_| report.html())
    };
    if let Some((file, page)) = args.html.zip(page.transpose()?) {
        std::fs::write(&file, page).map_err(|error| unwritable(&file, &error))?;
        format.say(&format!("{} is the report: a page to open in a browser.", file.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// That a page can be there, before an instance is watched for it, and that nothing else is meant to be
/// there.
fn check_page(file: &Path) -> Result<(), Failure> {
    page::check_name(file, "retrial report retrial.db --html report.html")?;
    // `DIRECTORY/.` is there if it is a directory.
    std::fs::metadata(directory(file).join(".")).map(|_| ()).map_err(|error| unwritable(file, &error))
}

fn live(args: &Args) -> Result<Report, Failure> {
    let time = duration::at_least("--for", &args.time, TIME_MIN)?;
    let address = args.which.address()?;
    let observer = Observer::open(&address).map_err(attach_error)?;
    signals::catch();
    let (watched, timed) = std::thread::scope(|scope| {
        let timed = scope.spawn(|| predict::live::holds(observer.tables(), time));
        (sql::watched(&observer, Some(time), sql::SAMPLE, |_| false), timed.join().ok().flatten())
    });
    let (writer, span) = watched?;
    let recording = Recording::of(writer.into_connection());
    let gone = if is_there(observer.tables()) { "" } else { ", which has gone: at the end is when it was seen last" };
    let (of, next) = (
        format!("the live instance{gone}"),
        if gone.is_empty() {
            format!("retrial sql -i {address} 'SELECT * FROM v$mutex_wait'")
        } else {
            "retrial list".to_owned()
        },
    );
    let snapshots = recording.snapshots()?;
    let report = made(&recording, [snapshots[0], snapshots[snapshots.len() - 1]], span, of, next, Source::Live)?;
    Ok(Report { timed, ..report })
}

/// What `of` makes of the reports of a period's parts: it is divided at its snapshots into parts of about the
/// same length, `most` at most.
fn parts<T>(
    recording: &Recording,
    file: &Path,
    part: &Part,
    most: usize,
    of: impl Fn(Report) -> T,
) -> Result<Vec<T>, Failure> {
    let is_within = |at: &Recorded| at.instance == part.to.instance && (part.from.id..=part.to.id).contains(&at.id);
    let within: Vec<Recorded> = recording.snapshots()?.into_iter().filter(is_within).collect();
    let count = within.len().saturating_sub(1).min(most);
    let ends: Vec<Recorded> = (0..=count).map(|i| within[i * (within.len() - 1) / count.max(1)]).collect();
    let mut last: Option<Snapshot> = None;
    let report = |ends: &[Recorded]| {
        let from = last.take().map_or_else(|| recording.snapshot(ends[0].id), Ok)?;
        let to = recording.snapshot(ends[1].id)?;
        last = Some(to.clone());
        let span = Span { from: Some(from), to };
        of_file(recording, file, Part { from: ends[0], to: ends[1], span, note: String::new() }).map(&of)
    };
    ends.windows(2).map(report).collect()
}

/// Maximum number of parts that a period is divided into to see how much its figures vary.
const DIFF_PARTS: usize = 16;

/// A period of `file`, and the one that it is compared with: of the other recording, or another one of this.
fn compared(file: &Path, args: &Args) -> Result<Diff, Failure> {
    let second = PeriodArgs { from: args.other_from.clone(), to: args.other_to.clone() };
    if args.other.is_none() && second.from.is_none() && second.to.is_none() {
        return Err(miette!(
            code = "retrial::report::diff",
            help = "retrial report --diff before.db after.db",
            "--diff with one period of one recording, expected a second recording, or --other-from or --other-to"
        ));
    }
    // Without a second period, the same one of the other recording.
    let same = second.from.is_none() && second.to.is_none();
    let name = args.which.instance.as_deref();
    Ok(Diff {
        before: side(file, &args.period, name)?,
        after: side(args.other.as_deref().unwrap_or(file), if same { &args.period } else { &second }, name)?,
    })
}

fn side(file: &Path, period: &PeriodArgs, name: Option<&str>) -> Result<Side, Failure> {
    let recording = Recording::open(file)?;
    let part = period.of(&recording, file, name, "report --diff")?;
    let parts = parts(&recording, file, &part, DIFF_PARTS, |report| report)?;
    Ok(Side { whole: of_file(&recording, file, part)?, parts })
}

fn recorded(file: &Path, args: &Args) -> Result<Report, Failure> {
    let recording = Recording::open(file)?;
    let part = args.period.of(&recording, file, args.which.instance.as_deref(), "report")?;
    let step = |report| Step::of(&report);
    let course = args.html.as_ref().map(|_| parts(&recording, file, &part, report::PARTS, step)).transpose()?;
    Ok(Report { course: course.unwrap_or_default(), ..of_file(&recording, file, part)? })
}

fn of_file(recording: &Recording, file: &Path, Part { from, to, span, note }: Part) -> Result<Report, Failure> {
    let shown = quoted(&file.to_string_lossy()).into_owned();
    let next = format!("retrial sql {shown} 'SELECT * FROM v$mutex_wait'");
    made(recording, [from, to], span, format!("{shown}{note}"), next, Source::File(shown))
}

fn made(
    recording: &Recording,
    [from, to]: [Recorded; 2],
    span: Span,
    of: String,
    next: String,
    source: Source,
) -> Result<Report, Failure> {
    let rounds = recording.rounds(to.instance, from.id, to.id)?;
    let blockers = recording.blockers(to.instance, from.at_ns, to.at_ns)?;
    let deadlocks = deadlocks::latest(recording, from, to, &span)?;
    Ok(Report { span, rounds, blockers, deadlocks, of, source, next, timed: None, course: Vec::new() })
}
