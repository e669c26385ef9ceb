//! `retrial demo`.

use crate::output::{Format, line};
use crate::run::child::{End, Signals};
use crate::run::figures::Outcome;
use crate::run::program;
use crate::run::supervise::{Options, supervise};
use miette::{IntoDiagnostic, Report, WrapErr, miette};
use retrial::views::{Counter, Event, Tables};
use retrial::{Capacity, Class, Instance, Mutex, P, location};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, ExitCode};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Show what retrial does, in about a minute: a real program, each wait scheme's trace, a small benchmark
#[derive(clap::Args)]
pub struct Args {}

/// How long the mutex is held while the other session waits.
const HOLD: Duration = Duration::from_millis(1500);
/// How often the waiter's steps are read: it remembers the last 64 runs of them.
const LOOK_EVERY: Duration = Duration::from_millis(2);
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

pub fn run(_: Args, format: Format) -> Result<ExitCode, Report> {
    let started = Instant::now();
    line("1. A real program on retrial mutexes: sort with 4 threads, 40 MB of text (a few seconds)\n");
    let interrupted = programs(format)?;
    if interrupted {
        return Ok(ExitCode::from(130));
    }
    let seconds = ROWS.len() as f64 * HOLD.as_secs_f64();
    line(&format!(
        "\n2. A mutex is held for {} s while another session waits, by each scheme ({seconds:.0} s)",
        HOLD.as_secs_f64()
    ));
    traces()?;
    line("\n3. Throughput of three schemes at 1, 8 and 64 threads (about 6 s)\n");
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
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    for _ in 0..LINES {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        writeln!(writer, "{:019}", random >> 1)?;
    }
    let mut file = writer.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    file.rewind()?;
    Ok(file)
}

/// A scheme with parameters, as the sources publish them.
struct Row {
    scheme: &'static str,
    settings: &'static [&'static str],
    class: Class,
}

const fn row(scheme: &'static str, settings: &'static [&'static str]) -> Row {
    Row { scheme, settings, class: Class::Normal }
}

const ROWS: [Row; 17] = [
    row("10g", &[]),
    row("patch6904068", &[]),
    row("yield", &[]),
    row("yield", &["wait_yield_sleep_time_msecs=2", "wait_yield_sleep_freq=3"]),
    row("yield", &["wait_yield_mode=sleep"]),
    row("yield", &["wait_yield_mode=sleep", "wait_yield_sleep_time_msecs=3", "wait_yield_yield_freq=3"]),
    row("yield", &["wait_yield_sleep_time_msecs=0"]),
    row("yield", &["wait_yield_sleep_time_msecs=10", "wait_yield_sleep_freq=0"]),
    Row { scheme: "yield", settings: &["wait_yield_hp_mode=sleep"], class: Class::High },
    row("sleep", &[]),
    row("backoff", &[]),
    row("backoff", &["mutex_wait_time=30"]),
    row("latch", &[]),
    row("ydb", &[]),
    row("pthread", &[]),
    row("adaptive", &[]),
    row("orbit", &[]),
];

impl Row {
    fn title(&self) -> String {
        let mut title = self.scheme.to_owned();
        for setting in self.settings {
            title.push(' ');
            title.push_str(setting);
        }
        if self.class == Class::High {
            title.push_str(", session of the high priority class");
        }
        title
    }

    fn apply(&self, instance: &Instance) -> Result<(), Report> {
        for &p in P::ALL {
            instance.unset(p, None);
        }
        let value = P::Scheme.parse(self.scheme, 0).map_err(|error| crate::instances::param_error(&error))?;
        instance.set(P::Scheme, None, value);
        for setting in self.settings {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let scheme = usize::try_from(instance.params(None).get(P::Scheme)).unwrap_or(0);
            let parsed = P::named(name).and_then(|p| Ok((p, p.parse(value, scheme)?)));
            let (p, value) = parsed.map_err(|error| crate::instances::param_error(&error))?;
            instance.set(p, None, value);
        }
        Ok(())
    }
}

fn traces() -> Result<(), Report> {
    let instance = Instance::anonymous(Capacity::default()).map_err(crate::instances::create_error)?;
    let mutex = instance.mutex("demo", "demo", || 0_u64).into_diagnostic()?;
    for row in &ROWS {
        row.apply(&instance)?;
        line(&format!("\n{}", row.title()));
        for text in folded(&wait(&instance, &mutex, row.class)?) {
            line(&format!("  {text}"));
        }
    }
    Ok(())
}

/// The steps of a session that waits while this thread holds the mutex.
fn wait(instance: &Instance, mutex: &Mutex<'_, u64>, class: Class) -> Result<Vec<Event>, Report> {
    let session = instance.session("holder", Class::Normal).into_diagnostic()?;
    let held = mutex
        .exclusive(&session, location!("demo: hold"))
        .map_err(|error| miette!("the mutex was not got: {error}"))?;
    std::thread::scope(|scope| {
        let (announce, announced) = mpsc::channel();
        scope.spawn(move || {
            let Ok(session) = instance.session("waiter", class) else { return };
            let before = instance.tables().session_info(session.sid()).map_or(0, |info| info.last_run);
            if announce.send((session.sid(), before)).is_ok() {
                drop(mutex.exclusive(&session, location!("demo: wait")));
            }
        });
        let Ok((sid, before)) = announced.recv() else {
            drop(held);
            return Err(miette!("no session for the waiter"));
        };
        let mut events = BTreeMap::new();
        let tables: &Tables = instance.tables();
        let mut last = before;
        let mut look = || {
            last = tables.session_info(sid).map_or(last, |info| info.last_run);
            let known = events.last_key_value().map_or(before + 1, |(number, _)| *number);
            events.extend((known..=last).filter_map(|number| Some((number, tables.event(sid, number)?))));
        };
        let began = Instant::now();
        while began.elapsed() < HOLD {
            std::thread::sleep(LOOK_EVERY);
            look();
        }
        drop(held);
        // The wait's last step is the mutex itself; its session may be gone by then, the steps are not.
        loop {
            look();
            let ended = tables.session_info(sid).is_none_or(|info| info.wait.is_none());
            if ended {
                let known = events.last_key_value().map_or(before + 1, |(number, _)| *number);
                let rest = (known..).map_while(|number| Some((number, tables.event(sid, number)?)));
                events.extend(rest);
                return Ok(events.into_values().collect());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    })
}

/// The lines of a trace: the first ones and the last two.
fn folded(events: &[Event]) -> Vec<String> {
    const FIRST: usize = 8;
    const LAST: usize = 2;
    let lines: Vec<String> = events.iter().map(Event::line).collect();
    if lines.len() <= FIRST + LAST + 1 {
        return lines;
    }
    let between = lines.len() - FIRST - LAST;
    let (first, rest) = lines.split_at(FIRST);
    let mut folded = first.to_vec();
    folded.push(format!("… {between} more lines"));
    folded.extend_from_slice(&rest[between..]);
    folded
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
