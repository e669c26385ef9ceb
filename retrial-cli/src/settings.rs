//! Parameters as they are set: all are checked before the first is set.

pub mod trial;

use crate::instances::param_error;
use miette::Report;
use retrial::views::{Tables, TypeId};
use retrial::wait::wait_time_unit;
use retrial::{Instance, P};

/// A parameter and its new value, none where it is unset.
pub type Setting = (P, Option<u64>);

/// What these texts mean, each in the unit of the scheme in force then; a parameter without a text is to be
/// unset.
pub fn checked(
    tables: &Tables,
    of: Option<TypeId>,
    mut changes: Vec<(P, Option<&str>)>,
) -> Result<Vec<Setting>, Report> {
    // The scheme first: it decides the unit of mutex_wait_time.
    changes.sort_by_key(|(p, _)| *p != P::Scheme);
    let mut scheme = scheme(tables, of);
    let mut settings: Vec<Setting> = Vec::new();
    for (p, text) in changes {
        let value = text.map(|text| p.parse(text, scheme)).transpose().map_err(|error| param_error(&error))?;
        if p == P::Scheme {
            scheme = scheme_of(value.unwrap_or_else(|| inherited(tables, p, of)));
        }
        settings.push((p, value));
    }
    Ok(settings)
}

/// Sets them for a type, or for the instance.
pub fn apply(instance: &Instance, of: Option<TypeId>, settings: &[Setting]) {
    for (p, value) in settings {
        match value {
            Some(value) => instance.set(*p, of, *value),
            None => instance.unset(*p, of),
        }
    }
}

/// The scheme in force.
pub fn scheme(tables: &Tables, of: Option<TypeId>) -> usize {
    scheme_of(tables.params(of).get(P::Scheme))
}

/// A scheme by the value of its parameter.
pub fn scheme_of(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// The value after the setting is taken back.
fn inherited(tables: &Tables, p: P, of: Option<TypeId>) -> u64 {
    of.and_then(|_| tables.param_set(p, None)).unwrap_or(p.row().default)
}

/// What the one who set them might miss: a unit that changed under a value since the scheme `before`, and
/// types that do not follow.
pub fn notes(tables: &Tables, of: Option<TypeId>, settings: &[Setting], before: usize) -> Vec<String> {
    let mut notes = Vec::new();
    let scheme = scheme(tables, of);
    if let Some(unit) = wait_time_unit(scheme).filter(|unit| wait_time_unit(before) != Some(unit)) {
        let value = tables.params(of).get(P::WaitTime);
        let name = retrial::wait::NAMES.get(scheme).copied().unwrap_or_default();
        notes.push(format!("Note: mutex_wait_time is {value} {unit} in scheme {scheme} ({name})."));
    }
    if of.is_some() {
        return notes;
    }
    for (p, _) in settings {
        for (id, name) in tables.types() {
            if let Some(own) = tables.param_set(*p, Some(id)) {
                let (parameter, own) = (p.row().name, p.format(own));
                notes.push(format!("Note: type {name} has its own {parameter}: {own}."));
            }
        }
    }
    notes
}
