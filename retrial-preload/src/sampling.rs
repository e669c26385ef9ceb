//! Which gets and waits of a thread are sampled for a profile.
//!
//! Which get is sampled is decided by a coin of the thread's own: one of N gets on average, standing for N;
//! of the waits each with a probability in proportion to its length, standing for the inverse of that. So
//! every sum over samples has the true one for its mean, however long a thread lives. N and the waits' scale
//! start where nearly everything is sampled and follow the thread's rate of samples; they change after a
//! sample, never by what it was.

use crate::process;
use retrial::interposer::samples::{GAP_NS, Ring};
use retrial::{sys, wait};
use std::cell::Cell;
use std::ptr::from_ref;
use std::sync::atomic::Ordering;

/// Sampled holds that a thread can have under way; of further gets the holding time is not known.
const HOLDS: usize = 4;
/// Samples after which a thread's rate may fall.
const SAMPLES: u32 = 8;
/// At most one of 2^24 gets is sampled, and all waits from 2^32 ns on are. Where threads begin, all from 2^12
/// ns on.
pub(crate) const GET_SHIFT_MAX: u32 = 24;
const WAIT_SHIFT_MIN: u32 = 12;
pub(crate) const WAIT_SHIFT_MAX: u32 = 32;

/// What a thread knows of its samples; all zeros is a thread that has taken none.
pub(crate) struct Sampling {
    /// The process whose thread wrote this.
    pub(crate) epoch: Cell<u32>,
    random: Cell<u64>,
    pub(crate) gets: Rate,
    pub(crate) waits: Rate,
    /// Sampled gets that have not been released: address (0 when free), key, since when.
    pub(crate) holds: [Cell<(usize, u64, u64)>; HOLDS],
}

/// How seldom samples of one kind are taken.
pub(crate) struct Rate {
    /// Of N, or of the waits' scale in ns: it is 2 to the power of this.
    pub(crate) shift: Cell<u32>,
    /// Samples since it changed, and since when that is.
    taken: Cell<u32>,
    since_ns: Cell<u64>,
}

impl Rate {
    fn start(&self, shift: u32) {
        self.shift.set(shift);
        self.taken.set(0);
        self.since_ns.set(sys::now_ns());
    }

    /// After a sample: it is to follow the one before after `gap_ns`, more or less.
    pub(crate) fn adapt(&self, gap_ns: u64, most: u32) {
        let taken = self.taken.get() + 1;
        self.taken.set(taken);
        let (shift, elapsed) = (self.shift.get(), sys::now_ns().saturating_sub(self.since_ns.get()));
        let expected = gap_ns * u64::from(taken);
        if elapsed > expected * 2 {
            self.start(shift.saturating_sub(1));
        } else if taken == SAMPLES {
            self.start(if elapsed < expected / 2 { (shift + 1).min(most) } else { shift });
        }
    }
}

impl Sampling {
    /// Forgets what a parent's thread left.
    pub(crate) fn refresh(&self, ring: &Ring) {
        let epoch = process::epoch();
        if self.epoch.replace(epoch) != epoch {
            // Where many threads take samples, new ones begin with few.
            let first = (ring.gap_ns.load(Ordering::Relaxed) / GAP_NS).max(1).ilog2();
            self.gets.start(first);
            self.waits.start(first + WAIT_SHIFT_MIN);
            // Unlike in any other thread: never 0, of which the generator would not get away.
            let seed = sys::now_ns() ^ u64::from(sys::tid()) << 40 ^ from_ref(self) as u64;
            self.random.set(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            self.holds.iter().for_each(|hold| hold.set((0, 0, 0)));
        }
    }

    /// A number of 64 bits.
    pub(crate) fn random(&self) -> u64 {
        wait::random(&self.random)
    }

    /// A number below 2^`shift`, which is at most 2^63.
    pub(crate) fn below(&self, shift: u32) -> u64 {
        self.random() >> 1 >> (63 - shift)
    }
}
