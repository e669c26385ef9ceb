//! What is set for a run.

use crate::instances::param_error;
use crate::settings::{Setting, given, twice};
use miette::{Report, miette};
use retrial::P;

/// The values to set, each once: a second value would be in force in silence.
pub fn settings(scheme: Option<&str>, settings: &[String]) -> Result<Vec<Setting>, Report> {
    let parsed = given(scheme, settings).map_err(|error| param_error(&error))?;
    let Some(p) = twice(&parsed) else { return Ok(parsed) };
    let name = p.row().name;
    let again = if p == P::Scheme { " (--scheme is one)" } else { "" };
    Err(miette!(
        code = "retrial::param::twice",
        help = format!("retrial run --set {name}=VALUE -- PROGRAM"),
        "parameter {name} given twice{again}, expected once"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_twice_is_refused() {
        let one = ["mutex_wait_scheme=sleep".to_owned()];
        let said = |result: Result<_, Report>| result.map(|_: Vec<Setting>| ()).map_err(|error| error.to_string());
        let twice = "parameter mutex_wait_scheme given twice (--scheme is one), expected once".to_owned();
        assert_eq!(said(settings(Some("yield"), &one)), Err(twice));
        assert_eq!(said(settings(None, &one)), Ok(()));
        let time = ["mutex_wait_time=3", "mutex_wait_time=4"].map(str::to_owned);
        assert_eq!(said(settings(None, &time)), Err("parameter mutex_wait_time given twice, expected once".to_owned()));
    }
}
