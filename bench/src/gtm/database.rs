//! A database of GT.M's, and what runs on it.

use super::row::{self, Load};
use super::running::Running;
use super::workload::Workload;
use crate::command::{self, Instance, Run};
use crate::report;
use miette::{IntoDiagnostic, Report, WrapErr, miette};
use retrial_bench::cell::Stopped;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The programs, as files.
const ROUTINES: [(&str, &str); 3] = [
    ("worker.m", include_str!("../../gtm/worker.m")),
    ("stopping.m", include_str!("../../gtm/stopping.m")),
    ("interest.m", include_str!("../../gtm/interest.m")),
];

/// The database: buffers for all that a run of some seconds writes, room for the locks of all processes, and
/// so many blocks that it need not grow under the critical section; a block takes no room before it is
/// written.
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

/// Times that a run is tried when the machine was away meanwhile.
const TRIES: u32 = 3;

const REPORT: &str = "report.json";

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
pub struct Database {
    distribution: PathBuf,
    directory: PathBuf,
}

impl Database {
    pub fn new() -> Result<Self, Report> {
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
    pub fn run(&self, label: &str) -> Result<String, Report> {
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
    pub fn measure(&self, load: &Load, scheme: Option<(&Path, &str)>) -> Result<Run, Stopped> {
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
        let instance = Instance::unused("gtm")?;
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
        let (mut run, operations) = row::run(&all)?;
        // Two in the critical section at once damage the database.
        said(self.command("mupip").args(["integ", "-file", "bench.dat"]))?;
        let found = self.run(&format!("check^{}", workload.routine))?;
        if let Some(wrong) = (workload.wrong)(&numbers(&found)?, operations) {
            return Err(miette!(code = "bench::gtm::wrong", "WRONG RESULTS: {wrong}").into());
        }
        if scheme.is_some() {
            run.report = Some(command::report(&self.directory.join(REPORT))?);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_a_word() {
        assert!(numbers("done 1 2 x").is_err());
        assert_eq!(numbers("done 1 2\n").unwrap(), [1, 2]);
    }
}
