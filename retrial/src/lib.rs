//! Mutexes in shared memory for many processes: every published wait scheme, exact recovery when a process is killed,
//! figures that can be read from outside.
//!
//! A *session* (a thread's membership of an *instance*) gets a *mutex* in a *mode* at a *location*; it misses, spins,
//! sleeps; the *holder* releases. How a session waits is a [scheme](wait), a pure function that can be switched while
//! sessions wait by it.
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

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}

mod address;
mod aol;
pub mod condition;
mod error;
#[cfg(feature = "fail_points")]
#[doc(hidden)]
pub mod fail;
#[cfg(not(feature = "fail_points"))]
mod fail;
mod file;
mod guard;
mod instance;
#[cfg(all(test, any(loom, shuttle)))]
mod interleavings;
#[cfg(not(any(loom, shuttle)))]
mod keeper;
mod location;
mod machine;
mod mode;
mod mutex;
mod params;
pub mod parking;
#[cfg(feature = "lock_api")]
pub mod raw;
mod recovery;
mod segment;
mod session;
mod stats;
pub mod sys;
mod tables;
mod text;
mod trace;

pub mod wait;
mod waiter;
mod word;

pub use address::{Address, DIRECTORY, list};
pub use aol::{LocationId, MutexId, Phase, Record};
pub use error::{
    AttachError, ConvertError, CreateError, Death, GetError, GetFailure, ModeError, NameError, ObjectError, OwnerDied,
    SessionError, TableFull,
};
pub use file::{MAGIC, Observer, remove};
pub use guard::{Guard, GuardResult, Mutex, OwnedMutex, Shareable};
pub use instance::Instance;
pub use location::CodeLocation;
pub use machine::{COSTS, Cost, Machine, MachineError};
pub use mode::{Masks, Mode};
pub use mutex::{Get, Hold, Patience, RawMutex};
pub use params::{Domain, Effect, P, PARAM_COUNT, PARAMS, Param, ParamError, Params};
pub use recovery::{Recovery, Undo, undo};
pub use segment::{Capacity, Layout, RUNS};
pub use session::{CALLS, Class, LOG_RECORDS, Session, SessionInfo};
pub use stats::{COUNTERS, Counter, Derived, Figures, Key, WaitEvent};
pub use tables::{MutexInfo, MutexState, PastSleep, Place, SOURCE_TYPES, Tables, TypeId};
pub use trace::{Event, What};
pub use waiter::{Ended, Park, Parked, Target, Waiter, Want};
pub use word::{Kind, Sid, Word};
/// For `#[derive]`s of what a [`Mutex`] can hold.
pub use zerocopy;
