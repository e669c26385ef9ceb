//! Processes that contend for a robust process-shared mutex, half of them killed: whether the others go on, plain and under
//! `retrial run`.
//!
//! The rounds are those of a program in C, `programs/killed.c`, which is compiled at the start; what it checks is said there.
//! Blocks of rounds of the variants take turns, with the same seeds.

use crate::command;
use crate::report::{self, Output, header};
use crate::row;
use indicatif::{ProgressBar, ProgressStyle};
use miette::{IntoDiagnostic, Report, WrapErr, miette};
use retrial::P;
use retrial::wait::{DEFAULT, NAMES};
use retrial_bench::arguments::positive;
use retrial_bench::errors::param_error;
use retrial_bench::output::rounded;
use retrial_bench::{duration, signals};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Kill half of the processes that contend for a robust mutex: do the others go on?
///
/// Six processes, each started by exec, get one robust process-shared mutex again and again; three of them are killed at random
/// moments; the others must get it so many times more. A hang: those who are left stand still, asleep at all of 2,000 looks a
/// millisecond apart, or awake at some of 10,000. It is shown whether the mutex was free then, and whether one wake-up by hand let
/// all go on. What the mutex protects shows violations. Exit code 1: a variant under `retrial run` hung or violated something.
#[derive(clap::Args)]
pub struct Args {
    /// Rounds of each variant with each holding time
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// Times in the critical section, as busy work
    #[arg(long, value_name = "T,…", value_delimiter = ',', default_value = "20us,50us,200us", value_parser = positive)]
    holds: Vec<Duration>,
    /// Gets of each survivor after the last kill
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    gets: u32,
    /// How sessions wait under `retrial run`; may be repeated [default: that of `retrial run`]
    #[arg(long = "scheme", value_name = "SCHEME")]
    schemes: Vec<String>,
    /// Decides who is killed in the first round, and when; each further round has the next seed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=u64::MAX / 2))]
    seed: u64,
    /// Instead, six `mdb_load` on one LMDB environment, which is verified after each round
    #[arg(long)]
    mdb_load: bool,
    /// The command `retrial` [default: beside this one]
    #[arg(long, value_name = "PATH")]
    retrial: Option<PathBuf>,
}

const SOURCE: &str = include_str!("../programs/killed.c");

/// Rounds that a variant has in a row.
const BLOCK: u32 = 10;
/// Processes of a round.
const PROCESSES: usize = 6;
/// Records that each `mdb_load` has: about a fifth of a second for six of them on two processors.
const RECORDS: u32 = 20_000;
/// Of the word of a robust mutex: who has it.
const OWNER: u32 = 0x3fff_ffff;

/// What the rounds of a variant came to. `None` where it is not known: a mutex in LMDB is not looked into, glibc counts no calls.
#[derive(Serialize, Clone, Default)]
struct Row {
    variant: String,
    hold_us: Option<f64>,
    rounds: u32,
    hangs: u32,
    hangs_percent: f64,
    /// Hangs while nobody had the mutex.
    word_free: Option<u32>,
    /// Hangs that one wake-up by hand ended.
    woken: Option<u32>,
    violations: u64,
    /// Gets that found `ENOTRECOVERABLE`.
    not_recoverable: u32,
    /// Survivors that ended otherwise than by exit 0.
    errors: u32,
    kills: u32,
    /// Killed inside the critical section.
    holders_killed: Option<u32>,
    /// Gets that found `EOWNERDEAD`.
    owner_deaths: Option<u32>,
    /// Calls on mutexes, as the report of `retrial run` has them.
    handled: Option<u64>,
    fallback: Option<u64>,
}

/// How processes wait: by a scheme, or as glibc does.
struct Variant {
    name: String,
    scheme: Option<String>,
}

/// What is run in the rounds.
#[derive(Clone, Copy)]
enum Load {
    Own { hold: Duration, gets: u32 },
    MdbLoad,
}

/// A line of the program.
#[derive(Deserialize)]
struct Round {
    seed: u64,
    kills: u32,
    holders_killed: u32,
    owner_deaths: u32,
    violations: u64,
    not_recoverable: u32,
    errors: u32,
    hung: bool,
    woken: bool,
    word: u32,
    states: String,
}

impl Round {
    const fn is_wrong(&self) -> bool {
        self.violations > 0 || self.errors > 0 || self.not_recoverable > 0
    }
}

impl Row {
    fn new(variant: &Variant, load: Load) -> Self {
        let hold_us = match load {
            Load::Own { hold, .. } => Some(hold.as_secs_f64() * 1e6),
            Load::MdbLoad => None,
        };
        let looks_into = hold_us.map(|_| 0);
        let counted = variant.scheme.as_ref().map(|_| 0);
        Self {
            variant: variant.name.clone(),
            hold_us,
            word_free: looks_into,
            woken: looks_into,
            holders_killed: looks_into,
            owner_deaths: looks_into,
            handled: counted,
            fallback: counted,
            ..Self::default()
        }
    }

    fn add(&mut self, round: &Round) {
        let more = |figure: &mut Option<u32>, by: u32| *figure = figure.map(|figure| figure + by);
        self.rounds += 1;
        self.hangs += u32::from(round.hung);
        self.hangs_percent = rounded(f64::from(self.hangs) / f64::from(self.rounds) * 100.0, 2);
        more(&mut self.word_free, u32::from(round.hung && round.word & OWNER == 0));
        more(&mut self.woken, u32::from(round.woken));
        self.violations += round.violations;
        self.not_recoverable += round.not_recoverable;
        self.errors += round.errors;
        self.kills += round.kills;
        more(&mut self.holders_killed, round.holders_killed);
        more(&mut self.owner_deaths, round.owner_deaths);
    }

    fn is_wrong(&self) -> bool {
        self.hangs > 0 || self.violations > 0 || self.errors > 0 || self.not_recoverable > 0
    }
}

/// What is needed for rounds, in a directory that goes with this value.
struct Kit {
    directory: PathBuf,
    program: PathBuf,
    retrial: PathBuf,
}

impl Drop for Kit {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Kit {
    fn new(retrial: Option<&Path>) -> Result<Self, Report> {
        let retrial = command::retrial(retrial)?;
        // In memory where there is such a directory: commits of LMDB are not to wait for a disk.
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let directory = parent.join(format!("bench-killed-{}", std::process::id()));
        let kit = Self { program: directory.join("killed"), directory, retrial };
        let (path, source) = (&kit.directory, kit.directory.join("killed.c"));
        fs::create_dir(path).into_diagnostic().wrap_err_with(|| format!("{} cannot be made", path.display()))?;
        report::write(&source, SOURCE.as_bytes())?;
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let compiled = Command::new(&compiler).args(["-O2", "-pthread", "-o"]).arg(&kit.program).arg(&source).status();
        if compiled.is_ok_and(|status| status.success()) {
            return Ok(kit);
        }
        Err(miette!(
            code = "bench::killed::compiler",
            help = "apt-get install gcc libc6-dev",
            "{} does not compile a C program",
            compiler.display()
        ))
    }

    /// The command that runs the program, with where its report goes.
    fn command(&self, variant: &Variant) -> (Command, Option<PathBuf>) {
        let Some(scheme) = &variant.scheme else { return (Command::new(&self.program), None) };
        let report = self.directory.join("report.json");
        let mut command = Command::new(&self.retrial);
        command.args(["run", "--json", "--scheme", scheme, "--report"]).arg(&report).arg("--").arg(&self.program);
        (command, Some(report))
    }

    /// Runs the program and adds its rounds to the row; `each` is given every round as it ends, for what else is to be looked at.
    fn run(
        &self,
        variant: &Variant,
        arguments: &[String],
        row: &mut Row,
        mut each: impl FnMut(&mut Round) -> Result<(), Report>,
    ) -> Result<(), Report> {
        let (mut command, report) = self.command(variant);
        let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().into_diagnostic()?;
        let stdout = child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines());
        for line in stdout {
            let line = line.into_diagnostic()?;
            let parsed: Result<Round, _> = serde_json::from_str(&line);
            let mut round = parsed.map_err(|error| miette!("`{line}` is no line of killed.c: {error}"))?;
            each(&mut round)?;
            row.add(&round);
        }
        let status = child.wait().into_diagnostic()?;
        if signals::received().is_none() && !status.success() {
            return Err(miette!("killed.c {} under {} ended with {status}", arguments.join(" "), variant.name));
        }
        if let Some(report) = report.filter(|_| status.success()) {
            let report: Value = serde_json::from_slice(&fs::read(report).into_diagnostic()?).into_diagnostic()?;
            let sum = |column: &str| {
                let rows = report["calls"].as_array().into_iter().flatten();
                rows.filter_map(|row| row[column].as_u64()).sum::<u64>()
            };
            row.handled = row.handled.map(|handled| handled + sum("handled"));
            row.fallback = row.fallback.map(|fallback| fallback + sum("fallback"));
        }
        Ok(())
    }

    /// A block of rounds from this seed on.
    fn block(
        &self,
        variant: &Variant,
        load: Load,
        seeds: std::ops::Range<u64>,
        row: &mut Row,
        mut each: impl FnMut(&Round),
    ) -> Result<(), Report> {
        match load {
            Load::Own { hold, gets } => {
                let numbers = [u128::from(seeds.end - seeds.start), hold.as_nanos(), gets.into(), seeds.start.into()];
                let mut arguments = vec!["rounds".to_owned()];
                arguments.extend(numbers.iter().map(u128::to_string));
                self.run(variant, &arguments, row, |round| {
                    each(round);
                    Ok(())
                })
            }
            Load::MdbLoad => {
                for seed in seeds {
                    let environment = self.directory.join("environment");
                    let _ = fs::remove_dir_all(&environment);
                    fs::create_dir(&environment).into_diagnostic()?;
                    let mut arguments =
                        vec!["load".to_owned(), seed.to_string(), environment.to_string_lossy().into_owned()];
                    arguments.extend((0..PROCESSES).map(|i| self.records(i).to_string_lossy().into_owned()));
                    self.run(variant, &arguments, row, |round| {
                        let complete = if round.hung { 0 } else { PROCESSES - round.kills as usize };
                        round.violations += u64::from(!is_whole(&environment, complete)?);
                        each(round);
                        Ok(())
                    })?;
                    if signals::received().is_some() {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// The file that one `mdb_load` loads.
    fn records(&self, process: usize) -> PathBuf {
        self.directory.join(format!("records-{process}"))
    }

    fn write_records(&self) -> Result<(), Report> {
        for process in 0..PROCESSES {
            let mut text = "VERSION=3\nformat=print\ntype=btree\nmapsize=268435456\nHEADER=END\n".to_owned();
            for number in 0..RECORDS {
                let (key, value) = record(process, number);
                let _ = writeln!(text, " {key}\n {value}");
            }
            text.push_str("DATA=END\n");
            report::write(&self.records(process), text.as_bytes())?;
        }
        Ok(())
    }
}

/// Key and value; keys of a process are in their order.
fn record(process: usize, number: u32) -> (String, String) {
    (format!("{process}-{number:06}"), format!("{:060}", u64::from(number) * 7919 + process as u64))
}

/// Whether a dump has keys in ascending order, of each process its first records with their values, of so many processes all
/// records, and as many entries as the statistics say.
fn is_whole(environment: &Path, complete: usize) -> Result<bool, Report> {
    let dump = mdb("mdb_dump", &["-p", &environment.to_string_lossy()])?;
    let statistics = mdb("mdb_stat", &[&environment.to_string_lossy()])?;
    let entries = statistics.lines().find_map(|line| line.trim().strip_prefix("Entries: ")?.parse().ok());
    Ok(dump_is_whole(&dump, entries, complete))
}

fn dump_is_whole(dump: &str, entries: Option<usize>, complete: usize) -> bool {
    let lines: Vec<&str> = dump.lines().filter_map(|line| line.strip_prefix(' ')).collect();
    let (pairs, rest) = lines.as_chunks::<2>();
    let mut loaded = [0; PROCESSES];
    for [key, value] in pairs {
        let process = key.split('-').next().and_then(|text| text.parse::<usize>().ok());
        let Some((process, number)) = process.and_then(|process| Some((process, loaded.get_mut(process)?))) else {
            return false;
        };
        if record(process, *number) != ((*key).to_owned(), (*value).to_owned()) {
            return false;
        }
        *number += 1;
    }
    rest.is_empty()
        && pairs.is_sorted_by(|a, b| a[0] < b[0])
        && entries == Some(pairs.len())
        && loaded.iter().filter(|number| **number == RECORDS).count() >= complete
}

/// What a tool of LMDB prints.
fn mdb(tool: &str, arguments: &[&str]) -> Result<String, Report> {
    let output = Command::new(tool).args(arguments).output().map_err(|error| {
        miette!(code = "bench::killed::lmdb", help = "apt-get install lmdb-utils", "{tool} cannot be run: {error}")
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(miette!(code = "bench::killed::lmdb", "{tool} ended with {}: {}", output.status, said.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn variants(schemes: &[String]) -> Result<Vec<Variant>, Report> {
    let schemes = if schemes.is_empty() { vec![NAMES[DEFAULT].to_owned()] } else { schemes.to_vec() };
    let mut variants = vec![Variant { name: "glibc".to_owned(), scheme: None }];
    for scheme in schemes {
        P::Scheme.parse(&scheme, DEFAULT).map_err(|error| param_error(&error))?;
        variants.push(Variant { name: format!("retrial {scheme}"), scheme: Some(scheme) });
    }
    Ok(variants)
}

/// About what they take on two processors: a fifth of glibc's rounds of our own program hang, for two or three seconds.
fn time(variants: usize, rounds: u32, loads: &[Load]) -> Duration {
    let of = |load: &Load| match load {
        Load::Own { .. } => (Duration::from_millis(600), Duration::from_millis(100)),
        Load::MdbLoad => (Duration::from_millis(500), Duration::from_millis(400)),
    };
    let others = u32::try_from(variants - 1).unwrap_or(u32::MAX);
    loads.iter().map(of).map(|(glibc, ours)| (glibc + ours * others) * rounds).sum()
}

pub fn run(args: &Args, output: &Output) -> Result<ExitCode, Report> {
    let variants = variants(&args.schemes)?;
    if args.mdb_load {
        mdb("mdb_load", &["-V"])?;
    }
    let kit = Kit::new(args.retrial.as_deref())?;
    let loads: Vec<Load> = if args.mdb_load {
        kit.write_records()?;
        vec![Load::MdbLoad]
    } else {
        args.holds.iter().map(|hold| Load::Own { hold: *hold, gets: args.gets }).collect()
    };
    let mut lines = header();
    lines.push(if args.mdb_load {
        format!("6 mdb_load on one environment, 3 killed at random moments; seed {}", args.seed)
    } else {
        format!(
            "6 processes on one robust process-shared mutex, 3 killed at random moments within 50 sections; each of the others \
             needs {} gets more; seed {}",
            args.gets, args.seed
        )
    });
    output.say(&lines.join("\n"));
    let all = u64::from(args.rounds) * variants.len() as u64 * loads.len() as u64;
    eprintln!("{all} rounds, about {}", duration::text(time(variants.len(), args.rounds, &loads)));
    signals::catch();
    // Drawn to stderr, and only when that is a terminal.
    let style = ProgressStyle::with_template("{bar:30} {msg}  {eta} left").unwrap_or(ProgressStyle::default_bar());
    let bar = ProgressBar::new(all).with_style(style);
    let mut rows = Vec::new();
    for load in loads {
        let new = measure(&kit, &variants, load, args, &bar)?;
        bar.suspend(|| output.say(&format!("\n{}", row::table(&new).text())));
        rows.extend(new);
        if let Some(path) = &output.csv {
            report::write(path, &row::csv(&rows, true)?)?;
        }
        if signals::received().is_some() {
            break;
        }
    }
    bar.finish_and_clear();
    output.end(&lines, &row::table(&rows))?;
    if signals::received().is_some() {
        eprintln!("interrupted; {} of {all} rounds", rows.iter().map(|row| u64::from(row.rounds)).sum::<u64>());
        return Ok(ExitCode::from(2));
    }
    if let Some(row) = rows.iter().find(|row| row.handled == Some(0)) {
        return Err(miette!(
            code = "bench::killed::handled",
            "{} handled no call: its rounds are glibc's",
            row.variant
        ));
    }
    let ours_is_wrong = rows.iter().any(|row| row.handled.is_some() && row.is_wrong());
    Ok(ExitCode::from(u8::from(ours_is_wrong)))
}

/// All rounds of one load, in blocks that take turns, each time another variant first.
fn measure(kit: &Kit, variants: &[Variant], load: Load, args: &Args, bar: &ProgressBar) -> Result<Vec<Row>, Report> {
    let mut rows: Vec<Row> = variants.iter().map(|variant| Row::new(variant, load)).collect();
    for (block, from) in (0..args.rounds).step_by(BLOCK as usize).enumerate() {
        let to = args.rounds.min(from + BLOCK);
        let seeds = args.seed + u64::from(from)..args.seed + u64::from(to);
        for index in (0..variants.len()).map(|i| (block + i) % variants.len()) {
            let variant = &variants[index];
            bar.set_message(format!("{}{}, rounds {}–{to}", title(load), variant.name, from + 1));
            kit.block(variant, load, seeds.clone(), &mut rows[index], |round| {
                bar.inc(1);
                if round.is_wrong() || round.hung && variant.scheme.is_some() {
                    bar.suspend(|| eprintln!("{}", finding(variant, load, round)));
                }
            })?;
            if signals::received().is_some() {
                return Ok(rows);
            }
        }
    }
    Ok(rows)
}

fn title(load: Load) -> String {
    match load {
        Load::Own { hold, .. } => format!("sections of {}, ", duration::text(hold)),
        Load::MdbLoad => String::new(),
    }
}

/// What is wrong with a round, with the command that repeats it.
fn finding(variant: &Variant, load: Load, round: &Round) -> String {
    let Round { seed, violations, errors, not_recoverable, word, states, .. } = round;
    let hung = if round.hung { format!("hung, word {word:#x}, {states}; ") } else { String::new() };
    let scheme = variant.scheme.as_deref().map_or_else(String::new, |scheme| format!(" --scheme {scheme}"));
    let load = match load {
        Load::Own { hold, gets } => format!(" --holds {}ns --gets {gets}", hold.as_nanos()),
        Load::MdbLoad => " --mdb-load".to_owned(),
    };
    format!(
        "{}: {hung}{violations} violations, {errors} errors, {not_recoverable} not recoverable; again: cargo run --release -p \
         bench -- killed{load}{scheme} --rounds 1 --seed {seed}",
        variant.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(records: &[(usize, u32)]) -> String {
        let mut text = "VERSION=3\nHEADER=END\n".to_owned();
        for (process, number) in records {
            let (key, value) = record(*process, *number);
            let _ = writeln!(text, " {key}\n {value}");
        }
        text + "DATA=END\n"
    }

    #[test]
    fn a_dump_is_whole_when_it_has_the_first_records_of_each() {
        let whole = [(0, 0), (0, 1), (3, 0)];
        assert!(dump_is_whole(&dump(&whole), Some(3), 0));
        assert!(!dump_is_whole(&dump(&whole), Some(4), 0), "an entry is missing");
        assert!(!dump_is_whole(&dump(&whole), Some(3), 1), "nobody has loaded all");
        assert!(!dump_is_whole(&dump(&[(0, 0), (0, 2)]), Some(2), 0), "a record is missing");
        assert!(!dump_is_whole(&dump(&[(3, 0), (0, 0)]), Some(2), 0), "out of order");
        assert!(!dump_is_whole(&dump(&whole).replace("7919", "7918"), Some(3), 0), "another value");
        let all: Vec<(usize, u32)> = (0..RECORDS).map(|number| (1, number)).collect();
        assert!(dump_is_whole(&dump(&all), Some(all.len()), 1));
    }
}
