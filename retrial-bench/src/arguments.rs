//! Values of options, as they are typed.

use crate::duration;
use crate::outcome::Kind;
use crate::output::whole;
use retrial::{P, ParamError};
use std::time::Duration;

/// A time that may be 0, which then needs no unit.
pub fn time(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { duration::parse(text) }
}

pub fn positive(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        Duration::ZERO => Err(format!("duration `{text}`, expected more than 0")),
        time => Ok(time),
    }
}

/// A percentage, in 1/100 of it.
pub fn percent(text: &str) -> Result<u64, String> {
    let value: Option<f64> = text.trim_end_matches('%').parse().ok();
    let value = value.filter(|v| (0.0..=100.0).contains(v));
    value.map(|v| whole(v * 100.0)).ok_or_else(|| format!("`{text}`, expected a percentage from 0 to 100"))
}

/// A parameter and the text of its value: `NAME=VALUE`.
pub fn setting(text: &str) -> Result<(P, &str), ParamError> {
    let (name, value) = text.split_once('=').ok_or_else(|| ParamError::Form(text.to_owned()))?;
    Ok((P::named(name.trim())?, value.trim()))
}

/// What sessions are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Kinds {
    /// Threads of one process
    Threads,
    /// Processes with one thread
    Processes,
    /// First the one, then the other
    Both,
}

impl Kinds {
    pub const fn list(self) -> &'static [Kind] {
        match self {
            Self::Threads => &[Kind::Threads],
            Self::Processes => &[Kind::Processes],
            Self::Both => &[Kind::Threads, Kind::Processes],
        }
    }
}
