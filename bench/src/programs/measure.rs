//! Runs of a program, round by round.

use super::catalogue::{Loader, Operations, Program, SOCKET};
use super::memcached;
use super::pace::Pace;
use super::process::{Place, Running};
use crate::command::{self, Instance, Measured, Run};
use miette::IntoDiagnostic;
use retrial_bench::cell::Stopped;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// What is done with each program.
pub struct Plan<'a> {
    pub rounds: u32,
    pub duration: Duration,
    pub retrial: &'a Path,
    /// Schemes; `None` is the program as it is.
    pub variants: &'a [Option<String>],
    pub root: &'a Path,
}

/// What stands after the waits in the output.
const WAITS: [&str; 4] = ["us p50", "us p99", "us p999", "us longest"];

/// How long starts, ends and stragglers may take beyond the duration.
const AROUND: Duration = Duration::from_mins(2);

/// Times that a run is tried when the machine was away meanwhile.
const TRIES: u32 = 3;

const REPORT: &str = "report.json";

impl Plan<'_> {
    /// All rounds of a program; the rounds so far after Ctrl-C.
    pub fn measure(&self, program: &Program) -> Result<Vec<Measured>, Stopped> {
        let place = self.prepare(program)?;
        let mut measured: Vec<Measured> = self.variants.iter().map(|_| Measured::default()).collect();
        'all: for round in 0..self.rounds as usize {
            for i in 0..measured.len() {
                let i = (round + i) % measured.len();
                if measured[i].failure.is_some() {
                    continue;
                }
                let scheme = self.variants[i].as_deref();
                eprintln!("{}, {}, round {}/{}", program.name, under(scheme), round + 1, self.rounds);
                match self.run(program, &place, scheme) {
                    Ok(run) => measured[i].runs.push(run),
                    Err(Stopped::Interrupted) => break 'all,
                    Err(Stopped::Failed(report)) => {
                        measured[i].failure = Some(report.to_string());
                        eprintln!("{report:?}");
                    }
                }
            }
        }
        let _ = fs::remove_dir_all(&place.directory);
        Ok(measured)
    }

    fn operations(&self, program: &Program) -> u64 {
        match program.operations {
            Operations::Printed(_) => 0,
            Operations::Planned(per_s) => u64::from(per_s) * self.duration.as_secs(),
        }
    }

    fn prepare(&self, program: &Program) -> Result<Place, Stopped> {
        let directory = self.root.join(program.name);
        fs::create_dir(&directory).into_diagnostic()?;
        for (name, text) in program.files {
            fs::write(directory.join(name), text).into_diagnostic()?;
        }
        // SAFETY: cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        let variables = vec![
            ("DURATION", self.duration.as_secs().to_string()),
            ("OPERATIONS", self.operations(program).to_string()),
            ("AS_ROOT", if is_root { "--user=root" } else { "" }.to_owned()),
        ];
        let place = Place { directory, variables };
        place.run(program.prepare)?;
        Ok(place)
    }

    /// A run; once more when the machine was away meanwhile.
    fn run(&self, program: &Program, place: &Place, scheme: Option<&str>) -> Result<Run, Stopped> {
        for _ in 1..TRIES {
            let (run, stall) = self.once(program, place, scheme)?;
            if stall < self.duration / 4 {
                return Ok(run);
            }
        }
        Ok(self.once(program, place, scheme)?.0)
    }

    /// A run, and the longest time that we were not heard of in it.
    fn once(&self, program: &Program, place: &Place, scheme: Option<&str>) -> Result<(Run, Duration), Stopped> {
        place.run(program.before)?;
        let instance = scheme.map(|_| Instance::unused("programs")).transpose()?;
        let under = match (scheme, &instance) {
            (Some(scheme), Some(Instance(address))) => self.under(scheme, &address.to_string()),
            _ => Vec::new(),
        };
        let mut pace = Pace::new(self.duration + AROUND);
        let mut running = place.start(program.run, &under)?;
        let (elapsed, cpu_s, printed) = match program.loader {
            Loader::Itself => {
                let ended = running.wait(&mut pace)?;
                (ended.elapsed, ended.cpu_s, place.output())
            }
            Loader::Line(_) | Loader::Memcached => {
                self.serve(program, place, &mut running, !under.is_empty(), &mut pace)?
            }
        };
        let report = scheme.map(|_| command::report(&place.directory.join(REPORT))).transpose()?;
        // Of a program that ends by itself, `retrial run` knows the time without its own.
        let itself = matches!(program.loader, Loader::Itself);
        let figures = report.as_ref().filter(|_| itself);
        let figure = |name: &str| figures.and_then(|report| report[name].as_f64());
        let cpu_s = figure("cpu_user_s").zip(figure("cpu_system_s")).map_or(cpu_s, |(user, system)| user + system);
        let elapsed_s = figure("elapsed_s").unwrap_or(elapsed.as_secs_f64());
        let (ops_per_s, operations) = match program.operations {
            Operations::Planned(_) => (self.operations(program) as f64 / elapsed_s, self.operations(program) as f64),
            Operations::Printed(what) => {
                let ops_per_s = number_before(&printed, what).filter(|number| *number > 0.0);
                let ops_per_s =
                    ops_per_s.ok_or_else(|| running.failure(&format!("printed no number before `{what}`")))?;
                (ops_per_s, ops_per_s * self.duration.as_secs_f64())
            }
        };
        let run = Run {
            operations,
            ops_per_s,
            cpu_s_per_s: cpu_s / elapsed_s,
            cpu_us_per_op: cpu_s * 1e6 / operations,
            waits_us: WAITS.map(|what| number_before(&printed, what)),
            report,
        };
        Ok((run, pace.stall))
    }

    /// Loads a server and tells it to end: the time and the server's processor time under load, and what the
    /// load printed.
    fn serve(
        &self,
        program: &Program,
        place: &Place,
        server: &mut Running,
        under: bool,
        pace: &mut Pace,
    ) -> Result<(Duration, f64, String), Stopped> {
        server.until_listening(SOCKET, pace)?;
        let before = server.cpu_s(under);
        let (elapsed, printed) = if let Loader::Line(line) = program.loader {
            let client = Place { directory: place.directory.join("client"), variables: place.variables.clone() };
            let _ = fs::create_dir(&client.directory);
            let ended = client.start(&format!("cd ..; {line}"), &[])?.wait(pace)?;
            (ended.elapsed, client.output())
        } else {
            let ops_per_s = memcached::load(&place.directory.join(SOCKET), self.duration, pace);
            let ops_per_s = ops_per_s.map_err(|stopped| match stopped {
                Stopped::Failed(report) => server.failure(&report.to_string()).into(),
                Stopped::Interrupted => Stopped::Interrupted,
            })?;
            (self.duration, format!("{ops_per_s} ops/s"))
        };
        let cpu_s = server.cpu_s(under) - before;
        server.stop()?;
        Ok((elapsed, cpu_s, printed))
    }

    /// `retrial run` with its options.
    fn under(&self, scheme: &str, instance: &str) -> Vec<OsString> {
        let words = ["run", "--scheme", scheme, "--report", REPORT, "--instance", instance, "--"];
        std::iter::once(self.retrial.into()).chain(words.map(OsString::from)).collect()
    }
}

/// What a row is called.
pub fn under(scheme: Option<&str>) -> String {
    scheme.map_or_else(|| "plain".to_owned(), |scheme| format!("retrial {scheme}"))
}

/// The number in a text that stands before another: `12.5` of `rate (12.5 per sec.)` before `per sec.`.
fn number_before(text: &str, what: &str) -> Option<f64> {
    let before = text.split(what).next().filter(|before| before.len() < text.len())?;
    before.split_whitespace().next_back()?.trim_start_matches('(').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_one_right_before_the_text() {
        let sysbench = "    transactions:  6254 (208.33 per sec.)\n    queries: 125080 (4166.6 per sec.)\n";
        assert_eq!(number_before(sysbench, "per sec."), Some(208.33));
        let db_bench =
            "Write rate: 0 ops/second\nreadrandom   :  19.204 micros/op 825712 ops/sec 6.0 seconds; (1 of 2 found)";
        assert_eq!(number_before(db_bench, "ops/sec "), Some(825_712.0));
        assert_eq!(number_before("1.5 us p50\n7 us p99\n9 us p999\n", "us p99"), Some(7.0));
        assert_eq!(number_before("0 ops/s", "us p99"), None);
        assert_eq!(number_before("many ops/s", "ops/s"), None);
    }
}
