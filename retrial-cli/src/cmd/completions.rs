//! `retrial completions`.

use crate::output::{Format, NoFigures, write};
use clap::CommandFactory;
use miette::Report;
use std::process::ExitCode;

/// Print a shell's completion script
#[derive(clap::Args)]
pub struct Args {
    /// The shell
    shell: clap_complete::Shell,
    #[command(flatten)]
    no_figures: NoFigures,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    args.no_figures.check(format, &format!("completions {}", args.shell))?;
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "retrial", &mut script);
    write(&String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}
