//! A `pthread_mutex_t` in the memory of a process, as one look at it from outside finds it: our record, or libc's.

use retrial::MutexId;
use retrial::views::Word;

/// Bytes that are read.
pub const RECORD: usize = 40;

/// Bits of the kind: the sort, and what makes a mutex one of libc's format.
const SORT: u32 = 3;
const ADAPTIVE: u32 = 3;
const ROBUST: u32 = 0x10;
const SHARED: u32 = 0x80;

/// Who has a mutex of libc's format, in its lock.
const TID: u32 = 0x3fff_ffff;

/// The fields that an observer needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    word: u64,
    lock: u32,
    kind: u32,
    /// Our number of a mutex of ours; of one in libc's format, where libc counts the spins of adaptive ones, our gets.
    number: u32,
    gets: u64,
}

impl Record {
    pub fn parse(bytes: &[u8; RECORD]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let (halves, _) = bytes.as_chunks::<4>();
        let (word, half) = (|i: usize| u64::from_ne_bytes(words[i]), |i: usize| u32::from_ne_bytes(halves[i]));
        Self { word: word(0), lock: half(0), kind: half(4), number: half(5), gets: word(3) }
    }

    /// Whether a mutex of ours is held, and its gets. `None` when this is not the record of that mutex, but memory that has
    /// become something else: C++ ends the life of a `std::mutex` without a word. `most` is what a mutex can have been got.
    /// One that is missed for the first time has no number until its waiter has got it: that is no reason while it is `nameless`.
    pub fn ours(&self, id: MutexId, most: u64, nameless: bool) -> Option<(bool, u64)> {
        let is_it = (self.has(id) || nameless && self.number == 0) && self.kind & SHARED == 0 && self.gets <= most;
        is_it.then(|| (Word(self.word).kind().is_some(), self.gets))
    }

    /// Whether it says that it is the mutex with this number.
    pub const fn has(&self, id: MutexId) -> bool {
        self.number == id.0
    }

    /// Whether a mutex of libc's format is held, and the count of its gets, where there is one. `None` when it is of no such
    /// kind.
    pub const fn libcs(&self) -> Option<(bool, Option<u32>)> {
        if self.kind & (ROBUST | SHARED) == 0 || self.kind & !(SORT | ROBUST | SHARED) != 0 {
            return None;
        }
        let count = if self.kind & SORT == ADAPTIVE { None } else { Some(self.number) };
        Some((self.lock & TID != 0, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(word: u64, kind: u32, number: u32, gets: u64) -> Record {
        let (low, high) = (u64::from(kind), u64::from(number));
        let second = if cfg!(target_endian = "little") { high << 32 | low } else { low << 32 | high };
        let mut bytes = [0; RECORD];
        for (at, word) in [word, 0, second, gets, 0].into_iter().enumerate() {
            bytes[at * 8..][..8].copy_from_slice(&word.to_ne_bytes());
        }
        Record::parse(&bytes)
    }

    #[test]
    fn a_mutex_in_libcs_format_is_not_taken_for_ours() {
        assert_eq!(record(5 << 32, SHARED, 1, 0).ours(MutexId(1), u64::MAX, false), None);
        assert_eq!(record(5 << 32, 0, 1, 7).ours(MutexId(1), u64::MAX, false), Some((true, 7)));
    }

    #[test]
    fn a_mutex_has_no_number_until_a_get_that_missed_it_has_it() {
        assert_eq!(record(5 << 32, 0, 0, 7).ours(MutexId(1), u64::MAX, true), Some((true, 7)));
        assert_eq!(record(5 << 32, 0, 0, 7).ours(MutexId(1), u64::MAX, false), None);
        assert_eq!(record(5 << 32, 0, 2, 7).ours(MutexId(1), u64::MAX, true), None);
    }

    #[test]
    fn memory_that_has_become_something_else_is_no_mutex() {
        let a_day = 86_400_000_000_000;
        assert_eq!(record(0, 0, 1, 0.63_f64.to_bits()).ours(MutexId(1), a_day, false), None);
        assert_eq!(record(0, 0, 7, 0).libcs(), None);
        assert_eq!(record(0, u32::MAX, 7, 0).libcs(), None);
    }

    #[test]
    fn of_libcs_format_the_lock_says_whether_it_is_held() {
        assert_eq!(record(0, SHARED, 7, 0).libcs(), Some((false, Some(7))));
        assert_eq!(record(2, SHARED, 7, 0).libcs(), Some((true, Some(7))));
        // Its owner died, with others waiting.
        assert_eq!(record(0xc000_0000, SHARED | ROBUST, 7, 0).libcs(), Some((false, Some(7))));
        assert_eq!(record(0x8000_04d2, ROBUST, 7, 0).libcs(), Some((true, Some(7))));
        assert_eq!(record(1, SHARED | ADAPTIVE, 7, 0).libcs(), Some((true, None)));
    }
}
