//! The modes a mutex can be got in, as a table of masks.

use crate::error::ModeError;
use crate::word::Word;

/// The mode in which a session gets a mutex.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u32)] // beside a 32-bit field no padding: a hold with padding is copied through memory
pub enum Mode {
    /// S: many sessions at once; each reference is recoverable.
    Shared = 0,
    /// X: one session, no references.
    Exclusive = 1,
    /// LX: X for a long operation; the same protocol, named apart in the waits.
    LongExclusive = 2,
    /// E: one session, over any number of references; nobody else can change the mutex meanwhile.
    Examine = 3,
}

/// What a grant of a mode needs and does, as masks on the word.
#[derive(Clone, Copy, Debug)]
pub struct Masks {
    /// Bits (beside the SID) that keep the mode from being granted.
    pub must_be_zero: u64,
    /// Added to the word: 1 where the mode counts a reference.
    pub add: u64,
    /// The kind that the holder field takes.
    pub kind: u64,
}

const REFERENCES: u64 = 0xffff_ffff;

/// Row by `Mode as usize`. A `const`, not a `static`: as a `static` each row would be loaded on every call.
const MASKS: [Masks; 4] = [
    Masks { must_be_zero: Word::DRAINING, add: 1, kind: 3 << 56 },
    Masks { must_be_zero: Word::DRAINING | REFERENCES, add: 0, kind: 0 },
    Masks { must_be_zero: Word::DRAINING | REFERENCES, add: 0, kind: 1 << 56 },
    Masks { must_be_zero: Word::DRAINING, add: 0, kind: 2 << 56 },
];

impl Mode {
    /// Every mode, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Shared, Self::Exclusive, Self::LongExclusive, Self::Examine];

    /// The row of the table.
    #[must_use]
    pub const fn masks(self) -> Masks {
        MASKS[self as usize]
    }

    /// The mode with this number, as logged; `None` above 3.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Shared),
            1 => Some(Self::Exclusive),
            2 => Some(Self::LongExclusive),
            3 => Some(Self::Examine),
            _ => None,
        }
    }

    /// `S`, `X`, `LX` or `E`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["S", "X", "LX", "E"][self as usize]
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Mode {
    type Err = ModeError;

    /// Case does not matter.
    fn from_str(text: &str) -> Result<Self, ModeError> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| ModeError { found: text.to_owned() })
    }
}
