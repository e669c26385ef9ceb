//! `retrial bench`.

use crate::instances::{address, param_error, schemes};
use crate::output::Format;
use crate::signals;
use indicatif::{ProgressBar, ProgressStyle};
use miette::{Report, miette};
use retrial::{Address, Mode, P, wait};
use retrial_bench::arguments::{Kinds, percent, positive, setting as setting_of, time};
use retrial_bench::cell::{Cell, Conditions, Ending, Stopped};
use retrial_bench::clock::Clock;
use retrial_bench::load::{Distribution, Start};
use retrial_bench::machine::Machine;
use retrial_bench::ours::{InMode, Ours};
use retrial_bench::outcome::{Kind, Outcome, median};
use retrial_bench::plot::{Series, plot};
use retrial_bench::rounds::{Rounds, table};
use retrial_bench::work::Work;
use retrial_model::Measure;
use std::process::ExitCode;
use std::time::Duration;

/// Measure wait schemes: sessions that get one mutex again and again, and what came of it
///
/// Mutual exclusion is checked while it is measured: who is inside signs and counts, and looks at the end
/// whether anybody else was. Anything wrong is counted under `errors`, said on stderr, and the exit code is
/// 2.
///
/// Waits are timed from the request to the grant, every one, those that the end cuts short included.
/// Quantiles are exact to 3 %. The check and the clock add some 20 ns to a section.
///
/// With copies of the mutex each session has one of them by its number, and each copy is checked by itself.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial bench --schemes orbit,ydb --sessions 8,64,1024 --kind both --rounds 3 --plot
  retrial bench --schemes sleep --sessions 16 --copies 1,2,4,8 --cs 1us --think 5us --distribution exponential
  retrial bench --schemes sleep --sessions 16 --duration 60s --instance b &    retrial advise -i b --apply --canary 5s")]
pub struct Args {
    /// Wait schemes: `all`, or names with commas
    #[arg(long, value_name = "S,…", default_value = "all", value_delimiter = ',')]
    schemes: Vec<String>,
    /// Numbers of sessions
    #[arg(long, value_name = "N,…", default_value = "1,2,8,64", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sessions: Vec<u32>,
    /// Numbers of copies of the mutex; session i uses copy i modulo their number
    #[arg(long, value_name = "N,…", default_value = "1", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    copies: Vec<u32>,
    /// Measure in an instance of this name, a new one for each measurement and removed after it: for `show`,
    /// `advise`, `what-if`, `trace` and `set`, meanwhile. Each mutex, or copy, then lies in another cache
    /// line than its data
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// What a session is
    #[arg(long, value_enum, default_value = "threads")]
    kind: Kinds,
    /// Time in the critical section, as busy work (a few increments are always done)
    #[arg(long, value_name = "T,…", default_value = "100ns", value_delimiter = ',', value_parser = time)]
    cs: Vec<Duration>,
    /// Time outside, as busy work, from 1 ms on asleep
    #[arg(long, value_name = "T,…", default_value = "0", value_delimiter = ',', value_parser = time)]
    think: Vec<Duration>,
    /// Mode of the gets: S, X, LX or E
    #[arg(long, default_value = "X")]
    mode: Mode,
    /// Percentage of gets in X instead of `--mode`: gives the readers' check something to find
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = percent)]
    writes: u64,
    /// Time of a measurement
    #[arg(long, value_name = "T", default_value = "1s", value_parser = positive)]
    duration: Duration,
    /// How times spread about `--cs` and `--think`
    #[arg(long, value_enum, default_value = "fixed")]
    distribution: Distribution,
    /// Set a parameter of the instance; may be repeated
    #[arg(long = "set", value_name = "P=V")]
    settings: Vec<String>,
    /// Measure all so many times, one round after the other, and give the median of each figure
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Draw throughput against sessions
    #[arg(long)]
    plot: bool,
    /// Kill a measurement that has not moved for this long [default: 20 s and 20 sections]
    #[arg(long, value_name = "T", value_parser = positive)]
    stuck_after: Option<Duration>,
}

/// A scheme, by its position in [`wait::NAMES`], in a cell with copies of the mutex.
struct Case {
    scheme: usize,
    copies: u32,
    cell: Cell,
}

/// What is the same in all cases.
struct Common {
    conditions: Conditions,
    settings: Vec<(P, String)>,
    instance: Option<Address>,
}

impl Case {
    fn measure(&self, args: &Args, common: &Common, tick: &dyn Fn(Duration)) -> Result<Outcome, Stopped> {
        let Common { conditions, settings, instance } = common;
        let (name, sessions) = (wait::NAMES[self.scheme], self.cell.sessions);
        let ours = Ours::with_copies(sessions, self.copies, instance.as_ref(), self.scheme, settings)?;
        // The modes apart, so that each has its own fast path.
        match args.mode {
            Mode::Shared => self.cell.measure(name, &InMode::<0>(ours), conditions, tick),
            Mode::Exclusive => self.cell.measure(name, &InMode::<1>(ours), conditions, tick),
            Mode::LongExclusive => self.cell.measure(name, &InMode::<2>(ours), conditions, tick),
            Mode::Examine => self.cell.measure(name, &InMode::<3>(ours), conditions, tick),
        }
    }
}

#[allow(clippy::needless_pass_by_value)] // the form of every subcommand
pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let cells = cells(&args)?;
    let common = Common {
        settings: settings(&args, &cells)?,
        instance: args.instance.as_deref().map(address).transpose()?,
        conditions: conditions(&args),
    };
    if format.is_text() {
        header(&args, format);
    }
    signals::catch();
    let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); cells.len()];
    let stopped = measure(&args, &cells, &common, &mut outcomes);
    let measured = cells.iter().zip(&outcomes).filter(|(_, rounds)| !rounds.is_empty());
    let rounds = measured.map(|(Case { scheme, copies, cell }, outcomes)| Rounds {
        scheme: wait::NAMES[*scheme],
        copies: *copies,
        cell: *cell,
        outcomes,
    });
    let table = table(rounds);
    if !table.is_empty() {
        table.print(format);
    }
    if args.plot && format.is_text() {
        for text in plots(&cells, &outcomes) {
            format.say(&format!("\n{text}"));
        }
    }
    let errors: u64 = outcomes.iter().flatten().map(|outcome| outcome.errors).sum();
    match stopped {
        Some(Stopped::Failed(report)) => Err(report),
        Some(Stopped::Interrupted) => {
            eprintln!(
                "interrupted; {} of {} measurements done",
                table_len(&outcomes),
                cells.len() * args.rounds as usize
            );
            Ok(ExitCode::from(2))
        }
        None if errors > 0 => {
            eprintln!("{errors} errors: the figures above are worth nothing until they are explained");
            Ok(ExitCode::from(2))
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

fn table_len(outcomes: &[Vec<Outcome>]) -> usize {
    outcomes.iter().map(Vec::len).sum()
}

/// Measures every cell in every round. Gives what stopped it before the end.
fn measure(args: &Args, cells: &[Case], common: &Common, outcomes: &mut [Vec<Outcome>]) -> Option<Stopped> {
    let rounds = args.rounds;
    let each_ms = u64::try_from(common.conditions.duration.as_millis()).unwrap_or(u64::MAX).max(1);
    let bar = ProgressBar::new(each_ms * u64::from(rounds) * cells.len() as u64);
    // Drawn to stderr, and only when that is a terminal. No thread of its own: we fork.
    bar.set_style(ProgressStyle::with_template("{bar:30} {msg}  {eta} left").unwrap_or(ProgressStyle::default_bar()));
    let mut done_ms = 0;
    for round in 1..=rounds {
        for (case, outcomes) in cells.iter().zip(&mut *outcomes) {
            let (scheme, sessions, kind) = (wait::NAMES[case.scheme], case.cell.sessions, case.cell.kind.name());
            bar.set_message(format!("round {round}/{rounds}: {scheme}, {sessions} {kind}"));
            bar.set_position(done_ms);
            let tick = |time: Duration| bar.set_position(done_ms + u64::try_from(time.as_millis()).unwrap_or(0));
            match case.measure(args, common, &tick) {
                Ok(outcome) => {
                    bar.suspend(|| outcome.complaints.iter().for_each(|line| eprintln!("ERROR: {line}")));
                    outcomes.push(outcome);
                }
                Err(stopped) => {
                    bar.finish_and_clear();
                    return Some(stopped);
                }
            }
            done_ms += each_ms;
        }
    }
    bar.finish_and_clear();
    None
}

fn cells(args: &Args) -> Result<Vec<Case>, Report> {
    let (writes, hogs, start) = (args.writes, 0, Start::Together);
    let schemes = schemes(&args.schemes, "retrial bench --schemes")?;
    let mut cells = Vec::new();
    for &kind in args.kind.list() {
        for &cs in &args.cs {
            for &think in &args.think {
                for &sessions in &args.sessions {
                    let cell = Cell { sessions, kind, cs, think, writes, hogs, start };
                    for &copies in &args.copies {
                        cells.extend(schemes.iter().map(|&scheme| Case { scheme, copies, cell }));
                    }
                }
            }
        }
    }
    Ok(cells)
}

fn settings(args: &Args, cells: &[Case]) -> Result<Vec<(P, String)>, Report> {
    let mut settings = Vec::new();
    for setting in &args.settings {
        let (p, value) = setting_of(setting).map_err(|e| param_error(&e))?;
        if p == P::Scheme {
            return Err(miette!(
                code = "retrial::bench::set",
                help = format!("retrial bench --schemes {value}"),
                "the scheme is what is compared, it cannot be set"
            ));
        }
        // Its unit may depend on the scheme: checked for all before anything is measured.
        for case in cells {
            p.parse(value, case.scheme).map_err(|e| param_error(&e))?;
        }
        settings.push((p, value.to_owned()));
    }
    Ok(settings)
}

fn conditions(args: &Args) -> Conditions {
    Conditions {
        reads: args.mode == Mode::Shared,
        section: args.distribution,
        think: args.distribution,
        duration: args.duration,
        window: args.duration,
        stuck_after: args.stuck_after,
        ending: Ending::Proper,
        work: Work::calibrate(),
        clock: Clock::calibrate(),
    }
}

fn header(args: &Args, format: Format) {
    let distribution = if args.distribution == Distribution::Fixed { "fixed" } else { "exponential" };
    let writes = if args.writes > 0 { format!(" with {} % X", args.writes as f64 / 100.0) } else { String::new() };
    let settings = args.settings.join(", ");
    format.say(&format!("retrial {} on {}", env!("CARGO_PKG_VERSION"), Machine::line()));
    format.say(&format!(
        "mode {}{writes}, {distribution} times, {:?} per measurement, rounds: {}{}{settings}\n",
        args.mode,
        args.duration,
        args.rounds,
        if settings.is_empty() { "" } else { ", " }
    ));
}

/// One plot for each combination of kind, times and copies.
fn plots(cells: &[Case], outcomes: &[Vec<Outcome>]) -> Vec<String> {
    type Group = (Kind, Duration, Duration, u32);
    let group_of = |case: &Case| (case.cell.kind, case.cell.cs, case.cell.think, case.copies);
    let mut groups: Vec<Group> = Vec::new();
    for group in cells.iter().map(group_of) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let mut schemes: Vec<usize> = cells.iter().map(|case| case.scheme).collect();
    schemes.sort_unstable();
    schemes.dedup();
    let throughput =
        |rounds: &Vec<Outcome>| median(rounds.iter().filter_map(|round| round.get(Measure::Throughput)).collect());
    let series = |group: Group, scheme: usize| {
        let cells = cells.iter().zip(outcomes).filter(|(case, _)| case.scheme == scheme);
        let own = cells.filter(|(case, _)| group_of(case) == group);
        let mut points: Vec<(f64, f64)> =
            own.filter_map(|(case, rounds)| Some((f64::from(case.cell.sessions), throughput(rounds)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name: wait::NAMES[scheme].to_owned(), points }
    };
    let plot_of = |group: Group| {
        let lines: Vec<Series> = schemes.iter().map(|scheme| series(group, *scheme)).collect();
        let (kind, cs, think, copies) = group;
        let copies = if copies > 1 { format!(", {copies} copies") } else { String::new() };
        let title = format!("ops/s against {}, sections of {cs:?}, {think:?} outside{copies}", kind.name());
        plot(&title, &lines)
    };
    groups.into_iter().map(plot_of).collect()
}
