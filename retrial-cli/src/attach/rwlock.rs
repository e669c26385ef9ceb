//! A `pthread_rwlock_t` of glibc's that a thread waits for, and which threads have it.

use crate::run::record::{self, READERS, RECORD};

/// Where it has the futexes that threads sleep on: that of writers among themselves, and that of readers and
/// of the first writer.
const FUTEXES: [u64; 2] = [12, 8];
/// Values of these futexes: taken or not, with or without threads that sleep.
const FUTEX_MAX: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rwlock {
    pub address: u64,
    /// The thread that has it for writing, by the number that its process knows it by; 0 for none.
    pub writer: u32,
    pub readers: u32,
}

impl Rwlock {
    /// What a thread that sleeps at a futex in a call of this name waits for.
    pub fn of(pid: u32, call: &str, futex: u64) -> Option<Self> {
        let read = |address| {
            let mut bytes = [[0; RECORD]];
            (record::read(pid, std::iter::once(address), &mut bytes) == Ok(1)).then(|| Self::parse(address, &bytes[0]))
        };
        let at = |offset| read(futex.checked_sub(offset)?)?;
        FUTEXES.into_iter().find_map(at).filter(|_| is_call(call))
    }

    /// `None` where the fields are not those of one that threads have.
    fn parse(address: u64, bytes: &[u8; RECORD]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<4>();
        let [first, _, phase, writers, pad, more, writer, shared] =
            std::array::from_fn(|i| u32::from_ne_bytes(words[i]));
        let readers = first >> READERS;
        let fits = phase <= FUTEX_MAX && writers <= FUTEX_MAX && (pad, more) == (0, 0) && shared <= 1;
        (fits && (writer != 0 || readers != 0)).then_some(Self { address, writer, readers })
    }
}

/// Whether a function of the C library waits for a rwlock.
pub fn is_call(function: &str) -> bool {
    function.starts_with("pthread_rwlock_")
}

/// The rwlock that such a function waits for, and the mode, as [`kind_text`](super::futex::kind_text) has
/// mutexes.
pub fn kind_text(function: &str) -> &'static str {
    if function.contains("rdlock") { "pthread rwlock, read" } else { "pthread rwlock, write" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rwlock_is_found_from_either_futex() {
        let [mut written, mut read] = [[0_u32; 16]; 2];
        // Behind other data, with readers that wait; and with writers that wait.
        written[4..11].copy_from_slice(&[0xb, 0, 3, 1, 0, 0, 77]);
        read[4..8].copy_from_slice(&[0x22, 1, 2, 3]);
        let of =
            |words: &[u32; 16], call, at: usize| Rwlock::of(std::process::id(), call, &raw const words[4 + at] as u64);
        let start = |words: &[u32; 16]| &raw const words[4] as u64;
        let by_writer = Rwlock { address: start(&written), writer: 77, readers: 1 };
        assert_eq!(of(&written, "pthread_rwlock_rdlock", 2), Some(by_writer));
        assert_eq!(
            of(&read, "pthread_rwlock_wrlock", 3),
            Some(Rwlock { address: start(&read), writer: 0, readers: 4 })
        );
        assert_eq!(of(&written, "pthread_cond_wait", 2), None);
    }
}
