//! `retrial man`.

use crate::errors::unwritable;
use crate::output::{Format, NoFigures};
use clap::CommandFactory;
use miette::Report;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

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
    write(&directory).map_err(|error| unwritable(&directory, &error))?;
    format.say(&format!("Next: man {}/retrial.1", directory.display()));
    Ok(ExitCode::SUCCESS)
}

fn write(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    clap_mangen::generate_to(crate::Cli::command(), directory)?;
    for entry in fs::read_dir(directory)? {
        let page = entry?;
        let name = page.file_name();
        if name.to_str().is_some_and(|name| name.starts_with("retrial") && name.ends_with(".1")) {
            fs::write(page.path(), with_examples(&fs::read_to_string(page.path())?))?;
        }
    }
    Ok(())
}

/// Has the examples of a page in a section of this name, line by line, where they can be copied from.
fn with_examples(page: &str) -> String {
    let Some((before, extra)) = page.split_once(".SH EXTRA\n") else { return page.to_owned() };
    let (extra, rest) = extra.split_at(extra.find("\n.SH ").map_or(extra.len(), |at| at + 1));
    let Some(at) = extra.find("Example") else { return page.to_owned() };
    let (more, examples) = extra.split_at(at);
    let examples = examples.strip_prefix("Examples:\n").unwrap_or(examples);
    let more = if more.is_empty() { String::new() } else { format!(".SH EXTRA\n{more}") };
    format!("{before}{more}.SH EXAMPLES\n.nf\n{examples}.fi\n{rest}")
}

#[cfg(test)]
mod tests {
    use super::with_examples;

    #[test]
    fn examples_are_lines_of_their_own() {
        let page = ".SH OPTIONS\nx\n.SH EXTRA\nExamples:\n  retrial list\n  retrial ps\n.SH VERSION\nv1\n";
        let expected = ".SH OPTIONS\nx\n.SH EXAMPLES\n.nf\n  retrial list\n  retrial ps\n.fi\n.SH VERSION\nv1\n";
        assert_eq!(with_examples(page), expected);
        assert_eq!(with_examples(expected), expected);
        let page = ".SH EXTRA\nExpressions: x.\nExamples:\n  a\n";
        assert_eq!(with_examples(page), ".SH EXTRA\nExpressions: x.\n.SH EXAMPLES\n.nf\n  a\n.fi\n");
    }
}
