//! A cache of named objects in shared memory: many processes find objects by name, create each once, read it
//! in place, execute it, throw it away; whole after a kill at any instruction.
//!
//! ```
//! use retrial::{Capacity, Class, Instance};
//! use retrial_cache::{Cache, Key, Namespace, Shape};
//!
//! let shape = Shape::of(4 << 20);
//! let capacity = Capacity { sessions: 64, ..Capacity::default() };
//! let instance = Instance::anonymous(Capacity { arena: shape.arena(64), ..capacity })?;
//! let cache = Cache::create(&instance, "objects", shape)?;
//!
//! let session = instance.session("worker", Class::Normal)?;
//! let client = cache.join(&session)?;
//! let key = Key::new(Namespace::Procedure, "SCOTT", "RAISE_SALARY");
//! let object = client.get_or_create(&key, 6, |bytes| {
//!     bytes.copy_from_slice(b"parsed"); // the first session builds it, the others wait
//!     Ok::<_, std::io::Error>(())
//! })?;
//! assert_eq!(&*object, b"parsed");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/CACHE.md` has the layout byte by byte, the protocols step by step, and what is not promised.

/// The Rust in the page, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod page {}

mod building;
mod cache;
mod calling;
mod changing;
mod check;
mod client;
mod error;
mod evicting;
mod executing;
mod handle;
#[cfg(all(test, loom))]
mod interleavings;
mod key;
mod layout;
mod memory;
mod observed;
mod pin;
mod rows;
mod shard;

pub use cache::{Cache, ObjectInfo, PinInfo, Totals};
pub use check::Audit;
pub use client::Client;
pub use error::CacheError;
pub use handle::Handle;
pub use key::{Hash, Key, LONGEST, Namespace};
pub use layout::{OVERHEAD, PINS, Shape};
pub use observed::{BlockInfo, BlockObject, BlockPin, Observed};
pub use pin::{Changed, Pin};

#[cfg(feature = "fail_points")]
use retrial::fail::{is_dead, point};

/// Without the feature `fail_points` no code at all.
#[cfg(not(feature = "fail_points"))]
#[inline(always)]
#[allow(clippy::inline_always)]
const fn point() {}

#[cfg(not(feature = "fail_points"))]
#[inline(always)]
#[allow(clippy::inline_always)]
const fn is_dead() -> bool {
    false
}
