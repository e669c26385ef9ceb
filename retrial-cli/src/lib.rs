//! The command `retrial`: parses, calls one function per subcommand, prints.

#![allow(missing_docs, unreachable_pub)] // nobody else links it
#![allow(clippy::missing_errors_doc, clippy::missing_panics_doc)] // as above
#![allow(clippy::must_use_candidate, clippy::return_self_not_must_use)] // as above
#![allow(clippy::needless_pass_by_value)] // a command takes what was typed, an error what it is about

mod ash;
mod attach;
mod blocking;
mod cgroup;
mod clock;
mod cmd;
#[cfg(test)]
mod consumers;
mod doctor;
mod duration;
mod errors;
mod experiment;
mod export;
mod flame;
#[cfg(test)]
mod golden;
mod instances;
mod lengths;
mod naming;
mod output;
mod page;
mod predict;
mod punctual;
pub mod recording;
mod run;
mod settings;
mod sql;
mod top;
mod watch;
mod who;
mod work;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use output::Format;
use retrial_bench::{calibration, chart, signals};
use std::io::IsTerminal;
use std::process::ExitCode;

/// Mutexes that database engines should have had: under your program, measured, watched.
///
/// Exit codes: 0 done, 1 found something, 2 failed. `run` exits as its program does. Ctrl-C, SIGTERM and
/// SIGHUP end every command by that signal (130, 143 and 129 to a shell), after it has given back what it
/// holds; a closed pipe by SIGPIPE (141).
#[derive(Parser)]
#[command(name = "retrial", version, arg_required_else_help = true, max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    format: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(cmd::run::Args),
    Demo(cmd::demo::Args),
    Bench(cmd::bench::Args),
    Create(cmd::create::Args),
    List(cmd::list::Args),
    Show(cmd::show::Args),
    Calibrate(cmd::calibrate::Args),
    Doctor(cmd::doctor::Args),
    Model(cmd::model::Args),
    Experiment(cmd::experiment::Args),
    WhatIf(cmd::what_if::Args),
    Advise(cmd::advise::Args),
    Ps(cmd::ps::Args),
    Record(cmd::record::Args),
    Sql(cmd::sql::Args),
    Ash(cmd::ash::Args),
    Who(cmd::who::Args),
    Attach(cmd::attach::Args),
    Top(cmd::top::Args),
    Watch(cmd::watch::Args),
    Export(cmd::export::Args),
    Set(cmd::set::Args),
    Hold(cmd::hold::Args),
    Cache(cmd::cache::Args),
    Trace(cmd::trace::Args),
    Peek(cmd::peek::Args),
    Poke(cmd::poke::Args),
    Alerts(cmd::alerts::Args),
    Recover(cmd::recover::Args),
    Report(cmd::report::Args),
    Rm(cmd::rm::Args),
    Man(cmd::man::Args),
    Completions(cmd::completions::Args),
    /// What ends a trial of settings: see `settings::trial`
    #[command(hide = true)]
    TakeBack {
        instance: String,
    },
}

/// Has times that begin with `-` taken as such: what is wrong with one is said, rather than that there is no
/// such option.
fn with_times(command: clap::Command) -> clap::Command {
    let is_time = |arg: &clap::Arg| arg.get_value_names().is_some_and(|names| names == ["TIME"]);
    let args = command.mut_args(|arg| if is_time(&arg) { arg.allow_hyphen_values(true) } else { arg });
    args.mut_subcommands(with_times)
}

/// What was typed. Help and the version are output like any other: clap does not say that they could not be
/// written.
fn arguments() -> clap::ArgMatches {
    with_times(Cli::command()).try_get_matches().unwrap_or_else(|error| {
        if error.use_stderr() {
            error.exit();
        }
        let text = error.render();
        output::write(&if std::io::stdout().is_terminal() { text.ansi().to_string() } else { text.to_string() });
        std::process::exit(0)
    })
}

/// What the command does. Gives its exit code.
pub fn main() -> ExitCode {
    // Commands to type are printed whole, to be copied.
    let _ = miette::set_hook(Box::new(|_| {
        Box::new(errors::Handler(miette::MietteHandlerOpts::new().wrap_lines(false).build()))
    }));
    let cli = Cli::from_arg_matches(&arguments()).unwrap_or_else(|error| error.exit());
    let format = cli.format;
    if format.json && format.csv {
        // clap does not see conflicts of global options that are given before and after the subcommand.
        let conflict = "the argument '--json' cannot be used with '--csv'";
        Cli::command().error(clap::error::ErrorKind::ArgumentConflict, conflict).exit();
    }
    let result = match cli.command {
        Command::Run(args) => cmd::run::run(args, format),
        Command::Demo(args) => cmd::demo::run(args, format),
        Command::Bench(args) => cmd::bench::run(args, format),
        Command::Create(args) => cmd::create::run(args, format),
        Command::List(args) => cmd::list::run(args, format),
        Command::Show(args) => cmd::show::run(args, format),
        Command::Doctor(args) => Ok(cmd::doctor::run(args, format)),
        Command::Calibrate(args) => cmd::calibrate::run(args, format),
        Command::Model(args) => cmd::model::run(args, format),
        Command::Experiment(args) => cmd::experiment::run(args, format),
        Command::WhatIf(args) => cmd::what_if::run(args, format),
        Command::Advise(args) => cmd::advise::run(args, format),
        Command::Ps(args) => cmd::ps::run(args, format),
        Command::Record(args) => cmd::record::run(args, format),
        Command::Sql(args) => cmd::sql::run(args, format),
        Command::Ash(args) => cmd::ash::run(args, format),
        Command::Export(args) => cmd::export::run(args, format),
        Command::Watch(args) => cmd::watch::run(args, format),
        Command::Top(args) => cmd::top::run(args, format),
        Command::Who(args) => cmd::who::run(args, format),
        Command::Attach(args) => cmd::attach::run(args, format),
        Command::Set(args) => cmd::set::run(args, format),
        Command::Hold(args) => cmd::hold::run(args, format),
        Command::Cache(args) => cmd::cache::run(args, format),
        Command::Trace(args) => cmd::trace::run(args, format),
        Command::Peek(args) => cmd::peek::run(args, format),
        Command::Poke(args) => cmd::poke::run(args, format),
        Command::Alerts(args) => cmd::alerts::run(args, format),
        Command::Recover(args) => cmd::recover::run(args, format),
        Command::Report(args) => cmd::report::run(args, format),
        Command::Rm(args) => cmd::rm::run(args, format),
        Command::Man(args) => cmd::man::run(args, format),
        Command::Completions(args) => cmd::completions::run(args, format),
        Command::TakeBack { instance } => settings::trial::take_back(&instance),
    };
    let code = result.unwrap_or_else(|report| {
        eprintln!("{report:?}");
        ExitCode::from(2)
    });
    if let Some(signal) = signals::received() {
        signals::die_of(signal);
    }
    code
}
