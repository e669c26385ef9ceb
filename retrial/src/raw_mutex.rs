//! A mutex in memory: its record, and what can be read of it.

use crate::entries::TypeId;
use crate::operation_log::MutexId;
use crate::parking::Parking;
use crate::sys::protocol::{AtomicU32, AtomicU64};
use crate::sys::{self, Futex, Ordering};
use crate::word::{Sid, Word};

/// The record that sessions share: 40 bytes of atomics, usable in any shared memory.
///
/// ```text
///  0        8         16     20   24     32        36
/// +--------+---------+------+----+------+---------+-------+
/// |  word  | parking | kind | id | gets | drainer | wakes |
/// +--------+---------+------+----+------+---------+-------+
/// ```
///
/// `kind` lies where glibc has the kind of a `pthread_mutex_t`. All bytes 0 is a free mutex without type or
/// id.
#[repr(C)]
#[derive(Debug, Default)]
pub struct RawMutex {
    pub(crate) word: AtomicU64,
    /// [`Parking`].
    pub(crate) parking: AtomicU64,
    /// Bits 16 to 23: mutex type.
    pub(crate) kind: AtomicU32,
    pub(crate) id: AtomicU32,
    /// First requests granted, S → E and E → X among them. Written by the session in the holder field; a
    /// figure, which models leave out.
    pub(crate) gets: sys::AtomicU64,
    /// SID of the session that waits for the references to leave, and [`RawMutex::ENDLESS`].
    pub(crate) drainer: AtomicU32,
    /// The futex that sessions park on; counts wake-ups.
    pub(crate) wakes: Futex,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<RawMutex>() == 40 && size_of::<RawMutex>() <= size_of::<libc::pthread_mutex_t>());

impl RawMutex {
    /// Bit of `drainer`: the session waits without a deadline.
    const ENDLESS: u32 = 1 << 31;

    /// A free mutex without type and id. It works, but it cannot be recovered and its figures cannot be seen
    /// before [`RawMutex::register`].
    #[must_use]
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            parking: AtomicU64::new(0),
            kind: AtomicU32::new(0),
            id: AtomicU32::new(0),
            gets: sys::AtomicU64::new(0),
            drainer: AtomicU32::new(0),
            wakes: AtomicU32::new(0),
        }
    }

    /// The same, in a model.
    #[must_use]
    #[cfg(any(loom, shuttle))]
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn adopt(&self, id: MutexId, mutex_type: TypeId, fenced: bool) {
        self.fence_if(fenced);
        self.belong(mutex_type);
        self.id.store(id.0, Ordering::Release);
    }

    fn belong(&self, mutex_type: TypeId) {
        self.kind.store(u32::from(mutex_type.0) << 16, Ordering::Relaxed);
    }

    /// Whether releases need a fence of their own.
    fn fence_if(&self, fenced: bool) {
        if fenced {
            self.change(Ordering::Relaxed, Parking::fenced);
        }
    }

    /// Takes an id unless it has one, and the type with it. Whether it took it.
    pub(crate) fn adopt_once(&self, id: MutexId, mutex_type: TypeId, fenced: bool) -> bool {
        self.fence_if(fenced);
        let is_first = self.id.compare_exchange(0, id.0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_first {
            // A session that is earlier than this store waits once by the parameters of type 0.
            self.belong(mutex_type);
        }
        is_first
    }

    /// Its id in the instance that it is registered with.
    #[inline]
    #[must_use]
    pub fn id(&self) -> MutexId {
        MutexId(self.id.load(Ordering::Relaxed))
    }

    /// Its type.
    #[must_use]
    pub fn mutex_type(&self) -> TypeId {
        TypeId((self.kind.load(Ordering::Relaxed) >> 16) as u8)
    }

    /// The word now.
    #[inline]
    #[must_use]
    pub fn load(&self) -> Word {
        // Acquire: a reader that sees a mutex given back sees what its holder wrote.
        Word(self.word.load(Ordering::Acquire))
    }

    /// The word now, which an observer may have mapped read-only.
    pub(crate) fn observe(&self) -> Word {
        Word(sys::Observed::acquire(&self.word))
    }

    /// First requests granted so far.
    #[must_use]
    pub fn gets(&self) -> u64 {
        self.gets.load(Ordering::Relaxed)
    }

    /// Sessions parked now. A hint: too high by the sessions that were killed since the count was last 0.
    #[must_use]
    pub fn parked(&self) -> u32 {
        self.parking().parked()
    }

    #[inline]
    pub(crate) fn parking(&self) -> Parking {
        Parking(self.parking.load(Ordering::Relaxed))
    }

    /// Changes what is known of the parked. What it was before.
    pub(crate) fn change(&self, order: Ordering, to: impl Fn(Parking) -> Parking) -> Parking {
        let mut before = self.parking.load(Ordering::Relaxed);
        loop {
            match self.parking.compare_exchange_weak(before, to(Parking(before)).0, order, Ordering::Relaxed) {
                Ok(before) => return Parking(before),
                Err(now) => before = now,
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn fake(&self, word: Word, drainer: Sid) {
        self.drained_by(drainer, true);
        self.word.store(word.0, Ordering::Release);
    }

    /// The session that is about to drain, and whether it does until the last reference has left.
    pub(crate) fn drained_by(&self, sid: Sid, endless: bool) {
        let how = if endless { Self::ENDLESS } else { 0 };
        self.drainer.store(sid.number() | how, Ordering::Relaxed);
    }

    pub(crate) fn drainer(&self) -> Sid {
        Sid::new(self.drainer.load(Ordering::Relaxed))
    }

    /// Whether a session waits, without a deadline, for all references to leave: nothing else can end its wait.
    pub(crate) fn drains_endlessly(&self) -> bool {
        // Acquire: pairs with the Release that began the drain, so that the drainer is that one's.
        Word(self.word.load(Ordering::Acquire)).has(Word::DRAINING)
            && self.drainer.load(Ordering::Relaxed) & Self::ENDLESS != 0
    }
}
