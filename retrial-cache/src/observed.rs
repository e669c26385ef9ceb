//! A cache as a process sees it that has its instance open to read alone: without a session, a mutex or a
//! store.

use crate::key::{Hash, Key, Namespace};
use crate::layout::{
    APART, BIASED, Block, CHANGING, FORMAT, Head, ObjectRef, Phase, Pinned, Row, Shape, ShardHead, UNIT,
};
use crate::memory::Extent;
use crate::rows::Rows;
use retrial::MutexId;
use retrial::engine::EngineMutex;
use retrial::views::{Kind, MutexInfo, Sid, Tables};
use std::mem::offset_of;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Looks at a shard, a millisecond apart, until one finds that no session changed it meanwhile.
const LOOKS: u32 = 8;
/// Blocks of a chain that a search goes through: as many as a parent has versions.
const LONGEST_CHAIN: usize = 1 << 17;
/// Bytes of a word.
const WORD: u64 = 8;

/// A cache of an instance that this process only reads.
#[derive(Clone, Debug)]
pub struct Observed<'t> {
    tables: &'t Tables,
    name: String,
    /// The mutex of the cache's head.
    head: MutexId,
    shape: Shape,
    /// Those that are laid out.
    shards: Vec<ObservedShard<'t>>,
}

/// A block of a cache, as it was seen.
#[allow(clippy::struct_excessive_bools)] // each true or not by itself
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockInfo {
    /// The shard that it is in.
    pub shard: u32,
    /// Its first unit of 16 bytes, counted from the beginning of the shard.
    pub unit: u32,
    /// Its offset in the instance.
    pub address: u64,
    /// Bytes that it takes up.
    pub taken: u64,
    /// `free`, `building`, `live`, `going` or `gone`.
    pub phase: &'static str,
    /// Whether readers may pin it in their rows alone.
    pub private: bool,
    /// Whether it is built to take another object's place.
    pub apart: bool,
    /// Whether a session changes it in place.
    pub changing: bool,
    /// Whether it was got since the hand came by.
    pub visited: bool,
    /// The object in it; `None` of a free block, and of one that changed while it was read.
    pub object: Option<BlockObject>,
}

/// The object in a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockObject {
    /// Its kind.
    pub namespace: Namespace,
    /// Its schema; may be empty.
    pub schema: String,
    /// Its name in the schema.
    pub name: String,
    /// Which version.
    pub version: u16,
    /// Which hot copy; 0 is the object itself.
    pub copy: u8,
    /// Hot copies of it that sessions execute, itself among them; 1 when it is not hot.
    pub copies: u8,
    /// Which state of the object it is: a number that its shard gives at each creation and change.
    pub birth: u32,
    /// Its full hash.
    pub hash: Hash,
    /// Bytes of its value.
    pub bytes: u64,
    /// Its mutex, where a session has executed or changed it, or read it by its mutex.
    pub mutex: Option<MutexId>,
    /// First requests of the mutex granted so far. An execution makes two.
    pub gets: u64,
}

/// A block that a session has pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockPin {
    /// The session.
    pub sid: Sid,
    /// The block's shard.
    pub shard: u32,
    /// Its first unit.
    pub unit: u32,
}

impl<'t> Observed<'t> {
    /// The caches of an instance, in the order of their names.
    ///
    /// # Safety
    ///
    /// As for [`Tables::peek`]: while the result is used, no thread of this process builds or changes objects
    /// of these caches.
    #[must_use]
    pub unsafe fn all(tables: &'t Tables) -> Vec<Self> {
        let mutexes = tables.mutexes();
        let mut all: Vec<_> = mutexes.iter().filter_map(|info| Self::of(tables, info, &mutexes)).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// The cache of which this is the head's mutex.
    fn of(tables: &'t Tables, head: &MutexInfo, mutexes: &[MutexInfo]) -> Option<Self> {
        let range = tables.object_of(head.id)?;
        let start = range.start + size_of::<EngineMutex>() as u64;
        if range.end.checked_sub(start)? != size_of::<Head>() as u64 {
            return None;
        }
        let words = peek::<3>(tables, start).filter(|words| words[0] == FORMAT)?;
        let shape = Shape { bytes: words[1], shards: u32::try_from(words[2]).ok()? }.check().ok()?;
        let number = |info: &MutexInfo| {
            let number = info.name.strip_prefix(&head.name)?.strip_prefix(" shard ")?.parse().ok()?;
            (number < shape.shards).then_some(number)
        };
        let shard = |info: &MutexInfo| ObservedShard::of(tables, shape, number(info)?, info.id);
        let mut shards: Vec<_> = mutexes.iter().filter_map(shard).collect();
        shards.sort_by_key(|shard| shard.number);
        Some(Self { tables, name: head.name.clone(), head: head.id, shape, shards })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of its shards.
    #[must_use]
    pub const fn shards(&self) -> u32 {
        self.shape.shards
    }

    /// The mutexes of its shards.
    pub fn shard_mutexes(&self) -> impl Iterator<Item = MutexId> {
        self.shards.iter().map(|shard| shard.mutex)
    }

    /// Every block, shard by shard, in the order of their addresses.
    ///
    /// An object that is shown was there, with this name. In a shard that sessions change all the time,
    /// objects that they move meanwhile may be missing.
    #[must_use]
    pub fn blocks(&self) -> Vec<BlockInfo> {
        self.shards.iter().flat_map(ObservedShard::blocks).collect()
    }

    /// What living sessions have pinned, each block once for each session.
    #[must_use]
    pub fn pins(&self) -> Vec<BlockPin> {
        let Some(head) = self.head() else { return Vec::new() };
        let rows = self.rows(head.rows_used.load(Relaxed)).unwrap_or_default();
        if rows.is_empty() {
            return Vec::new();
        }
        let rows = Rows { all: &rows, head: &head, tables: self.tables };
        let pin = |object: ObjectRef, sid| BlockPin { sid, shard: object.shard(), unit: object.unit() };
        let seen = rows.seen(|_, how| how != Pinned::Built);
        let mut pins: Vec<_> = seen.into_iter().map(|seen| pin(seen.object, seen.sid)).collect();
        pins.sort_by_key(|pin| (pin.sid.number(), pin.shard, pin.unit));
        pins.dedup();
        pins
    }

    /// Most copies that an object may have, as [`Cache::set_copies_max`](crate::Cache::set_copies_max) has
    /// it.
    #[must_use]
    pub fn copies_max(&self) -> u8 {
        self.head().map_or(u8::MAX, |head| head.copies_max())
    }

    fn head(&self) -> Option<Head> {
        let range = self.tables.object_of(self.head)?;
        peek(self.tables, range.start + size_of::<EngineMutex>() as u64).map(head_of)
    }

    /// The rows up to the one of this number.
    fn rows(&self, last: u64) -> Option<Vec<Row>> {
        let range = self.tables.object_of(self.tables.mutex_named(&format!("{} rows", self.name))?)?;
        let start = (range.start + size_of::<EngineMutex>() as u64).next_multiple_of(align_of::<Row>() as u64);
        let most = range.end.checked_sub(start)? / size_of::<Row>() as u64;
        let count = last.saturating_add(1).min(most) as usize * (size_of::<Row>() / WORD as usize);
        // SAFETY: the caller's of `all`.
        let words = unsafe { self.tables.peek(start, count) }?;
        Some(words.as_chunks().0.iter().map(row_of).collect())
    }

    /// Numbers of the latest birth of the object of this hash, and of the latest one in its shard: each
    /// creation and change of an object is one, that of a copy none. They go on from 0 after 2^32.
    #[must_use]
    pub fn births(&self, hash: Hash) -> Option<(u32, u32)> {
        let block = self.find(hash)?;
        let shard = self.shards.iter().find(|shard| shard.number == block.shard)?;
        Some((block.object?.birth, shard.births()?))
    }

    /// The object of this hash, unless it is a copy. Looks at one chain.
    #[must_use]
    pub fn find(&self, hash: Hash) -> Option<BlockInfo> {
        let halves = hash.halves();
        let number = self.shape.shard_of(halves);
        let shard = self.shards.iter().find(|shard| shard.number == number)?;
        let mut unit = shard.first(halves[0])?;
        for _ in 0..LONGEST_CHAIN {
            let block = shard.block(unit)?;
            let info = shard.info(unit, &block);
            if info.phase == "live"
                && info.object.as_ref().is_some_and(|object| object.hash == hash && object.copy == 0)
            {
                return Some(info);
            }
            unit = block.next.load(Relaxed);
        }
        None
    }
}

/// A shard of such a cache.
#[derive(Clone, Debug)]
struct ObservedShard<'t> {
    tables: &'t Tables,
    number: u32,
    mutex: MutexId,
    /// Offset of its memory in the instance.
    start: u64,
    extent: Extent,
}

impl<'t> ObservedShard<'t> {
    fn of(tables: &'t Tables, shape: Shape, number: u32, mutex: MutexId) -> Option<Self> {
        let range = tables.object_of(mutex)?;
        let start = range.start + size_of::<EngineMutex>() as u64;
        if range.end.checked_sub(start)? != shape.shard() as u64 {
            return None;
        }
        let is_laid_out = peek::<1>(tables, start)? == [FORMAT];
        is_laid_out.then(|| Self { tables, number, mutex, start, extent: Extent::of(shape.shard()) })
    }

    /// The block at a unit, as it is now.
    fn block(&self, unit: u32) -> Option<Block> {
        self.extent.has(unit).then(|| peek(self.tables, self.address(unit)).map(block_of)).flatten()
    }

    fn address(&self, unit: u32) -> u64 {
        self.start + u64::from(unit) * UNIT as u64
    }

    /// The first unit of a hash's chain.
    fn first(&self, hash: u64) -> Option<u32> {
        let chain = hash & u64::from(self.extent.chains - 1);
        let at = self.start + size_of::<ShardHead>() as u64 + chain * size_of::<AtomicU32>() as u64;
        let [word] = peek::<1>(self.tables, at / WORD * WORD)?;
        Some((word >> (at % WORD * 8)) as u32)
    }

    /// Number of the latest birth in it.
    fn births(&self) -> Option<u32> {
        let at = offset_of!(ShardHead, births) as u64;
        let [word] = peek::<1>(self.tables, self.start + at / WORD * WORD)?;
        Some((word >> (at % WORD * 8)) as u32)
    }

    /// Gets of the shard's mutex, while no session has it to change the shard.
    fn unchanged(&self) -> Option<u64> {
        let state = self.tables.mutex_state(self.mutex)?;
        (state.word.kind() != Some(Kind::Exclusive)).then_some(state.gets)
    }

    fn blocks(&self) -> Vec<BlockInfo> {
        let mut blocks = Vec::new();
        for _ in 0..LOOKS {
            let before = self.unchanged();
            blocks = self.walk();
            if before.is_some() && before == self.unchanged() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        blocks
    }

    fn walk(&self) -> Vec<BlockInfo> {
        let (mut blocks, mut unit) = (Vec::new(), self.extent.first);
        while let Some(block) = self.block(unit) {
            blocks.push(self.info(unit, &block));
            unit = self.extent.after(unit, block.units.load(Relaxed));
        }
        blocks
    }

    fn info(&self, unit: u32, block: &Block) -> BlockInfo {
        let state = block.state.load(Relaxed);
        let phase = Phase::of(state);
        let is_object = phase.is_some_and(|phase| phase != Phase::Free);
        BlockInfo {
            shard: self.number,
            unit,
            address: self.address(unit),
            taken: u64::from(self.extent.after(unit, block.units.load(Relaxed)) - unit) * UNIT as u64,
            phase: phase.map_or("unknown", Phase::name),
            private: state & BIASED != 0,
            apart: state & APART != 0,
            changing: state & CHANGING != 0,
            visited: block.visited.load(Relaxed) != 0,
            object: is_object.then(|| self.object(unit, block)).flatten(),
        }
    }

    /// The object in a block, if its name has the hash that the block has: else the block became another one
    /// while it was read.
    fn object(&self, unit: u32, block: &Block) -> Option<BlockObject> {
        let lens = [block.schema_len.load(Relaxed), block.name_len.load(Relaxed)].map(usize::from);
        let key_len = lens[0] + lens[1];
        let value_len = block.value_len.load(Relaxed);
        let begin = self.address(unit).checked_add(size_of::<Block>() as u64)?.checked_add(value_len)?;
        let from = begin / WORD * WORD;
        let count = (begin - from + key_len as u64).div_ceil(WORD) as usize;
        // SAFETY: the caller's of `Observed::all`.
        let words = unsafe { self.tables.peek(from, count) }?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let (schema, name) = bytes.get((begin - from) as usize..)?.get(..key_len)?.split_at(lens[0]);
        let (schema, name) = (std::str::from_utf8(schema).ok()?, std::str::from_utf8(name).ok()?);
        let namespace = *Namespace::ALL.get(usize::from(block.namespace.load(Relaxed)))?;
        let (copy, birth) = (block.copy.load(Relaxed), block.birth.load(Relaxed));
        let key = Key::new(namespace, schema, name).version(block.version.load(Relaxed));
        let hash = if copy == 0 { key.hash() } else { key.copy(copy, birth).hash() };
        let is_same = crate::shard::has_hash(block, hash.halves());
        let mutex = block.mutex.figures(self.tables);
        is_same.then(|| BlockObject {
            namespace,
            schema: schema.to_owned(),
            name: name.to_owned(),
            version: key.version,
            copy,
            copies: block.copies.load(Relaxed).max(1),
            birth,
            hash,
            bytes: value_len,
            mutex: mutex.map(|(id, _)| id),
            gets: mutex.map_or(0, |(_, gets)| gets),
        })
    }
}

impl BlockObject {
    /// What it is called, with its schema, version and copy.
    #[must_use]
    pub fn label(&self) -> String {
        let key = Key::new(self.namespace, &self.schema, &self.name).version(self.version);
        key.copy(self.copy, self.birth).to_string()
    }
}

/// So many words of an instance.
fn peek<const COUNT: usize>(tables: &Tables, offset: u64) -> Option<[u64; COUNT]> {
    // SAFETY: the caller's of `Observed::all`.
    unsafe { tables.peek(offset, COUNT) }?.try_into().ok()
}

fn block_of(words: [u64; size_of::<Block>() / 8]) -> Block {
    // SAFETY: as long, and all bytes are a value: it is atomics only.
    unsafe { std::mem::transmute(words) }
}

fn row_of(words: &[u64; size_of::<Row>() / 8]) -> Row {
    // SAFETY: as above.
    unsafe { std::mem::transmute(*words) }
}

fn head_of(words: [u64; size_of::<Head>() / 8]) -> Head {
    // SAFETY: as above.
    unsafe { std::mem::transmute(words) }
}
