//! One run: instance, program, observer, and what it came to.

use super::child::{Finished, Signals};
use super::outcome::{Outcome, Summary, TOP, summarize};
use super::profile::recording::{self, Cost, Recording};
use super::profile::report::Profile;
use super::profile::tallies::Tallies;
use super::program::{self, Missing};
use super::recorded::{Files, Recorded};
use super::sampler::Observation;
use super::settings::settings;
use super::unseen::Unseen;
use super::{calls, preload, sampler};
use crate::instances::{address, create_error};
use crate::output::quoted;
use crate::predict::fit::machine_here;
use crate::predict::room::Room;
use crate::settings::apply;
use miette::{Report, miette};
use retrial::sys::now_ns;
use retrial::views::{Sid, Tables};
use retrial::{Address, Capacity, CreateError, Instance, interposer};
use retrial_bench::machine::{Machine, Ticks};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// What to run and how.
#[derive(Debug, Default)]
pub struct Options {
    pub program: Vec<OsString>,
    pub scheme: Option<String>,
    pub settings: Vec<String>,
    /// Name of the instance, one made from our process id otherwise.
    pub instance: Option<String>,
    pub sessions: u32,
    pub keep: bool,
    /// Names of programs that are left alone.
    pub exclude: Vec<String>,
    /// Where a profile's files go, if one is wanted.
    pub profile: Option<PathBuf>,
    /// The recording to write, if one is wanted.
    pub record: Option<PathBuf>,
    /// Where the Parquet files of the recording go, if they are wanted.
    pub parquet: Option<PathBuf>,
    /// Standard input, ours otherwise.
    pub stdin: Option<File>,
}

/// Why nothing was run, and the exit code that says so.
#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    pub report: Report,
}

impl From<Report> for Failure {
    fn from(report: Report) -> Self {
        Self { code: 2, report }
    }
}

/// Runs a program and waits for its end.
pub fn supervise(options: Options, signals: &Signals) -> Result<Outcome, Failure> {
    let (name, arguments) = options.program.split_first().ok_or_else(|| miette!("no program to run"))?;
    let path = program::find(name).map_err(|missing| not_started(name, &missing))?;
    let settings = settings(options.scheme.as_deref(), &options.settings)?;
    if let Some(file) = program::sanitized(&path) {
        return Err(sanitized(&file, &options.program).into());
    }
    let library = program::other_loader(&path).is_none().then(preload::find).transpose()?;
    let recording = options.profile.as_deref().map(Recording::create).transpose()?;
    let files = options.record.as_deref().map(|file| Files::open(file, options.parquet.as_deref())).transpose()?;
    let named = Named::create(&options)?;
    apply(&named.instance, None, &settings);
    let excluded = preload::excluded(&options.exclude);
    let mut command = Command::new(&path);
    command.args(arguments).stdin(options.stdin.map_or_else(Stdio::inherit, Stdio::from));
    prepare(&mut command, library.as_deref(), &named.address, excluded.as_deref());
    set_name(&mut command, name);
    if let Some(recording) = &recording {
        recording.tell(&mut command);
    }

    let recorder = files.map(|files| files.record(&named.address)).transpose()?;
    let (ticks, started) = (Ticks::now(), Instant::now());
    let pid = signals.start(&mut command).map_err(|error| not_executed(&path, &error))?;
    let tables: &Tables = named.instance.tables();
    let Seen { finished, elapsed_s, ended_ns, observation, rooms, recorded } =
        observe(&named.instance, recording.as_ref(), started, || {
            let finished = signals.wait(pid);
            if let Some(recorded) = &recorder {
                recorded.program_ended();
            }
            finished
        });

    let machine_busy = ticks.and_then(|before| Ticks::now()?.busy_since(before));
    let summary = summarize(tables, &observation, &rooms, elapsed_s, ended_ns);
    let profile =
        recording.as_ref().zip(recorded).and_then(|(recording, taken)| profile(recording, taken, tables, &summary));
    if options.keep || recorder.is_some() {
        keep(&named.instance, &summary, &observation, ended_ns);
    }
    if let Some(Err(error)) = recorder.map(Recorded::finish) {
        // As for the profile: what was written is in the file.
        eprintln!("{error:?}");
    }
    let calls = calls::of(tables);
    let nothing = (summary.is_empty() && calls.is_empty()).then(|| why_nothing(&path, excluded.as_deref()));
    Ok(Outcome {
        command: shown(&options.program),
        finished,
        elapsed_s,
        machine: Machine::here(),
        machine_busy,
        instance: named.address.to_string(),
        kept: options.keep,
        params: tables.params(None),
        costs: machine_here(tables),
        rows: tables.capacity().rows,
        mutexes: summary.mutexes,
        total: summary.total,
        events: summary.events,
        awaited: summary.awaited,
        calls,
        alerts: tables.alerts(0).into_iter().map(|(_, _, text)| text).take(TOP).collect(),
        recoveries: tables.recoveries(),
        unseen: Unseen::of(tables),
        deadlocks: observation.waits.deadlocks,
        ended_ns,
        cost: observation.cost,
        nothing,
        profile,
    })
}

/// The profile, and its files. A disk that has become full is not to take the report with it.
fn profile(
    recording: &Recording,
    (tallies, cost): (Tallies, Cost),
    tables: &Tables,
    summary: &Summary,
) -> Option<Profile> {
    let unwritten = |error| eprintln!("{error:?}");
    Profile::new(tallies, cost, tables, &summary.firsts, &recording.output).map_err(unwritten).ok()
}

fn why_nothing(path: &Path, excluded: Option<&str>) -> String {
    let why = program::why_nothing(path);
    excluded.map_or_else(|| why.clone(), |excluded| format!("{why}; excluded are: {excluded}"))
}

/// Has a program take part in the instance, and leave those excluded alone.
fn prepare(command: &mut Command, library: Option<&Path>, instance: &Address, excluded: Option<&str>) {
    // The program may change its directory before it starts others.
    let instance = std::path::absolute(instance.path()).unwrap_or_else(|_| instance.path().into());
    if let Some(library) = library {
        command.env("LD_PRELOAD", preload::list(library));
    }
    command
        .env(preload::ASAN_OPTIONS, preload::address_sanitizer_options())
        .env("RETRIAL_INSTANCE", &instance)
        .env_remove(recording::VARIABLE);
    if let Some(excluded) = excluded {
        command.env(preload::EXCLUDE, excluded);
    }
}

/// What was seen of a program while it ran.
struct Seen {
    finished: Finished,
    elapsed_s: f64,
    /// By the monotonic clock.
    ended_ns: u64,
    observation: Observation,
    /// What the kernel said of the threads at the begin, and when they were last looked at.
    rooms: [Room; 2],
    recorded: Option<(Tallies, Cost)>,
}

/// Observes the instance, and the profile if there is one, until the program's end.
fn observe(
    instance: &Instance,
    recording: Option<&Recording>,
    started: Instant,
    wait: impl FnOnce() -> Finished,
) -> Seen {
    let stop = AtomicBool::new(false);
    let before = Room::now(instance.tables());
    let at_begin = before.clone();
    std::thread::scope(|scope| {
        let observer = scope.spawn(|| {
            let room = RefCell::new(at_begin);
            let look = || {
                room.borrow_mut().look(instance.tables());
                departed(instance);
            };
            let observation = sampler::observe(instance.tables(), look, &stop);
            (observation, room.into_inner())
        });
        let profiler = recording.map(|recording| scope.spawn(|| recording.observe(&stop)));
        let finished = wait();
        let (elapsed_s, ended_ns) = (started.elapsed().as_secs_f64(), now_ns());
        stop.store(true, Ordering::Release);
        observer.thread().unpark();
        let recorded = profiler.and_then(|profiler| {
            profiler.thread().unpark();
            profiler.join().ok()
        });
        let unseen = |_| (Observation::default(), before.clone());
        let (observation, room) = observer.join().unwrap_or_else(unseen);
        Seen { finished, elapsed_s, ended_ns, observation, rooms: [before, room], recorded }
    })
}

/// Frees the sessions of threads that have ended. The interposer leaves that to the next thread which needs a
/// session, and until then they would look as if they had been killed. A wait that a kill cut off stays to be
/// seen.
fn departed(instance: &Instance) {
    let tables = instance.tables();
    for sid in tables.sids().filter(|sid| tables.is_dead(*sid)) {
        if tables.session_info(sid).is_some_and(|session| session.log.is_empty() && session.wait.is_none()) {
            instance.recover(sid);
        }
    }
}

/// Leaves in the instance what only this process knows, for a later look: the names of mutexes, the gets of
/// mutexes whose process was killed, and the waits that the program's end has cut off.
fn keep(instance: &Instance, summary: &Summary, observation: &Observation, ended_ns: u64) {
    for mutex in summary.mutexes.iter().chain(&summary.awaited).filter(|mutex| mutex.id.0 != 0) {
        interposer::note_found(instance, mutex.id, &mutex.name, mutex.profile.gets);
    }
    let waits: HashMap<Sid, u64> = instance.tables().waits().map(|(sid, _, since_ns)| (sid, since_ns)).collect();
    for sid in instance.tables().sids() {
        let since_ns = waits.get(&sid).copied().unwrap_or(0);
        instance.recover_cut_off(sid, observation.waits.cut_off_ns.get(&(sid, since_ns)).copied().unwrap_or(ended_ns));
    }
}

/// An instance whose name goes with this value, unless it is to be kept.
struct Named {
    instance: Instance,
    address: Address,
    keep: bool,
}

impl Named {
    fn create(options: &Options) -> Result<Self, Report> {
        let capacity = Capacity { sessions: options.sessions, mutexes: 8192, locations: 4096, rows: 256, arena: 0 }
            .within_limits();
        let base = format!("run-{}", std::process::id());
        // A run that was killed by SIGKILL may have left the name of a process id that is now ours.
        for attempt in 1.. {
            let name = match (&options.instance, attempt) {
                (Some(name), _) => name.clone(),
                (None, 1) => base.clone(),
                (None, n) => format!("{base}-{n}"),
            };
            let address = address(&name)?;
            match Instance::create(&address, capacity, 0o600) {
                Ok(instance) => {
                    crate::calibration::apply(&instance);
                    return Ok(Self { instance, address, keep: options.keep });
                }
                Err(CreateError::Exists(_)) if options.instance.is_none() && attempt < 100 => {}
                Err(error) => return Err(create_error(error)),
            }
        }
        unreachable!("the loop returns")
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if !self.keep {
            // What the program left running keeps its mapping.
            let _ = std::fs::remove_file(self.address.path());
        }
    }
}

/// The name that the program is called by, as a shell passes it.
fn set_name(command: &mut Command, name: &OsStr) {
    use std::os::unix::process::CommandExt;
    command.arg0(name);
}

fn not_started(name: &OsStr, missing: &Missing) -> Failure {
    let name = name.to_string_lossy();
    match missing {
        Missing::NotFound => {
            let place = if name.contains('/') { "" } else { " in any directory of PATH" };
            let report = miette!(
                code = "retrial::run::not_found",
                help = "retrial run -- sort --parallel=2 /etc/services",
                "no program `{name}`{place}"
            );
            Failure { code: 127, report }
        }
        Missing::NotExecutable(path) => not_executable(path, "no file that may be executed"),
    }
}

fn not_executable(path: &Path, why: &str) -> Failure {
    let path = path.display().to_string();
    let help = format!("ls -ld {}", quoted(&path));
    let report = miette!(code = "retrial::run::not_executable", help = help, "{path}: {why}");
    Failure { code: 126, report }
}

/// What the kernel said to an existing executable.
fn not_executed(path: &Path, error: &std::io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::ENOENT) => not_executable(path, "its interpreter, or the loader it asks for, does not exist"),
        Some(libc::ENOEXEC) => {
            let report = miette!(
                code = "retrial::run::format",
                help = format!("retrial run -- sh {}", quoted(&path.to_string_lossy())),
                "{}: no program of this machine, and no script with a `#!` line",
                path.display()
            );
            Failure { code: 126, report }
        }
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => {
            let report = miette!(
                code = "retrial::run::resources",
                help = "ulimit -a; free -m",
                "no process for {}: {error}",
                path.display()
            );
            Failure { code: 2, report }
        }
        _ => not_executable(path, &error.to_string()),
    }
}

fn sanitized(file: &Path, program: &[OsString]) -> Report {
    miette!(
        code = "retrial::run::sanitized",
        help = format!("{}  (as it is), or build it without -fsanitize=thread", shown(program)),
        "{} has ThreadSanitizer in it, which takes the pthread calls itself",
        file.display()
    )
}

/// The command as one can type it again.
fn shown(program: &[OsString]) -> String {
    let quoted = program.iter().map(|word| quoted(&word.to_string_lossy()).into_owned());
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_it_can_be_typed() {
        let words = ["sort", "a b", "", "it's", "two\nlines"].map(OsString::from);
        assert_eq!(shown(&words), r"sort 'a b' '' 'it'\''s' $'two\nlines'");
    }
}
