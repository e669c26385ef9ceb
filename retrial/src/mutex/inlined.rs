//! A get of X and its release for code outside of this crate that is compiled into a program: `retrial.h`.
//!
//! That code does what `RawMutex::exclusive` and the drop of its hold do while nothing is unusual: the same
//! stores in the same order, since recovery reads them. Here is what it needs to know, and the call with
//! which it ends a release that has to wake.

use crate::engine_mutex::EngineMutex;
use crate::mode::Mode;
use crate::operation_log::{LocationId, MutexId, Phase, Record};
use crate::parking::Parking;
use crate::raw_mutex::RawMutex;
use crate::session::Session;
use crate::sys::Ordering;
use crate::word::Word;
use std::ptr;

/// What inlined code needs to know of a session. Constant as long as the session is open, in its process.
#[repr(C)]
#[derive(Debug)]
pub struct Shortcut {
    log: *mut u64,
    expected: u64,
    sid: u64,
    instance: u64,
    getting_x: u64,
}

/// An instance that no mutex has: not 0, of a mutex that is not bound, and none was created in the first ns.
const NONE: u64 = 1;

impl Shortcut {
    /// Sends inlined code to the calls from now on.
    pub const fn close(&mut self) {
        self.instance = NONE;
    }
}

impl Default for Shortcut {
    /// Of no session.
    fn default() -> Self {
        Self { log: ptr::null_mut(), expected: 0, sid: 0, instance: NONE, getting_x: 0 }
    }
}

/// A field: its name, offset in bytes, C type and meaning.
pub type Field = (&'static str, usize, &'static str, &'static str);

macro_rules! field {
    ($of:ty, $name:ident, $c_type:literal, $meaning:literal) => {
        (stringify!($name), std::mem::offset_of!($of, $name), $c_type, $meaning)
    };
}

/// The fields of a [`Shortcut`].
pub const SHORTCUT: [Field; 5] = [
    field!(Shortcut, log, "uint64_t *", "its first log record"),
    field!(Shortcut, expected, "uint64_t ", "what the exchange of a get expects in the word"),
    field!(Shortcut, sid, "uint64_t ", "what it puts there"),
    field!(Shortcut, instance, "uint64_t ", "as in the mutexes of its instance; 1 when closed, and in a child of fork"),
    field!(Shortcut, getting_x, "uint64_t ", "a record of X, with the instance in place of the mutex"),
];

/// The fields of an [`EngineMutex`].
pub const MUTEX: [Field; 8] = [
    field!(RawMutex, word, "uint64_t ", "who holds it"),
    field!(RawMutex, parking, "uint64_t ", "who waits"),
    field!(RawMutex, kind, "uint32_t ", "its type"),
    field!(RawMutex, id, "uint32_t ", "its number in the instance; 0 until it is bound to one"),
    field!(RawMutex, gets, "uint64_t ", "first requests granted"),
    field!(RawMutex, drainer, "uint32_t ", "who upgrades"),
    field!(RawMutex, wakes, "uint32_t ", "the futex"),
    ("instance", EngineMutex::INSTANCE, "uint64_t ", "when its instance was created"),
];

/// Numbers that inlined code uses: name, value, meaning.
pub const NUMBERS: [(&str, u64, &str); 1] =
    [("CONCERNS", Parking::CONCERNS_RELEASES, "what in `parking` a release has to look at")];

impl Session<'_> {
    /// What inlined code needs to know of it. Valid as long as the session is open.
    #[must_use]
    pub fn shortcut(&self) -> Shortcut {
        let (phase, mode) = (Phase::Getting, Mode::Exclusive);
        let record = Record { phase, mode, location: LocationId(0), mutex: MutexId(0) }.pack();
        Shortcut {
            log: self.slot.log[0].as_ptr(),
            expected: self.expected(),
            sid: self.sid().bits(),
            instance: self.instance().tables.created_ns(),
            getting_x: record | u64::from(self.instance().tag()),
        }
    }
}

impl RawMutex {
    /// Whether the session's first log record names it.
    #[inline]
    #[must_use]
    pub fn is_first_of(&self, session: &Session<'_>) -> bool {
        let record = session.slot.log[0].load(Ordering::Relaxed);
        record != 0 && record as u32 == self.id().0
    }

    /// Whether the session has it in X by its first log record, and the word has no flag: inlined code may give it
    /// back then.
    #[inline]
    #[must_use]
    pub fn is_plainly_held(&self, session: &Session<'_>) -> bool {
        self.is_first_of(session) && self.load().0 == session.sid().bits()
    }

    /// The rest of an inlined release: its store has given the mutex back, and then `parking` concerned it.
    /// Wakes, and frees the session's first log record. Whether there was such a release: the record names the
    /// mutex, which this session does not hold.
    ///
    /// # Safety
    ///
    /// The mutex is of the session's instance.
    pub unsafe fn end_inlined(&self, session: &Session<'_>) -> bool {
        let record = Record::unpack(session.slot.log[0].load(Ordering::Relaxed));
        let is_begun = record.is_some_and(|record| record.mode == Mode::Exclusive && record.mutex == self.id())
            && self.load().sid() != session.sid();
        if is_begun {
            self.end_waking(session, 0, Word::FREE);
        }
        is_begun
    }
}
