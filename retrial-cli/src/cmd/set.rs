//! `retrial set`.

use crate::instances::{Which, mutex_type, param_error};
use crate::output::{Format, Table, column};
use crate::settings::{self, Setting};
use miette::{Report, miette};
use retrial::P;
use retrial_bench::arguments::setting;
use std::process::ExitCode;

/// Set parameters, for the instance or for one mutex type; waits under way follow at their next step
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial set mutex_wait_scheme=backoff mutex_wait_time=30cs
  retrial set --type 'Cursor Pin' mutex_wait_scheme=adaptive
  retrial set --type 'Cursor Pin' --unset mutex_wait_scheme")]
pub struct Args {
    /// NAME=VALUE; a number may carry the parameter's own unit (`30cs`)
    #[arg(value_name = "NAME=VALUE", required_unless_present = "unset")]
    settings: Vec<String>,
    #[command(flatten)]
    which: Which,
    /// For this mutex type alone
    #[arg(long = "type", value_name = "TYPE")]
    mutex_type: Option<String>,
    /// Take a setting back: a type then follows the instance, the instance has the default
    #[arg(long, value_name = "NAME")]
    unset: Vec<String>,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let which = &args.which;
    // All are checked before the first is set.
    let unset = args.unset.iter().map(|name| Ok((P::named(name)?, None)));
    let set = args.settings.iter().map(|text| setting(text).map(|(p, value)| (p, Some(value))));
    let changes = unset.chain(set).collect::<Result<Vec<_>, _>>().map_err(|error| param_error(&error))?;
    if let Some(p) = settings::twice(&changes) {
        return Err(miette!(
            code = "retrial::param::twice",
            help = format!("retrial set {}=VALUE", p.row().name),
            "parameter {} given twice, expected once",
            p.row().name
        ));
    }
    let instance = which.attach()?;
    let row = args.mutex_type.as_deref().map(|text| mutex_type(instance.tables(), text)).transpose()?;
    let before = instance.params(row);
    let values = settings::checked(instance.tables(), row, changes)?;
    settings::apply(&instance, row, &values);
    let after = instance.params(row);
    let scheme = settings::scheme(instance.tables(), row);
    let place = args.mutex_type.as_ref().map_or_else(|| "instance".to_owned(), |name| format!("type {name}"));
    let columns = [
        column("parameter", |(p, _): &Setting| p.row().name),
        column("old", |(p, _): &Setting| p.format(before.get(*p))),
        column("new", |(p, _): &Setting| p.format(after.get(*p))),
        column("unit", |(p, _): &Setting| p.unit(scheme)),
        column("takes_effect", |(p, _): &Setting| format!("at the {}", p.row().effect.name())),
        column(
            "set_for",
            |(_, value): &Setting| if value.is_some() { place.clone() } else { format!("{place}, unset") },
        ),
    ];
    Table::of(&columns, &values).print(format);
    for note in settings::notes(instance.tables(), row, &values, settings::scheme_of(before.get(P::Scheme))) {
        format.say(&note);
    }
    format.say(&format!("Next: retrial show params{}", which.flag()));
    Ok(ExitCode::SUCCESS)
}
