//! A mutex in the memory of a process, as one look at it from outside finds it: our record, or a
//! `pthread_mutex_t` or `pthread_rwlock_t` of libc's.

use retrial::MutexId;
use retrial::views::{Sid, Tables, TypeId, Word};

/// Bytes that are read.
pub const RECORD: usize = 40;

/// Bits of the kind: the sort, and what makes a mutex one of libc's format.
pub const SORT: u32 = 3;
const ADAPTIVE: u32 = 3;
pub const ROBUST: u32 = 0x10;
pub const SHARED: u32 = 0x80;
pub const ELISION: u32 = 0x300;

/// The lower half of our word but for the values of libc's lock.
const NO_LOCK: u64 = 0xffff_fff8;
/// Forks of forks that a process may be the last of, for its records to be told from other memory.
const FORKS: u32 = 1 << 16;

/// Number of a `pthread_rwlock_t`'s readers in its first field, from this bit on.
pub const READERS: u32 = 3;

/// The bits of a lock in libc's format that have its owner's thread id.
pub const TID: u32 = 0x3fff_ffff;

/// What lies at a mutex's address in its process, by its type in the instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A record of the library.
    Library,
    /// A record of the interposer, in a `pthread_mutex_t`.
    Private,
    /// A `pthread_mutex_t` as libc has it.
    Libc,
    /// A `pthread_rwlock_t`.
    Rwlock,
    /// Of libc's, without a holder in it.
    Spin,
}

/// The interposer's types, and what each has in memory.
const FORMATS: [(&str, Format); 4] = [
    ("pthread mutex", Format::Private),
    ("pthread mutex shared", Format::Libc),
    ("pthread rwlock", Format::Rwlock),
    ("pthread spin", Format::Spin),
];

/// Which types of an instance have which format.
#[derive(Clone, Copy, Default, Debug)]
pub struct Formats([Option<TypeId>; FORMATS.len()]);

impl Formats {
    /// Those of an instance as it is: the program's first process registers the types.
    pub fn of(tables: &Tables) -> Self {
        Self(FORMATS.map(|(name, _)| tables.type_named(name)))
    }

    pub fn format(self, mutex_type: TypeId) -> Format {
        let position = self.0.iter().position(|known| *known == Some(mutex_type));
        position.map_or(Format::Library, |position| FORMATS[position].1)
    }
}

/// The fields that an observer needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    format: Format,
    word: u64,
    lock: u32,
    kind: u32,
    /// Our number of a mutex of ours; of one in libc's format, where libc counts the spins of adaptive ones,
    /// our gets.
    number: u32,
    gets: u64,
    /// Thread that owns it, by libc's fields: of a mutex, and of a `pthread_rwlock_t` that is locked for
    /// writing.
    owner: u32,
    writer: u32,
    /// Of a record of the interposer that has been got: how many forks its process is from the program's
    /// start, from 1 on.
    epoch: u32,
}

/// The owner of a mutex that one thread has to itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    Nobody,
    Session(Sid),
    /// A thread by its id, whose session is not in the mutex.
    Thread(u32),
}

impl Record {
    pub fn parse(bytes: &[u8; RECORD], format: Format) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let (halves, _) = bytes.as_chunks::<4>();
        let (word, half) = (|i: usize| u64::from_ne_bytes(words[i]), |i: usize| u32::from_ne_bytes(halves[i]));
        let (owner, writer, epoch) = (half(2), half(6), half(9));
        let (lock, kind, number) = (half(0), half(4), half(5));
        Self { format, word: word(0), lock, kind, number, gets: word(3), owner, writer, epoch }
    }

    /// Its owner. `None` where the record does not say so: of a spin lock, and of a `pthread_rwlock_t` that
    /// readers have.
    pub const fn owner(&self) -> Option<Owner> {
        let word = Word(self.word);
        let (is_held, thread) = match self.format {
            Format::Library => (word.kind().is_some(), 0),
            // The lower half is libc's lock. An unlock by libc's call leaves the session in the upper one.
            Format::Private => (word.references() != 0, self.owner),
            // A robust one has its owner in the lock.
            Format::Libc if self.kind & ROBUST != 0 => (self.lock & TID != 0, self.lock & TID),
            Format::Libc => (self.lock & TID != 0, self.owner),
            Format::Rwlock => (self.writer != 0, self.writer),
            Format::Spin => return None,
        };
        let ours = matches!(self.format, Format::Library | Format::Private);
        Some(match (is_held, word.sid()) {
            (false, _) if matches!(self.format, Format::Rwlock) && self.lock >> READERS != 0 => return None,
            (false, _) => Owner::Nobody,
            (true, sid) if ours && !sid.is_none() => Owner::Session(sid),
            (true, _) if thread == 0 => return None,
            (true, _) => Owner::Thread(thread),
        })
    }

    /// The word of a mutex of the library.
    pub const fn word(&self) -> Option<Word> {
        if matches!(self.format, Format::Library) { Some(Word(self.word)) } else { None }
    }

    /// Whether a mutex of ours is held, and its gets. `None` when this is not the record of that mutex, but
    /// memory that has become something else: C++ ends the life of a `std::mutex` without a word. `most` is
    /// what a mutex can have been got. A mutex that is missed for the first time has no number until its
    /// waiter has got it: that is no reason while it is `nameless`.
    pub fn ours(&self, id: MutexId, most: u64, nameless: bool) -> Option<(bool, u64)> {
        let is_it = (self.has(id) || nameless && self.number == 0) && self.is_record() && self.gets <= most;
        is_it.then(|| (self.owner() != Some(Owner::Nobody), self.gets))
    }

    /// Whether its fields have values of a record of ours.
    const fn is_record(&self) -> bool {
        let Format::Private = self.format else { return self.kind & SHARED == 0 };
        let is_got = 0 < self.epoch && self.epoch <= FORKS;
        self.kind & !(SORT | ELISION) == 0 && self.word & NO_LOCK == 0 && (is_got || self.gets == 0)
    }

    /// Whether it says that it is the mutex with this number.
    pub const fn has(&self, id: MutexId) -> bool {
        self.number == id.0
    }

    /// Whether a mutex of libc's format is held, and the count of its gets, where there is one. `None` when
    /// it is of no such kind.
    pub const fn libcs(&self) -> Option<(bool, Option<u32>)> {
        if self.kind & (ROBUST | SHARED) == 0 || self.kind & !(SORT | ROBUST | SHARED) != 0 {
            return None;
        }
        let count = if self.kind & SORT == ADAPTIVE { None } else { Some(self.number) };
        Some((self.lock & TID != 0, count))
    }
}

/// Reads one record for each address from a process: how many, up to the first that cannot be read.
///
/// # Errors
///
/// The kernel's number: `ESRCH` where the process is gone, `EPERM` where it may not be read, `EFAULT` where
/// the first address is none.
pub fn read(pid: u32, addresses: impl Iterator<Item = u64>, into: &mut [[u8; RECORD]]) -> Result<usize, i32> {
    let remote: Vec<libc::iovec> = addresses
        .take(into.len())
        .map(|address| libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0)),
            iov_len: RECORD,
        })
        .collect();
    let count = remote.len();
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: count * RECORD };
    let pid = libc::pid_t::try_from(pid).map_err(|_| libc::ESRCH)?;
    // SAFETY: `local` is all of `count` writable records; the kernel checks the addresses of the other
    // process.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, remote.as_ptr(), count as libc::c_ulong, 0) };
    match usize::try_from(read) {
        Ok(bytes) => Ok(bytes / RECORD),
        Err(_) => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Session 5 has it.
    const HELD: u64 = 5 << 32 | 1;

    #[test]
    fn a_record_says_who_holds_it() {
        let owner = |word, kind, format| Record { format, ..record(word, kind, 1, 0) }.owner();
        let session = Some(Owner::Session(Sid::new(5)));
        assert_eq!(owner(HELD, 0, Format::Private), session);
        // An unlock by libc's call leaves the name of its holder.
        assert_eq!(owner(5 << 32, 0, Format::Private), Some(Owner::Nobody));
        assert_eq!(owner(1, 0, Format::Private), None, "locked by libc's call, which has not noted the owner yet");
        assert_eq!((owner(5 << 32, 0, Format::Library), owner(3, 0, Format::Library)), (session, Some(Owner::Nobody)));
        assert_eq!(owner(0x8000_04d2, ROBUST, Format::Libc), Some(Owner::Thread(0x4d2)));
        assert_eq!(owner(0, SHARED, Format::Libc), Some(Owner::Nobody));
        assert_eq!((owner(1 << READERS, 0, Format::Rwlock), owner(1, 0, Format::Spin)), (None, None));
    }

    fn record(word: u64, kind: u32, number: u32, gets: u64) -> Record {
        let (low, high) = (u64::from(kind), u64::from(number));
        let second = if cfg!(target_endian = "little") { high << 32 | low } else { low << 32 | high };
        let mut bytes = [0; RECORD];
        let first_process = if cfg!(target_endian = "little") { 1 << 32 } else { 1 };
        for (at, word) in [word, 0, second, gets, first_process].into_iter().enumerate() {
            bytes[at * 8..][..8].copy_from_slice(&word.to_ne_bytes());
        }
        Record::parse(&bytes, Format::Private)
    }

    #[test]
    fn a_mutex_in_libcs_format_is_not_taken_for_ours() {
        assert_eq!(record(HELD, SHARED, 1, 0).ours(MutexId(1), u64::MAX, false), None);
        assert_eq!(record(HELD, 0, 1, 7).ours(MutexId(1), u64::MAX, false), Some((true, 7)));
    }

    #[test]
    fn a_mutex_has_no_number_until_a_get_that_missed_it_has_it() {
        assert_eq!(record(HELD, 0, 0, 7).ours(MutexId(1), u64::MAX, true), Some((true, 7)));
        assert_eq!(record(HELD, 0, 0, 7).ours(MutexId(1), u64::MAX, false), None);
        assert_eq!(record(HELD, 0, 2, 7).ours(MutexId(1), u64::MAX, true), None);
    }

    #[test]
    fn memory_that_has_become_something_else_is_no_mutex() {
        let a_day = 86_400_000_000_000;
        assert_eq!(record(0, 0, 1, 0.63_f64.to_bits()).ours(MutexId(1), a_day, false), None);
        let found = |record: Record| record.ours(MutexId(1), a_day, true);
        assert_eq!(found(record(0, 0, 0, 7)), Some((false, 7)));
        for elsewhere in [record(0, 0x12_3456, 0, 7), record(0x2a9_f3c0, 0, 0, 7)] {
            assert_eq!(found(elsewhere), None);
        }
        for (epoch, gets, is_it) in [(0, 0, true), (0, 7, false), (0x12_3456, 7, false)] {
            assert_eq!(found(Record { epoch, ..record(0, 0, 0, gets) }).is_some(), is_it, "{epoch} {gets}");
        }
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
