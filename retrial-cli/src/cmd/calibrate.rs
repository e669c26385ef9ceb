//! `retrial calibrate`.

use crate::calibration;
use crate::instances::Which;
use crate::output::{Format, Table, column};
use miette::{Report, miette};
use retrial::views::{Cost, Costs};
use std::process::ExitCode;

/// Measure what the steps of a wait cost on this machine: polls, yields, wake-ups, sleeps, barriers
///
/// Takes less than a second; nothing else should run meanwhile. The costs are kept in the user's cache directory,
/// from where every instance made later takes them, and with --instance in that instance. The simulator and
/// what-if use them; no scheme does.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial calibrate
  retrial calibrate -i demo
  retrial calibrate --json")]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Keep it nowhere but in the instance named
    #[arg(long, requires = "Which")]
    no_cache: bool,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    // Whatever can fail, before the measurement.
    let instance = args.which.is_named().then(|| args.which.attach()).transpose()?;
    let path = if args.no_cache { None } else { Some(calibration::path().ok_or_else(no_home)?) };
    let before =
        instance.as_ref().map_or_else(|| calibration::load().unwrap_or_default(), |instance| instance.tables().costs());
    let costs = Costs::measure(|_| {});
    if let Some(path) = &path {
        calibration::store(path, &costs).map_err(|error| {
            miette!(
                code = "retrial::calibrate::store",
                help = "retrial calibrate --instance NAME --no-cache, or set XDG_CACHE_HOME to a directory of yours",
                "cannot write {}: {error}; expected a directory that can be written",
                path.display()
            )
        })?;
    }
    if let Some(instance) = &instance {
        instance.set_costs(&costs);
    }
    table(&costs, Some(&before)).print(format);
    if let Some(path) = path {
        format.say(&format!("Kept in {}, for instances that are made from now on.", path.display()));
    }
    if args.which.is_named() {
        format.say(&format!("Next: retrial show machine{}", args.which.flag()));
    } else {
        format.say("Next: retrial create demo && retrial show machine -i demo");
    }
    Ok(ExitCode::SUCCESS)
}

/// One row for each cost.
pub fn table(costs: &Costs, before: Option<&Costs>) -> Table {
    let mut columns = vec![
        column("name", |cost: &Cost| cost.name()),
        column("value", |cost: &Cost| costs.get(*cost)),
        column("unit", |_: &Cost| "ns"),
        column("description", |cost: &Cost| cost.description()),
    ];
    if let Some(before) = before {
        columns.insert(2, column("before", |cost: &Cost| before.get(*cost)));
    }
    Table::of(&columns, Cost::ALL)
}

fn no_home() -> Report {
    miette!(
        code = "retrial::calibrate::home",
        help = "XDG_CACHE_HOME=/var/cache/me retrial calibrate",
        "neither XDG_CACHE_HOME nor HOME is set, expected the directory of one's own files"
    )
}
