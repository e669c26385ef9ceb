//! Where a workload comes from: words, a file, a live instance.

use super::cases::Vary;
use super::fit::fit;
use super::live::{Seen, measure};
use super::recording::Recording;
use super::rules::waiting;
use crate::cmd::period::TIME_MIN;
use crate::instances::{Which, mutex};
use crate::output::whole;
use crate::settings::trial::still_there;
use crate::{duration, signals};
use indicatif::{ProgressBar, ProgressStyle};
use miette::{Report, miette};
use retrial::views::{Counter, Tables};
use retrial::{MutexId, Observer};
use retrial_model::sim::{Arrivals, Workload};
use retrial_model::{Distribution, DistributionError};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// A live instance or a file.
#[derive(clap::Args, Clone, Debug)]
pub struct Source {
    #[command(flatten)]
    pub which: Which,
    /// The mutex, by its name or `#ID`; otherwise the mutex with the most waiting, or a file's first
    #[arg(long, value_name = "NAME")]
    pub mutex: Option<String>,
    /// How long a live instance is measured [default: 10s]
    #[arg(long, value_name = "T", value_parser = interval)]
    pub interval: Option<Duration>,
    /// Take what was recorded, or the report of `retrial run`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["instance", "pid", "interval"])]
    pub from: Option<PathBuf>,
    /// Keep what was measured and fitted, as JSON
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// A fourth of the simulated time, three replications
    #[arg(long)]
    pub quick: bool,
    /// Simulated time that is counted, in each replication; a tenth more before it
    #[arg(long, value_name = "T", value_parser = duration::parse)]
    pub duration: Option<Duration>,
}

/// How long is measured where nothing is said of it.
const INTERVAL: Duration = Duration::from_secs(10);

/// What is measured for no time is not measured.
pub fn interval(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text)?;
    if time < TIME_MIN { Err(format!("expected {} at least", duration::text(TIME_MIN))) } else { Ok(time) }
}

impl Source {
    /// Reads or measures.
    pub fn recording(&self) -> Result<Recording, Report> {
        let recording = match &self.from {
            Some(path) => Recording::read(path, self.mutex.as_deref())?,
            None => self.live()?,
        };
        self.keep(&recording)?;
        Ok(recording)
    }

    /// How long to simulate, and how often: as the workload says, or as the options do.
    pub fn spans(&self, workload: &mut Workload, seeds: &mut Range<u64>) {
        if let Some(time) = self.duration {
            workload.duration = time.as_secs_f64();
            workload.warm_up = workload.duration / 10.0;
        }
        if self.quick {
            workload.warm_up /= 4.0;
            workload.duration /= 4.0;
            seeds.end = seeds.start + 3;
        }
    }

    /// Writes it where `--record` says.
    pub fn keep(&self, recording: &Recording) -> Result<(), Report> {
        self.record.as_ref().map_or(Ok(()), |path| recording.write(path))
    }

    fn live(&self) -> Result<Recording, Report> {
        let observer = self.which.observe()?;
        let seen = self.seen(&observer)?;
        let name = observer.tables().address().map(ToString::to_string);
        fit(observer.tables(), &seen, name.as_deref()).or_else(|error| {
            still_there(observer.tables())?;
            Err(error)
        })
    }

    /// How long a live instance is measured.
    pub fn interval(&self) -> Duration {
        self.interval.unwrap_or(INTERVAL)
    }

    /// Measures the mutex that is meant.
    pub fn seen(&self, observer: &Observer) -> Result<Seen, Report> {
        let id = self.mutex.as_deref().map(|name| mutex(observer.tables(), name)).transpose()?;
        signals::catch();
        let all = measured(observer.tables(), self.interval(), id);
        let waited = |seen: &Seen| {
            let (measured, misses) = (&seen.measured, seen.measured.figures.get(Counter::Misses));
            // Where one can be predicted, that; where none can, what is waited for says why.
            let is_told = misses > 0 && measured.gets > Some(0);
            (is_told, whole(waiting(measured) * 1e9), misses, measured.gets)
        };
        let meant = match id {
            Some(id) => all.into_iter().find(|seen| seen.info.id == id),
            None => all.into_iter().max_by_key(waited),
        };
        meant.ok_or_else(|| match &self.mutex {
            Some(name) => miette!(
                code = "retrial::predict::mutex",
                help = "retrial show mutexes",
                "no mutex `{name}` in this instance now, expected one in use"
            ),
            None => miette!(
                code = "retrial::predict::unmissed",
                help = "retrial show mutexes",
                "no mutex in this instance, where those of a program are once they were missed; expected one in use"
            ),
        })
    }
}

/// Whether an error says that nobody missed a mutex in the whole interval: nothing to predict from, and nothing to
/// advise.
pub fn is_unmissed(error: &Report) -> bool {
    signals::received().is_none() && error.code().is_some_and(|code| code.to_string() == "retrial::predict::unmissed")
}

/// Progress on stderr, where that is a terminal.
pub fn bar(length: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    bar.set_style(ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar()));
    bar
}

/// Says on stderr that a signal has ended the simulations, where not all are done.
pub fn tell_interrupted(done: usize, number: usize, what: &str) {
    if done < number {
        eprintln!("interrupted; {done} of {number} {what} simulated");
    }
}

/// Measures all mutexes for so long, with a bar that shows the progress. `meant`: as of [`measure`].
pub fn measured(tables: &Tables, time: Duration, meant: Option<MutexId>) -> Vec<Seen> {
    let length_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
    let bar = bar(length_ms, "{bar:30} measuring  {eta} left");
    let seen = measure(tables, time, meant, &|time| bar.set_position(u64::try_from(time.as_millis()).unwrap_or(0)));
    bar.finish_and_clear();
    seen
}

/// NAME=VALUE, each name once.
pub fn words(words: &[String]) -> Result<Vec<(String, String)>, Report> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| {
            miette!(
                code = "retrial::predict::form",
                help = "retrial model --list simulate",
                "parameter `{word}`, expected NAME=VALUE"
            )
        })?;
        let name = name.trim().to_owned();
        if pairs.iter().any(|(known, _)| *known == name) {
            return Err(miette!(
                code = "retrial::predict::twice",
                help = "retrial model --list simulate",
                "parameter {name} given twice, expected once"
            ));
        }
        pairs.push((name, value.trim().to_owned()));
    }
    Ok(pairs)
}

/// Refuses what could not be a case of any workload, before one is measured.
pub fn check_early(vary: &Vary, words: &[(String, String)]) -> Result<(), Report> {
    let s = Distribution::deterministic(1.0).expect("a time");
    let arrivals = Arrivals::Closed { sessions: 1, think: s.clone(), on_processor: true };
    let any = Workload::new(arrivals, s, 1.0);
    vary.cases(&any, &with_words(&any, words)?).map(|_| ())
}

/// The workload that was found, with other `sessions=N` and `dist=D`.
pub fn with_words(found: &Workload, words: &[(String, String)]) -> Result<Workload, Report> {
    let mut given = found.clone();
    for (name, value) in words {
        match (name.as_str(), &mut given.arrivals) {
            ("sessions", Arrivals::Closed { sessions, .. }) => {
                *sessions = value.parse().map_err(|_| wrong_word(name, value, "a whole number"))?;
            }
            ("sessions", Arrivals::Open { .. }) => {
                return Err(wrong_word(name, value, "a recording of sessions that think between two gets"));
            }
            ("dist", _) => {
                given.hold =
                    value.parse().map_err(|error: DistributionError| wrong_word(name, value, &error.to_string()))?;
            }
            _ => {
                return Err(wrong_word(
                    name,
                    value,
                    "sessions=N or dist=D where something is measured or read (-i, -p, --from, --mutex, --interval)",
                ));
            }
        }
    }
    Ok(given)
}

fn wrong_word(name: &str, value: &str, expected: &str) -> Report {
    miette!(code = "retrial::predict::word", help = "retrial what-if --help", "{name}={value}: expected {expected}")
}
