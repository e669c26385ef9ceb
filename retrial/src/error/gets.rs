//! Why a get or a conversion did not give the mutex, or gave it with a warning.

use crate::mode::Mode;
use crate::operation_log::LocationId;
use crate::word::Sid;
use thiserror::Error;

/// What is known of the death of a holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Death {
    /// Who died.
    pub sid: Sid,
    /// The mode it held.
    pub mode: Mode,
    /// Where it got the mutex.
    pub location: LocationId,
}

/// Why a get did not give the mutex, or gave it with a warning.
///
/// It may have a guard in it, which borrows session and mutex. So it is no [`std::error::Error`] itself; `?`
/// gives the mutex back and makes a [`GetFailure`] of it, or a `Box<dyn Error>` with one.
#[must_use = "the mutex is given back at once otherwise"]
#[non_exhaustive]
pub enum GetError<G> {
    /// Got, but a holder died in X, LX or E since the data were last declared consistent. The guard is in
    /// here: look at the data, then `guard.consistent()`; without it the next get is told as well.
    OwnerDied(OwnerDied<G>),
    /// The deadline has passed.
    TimedOut,
    /// Busy, and only one try was asked for.
    Busy,
    /// This session holds the mutex already, in a mode that the one asked for waits for.
    Deadlock {
        /// The mode it holds.
        held: Mode,
    },
    /// The session belongs to the process that forked this one; a child makes sessions of its own.
    Forked {
        /// The process that made the session.
        owner: u32,
    },
    /// The session holds as many mutexes as its log has records.
    LogFull {
        /// Number of records.
        capacity: u32,
    },
}

impl<G> GetError<G> {
    /// The same with another guard.
    pub fn map<H>(self, f: impl FnOnce(G) -> H) -> GetError<H> {
        match self {
            Self::OwnerDied(died) => GetError::OwnerDied(OwnerDied { guard: f(died.guard), death: died.death }),
            Self::TimedOut => GetError::TimedOut,
            Self::Busy => GetError::Busy,
            Self::Deadlock { held } => GetError::Deadlock { held },
            Self::Forked { owner } => GetError::Forked { owner },
            Self::LogFull { capacity } => GetError::LogFull { capacity },
        }
    }

    /// The same without the guard.
    const fn failure(&self) -> GetFailure {
        match self {
            Self::OwnerDied(died) => GetFailure::OwnerDied { death: died.death },
            Self::TimedOut => GetFailure::TimedOut,
            Self::Busy => GetFailure::Busy,
            Self::Deadlock { held } => GetFailure::Deadlock { held: *held },
            Self::Forked { owner } => GetFailure::Forked { owner: *owner },
            Self::LogFull { capacity } => GetFailure::LogFull { capacity: *capacity },
        }
    }
}

/// A [`GetError`] without the guard: the mutex was given back.
#[derive(Error, Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GetFailure {
    /// A holder died in X, LX or E since the data were last declared consistent. The next get is told as
    /// well.
    #[error("{}", told(.death.as_ref()))]
    OwnerDied {
        /// Who died, where that is still known.
        death: Option<Death>,
    },
    /// The deadline has passed.
    #[error("not got before the deadline")]
    TimedOut,
    /// Busy, and only one try was asked for.
    #[error("busy")]
    Busy,
    /// This session holds the mutex already, in a mode that the one asked for waits for.
    #[error("this session holds the mutex already ({held}) and would wait for itself")]
    Deadlock {
        /// The mode it holds.
        held: Mode,
    },
    /// The session belongs to the process that forked this one; a child makes sessions of its own.
    #[error("this session belongs to process {owner}, of which this process is a child")]
    Forked {
        /// The process that made the session.
        owner: u32,
    },
    /// The session holds as many mutexes as its log has records.
    #[error("this session holds {capacity} mutexes, as many as its log has records")]
    LogFull {
        /// Number of records.
        capacity: u32,
    },
}

impl<G> From<GetError<G>> for GetFailure {
    fn from(error: GetError<G>) -> Self {
        error.failure()
    }
}

impl<G> From<GetError<G>> for Box<dyn std::error::Error> {
    fn from(error: GetError<G>) -> Self {
        error.failure().into()
    }
}

impl<G> From<GetError<G>> for Box<dyn std::error::Error + Send + Sync> {
    fn from(error: GetError<G>) -> Self {
        error.failure().into()
    }
}

impl<G> std::fmt::Display for GetError<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.failure().fmt(f)
    }
}

/// Why a mutex is still held in the mode that it was held in.
#[derive(Error, Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConvertError {
    /// The deadline has passed.
    #[error("not converted before the deadline")]
    TimedOut,
    /// It would have to wait, and only one try was asked for.
    #[error("busy")]
    Busy,
    /// It would wait for this session itself, or for a session that waits for this one.
    #[error("this session holds the mutex in {held} and would wait for itself")]
    Deadlock {
        /// The mode it holds.
        held: Mode,
    },
    /// The session belongs to the process that forked this one.
    #[error("this session belongs to process {owner}, of which this process is a child")]
    Forked {
        /// The process that made the session.
        owner: u32,
    },
}

impl From<ConvertError> for GetFailure {
    fn from(error: ConvertError) -> Self {
        match error {
            ConvertError::TimedOut => Self::TimedOut,
            ConvertError::Busy => Self::Busy,
            ConvertError::Deadlock { held } => Self::Deadlock { held },
            ConvertError::Forked { owner } => Self::Forked { owner },
        }
    }
}

impl<G> std::fmt::Debug for GetError<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GetError({self})")
    }
}

/// A guard of a mutex whose data may be half changed.
#[must_use = "the mutex is given back at once otherwise"]
pub struct OwnerDied<G> {
    /// The mutex is held.
    pub guard: G,
    /// Who died, where that is still known.
    pub death: Option<Death>,
}

impl<G> std::fmt::Display for OwnerDied<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        told(self.death.as_ref()).fmt(f)
    }
}

fn told(death: Option<&Death>) -> impl std::fmt::Display {
    crate::text::written(move |f| match death {
        Some(Death { sid, mode, .. }) => write!(f, "session {sid} died while it held {mode}"),
        None => write!(f, "the previous holder died"),
    })
}

impl<G> std::fmt::Debug for OwnerDied<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnerDied({self})")
    }
}
