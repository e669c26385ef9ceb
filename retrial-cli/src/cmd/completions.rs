//! `retrial completions`.

use crate::output::Format;
use clap::CommandFactory;
use miette::Report;
use std::process::ExitCode;

/// Print a shell's completion script
#[derive(clap::Args)]
pub struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

#[allow(clippy::unnecessary_wraps)] // as every subcommand
pub fn run(args: Args, _: Format) -> Result<ExitCode, Report> {
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "retrial", &mut std::io::stdout());
    Ok(ExitCode::SUCCESS)
}
