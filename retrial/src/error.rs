//! What can go wrong, one type per operation that fails differently.

use crate::mode::Mode;
use crate::operation_log::{LocationId, MutexId};
use crate::word::Sid;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why an instance could not be created.
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum CreateError {
    /// There is one already.
    #[error("instance `{0}` exists")]
    Exists(String),
    /// Not a name that an instance can have.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A capacity out of range.
    #[error("capacity {field} is {found}, expected {low} to {high}")]
    Capacity {
        /// Which capacity.
        field: &'static str,
        /// What was asked for.
        found: u64,
        /// Smallest allowed.
        low: u64,
        /// Largest allowed.
        high: u64,
    },
    /// The file system has no room for it.
    #[error("no space for the {needed} bytes that are used from the start, in {path}")]
    NoSpace {
        /// Where.
        path: PathBuf,
        /// What it takes.
        needed: u64,
    },
    /// A file may not be so long.
    #[error("{needed} bytes, and the limit of this process for the size of a file is {limit}")]
    FileSize {
        /// What it takes.
        needed: u64,
        /// The limit, `RLIMIT_FSIZE`.
        limit: u64,
    },
    /// The file system said no.
    #[error("cannot create {path}: {source}")]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// A name or path that no instance can have.
#[derive(Error, Debug, Clone, PartialEq, Eq)]
#[error(
    "instance name `{found}`, expected 1 to 64 of letters, digits, `.`, `_` and `-`, not starting with `.` or `-`, or a path with `/`"
)]
pub struct NameError {
    /// What was given.
    pub found: String,
}

/// Why an instance could not be attached to or observed.
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum AttachError {
    /// There is none.
    #[error("no instance `{0}`")]
    NotFound(String),
    /// Not a name that an instance can have.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The file's permissions do not let us.
    #[error("no permission to open {path}, which belongs to user {owner} with mode {mode:04o}; we are user {user}")]
    Permission {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permissions.
        mode: u32,
        /// Our effective user.
        user: u32,
    },
    /// A link, a directory, a device.
    #[error("{path} is a {found}, expected a regular file")]
    FileKind {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// Somebody else's file.
    #[error("{path} belongs to user {found}, expected user {expected} or root")]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        found: u32,
        /// Our effective user.
        expected: u32,
    },
    /// Not a segment at all.
    #[error("{path} starts with {found:#018x}, expected {expected:#018x}: not a retrial segment")]
    Magic {
        /// The file.
        path: PathBuf,
        /// Its first 8 bytes.
        found: u64,
        /// Those of a segment.
        expected: u64,
    },
    /// A segment of another build.
    #[error("{path} has segment format {found:#018x}, this build reads {expected:#018x}")]
    Format {
        /// The file.
        path: PathBuf,
        /// Its fingerprint.
        found: u64,
        /// Ours.
        expected: u64,
    },
    /// The header says what no segment can have.
    #[error("{path} says {field} {found}, expected {low} to {high}: the header is damaged")]
    Capacity {
        /// The file.
        path: PathBuf,
        /// Which capacity.
        field: &'static str,
        /// What it says.
        found: u64,
        /// Smallest allowed.
        low: u64,
        /// Largest allowed.
        high: u64,
    },
    /// Shorter than its header says.
    #[error("{path} has {found} bytes, expected {expected}: truncated")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its length.
        found: u64,
        /// What its capacities need.
        expected: u64,
    },
    /// The system said no.
    #[error("cannot open {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// Why a session could not be had.
#[derive(Error, Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionError {
    /// Every slot is taken by a living session, or by a dead one that owes something to a mutex which this process cannot
    /// reach, or which is busy.
    #[error("all {capacity} sessions are taken{}", advice(*.owing, *.mutex))]
    Full {
        /// Number of slots.
        capacity: u32,
        /// Slots of dead sessions that owe something.
        owing: u32,
        /// The first mutex that one of them owes to; 0 when none does.
        mutex: MutexId,
    },
    /// No memory for the slot.
    #[error("no space for another session in shared memory")]
    NoSpace,
    /// The table of sessions is being changed by somebody who has been stopped for a second.
    #[error("the session table has been locked for a second; its holder is alive but does not run")]
    Stuck,
}

/// What to do about a full table of sessions.
fn advice(owing: u32, mutex: MutexId) -> impl std::fmt::Display {
    std::fmt::from_fn(move |f| match owing {
        0 => f.write_str("; create the instance with more (`sessions`)"),
        _ => write!(
            f,
            ", {owing} of them by dead ones that owe to mutexes elsewhere, the first to #{}: they are paid for by the next \
             waiter for such a mutex, or by `recover_all` in a process that has it mapped",
            mutex.0
        ),
    })
}

/// A table of an instance is full.
#[derive(Error, Debug, Clone, Copy, PartialEq, Eq)]
#[error("all {capacity} entries of the {table} table are taken; create the instance with more (`{table}`)")]
pub struct TableFull {
    /// Which table; also the capacity to raise.
    pub table: &'static str,
    /// Its size.
    pub capacity: u64,
}

/// Why a named object could not be had.
#[derive(Error, Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectError {
    /// A table or the arena is full.
    #[error(transparent)]
    Full(#[from] TableFull),
    /// Not a name that an object can have.
    #[error("object name `{found}` has {} bytes, expected 1 to {longest} and no NUL", .found.len())]
    Name {
        /// What was given.
        found: String,
        /// Longest name, in bytes.
        longest: usize,
    },
    /// There is one by this name, but of another shape.
    #[error("object `{name}` has {found} bytes, expected {expected}")]
    Shape {
        /// Its name.
        name: String,
        /// Its size.
        found: u64,
        /// That of the type asked for.
        expected: u64,
    },
    /// No memory.
    #[error("no space for object `{0}` in shared memory")]
    NoSpace(String),
    /// The session table's lock could not be had.
    #[error(transparent)]
    Session(#[from] SessionError),
}

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
/// It may have a guard in it, which borrows session and mutex. So it is no [`std::error::Error`] itself; `?` gives the mutex back and
/// makes a [`GetFailure`] of it, or a `Box<dyn Error>` with one.
#[must_use = "the mutex is given back at once otherwise"]
#[non_exhaustive]
pub enum GetError<G> {
    /// Got, but a holder died in X, LX or E since the data were last declared consistent. The guard is in here: look at
    /// the data, then `guard.consistent()`; without it the next get is told as well.
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
    /// A holder died in X, LX or E since the data were last declared consistent. The next get is told as well.
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
    /// It would wait for this session itself, or for one that waits for it.
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
    std::fmt::from_fn(move |f| match death {
        Some(Death { sid, mode, .. }) => write!(f, "session {sid} died while it held {mode}"),
        None => write!(f, "the previous holder died"),
    })
}

impl<G> std::fmt::Debug for OwnerDied<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnerDied({self})")
    }
}
