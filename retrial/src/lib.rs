//! Mutexes in shared memory for many processes: every published wait scheme, exact recovery when a process is
//! killed, figures that can be read from outside.
//!
//! A *session* (a thread's membership of an *instance*) gets a *mutex* in a *mode* at a *location*; it
//! misses, spins, sleeps; the *holder* releases. How a session waits is a [scheme](wait), a pure function
//! that can be switched while sessions wait by it.
//!
//! ```
//! use retrial::{Capacity, Class, Instance, Mutex, location};
//!
//! let instance = Instance::anonymous(Capacity::default())?;
//! let counter: Mutex<u64> = instance.mutex("counter", "demo", || 0)?;
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| {
//!             let session = instance.session("worker", Class::Normal).unwrap();
//!             for _ in 0..1000 {
//!                 *counter.exclusive(&session, location!("count")).unwrap() += 1;
//!             }
//!         });
//!     }
//! });
//! let session = instance.session("main", Class::Normal)?;
//! assert_eq!(*counter.exclusive(&session, location!()).unwrap(), 4000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/DESIGN.md` has the protocols step by step and what is not promised.

/// The Rust in the pages, compiled. README.md's program is not run here: it leaves an instance behind;
/// `tests/readme.rs` runs it.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../CHANGELOG.md")]
    mod changelog {}
    #[doc = include_str!("../docs/BENCHMARKS.md")]
    mod benchmarks {}
    #[doc = include_str!("../docs/BOOK.md")]
    mod book {}
    #[doc = include_str!("../docs/C.md")]
    mod c {}
    #[doc = include_str!("../docs/DESIGN.md")]
    mod design {}
    #[doc = include_str!("../docs/EXPERIMENTS.md")]
    mod experiments {}
    #[doc = include_str!("../docs/GLOSSARY.md")]
    mod glossary {}
    #[doc = include_str!("../docs/INSTALL.md")]
    mod install {}
    #[doc = include_str!("../docs/INTERPOSER.md")]
    mod interposer {}
    #[doc = include_str!("../docs/MODEL.md")]
    mod model {}
    #[doc = include_str!("../docs/PREDICTION.md")]
    mod prediction {}
    #[doc = include_str!("../docs/PYTHON.md")]
    mod python {}
    #[doc = include_str!("../docs/RELIABILITY.md")]
    mod reliability {}
    #[doc = include_str!("../docs/STORIES.md")]
    mod stories {}
    #[doc = include_str!("../docs/SUMMARY.md")]
    mod summary {}
    #[doc = include_str!("../docs/USING.md")]
    mod using {}
    #[doc = include_str!("../docs/reference/errors.md")]
    mod errors {}
    #[doc = include_str!("../docs/reference/measures.md")]
    mod measures {}
    #[doc = include_str!("../docs/reference/parameters.md")]
    mod parameters {}
    #[doc = include_str!("../docs/reference/views.md")]
    mod views {}
    #[doc = include_str!("../docs/tutorials/engine.md")]
    mod engine {}
    #[doc = include_str!("../docs/tutorials/operator.md")]
    mod operator {}
    #[doc = include_str!("../docs/tutorials/tuning.md")]
    mod tuning {}
}

mod addition;
mod address;
mod barriers;
pub mod condition;
mod costs;
mod departed;
mod engine_condition;
mod engine_mutex;
mod entries;
mod error;
mod event;
#[cfg(feature = "fail_points")]
#[doc(hidden)]
pub mod fail;
#[cfg(not(feature = "fail_points"))]
mod fail;
mod file;
mod guard;
mod histogram;
mod instance;
#[cfg(all(test, any(loom, shuttle)))]
mod interleavings;
pub mod interposer;
#[cfg(not(any(loom, shuttle)))]
mod keeper;
mod location;
#[cfg(feature = "lock_api")]
pub mod lock_api;
mod mode;
mod mutex;
mod mutexes;
mod named_mutex;
mod operation_log;
mod params;
pub mod parking;
mod probes;
mod raw_mutex;
mod recorder;
mod recovery;
mod registration;
mod schemes;
mod searching;
mod segment;
mod session;
mod sessions;
mod slot;
mod standing;
mod stats;
pub mod sys;
mod tables;
mod text;
mod trace;

pub mod wait;
mod waiter;
mod whereabouts;
mod word;

pub use address::{Address, list};
pub use engine_condition::{Condition, Waited};
pub use error::{
    AttachError, BindError, ConvertError, CreateError, Death, GetError, GetFailure, NameError, ObjectError, OwnerDied,
    SessionError, TableFull,
};
pub use file::{Observer, remove};
pub use guard::{Guard, GuardResult, WaitResult};
pub use instance::Instance;
pub use location::CodeLocation;
pub use mode::{Mode, ModeError};
pub use mutex::{Hold, Patience};
pub use named_mutex::{Mutex, OwnedMutex, Shareable};
pub use operation_log::MutexId;
pub use params::{P, ParamError};
pub use recovery::Recovery;
pub use segment::Capacity;
pub use session::{Class, Session};
/// For `#[derive]`s of what a [`Mutex`] can hold.
pub use zerocopy;

/// For programs that look at an instance: what its tables say, and the terms in which they say it.
pub mod views {
    pub use crate::costs::{COSTS, Cost, CostError, Costs};
    pub use crate::entries::{Place, SOURCE_TYPES, TypeId};
    pub use crate::histogram::{BUCKETS, Histogram};
    pub use crate::mutexes::{MutexInfo, MutexState};
    pub use crate::operation_log::{LocationId, Phase, Record};
    pub use crate::params::{Domain, Effect, Fairness, PARAM_COUNT, PARAMS, Param, Params};
    pub use crate::recorder::STEPS;
    pub use crate::segment::RUNS;
    pub use crate::sessions::SessionInfo;
    pub use crate::standing::Standing;
    pub use crate::stats::{COUNTERS, Counter, EVENT_TYPES, Figures, Key, WaitEvent};
    pub use crate::tables::{PastSleep, Tables};
    pub use crate::trace::{Event, What};
    pub use crate::word::{Kind, Sid, Word};
}

/// For engines and bindings of other languages, which lay mutexes and what they protect into memory of their
/// own.
pub mod engine {
    #[cfg(not(any(loom, shuttle)))]
    pub use crate::engine_condition::CONDITION;
    pub use crate::engine_condition::EngineCondition;
    pub use crate::engine_mutex::{EngineMutex, Owner};
    pub use crate::location::LocationCache;
    pub use crate::mutex::Get;
    #[cfg(not(any(loom, shuttle)))]
    pub use crate::mutex::inlined::{Field, MUTEX, NUMBERS, SHORTCUT, Shortcut};
    pub use crate::raw_mutex::RawMutex;
    pub use crate::slot::LOG_RECORDS;
}

/// For tests and tools that read or write the bytes of a segment.
pub mod layout {
    pub use crate::address::DIRECTORY;
    pub use crate::file::MAGIC;
    pub use crate::recovery::{Undo, undo};
    pub use crate::segment::Layout;
    pub use crate::word::Masks;
}
