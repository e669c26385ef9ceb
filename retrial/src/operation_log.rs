//! The operation log: one plain store says what a session is about to do to a mutex.
//!
//! ```text
//!  63      56 55      48 47              32 31                           0
//! +----------+----------+------------------+------------------------------+
//! |  phase   |   mode   |     location     |          mutex id            |
//! +----------+----------+------------------+------------------------------+
//! ```
//!
//! 0 is a free record. The record is written before the exchange and the exchange publishes it; a killed
//! session's stores end at an instruction, so that program order is all that recovery needs of the log
//! itself.

use crate::mode::Mode;

/// How far an operation has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Phase {
    /// About to take the holder field for a get. A get of X, LX or E stays in this phase while the mutex is
    /// held.
    Getting = 1,
    /// S: the reference is counted; the next store gives the field back.
    Granted = 2,
    /// Held, with no operation in flight.
    Held = 3,
    /// S: about to take the holder field to drop the reference.
    Leaving = 4,
    /// S: the field is taken; the next store drops reference and field together.
    Left = 5,
    /// S → E in one exchange.
    Promoting = 6,
    /// X or E → S in one store.
    Demoting = 7,
    /// E → X: the field is given up until the references have left.
    Draining = 8,
}

impl Phase {
    /// Every phase, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Getting,
        Self::Granted,
        Self::Held,
        Self::Leaving,
        Self::Left,
        Self::Promoting,
        Self::Demoting,
        Self::Draining,
    ];

    const fn from_number(number: u8) -> Option<Self> {
        match number {
            1..=8 => Some(Self::ALL[number as usize - 1]),
            _ => None,
        }
    }

    /// The name in lower case, as the views show it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["getting", "granted", "held", "leaving", "left", "promoting", "demoting", "draining"][self as usize - 1]
    }
}

/// Identifier of a registered place in the code; 0 is "unknown".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default, PartialOrd, Ord)]
pub struct LocationId(pub u16);

/// Identifier of a mutex within its instance: 24 bits of index, 8 bits that change when the entry is used
/// again. 0 is "not registered".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default, PartialOrd, Ord)]
pub struct MutexId(pub u32);

impl MutexId {
    /// Of a mutex that found the table full: it has no entry and is never registered again.
    pub const OVERFLOW: Self = Self(u32::MAX);

    pub(crate) const fn new(index: usize, generation: u8) -> Self {
        Self((generation as u32) << 24 | index as u32)
    }

    pub(crate) const fn index(self) -> usize {
        (self.0 & 0x00ff_ffff) as usize
    }

    pub(crate) const fn generation(self) -> u8 {
        (self.0 >> 24) as u8
    }
}

/// One record of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// How far the operation has come.
    pub phase: Phase,
    /// The mode got or given up. In a conversion: S for *promoting*, the mode that is left for *demoting*.
    pub mode: Mode,
    /// Where in the code.
    pub location: LocationId,
    /// Which mutex.
    pub mutex: MutexId,
}

impl Record {
    /// The record as it is stored.
    #[must_use]
    pub const fn pack(self) -> u64 {
        (self.phase as u64) << 56 | (self.mode as u64) << 48 | (self.location.0 as u64) << 32 | self.mutex.0 as u64
    }

    /// A stored record with another phase and mode.
    pub(crate) const fn repack(bits: u64, phase: Phase, mode: Mode) -> u64 {
        bits & (u64::MAX >> 16) | (phase as u64) << 56 | (mode as u64) << 48
    }

    /// The record behind a stored value, `None` for a free one (and for what no session has written).
    #[must_use]
    pub const fn unpack(bits: u64) -> Option<Self> {
        let (Some(phase), Some(mode)) = (Phase::from_number((bits >> 56) as u8), Mode::from_number((bits >> 48) as u8))
        else {
            return None;
        };
        Some(Self { phase, mode, location: LocationId((bits >> 32) as u16), mutex: MutexId(bits as u32) })
    }
}
