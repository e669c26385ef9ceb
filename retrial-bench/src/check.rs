//! The mutex that a cell is about, with the data that tell whether it excludes.

use std::sync::atomic::{AtomicU64, Ordering};

/// A mutex and what it protects: one cache line, if the mutex takes 40 bytes at most.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Guarded<L> {
    pub mutex: L,
    pub data: Protected,
}

impl<L> Guarded<L> {
    pub fn new(mutex: L) -> Self {
        Self { mutex, data: Protected::default() }
    }
}

/// What sessions change and look at in their sections.
///
/// The cells are atomics, so that a broken mutex is a wrong figure and not undefined behaviour; but they are
/// only loaded and stored, never exchanged, so two sessions inside at a time lose an increment or find the
/// other's stamp.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Protected {
    /// Counts sections at their start.
    first: AtomicU64,
    /// Counts sections at their end.
    second: AtomicU64,
    /// Who is inside.
    stamp: AtomicU64,
}

const _: () = assert!(size_of::<Guarded<retrial::engine::RawMutex>>() == 64);

/// What a session found on its way in.
#[derive(Debug)]
pub struct Seen {
    first: u64,
    second: u64,
    stamp: u64,
}

impl Protected {
    /// The least section that there is.
    #[inline]
    pub fn count(&self) {
        self.first.store(self.first.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Called first in a section: counts and signs, unless others may be inside (`shared`).
    #[inline]
    pub fn enter(&self, shared: bool, stamp: u64) -> Seen {
        let first = self.first.load(Ordering::Relaxed);
        let second = self.second.load(Ordering::Relaxed);
        if shared {
            return Seen { first, second, stamp: self.stamp.load(Ordering::Relaxed) };
        }
        self.stamp.store(stamp, Ordering::Relaxed);
        self.first.store(first + 1, Ordering::Relaxed);
        Seen { first, second, stamp }
    }

    /// Called last in a section: whether nobody else was in there who should not have been.
    #[inline]
    pub fn leave(&self, shared: bool, seen: &Seen) -> bool {
        let grown = u64::from(!shared);
        let first = self.first.load(Ordering::Relaxed);
        let second = self.second.load(Ordering::Relaxed);
        let stamp = self.stamp.load(Ordering::Relaxed);
        if !shared {
            // From what was seen on the way in: whoever counted meanwhile is lost, and the sum tells.
            self.second.store(seen.second + 1, Ordering::Relaxed);
        }
        seen.first == seen.second && first == seen.first + grown && second == seen.second && stamp == seen.stamp
    }

    /// Sections lost or counted twice, given how many sessions say they did.
    pub fn lost(&self, sections: u64) -> u64 {
        let difference = |cell: &AtomicU64| cell.load(Ordering::Relaxed).abs_diff(sections);
        difference(&self.first).max(difference(&self.second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_one_after_the_other_are_in_order() {
        let protected = Protected::default();
        for stamp in 1..=3 {
            let seen = protected.enter(false, stamp);
            assert!(protected.leave(false, &seen));
            let seen = protected.enter(true, stamp);
            assert!(protected.leave(true, &seen));
        }
        assert_eq!(protected.lost(3), 0);
    }

    #[test]
    fn two_writers_inside_are_found() {
        let protected = Protected::default();
        let one = protected.enter(false, 1);
        let two = protected.enter(false, 2);
        assert!(!protected.leave(false, &one));
        assert!(!protected.leave(false, &two));
    }

    #[test]
    fn a_section_inside_another_is_found() {
        let protected = Protected::default();
        let outer = protected.enter(false, 1);
        let inner = protected.enter(false, 2);
        let _ = protected.leave(false, &inner);
        assert!(!protected.leave(false, &outer));
    }

    #[test]
    fn a_writer_beside_a_reader_is_found() {
        let protected = Protected::default();
        let reader = protected.enter(true, 1);
        let writer = protected.enter(false, 2);
        assert!(!protected.leave(true, &reader));
        let late = protected.enter(true, 1);
        assert!(protected.leave(false, &writer));
        assert!(!protected.leave(true, &late));
    }

    #[test]
    fn threads_without_a_mutex_lose_sections() {
        const EACH: u64 = 50_000;
        let protected = Protected::default();
        let inside = std::sync::Barrier::new(2);
        let violations: u64 = std::thread::scope(|scope| {
            let workers = [1, 2].map(|stamp| {
                let (protected, inside) = (&protected, &inside);
                scope.spawn(move || {
                    (0..EACH)
                        .filter(|i| {
                            let seen = protected.enter(false, stamp);
                            if i % 1000 == 0 {
                                // Both are inside now, whatever the scheduler does.
                                inside.wait();
                            }
                            !protected.leave(false, &seen)
                        })
                        .count() as u64
                })
            });
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert!(violations >= EACH / 1000, "{violations} violations");
        assert!(protected.lost(2 * EACH) > 0);
    }

    #[test]
    fn a_lost_section_is_counted() {
        let protected = Protected::default();
        let seen = protected.enter(false, 1);
        assert!(protected.leave(false, &seen));
        assert_eq!(protected.lost(2), 1);
    }
}
