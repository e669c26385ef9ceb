//! `retrial completions`.

use crate::output::{Format, write};
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
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "retrial", &mut script);
    write(&String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}
