//! The modes that a mutex can be got in.

use thiserror::Error;

/// The mode in which a session gets a mutex.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
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

impl Mode {
    /// Every mode, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Shared, Self::Exclusive, Self::LongExclusive, Self::Examine];

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

/// Not the name of a mode.
#[derive(Error, Debug, Clone, PartialEq, Eq)]
#[error("mode `{found}`, expected S, X, LX or E")]
pub struct ModeError {
    /// What was given.
    pub found: String,
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
