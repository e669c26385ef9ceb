//! Processes that contend for a robust process-shared mutex, half of them killed: whether the others go on,
//! plain and under `retrial run`.
//!
//! The rounds are those of a program in C, `programs/killed.c`, which is compiled at the start; what it
//! checks is said there. Blocks of rounds of the variants take turns, with the same seeds.

mod kit;
mod row;

use crate::report::{self, Output, header};
use crate::row as table;
use indicatif::ProgressBar;
use kit::{Kit, mdb};
use miette::{Report, miette};
use retrial::P;
use retrial::wait::{DEFAULT, NAMES};
use retrial_bench::arguments::positive;
use retrial_bench::errors::param_error;
use retrial_bench::{duration, signals};
use row::{Round, Row};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Kill half of the processes that contend for a robust mutex: do the others go on?
///
/// Six processes, each started by exec, get one robust process-shared mutex again and again; three of them
/// are killed at random moments; the others must get it so many times more. A hang: those who are left stand
/// still, asleep at all of 2,000 looks a millisecond apart, or awake at some of 10,000. It is shown whether
/// the mutex was free then, and whether one wake-up by hand let all go on. What the mutex protects shows
/// violations. Exit code 1: a variant under `retrial run` hung or violated something.
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

/// Rounds that a variant has in a row.
const BLOCK: u32 = 10;
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

fn variants(schemes: &[String]) -> Result<Vec<Variant>, Report> {
    let schemes = if schemes.is_empty() { vec![NAMES[DEFAULT].to_owned()] } else { schemes.to_vec() };
    let mut variants = vec![Variant { name: "glibc".to_owned(), scheme: None }];
    for scheme in schemes {
        P::Scheme.parse(&scheme, DEFAULT).map_err(|error| param_error(&error))?;
        variants.push(Variant { name: format!("retrial {scheme}"), scheme: Some(scheme) });
    }
    Ok(variants)
}

/// About what they take on two processors: a fifth of glibc's rounds of our own program hang, for two or
/// three seconds.
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
    let bar = report::bar(all);
    let mut rows = Vec::new();
    for load in loads {
        let new = measure(&kit, &variants, load, args, &bar)?;
        bar.suspend(|| output.say(&format!("\n{}", table::table(&new).text())));
        rows.extend(new);
        if let Some(path) = &output.csv {
            report::write(path, &table::csv(&rows, true)?)?;
        }
        if signals::received().is_some() {
            break;
        }
    }
    bar.finish_and_clear();
    output.end(&lines, &table::table(&rows))?;
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
