//! GT.M, a stock database whose processes share a robust pthread mutex for each database file, under our waiting.

use crate::command::{self, Rounds};
use crate::report::{self, Output, header};
use crate::row;
use miette::{IntoDiagnostic, Report, WrapErr, miette};
use retrial::Address;
use retrial::wait::NAMES;
use retrial_bench::cell::Stopped;
use retrial_bench::signals;
use serde::Serialize;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// GT.M's critical section under our waiting: 3n+1 and interest posting, as other engines are compared
///
/// Processes begin together on a fresh database and work for a while; an operation is an integer whose steps to 1 are found, or
/// a posting to an account in a transaction. `plain` is GT.M as it is, other schemes are run under `retrial run`. Processor
/// time is that of the processes while they work. After each run what the database has is compared with what it must have.
#[derive(clap::Args)]
pub struct Args {
    /// What the processes do; may be repeated [default: both]
    #[arg(long = "workload", value_name = "WORKLOAD", value_parser = workload)]
    workloads: Vec<&'static Workload>,
    /// Numbers of processes
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "2,4,8,16,32,64,128,256")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    processes: Vec<u32>,
    /// `plain`, and how sessions wait under `retrial run`
    #[arg(long, value_name = "SCHEME,…", value_delimiter = ',', default_value = "plain,ydb,pthread,adaptive,orbit")]
    #[arg(value_parser = scheme)]
    schemes: Vec<String>,
    /// Rounds through all schemes
    #[arg(long, value_name = "N", default_value_t = report::ROUNDS, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Time of a run, in whole seconds
    #[arg(long, value_name = "S", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// The command `retrial` [default: beside this one]
    #[arg(long, value_name = "PATH")]
    retrial: Option<PathBuf>,
}

const PLAIN: &str = "plain";

/// A load: a routine with the labels `setup`, `block` and `check`.
#[derive(Debug)]
struct Workload {
    name: &'static str,
    routine: &'static str,
    operation: &'static str,
    /// What is wrong with what `check` found after so many operations.
    wrong: fn(&[u64], u64) -> Option<String>,
}

static WORKLOADS: [Workload; 2] = [
    Workload { name: "3n+1", routine: "stopping", operation: "integers", wrong: wrong_stopping },
    Workload { name: "interest", routine: "interest", operation: "postings", wrong: wrong_interest },
];

/// The programs, as files.
const ROUTINES: [(&str, &str); 3] = [
    ("worker.m", include_str!("../gtm/worker.m")),
    ("stopping.m", include_str!("../gtm/stopping.m")),
    ("interest.m", include_str!("../gtm/interest.m")),
];

/// The database: buffers for all that a run of some seconds writes, room for the locks of all processes, and so many blocks
/// that it need not grow under the critical section; a block takes no room before it is written.
const DIRECTORY: &str = "change -segment DEFAULT -file_name=bench.dat
change -segment DEFAULT -block_size=4096 -allocation=200000 -extension_count=50000
change -segment DEFAULT -global_buffer_count=32768 -lock_space=2000
change -region DEFAULT -key_size=64 -record_size=256
exit
";

/// Starts the processes, all with our standard input, and waits for them: `sh ROUTINE SECONDS PROCESSES`.
const DRIVER: &str = "exec 3<&0; i=0
while [ $i -lt $3 ]; do \"$gtm_dist/mumps\" -run worker $1 $2 <&3 & i=$((i + 1)); done
wait";

/// How long nothing may happen, in steps. Steps and not a time: what stops the machine stops them too.
const PATIENCE: u32 = 1200;
const STEP: Duration = Duration::from_millis(100);

/// Times that a run is tried when the machine was away meanwhile.
const TRIES: u32 = 3;

const REPORT: &str = "report.json";

/// What tables do not show; files have all.
const HIDDEN: [&str; 4] = ["workload", "duration_s", "cpu_s_per_s", "gets_per_op"];

/// A scheme with so many processes. Units are in the names; a figure is the median of the rounds, a ratio the median of the
/// rounds' ratios. `None` where nothing was measured.
#[derive(Serialize)]
struct Row {
    workload: &'static str,
    processes: u32,
    under: String,
    rounds: usize,
    duration_s: u32,
    ops_per_s: Option<f64>,
    ops_min: Option<f64>,
    ops_max: Option<f64>,
    ops_to_plain: Option<f64>,
    cpu_s_per_s: Option<f64>,
    cpu_us_per_op: Option<f64>,
    cpu_us_min: Option<f64>,
    cpu_us_max: Option<f64>,
    cpu_to_plain: Option<f64>,
    gets_per_op: Option<f64>,
    misses_pct: Option<f64>,
    /// Calls on mutexes of a run.
    handled: Option<f64>,
    fallback: Option<f64>,
    failure: Option<String>,
}

fn workload(text: &str) -> Result<&'static Workload, String> {
    let names = || WORKLOADS.iter().map(|workload| workload.name).collect::<Vec<_>>().join(", ");
    WORKLOADS.iter().find(|w| w.name == text).ok_or_else(|| format!("`{text}`, expected one of {}", names()))
}

fn scheme(text: &str) -> Result<String, String> {
    if text == PLAIN || NAMES.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}`, expected {PLAIN} or one of {}", NAMES.join(", ")))
    }
}

/// Where GT.M is: what `gtm_dist` says, or the latest of Debian's.
fn distribution() -> Result<PathBuf, Report> {
    let is_there = |path: &PathBuf| path.join("mumps").is_file();
    if let Some(path) = std::env::var_os("gtm_dist").map(PathBuf::from) {
        return Some(path).filter(is_there).ok_or_else(|| {
            miette!(code = "bench::gtm", help = "unset gtm_dist", "no `mumps` where the variable gtm_dist says")
        });
    }
    let inside = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let machines = inside(Path::new("/usr/lib")).map(|path| path.join("fis-gtm"));
    machines.flat_map(|path| inside(&path).collect::<Vec<_>>()).filter(is_there).max().ok_or_else(|| {
        miette!(code = "bench::gtm", help = "apt-get install fis-gtm", "no GT.M in /usr/lib/*/fis-gtm, and no gtm_dist")
    })
}

/// A directory with a database, which is gone afterwards with its shared memory.
struct Database {
    distribution: PathBuf,
    directory: PathBuf,
}

impl Database {
    fn new() -> Result<Self, Report> {
        let distribution = distribution()?;
        let directory = std::env::temp_dir().join(format!("bench-gtm-{}", std::process::id()));
        fs::create_dir(&directory)
            .into_diagnostic()
            .wrap_err_with(|| format!("no directory {}", directory.display()))?;
        let database = Self { distribution, directory };
        for (name, text) in ROUTINES.into_iter().chain([("directory", DIRECTORY)]) {
            report::write(&database.directory.join(name), text.as_bytes())?;
        }
        let commands = File::open(database.directory.join("directory")).into_diagnostic()?;
        said(database.command("mumps").args(["-run", "GDE"]).stdin(commands))?;
        Ok(database)
    }

    /// A program of GT.M's, or another one that runs such programs.
    fn command(&self, program: &str) -> Command {
        let mut path = self.distribution.join(program);
        if !path.is_file() {
            path = PathBuf::from(program);
        }
        let mut command = Command::new(path);
        let routines = format!(". {}", self.distribution.join("libgtmutil.so").display());
        command.current_dir(&self.directory).env("gtm_dist", &self.distribution).env("gtmroutines", routines);
        command.env("gtmgbldir", "bench.gld").env("gtm_tmp", &self.directory).env_remove("gtm_chset");
        command
    }

    /// What a label of a routine says.
    fn run(&self, label: &str) -> Result<String, Report> {
        said(self.command("mumps").args(["-run", label]).stdin(Stdio::null()))
    }

    /// Makes a fresh database.
    fn fill(&self, workload: &Workload) -> Result<(), Report> {
        self.remove()?;
        said(self.command("mupip").arg("create"))?;
        self.run(&format!("setup^{}", workload.routine)).map(drop)
    }

    /// Removes the shared memory that killed processes have left, and the database.
    fn remove(&self) -> Result<(), Report> {
        let file = self.directory.join("bench.dat");
        if file.exists() {
            said(self.command("mupip").args(["rundown", "-region", "*"]))?;
            fs::remove_file(file).into_diagnostic()?;
        }
        Ok(())
    }

    /// A run of so many processes, under a scheme or as it is; once more when the machine was away meanwhile.
    fn measure(&self, load: &Load, scheme: Option<(&Path, &str)>) -> Result<Run, Stopped> {
        for _ in 1..TRIES {
            let (run, stall) = self.once(load, scheme)?;
            if stall < Duration::from_secs(u64::from(load.seconds)) / 4 {
                return Ok(run);
            }
        }
        Ok(self.once(load, scheme)?.0)
    }

    /// A run whose results are right, and the longest time that we were not heard of in it.
    fn once(&self, load: &Load, scheme: Option<(&Path, &str)>) -> Result<(Run, Duration), Stopped> {
        let Load { workload, processes, seconds } = *load;
        self.fill(workload)?;
        let instance = Instance::unused()?;
        let mut command = match scheme {
            None => self.command("sh"),
            Some((retrial, scheme)) => {
                let mut command = self.command(&retrial.to_string_lossy());
                command.args(["--json", "run", "--scheme", scheme, "--report", REPORT, "--instance"]);
                command.args([&instance.0.to_string(), "--", "sh"]);
                command
            }
        };
        command.args(["-c", DRIVER, "sh", workload.routine, &seconds.to_string(), &processes.to_string()]);
        let mut running = Running::start(command, &self.directory)?;
        for _ in 0..processes {
            running.line("ready")?;
        }
        running.begin();
        let mut all = Vec::new();
        for _ in 0..processes {
            all.push(numbers(&running.line("done")?)?);
        }
        let stall = running.end()?;
        let mut run = Run::of(&all)?;
        // Two in the critical section at once damage the database.
        said(self.command("mupip").args(["integ", "-file", "bench.dat"]))?;
        let found = self.run(&format!("check^{}", workload.routine))?;
        if let Some(wrong) = (workload.wrong)(&numbers(&found)?, run.operations) {
            return Err(miette!(code = "bench::gtm::wrong", "WRONG RESULTS: {wrong}").into());
        }
        if scheme.is_some() {
            run.calls = Some(Calls::read(&self.directory.join(REPORT))?);
        }
        Ok((run, stall))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Err(report) = self.remove() {
            eprintln!("shared memory may be left, see ipcs -m: {report:?}");
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Standard output of a command that ends well and does not say that it failed.
fn said(command: &mut Command) -> Result<String, Report> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().into_diagnostic().wrap_err_with(|| format!("{name} cannot be run"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() && !text.contains("%GTM-E-") {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(miette!(code = "bench::gtm", "{name}: {}: {}{}", output.status, text.trim(), errors.trim()))
}

/// The numbers of a line after its first word.
fn numbers(line: &str) -> Result<Vec<u64>, Report> {
    let numbers: Option<Vec<u64>> = line.split_whitespace().skip(1).map(|word| word.parse().ok()).collect();
    numbers.ok_or_else(|| miette!(code = "bench::gtm", "a process says `{}`, expected numbers", line.trim()))
}

/// The name of an instance; removed at the end, when `retrial run` was killed.
struct Instance(Address);

impl Instance {
    fn unused() -> Result<Self, Report> {
        Address::new(&format!("bench-gtm-{}", std::process::id())).map(Self).into_diagnostic()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0.path());
    }
}

/// Processes under way: a process group, of which nothing is left at the end.
struct Running {
    child: Child,
    lines: Receiver<String>,
    errors: PathBuf,
    /// The longest time for which we did not run while we were to look.
    stall: Duration,
    /// The group has ended, and its number may be another's.
    is_over: bool,
}

impl Running {
    fn start(mut command: Command, directory: &Path) -> Result<Self, Report> {
        let errors = directory.join("errors");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&errors).into_diagnostic()?);
        let mut child = command.process_group(0).spawn().into_diagnostic()?;
        let (sender, lines) = channel();
        if let Some(output) = child.stdout.take() {
            // Ends with the last process, or with us.
            std::thread::spawn(move || {
                BufReader::new(output).lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
            });
        }
        Ok(Self { child, lines, errors, stall: Duration::ZERO, is_over: false })
    }

    /// Lets all begin: they wait for the end of their standard input.
    fn begin(&mut self) {
        drop(self.child.stdin.take());
    }

    /// The next line, which must begin with this word.
    fn line(&mut self, word: &str) -> Result<String, Stopped> {
        for _ in 0..PATIENCE {
            if signals::received().is_some() {
                return Err(Stopped::Interrupted);
            }
            let before = Instant::now();
            let received = self.lines.recv_timeout(STEP);
            self.stall = self.stall.max(before.elapsed().saturating_sub(STEP));
            match received {
                Ok(line) if line.split(' ').next() == Some(word) => return Ok(line),
                Ok(line) if line.is_empty() => {}
                Ok(line) => return Err(self.failure(&format!("a process says `{line}`, expected `{word}`")).into()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.failure(&format!("a process ended without `{word}`")).into());
                }
            }
        }
        Err(self.failure(&format!("no process says `{word}` for {} s: they hang", (STEP * PATIENCE).as_secs())).into())
    }

    /// Waits for the end of all, and says for how long at most we did not run while we were to look.
    fn end(mut self) -> Result<Duration, Stopped> {
        for _ in 0..PATIENCE {
            if let Some(status) = self.child.try_wait().into_diagnostic()? {
                if status.success() {
                    self.is_over = true;
                    return Ok(self.stall);
                }
                return Err(self.failure(&status.to_string()).into());
            }
            std::thread::sleep(STEP / 10);
        }
        Err(self.failure("the processes do not end").into())
    }

    /// Waits until nobody has the output any more: the last to let go of it has let go of the shared memory before.
    fn is_silent(&self) -> bool {
        (0..PATIENCE / 10).any(|_| matches!(self.lines.recv_timeout(STEP), Err(RecvTimeoutError::Disconnected)))
    }

    fn failure(&self, what: &str) -> Report {
        let errors = fs::read_to_string(&self.errors).unwrap_or_default();
        miette!(code = "bench::gtm::run", "{what} {}", errors.lines().take(3).collect::<Vec<_>>().join(" "))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let group = i32::try_from(self.child.id()).unwrap_or(i32::MAX);
        // Killed in the critical section, GT.M leaves what it cannot clean up itself: first they are told to end. The group
        // keeps its number as long as one process is in it.
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            // SAFETY: a process group is asked for by number.
            unsafe { libc::kill(-group, signal) };
            if self.is_silent() {
                break;
            }
        }
        let _ = self.child.wait();
    }
}

/// What is measured of a workload.
struct Load {
    workload: &'static Workload,
    processes: u32,
    seconds: u32,
}

/// What a run came to.
struct Run {
    operations: u64,
    elapsed_s: f64,
    /// Of the processes while they worked.
    cpu_s: f64,
    calls: Option<Calls>,
}

impl Run {
    /// From what each process said: operations, begin and end in µs, processor time in ns.
    fn of(processes: &[Vec<u64>]) -> Result<Self, Report> {
        let (mut operations, mut begin, mut end, mut cpu_ns) = (0, u64::MAX, 0, 0);
        for numbers in processes {
            let [own, from, to, ns] = numbers[..] else {
                return Err(miette!(code = "bench::gtm", "a process says {numbers:?}, expected four numbers"));
            };
            operations += own;
            begin = begin.min(from);
            end = end.max(to);
            cpu_ns += ns;
        }
        let elapsed_s = end.saturating_sub(begin).max(1) as f64 / 1e6;
        Ok(Self { operations, elapsed_s, cpu_s: cpu_ns as f64 / 1e9, calls: None })
    }

    fn ops_per_s(&self) -> f64 {
        self.operations as f64 / self.elapsed_s
    }

    fn cpu_us_per_op(&self) -> f64 {
        self.cpu_s * 1e6 / self.operations as f64
    }
}

/// What `retrial run` reports.
struct Calls {
    gets: f64,
    misses: f64,
    handled: f64,
    fallback: f64,
}

impl Calls {
    fn read(path: &Path) -> Result<Self, Report> {
        let wrong = || format!("the report of retrial run, {}", path.display());
        let text = fs::read(path).into_diagnostic().wrap_err_with(wrong)?;
        let report: Value = serde_json::from_slice(&text).into_diagnostic().wrap_err_with(wrong)?;
        let calls = report["calls"].as_array().map_or(&[][..], Vec::as_slice);
        let all = |which: &str| calls.iter().filter_map(|calls| calls[which].as_f64()).sum();
        let figure = |name: &str| report[name].as_f64().unwrap_or(0.0);
        Ok(Self { gets: figure("gets"), misses: figure("misses"), handled: all("handled"), fallback: all("fallback") })
    }
}

/// A scheme's rounds.
#[derive(Default)]
struct Measured {
    runs: Vec<Run>,
    /// Why there are no more.
    failure: Option<String>,
}

impl Row {
    fn new(load: &Load, scheme: &str, own: &Measured, plain: Option<&Measured>) -> Self {
        let runs = &own.runs;
        let rounds = Rounds { own: runs, plain: plain.map(|plain| plain.runs.as_slice()) };
        let calls = |value: fn(&Run, &Calls) -> f64| rounds.middle(|run| Some(value(run, run.calls.as_ref()?)));
        let ops = |run: &Run| Some(run.ops_per_s());
        let cpu = |run: &Run| Some(run.cpu_us_per_op());
        Self {
            workload: load.workload.name,
            processes: load.processes,
            under: if scheme == PLAIN { PLAIN.to_owned() } else { format!("retrial {scheme}") },
            rounds: runs.len(),
            duration_s: load.seconds,
            ops_per_s: rounds.middle(ops),
            ops_min: rounds.least(ops),
            ops_max: rounds.most(ops),
            ops_to_plain: rounds.ratio(Run::ops_per_s),
            cpu_s_per_s: rounds.middle(|run| Some(run.cpu_s / run.elapsed_s)),
            cpu_us_per_op: rounds.middle(cpu),
            cpu_us_min: rounds.least(cpu),
            cpu_us_max: rounds.most(cpu),
            cpu_to_plain: rounds.ratio(Run::cpu_us_per_op),
            gets_per_op: calls(|run, calls| calls.gets / run.operations as f64),
            misses_pct: calls(|_, calls| 100.0 * calls.misses / calls.gets),
            handled: calls(|_, calls| calls.handled),
            fallback: calls(|_, calls| calls.fallback),
            failure: own.failure.clone(),
        }
    }
}

/// Steps to 1 of the integers up to a limit: their sum, the first integer with the most, and how many those are.
fn stopping_times(limit: u64) -> (u64, u64, u64) {
    let mut steps: Vec<u64> = vec![0, 0];
    let (mut sum, mut longest, mut most) = (0, 0, 0);
    for n in 2..=limit {
        let (mut at, mut count) = (n, 0);
        while at >= n {
            at = if at % 2 == 1 { 3 * at + 1 } else { at / 2 };
            count += 1;
        }
        count += usize::try_from(at).ok().and_then(|at| steps.get(at)).copied().unwrap_or(0);
        steps.push(count);
        sum += count;
        if count > most {
            (longest, most) = (n, count);
        }
    }
    (sum, longest, most)
}

/// `check^stopping`: integers, the sum of their steps, the first with the most, how many.
fn wrong_stopping(found: &[u64], operations: u64) -> Option<String> {
    let (sum, longest, most) = stopping_times(operations);
    let expected = [operations, sum, longest, most];
    (found != expected)
        .then(|| format!("integers, sum of steps, longest run, its steps: {found:?}, expected {expected:?}"))
}

/// `check^interest`: postings, the sum of balances, what was there at first and was posted, accounts with another balance than
/// their postings give.
fn wrong_interest(found: &[u64], operations: u64) -> Option<String> {
    let paid = found.get(2).copied().unwrap_or(0);
    let expected = [operations, paid, paid, 0];
    (found != expected)
        .then(|| format!("postings, balances, opened and posted, wrong accounts: {found:?}, expected {expected:?}"))
}

pub fn run(args: &Args, output: &Output) -> Result<ExitCode, Report> {
    let under_retrial = args.schemes.iter().any(|scheme| scheme != PLAIN);
    let retrial = if under_retrial { command::retrial(args.retrial.as_deref())? } else { PathBuf::new() };
    let database = Database::new()?;
    signals::catch();
    let workloads: Vec<&'static Workload> =
        if args.workloads.is_empty() { WORKLOADS.iter().collect() } else { args.workloads.clone() };
    let mut lines = header();
    lines.push(format!(
        "{}; {} rounds of {} s; ops: {}; cpu_us: processor time of an operation",
        database.run("version^worker")?.trim(),
        args.rounds,
        args.seconds,
        workloads.iter().map(|w| format!("{}: {}", w.name, w.operation)).collect::<Vec<_>>().join(", ")
    ));
    output.say(&lines.join("\n"));
    let mut rows: Vec<Row> = Vec::new();
    let mut whole = true;
    'all: for workload in workloads {
        let first = rows.len();
        for &processes in &args.processes {
            let load = Load { workload, processes, seconds: args.seconds };
            let measured = rounds(args, &database, &retrial, &load, &mut whole);
            let plain = args.schemes.iter().position(|scheme| scheme == PLAIN).map(|i| &measured[i]);
            let begun = args.schemes.iter().zip(&measured).filter(|(_, m)| !m.runs.is_empty() || m.failure.is_some());
            rows.extend(begun.map(|(scheme, own)| Row::new(&load, scheme, own, plain)));
            if let Some(path) = &output.csv {
                report::write(path, &row::csv(&rows, true)?)?;
            }
            if !whole {
                break;
            }
        }
        output.say(&format!("\n{}\n{}", workload.name, row::shown(&rows[first..], &HIDDEN).text()));
        if !whole {
            break 'all;
        }
    }
    output.end(&lines, &row::table(&rows))?;
    let failed = rows.iter().any(|row| row.failure.is_some());
    Ok(if failed || !whole { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

/// All rounds of the schemes under a load; `whole` is no longer so after Ctrl-C.
fn rounds(args: &Args, database: &Database, retrial: &Path, load: &Load, whole: &mut bool) -> Vec<Measured> {
    let mut measured: Vec<Measured> = args.schemes.iter().map(|_| Measured::default()).collect();
    for round in 0..args.rounds as usize {
        for i in 0..measured.len() {
            let i = (round + i) % measured.len();
            if measured[i].failure.is_some() {
                continue;
            }
            let scheme = args.schemes[i].as_str();
            let name = load.workload.name;
            eprintln!("{name}, {} processes, {scheme}, round {}/{}", load.processes, round + 1, args.rounds);
            match database.measure(load, (scheme != PLAIN).then_some((retrial, scheme))) {
                Ok(run) => measured[i].runs.push(run),
                Err(Stopped::Interrupted) => {
                    *whole = false;
                    return measured;
                }
                Err(Stopped::Failed(report)) => {
                    measured[i].failure = Some(report.to_string());
                    eprintln!("{report:?}");
                }
            }
        }
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_to_1_are_the_known_ones() {
        // 27 takes 111 steps; the longest below a million is that of 837,799.
        assert_eq!(stopping_times(27), (387, 27, 111));
        // 18 and 19 both take 20: the first counts.
        let (_, longest, most) = stopping_times(19);
        assert_eq!((longest, most), (18, 20));
        let (_, longest, most) = stopping_times(999_999);
        assert_eq!((longest, most), (837_799, 524));
    }

    #[test]
    fn results_that_are_not_right_are_found() {
        let (sum, longest, most) = stopping_times(100);
        assert_eq!(wrong_stopping(&[100, sum, longest, most], 100), None);
        for found in
            [[80, sum, longest, most], [100, sum + 1, longest, most], [100, sum, 98, most], [100, sum, longest, 0]]
        {
            assert!(wrong_stopping(&found, 100).is_some(), "{found:?}");
        }
        assert!(wrong_stopping(&[], 100).is_some());
        assert_eq!(wrong_interest(&[40, 1234, 1234, 0], 40), None);
        for found in [[39, 1234, 1234, 0], [40, 1233, 1234, 0], [40, 1234, 1234, 1]] {
            assert!(wrong_interest(&found, 40).is_some(), "{found:?}");
        }
        assert!(wrong_interest(&[], 40).is_some());
    }

    #[test]
    fn a_run_is_from_the_first_begin_to_the_last_end() {
        let run = Run::of(&[vec![20, 1_000_000, 3_000_000, 500], vec![40, 1_500_000, 4_000_000, 700]]).unwrap();
        assert_eq!((run.operations, run.elapsed_s, run.cpu_s), (60, 3.0, 1.2e-6));
        assert!(Run::of(&[vec![1, 2, 3]]).is_err());
        assert!(numbers("done 1 2 x").is_err());
        assert_eq!(numbers("done 1 2\n").unwrap(), [1, 2]);
    }
}
