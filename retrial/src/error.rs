//! What can go wrong, one type per operation that fails differently.

mod gets;

use crate::engine_mutex::Owner;
use crate::operation_log::MutexId;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

pub use gets::{ConvertError, Death, GetError, GetFailure, OwnerDied};

/// Why an instance could not be created.
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum CreateError {
    /// There is one already.
    #[error("instance `{0}` exists")]
    Exists(String),
    /// There is one already, and it was to be attached to.
    #[error(transparent)]
    Attach(AttachError),
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
    /// The file of another user.
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
    /// Every slot is taken: by a living session, or by a dead one that owes a debt to a mutex that is busy or
    /// that this process cannot reach.
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
    /// The table of sessions is being changed by a thread that has been stopped for a second.
    #[error("the session table has been locked for a second; its holder is alive but does not run")]
    Stuck,
    /// The end of the thread could not be awaited.
    #[error("no key for thread-specific data is left, or no memory for it; delete unused keys (`pthread_key_delete`)")]
    NoKey,
}

/// What to do about a full table of sessions.
fn advice(owing: u32, mutex: MutexId) -> impl std::fmt::Display {
    crate::text::written(move |f| match owing {
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
#[error("all {capacity} entries of the {table} table are taken; {}", more(.table))]
pub struct TableFull {
    /// Which table; also the capacity to raise, but of `types`.
    pub table: &'static str,
    /// Its size.
    pub capacity: u64,
}

/// What to do about a full table.
fn more(table: &'static str) -> impl std::fmt::Display {
    crate::text::written(move |f| match table {
        "types" => f.write_str("give the mutex one of the types that are there"),
        _ => write!(f, "create the instance with more (`{table}`)"),
    })
}

/// Why a mutex in memory of an engine's own is none of an instance's.
#[derive(Error, Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BindError {
    /// Sessions of another instance get it.
    #[error("the object belongs to another instance; use it by a session of the one that it was first used with")]
    OtherInstance,
    /// It has been given back.
    #[error("the object was given back; make it anew, all bytes 0")]
    Gone,
    /// It is a named one, which cannot be given back.
    #[error("the object has a name: it stays as long as its instance")]
    Named,
    /// No entry is free.
    #[error(transparent)]
    Full(#[from] TableFull),
}

/// Why a named object could not be had.
#[derive(Error, Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectError {
    /// A table is full.
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
    /// There is one by this name, but its data have another size.
    #[error("object `{name}` has {found} bytes, expected {expected}: take that size or another name")]
    Shape {
        /// Its name.
        name: String,
        /// Bytes of its data.
        found: u64,
        /// Those of the data asked for.
        expected: u64,
    },
    /// There is one by this name, but it is something else: a condition, or a mutex whose data are elsewhere
    /// in it, since they are aligned otherwise.
    #[error("object `{name}` is {found}, expected {expected}: take another name")]
    Kind {
        /// Its name.
        name: String,
        /// What it is.
        found: &'static str,
        /// What was asked for.
        expected: &'static str,
    },
    /// The arena has no room for it.
    #[error(
        "object `{name}` of {found} bytes is too large: the arena has room for {left} of its {capacity}; create the \
         instance with more (`arena`)"
    )]
    TooLarge {
        /// Its name.
        name: String,
        /// Bytes of the data asked for.
        found: u64,
        /// Bytes of data that there is room for.
        left: u64,
        /// Bytes of the arena.
        capacity: u64,
    },
    /// The first value of a mutex asked for the mutex itself, in the thread that is about to write that
    /// value.
    #[error("object `{0}` has no value yet, and this thread is writing it: have the value not ask for its own object")]
    Deadlock(String),
    /// There is one by this name, whose bytes are lent out by other code than the caller's.
    #[error("object `{name}` belongs to {found}, expected {expected}: take another name")]
    Owned {
        /// Its name.
        name: String,
        /// Whose it is.
        found: Owner,
        /// Whose was asked for.
        expected: Owner,
    },
    /// No memory.
    #[error("no space for object `{0}` in shared memory")]
    NoSpace(String),
    /// The session table's lock could not be had.
    #[error(transparent)]
    Session(#[from] SessionError),
}
