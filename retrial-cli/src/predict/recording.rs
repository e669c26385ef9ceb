//! A workload and how it was found, as a file.

use super::fit::{GETS, UNCOUNTED};
use crate::errors::unwritable;
use crate::instances::is_called;
use crate::output::quoted;
use miette::{Report, miette};
use retrial_model::sim::Workload;
use retrial_model::{Distribution, Profile};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::path::Path;

/// What is known of the holding times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// Their distribution was given.
    Given,
    /// Their mean alone: exponential times stand for them, and beside these times that are all the same.
    Mean,
    /// So many were timed from outside.
    Timed(u64),
}

/// Completes the sentence `holding times …`.
impl fmt::Display for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given => f.write_str("as given"),
            Self::Timed(count) => write!(f, "as {count} of them timed from outside"),
            Self::Mean => f.write_str("exponential: no more than their mean is known"),
        }
    }
}

/// A workload and how it was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// What it is of, for people.
    pub of: String,
    /// Where it was measured: instance, mutex as `#ID`, type; for commands to type.
    pub instance: Option<String>,
    pub mutex: Option<String>,
    pub mutex_type: Option<String>,
    /// The cache that its object is in, which can make copies of it.
    #[serde(default)]
    pub cache: Option<String>,
    pub holds: Holds,
    pub workload: Workload,
    pub measured: Option<Profile>,
    /// What was supposed on the way.
    pub notes: Vec<String>,
}

impl Recording {
    /// A description.
    pub fn described(workload: Workload) -> Self {
        Self {
            of: "the workload described".to_owned(),
            instance: None,
            mutex: None,
            mutex_type: None,
            cache: None,
            holds: Holds::Given,
            workload,
            measured: None,
            notes: Vec::new(),
        }
    }

    /// Reads a recording, a report of `retrial run`, or a workload alone. `mutex`: name or number; without it the
    /// first of a report is taken.
    pub fn read(path: &Path, mutex: Option<&str>) -> Result<Self, Report> {
        let file = path.display();
        let wrong = |found: String| {
            miette!(
                code = "retrial::predict::file",
                help = "retrial what-if -i NAME --record now.json, or: retrial run --report now.json -- PROGRAM",
                "{file}: {found}; expected a recording of what-if, a report of run, or a workload, as JSON"
            )
        };
        let metadata = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
        if !metadata.is_file() {
            return Err(wrong("is no file".to_owned()));
        }
        let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        if text.starts_with(b"SQLite format 3") {
            return Err(wrong("is a recording of `retrial record`, as `report` and `sql` read it".to_owned()));
        }
        let value: Value = serde_json::from_slice(&text)
            .map_err(|error| wrong(if error.is_eof() { format!("ends early: {error}") } else { error.to_string() }))?;
        let all: Result<Vec<Self>, _> = if let Some(workloads) = value.get("workloads") {
            serde_json::from_value(workloads.clone())
        } else if value.get("arrivals").is_some() {
            serde_json::from_value(value).map(|workload| vec![Self::described(workload)])
        } else if value.get("workload").is_some() {
            serde_json::from_value(value).map(|recording| vec![recording])
        } else {
            return Err(wrong("holds no workload".to_owned()));
        };
        let all = all.map_err(|error| wrong(error.to_string()))?;
        if all.is_empty() {
            return Err(miette!(
                code = "retrial::predict::unmeasured",
                help = format!("retrial run --report {file} -- PROGRAM, for longer"),
                "{file}: a report without a mutex of which enough was measured, expected one with {GETS} gets and more \
                 that was seen held; {UNCOUNTED}"
            ));
        }
        let missing = || {
            let labels: Vec<String> = all.iter().map(Self::label).collect();
            miette!(
                code = "retrial::predict::mutex",
                help = format!("retrial what-if --from {}", quoted(&file.to_string())),
                "{file}: no mutex `{}`, expected {}",
                mutex.unwrap_or_default(),
                labels.join(" or ")
            )
        };
        all.iter().find(|one| mutex.is_none_or(|name| one.is_of(name))).cloned().ok_or_else(missing)
    }

    /// What it is of, and of which instance.
    pub fn title(&self) -> String {
        let of = |name| format!("{} of {name}", self.of);
        self.instance.as_ref().map_or_else(|| self.of.clone(), of)
    }

    /// Its mutex, for `--mutex`: in a report of a run the name is beside the number.
    fn label(&self) -> String {
        match &self.mutex {
            Some(mutex) if self.instance.is_some() => format!("{mutex}, which is {}", self.of),
            Some(mutex) => mutex.clone(),
            None => format!("none: it is {}", self.of),
        }
    }

    /// Whether it is of the mutex that goes by a text.
    fn is_of(&self, text: &str) -> bool {
        let title = self.mutex.as_deref().unwrap_or_default();
        let named = |(id, name)| id == text || is_called(name, text);
        title == text || title.split_once(' ').is_some_and(named) || self.of.starts_with(&format!("mutex {text} ("))
    }

    pub fn write(&self, path: &Path) -> Result<(), Report> {
        let text = serde_json::to_string_pretty(self).expect("numbers and texts") + "\n";
        std::fs::write(path, text).map_err(|error| unwritable(path, &error))
    }
}

/// Think times: exponential. What is not above 0 by the figures is taken for a hundredth of the holding time.
pub fn think(mean_s: f64, hold_s: f64) -> Distribution {
    let mean_s = mean_s.max(hold_s / 100.0);
    Distribution::exponential(mean_s).expect("a positive time")
}
