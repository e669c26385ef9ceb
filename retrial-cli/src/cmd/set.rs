//! `retrial set`.

use crate::instances::{Which, mutex_type, param_error};
use crate::output::{Format, Table, column};
use miette::{Report, miette};
use retrial::views::TypeId;
use retrial::wait::wait_time_unit;
use retrial::{Instance, P};
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

/// A parameter and its new value, none where it is unset.
type Setting = (P, Option<u64>);

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    let which = &args.which;
    // All are checked before the first is set.
    let mut changes: Vec<(P, Option<&str>)> = Vec::new();
    let unset = args.unset.iter().map(|name| Ok((P::named(name)?, None)));
    let set = args.settings.iter().map(|text| setting(text).map(|(p, value)| (p, Some(value))));
    for change in unset.chain(set) {
        let (p, value) = change.map_err(|error| param_error(&error))?;
        if changes.iter().any(|(other, _)| *other == p) {
            return Err(miette!(
                code = "retrial::param::twice",
                help = format!("retrial set {}=VALUE", p.row().name),
                "parameter {} given twice, expected once",
                p.row().name
            ));
        }
        changes.push((p, value));
    }
    // The scheme first: it decides the unit of mutex_wait_time.
    changes.sort_by_key(|(p, _)| *p != P::Scheme);
    let instance = which.attach()?;
    let row = args.mutex_type.as_deref().map(|text| mutex_type(instance.tables(), text)).transpose()?;
    let before = instance.params(row);
    let mut scheme = scheme_of(before.get(P::Scheme));
    let mut values: Vec<Setting> = Vec::new();
    for (p, text) in changes {
        let value = text.map(|text| p.parse(text, scheme)).transpose().map_err(|error| param_error(&error))?;
        if p == P::Scheme {
            scheme = scheme_of(value.unwrap_or_else(|| inherited(&instance, p, row)));
        }
        values.push((p, value));
    }
    for (p, value) in &values {
        match value {
            Some(value) => instance.set(*p, row, *value),
            None => instance.unset(*p, row),
        }
    }
    let after = instance.params(row);
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
    notes(&instance, row, &values, scheme_of(before.get(P::Scheme)), scheme, format);
    format.say(&format!("Next: retrial show params{}", which.flag()));
    Ok(ExitCode::SUCCESS)
}

fn scheme_of(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// The value after the setting for `row` is taken back.
fn inherited(instance: &Instance, p: P, row: Option<TypeId>) -> u64 {
    row.and_then(|_| instance.tables().param_set(p, None)).unwrap_or(p.row().default)
}

/// What the reader of the table might miss: a unit that changed under a value, and types that do not follow.
fn notes(instance: &Instance, row: Option<TypeId>, values: &[Setting], before: usize, scheme: usize, format: Format) {
    if let Some(unit) = wait_time_unit(scheme).filter(|unit| wait_time_unit(before) != Some(unit)) {
        let value = instance.params(row).get(P::WaitTime);
        let name = retrial::wait::NAMES.get(scheme).copied().unwrap_or_default();
        format.say(&format!("Note: mutex_wait_time is {value} {unit} in scheme {scheme} ({name})."));
    }
    if row.is_some() {
        return;
    }
    for (p, _) in values {
        for (id, name) in instance.tables().types() {
            if let Some(own) = instance.tables().param_set(*p, Some(id)) {
                let (parameter, own) = (p.row().name, p.format(own));
                format.say(&format!("Note: type {name} has its own {parameter}: {own}."));
            }
        }
    }
}
