//! The mutex word, as arithmetic on a plain `u64`: no atomics, no I/O, tested exhaustively.
//!
//! ```text
//!  63      56 55                          32 31                           0
//! +----------+------------------------------+------------------------------+
//! |  flags   |      SID of the holder       | number of shared references  |
//! +----------+------------------------------+------------------------------+
//!  \_____________ holder field ____________/
//! ```
//!
//! | word (flags, SID, references) | meaning                                                             |
//! |-------------------------------|---------------------------------------------------------------------|
//! | 0, 0, 0                       | free                                                                |
//! | 0, 0, n                       | held shared by n                                                    |
//! | exclusive, s, 0               | s holds X                                                           |
//! | long, s, 0                    | s holds LX                                                          |
//! | examine, s, n                 | s holds E over n references                                         |
//! | exclusive, s, n > 0           | the same (a poked `0x0000_0001_0000_0001` reads as the source has it) |
//! | moving, s, n                  | s is adding or dropping one reference; a few instructions long      |
//! | draining, 0, n                | E asks for X: references may leave, nobody may come                 |
//!
//! `poisoned`, `attention` and `handover` go with any of these. They make the holder field non-zero, so that
//! the exchange from 0 on the fast path fails by itself and the slow path looks why. Only the session in the
//! holder field changes a flag.

use crate::mode::Mode;

/// Identifier of a session, 24 bits. 0 is nobody.
///
/// Sessions of an instance have the lower half of the range; the upper half are *guests*: threads that found
/// the session table full and are named by their thread id instead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Sid(u32);

impl Sid {
    /// Nobody.
    pub const NONE: Self = Self(0);
    /// Largest SID of a session of an instance.
    pub const MAX: u32 = (1 << 23) - 1;
    const GUEST: u32 = 1 << 23;
    const MASK: u32 = (1 << 24) - 1;

    /// The SID with this number; bits above the 24th are dropped.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number & Self::MASK)
    }

    /// The SID of a thread that has no session, from its kernel thread id.
    #[must_use]
    pub const fn guest(tid: u32) -> Self {
        Self(Self::GUEST | (tid & Self::MAX))
    }

    /// The number, as the views show it.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The kernel thread id behind a guest's SID; `None` for sessions and for nobody.
    #[must_use]
    pub const fn guest_tid(self) -> Option<u32> {
        if self.0 & Self::GUEST == 0 { None } else { Some(self.0 & Self::MAX) }
    }

    /// Whether this is nobody.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn bits(self) -> u64 {
        (self.0 as u64) << 32
    }
}

impl std::fmt::Display for Sid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.guest_tid() {
            Some(tid) => write!(f, "tid {tid}"),
            None => write!(f, "{}", self.0),
        }
    }
}

impl std::fmt::Debug for Sid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sid({self})")
    }
}

/// What the holder field is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// X.
    Exclusive,
    /// LX.
    Long,
    /// E.
    Examine,
    /// One shared reference is being added or dropped.
    Moving,
}

impl Kind {
    /// The mode that the holder has, `None` while a reference is moved.
    #[must_use]
    pub const fn mode(self) -> Option<Mode> {
        match self {
            Self::Exclusive => Some(Mode::Exclusive),
            Self::Long => Some(Mode::LongExclusive),
            Self::Examine => Some(Mode::Examine),
            Self::Moving => None,
        }
    }
}

/// A value of the mutex word. `word.rs` has its layout and a table of what each value means; `docs/DESIGN.md`
/// too.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Word(pub u64);

impl Word {
    /// Nobody holds it in any mode and no flag is set.
    pub const FREE: Self = Self(0);

    const KIND_SHIFT: u32 = 56;
    const KIND: u64 = 0b11 << Self::KIND_SHIFT;
    /// E waits for the references to leave before it becomes X.
    pub const DRAINING: u64 = 1 << 58;
    /// The last holder handed the mutex to the session that it woke: no other one may barge.
    pub const HANDOVER: u64 = 1 << 59;
    /// Every get takes the slow path.
    pub const ATTENTION: u64 = 1 << 62;
    /// A holder died in X, LX or E, and no holder has declared the data consistent since.
    pub const POISONED: u64 = 1 << 63;
    /// Flags that stay when the holder field is given back.
    const STICKY: u64 = Self::ATTENTION | Self::POISONED;
    const SID: u64 = 0x00ff_ffff << 32;
    const REFERENCES: u64 = 0xffff_ffff;

    /// The session in the holder field.
    #[must_use]
    pub const fn sid(self) -> Sid {
        Sid(((self.0 & Self::SID) >> 32) as u32)
    }

    /// Number of shared references.
    #[must_use]
    pub const fn references(self) -> u32 {
        (self.0 & Self::REFERENCES) as u32
    }

    /// Whether all bits of `flag` are set.
    #[must_use]
    pub const fn has(self, flag: u64) -> bool {
        self.0 & flag == flag
    }

    /// What the holder field is used for, `None` while nobody is in it.
    #[must_use]
    pub const fn kind(self) -> Option<Kind> {
        if self.sid().is_none() {
            return None;
        }
        Some(match (self.0 & Self::KIND) >> Self::KIND_SHIFT {
            0 if self.references() == 0 => Kind::Exclusive,
            1 => Kind::Long,
            3 => Kind::Moving,
            _ => Kind::Examine,
        })
    }

    /// Whether the holder keeps out sessions of every mode, so that a wait for it is a "wait on X".
    #[must_use]
    pub const fn is_exclusive(self) -> bool {
        matches!(self.kind(), Some(Kind::Exclusive | Kind::Long))
    }

    /// The word after `sid` is granted `mode`, or `None` while the mutex is busy.
    ///
    /// S is granted as *moving*: the reference is counted and the holder field is still `sid`'s, which gives
    /// it back with [`Word::give_back`]. `handed` says that the caller may take a mutex that was handed over.
    /// A handover over references stays, so that further readers are kept out until the last of these has left.
    #[must_use]
    pub const fn grant(self, sid: Sid, mode: Mode, handed: bool) -> Option<Self> {
        let masks = mode.masks();
        if !self.sid().is_none() || self.0 & masks.must_be_zero != 0 {
            return None;
        }
        let mut rest = self.0 & !Self::KIND;
        if self.has(Self::HANDOVER) {
            if !handed {
                return None;
            }
            if self.references() == 0 {
                rest &= !Self::HANDOVER;
            }
        }
        // Room for one more: the reference of S, or the reference that E may turn into.
        if self.references() == u32::MAX {
            return None;
        }
        Some(Self((rest + masks.add) | masks.kind | sid.bits()))
    }

    /// Whether any session has it, in whatever mode: also while one waits in X for its readers to leave.
    #[must_use]
    pub const fn is_held(self) -> bool {
        !self.sid().is_none() || self.references() != 0 || self.has(Self::DRAINING)
    }

    /// The word after `sid` takes the holder field to drop its reference, or `None` while the field is taken.
    #[must_use]
    pub const fn take_field(self, sid: Sid) -> Option<Self> {
        if !self.sid().is_none() || self.references() == 0 {
            return None;
        }
        Some(Self((self.0 & !Self::KIND) | (3 << Self::KIND_SHIFT) | sid.bits()))
    }

    /// The word after the holder field is given back: references, sticky flags and a handover over references
    /// stay, and so does *draining* when the field was only borrowed to move a reference.
    #[must_use]
    pub const fn give_back(self) -> Self {
        let borrowed = matches!(self.kind(), Some(Kind::Moving));
        let draining = if borrowed { Self::DRAINING } else { 0 };
        Self(self.0 & (Self::STICKY | Self::HANDOVER | draining | Self::REFERENCES))
    }

    /// The word after X or LX is released: the same for a session that is known to have the field for one of
    /// them.
    #[must_use]
    pub const fn released(self) -> Self {
        Self(self.0 & (Self::STICKY | Self::REFERENCES))
    }

    /// The word with another session in the holder field, which must be taken.
    #[must_use]
    pub const fn with_sid(self, sid: Sid) -> Self {
        Self(self.0 & !Self::SID | sid.bits())
    }

    /// One reference less. The holder field must be taken.
    #[must_use]
    pub const fn drop_reference(self) -> Self {
        Self(self.0 - 1)
    }

    /// One reference more. The holder field must be taken.
    #[must_use]
    pub const fn add_reference(self) -> Self {
        Self(self.0 + 1)
    }

    /// The word after `sid` turns its own reference into E, or `None` while the holder field is taken.
    #[must_use]
    pub const fn promote(self, sid: Sid, handed: bool) -> Option<Self> {
        // Its own reference counts as one that the handover is over.
        let over = self.0 & Self::HANDOVER;
        match self.drop_if_any() {
            Some(rest) => match rest.grant(sid, Mode::Examine, handed) {
                Some(granted) => Some(granted.with(over)),
                None => None,
            },
            None => None,
        }
    }

    const fn drop_if_any(self) -> Option<Self> {
        if self.references() == 0 { None } else { Some(self.drop_reference()) }
    }

    /// The word after E gives the field up while it waits for the references to leave.
    #[must_use]
    pub const fn drain(self) -> Self {
        Self((self.0 & (Self::STICKY | Self::HANDOVER | Self::REFERENCES)) | Self::DRAINING)
    }

    /// The word after the drained E of `sid` becomes X, or `None` while a reference or its mover is still
    /// there.
    #[must_use]
    pub const fn drained(self, sid: Sid) -> Option<Self> {
        if !self.sid().is_none() || self.references() != 0 || !self.has(Self::DRAINING) {
            return None;
        }
        Some(Self((self.0 & Self::STICKY) | sid.bits()))
    }

    /// The word with `flag` set.
    #[must_use]
    pub const fn with(self, flag: u64) -> Self {
        Self(self.0 | flag)
    }

    /// The word with `flag` clear.
    #[must_use]
    pub const fn without(self, flag: u64) -> Self {
        Self(self.0 & !flag)
    }
}

impl std::fmt::Display for Word {
    /// `sid 7 E, 3 references, poisoned`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mode = match self.kind() {
            None => "",
            Some(Kind::Exclusive) => " X",
            Some(Kind::Long) => " LX",
            Some(Kind::Examine) => " E",
            Some(Kind::Moving) => " moving",
        };
        match (self.sid(), self.references()) {
            (sid, 0) if sid.is_none() => write!(f, "free")?,
            (sid, n) if sid.is_none() => write!(f, "S by {n}")?,
            (sid, 0) => write!(f, "sid {sid}{mode}")?,
            (sid, n) => write!(f, "sid {sid}{mode}, {n} references")?,
        }
        for (flag, name) in [
            (Self::DRAINING, "draining"),
            (Self::HANDOVER, "handed over"),
            (Self::ATTENTION, "attention"),
            (Self::POISONED, "poisoned"),
        ] {
            if self.has(flag) {
                write!(f, ", {name}")?;
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Word({:#018x}: {self})", self.0)
    }
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
    /// The row of the table.
    #[must_use]
    pub const fn masks(self) -> Masks {
        MASKS[self as usize]
    }
}
