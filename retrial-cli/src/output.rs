//! What is printed, as the library of the bench has it, and JSON.

pub use retrial_bench::output::*;

use miette::{Report, miette};
use serde::Serialize;

/// Prints a document.
pub fn json(document: &(impl Serialize + ?Sized)) {
    line(&serde_json::to_string_pretty(document).unwrap_or_default());
}

/// Has the help of a command without figures leave out the options of [`Format`].
#[derive(clap::Args)]
pub struct NoFigures {
    #[arg(long, hide = true)]
    json: bool,
    #[arg(long, hide = true)]
    csv: bool,
}

impl NoFigures {
    /// Refuses them.
    pub fn check(&self, format: Format, command: &str) -> Result<(), Report> {
        if format.is_text() && !self.json && !self.csv {
            return Ok(());
        }
        Err(miette!(
            code = "retrial::format",
            help = format!("retrial {command}"),
            "`{command}` with --json or --csv, expected neither: what it prints has a form of its own"
        ))
    }
}
