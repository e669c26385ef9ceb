//! Errors as the command prints them.

use crate::output::{printable, quoted};
use miette::{Diagnostic, Report, miette};
use retrial_bench::errors::directory;
use std::error::Error;
use std::fs::OpenOptions;
use std::path::Path;
use std::{fmt, io};

/// What is said of a file that cannot be written, or of a directory that cannot be made.
pub fn unwritable(path: &Path, error: &io::Error) -> Report {
    let directory = if path.is_dir() { path } else { directory(path) };
    let (is_there, directory) = (directory.is_dir(), directory.to_string_lossy());
    let quoted = quoted(&directory);
    miette!(
        code = "retrial::file::write",
        help = if is_there { format!("ls -ld {quoted}; df {quoted}") } else { format!("mkdir -p {quoted}") },
        "cannot write {}: {error}; expected a place that can be written",
        path.display()
    )
}

/// Refuses what cannot be written, before anything is measured for it. What is there stays.
pub fn can_write(path: &Path) -> Result<(), Report> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|error| unwritable(path, &error))
}

/// Has the texts of errors, which quote names, printed as [`printable`] makes them.
pub struct Handler(pub miette::MietteHandler);

impl miette::ReportHandler for Handler {
    fn debug(&self, error: &dyn Diagnostic, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut causes: Vec<String> = Vec::new();
        let mut next = error.source();
        while let Some(cause) = next {
            causes.push(printable(&cause.to_string()).into());
            next = cause.source();
        }
        let cause = causes.into_iter().rev().fold(None, |source, text| Some(Box::new(Cause { text, source })));
        let source = Cause { text: printable(&error.to_string()).into(), source: cause };
        self.0.debug(&Printable { error, text: source }, f)
    }
}

#[derive(Debug)]
struct Cause {
    text: String,
    source: Option<Box<Cause>>,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|cause| -> &(dyn Error + 'static) { cause })
    }
}

/// An error with texts that can be printed.
struct Printable<'a> {
    error: &'a dyn Diagnostic,
    text: Cause,
}

impl fmt::Debug for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.text, f)
    }
}

impl Error for Printable<'_> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.text.source()
    }
}

impl Diagnostic for Printable<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.error.code()
    }

    fn severity(&self) -> Option<miette::Severity> {
        self.error.severity()
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.error.help().map(|help| -> Box<dyn fmt::Display> { Box::new(printable(&help.to_string()).into_owned()) })
    }
}
