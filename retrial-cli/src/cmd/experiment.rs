//! `retrial experiment`.

use crate::errors::unwritable;
use crate::experiment::lab::Lab;
use crate::experiment::render::{Done, PICTURES, figures, page};
use crate::experiment::{EXPERIMENTS, Experiment, named};
use crate::output::{self, Format, Table, column};
use crate::{duration, signals};
use miette::{Report, miette};
use retrial_bench::cell::Stopped;
use retrial_bench::machine::{Machine, Others};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Do the published experiments again: figures and tables measured here, simulated for their machines, and
/// predicted
///
/// The five publications (000 to 004, the *sources*) are named in docs/EXPERIMENTS.md.
/// Each prints a table of its figures, and which statements of its source they agree with and which not. With
/// --out it draws a picture with all lines, and writes a page that has everything. Nothing else should run on
/// the machine while it is measured.
#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools)] // flags of a command
#[command(after_help = "Examples:
  retrial experiment --list
  retrial experiment schemes --quick
  retrial experiment k-utilization squaring --no-measure --out figures
  retrial experiment all --out docs")]
pub struct Args {
    /// Names of experiments, or `all`
    #[arg(value_name = "NAME", required_unless_present = "list")]
    names: Vec<String>,
    /// Print the experiments, where they are from and what they take
    #[arg(long, conflicts_with = "names")]
    list: bool,
    /// Fewer points, one round, shorter times
    #[arg(long)]
    quick: bool,
    /// Up to 16,384 processes in `engine`, in place of 4,096: 2 GB of memory, and some minutes more
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Simulate and predict only: the same seed gives the same figures
    #[arg(long)]
    no_measure: bool,
    /// Of the first simulation of each point
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write DIR/experiments.md, and a picture of each in DIR/experiments/
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    if args.list {
        list().print(format);
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = chosen(&args.names)?;
    // Whatever can fail, before the measurement.
    let out = args.out.as_deref();
    out.map_or(Ok(()), |out| std::fs::create_dir_all(out.join(PICTURES)).map_err(|error| unwritable(out, &error)))?;
    signals::catch();
    let began = Instant::now();
    let mut lab = Lab::new([args.quick, args.full], !args.no_measure, args.seed, &chosen);
    let mut done = Vec::new();
    let mut pictures = Vec::new();
    let mut stopped = None;
    for experiment in chosen {
        lab.begin(experiment);
        let others = (!args.no_measure).then(Others::from_now).flatten();
        match experiment.run(&mut lab) {
            Ok(mut findings) => {
                findings.notes.extend(others.and_then(|others| others.share()).and_then(warning));
                let found = Done::new(experiment, findings, &lab.here);
                lab.say(|| format.say(&found.text()));
                pictures.push(picture(&found, out)?);
                done.push(found);
            }
            Err(error) => {
                stopped = Some(error);
                break;
            }
        }
    }
    lab.end();
    if format.json {
        output::json(&done.iter().map(Done::json).collect::<Value>());
    } else if format.csv {
        figures(&done).print(format);
    }
    if let Some(out) = out {
        let title = title(&args, began.elapsed());
        let path = out.join("experiments.md");
        std::fs::write(&path, page(&done, &lab.here, &title, &pictures)).map_err(|error| unwritable(&path, &error))?;
        format.say(&format!("Written: {}", path.display()));
    }
    match stopped {
        Some(Stopped::Failed(report)) => Err(report),
        Some(Stopped::Interrupted) => {
            eprintln!("interrupted; {} experiments done", done.len());
            Ok(ExitCode::from(2))
        }
        None if lab.errors > 0 => {
            eprintln!("{} errors: the figures above are worth nothing until they are explained", lab.errors);
            Ok(ExitCode::from(2))
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Share of the processors from which others disturb what is measured.
const DISTURBS: f64 = 0.05;

/// What is to be known of what was measured while others took such a share of the processors.
fn warning(others: f64) -> Option<String> {
    let warns = others >= DISTURBS;
    warns.then(|| {
        format!(
            "others took {:.0} % of the processors meanwhile. What was measured is lower for that, and what the sources say may \
             seem wrong: run it again on a machine that is idle",
            100.0 * others
        )
    })
}

fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>, Report> {
    if names.iter().any(|name| name == "all") {
        return Ok(EXPERIMENTS.to_vec());
    }
    let known = || EXPERIMENTS.iter().map(|experiment| experiment.name).collect::<Vec<_>>().join(", ");
    let of = |name: &String| {
        named(name).ok_or_else(|| {
            miette!(
                code = "retrial::experiment::name",
                help = "retrial experiment --list",
                "no experiment `{name}`, expected `all` or some of {}",
                known()
            )
        })
    };
    names.iter().map(of).collect()
}

fn list() -> Table {
    let columns = [
        column("name", |experiment: &Experiment| experiment.name),
        column("source", |experiment: &Experiment| experiment.source),
        column("shows", |experiment: &Experiment| experiment.shows),
        column("takes_s", |experiment: &Experiment| experiment.takes_s[0]),
        column("quick_s", |experiment: &Experiment| experiment.takes_s[1]),
    ];
    Table::of(&columns, EXPERIMENTS.iter().copied())
}

/// What the page says of itself.
fn title(args: &Args, took: Duration) -> String {
    let measured = if args.no_measure { ", nothing measured" } else { "" };
    let quick = match (args.quick, args.full) {
        (true, _) => ", --quick",
        (_, true) => ", --full",
        _ => "",
    };
    let version = env!("CARGO_PKG_VERSION");
    format!("retrial {version} on {}{measured}{quick}; it took {}.", Machine::line(), duration::text(took))
}

/// Writes the picture of an experiment. Whether it has one.
fn picture(done: &Done, out: Option<&Path>) -> Result<bool, Report> {
    let Some(out) = out else { return Ok(false) };
    let Some(svg) = done.svg()? else { return Ok(false) };
    let path = out.join(PICTURES).join(format!("{}.svg", done.experiment.name));
    std::fs::write(&path, svg).map_err(|error| unwritable(&path, &error))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_told_of_from_a_twentieth_of_the_processors_on() {
        assert_eq!(warning(0.04), None);
        assert!(warning(0.31).unwrap().starts_with("others took 31 % of the processors meanwhile"));
    }
}
