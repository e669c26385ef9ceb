//! Parameters as they are set: all are checked before the first is set.

pub mod trial;

use crate::instances::param_error;
use miette::Report;
use retrial::views::{Tables, TypeId};
use retrial::wait::{DEFAULT, wait_time_unit};
use retrial::{Instance, P, ParamError};
use retrial_bench::arguments::setting;

/// A parameter and its new value, none where it is unset.
pub type Setting = (P, Option<u64>);

/// What these texts mean for an instance or a type of it; a parameter without a text is to be unset.
pub fn checked(tables: &Tables, of: Option<TypeId>, changes: Vec<(P, Option<&str>)>) -> Result<Vec<Setting>, Report> {
    let inherited = || inherited(tables, P::Scheme, of);
    parsed(changes, scheme(tables, of), inherited).map_err(|error| param_error(&error))
}

/// What a scheme and `NAME=VALUE` mean for an instance of which nothing is set.
pub fn given(scheme: Option<&str>, settings: &[impl AsRef<str>]) -> Result<Vec<Setting>, ParamError> {
    let named = settings.iter().map(|text| setting(text.as_ref()).map(|(p, value)| (p, Some(value))));
    let scheme = scheme.map(|name| Ok((P::Scheme, Some(name))));
    parsed(scheme.into_iter().chain(named).collect::<Result<_, _>>()?, DEFAULT, || P::Scheme.row().default)
}

/// What these texts mean, the scheme first: it decides the unit of `mutex_wait_time`. `scheme`: in force
/// before; `inherited`: in force after its setting is taken back.
fn parsed(
    mut changes: Vec<(P, Option<&str>)>,
    mut scheme: usize,
    inherited: impl Fn() -> u64,
) -> Result<Vec<Setting>, ParamError> {
    changes.sort_by_key(|(p, _)| *p != P::Scheme);
    let value = |(p, text): (P, Option<&str>)| {
        let value = text.map(|text| p.parse(text, scheme)).transpose()?;
        if p == P::Scheme {
            scheme = scheme_of(value.unwrap_or_else(&inherited));
        }
        Ok((p, value))
    };
    changes.into_iter().map(value).collect()
}

/// The first parameter that is in a list for the second time.
pub fn twice<T>(changes: &[(P, T)]) -> Option<P> {
    let again = |at: &usize| changes[..*at].iter().any(|(p, _)| *p == changes[*at].0);
    (1..changes.len()).find(again).map(|at| changes[at].0)
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

#[cfg(test)]
mod tests {
    use super::*;
    use retrial::wait::BACKOFF;

    #[test]
    fn a_unit_is_that_of_the_scheme_in_force() {
        let late = given(None, &["mutex_wait_time=30cs", "mutex_wait_scheme=backoff"]);
        assert_eq!(late, Ok(vec![(P::Scheme, Some(BACKOFF as u64)), (P::WaitTime, Some(30))]));
        assert!(matches!(given(Some("sleep"), &["mutex_wait_time=30cs"]), Err(ParamError::Unit { .. })));
        assert!(matches!(given(Some("bogus"), &[""; 0]), Err(ParamError::Value { .. })));
        assert!(matches!(given(None, &["mutex_wait_time"]), Err(ParamError::Form(_))));
    }
}
