//! Random numbers from a seed.

use std::cell::Cell;

/// `SplitMix64` (Steele, Lea, Flood 2014).
pub(crate) struct Random(Cell<u64>);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    /// The generator for a part of what this seed is for.
    pub(crate) fn of(seed: u64, part: &str, number: u64) -> Self {
        // FNV-1a.
        let name = part.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let start = Self::new(seed ^ name ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self::new(start.next())
    }

    pub(crate) fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `limit`, which is small.
    pub(crate) fn below(&self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Whether one of `n` came up.
    pub(crate) fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }
}
