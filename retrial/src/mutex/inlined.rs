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
use crate::sys;
use crate::word::Word;
use std::ptr;

/// What inlined code needs to know of a session. Constant as long as the session is open.
#[repr(C)]
#[derive(Debug)]
pub struct Shortcut {
    log: *mut u64,
    expected: u64,
    sid: u64,
    instance: u64,
    getting_x: u64,
    process: *const u64,
    generation: u64,
}

impl Default for Shortcut {
    /// Of no session.
    fn default() -> Self {
        Self {
            log: ptr::null_mut(),
            expected: 0,
            sid: 0,
            instance: 0,
            getting_x: 0,
            process: ptr::null(),
            generation: 0,
        }
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
pub const SHORTCUT: [Field; 7] = [
    field!(Shortcut, log, "uint64_t *", "its first log record"),
    field!(Shortcut, expected, "uint64_t ", "what the exchange of a get expects in the word"),
    field!(Shortcut, sid, "uint64_t ", "what it puts there"),
    field!(Shortcut, instance, "uint64_t ", "as in the mutexes of its instance"),
    field!(Shortcut, getting_x, "uint64_t ", "a record of X, with the instance in place of the mutex"),
    field!(Shortcut, process, "const uint64_t *", "what the process is known by now; 0 in a child of fork"),
    field!(Shortcut, generation, "uint64_t ", "what it was known by when the session was opened"),
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
            process: sys::generation_address(),
            generation: self.generation(),
        }
    }
}

impl RawMutex {
    /// The rest of an inlined release: its store has given the mutex back, and then `parking` concerned it.
    /// Wakes, and frees the session's first log record.
    ///
    /// # Safety
    ///
    /// This session had the mutex in X by its first record, and has given it back.
    pub unsafe fn end_inlined(&self, session: &Session<'_>) {
        self.end_waking(session, 0, Word::FREE);
    }
}
