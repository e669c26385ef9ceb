//! `retrial man`.

use crate::errors::unwritable;
use crate::output::{Format, NoFigures};
use clap::CommandFactory;
use miette::Report;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write the man pages, one for each subcommand
#[derive(clap::Args)]
pub struct Args {
    /// Directory for the pages; made if it is not there
    #[arg(default_value = "man")]
    directory: PathBuf,
    #[command(flatten)]
    no_figures: NoFigures,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    args.no_figures.check(format, "man")?;
    let directory = args.directory;
    let made = std::fs::create_dir_all(&directory);
    let written = made.and_then(|()| clap_mangen::generate_to(crate::Cli::command(), &directory));
    written.map_err(|error| unwritable(&directory, &error))?;
    format.say(&format!("Next: man {}/retrial.1", directory.display()));
    Ok(ExitCode::SUCCESS)
}
