//! How long a get may take.

use crate::errors::{Kind, raise};
use pyo3::PyResult;
use retrial::Patience;
use std::time::Duration;

/// How long a get may take.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Wait {
    Endless,
    Once,
    For(Duration),
}

impl Wait {
    /// So many seconds; endless where none are said.
    pub(crate) fn of(timeout_s: Option<f64>) -> PyResult<Self> {
        match timeout_s {
            None => Ok(Self::Endless),
            Some(0.0) => Ok(Self::Once),
            // More than a clock has is no deadline.
            Some(s) if s > 0.0 => Ok(Duration::try_from_secs_f64(s).map_or(Self::Endless, Self::For)),
            Some(s) => Err(raise(Kind::Invalid, format_args!("timeout {s}, expected None or seconds from 0 on"))),
        }
    }

    pub(crate) fn patience(self) -> Patience {
        match self {
            Self::Endless => Patience::Endless,
            Self::Once => Patience::None,
            Self::For(time) => Patience::within(time),
        }
    }
}
