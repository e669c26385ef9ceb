//! `retrial man`.

use crate::output::Format;
use clap::CommandFactory;
use miette::{IntoDiagnostic, Report, WrapErr};
use std::path::PathBuf;
use std::process::ExitCode;

/// Write the man pages, one for each subcommand
#[derive(clap::Args)]
pub struct Args {
    /// Directory for the pages; made if it is not there
    #[arg(default_value = "man")]
    directory: PathBuf,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let directory = args.directory;
    let failed = || format!("cannot write man pages to {}", directory.display());
    std::fs::create_dir_all(&directory).into_diagnostic().wrap_err_with(failed)?;
    clap_mangen::generate_to(crate::Cli::command(), &directory).into_diagnostic().wrap_err_with(failed)?;
    format.say(&format!("Next: man {}/retrial.1", directory.display()));
    Ok(ExitCode::SUCCESS)
}
