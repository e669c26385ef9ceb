//! Why the cache did not do what it was asked for.

use crate::key::{Hash, LONGEST};
use retrial::{BindError, ConvertError, GetFailure, ObjectError, SessionError};
use thiserror::Error;

/// Why an operation of the cache failed. Nothing was changed then.
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum CacheError {
    /// The instance has no room for the cache, or objects of its name with another shape.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The instance has no room for a cache of this shape.
    #[error(
        "this cache needs {needed} bytes of the instance's arena, of whose {arena} bytes {used} are used: \
         create the instance with `--arena` larger by `Shape::arena`"
    )]
    Arena {
        /// Bytes that it needs.
        needed: u64,
        /// Bytes of the arena that are used.
        used: u64,
        /// Bytes of the arena.
        arena: u64,
    },
    /// A mutex was not got.
    #[error(transparent)]
    Get(#[from] GetFailure),
    /// There is no cache of this name.
    #[error("no cache `{0}` in this instance; `Cache::create` or `retrial cache create` makes one")]
    NotFound(String),
    /// A cache of another version, or no cache.
    #[error("`{name}` has format {found:#x}, this build reads {expected:#x}; a cache is made again, not migrated")]
    Format {
        /// The cache.
        name: String,
        /// What was found.
        found: u64,
        /// What was expected.
        expected: u64,
    },
    /// A cache of this name exists with another shape.
    #[error("cache `{name}` has {found}, and {asked} was asked for")]
    Shape {
        /// The cache.
        name: String,
        /// What it is like.
        found: crate::Shape,
        /// What was asked for.
        asked: crate::Shape,
    },
    /// The shape is none that a cache can have.
    #[error("{0}")]
    BadShape(&'static str),
    /// A name that no object can have.
    #[error("a {what} of {} bytes: expected at most {LONGEST}, no 0 byte, and a name that is not empty", found.len())]
    Name {
        /// `schema` or `name`.
        what: &'static str,
        /// What was found.
        found: String,
    },
    /// The value does not fit, however much is evicted.
    #[error(
        "a value of {found} bytes, a shard of this cache has room for {largest}; make a larger cache or fewer shards"
    )]
    TooLarge {
        /// Bytes of the value.
        found: usize,
        /// Bytes that an empty shard has room for.
        largest: usize,
    },
    /// The value is none of this type, by its length.
    #[error("a value of {found} bytes is no `{expected}`; read it as the type that it was built as")]
    Type {
        /// Bytes of the value.
        found: usize,
        /// The type that was asked for.
        expected: &'static str,
    },
    /// What could be evicted is pinned.
    #[error("no room for {needed} bytes: all objects that could go are pinned; see `retrial cache pins`")]
    Full {
        /// Bytes that were needed, the object's header included.
        needed: usize,
    },
    /// The session has as many pins as its row has room for.
    #[error("this session has {capacity} objects pinned, as many as a session can")]
    Pins {
        /// Number of pins.
        capacity: usize,
    },
    /// The session would wait for its own pin or its own build.
    #[error("this session has the object pinned or is building it, and would wait for itself")]
    Deadlock,
    /// Sessions wait for each other's pins, and this one gives up.
    #[error(
        "this session reads what another session waits to change, and that one, or one that it waits for, reads this \
         object: drop the pins and try again; see `retrial cache pins`"
    )]
    Cycle,
    /// The instance has no session for it.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The object's mutex has no entry in the instance: its table of mutexes is full.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// An executed object was not had in E again.
    #[error(transparent)]
    Convert(#[from] ConvertError),
    /// The object could not be built.
    #[error("the object was not built: {0}")]
    Build(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No object has this hash.
    #[error("no object has hash {0}: see `retrial cache ls`")]
    Unknown(Hash),
    /// No object has this name.
    #[error("no object `{0}`: see `retrial cache ls`")]
    UnknownName(String),
    /// More copies of a hot object than the cache allows.
    #[error(
        "{found} copies of an object, this cache allows {limit}: `Cache::set_copies_max` or `retrial cache limit-copies` \
         changes that"
    )]
    Copies {
        /// Copies that were asked for.
        found: u8,
        /// Most that an object may have.
        limit: u8,
    },
    /// The session takes part in the cache already.
    #[error("this session takes part in the cache already: one `Client` a session")]
    Joined,
    /// The session belongs to the process that forked this one.
    #[error("this session belongs to process {owner}, of which this process is a child")]
    Forked {
        /// The process that made the session.
        owner: u32,
    },
    /// The session is of another instance than the cache.
    #[error("this session is of another instance than the cache")]
    OtherInstance,
}
