//! `retrial bench`.

use crate::output::Format;
use miette::{Report, miette};
use std::process::ExitCode;

/// Being written
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: Args, _: Format) -> Result<ExitCode, Report> {
    Err(miette!("being written"))
}
