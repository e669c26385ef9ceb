//! The memory of a shard: blocks one after the other, and lists of the free ones.
//!
//! What is true is in the blocks alone: their lengths, which always add up, and their phases. Lists and
//! chains follow from them, so that after a death they are made anew
//! ([`Shard::rebuild`](crate::shard::Shard::rebuild)). All changes are made under the shard's mutex in X.

use crate::layout::{BINS, Block, LEAST, Phase, ShardHead, UNIT};
use crate::point;
use retrial::sys::protocol::AtomicU32;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Blocks of a bin that a search looks at: those of one bin differ by up to a fifth.
const LOOKS: usize = 8;

/// A shard's memory, mapped as long as its instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory<'i> {
    base: *mut u8,
    extent: Extent,
    instance: PhantomData<&'i ()>,
}

/// What lies where in a shard's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Chains, a power of two.
    pub(crate) chains: u32,
    /// Units of the first block and after the last one.
    pub(crate) first: u32,
    end: u32,
}

impl Extent {
    /// Of so many bytes.
    pub(crate) const fn of(len: usize) -> Self {
        let chains = (len / 256).next_power_of_two();
        let first = (size_of::<ShardHead>() + chains * size_of::<AtomicU32>()).div_ceil(UNIT);
        Self { chains: chains as u32, first: first as u32, end: (len / UNIT) as u32 }
    }

    /// Whether a block can begin at a unit.
    pub(crate) const fn has(self, unit: u32) -> bool {
        unit >= self.first && unit <= self.end - LEAST
    }

    /// The unit after a block of so many units.
    pub(crate) fn after(self, unit: u32, units: u32) -> u32 {
        unit.saturating_add(units.max(LEAST)).min(self.end)
    }
}

// SAFETY: shared memory, touched as atomics; a value's bytes are lent by pins alone.
unsafe impl Send for Memory<'_> {}
// SAFETY: as above.
unsafe impl Sync for Memory<'_> {}

impl<'i> Memory<'i> {
    /// # Safety
    ///
    /// `base` is aligned to 16, and `len` bytes, at least 4,096 and at most 2^36 - 64, are there for `'i`.
    /// Nothing but caches of this layout uses them.
    pub(crate) unsafe fn new(base: *mut u8, len: usize) -> Self {
        Self { base, extent: Extent::of(len), instance: PhantomData }
    }

    /// A head, a chain and so many units, which the caller has made: a model's atomics are not any bytes.
    #[cfg(all(test, loom))]
    pub(crate) const unsafe fn of_one_chain(base: *mut u8, first: u32, units: u32) -> Self {
        Self { base, extent: Extent { chains: 1, first, end: first + units }, instance: PhantomData }
    }

    pub(crate) fn head(&self) -> &'i ShardHead {
        // SAFETY: at the beginning, and all bytes are a value.
        unsafe { &*aligned::<ShardHead>(self.base) }
    }

    /// First units of the chains; 0 for an empty one.
    pub(crate) fn chains(&self) -> &'i [AtomicU32] {
        // SAFETY: the head is shorter than 4,096 bytes.
        let first = aligned(unsafe { self.base.add(size_of::<ShardHead>()) });
        // SAFETY: `new` has left room for so many before the first block.
        unsafe { std::slice::from_raw_parts(first, self.extent.chains as usize) }
    }

    /// Bytes of the largest value that an empty shard has room for, with an empty key.
    pub(crate) const fn largest(&self) -> usize {
        (self.extent.end - self.extent.first) as usize * UNIT - size_of::<Block>()
    }

    /// The block at a unit; `None` where none can be.
    pub(crate) fn block(&self, unit: u32) -> Option<&'i Block> {
        // SAFETY: room for a block is there, and all bytes are a value.
        self.extent.has(unit).then(|| unsafe { &*aligned::<Block>(self.at(unit)) })
    }

    /// The address of a unit that [`Memory::block`] has, or of the end.
    fn at(&self, unit: u32) -> *mut u8 {
        // SAFETY: inside.
        unsafe { self.base.add(unit as usize * UNIT) }
    }

    /// Bytes behind the header of the block at a unit: where they begin, and how many.
    pub(crate) fn bytes(&self, unit: u32, block: &Block) -> (*mut u8, usize) {
        let units = block.units.load(Relaxed).clamp(LEAST, self.extent.end - unit);
        // SAFETY: a block is at least as long as its header.
        let begin = unsafe { self.at(unit).add(size_of::<Block>()) };
        (begin, units as usize * UNIT - size_of::<Block>())
    }

    /// Every block, in the order of their addresses.
    pub(crate) fn blocks(self) -> impl Iterator<Item = (u32, &'i Block)> {
        let mut unit = self.extent.first;
        std::iter::from_fn(move || {
            let block = self.block(unit)?;
            let now = unit;
            unit = self.after(unit, block);
            Some((now, block))
        })
    }

    /// The unit after a block.
    pub(crate) fn after(&self, unit: u32, block: &Block) -> u32 {
        self.extent.after(unit, block.units.load(Relaxed))
    }

    /// The unit after a block, or the first one after the last.
    pub(crate) fn after_in_a_ring(&self, unit: u32, block: &Block) -> u32 {
        self.in_a_ring(self.after(unit, block))
    }

    fn in_a_ring(&self, unit: u32) -> u32 {
        if self.block(unit).is_some() { unit } else { self.extent.first }
    }

    /// The unit of the first block, and the one after the last.
    pub(crate) const fn range(&self) -> (u32, u32) {
        (self.extent.first, self.extent.end)
    }

    /// Units of an object with so many bytes of key and value.
    pub(crate) const fn units(key: usize, value: usize) -> u32 {
        let units = (size_of::<Block>() + value + key).div_ceil(UNIT);
        if units > LEAST as usize { units as u32 } else { LEAST }
    }

    /// Makes one free block of everything. For memory of which nothing is believed.
    pub(crate) fn format(&self) {
        if let Some(block) = self.block(self.extent.first) {
            block.state.store(Phase::Free as u32, Release);
            block.units.store(self.extent.end - self.extent.first, Release);
        }
    }

    /// A free block of so many units, in no bin; the rest of a longer one stays free.
    pub(crate) fn take(&self, units: u32) -> Option<u32> {
        let unit = self.find(units)?;
        let block = self.block(unit)?;
        self.unbin(block);
        point();
        let rest = self.after(unit, block) - unit - units;
        let after = unit + units;
        if rest >= LEAST
            && let Some(behind) = self.block(after)
        {
            behind.state.store(Phase::Free as u32, Relaxed);
            behind.units.store(rest, Relaxed);
            point();
            // Release: the lengths add up at each instruction.
            block.units.store(units, Release);
            point();
            self.bin(after, behind);
        }
        Some(unit)
    }

    fn find(&self, units: u32) -> Option<u32> {
        let (head, exact) = (self.head(), bin_of(units));
        let mut unit = head.bins[exact].load(Relaxed);
        for _ in 0..LOOKS {
            let Some(block) = self.block(unit) else { break };
            if self.after(unit, block) - unit >= units {
                return Some(unit);
            }
            unit = block.next.load(Relaxed);
        }
        let filled = (exact + 1..BINS).find(|bin| head.filled[bin / 64].load(Relaxed) >> (bin % 64) & 1 == 1)?;
        let unit = head.bins[filled].load(Relaxed);
        self.block(unit).filter(|block| self.after(unit, block) - unit >= units).map(|_| unit)
    }

    /// Ends an object, or what is left of one: its block is free, together with the free ones behind it.
    pub(crate) fn free(&self, unit: u32, block: &Block) {
        // Release: one store ends it.
        block.state.store(Phase::Free as u32, Release);
        point();
        self.merge(unit, block);
        self.bin(unit, block);
    }

    /// Joins a free block that is in no bin with the free ones behind it.
    pub(crate) fn merge(&self, unit: u32, block: &Block) {
        let hand = &self.head().hand;
        loop {
            let after = self.after(unit, block);
            let Some(behind) = self.block(after) else { break };
            if Phase::of(behind.state.load(Acquire)) != Some(Phase::Free) {
                break;
            }
            self.unbin(behind);
            let end = self.after(after, behind);
            if hand.load(Relaxed) == after {
                // On, and not back to where the next object is made: that one would be the first to go.
                hand.store(self.in_a_ring(end), Relaxed);
            }
            point();
            block.units.store(end - unit, Release);
            point();
        }
    }

    /// Puts a free block into its bin.
    pub(crate) fn bin(&self, unit: u32, block: &Block) {
        let (head, bin) = (self.head(), bin_of(block.units.load(Relaxed)));
        let first = head.bins[bin].load(Relaxed);
        // Release, here and in `unbin`: a session without a lock may have come to this block when it was an
        // object.
        block.next.store(first, Release);
        block.back.store(0, Relaxed);
        if let Some(first) = self.block(first) {
            first.back.store(unit, Relaxed);
        }
        head.bins[bin].store(unit, Relaxed);
        point();
        head.filled[bin / 64].fetch_or(1 << (bin % 64), Relaxed);
    }

    /// Takes a free block out of its bin.
    pub(crate) fn unbin(&self, block: &Block) {
        let (head, bin) = (self.head(), bin_of(block.units.load(Relaxed)));
        let (next, back) = (block.next.load(Relaxed), block.back.load(Relaxed));
        if let Some(next) = self.block(next) {
            next.back.store(back, Relaxed);
        }
        if let Some(before) = self.block(back) {
            before.next.store(next, Release);
            return;
        }
        head.bins[bin].store(next, Relaxed);
        if next == 0 {
            head.filled[bin / 64].fetch_and(!(1 << (bin % 64)), Relaxed);
        }
    }

    /// Forgets what is in the bins.
    pub(crate) fn empty_bins(&self) {
        let head = self.head();
        head.bins.iter().for_each(|bin| bin.store(0, Relaxed));
        head.filled.iter().for_each(|word| word.store(0, Relaxed));
    }
}

/// The same address for what has to be aligned there, as it is.
#[allow(clippy::cast_ptr_alignment)]
pub(crate) const fn aligned<T>(at: *mut u8) -> *mut T {
    at.cast()
}

/// The bin of blocks of so many units: four for each power of two.
pub(crate) const fn bin_of(units: u32) -> usize {
    let units = if units < LEAST { LEAST } else { units };
    let log = units.ilog2();
    (log * 4 + (units >> (log - 2) & 3)) as usize
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The phase and length of each block, and that those free are in their bins.
    fn lengths(memory: Memory<'_>) -> Vec<(Phase, u32)> {
        let all: Vec<_> = memory
            .blocks()
            .map(|(_, block)| (Phase::of(block.state.load(Relaxed)).unwrap(), block.units.load(Relaxed)))
            .collect();
        let mut binned: Vec<u32> = Vec::new();
        for bin in 0..BINS {
            let mut unit = memory.head().bins[bin].load(Relaxed);
            while let Some(block) = memory.block(unit) {
                assert_eq!(bin_of(block.units.load(Relaxed)), bin);
                binned.push(block.units.load(Relaxed));
                unit = block.next.load(Relaxed);
            }
        }
        let mut free: Vec<u32> =
            all.iter().filter(|(phase, _)| *phase == Phase::Free).map(|(_, units)| *units).collect();
        free.sort_unstable();
        binned.sort_unstable();
        assert_eq!(free, binned);
        all
    }

    fn with_memory(deed: impl FnOnce(Memory<'_>)) {
        let mut bytes = vec![0u128; 4096];
        // SAFETY: 64 KiB, of which the vector lets nobody else have any.
        let memory = unsafe { Memory::new(bytes.as_mut_ptr().cast(), 65536) };
        memory.format();
        memory.blocks().for_each(|(unit, block)| memory.bin(unit, block));
        deed(memory);
    }

    #[test]
    fn bins_grow_with_the_length_and_hold_at_least_their_least() {
        let bins: Vec<usize> = (LEAST..100_000).map(bin_of).collect();
        assert!(bins.is_sorted());
        assert!(bin_of(u32::MAX) < BINS);
    }

    #[test]
    fn what_is_taken_and_freed_in_any_order_is_one_block_again() {
        with_memory(|memory| {
            let (first, end) = memory.range();
            let whole = end - first;
            let taken: Vec<u32> = (0..20).map(|i| memory.take(8 + i * 3).unwrap()).collect();
            for unit in &taken {
                memory.block(*unit).unwrap().state.store(Phase::Live as u32, Relaxed);
            }
            assert_eq!(lengths(memory).iter().map(|(_, units)| units).sum::<u32>(), whole);
            // Odd ones first, then the even ones from behind, so that each finds the free ones behind it.
            let odd = taken.iter().skip(1).step_by(2);
            for unit in odd.chain(taken.iter().step_by(2).rev()) {
                memory.free(*unit, memory.block(*unit).unwrap());
                assert_eq!(lengths(memory).iter().map(|(_, units)| units).sum::<u32>(), whole);
            }
            assert_eq!(lengths(memory), [(Phase::Free, whole)]);
        });
    }

    #[test]
    fn a_request_that_nothing_fits_gets_nothing() {
        with_memory(|memory| {
            let (first, end) = memory.range();
            assert_eq!(memory.take(end - first + 1), None);
            assert_eq!(memory.take(end - first), Some(first));
            assert_eq!(memory.take(LEAST), None);
        });
    }
}
