//! The loads of the sources, each done by many sessions for a while. `retrial cache work` does one in the cache
//! of an instance, experiments do them in instances of their own.

mod cached;
pub mod crew;
mod engine;
pub mod report;
mod tpcc;

use crate::instances::{cache_error, session_error};
use miette::Report;
use retrial::{Class, Instance};
use retrial_cache::{Cache, Key};
use std::sync::atomic::{Ordering, fence};

pub use self::crew::Seat;

/// A load, by its name.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// All execute one cursor: got in E, shared while it runs, in E again to be given back
    CursorPin,
    /// All call one procedure: got in X to be pinned, and in X again to give the pin back
    LibraryCache,
    /// All read one cursor: pinned in the session's own row, or counted in its mutex
    Reads,
    /// No cursor is cached: a statement and its dozen versions are looked for under mutexes, then one is
    /// executed
    HashTable,
    /// TPC-C's five transactions as procedures with cursors, on small tables whose consistency is checked at
    /// the end
    Tpcc,
    /// Nothing but one critical section; what it counts is checked at the end
    CriticalSection,
    /// Steps of 3n + 1 for all n below 16,384, kept behind one critical section and checked at the end
    ThreeNPlusOne,
    /// Interest for accounts behind one critical section, with their sum checked at the end
    InterestPosting,
}

/// What was stored before is in memory before what is stored after: the session may be killed in between.
fn then() {
    fence(Ordering::SeqCst);
}

/// What the sessions of a run have done, for its check.
#[derive(Clone, Copy)]
pub struct Done {
    pub executed: u64,
    pub killed: u32,
}

/// What sessions do.
pub trait Load: Sync {
    /// Objects that its sessions execute or call, which can be hot.
    fn objects(&self) -> Vec<Key<'static>> {
        Vec::new()
    }

    /// What a session does until it is told to end, or has nothing more to do.
    ///
    /// # Errors
    ///
    /// What kept it from going on: the run ends then.
    fn work(&self, seat: &Seat<'_>) -> Result<(), Report>;

    /// What is wrong in the data that the sessions have left; they have ended.
    ///
    /// # Errors
    ///
    /// What kept the data from being looked at.
    fn check(&self, _seat: &Seat<'_>, _done: Done) -> Result<Vec<String>, Report> {
        Ok(Vec::new())
    }
}

impl Name {
    /// The load of this name.
    pub fn load<'i>(self, instance: &'i Instance, cache: &str) -> Result<Box<dyn Load + 'i>, Report> {
        let cache = || Cache::open(instance, cache).map_err(cache_error);
        Ok(match self {
            Self::CursorPin => Box::new(cached::CursorPin(cache()?)),
            Self::LibraryCache => Box::new(cached::LibraryCache(cache()?)),
            Self::Reads => Box::new(cached::Reads(cache()?)),
            Self::HashTable => Box::new(cached::HashTable(cache()?)),
            Self::CriticalSection => Box::new(engine::CriticalSection::new(instance)?),
            Self::ThreeNPlusOne => Box::new(engine::ThreeNPlusOne::new(instance)?),
            Self::InterestPosting => Box::new(engine::InterestPosting::new(instance)?),
            Self::Tpcc => Box::new(tpcc::Tpcc::new(instance, cache()?)?),
        })
    }

    /// Types of the mutexes that it uses, and what it counts beside executions, by position.
    pub const fn uses(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::CursorPin | Self::LibraryCache | Self::Reads | Self::HashTable => (cached::TYPES, &[]),
            Self::CriticalSection | Self::ThreeNPlusOne | Self::InterestPosting => (&[engine::TYPE], &engine::COUNTS),
            Self::Tpcc => (&tpcc::TYPES, &tpcc::COUNTS),
        }
    }

    /// Whether its sessions change an object where the plan says so.
    pub const fn changes(self) -> bool {
        matches!(self, Self::CursorPin | Self::LibraryCache | Self::Reads)
    }

    pub fn text(self) -> String {
        clap::ValueEnum::to_possible_value(&self).map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Makes the objects of a load that are not there, and marks those that are to be hot, each with its number of
/// copies.
pub fn prepare(instance: &Instance, cache: &str, objects: &[Key<'_>], hot: &[(&Key<'_>, u8)]) -> Result<(), Report> {
    if objects.is_empty() {
        return Ok(());
    }
    let cache = Cache::open(instance, cache).map_err(cache_error)?;
    let session = instance.session("retrial cache", Class::Normal).map_err(session_error)?;
    let client = cache.join(&session).map_err(cache_error)?;
    for key in objects {
        drop(client.get_or_insert(key, cached::PLAN).map_err(cache_error)?);
    }
    hot.iter().try_for_each(|(key, copies)| client.mark_hot(key, *copies).map_err(cache_error))
}
