//! `retrial record`.

use super::period::TIME_MIN;
use crate::instances::{self, Which};
use crate::output::{Format, Stream, Table, column, counted, quoted, rounded, short};
use crate::recording::store::Writer;
use crate::recording::store::parquet::{Partitions, Parts};
use crate::recording::{Pace, Progress, Recorder, Snapshot};
use crate::{duration, signals};
use indicatif::{ProgressBar, ProgressStyle};
use miette::Report;
use retrial::sys::{Clock, clock_ns};
use retrial::{Address, AttachError, Observer};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Record instances into a file: snapshots of all counters, and samples of who holds and who waits
///
/// The file is an `SQLite` database, which `retrial report` and `retrial sql` read, also while it is written.
/// What was written stays whatever happens to the recorder. A recording that is there already goes on. Reads
/// the instances only: no session, no cost to them.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial record -i demo --for 1min
  retrial record --all --keep 8d /var/lib/retrial.db
  retrial record -p 4711 run.db
  retrial record --all --parquet /srv/retrial retrial.db    # beside it, for DuckDB and others
  retrial record --convert --parquet /srv/retrial run.db    # of a recording that is there")]
pub struct Args {
    /// The recording
    #[arg(default_value = "retrial.db")]
    file: PathBuf,
    /// An instance; may be repeated. One of them has to be there, the others are recorded when they come. May be
    /// left out when there is just one
    #[arg(short, long, value_name = "NAME")]
    instance: Vec<String>,
    /// Every instance of this machine, also those to come; which of them this user may not read is said
    #[arg(long, conflicts_with = "instance")]
    all: bool,
    /// The instance of a program under `retrial run`, until it ends
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["instance", "all"])]
    pid: Option<u32>,
    #[command(flatten)]
    pace: PaceArgs,
    /// Write its tables as Parquet files, too: DIR/TABLE/host=H/hour=2026-11-23T07/part-….parquet
    ///
    /// An hour is written when it is over, and what there is of the last one at the end; each file is
    /// complete when it appears. The recording has all rows before: what a killed recorder has not written,
    /// the next one writes, or --convert. --keep removes hours that are older.
    #[arg(long, value_name = "DIR")]
    parquet: Option<PathBuf>,
    /// Record nothing: write the Parquet files of the recording
    #[arg(long, requires = "parquet", conflicts_with_all = ["instance", "all", "pid", "time"])]
    convert: bool,
    /// End after this time, with its unit; at Ctrl-C when left out
    #[arg(long = "for", value_name = "TIME")]
    time: Option<String>,
}

/// How often what is looked at.
#[derive(clap::Args)]
pub struct PaceArgs {
    /// From one snapshot to the next
    #[arg(long, value_name = "TIME", default_value = "10s")]
    interval: String,
    /// From one sample of who holds and who waits to the next; less often where that took more than 1 % of a
    /// processor; 0s for none
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    sample: String,
    /// Remove what is older, and thin out what is older than an eighth of that; everything is kept when left
    /// out
    #[arg(long, value_name = "TIME")]
    keep: Option<String>,
}

/// Shortest interval of snapshots.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Between two looks for instances that have come, and signals.
const LOOK: Duration = Duration::from_millis(250);

impl PaceArgs {
    fn pace(&self) -> Result<Pace, Report> {
        let interval = duration::at_least("--interval", &self.interval, INTERVAL_MIN)?;
        let sample = duration::argument("--sample", &self.sample)?;
        let keep = self.keep.as_deref().map(|text| duration::argument("--keep", text)).transpose()?;
        Ok(Pace { interval, sample: Some(sample).filter(|sample| !sample.is_zero()), keep })
    }
}

/// A snapshot that was written.
struct Written {
    snapshot: i64,
    at_ns: u64,
    instance: String,
    sessions: usize,
    waiting: usize,
    mutexes: usize,
    progress: Progress,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let pace = args.pace.pace()?;
    let directory = args.parquet.as_deref();
    let mut partitions = directory.map(|directory| Partitions::new(directory, pace.keep)).transpose()?;
    if let Some(partitions) = partitions.as_mut().filter(|_| args.convert) {
        let parts = partitions.write(&args.file, u64::MAX)?;
        format.say(&told(parts, args.parquet.as_deref()));
        if !format.is_text() {
            let columns = [column("files", |parts: &Parts| parts.files), column("rows", |parts: &Parts| parts.rows)];
            Table::of(&columns, [parts]).print(format);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let time = args.time.as_deref().map(|text| duration::at_least("--for", text, TIME_MIN)).transpose()?;
    let wanted = Wanted::of(&args)?;
    let recorder = Recorder::new(Writer::open(&args.file)?, pace);
    signals::catch();
    let columns = [
        column("snapshot", |written: &Written| written.snapshot),
        column("time", |written: &Written| crate::clock::time(written.at_ns)),
        column("instance", |written: &Written| written.instance.clone()),
        column("sessions", |written: &Written| written.sessions),
        column("waiting", |written: &Written| written.waiting),
        column("mutexes", |written: &Written| written.mutexes),
        column("size_bytes", |written: &Written| written.progress.size_bytes),
        column("samples", |written: &Written| written.progress.samples),
        column("recorder_cpu_pct", |written: &Written| recorder_pct(written.progress)),
    ];
    let stream = Stream::new(&columns, format);
    let mut unwritten = None;
    let (sender, written) = mpsc::channel();
    let tell = |snapshot: &Snapshot, id| {
        // The thread that would read it has ended with an error.
        let _ = sender.send(Written {
            snapshot: id,
            at_ns: snapshot.at.real_ns,
            instance: snapshot.instance.name.clone(),
            sessions: snapshot.sessions.len(),
            waiting: snapshot.sessions.iter().filter(|session| session.info.wait.is_some()).count(),
            mutexes: snapshot.mutexes.len(),
            progress: recorder.progress(),
        });
    };
    let until = time.map_or_else(|| "until Ctrl-C".to_owned(), |time| format!("for {}", duration::text(time)));
    format.say(&format!("Recording {} into {}, {until}", wanted.text(), args.file.display()));
    std::thread::scope(|scope| {
        let mut hours = partitions.as_mut().map(|partitions| Hours { partitions, file: &args.file, next_ns: 0 });
        watch(scope, &wanted, &recorder, &tell, time, |wait| {
            let first = written.recv_timeout(wait);
            first.into_iter().chain(written.try_iter()).for_each(|written| stream.row(&written));
            if let Some(Err(failure)) = hours.as_mut().map(Hours::write) {
                unwritten = Some(failure);
                recorder.stop();
            }
        });
    });
    let progress = recorder.progress();
    recorder.finish()?;
    if let Some(failure) = unwritten {
        return Err(failure);
    }
    format.say(&text(progress, &args.file));
    if let Some(mut partitions) = partitions {
        let parts = partitions.write(&args.file, u64::MAX)?;
        format.say(&told(parts, args.parquet.as_deref()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Share of a processor in %; nothing while it is mostly the work of the beginning.
fn recorder_pct(progress: Progress) -> Option<f64> {
    const LEAST_NS: u64 = 1_000_000_000;
    (progress.wall_ns >= LEAST_NS).then(|| rounded(100.0 * progress.share(), 3))
}

/// Writes the Parquet files of an hour some time after its end, when all that is stamped with it is recorded.
struct Hours<'a> {
    partitions: &'a mut Partitions,
    file: &'a Path,
    next_ns: u64,
}

/// From one look for hours that are over to the next.
const HOURS_NS: u64 = 300_000_000_000;

impl Hours<'_> {
    fn write(&mut self) -> Result<(), Report> {
        let now_ns = clock_ns(Clock::Realtime);
        if now_ns < self.next_ns {
            return Ok(());
        }
        self.next_ns = now_ns + HOURS_NS;
        self.partitions.write(self.file, now_ns).map(|_| ())
    }
}

fn told(parts: Parts, directory: Option<&Path>) -> String {
    let shown = directory.map(|directory| quoted(&directory.to_string_lossy()).into_owned()).unwrap_or_default();
    format!(
        "{} with {} in {shown}.\nNext: duckdb -c \"SELECT * FROM read_parquet('{shown}/snapshot/**/*.parquet')\"",
        counted(parts.files, "Parquet file", "Parquet files"),
        counted(parts.rows, "row", "rows"),
    )
}

fn text(progress: Progress, file: &Path) -> String {
    let shown = quoted(&file.to_string_lossy()).into_owned();
    format!(
        "{} and {} in {shown}, {} MB. The recorder took {} % of a processor.\n\
         Next: retrial report {shown}, retrial sql {shown}",
        counted(progress.snapshots, "snapshot", "snapshots"),
        counted(progress.samples, "sample", "samples"),
        short(size_mb(file)),
        short(100.0 * progress.share()),
    )
}

fn size_mb(file: &Path) -> f64 {
    std::fs::metadata(file).map_or(0.0, |metadata| metadata.len() as f64 / 1e6)
}

/// Records what is wanted, as it comes and goes, until the time is over, a signal comes, or a write fails;
/// `print` prints what was written, and waits for so long for it.
fn watch<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    wanted: &Wanted,
    recorder: &'env Recorder,
    tell: &'env (dyn Fn(&Snapshot, i64) + Sync),
    time: Option<Duration>,
    mut print: impl FnMut(Duration),
) {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{msg}") {
        bar.set_style(style);
    }
    let began = Instant::now();
    let mut threads: HashMap<String, ScopedJoinHandle<'scope, ()>> = HashMap::new();
    let mut refused: HashSet<String> = HashSet::new();
    loop {
        threads.retain(|_, thread| !thread.is_finished());
        for address in wanted.addresses() {
            let name = address.to_string();
            if threads.contains_key(&name) {
                continue;
            }
            match Observer::open(&address) {
                Ok(observer) => {
                    threads.insert(name, scope.spawn(move || recorder.record(&observer, tell)));
                }
                Err(AttachError::NotFound(_)) => {}
                Err(error) => {
                    if refused.insert(name) {
                        bar.suspend(|| eprintln!("{:?}", instances::attach_error(error)));
                    }
                }
            }
        }
        let over = time.is_some_and(|time| began.elapsed() >= time);
        let ended = wanted.is_one_program && threads.is_empty();
        if over || ended || recorder.is_stopped() || signals::received().is_some() {
            break;
        }
        let progress = recorder.progress();
        bar.set_message(format!(
            "{}, {}, {}, {} MB; the recorder takes {} % of a processor",
            counted(threads.len() as u64, "instance", "instances"),
            counted(progress.snapshots, "snapshot", "snapshots"),
            counted(progress.samples, "sample", "samples"),
            short(progress.size_bytes as f64 / 1e6),
            short(100.0 * progress.share()),
        ));
        let left = time.map_or(LOOK, |time| time.saturating_sub(began.elapsed()));
        print(LOOK.min(left));
    }
    bar.finish_and_clear();
    recorder.stop();
    for thread in threads.into_values() {
        thread.thread().unpark();
        let _ = thread.join();
    }
    print(Duration::ZERO);
}

/// What is to be recorded.
struct Wanted {
    /// Empty: all.
    addresses: Vec<Address>,
    /// Ends with the program.
    is_one_program: bool,
}

impl Wanted {
    /// One of the instances that are named is to be there at the begin; the others may come.
    fn of(args: &Args) -> Result<Self, Report> {
        if args.all {
            instances::names()?;
            return Ok(Self { addresses: Vec::new(), is_one_program: false });
        }
        if let Some(pid) = args.pid {
            return Ok(Self {
                addresses: vec![Which { instance: None, pid: Some(pid) }.address()?],
                is_one_program: true,
            });
        }
        let addresses = match args.instance.as_slice() {
            [] => vec![Which::default().address()?],
            names => names.iter().map(|name| instances::address(name)).collect::<Result<_, _>>()?,
        };
        let (there, not): (Vec<_>, Vec<_>) = addresses.iter().map(Observer::open).partition(Result::is_ok);
        let may_come = |error: &AttachError| !there.is_empty() && matches!(error, AttachError::NotFound(_));
        if let Some(error) = not.into_iter().filter_map(Result::err).find(|error| !may_come(error)) {
            return Err(instances::attach_error(error));
        }
        Ok(Self { addresses, is_one_program: false })
    }

    fn addresses(&self) -> Vec<Address> {
        if !self.addresses.is_empty() {
            return self.addresses.clone();
        }
        let names = retrial::list().unwrap_or_default();
        names.iter().filter_map(|name| Address::new(name).ok()).collect()
    }

    fn text(&self) -> String {
        if self.addresses.is_empty() {
            return "all instances".to_owned();
        }
        let is_to_come = |address: &Address| matches!(Observer::open(address), Err(AttachError::NotFound(_)));
        let text =
            |address: &Address| format!("{address}{}", if is_to_come(address) { " (when it comes)" } else { "" });
        self.addresses.iter().map(text).collect::<Vec<_>>().join(", ")
    }
}
