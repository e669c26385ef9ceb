//! A shard: the chains by which its objects are found, what is made, evicted and thrown away in it.
//!
//! One store says that an object exists, and one that it does no more. All else in a shard, chains and
//! bins, follows from the blocks, and is made anew when a holder of the shard's mutex has died.

use crate::error::CacheError;
use crate::key::{Key, Namespace};
use crate::layout::{APART, BIASED, Block, FORMAT, ObjectRef, Phase, Pinned};
use crate::memory::Memory;
use crate::point;
use crate::rows::Rows;
use retrial::engine::EngineMutex;
use retrial::sys::protocol;
use retrial::{CodeLocation, GetError, GetFailure, Hold, Instance, Mode, Patience, Session, location};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// A shard of a cache that this process has open.
#[derive(Clone, Copy)]
pub(crate) struct Shard<'i> {
    pub(crate) number: u32,
    pub(crate) mutex: &'i EngineMutex,
    pub(crate) memory: Memory<'i>,
    pub(crate) rows: Rows<'i>,
    pub(crate) instance: &'i Instance,
}

/// Adds to a figure that only this session changes now.
#[inline]
pub(crate) fn count(figure: &AtomicU64) {
    figure.store(figure.load(Relaxed).wrapping_add(1), Relaxed);
}

/// Changes the phase of a block and leaves its flags. Whether it was in that phase.
pub(crate) fn change_phase(block: &Block, from: Phase, to: Phase) -> bool {
    let change = |state: u32| (Phase::of(state) == Some(from)).then(|| state - from as u32 + to as u32);
    block.state.try_update(AcqRel, Acquire, change).is_ok()
}

pub(crate) fn phase(block: &Block) -> Option<Phase> {
    // Acquire: a session that sees a live object sees what its builder wrote.
    Phase::of(block.state.load(Acquire))
}

impl<'i> Shard<'i> {
    pub(crate) const fn object(&self, unit: u32) -> ObjectRef {
        ObjectRef::new(self.number, unit)
    }

    /// Gets the shard in X. After the death of a holder chains and bins are made anew first.
    pub(crate) fn lock<'s>(&'s self, session: &'s Session<'s>, at: &CodeLocation) -> Result<Hold<'s>, CacheError> {
        let (mut held, is_whole) = get(self.instance, self.mutex, session, Mode::Exclusive, at, Patience::Endless)?;
        let head = self.memory.head();
        if head.format.load(Relaxed) != FORMAT {
            self.memory.format();
            self.rebuild();
            point();
            head.format.store(FORMAT, Release);
        } else if !is_whole {
            self.rebuild();
            count(&head.figures.rebuilt);
        }
        if !is_whole {
            point();
            held.consistent();
        }
        Ok(held)
    }

    /// Gets the shard in S, to find something that nobody takes away meanwhile.
    pub(crate) fn lock_shared<'s>(&'s self, session: &'s Session<'s>) -> Result<Hold<'s>, CacheError> {
        loop {
            let at = location!("kglhbh1 63");
            let (held, is_whole) = get(self.instance, self.mutex, session, Mode::Shared, at, Patience::Endless)?;
            if is_whole {
                return Ok(held);
            }
            drop(held);
            drop(self.lock(session, location!("kglhbh1 64"))?);
        }
    }

    /// Makes chains and bins anew from the blocks.
    pub(crate) fn rebuild(&self) {
        self.begin_change();
        self.memory.empty_bins();
        // The hand frees them.
        self.forget_leaving();
        self.memory.chains().iter().for_each(|chain| chain.store(0, Relaxed));
        point();
        let mut unit = self.memory.range().0;
        while let Some(block) = self.memory.block(unit) {
            let state = block.state.load(Relaxed);
            if Phase::of(state).is_none() {
                // No cache wrote this.
                block.state.store(Phase::Free as u32, Release);
            }
            match phase(block) {
                Some(Phase::Free) | None => {
                    self.join(unit, block);
                    self.memory.bin(unit, block);
                }
                // The dead evictor had begun to give its mutex back, as no session had it pinned.
                Some(Phase::Going) if !self.has_mutex(block) => {
                    change_phase(block, Phase::Going, Phase::Gone);
                }
                Some(Phase::Going) => {
                    change_phase(block, Phase::Going, Phase::Live);
                    self.link(unit, block);
                }
                Some(Phase::Live | Phase::Building) if !is_apart(block) => self.link(unit, block),
                Some(Phase::Live | Phase::Building | Phase::Gone) => {}
            }
            unit = self.memory.after(unit, block);
        }
        self.memory.head().hand.store(self.memory.range().0, Relaxed);
        self.end_change();
    }

    /// A number for all that was taken out of chains up to now; odd while something is.
    #[inline]
    pub(crate) fn moment(&self) -> u64 {
        self.memory.head().changes.load(Acquire)
    }

    /// Whether no object was taken out of a chain since that moment, nor was being taken out then.
    #[inline]
    pub(crate) fn is_as_at(&self, moment: u64) -> bool {
        // Acquire: the loads of the chain, and of what it led to, come before this one.
        protocol::fence(Acquire);
        moment & 1 == 0 && self.memory.head().changes.load(Relaxed) == moment
    }

    /// Before objects are taken out of chains: what a session does not find from now on, it looks for under
    /// the mutex.
    fn begin_change(&self) {
        let changes = &self.memory.head().changes;
        // Odd. A dead holder may have left it so.
        changes.store(changes.load(Relaxed) | 1, Relaxed);
        protocol::fence(Release);
    }

    /// After it.
    fn end_change(&self) {
        let changes = &self.memory.head().changes;
        changes.store((changes.load(Relaxed) | 1).wrapping_add(1), Release);
    }

    /// Joins a free block with those behind it, while no block is in a bin.
    fn join(&self, unit: u32, block: &Block) {
        while let Some(behind) = self.memory.block(self.memory.after(unit, block))
            && phase(behind) == Some(Phase::Free)
        {
            let end = self.memory.after(self.memory.after(unit, block), behind);
            block.units.store(end - unit, Release);
        }
    }

    fn chain(&self, hash: u64) -> &'i protocol::AtomicU32 {
        let chains = self.memory.chains();
        &chains[hash as usize & (chains.len() - 1)]
    }

    /// The first unit of a hash's chain.
    pub(crate) fn first(&self, hash: u64) -> u32 {
        self.chain(hash).load(Acquire)
    }

    /// The live objects of a chain and those that are being built, under the shard's mutex.
    fn objects_in_chain(&self, hash: [u64; 2]) -> impl Iterator<Item = (u32, &'i Block)> {
        let mut next = self.first(hash[0]);
        let memory = self.memory;
        let all = std::iter::from_fn(move || {
            let (unit, block) = (next, memory.block(next)?);
            next = block.next.load(Acquire);
            Some((unit, block))
        });
        // A chain that was written by something else may be a ring. Others are in a chain only where something
        // else wrote, and would be looked for again and again.
        let is_object = |(_, block): &(u32, &Block)| matches!(phase(block), Some(Phase::Live | Phase::Building));
        all.take(self.memory.range().1 as usize).filter(is_object)
    }

    /// A live object or one that is being built, under the shard's mutex.
    pub(crate) fn find(&self, hash: [u64; 2], is_it: impl Fn(u32, &Block) -> bool) -> Option<(u32, &'i Block)> {
        self.objects_in_chain(hash).find(|(unit, block)| has_hash(block, hash) && is_it(*unit, block))
    }

    /// The versions of an object, under the shard's mutex: their hashes choose its chain too.
    pub(crate) fn versions(&self, hash: [u64; 2], key: &Key<'_>) -> Vec<(u32, &'i Block)> {
        let is_version = |(unit, block): &(u32, &Block)| {
            key.has_version(block.namespace.load(Relaxed), block.version.load(Relaxed))
                && block.copy.load(Relaxed) == 0
                && self.has_name(*unit, block, key)
        };
        self.objects_in_chain(hash).filter(is_version).collect()
    }

    /// Whether a block has this key: it stays what it is, by a pin or by the shard's mutex.
    pub(crate) fn has_key(&self, unit: u32, block: &Block, key: &Key<'_>) -> bool {
        let kind = (block.namespace.load(Relaxed), block.version.load(Relaxed), block.copy.load(Relaxed));
        let is_of_state = key.copy == 0 || block.birth.load(Relaxed) == key.birth;
        kind == (key.namespace as u8, key.version, key.copy) && is_of_state && self.has_name(unit, block, key)
    }

    /// Whether its schema and name are those of a key.
    fn has_name(&self, unit: u32, block: &Block, key: &Key<'_>) -> bool {
        let (schema, name) = (key.schema.as_bytes(), key.name.as_bytes());
        let lens = [block.schema_len.load(Relaxed), block.name_len.load(Relaxed)].map(usize::from);
        if lens != [schema.len(), name.len()] {
            return false;
        }
        let Some((of_schema, of_name)) = self.key_bytes(unit, block).split_at_checked(schema.len()) else {
            return false;
        };
        // Many schemas are empty, and a comparison of no bytes at the address of an empty slice costs 40 ns by the C
        // library's masked loads (AMD Zen 4): they fault, and the processor has to suppress it.
        of_name == name && (schema.is_empty() || of_schema == schema)
    }

    /// Bytes of a block's key, schema and name, which lie behind the value. Of one that stays what it is, by
    /// a pin or by the shard's mutex.
    pub(crate) fn key_bytes(&self, unit: u32, block: &Block) -> &'i [u8] {
        let (begin, len) = self.memory.bytes(unit, block);
        let at = block.value_len.load(Relaxed) as usize;
        let key_len = usize::from(block.schema_len.load(Relaxed)) + usize::from(block.name_len.load(Relaxed));
        let key_len = if at.checked_add(key_len).is_some_and(|end| end <= len) { key_len } else { 0 };
        // SAFETY: inside of the block, whose key does not change while it is an object.
        unsafe { std::slice::from_raw_parts(begin.wrapping_add(at), key_len) }
    }

    /// Puts an object into its chain.
    pub(crate) fn link(&self, unit: u32, block: &Block) {
        let chain = self.chain(block.hash[0].load(Relaxed));
        // Release: a session that comes on from here finds the key of the next one.
        block.next.store(chain.load(Relaxed), Release);
        // Release: a session that finds it finds its key.
        chain.store(unit, Release);
    }

    /// Takes an object out of its chain.
    pub(crate) fn unlink(&self, unit: u32, block: &Block) {
        self.begin_change();
        let mut link = self.chain(block.hash[0].load(Relaxed));
        for _ in 0..self.memory.range().1 {
            let at = link.load(Relaxed);
            if at == unit {
                link.store(block.next.load(Relaxed), Release);
                break;
            }
            let Some(before) = self.memory.block(at) else { break };
            link = &before.next;
        }
        point();
        self.end_change();
    }

    /// Takes an object out of the cache: nobody finds it any more, and pins of it go on.
    pub(crate) fn throw_away(&self, unit: u32, block: &Block) {
        self.end(block);
        self.unlink(unit, block);
    }

    /// Says that an object is none any more, which is to be taken out of its chain.
    pub(crate) fn end(&self, block: &Block) {
        // In this order: its builder, which needs no mutex for it, may make it live between the two.
        let _ = change_phase(block, Phase::Building, Phase::Gone) || change_phase(block, Phase::Live, Phase::Gone);
        count(&self.memory.head().figures.invalidated);
        point();
    }

    /// Whether another object of this one's name can be found.
    pub(crate) fn has_twin(&self, unit: u32, block: &Block) -> bool {
        let is_twin = |other: u32, of: &Block| {
            let is_other = other != unit && phase(of) == Some(Phase::Live);
            is_other && self.key_bytes(other, of) == self.key_bytes(unit, block)
        };
        self.find(hash_of(block), is_twin).is_some()
    }

    /// The type of an object's mutex, and what it is called.
    pub(crate) fn label(&self, unit: u32, block: &Block) -> (&'static str, String) {
        let namespace = Namespace::ALL.get(usize::from(block.namespace.load(Relaxed))).copied();
        (namespace.unwrap_or(Namespace::Object).mutex_type(), self.name(unit, block))
    }

    /// What an object is called, with its schema, version and copy.
    pub(crate) fn name(&self, unit: u32, block: &Block) -> String {
        let bytes = self.key_bytes(unit, block);
        let (schema, name) = bytes.split_at(usize::from(block.schema_len.load(Relaxed)).min(bytes.len()));
        let (schema, name) = (String::from_utf8_lossy(schema), String::from_utf8_lossy(name));
        let key = Key::new(Namespace::Object, &schema, &name).version(block.version.load(Relaxed));
        key.copy(block.copy.load(Relaxed), 0).to_string()
    }

    /// Whether the session that builds an object lives and is at it.
    pub(crate) fn is_being_built(&self, unit: u32) -> bool {
        !self.rows.seen(|object, how| object == self.object(unit) && how == Pinned::Built).is_empty()
    }

    /// Fills a free block, which is an object that is being built from the last store on. In no chain yet.
    pub(crate) fn fill(&self, unit: u32, new: &New<'_>) {
        let &New { key, hash, value_len, builder, is_apart } = new;
        let Some(block) = self.memory.block(unit) else { return };
        let (begin, _) = self.memory.bytes(unit, block);
        // Release, for all that this session writes here, the value too: a reader that came to these bytes when
        // they were another object's, and sees any of it, sees that objects were taken out of chains.
        protocol::fence(Release);
        let mutex = std::ptr::from_ref(&block.mutex).cast_mut();
        // SAFETY: the block is free and the shard's mutex held: nobody looks at it.
        unsafe { mutex.write(EngineMutex::default()) };
        block.hash[0].store(hash[0], Relaxed);
        block.hash[1].store(hash[1], Relaxed);
        block.value_len.store(value_len as u64, Relaxed);
        block.schema_len.store(key.schema.len() as u16, Relaxed);
        block.name_len.store(key.name.len() as u16, Relaxed);
        block.version.store(key.version, Relaxed);
        block.namespace.store(key.namespace as u8, Relaxed);
        block.copy.store(key.copy, Relaxed);
        block.visited.store(0, Relaxed);
        block.copies.store(0, Relaxed);
        block.builder.store(builder, Relaxed);
        block.birth.store(if key.copy == 0 { self.next_birth() } else { key.birth }, Relaxed);
        for (at, part) in [(value_len, key.schema), (value_len + key.schema.len(), key.name)] {
            // SAFETY: `Memory::units` has left room for the key behind the value.
            unsafe { begin.wrapping_add(at).copy_from_nonoverlapping(part.as_ptr(), part.len()) };
        }
        count(&self.memory.head().figures.created);
        point();
        // Release: one store makes it.
        let apart = if is_apart { APART } else { 0 };
        block.state.store(Phase::Building as u32 | apart | self.rows.head.bias(), Release);
        point();
    }

    /// A number for the state of an object that was made or changed now.
    pub(crate) fn next_birth(&self) -> u32 {
        self.memory.head().births.fetch_add(1, Relaxed).wrapping_add(1)
    }
}

/// Gets a mutex of a cache: the hold, and whether the holder before has released it. A session of another
/// [`Instance`] is refused.
pub(crate) fn get<'a>(
    instance: &Instance,
    mutex: &'a EngineMutex,
    session: &'a Session<'a>,
    mode: Mode,
    at: &CodeLocation,
    patience: Patience,
) -> Result<(Hold<'a>, bool), CacheError> {
    if !std::ptr::eq(session.instance(), instance) {
        return Err(CacheError::OtherInstance);
    }
    let raw = mutex.record(instance).map_err(|_| CacheError::OtherInstance)?;
    // SAFETY: of the session's instance, as was just looked at.
    match unsafe { raw.get(session, mode, at, patience) } {
        Ok(held) => Ok((held, true)),
        Err(GetError::OwnerDied(died)) => Ok((died.guard, false)),
        Err(other) => Err(GetFailure::from(other).into()),
    }
}

/// What a new object is to be.
pub(crate) struct New<'k> {
    pub(crate) key: &'k Key<'k>,
    pub(crate) hash: [u64; 2],
    pub(crate) value_len: usize,
    /// Number of the mutex that its builder holds.
    pub(crate) builder: u16,
    /// Whether it will take the place of another one.
    pub(crate) is_apart: bool,
}

pub(crate) fn is_apart(block: &Block) -> bool {
    block.state.load(Relaxed) & APART != 0
}

pub(crate) fn hash_of(block: &Block) -> [u64; 2] {
    block.hash.each_ref().map(|half| half.load(Relaxed))
}

pub(crate) fn has_hash(block: &Block, hash: [u64; 2]) -> bool {
    hash_of(block) == hash
}

/// Has the hand leave an object alone the next time. A store only where it changes something: the line stays
/// shared.
#[inline]
pub(crate) fn visit(block: &Block) {
    if block.visited.load(Relaxed) == 0 {
        block.visited.store(1, Relaxed);
    }
}

/// Whether readers may pin a live object in their rows alone.
pub(crate) const fn is_biased(state: u32) -> bool {
    state & BIASED != 0
}
