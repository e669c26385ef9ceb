//! What is set for a run.

use crate::instances::param_error;
use miette::{Report, miette};
use retrial::wait::DEFAULT;
use retrial::{P, ParamError};

/// The values to set, the scheme first, for some units depend on it.
///
/// Each once: a second value would be in force in silence.
pub fn settings(scheme: Option<&str>, settings: &[String]) -> Result<Vec<(P, u64)>, Report> {
    let parsed = parsed(scheme, settings).map_err(|error| param_error(&error))?;
    let twice = (1..parsed.len()).find(|at| parsed[..*at].iter().any(|(p, _)| *p == parsed[*at].0));
    twice.map_or(Ok(()), |at| {
        let name = parsed[at].0.row().name;
        let again = if parsed[at].0 == P::Scheme { " (--scheme is one)" } else { "" };
        Err(miette!(
            code = "retrial::param::twice",
            help = format!("retrial run --set {name}=VALUE -- PROGRAM"),
            "parameter {name} given twice{again}, expected once"
        ))
    })?;
    Ok(parsed)
}

fn parsed(scheme: Option<&str>, settings: &[String]) -> Result<Vec<(P, u64)>, ParamError> {
    let mut all = Vec::new();
    let mut in_force = DEFAULT;
    let mut position = |value: u64| in_force = usize::try_from(value).unwrap_or(DEFAULT);
    if let Some(name) = scheme {
        let value = P::Scheme.parse(name, DEFAULT)?;
        position(value);
        all.push((P::Scheme, value));
    }
    let mut rest = Vec::new();
    for setting in settings {
        match retrial_bench::arguments::setting(setting)? {
            (P::Scheme, value) => {
                let value = P::Scheme.parse(value, DEFAULT)?;
                position(value);
                all.push((P::Scheme, value));
            }
            other => rest.push(other),
        }
    }
    for (p, value) in rest {
        all.push((p, p.parse(value, in_force)?));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use retrial::wait::BACKOFF;

    #[test]
    fn a_unit_is_that_of_the_scheme_in_force() {
        let text = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let late = parsed(None, &text(&["mutex_wait_time=30cs", "mutex_wait_scheme=backoff"]));
        assert_eq!(late, Ok(vec![(P::Scheme, BACKOFF as u64), (P::WaitTime, 30)]));
        assert!(matches!(parsed(Some("sleep"), &text(&["mutex_wait_time=30cs"])), Err(ParamError::Unit { .. })));
        assert!(matches!(parsed(Some("bogus"), &[]), Err(ParamError::Value { .. })));
        assert!(matches!(parsed(None, &text(&["mutex_wait_time"])), Err(ParamError::Form(_))));
    }

    #[test]
    fn what_is_given_twice_is_refused() {
        let one = ["mutex_wait_scheme=sleep".to_owned()];
        let said = |result: Result<_, Report>| result.map(|_: Vec<(P, u64)>| ()).map_err(|error| error.to_string());
        let twice = "parameter mutex_wait_scheme given twice (--scheme is one), expected once".to_owned();
        assert_eq!(said(settings(Some("yield"), &one)), Err(twice));
        assert_eq!(said(settings(None, &one)), Ok(()));
        let time = ["mutex_wait_time=3", "mutex_wait_time=4"].map(str::to_owned);
        assert_eq!(said(settings(None, &time)), Err("parameter mutex_wait_time given twice, expected once".to_owned()));
    }
}
