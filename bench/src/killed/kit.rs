//! The programs of the rounds, and what they leave.

use super::row::{Round, Row};
use super::{Load, Variant};
use crate::{command, report};
use miette::{IntoDiagnostic, Report, WrapErr, miette};
use retrial_bench::signals;
use std::fmt::Write;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SOURCE: &str = include_str!("../../programs/killed.c");

/// Processes of a round.
const PROCESSES: usize = 6;
/// Records that each `mdb_load` has: about a fifth of a second for six of them on two processors.
const RECORDS: u32 = 20_000;
/// What is needed for rounds, in a directory that goes with this value.
pub struct Kit {
    directory: PathBuf,
    program: PathBuf,
    retrial: PathBuf,
}

impl Drop for Kit {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Kit {
    pub fn new(retrial: Option<&Path>) -> Result<Self, Report> {
        let retrial = command::retrial(retrial)?;
        // In memory where there is such a directory: commits of LMDB are not to wait for a disk.
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let directory = parent.join(format!("bench-killed-{}", std::process::id()));
        let kit = Self { program: directory.join("killed"), directory, retrial };
        let (path, source) = (&kit.directory, kit.directory.join("killed.c"));
        fs::create_dir(path).into_diagnostic().wrap_err_with(|| format!("{} cannot be made", path.display()))?;
        report::write(&source, SOURCE.as_bytes())?;
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let compiled = Command::new(&compiler).args(["-O2", "-pthread", "-o"]).arg(&kit.program).arg(&source).status();
        if compiled.is_ok_and(|status| status.success()) {
            return Ok(kit);
        }
        Err(miette!(
            code = "bench::killed::compiler",
            help = "apt-get install gcc libc6-dev",
            "{} does not compile a C program",
            compiler.display()
        ))
    }

    /// The command that runs the program, with where its report goes.
    fn command(&self, variant: &Variant) -> (Command, Option<PathBuf>) {
        let Some(scheme) = &variant.scheme else { return (Command::new(&self.program), None) };
        let report = self.directory.join("report.json");
        let mut command = Command::new(&self.retrial);
        command.args(["run", "--json", "--scheme", scheme, "--report"]).arg(&report).arg("--").arg(&self.program);
        (command, Some(report))
    }

    /// Runs the program and adds its rounds to the row; `each` is given every round as it ends, for what else
    /// is to be looked at.
    fn run(
        &self,
        variant: &Variant,
        arguments: &[String],
        row: &mut Row,
        mut each: impl FnMut(&mut Round) -> Result<(), Report>,
    ) -> Result<(), Report> {
        let (mut command, report) = self.command(variant);
        let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().into_diagnostic()?;
        let stdout = child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines());
        for line in stdout {
            let line = line.into_diagnostic()?;
            let parsed: Result<Round, _> = serde_json::from_str(&line);
            let mut round = parsed.map_err(|error| miette!("`{line}` is no line of killed.c: {error}"))?;
            each(&mut round)?;
            row.add(&round);
        }
        let status = child.wait().into_diagnostic()?;
        if signals::received().is_none() && !status.success() {
            return Err(miette!("killed.c {} under {} ended with {status}", arguments.join(" "), variant.name));
        }
        if let Some(report) = report.filter(|_| status.success()) {
            let report = command::report(&report)?;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole numbers
            let sum = |column: &str| command::calls(&report, column).unwrap_or(0.0) as u64;
            row.handled = row.handled.map(|handled| handled + sum("handled"));
            row.fallback = row.fallback.map(|fallback| fallback + sum("fallback"));
        }
        Ok(())
    }

    /// A block of rounds from this seed on.
    pub fn block(
        &self,
        variant: &Variant,
        load: Load,
        seeds: std::ops::Range<u64>,
        row: &mut Row,
        mut each: impl FnMut(&Round),
    ) -> Result<(), Report> {
        match load {
            Load::Own { hold, gets } => {
                let numbers = [u128::from(seeds.end - seeds.start), hold.as_nanos(), gets.into(), seeds.start.into()];
                let mut arguments = vec!["rounds".to_owned()];
                arguments.extend(numbers.iter().map(u128::to_string));
                self.run(variant, &arguments, row, |round| {
                    each(round);
                    Ok(())
                })
            }
            Load::MdbLoad => {
                for seed in seeds {
                    let environment = self.directory.join("environment");
                    let _ = fs::remove_dir_all(&environment);
                    fs::create_dir(&environment).into_diagnostic()?;
                    let mut arguments =
                        vec!["load".to_owned(), seed.to_string(), environment.to_string_lossy().into_owned()];
                    arguments.extend((0..PROCESSES).map(|i| self.records(i).to_string_lossy().into_owned()));
                    self.run(variant, &arguments, row, |round| {
                        let complete = if round.hung { 0 } else { PROCESSES - round.kills as usize };
                        round.violations += u64::from(!is_whole(&environment, complete)?);
                        each(round);
                        Ok(())
                    })?;
                    if signals::received().is_some() {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// The file that one `mdb_load` loads.
    fn records(&self, process: usize) -> PathBuf {
        self.directory.join(format!("records-{process}"))
    }

    pub fn write_records(&self) -> Result<(), Report> {
        for process in 0..PROCESSES {
            let mut text = "VERSION=3\nformat=print\ntype=btree\nmapsize=268435456\nHEADER=END\n".to_owned();
            for number in 0..RECORDS {
                let (key, value) = record(process, number);
                let _ = writeln!(text, " {key}\n {value}");
            }
            text.push_str("DATA=END\n");
            report::write(&self.records(process), text.as_bytes())?;
        }
        Ok(())
    }
}

/// Key and value; keys of a process are in their order.
fn record(process: usize, number: u32) -> (String, String) {
    (format!("{process}-{number:06}"), format!("{:060}", u64::from(number) * 7919 + process as u64))
}

/// Whether a dump has keys in ascending order, of each process its first records with their values, of so
/// many processes all records, and as many entries as the statistics say.
fn is_whole(environment: &Path, complete: usize) -> Result<bool, Report> {
    let dump = mdb("mdb_dump", &["-p", &environment.to_string_lossy()])?;
    let statistics = mdb("mdb_stat", &[&environment.to_string_lossy()])?;
    let entries = statistics.lines().find_map(|line| line.trim().strip_prefix("Entries: ")?.parse().ok());
    Ok(dump_is_whole(&dump, entries, complete))
}

fn dump_is_whole(dump: &str, entries: Option<usize>, complete: usize) -> bool {
    let lines: Vec<&str> = dump.lines().filter_map(|line| line.strip_prefix(' ')).collect();
    let (pairs, rest) = lines.as_chunks::<2>();
    let mut loaded = [0; PROCESSES];
    for [key, value] in pairs {
        let process = key.split('-').next().and_then(|text| text.parse::<usize>().ok());
        let Some((process, number)) = process.and_then(|process| Some((process, loaded.get_mut(process)?))) else {
            return false;
        };
        if record(process, *number) != ((*key).to_owned(), (*value).to_owned()) {
            return false;
        }
        *number += 1;
    }
    rest.is_empty()
        && pairs.is_sorted_by(|a, b| a[0] < b[0])
        && entries == Some(pairs.len())
        && loaded.iter().filter(|number| **number == RECORDS).count() >= complete
}

/// What a tool of LMDB prints.
pub fn mdb(tool: &str, arguments: &[&str]) -> Result<String, Report> {
    let output = Command::new(tool).args(arguments).output().map_err(|error| {
        miette!(code = "bench::killed::lmdb", help = "apt-get install lmdb-utils", "{tool} cannot be run: {error}")
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(miette!(code = "bench::killed::lmdb", "{tool} ended with {}: {}", output.status, said.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(records: &[(usize, u32)]) -> String {
        let mut text = "VERSION=3\nHEADER=END\n".to_owned();
        for (process, number) in records {
            let (key, value) = record(*process, *number);
            let _ = writeln!(text, " {key}\n {value}");
        }
        text + "DATA=END\n"
    }

    #[test]
    fn a_dump_is_whole_when_it_has_the_first_records_of_each() {
        let whole = [(0, 0), (0, 1), (3, 0)];
        assert!(dump_is_whole(&dump(&whole), Some(3), 0));
        assert!(!dump_is_whole(&dump(&whole), Some(4), 0), "an entry is missing");
        assert!(!dump_is_whole(&dump(&whole), Some(3), 1), "nobody has loaded all");
        assert!(!dump_is_whole(&dump(&[(0, 0), (0, 2)]), Some(2), 0), "a record is missing");
        assert!(!dump_is_whole(&dump(&[(3, 0), (0, 0)]), Some(2), 0), "out of order");
        assert!(!dump_is_whole(&dump(&whole).replace("7919", "7918"), Some(3), 0), "another value");
        let all: Vec<(usize, u32)> = (0..RECORDS).map(|number| (1, number)).collect();
        assert!(dump_is_whole(&dump(&all), Some(all.len()), 1));
    }
}
