//! The conditions that a workload is compared under.

use crate::instances::{param_error, schemes};
use miette::{Report, miette};
use retrial::{P, wait};
use retrial_model::sim::{Arrivals, Workload};

/// Most cases of one comparison.
const CASES: usize = 1000;

/// What is varied, and how.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Vary {
    /// Wait schemes: `all`, or names with commas
    #[arg(long, value_name = "S,…", value_delimiter = ',')]
    pub scheme: Vec<String>,
    /// Values of a parameter, with commas; may be repeated
    #[arg(long = "set", value_name = "PARAM=VALUE,…")]
    pub settings: Vec<String>,
    /// Numbers of sessions
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub sessions: Vec<u32>,
    /// Numbers of processors; 0: one for each session
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub cpus: Vec<u32>,
    /// Numbers of copies of the mutex; each get is of any of them
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub copies: Vec<u32>,
}

impl Vary {
    /// Whether nothing is.
    fn is_empty(&self) -> bool {
        self.scheme.is_empty()
            && self.settings.is_empty()
            && self.sessions.is_empty()
            && self.cpus.is_empty()
            && self.copies.is_empty()
    }

    /// The present first, then what is given instead of it, then what is given with each combination of what is
    /// varied; with every scheme where nothing is.
    pub fn cases(&self, present: &Workload, given: &Workload) -> Result<Vec<Workload>, Report> {
        let all = ["all".to_owned()];
        let schemes = schemes(if self.is_empty() { &all } else { &self.scheme }, "--scheme")?;
        if !self.sessions.is_empty() && matches!(present.arrivals, Arrivals::Open { .. }) {
            return Err(miette!(
                code = "retrial::predict::open",
                help = "sessions=N beside the others describes N sessions that think between two gets",
                "--sessions where sessions come from outside, each for one get: expected a number of sessions to vary"
            ));
        }
        // What has not been multiplied is not there yet: one case after the other.
        let mut cases = vec![given.clone()];
        let mut multiply = |by: &dyn Fn(&Workload) -> Result<Vec<Workload>, Report>| -> Result<(), Report> {
            cases = cases.iter().map(by).collect::<Result<Vec<_>, _>>()?.concat();
            if cases.len() <= CASES {
                return Ok(());
            }
            Err(miette!(
                code = "retrial::predict::cases",
                help = "vary one or two at a time",
                "{} cases or more, expected at most {CASES}",
                cases.len()
            ))
        };
        multiply(&|case| {
            Ok(each(&schemes, case, |scheme, case| case.params = case.params.with(P::Scheme, *scheme as u64)))
        })?;
        for setting in &self.settings {
            multiply(&|case| set(setting, case))?;
        }
        multiply(&|case| {
            Ok(each(&self.sessions, case, |n, case| {
                if let Arrivals::Closed { sessions, .. } = &mut case.arrivals {
                    *sessions = *n;
                }
            }))
        })?;
        multiply(&|case| Ok(each(&self.cpus, case, |n, case| case.machine.processors = (*n > 0).then_some(*n))))?;
        multiply(&|case| Ok(each(&self.copies, case, |n, case| case.copies = *n)))?;
        cases.retain(|case| case != present && case != given);
        let first = [present].into_iter().chain((given != present).then_some(given));
        cases.splice(0..0, first.cloned());
        Ok(cases)
    }
}

/// The case once for each value, or as it is without any.
fn each<T>(values: &[T], case: &Workload, change: impl Fn(&T, &mut Workload)) -> Vec<Workload> {
    let changed = |value| {
        let mut case = case.clone();
        change(value, &mut case);
        case
    };
    if values.is_empty() { vec![case.clone()] } else { values.iter().map(changed).collect() }
}

/// The case once for each value of `NAME=V,V`; a unit is that of the case's scheme.
fn set(setting: &str, case: &Workload) -> Result<Vec<Workload>, Report> {
    let (p, values) = retrial_bench::arguments::setting(setting).map_err(|error| param_error(&error))?;
    if p == P::Scheme {
        return Err(miette!(
            code = "retrial::predict::set",
            help = format!("--scheme {values}"),
            "{} is varied by --scheme",
            p.row().name
        ));
    }
    let scheme = usize::try_from(case.params.get(P::Scheme)).unwrap_or(wait::DEFAULT);
    let values = values.split(',').map(|value| p.parse(value.trim(), scheme)).collect::<Result<Vec<_>, _>>();
    let values = values.map_err(|error| param_error(&error))?;
    Ok(each(&values, case, |value, case| case.params = case.params.with(p, *value)))
}

/// Name of the scheme of a workload.
pub fn scheme(workload: &Workload) -> String {
    P::Scheme.format(workload.params.get(P::Scheme))
}

/// Its settings that differ from those of another one, without the scheme: `a=1 b=2`.
pub fn settings(workload: &Workload, from: &Workload) -> String {
    let differs = |p: &&P| **p != P::Scheme && workload.params.get(**p) != from.params.get(**p);
    let text = |p: &P| format!("{}={}", p.row().name, p.format(workload.params.get(*p)));
    P::ALL.iter().filter(differs).map(text).collect::<Vec<_>>().join(" ")
}

/// Number of sessions, where it is one.
pub const fn sessions(workload: &Workload) -> Option<u32> {
    match workload.arrivals {
        Arrivals::Closed { sessions, .. } => Some(sessions),
        Arrivals::Open { .. } => None,
    }
}
