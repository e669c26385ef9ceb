//! `retrial run`.

use crate::errors::unwritable;
use crate::output::{Format, printable};
use crate::page;
use crate::run::child::{End, Signals};
use crate::run::supervise::{Options, supervise};
use miette::Report;
use retrial::Capacity;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run a program on retrial mutexes and report what its locks did
///
/// The program runs unchanged, with its pthread locks replaced by preloading. At its end a report goes to
/// standard error (standard output is the program's): with --json as one object, with --csv as one row for
/// each of the busiest mutexes and, with --profile, one for each lock and stack. Signals are passed on; the
/// exit code is the program's, and a program killed by a signal has us die of it too. 127: no such program,
/// 126: it cannot be executed, 2: something else was wrong and nothing was run.
///
/// The report's figures: misses = requests that found the lock busy, each of which is got by the first spin
/// or becomes a wait, and a wait ends with a get or gives up; rho = misses per request, that is per get or
/// wait that gave up; U = share of samples with a holder; kappa = sleeps (yields, timed sleeps, parks) per
/// miss; k = share of the tries on a busy lock that failed, spin and all; S = mean holding time, from U and
/// the gets. The wait time splits into spin, yield, slept as asked for, and oversleep, and adds up to 100 %.
/// Only misses record where they happened.
#[derive(clap::Args)]
#[command(verbatim_doc_comment, override_usage = "retrial run [OPTIONS] -- PROGRAM [ARGUMENTS]...")]
pub struct Args {
    #[arg(short, long, value_name = "SCHEME", help = format!("How sessions wait: {}", retrial::wait::NAMES.join(", ")))]
    scheme: Option<String>,
    /// Set a parameter for the run; a number may carry the parameter's unit (see `retrial show params`)
    #[arg(long = "set", value_name = "PARAM=VALUE")]
    settings: Vec<String>,
    /// Write the report to a file: JSON for `.json`, CSV for `.csv`, text otherwise
    #[arg(short, long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write the report as a page, one file with its pictures, rather than print it
    ///
    /// It is read without a network, in light and dark, and printed on A4. With --profile it has the flame
    /// graphs. With --report, --json and --csv the figures are written as well.
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// Keep the instance after the run, for `retrial show`
    #[arg(long)]
    keep: bool,
    /// Leave programs of this name alone, by `*` and `?` those of a pattern; of a script, the script's name
    /// counts as well
    #[arg(long, value_name = "NAME")]
    exclude: Vec<String>,
    /// Name of the instance; `run-PID` otherwise
    #[arg(short, long, value_name = "NAME")]
    instance: Option<String>,
    /// Sample who gets, waits for and holds which lock from where: in the report by call stack, in DIR
    /// (`retrial-profile` otherwise) as folded stacks and flame graphs. Threads take up to about 100 samples
    /// a second; their cost is reported
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, default_missing_value = "retrial-profile")]
    profile: Option<PathBuf>,
    /// Record the run into a file as `retrial record` does, for `retrial report` and `retrial sql`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Write the tables of the recording as Parquet files, too, when the program has ended
    #[arg(long, value_name = "DIR", requires = "record")]
    parquet: Option<PathBuf>,
    /// Room for this many threads at a time
    #[arg(long, value_name = "N", default_value_t = Capacity::SESSIONS_OF_ANY_PROGRAM)]
    sessions: u32,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

const PAGE: &str = "retrial run --html report.html -- sort --parallel=2 /etc/services";

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    // Opened first: a report that cannot be written is known before the program runs.
    args.html.as_deref().map(|path| page::check_name(path, PAGE)).transpose()?;
    let report = args.report.as_deref().map(create).transpose()?;
    let page = args.html.as_deref().map(create).transpose()?;
    let options = Options {
        program: args.program,
        scheme: args.scheme,
        settings: args.settings,
        instance: args.instance,
        sessions: args.sessions,
        keep: args.keep,
        exclude: args.exclude,
        profile: args.profile,
        record: args.record,
        parquet: args.parquet,
        stdin: None,
    };
    let signals = Signals::hold();
    let outcome = match supervise(options, &signals) {
        Ok(outcome) => outcome,
        Err(failure) => {
            eprintln!("{:?}", failure.report);
            return Ok(ExitCode::from(failure.code));
        }
    };
    match report {
        // The page is instead of the text.
        None if page.is_some() && format.is_text() => {}
        None => eprint_all(&printable(&outcome.render(format))),
        Some(report) => {
            let text = outcome.render(form(report.path, format));
            report.fill(&printable(&text), format)?;
        }
    }
    if let Some(page) = page {
        page.fill(&outcome.html()?, format)?;
    }
    Ok(match outcome.finished.end {
        End::Exit(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        End::Signal(signal) => {
            signals.die_of(signal);
            ExitCode::from(u8::try_from(128 + signal).unwrap_or(255))
        }
    })
}

/// To standard error, which may be closed.
fn eprint_all(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// A file that the report goes to.
struct Output<'a> {
    file: File,
    path: &'a Path,
}

fn create(path: &Path) -> Result<Output<'_>, Report> {
    let file = File::create(path).map_err(|error| unwritable(path, &error))?;
    Ok(Output { file, path })
}

impl Output<'_> {
    fn fill(mut self, text: &str, format: Format) -> Result<(), Report> {
        self.file.write_all(text.as_bytes()).map_err(|error| unwritable(self.path, &error))?;
        if format.is_text() {
            eprint_all(&format!("retrial: report in {}\n", self.path.display()));
        }
        Ok(())
    }
}

/// The form that a file's name asks for; what the options say otherwise.
fn form(path: &Path, format: Format) -> Format {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => Format { json: true, csv: false },
        Some("csv") => Format { json: false, csv: true },
        _ => format,
    }
}
