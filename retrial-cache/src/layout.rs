//! Where everything of a cache is. `docs/CACHE.md` draws it.
//!
//! A cache is some named objects of an instance's arena: a head, the sessions' rows, a few mutexes for
//! builders, and shards. A shard is a mutex with the memory behind it: heads of the chains, then blocks, one
//! after the other, each a multiple of 16 bytes. A block is free, or an object. Everything that two sessions
//! can touch at the same time is an atomic, so any bytes that another process leaves are some value.

use crate::error::CacheError;
use retrial::engine::{EngineMutex, Owner};
use retrial::sys::{self, protocol};
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Whose the objects of a cache are: no mutex of the library lends their bytes.
pub(crate) const OWNER: Owner = Owner(*b"rtcache4");
/// Says that the bytes are a cache, and of which layout.
pub(crate) const FORMAT: u64 = u64::from_le_bytes(OWNER.0);

/// Bytes of a unit: blocks begin at multiples of it, and so do values.
pub(crate) const UNIT: usize = 16;
/// Units of the smallest block: less would hold no object.
pub(crate) const LEAST: u32 = if cfg!(loom) { size_of::<Block>().div_ceil(UNIT) as u32 } else { 8 };
/// Lists of free blocks: four for each power of two.
pub(crate) const BINS: usize = 128;
/// Pins that a session can have at a time.
pub const PINS: usize = if cfg!(loom) { 2 } else { 56 };
/// Mutexes that builders hold, so that sessions can wait for them.
pub(crate) const BUILDERS: usize = if cfg!(loom) { 2 } else { 16 };

/// Most time that revocations before the last one, and that one, have readers of changed objects go by the mutexes
/// for: as long as an operator waits for something to become faster again.
const COUNTED_MAX_NS: u64 = 1_000_000_000;

/// How large a cache is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Bytes for objects, for all shards together, 4,096 to 2^36 - 64 for each.
    pub bytes: u64,
    /// Shards, 1 to 4,096. Sessions that create, replace or evict objects of one shard wait for each other.
    pub shards: u32,
}

impl Shape {
    /// Of so many bytes, in shards of at least a megabyte each, at most 64.
    #[must_use]
    pub fn of(bytes: u64) -> Self {
        Self { bytes, shards: (bytes >> 20).clamp(1, 64) as u32 }
    }

    /// Bytes of an instance's arena that the cache takes, for as many sessions as the instance has.
    #[must_use]
    pub const fn arena(self, sessions: u32) -> u64 {
        // Each object of the arena has its mutex before it and begins at a multiple of 64.
        let around = 128;
        let heads = size_of::<Head>() as u64 + around + BUILDERS as u64 * around;
        let rows = (sessions as u64 + 1) * size_of::<Row>() as u64 + around;
        // No room is enough for a shape that `check` refuses.
        let shards = (self.shards as u64).saturating_mul((self.shard() as u64).saturating_add(around));
        shards.saturating_add(heads + rows)
    }

    /// The shard of a hash, by its highest 32 bits. The lowest choose the chain.
    #[inline]
    pub(crate) const fn shard_of(self, hash: [u64; 2]) -> u32 {
        (((hash[1] >> 32) * self.shards as u64) >> 32) as u32
    }

    /// Bytes of a shard, all told.
    pub(crate) const fn shard(self) -> usize {
        let each = if self.shards == 0 { self.bytes } else { self.bytes / self.shards as u64 };
        (each.saturating_add(63) / 64 * 64) as usize
    }

    /// The same, if a cache can have it.
    ///
    /// # Errors
    ///
    /// `BadShape`.
    pub fn check(self) -> Result<Self, CacheError> {
        if self.shards == 0 || self.shards > 4096 {
            return Err(CacheError::BadShape("a cache has 1 to 4,096 shards"));
        }
        let each = self.bytes / u64::from(self.shards);
        // Units are numbered with 32 bits, the end of the last one too.
        if !(4096..=(1 << 36) - 64).contains(&each) {
            return Err(CacheError::BadShape("a shard of a cache has 4,096 to 2^36 - 64 bytes: bytes / shards"));
        }
        Ok(self)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes in {} shards", self.bytes, self.shards)
    }
}

/// The first object of a cache. Sessions that take part hold its mutex in S.
#[repr(C)]
pub(crate) struct Head {
    /// `FORMAT`, once the shape is there.
    pub(crate) format: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) shards: AtomicU64,
    /// Rows of sessions up to this were used.
    pub(crate) rows_used: protocol::AtomicU64,
    /// Most copies of a hot object.
    pub(crate) most_copies: AtomicU64,
    /// Limit on the copies of an object; 0 for none.
    pub(crate) copies_max: AtomicU64,
    /// Whether readers are counted in the objects' mutexes, 0 or 1.
    pub(crate) counted: AtomicU64,
    pub(crate) spare: [AtomicU64; 8],
    /// Until when, by the monotonic clock, readers go by the mutex of an object that was changed. Apart from what
    /// is read in each call.
    pub(crate) counted_until_ns: AtomicU64,
}

impl Head {
    /// What the state of an object has that readers may pin in their rows alone.
    pub(crate) fn bias(&self) -> u32 {
        if self.counted.load(Relaxed) == 0 { BIASED } else { 0 }
    }

    /// Whether readers of an object that was changed go by its mutex now.
    pub(crate) fn is_counting(&self) -> bool {
        sys::now_ns() < self.counted_until_ns.load(Relaxed)
    }

    /// Has them go by the mutexes for so much longer.
    pub(crate) fn count_longer(&self, ns: u64) {
        let now = sys::now_ns();
        // A session may have been stopped while it revoked.
        let longer = |until: u64| Some(until.clamp(now, now + COUNTED_MAX_NS) + ns.min(COUNTED_MAX_NS));
        let _ = self.counted_until_ns.try_update(Relaxed, Relaxed, longer);
    }

    /// Most copies that an object may have.
    pub(crate) fn copies_max(&self) -> u8 {
        match self.copies_max.load(Relaxed) {
            0 => u8::MAX,
            limit => u8::try_from(limit).unwrap_or(u8::MAX),
        }
    }
}

/// What a session has pinned, and what it has done. Only that session writes it, but for the tag of a dead one.
#[repr(C, align(64))]
pub(crate) struct Row {
    /// When the session began, by the monotonic clock; 0 when it takes no part.
    pub(crate) tag: protocol::AtomicU64,
    /// Pins, as [`ObjectRef`] has them; 0 for none.
    pub(crate) pins: [protocol::AtomicU64; PINS],
    /// Pins after the first line were used so far, up to this.
    pub(crate) deep: protocol::AtomicU64,
    /// Gets that found an object, and those that found none.
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    /// Hits that found the object by its mutex.
    pub(crate) counted: AtomicU64,
    /// Times that the session had other sessions' pins of an object revoked.
    pub(crate) revocations: AtomicU64,
    pub(crate) spare: [AtomicU64; 2],
}

const _: () = assert!(cfg!(loom) || size_of::<Row>() == 512);

/// The beginning of a shard's memory.
#[repr(C)]
pub(crate) struct ShardHead {
    /// `FORMAT`, once it is laid out.
    pub(crate) format: AtomicU64,
    /// Grows when an object is taken out of a chain, by 2; odd while that is under way.
    pub(crate) changes: protocol::AtomicU64,
    /// Where the search for what can be evicted goes on, in units.
    pub(crate) hand: AtomicU32,
    /// Number of the last object that was made or changed here: part of the names of its hot copies.
    pub(crate) births: AtomicU32,
    pub(crate) figures: Figures,
    pub(crate) leaving: Leaving,
    /// Which bins have blocks.
    pub(crate) filled: [AtomicU64; BINS / 64],
    pub(crate) bins: [AtomicU32; BINS],
}

/// Objects that have gone and are freed together, with one look at the rows for all of them. Changed under the shard's
/// mutex in X, and empty after the death of a holder: the hand frees what was here.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Leaving {
    pub(crate) count: AtomicU32,
    /// What they take up, together.
    pub(crate) units: AtomicU32,
    pub(crate) blocks: [AtomicU32; LEAVING],
}

/// Most objects that wait to be freed together.
pub(crate) const LEAVING: usize = 14;

/// What happened in a shard; changed under its mutex in X.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) created: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) invalidated: AtomicU64,
    pub(crate) rebuilt: AtomicU64,
}

/// A block: free, or an object with its key and its value behind this.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub(crate) struct Block {
    /// In units, this included.
    pub(crate) units: AtomicU32,
    /// The next one of a chain, or of a bin.
    pub(crate) next: protocol::AtomicU32,
    /// A [`Phase`], [`BIASED`], [`APART`] and [`CHANGING`]. One store makes an object, and one ends it.
    pub(crate) state: protocol::AtomicU32,
    /// Of a free block the one before it in its bin.
    pub(crate) back: AtomicU32,
    pub(crate) hash: [AtomicU64; 2],
    pub(crate) mutex: EngineMutex,
    pub(crate) value_len: AtomicU64,
    /// Unused: values begin at multiples of 16.
    pub(crate) spare: AtomicU64,
    pub(crate) schema_len: AtomicU16,
    pub(crate) name_len: AtomicU16,
    pub(crate) version: AtomicU16,
    pub(crate) namespace: AtomicU8,
    pub(crate) copy: AtomicU8,
    /// Whether it was got since the hand came by.
    pub(crate) visited: AtomicU8,
    /// Hot copies, itself among them; 0 and 1 for none.
    pub(crate) copies: AtomicU8,
    /// Which mutex its builder holds.
    pub(crate) builder: AtomicU16,
    /// Which state of the object it is: hot copies of an earlier one are not found.
    pub(crate) birth: AtomicU32,
}

/// Bytes that an object has beside its key and value.
pub const OVERHEAD: usize = size_of::<Block>();
const _: () =
    assert!(OVERHEAD <= LEAST as usize * UNIT && (cfg!(loom) || OVERHEAD == 112 && OVERHEAD.is_multiple_of(UNIT)));

/// Added to the state while readers may pin the object in their rows alone.
pub(crate) const BIASED: u32 = 0x100;

/// Added to the state of an object that is being built to take the place of another one: it is in no chain.
pub(crate) const APART: u32 = 0x200;

/// Added to the state while a session that has the object in X may have changed a part of it.
pub(crate) const CHANGING: u32 = 0x400;

/// What a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// In a bin.
    Free = 0,
    /// An object that its builder fills.
    Building = 1,
    /// An object that can be found.
    Live = 2,
    /// To be evicted unless a row has it pinned: decided within one hold of the shard's mutex.
    Going = 3,
    /// In no chain any more; free when no row has it pinned.
    Gone = 4,
}

impl Phase {
    pub(crate) const fn of(state: u32) -> Option<Self> {
        match state & 0xff {
            0 => Some(Self::Free),
            1 => Some(Self::Building),
            2 => Some(Self::Live),
            3 => Some(Self::Going),
            4 => Some(Self::Gone),
            _ => None,
        }
    }

    /// As the views show it.
    pub(crate) const fn name(self) -> &'static str {
        ["free", "building", "live", "going", "gone"][self as usize]
    }
}

/// Where a block is: shard and unit; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectRef(u64);

/// For what a row names an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pinned {
    /// So that its memory stays.
    Kept = 0,
    /// To read it: a session that gets the object's mutex in X waits for this pin.
    Read = 1,
    /// To build it, and to read it as soon as it is live.
    Built = 2,
    /// To change it, as soon as no session reads it.
    Wanted = 3,
}

impl Pinned {
    /// Whether a session that wants to change the object waits for this pin.
    pub(crate) const fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::Built)
    }
}

impl ObjectRef {
    pub(crate) const fn new(shard: u32, unit: u32) -> Self {
        Self((shard as u64) << 32 | unit as u64)
    }

    pub(crate) const fn shard(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) const fn unit(self) -> u32 {
        self.0 as u32
    }

    /// As a row has it.
    pub(crate) const fn pin(self, how: Pinned) -> u64 {
        self.0 << 2 | how as u64
    }

    pub(crate) const fn of_pin(pin: u64) -> (Self, Pinned) {
        let how = match pin & 3 {
            1 => Pinned::Read,
            2 => Pinned::Built,
            3 => Pinned::Wanted,
            _ => Pinned::Kept,
        };
        (Self(pin >> 2), how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_the_largest_shard_have_numbers() {
        let largest = |bytes| Shape { bytes, shards: 1 }.check();
        assert!(u32::try_from(largest((1 << 36) - 64).unwrap().shard() / UNIT).is_ok());
        assert!(largest((1 << 36) - 63).is_err() && largest(1 << 36).is_err());
    }

    #[test]
    fn a_shape_that_no_cache_has_needs_more_than_there_is() {
        for (bytes, shards) in [(u64::MAX, 1), (u64::MAX, u32::MAX), (1 << 20, 0)] {
            let shape = Shape { bytes, shards };
            assert!(shape.check().is_err());
            assert!(shards == 0 || shape.arena(u32::MAX) > 1 << 60);
        }
    }
}
