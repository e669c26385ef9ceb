//! The mutex that a cell is about, with the data that tell whether it excludes.

use retrial::{Mode, RawMutex};
use std::sync::atomic::{AtomicU64, Ordering};

/// The mutex and what it protects, in one cache line.
///
/// The cells are atomics, so that a broken mutex is a wrong figure and not undefined behaviour; but they are only loaded
/// and stored, never exchanged, so two sessions inside at a time lose an increment or find the other's stamp.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Guarded {
    pub mutex: RawMutex,
    /// Counts sections at their start.
    first: AtomicU64,
    /// Counts sections at their end.
    second: AtomicU64,
    /// Who is inside.
    stamp: AtomicU64,
}

const _: () = assert!(size_of::<Guarded>() == 64);

/// What a session found on its way in.
#[derive(Debug)]
pub struct Seen {
    first: u64,
    second: u64,
    stamp: u64,
}

impl Guarded {
    /// Called first in a section: counts and signs, unless the mode is S.
    #[inline]
    pub fn enter(&self, mode: Mode, stamp: u64) -> Seen {
        let first = self.first.load(Ordering::Relaxed);
        let second = self.second.load(Ordering::Relaxed);
        if mode == Mode::Shared {
            return Seen { first, second, stamp: self.stamp.load(Ordering::Relaxed) };
        }
        self.stamp.store(stamp, Ordering::Relaxed);
        self.first.store(first + 1, Ordering::Relaxed);
        Seen { first, second, stamp }
    }

    /// Called last in a section: whether nobody else was in there who should not have been.
    #[inline]
    pub fn leave(&self, mode: Mode, seen: &Seen) -> bool {
        let grown = u64::from(mode != Mode::Shared);
        let first = self.first.load(Ordering::Relaxed);
        let second = self.second.load(Ordering::Relaxed);
        let stamp = self.stamp.load(Ordering::Relaxed);
        if mode != Mode::Shared {
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
        let guarded = Guarded::default();
        for stamp in 1..=3 {
            let seen = guarded.enter(Mode::Exclusive, stamp);
            assert!(guarded.leave(Mode::Exclusive, &seen));
            let seen = guarded.enter(Mode::Shared, stamp);
            assert!(guarded.leave(Mode::Shared, &seen));
        }
        assert_eq!(guarded.lost(3), 0);
    }

    #[test]
    fn two_writers_inside_are_found() {
        let guarded = Guarded::default();
        let one = guarded.enter(Mode::Exclusive, 1);
        let two = guarded.enter(Mode::Examine, 2);
        assert!(!guarded.leave(Mode::Exclusive, &one));
        assert!(!guarded.leave(Mode::Examine, &two));
    }

    #[test]
    fn a_section_inside_another_is_found() {
        let guarded = Guarded::default();
        let outer = guarded.enter(Mode::Exclusive, 1);
        let inner = guarded.enter(Mode::Exclusive, 2);
        let _ = guarded.leave(Mode::Exclusive, &inner);
        assert!(!guarded.leave(Mode::Exclusive, &outer));
    }

    #[test]
    fn a_writer_beside_a_reader_is_found() {
        let guarded = Guarded::default();
        let reader = guarded.enter(Mode::Shared, 1);
        let writer = guarded.enter(Mode::Exclusive, 2);
        assert!(!guarded.leave(Mode::Shared, &reader));
        let late = guarded.enter(Mode::Shared, 1);
        assert!(guarded.leave(Mode::Exclusive, &writer));
        assert!(!guarded.leave(Mode::Shared, &late));
    }

    #[test]
    fn threads_without_a_mutex_lose_sections() {
        const EACH: u64 = 50_000;
        let guarded = Guarded::default();
        let inside = std::sync::Barrier::new(2);
        let violations: u64 = std::thread::scope(|scope| {
            let workers = [1, 2].map(|stamp| {
                let (guarded, inside) = (&guarded, &inside);
                scope.spawn(move || {
                    (0..EACH)
                        .filter(|i| {
                            let seen = guarded.enter(Mode::Exclusive, stamp);
                            if i % 1000 == 0 {
                                // Both are inside now, whatever the scheduler does.
                                inside.wait();
                            }
                            !guarded.leave(Mode::Exclusive, &seen)
                        })
                        .count() as u64
                })
            });
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert!(violations >= EACH / 1000, "{violations} violations");
        assert!(guarded.lost(2 * EACH) > 0);
    }

    #[test]
    fn a_lost_section_is_counted() {
        let guarded = Guarded::default();
        let seen = guarded.enter(Mode::Exclusive, 1);
        assert!(guarded.leave(Mode::Exclusive, &seen));
        assert_eq!(guarded.lost(2), 1);
    }
}
