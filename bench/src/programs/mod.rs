//! Stock programs, as they are and under `retrial run`, in rounds that go through both.

mod catalogue;
mod measure;
mod memcached;
mod pace;
mod process;
mod row;

use crate::command::{self, Measured};
use crate::report::Output;
use crate::row as rows;
use catalogue::{PROGRAMS, Program};
use measure::Plan;
use miette::{IntoDiagnostic, Report, WrapErr, miette};
use retrial_bench::cell::Stopped;
use retrial_bench::machine::Machine;
use retrial_bench::signals;
use row::{HIDDEN, Row};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Stock programs, as they are and under `retrial run`
///
/// Databases and runtimes of Debian under a load, each as it is and with its pthread locks replaced by
/// preloading, in rounds that go through both. Processor time is that of the program, not of what loads it,
/// where these are two. Handled and fallback are the calls that `retrial run` counted: where nothing was
/// handled, nothing was measured.
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_name = "NAME", help = format!("Only these of: {}", names()))]
    programs: Vec<String>,
    /// How sessions wait; may be repeated
    #[arg(long, value_name = "SCHEME", default_value = retrial::wait::NAMES[retrial::wait::DEFAULT])]
    scheme: Vec<String>,
    /// Rounds through all that a program is run under
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Time of a run in s, without start and end
    #[arg(long, value_name = "S", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// The command `retrial`; beside this one otherwise
    #[arg(long, value_name = "PATH")]
    retrial: Option<PathBuf>,
    /// Where the programs have their files; in memory, so that no disk is measured
    #[arg(long, value_name = "DIRECTORY", default_value = "/dev/shm")]
    directory: PathBuf,
}

fn names() -> String {
    PROGRAMS.map(|program| program.name).join(", ")
}

/// What the files of a program may take, of runs of the default length.
const ROOM: u64 = 3 << 30;

pub fn run(args: &Args, output: &Output) -> Result<ExitCode, Report> {
    let chosen = chosen(&args.programs)?;
    let (present, absent): (Vec<&Program>, Vec<&Program>) = chosen.into_iter().partition(|p| missing(p).is_empty());
    let variants = variants(&args.scheme)?;
    let retrial = command::retrial(args.retrial.as_deref())?;
    let root = Root::new(&args.directory)?;
    let mut file = output.csv.as_deref().map(create).transpose()?;

    let header = vec![
        format!("retrial {} on {}", env!("CARGO_PKG_VERSION"), Machine::line()),
        format!("{} rounds of {} s, files in {}", args.rounds, args.seconds, args.directory.display()),
    ];
    output.say(&header.join("\n"));
    if !absent.is_empty() {
        let packages: BTreeSet<&str> =
            absent.iter().flat_map(|p| missing(p)).flat_map(|need| need.packages.split(' ')).collect();
        let names: Vec<&str> = absent.iter().map(|program| program.name).collect();
        eprintln!("not installed, left out: {}", names.join(", "));
        eprintln!("to have them: apt-get install {}", Vec::from_iter(packages).join(" "));
    }

    signals::catch();
    let plan = Plan {
        rounds: args.rounds,
        duration: Duration::from_secs(args.seconds.into()),
        retrial: &retrial,
        variants: &variants,
        root: &root.0,
    };
    let (mut all, mut whole) = (Vec::new(), true);
    for program in present {
        let measured = match plan.measure(program) {
            Ok(measured) => measured,
            Err(Stopped::Failed(report)) => {
                eprintln!("{:?}", report.wrap_err(format!("{} cannot be prepared", program.name)));
                vec![Measured::failed("not prepared")]
            }
            Err(Stopped::Interrupted) => Vec::new(),
        };
        let version = version(program.package);
        let new = Row::of(program, version.as_deref(), args.seconds, &variants, &measured);
        if !new.is_empty() {
            let version = version.map_or_else(String::new, |version| format!(" {version}"));
            let table = rows::shown(&new, &HIDDEN);
            output.say(&format!("\n{}{version}: {}\n{}", program.name, program.load, table.text()));
        }
        if let Some(file) = &mut file {
            file.write_all(&rows::csv(&new, all.is_empty())?).into_diagnostic()?;
        }
        all.extend(new);
        if signals::received().is_some() {
            whole = false;
            break;
        }
    }
    output.end(&header, &rows::table(&all))?;
    if !whole {
        eprintln!("interrupted; {} rows", all.len());
    }
    let good = whole && !all.is_empty() && all.iter().all(|row| row.speed.ops_per_s.is_some() && row.failure.is_none());
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

fn chosen(names_given: &[String]) -> Result<Vec<&'static Program>, Report> {
    if let Some(name) = names_given.iter().find(|name| PROGRAMS.iter().all(|program| program.name != **name)) {
        return Err(miette!(code = "bench::programs", help = names(), "no program `{name}`"));
    }
    let wanted = |program: &&Program| names_given.is_empty() || names_given.iter().any(|name| name == program.name);
    Ok(PROGRAMS.iter().filter(wanted).collect())
}

/// Schemes under which they are run; the first, `None`, is none.
fn variants(schemes: &[String]) -> Result<Vec<Option<String>>, Report> {
    if let Some(scheme) = schemes.iter().find(|scheme| !retrial::wait::NAMES.contains(&scheme.as_str())) {
        let names = retrial::wait::NAMES.join(", ");
        return Err(miette!(code = "bench::programs", help = names, "no scheme `{scheme}`"));
    }
    Ok([None].into_iter().chain(schemes.iter().cloned().map(Some)).collect())
}

/// What a program needs and is not here.
fn missing(program: &Program) -> Vec<&'static catalogue::Need> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let command = |name: &str| std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
    let here = |file: &str| if file.contains('/') { Path::new(file).is_file() } else { command(file) };
    program.needs.iter().filter(|need| !here(need.file)).collect()
}

/// As Debian's package manager has it.
fn version(package: &str) -> Option<String> {
    let output = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output().ok()?;
    String::from_utf8(output.stdout).ok().filter(|version| output.status.success() && !version.is_empty())
}

fn create(path: &Path) -> Result<fs::File, Report> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.into_diagnostic().wrap_err_with(|| format!("{} cannot be written anew", path.display()))
}

/// A directory that is removed at the end.
struct Root(PathBuf);

impl Root {
    fn new(within: &Path) -> Result<Self, Report> {
        let failed = || format!("{} cannot have the programs' files", within.display());
        let free = free(within).into_diagnostic().wrap_err_with(failed)?;
        if free < ROOM {
            return Err(miette!(
                code = "bench::programs",
                help = "--directory /var/tmp",
                "{} has {} MiB free, expected {} MiB",
                within.display(),
                free >> 20,
                ROOM >> 20
            ));
        }
        let path = within.join(format!("bench-programs-{}", std::process::id()));
        fs::create_dir(&path).into_diagnostic().wrap_err_with(failed)?;
        Ok(Self(path.canonicalize().into_diagnostic()?))
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Bytes that may be written to a directory's file system.
fn free(directory: &Path) -> std::io::Result<u64> {
    let path = std::ffi::CString::new(directory.as_os_str().as_encoded_bytes())?;
    let mut figures = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path ends with 0, and the figures are writable.
    if unsafe { libc::statvfs(path.as_ptr(), figures.as_mut_ptr()) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: zeroed is a valid value, and the call above has filled it.
    let figures = unsafe { figures.assume_init() };
    Ok(figures.f_bavail * figures.f_frsize)
}
