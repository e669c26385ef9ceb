//! `show params`: the parameter table with the values in force.

use super::Only;
use crate::instances::{Which, param_error};
use crate::output::{Format, Table};
use miette::Report;
use retrial::views::{Domain, Params, TypeId};
use retrial::wait::{BACKOFF, NAMES, SLEEP};
use retrial::{Observer, P};

pub fn print(observer: &Observer, only: &Only, which: &Which, format: Format) -> Result<(), Report> {
    let one = only.name.as_deref().map(P::named).transpose().map_err(|error| param_error(&error))?;
    let mut table =
        Table::new(&["name", "value", "default", "range", "unit", "takes_effect", "set_for", "description"]);
    let types = observer.types();
    for &p in P::ALL.iter().filter(|p| one.is_none_or(|one| one == **p)) {
        row(&mut table, observer, p, only.mutex_type.zip(only.type_name.as_deref()));
        if only.mutex_type.is_none() {
            // What a type has of its own stands below the instance's.
            for (id, name) in types.iter().filter(|(id, _)| observer.param_set(p, Some(*id)).is_some()) {
                row(&mut table, observer, p, Some((*id, name)));
            }
        }
    }
    table.print(format);
    notes(observer, only, one, format);
    let example = one.map_or("mutex_wait_scheme", |p| p.row().name);
    format.say(&format!("Next: retrial set{} {example}=…", which.flag()));
    Ok(())
}

fn row(table: &mut Table, observer: &Observer, p: P, of: Option<(TypeId, &str)>) {
    let id = of.map(|(id, _)| id);
    let params: Params = observer.params(id);
    let scheme = usize::try_from(params.get(P::Scheme)).unwrap_or(usize::MAX);
    let set_for = match of {
        Some((id, name)) if observer.param_set(p, Some(id)).is_some() => format!("type {name}"),
        _ if observer.param_set(p, None).is_some() => "instance".to_owned(),
        _ => "default".to_owned(),
    };
    let range = match p.row().domain {
        Domain::Number(low, high) => format!("{low}..{high}"),
        Domain::Names(names) => names.join(" | "),
    };
    table.row(vec![
        p.row().name.into(),
        p.format(params.get(p)).into(),
        p.format(observer.default_of(p)).into(),
        range.into(),
        p.unit(scheme).into(),
        p.row().effect.name().into(),
        set_for.into(),
        p.row().description.into(),
    ]);
}

/// `mutex_wait_time` has the unit of the scheme in force, and none in the others.
fn notes(observer: &Observer, only: &Only, one: Option<P>, format: Format) {
    if one.is_some_and(|p| p != P::WaitTime) {
        return;
    }
    let params = observer.params(only.mutex_type);
    let scheme = usize::try_from(params.get(P::Scheme)).unwrap_or(usize::MAX);
    let name = NAMES.get(scheme).copied().unwrap_or_default();
    let place = only.type_name.as_ref().map_or_else(|| "here".to_owned(), |name| format!("for type {name}"));
    let said = match scheme {
        SLEEP => "its value is in ms",
        BACKOFF => "its value is in cs (10 ms)",
        _ => "which does not use it",
    };
    format.say(&format!("Note: mutex_wait_time is in ms in scheme 1 (sleep) and in cs in scheme 2 (backoff); the scheme in force {place} is {name}, {said}."));
}
