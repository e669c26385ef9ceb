//! `retrial demo`: a killed holder first, then a real program, the wait schemes, a small benchmark.

mod killed;
mod traces;

use crate::output::{Format, NoFigures, line};
use crate::run::child::{End, Signals};
use crate::run::outcome::Outcome;
use crate::run::program;
use crate::run::supervise::{Options, supervise};
use miette::{IntoDiagnostic, Report, WrapErr, miette};
use retrial::views::Counter;
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Show what retrial does, in about a minute: a killed holder, a real program, each wait scheme's trace, a
/// small benchmark
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    no_figures: NoFigures,
}

const LINES: usize = 2_000_000;

const PYTHON: &str = "
import queue, threading
q = queue.Queue()
def put():
    for i in range(20000): q.put(i)
def get():
    for i in range(20000): q.get()
threads = [threading.Thread(target=f) for f in (put, get) for i in range(8)]
for t in threads: t.start()
for t in threads: t.join()
";

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    args.no_figures.check(format, "demo")?;
    let started = Instant::now();
    line("1. A process that holds a mutex is killed with -9, and the next one is told (2 s)\n");
    killed::show()?;
    line("\n2. A real program on retrial mutexes: sort with 4 threads, 40 MB of text (a few seconds)\n");
    let interrupted = programs(format)?;
    if interrupted {
        crate::signals::die_of(libc::SIGINT);
    }
    let (hold, all) = (traces::HOLD.as_secs_f64(), traces::time().as_secs_f64());
    line(&format!("\n3. A mutex is held for {hold} s while another session waits, by each scheme ({all:.0} s)"));
    line("   A wait begins with a spin that fails; each line is a run of equal steps after that.");
    traces::show()?;
    line("\n4. Throughput of three schemes at 1, 8 and 64 threads (about 6 s)\n");
    bench()?;
    line(&format!("\nThat was all, in {:.0} s.", started.elapsed().as_secs_f64()));
    line("Next: retrial run -- YOUR-PROGRAM");
    Ok(ExitCode::SUCCESS)
}

/// Runs `sort`, and Python where sort's locks were hardly contended. Whether the user interrupted it.
fn programs(format: Format) -> Result<bool, Report> {
    let text =
        text().into_diagnostic().wrap_err("40 MB of text cannot be written to the directory for temporary files")?;
    let sort = report(&["sort", "--parallel=4", "--buffer-size=100M", "--output=/dev/null"], Some(text), format)?;
    if interrupted(&sort) {
        return Ok(true);
    }
    if sort.total.figures.get(Counter::Misses) >= 100 || program::find(OsStr::new("python3")).is_err() {
        return Ok(false);
    }
    line("\nThe locks of sort are hardly contended. Python's are: 16 threads on one queue (a few seconds)\n");
    Ok(interrupted(&report(&["python3", "-c", PYTHON], None, format)?))
}

fn interrupted(outcome: &Outcome) -> bool {
    matches!(outcome.finished.end, End::Signal(_))
}

fn report(program: &[&str], stdin: Option<File>, format: Format) -> Result<Outcome, Report> {
    let signals = Signals::hold();
    let program = program.iter().map(OsString::from).collect();
    let options = Options { program, stdin, sessions: 1024, ..Options::default() };
    let outcome = supervise(options, &signals).map_err(|failure| failure.report)?;
    line(outcome.render(format).trim_end());
    Ok(outcome)
}

/// Lines in no order, in a file without a name: nothing is left behind, however this ends.
fn text() -> std::io::Result<File> {
    let directory = std::env::temp_dir();
    let open = |path, flags| OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(flags).open(path);
    let file = open(directory.clone(), libc::O_TMPFILE).or_else(|_| {
        let path = directory.join(format!("retrial-demo-{}", std::process::id()));
        let file = open(path.clone(), libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW)?;
        std::fs::remove_file(path)?;
        Ok::<_, std::io::Error>(file)
    })?;
    let mut writer = BufWriter::new(file);
    let state = Cell::new(0x9e37_79b9_7f4a_7c15);
    for _ in 0..LINES {
        writeln!(writer, "{:019}", retrial::wait::random(&state) >> 1)?;
    }
    let mut file = writer.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    file.rewind()?;
    Ok(file)
}

fn bench() -> Result<(), Report> {
    let executable = std::env::current_exe().into_diagnostic()?;
    let arguments = [
        "bench",
        "--schemes",
        "10g,sleep,orbit",
        "--sessions",
        "1,8,64",
        "--cs",
        "1us",
        "--duration",
        "500ms",
        "--plot",
    ];
    let status = Command::new(executable).args(arguments).status().into_diagnostic()?;
    if status.success() { Ok(()) } else { Err(miette!("retrial {}: {status}", arguments.join(" "))) }
}
