//! `show params`: the parameter table with the values in force.

use super::Only;
use crate::instances::{Which, param_error};
use crate::output::{Format, Table, column};
use miette::Report;
use retrial::views::{Domain, TypeId};
use retrial::wait::{NAMES, wait_time_unit};
use retrial::{Observer, P};

/// A parameter, of the instance or of a type.
type Row = (P, Option<(TypeId, String)>);

pub fn print(observer: &Observer, only: &Only, which: &Which, format: Format) -> Result<(), Report> {
    let one = only.name.as_deref().map(P::named).transpose().map_err(|error| param_error(&error))?;
    let types = observer.tables().types();
    let mut rows: Vec<Row> = Vec::new();
    for &p in P::ALL.iter().filter(|p| one.is_none_or(|one| one == **p)) {
        rows.push((p, only.mutex_type.zip(only.type_name.clone())));
        if only.mutex_type.is_none() {
            // What a type has of its own stands below the instance's.
            let own = types.iter().filter(|(id, _)| observer.tables().param_set(p, Some(*id)).is_some());
            rows.extend(own.map(|of| (p, Some(of.clone()))));
        }
    }
    let params = |(_, of): &Row| observer.tables().params(of.as_ref().map(|(id, _)| *id));
    let columns = [
        column("name", |(p, _): &Row| p.row().name),
        column("value", |row: &Row| row.0.format(params(row).get(row.0))),
        column("default", |(p, _): &Row| p.format(p.row().default)),
        column("range", |(p, _): &Row| match p.row().domain {
            Domain::Number(low, high) => format!("{low}..{high}"),
            Domain::Names(names) => names.join(" | "),
        }),
        column("unit", |row: &Row| row.0.unit(usize::try_from(params(row).get(P::Scheme)).unwrap_or(usize::MAX))),
        column("takes_effect", |(p, _): &Row| p.row().effect.name()),
        column("set_for", |(p, of): &Row| match of {
            Some((id, name)) if observer.tables().param_set(*p, Some(*id)).is_some() => format!("type {name}"),
            _ if observer.tables().param_set(*p, None).is_some() => "instance".to_owned(),
            _ => "default".to_owned(),
        }),
        column("description", |(p, _): &Row| p.row().description),
    ];
    Table::of(&columns, rows).print(format);
    notes(observer, only, one, format);
    let example = one.map_or("mutex_wait_scheme", |p| p.row().name);
    format.say(&format!("Next: retrial set{} {example}=…", which.flag()));
    Ok(())
}

/// `mutex_wait_time` has the unit of the scheme in force, and none in the others.
fn notes(observer: &Observer, only: &Only, one: Option<P>, format: Format) {
    if one.is_some_and(|p| p != P::WaitTime) {
        return;
    }
    let params = observer.tables().params(only.mutex_type);
    let scheme = usize::try_from(params.get(P::Scheme)).unwrap_or(usize::MAX);
    let name = NAMES.get(scheme).copied().unwrap_or_default();
    let place = only.type_name.as_ref().map_or_else(|| "here".to_owned(), |name| format!("for type {name}"));
    let said =
        wait_time_unit(scheme).map_or_else(|| "which does not use it".into(), |unit| format!("its value is in {unit}"));
    format.say(&format!("Note: mutex_wait_time is in ms in scheme 1 (sleep) and in cs in scheme 2 (backoff); the scheme in force {place} is {name}, {said}."));
}
