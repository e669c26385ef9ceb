//! The command `retrial` under which programs are measured.

use miette::{Report, miette};
use std::path::{Path, PathBuf};

/// The one that was named, or the one beside this program.
pub fn retrial(named: Option<&Path>) -> Result<PathBuf, Report> {
    let beside = std::env::current_exe().unwrap_or_default().with_file_name("retrial");
    let path = named.unwrap_or(&beside);
    path.canonicalize().ok().filter(|path| path.is_file()).ok_or_else(|| {
        miette!(
            code = "bench::retrial",
            help = "cargo build --release, or name it with --retrial PATH",
            "no command {}",
            path.display()
        )
    })
}
