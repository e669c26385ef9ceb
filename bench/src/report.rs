//! What all commands have in common: options, the header, and where figures go.

use crate::measurement::Load;
use crate::page;
use crate::peers::{self, Entry};
use crate::plan::{self, Group};
use crate::row::{self, Row};
use indicatif::{ProgressBar, ProgressStyle};
use miette::{IntoDiagnostic, Report, WrapErr, miette};
use retrial::P;
use retrial_bench::arguments::{positive, setting as setting_of};
use retrial_bench::board::WINDOWS;
use retrial_bench::cell::{Conditions, Ending};
use retrial_bench::clock::Clock;
use retrial_bench::errors::param_error;
use retrial_bench::load::Distribution;
use retrial_bench::machine::Machine;
use retrial_bench::output::{Format, Table, line};
use retrial_bench::process::take_precedence;
use retrial_bench::work::Work;
use retrial_bench::{duration, signals};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Where figures go beside the tables.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Output {
    /// Print figures as JSON instead of tables
    #[arg(long, global = true)]
    pub json: bool,
    /// Write figures to this file as CSV, group by group as they come
    #[arg(long, global = true, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a page with plots and figures to this file
    #[arg(long, global = true, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl Output {
    /// Prints a line for people.
    pub fn say(&self, text: &str) {
        if !self.json {
            line(text);
        }
    }

    /// All figures of what is not measured group by group, everywhere; the lines are above them in the page.
    pub fn whole(&self, lines: &[String], table: &Table) -> Result<(), Report> {
        self.say(&table.text());
        if let Some(path) = &self.csv {
            write(path, table.csv().as_bytes())?;
        }
        self.end(lines, table)
    }

    /// All figures at the end, where they were asked for: as JSON, and as a page under these lines.
    pub fn end(&self, lines: &[String], table: &Table) -> Result<(), Report> {
        if self.json {
            table.print(Format { json: true, csv: false });
        }
        if let Some(path) = &self.html {
            write(path, page::of_table(lines, table).as_bytes())?;
        }
        Ok(())
    }
}

/// A bar of so many steps: drawn to stderr, and only when that is a terminal. No thread of its own: we fork.
pub fn bar(length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {msg}  {eta} left").unwrap_or(ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}

/// How long sessions that still wait are waited for after the end.
const GRACE: Duration = Duration::from_millis(500);

/// Of a round, where nothing else is said.
pub const ROUNDS: u32 = 5;
pub const DURATION: Duration = Duration::from_millis(500);

/// What is measured, and how often.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Only peers whose name contains one of these
    #[arg(long, value_name = "PART,…", value_delimiter = ',')]
    pub peers: Vec<String>,
    /// Set a parameter for the schemes of ours; may be repeated
    #[arg(long = "set", value_name = "P=V")]
    settings: Vec<String>,
    /// Rounds through all peers [default: 5; `thinking`: 3; with --quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Time of a peer in a round [default: 500ms; `thinking`: 10s; with --quick: a fifth of it]
    #[arg(long, value_name = "T", value_parser = positive)]
    pub duration: Option<Duration>,
    /// A look that takes seconds: short rounds of a small load, whose figures mean little
    #[arg(long)]
    pub quick: bool,
    /// Go on with what the file of --csv has; what it lacks is measured
    #[arg(long)]
    pub resume: bool,
}

impl Options {
    pub fn rounds(&self, usual: u32) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { usual })
    }

    pub fn duration(&self, usual: Duration) -> Duration {
        self.duration.unwrap_or(if self.quick { usual / 5 } else { usual })
    }

    /// The list unless it was left out and `--quick` has another.
    pub fn or_quick<T: Clone>(&self, given: &[T], usual: &[T], quick: &[T]) -> Vec<T> {
        match (given, self.quick) {
            ([], true) => quick.to_vec(),
            ([], false) => usual.to_vec(),
            (given, _) => given.to_vec(),
        }
    }

    pub fn chosen(&self, all: Vec<Entry>) -> Result<Vec<Entry>, Report> {
        peers::chosen(all, &self.peers)
    }

    pub fn settings(&self) -> Result<Vec<(P, String)>, Report> {
        let parsed = |setting: &String| {
            let (p, value) = setting_of(setting).map_err(|e| param_error(&e))?;
            if p == P::Scheme {
                return Err(miette!(
                    code = "bench::set",
                    help = format!("--peers {value}"),
                    "every scheme is a peer, it cannot be set"
                ));
            }
            p.parse(value, retrial::wait::DEFAULT).map_err(|e| param_error(&e))?;
            Ok((p, value.to_owned()))
        };
        self.settings.iter().map(parsed).collect()
    }
}

/// How a group is measured.
pub fn conditions(load: Load, duration: Duration) -> Conditions {
    let window = Duration::from_millis(if load == Load::Thinking { 1000 } else { 250 });
    Conditions {
        reads: load == Load::Readers,
        section: Distribution::Fixed,
        think: Distribution::Exponential,
        duration,
        window: window.max(duration / WINDOWS as u32).min(duration),
        stuck_after: None,
        ending: Ending::Within(GRACE),
        work: Work::calibrate(),
        clock: Clock::calibrate(),
    }
}

/// The machine, the build, and who is absent.
pub fn header() -> Vec<String> {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let build = if cfg!(debug_assertions) { "DEBUG BUILD, " } else { "" };
    let mut lines = vec![format!(
        "retrial {} on {}, {build}load before {}",
        env!("CARGO_PKG_VERSION"),
        Machine::line(),
        load.split(' ').next().unwrap_or("unknown")
    )];
    if !peers::ABSENT.is_empty() {
        lines.push(format!("absent: {}", peers::ABSENT));
    }
    lines
}

/// Measures groups and reports: tables as the groups come, then what else was asked for.
pub fn measure(groups: &[Group], options: &Options, output: &Output) -> Result<ExitCode, Report> {
    let settings = options.settings()?;
    if groups.iter().all(|group| group.peers.is_empty()) {
        return Err(miette!(
            code = "bench::peers",
            help = "--kind threads",
            "none of these peers works between processes"
        ));
    }
    let (mut file, old) = open(output.csv.as_deref(), options.resume, groups)?;
    let missing: Vec<&Group> = groups.iter().filter(|group| !has(&old, group)).collect();
    let mut lines = header();
    lines.push(rounds(groups));
    if !settings.is_empty() {
        lines.push(format!("schemes of ours with {}", options.settings.join(", ")));
    }
    output.say(&lines.join("\n"));
    eprintln!(
        "{} of {} groups to measure, about {}",
        missing.len(),
        groups.len(),
        duration::text(plan::time(missing.iter().copied()))
    );
    signals::catch();
    take_precedence();
    let mut rows = old;
    let all_done = plan::run(&missing, &settings, |group, new| {
        if !new.is_empty() {
            output.say(&format!("\n{}", group.table(&new)));
        }
        append(file.as_mut(), &new)?;
        rows.extend(new);
        Ok::<(), Report>(())
    })?;
    let place = |row: &Row| groups.iter().position(|group| group.key() == row.key());
    rows.sort_by_key(place);
    if output.json {
        row::table(&rows).print(Format { json: true, csv: false });
    }
    if let Some(path) = &output.html {
        write(path, page::of_rows(&lines, &rows)?.as_bytes())?;
    }
    let errors: u64 = rows.iter().map(|row| row.errors).sum();
    if errors > 0 {
        eprintln!("{errors} errors: figures of these peers are worth nothing until they are explained");
    }
    if !all_done {
        eprintln!("interrupted; {} rows", rows.len());
    }
    Ok(if errors > 0 || !all_done { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

/// How often each peer is measured, and for how long, in words.
fn rounds(groups: &[Group]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for group in groups {
        let text = format!("{} × {}", group.rounds, duration::text(group.conditions.duration));
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    format!("rounds of each peer: {}", texts.join(", "))
}

/// Whether the rows have all that the group would give.
fn has(rows: &[Row], group: &Group) -> bool {
    let key = group.key();
    let complete = |row: &&Row| row.rounds >= group.rounds || row.note.starts_with("not measured");
    let own: Vec<&str> =
        rows.iter().filter(|row| row.key() == key).filter(complete).map(|row| row.peer.as_str()).collect();
    group.peers.iter().all(|peer| own.contains(&peer.name))
}

/// Opens the file for CSV and gives what it has of these groups, whole ones only: the rest is measured again.
fn open(path: Option<&Path>, resume: bool, groups: &[Group]) -> Result<(Option<File>, Vec<Row>), Report> {
    let Some(path) = path else {
        return if resume {
            Err(miette!(
                code = "bench::resume",
                help = "--csv FILE --resume",
                "--resume without the file to go on with"
            ))
        } else {
            Ok((None, Vec::new()))
        };
    };
    let old = if resume && path.exists() { row::read(path)? } else { Vec::new() };
    let other_time = |row: &&Row| {
        groups.iter().any(|g| g.key() == row.key() && g.conditions.duration.as_millis() != u128::from(row.duration_ms))
    };
    if let Some(row) = old.iter().find(other_time) {
        return Err(miette!(
            code = "bench::resume",
            help = format!("--duration {}ms, or another file", row.duration_ms),
            "{} has measurements of {} ms",
            path.display(),
            row.duration_ms
        ));
    }
    let kept = |row: &Row| groups.iter().any(|group| group.key() == row.key() && has(&old, group));
    let old: Vec<Row> = old.iter().filter(|row| kept(row)).cloned().collect();
    let failed = || format!("{} cannot be written", path.display());
    let mut options = OpenOptions::new();
    options.write(true).truncate(true).create(true).create_new(!resume);
    let mut file = options.open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            miette!(code = "bench::csv", help = "--resume goes on with it", "{} exists already", path.display())
        }
        _ => miette!(code = "bench::csv", "{}: {error}", failed()),
    })?;
    append(Some(&mut file), &old).wrap_err_with(failed)?;
    Ok((Some(file), old))
}

/// Adds rows to the file, under the header when they are the first.
fn append(file: Option<&mut File>, rows: &[Row]) -> Result<(), Report> {
    let Some(file) = file.filter(|_| !rows.is_empty()) else { return Ok(()) };
    let first = file.metadata().into_diagnostic()?.len() == 0;
    file.write_all(&row::csv(rows, first)?).into_diagnostic()?;
    file.flush().into_diagnostic()
}

pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Report> {
    fs::write(path, bytes).into_diagnostic().wrap_err_with(|| format!("{} cannot be written", path.display()))
}
