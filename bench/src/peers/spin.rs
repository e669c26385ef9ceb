//! Spin locks of a few lines: a real one, what there is at the least, and none at all.

use super::Lock;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};

/// Looks before it exchanges (test and test-and-set), and gives its time away after a number of looks.
#[derive(Default)]
pub struct Ttas(AtomicU64);

const LOOKS: u32 = 100;

impl Lock for Ttas {
    fn new() -> Self {
        Self::default()
    }

    #[inline]
    fn with(&self, section: impl FnOnce()) -> bool {
        let mut looks = 0u32;
        while self.0.load(Ordering::Relaxed) != 0
            || self.0.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            looks += 1;
            if looks.is_multiple_of(LOOKS) {
                std::thread::yield_now();
            } else {
                spin_loop();
            }
        }
        section();
        self.0.store(0, Ordering::Release);
        true
    }
}

/// What a mutex takes at the least: a compare-exchange and a store. Spins when it is busy.
#[derive(Default)]
pub struct Bare(AtomicU64);

impl Bare {
    #[inline]
    fn get(&self) {
        while self.0.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            spin_loop();
        }
    }
}

impl Lock for Bare {
    fn new() -> Self {
        Self::default()
    }

    #[inline]
    fn with(&self, section: impl FnOnce()) -> bool {
        self.get();
        section();
        self.0.store(0, Ordering::Release);
        true
    }
}

/// The same with a second locked instruction, as futex mutexes release.
#[derive(Default)]
pub struct TwoExchanges(Bare);

impl Lock for TwoExchanges {
    fn new() -> Self {
        Self::default()
    }

    #[inline]
    fn with(&self, section: impl FnOnce()) -> bool {
        self.0.get();
        section();
        black_box(self.0.0.swap(0, Ordering::Release));
        true
    }
}

/// Lets everybody in.
pub struct None;

impl Lock for None {
    fn new() -> Self {
        Self
    }

    #[inline]
    fn with(&self, section: impl FnOnce()) -> bool {
        section();
        true
    }
}
