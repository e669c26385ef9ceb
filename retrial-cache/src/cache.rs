//! A cache in an instance: made, opened, joined, looked at.

use crate::client::Client;
use crate::error::CacheError;
use crate::key::{Hash, Namespace};
use crate::layout::{BUILDERS, FORMAT, Head, OVERHEAD, OWNER, PINS, Phase, Pinned, Row, Shape};
use crate::memory::{Memory, aligned};
use crate::point;
use crate::rows::{Rows, Seen};
use crate::shard::{Shard, get, hash_of, phase};
use retrial::engine::EngineMutex;
use retrial::views::{Sid, Tables};
use retrial::{Capacity, Class, Instance, Mode, ObjectError, Patience, Session, location};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Longest name of a cache, in bytes.
const LONGEST_NAME: usize = 40;

/// Type of the mutex of a cache's head and of its builders' mutexes.
const TYPE: &str = "Library Cache";
/// Type of the shards' mutexes.
const SHARD_TYPE: &str = "hash table";

/// A cache that this process has open.
pub struct Cache<'i> {
    pub(crate) instance: &'i Instance,
    pub(crate) name: String,
    pub(crate) mutex: &'i EngineMutex,
    pub(crate) rows: Rows<'i>,
    pub(crate) builders: Vec<&'i EngineMutex>,
    pub(crate) shards: Vec<Shard<'i>>,
    pub(crate) shape: Shape,
}

impl std::fmt::Debug for Cache<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("name", &self.name).field("shape", &self.shape).finish_non_exhaustive()
    }
}

/// An object, as a session saw it that looked at all of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectInfo {
    /// Schema and name, version and copy.
    pub name: String,
    /// Its kind; `None` of a number that this build does not know.
    pub namespace: Option<Namespace>,
    /// Its full hash.
    pub hash: Hash,
    /// The shard that it is in.
    pub shard: u32,
    /// Bytes of its value.
    pub bytes: u64,
    /// Bytes that it takes up.
    pub taken: u64,
    /// Hot copies of it that sessions execute, itself among them; 1 when it is not hot.
    pub copies: u8,
    /// Whether a session is building it.
    pub building: bool,
    /// Whether readers pin it in their rows alone.
    pub private: bool,
}

/// An object that a session has pinned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PinInfo {
    /// The session.
    pub sid: Sid,
    /// The object.
    pub name: String,
    /// `reads`, `builds`, `holds` by the object's mutex, or `waits for readers` to change it.
    pub how: &'static str,
}

/// Sums over a cache: what is in it now, and what was done since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Objects that can be found.
    pub objects: u64,
    /// Bytes that they take up.
    pub taken: u64,
    /// Bytes of their values.
    pub values: u64,
    /// Bytes that are free.
    pub free: u64,
    /// Objects that were begun to be built.
    pub created: u64,
    /// Objects that had to go for others.
    pub evicted: u64,
    /// Objects that were thrown away, replaced, or not built.
    pub invalidated: u64,
    /// Times that a shard was put in order after the death of a session.
    pub rebuilt: u64,
    /// Gets, also of sessions that have left or died.
    pub gets: u64,
    /// Those of them that found the object.
    pub hits: u64,
    /// Hits by the object's mutex.
    pub counted: u64,
    /// Times that readers' pins were revoked.
    pub revocations: u64,
}

impl<'i> Cache<'i> {
    /// Makes a cache of this name, up to 40 bytes, in the arena of an instance, which needs room for
    /// [`Shape::arena`]; or opens the one of this name and shape.
    ///
    /// A process that dies here leaves what the next one completes.
    ///
    /// # Errors
    ///
    /// [`CacheError`]: `BadShape`, `Object` when the instance has no room, `Shape` when there is another one.
    pub fn create(instance: &'i Instance, name: &str, shape: Shape) -> Result<Self, CacheError> {
        let shape = shape.check()?;
        // Before the head is made: those of the other objects have more behind it.
        if name.is_empty() || name.len() > LONGEST_NAME || name.contains('\0') {
            return Err(ObjectError::Name { found: name.to_owned(), longest: LONGEST_NAME }.into());
        }
        let tables = instance.tables();
        let (capacity, needed) = (instance.capacity(), shape.arena(instance.capacity().sessions));
        if !has_object(tables, name) && capacity.arena.saturating_sub(tables.arena_used()) < needed {
            let Capacity { arena, .. } = capacity;
            return Err(CacheError::Arena { needed, used: tables.arena_used(), arena });
        }
        let (mutex, head) = Self::head(instance, name)?;
        let session = instance.session("cache", Class::Normal)?;
        if head.format.load(Acquire) == 0 {
            let at = location!("cache create");
            let (mut made, is_released) = get(instance, mutex, &session, Mode::Exclusive, at, Patience::Endless)?;
            if !is_released {
                made.consistent();
            }
            if head.format.load(Relaxed) == 0 {
                head.bytes.store(shape.bytes, Relaxed);
                head.shards.store(u64::from(shape.shards), Relaxed);
                point();
                // Release: a process that sees the format sees the shape.
                head.format.store(FORMAT, Release);
            }
            drop(made);
        }
        let cache = Self::open(instance, name)?;
        if cache.shape != shape {
            return Err(CacheError::Shape { name: name.to_owned(), found: cache.shape, asked: shape });
        }
        cache.shards.iter().try_for_each(|shard| shard.lock(&session, location!("cache create")).map(drop))?;
        Ok(cache)
    }

    /// Opens the cache of this name.
    ///
    /// # Errors
    ///
    /// [`CacheError`]: `NotFound`, `Format`.
    pub fn open(instance: &'i Instance, name: &str) -> Result<Self, CacheError> {
        if !has_object(instance.tables(), name) {
            return Err(CacheError::NotFound(name.to_owned()));
        }
        let (mutex, head) = Self::head(instance, name)?;
        let found = head.format.load(Acquire);
        let (bytes, shards) = (head.bytes.load(Relaxed), head.shards.load(Relaxed));
        let shape = Shape { bytes, shards: u32::try_from(shards).unwrap_or(u32::MAX) };
        if found != FORMAT {
            return Err(CacheError::Format { name: name.to_owned(), found, expected: FORMAT });
        }
        shape.check()?;
        let sessions = instance.capacity().sessions as usize;
        let rows_len = (sessions + 1) * size_of::<Row>() + 64;
        let (_, rows) = instance.owned_bytes(OWNER, &format!("{name} rows"), TYPE, rows_len)?;
        // Each object of the arena begins at a multiple of 64, and its bytes behind a mutex.
        let rows = aligned::<Row>(rows.map_addr(|at| at.next_multiple_of(64)));
        // SAFETY: so many, with room to align them; all bytes are a value.
        let rows = unsafe { std::slice::from_raw_parts(rows, sessions + 1) };
        let rows = Rows { all: rows, head, tables: instance.tables() };
        let builder = |number: usize| Ok(instance.owned_bytes(OWNER, &format!("{name} builder {number}"), TYPE, 0)?.0);
        let shard = |number: u32| {
            let name = format!("{name} shard {number}");
            let (mutex, base) = instance.owned_bytes(OWNER, &name, SHARD_TYPE, shape.shard())?;
            // SAFETY: aligned to 16, so long, and only caches have objects of this owner.
            let memory = unsafe { Memory::new(base, shape.shard()) };
            Ok(Shard { number, mutex, memory, rows, instance })
        };
        let builders = (0..BUILDERS).map(builder).collect::<Result<_, CacheError>>()?;
        let shards = (0..shape.shards).map(shard).collect::<Result<_, CacheError>>()?;
        Ok(Self { instance, name: name.to_owned(), mutex, rows, builders, shards, shape })
    }

    fn head(instance: &'i Instance, name: &str) -> Result<(&'i EngineMutex, &'i Head), CacheError> {
        let (mutex, bytes) = instance.owned_bytes(OWNER, name, TYPE, size_of::<Head>())?;
        // SAFETY: so many bytes, aligned to 16, and all of them are a value.
        Ok((mutex, unsafe { &*aligned::<Head>(bytes) }))
    }

    /// Takes part with a session of the cache's instance, one time each.
    ///
    /// # Errors
    ///
    /// `OtherInstance`, `Joined`, `Forked`, or `Get` when the session's log is full.
    pub fn join<'c>(&'c self, session: &'c Session<'c>) -> Result<Client<'c>, CacheError> {
        let at = location!("cache join");
        let (joined, _) = get(self.instance, self.mutex, session, Mode::Shared, at, Patience::Endless)?;
        let info = self.instance.tables().session_info(session.sid()).ok_or(CacheError::OtherInstance)?;
        let row = self.rows.join(session.sid(), info.claimed_ns)?;
        let further = [const { Cell::new(0) }; PINS];
        Ok(Client { cache: self, session, row, further, _joined: joined })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How large it is.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Most copies that [`Client::mark_hot`] gives an object, 1 to 255: the sources' `kgl_hot_object_copies`.
    #[must_use]
    pub fn copies_max(&self) -> u8 {
        self.rows.head.copies_max()
    }

    /// Limits the copies that objects are given from now on; 0 and 255 for no limit. Objects that have more
    /// keep them.
    pub fn set_copies_max(&self, limit: u8) {
        self.rows.head.copies_max.store(limit.into(), Relaxed);
    }

    /// Has readers counted in the mutex of what they read, and not in their rows alone, or no longer: to compare
    /// the two. An object that is read by rows goes on until it is changed; so does one whose holder has died,
    /// since readers that it had not waited for may be left in the rows.
    pub fn set_counted(&self, is_counted: bool) {
        self.rows.head.counted.store(is_counted.into(), Relaxed);
    }

    #[inline]
    pub(crate) fn shard(&self, hash: [u64; 2]) -> &Shard<'i> {
        &self.shards[self.shape.shard_of(hash) as usize]
    }

    /// Every object, for a session that looks at one shard after the other.
    ///
    /// # Errors
    ///
    /// [`CacheError`], when a shard's mutex was not got.
    pub fn objects(&self, session: &Session<'_>) -> Result<Vec<ObjectInfo>, CacheError> {
        let mut objects = Vec::new();
        for shard in &self.shards {
            let held = shard.lock_shared(session)?;
            objects.extend(shard.memory.blocks().filter_map(|(unit, block)| info(shard, unit, block)));
            drop(held);
        }
        Ok(objects)
    }

    /// What each session that takes part has pinned now.
    ///
    /// # Errors
    ///
    /// [`CacheError`], when a shard's mutex was not got.
    pub fn pins(&self, session: &Session<'_>) -> Result<Vec<PinInfo>, CacheError> {
        let mut pins = Vec::new();
        let shards: BTreeSet<u32> = self.rows.seen(|_, _| true).iter().map(|seen| seen.object.shard()).collect();
        for shard in shards.iter().filter_map(|number| self.shards.get(*number as usize)) {
            let held = shard.lock_shared(session)?;
            for (Seen { sid, object, how }, block) in shard.pinned() {
                let Some(block) = block else { continue };
                let how = match how {
                    Pinned::Kept => "holds",
                    Pinned::Read => "reads",
                    Pinned::Built => "builds",
                    Pinned::Wanted => "waits for readers",
                };
                pins.push(PinInfo { sid, name: shard.name(object.unit(), block), how });
            }
            drop(held);
        }
        pins.sort_by_key(|pin| pin.sid);
        Ok(pins)
    }

    /// Throws every object away that no session has pinned: how many.
    ///
    /// # Errors
    ///
    /// [`CacheError`], when a shard's mutex was not got.
    pub fn flush(&self, session: &Session<'_>) -> Result<u64, CacheError> {
        let mut thrown = 0;
        for shard in &self.shards {
            let held = shard.lock(session, location!("cache flush"))?;
            // Objects come alive meanwhile: those that went are counted, not those that are there.
            let evicted = || shard.memory.head().figures.evicted.load(Relaxed);
            let before = evicted();
            // What the dead were building goes as well.
            let units: Vec<u32> = shard.memory.blocks().map(|(unit, _)| unit).collect();
            shard.evict(&units);
            thrown += evicted().wrapping_sub(before);
            drop(held);
        }
        Ok(thrown)
    }

    /// Makes chains and bins of every shard anew from its objects, as after the death of a holder.
    ///
    /// # Errors
    ///
    /// [`CacheError`], when a shard's mutex was not got.
    pub fn repair(&self, session: &Session<'_>) -> Result<(), CacheError> {
        for shard in &self.shards {
            let held = shard.lock(session, location!("cache repair"))?;
            shard.rebuild();
            drop(held);
        }
        Ok(())
    }

    /// Sums over its shards and all sessions that have taken part.
    ///
    /// # Errors
    ///
    /// [`CacheError`], when a shard's mutex was not got.
    pub fn totals(&self, session: &Session<'_>) -> Result<Totals, CacheError> {
        let mut sum = Totals::default();
        for shard in &self.shards {
            let held = shard.lock_shared(session)?;
            let figures = &shard.memory.head().figures;
            sum.created = sum.created.wrapping_add(figures.created.load(Relaxed));
            sum.evicted = sum.evicted.wrapping_add(figures.evicted.load(Relaxed));
            sum.invalidated = sum.invalidated.wrapping_add(figures.invalidated.load(Relaxed));
            sum.rebuilt = sum.rebuilt.wrapping_add(figures.rebuilt.load(Relaxed));
            for (unit, block) in shard.memory.blocks() {
                match info(shard, unit, block) {
                    Some(object) => {
                        sum.objects += 1;
                        sum.taken += object.taken;
                        sum.values = sum.values.wrapping_add(object.bytes);
                    }
                    None if phase(block) == Some(Phase::Free) => {
                        sum.free += shard.memory.bytes(unit, block).1 as u64 + OVERHEAD as u64;
                    }
                    None => {}
                }
            }
            drop(held);
        }
        for row in self.rows.used() {
            let hits = row.hits.load(Relaxed);
            sum.gets = sum.gets.wrapping_add(hits).wrapping_add(row.misses.load(Relaxed));
            sum.hits = sum.hits.wrapping_add(hits);
            sum.counted = sum.counted.wrapping_add(row.counted.load(Relaxed));
            sum.revocations = sum.revocations.wrapping_add(row.revocations.load(Relaxed));
        }
        Ok(sum)
    }
}

/// Whether the arena has an object of this name: other mutexes may have the name too.
fn has_object(tables: &Tables, name: &str) -> bool {
    tables.mutex_named(name).and_then(|id| tables.object_of(id)).is_some()
}

fn info(shard: &Shard<'_>, unit: u32, block: &crate::layout::Block) -> Option<ObjectInfo> {
    let now = phase(block).filter(|phase| matches!(phase, Phase::Live | Phase::Building | Phase::Going))?;
    let halves = hash_of(block).map(u128::from);
    let (_, room) = shard.memory.bytes(unit, block);
    Some(ObjectInfo {
        name: shard.name(unit, block),
        namespace: Namespace::ALL.get(usize::from(block.namespace.load(Relaxed))).copied(),
        hash: Hash(halves[1] << 64 | halves[0]),
        shard: shard.number,
        bytes: block.value_len.load(Relaxed),
        taken: (room + OVERHEAD) as u64,
        copies: block.copies.load(Relaxed).max(1),
        building: now == Phase::Building,
        private: crate::shard::is_biased(block.state.load(Relaxed)),
    })
}
