//! What an instance has room for, and where each of its tables is.

use super::PAGE;
use crate::entries::{Alert, Header, Location, MutexEntry, ParamRow, Past, TypeEntry};
use crate::slot::Slot;
use crate::stats::FiguresRow;
use crate::sys;
use crate::trace::Run;

/// How much an instance has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// Sessions at a time, 1 to 1,048,576.
    pub sessions: u32,
    /// Registered mutexes, 1 to 16,000,000.
    pub mutexes: u32,
    /// Registered locations, 1 to 65,535.
    pub locations: u32,
    /// Combinations of mutex, location and event that each session counts apart, 1 to 4,096.
    pub rows: u32,
    /// Bytes for named objects, 0 to 2^40.
    pub arena: u64,
}

impl Default for Capacity {
    fn default() -> Self {
        Self { sessions: 1024, mutexes: 16_384, locations: 4096, rows: 64, arena: 1 << 20 }
    }
}

/// Rows of the parameter table: one for the instance, one for each mutex type.
pub(crate) const TYPES: usize = 64;
/// Runs of steps that each session remembers.
pub const RUNS: usize = 64;
pub(crate) const HISTORY: usize = 1024;
pub(crate) const ALERTS: usize = 256;

impl Capacity {
    /// Sessions for all threads of any program, under the number of thread ids that Linux gives out by default
    /// (`kernel.pid_max`, with up to 32 processors). A session that nobody has had takes no memory.
    pub const SESSIONS_OF_ANY_PROGRAM: u32 = 32_768;

    /// The same with as many sessions as the limits of this process for the size of a file have room for, at
    /// least one.
    #[must_use]
    pub fn within_limits(self) -> Self {
        let one = Layout::of(Self { sessions: 1, ..self }).len as u64;
        let more = sys::file_size_max().saturating_sub(one) / Layout::session_len(self) as u64;
        let sessions = u32::try_from(more).unwrap_or(u32::MAX).saturating_add(1);
        Self { sessions: self.sessions.min(sessions), ..self }
    }

    /// The fields with their names and ranges, in the order of the header.
    pub(crate) const fn checked(&self) -> [(&'static str, u64, u64, u64); 5] {
        [
            ("sessions", self.sessions as u64, 1, 1 << 20),
            ("mutexes", self.mutexes as u64, 1, 16_000_000),
            ("locations", self.locations as u64, 1, 65_535),
            ("rows", self.rows as u64, 1, 4096),
            ("arena", self.arena, 0, 1 << 40),
        ]
    }
}

/// Start of each table, in bytes from the start of the segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub(super) capacity: Capacity,
    pub(super) params: usize,
    pub(super) types: usize,
    pub(super) locations: usize,
    pub(super) mutexes: usize,
    pub(super) history: usize,
    pub(super) alerts: usize,
    pub(super) arena: usize,
    pub(super) sessions: usize,
    /// Bytes of the whole segment.
    pub len: usize,
}

/// Session records, that of the departed among them, that are mapped at first.
const FIRST: usize = 4;

impl Layout {
    /// The layout of a segment with these capacities. Out of their ranges it may be as long as `usize` can
    /// say.
    #[must_use]
    pub fn of(capacity: Capacity) -> Self {
        let mut next = 0_usize;
        let mut table = |size: usize, count: usize| {
            let start = next;
            let len = size.saturating_mul(count).checked_next_multiple_of(PAGE).unwrap_or(usize::MAX);
            next = next.saturating_add(len);
            start
        };
        let sessions = capacity.sessions as usize + 1;
        table(size_of::<Header>(), 1);
        Self {
            capacity,
            params: table(size_of::<ParamRow>(), TYPES + 1),
            types: table(size_of::<TypeEntry>(), TYPES),
            locations: table(size_of::<Location>(), capacity.locations as usize + 1),
            mutexes: table(size_of::<MutexEntry>(), capacity.mutexes as usize + 1),
            history: table(size_of::<Past>(), HISTORY),
            alerts: table(size_of::<Alert>(), ALERTS),
            arena: table(1, usize::try_from(capacity.arena).unwrap_or(0)),
            sessions: table(Self::session_len(capacity), sessions),
            len: next,
        }
    }

    /// Bytes of what a session has.
    pub(super) const fn session_len(capacity: Capacity) -> usize {
        (Self::ROWS + capacity.rows as usize * size_of::<FiguresRow>()).next_multiple_of(PAGE)
    }

    /// Where the steps and the rows begin in what a session has.
    pub(super) const RUNS: usize = size_of::<Slot>();
    pub(super) const ROWS: usize = Self::RUNS + RUNS * size_of::<Run>();

    /// Bytes that are mapped at first.
    pub(super) fn first_len(&self) -> usize {
        self.len.min(self.sessions + FIRST * Self::session_len(self.capacity))
    }

    /// A number that differs between builds which would read a segment differently.
    #[must_use]
    pub const fn fingerprint() -> u64 {
        let parts = [
            14, // counts changes of meaning that leave all sizes as they are
            size_of::<Header>(),
            size_of::<ParamRow>(),
            crate::params::PARAM_COUNT,
            size_of::<TypeEntry>(),
            size_of::<Location>(),
            size_of::<MutexEntry>(),
            size_of::<Past>(),
            size_of::<Alert>(),
            size_of::<Slot>(),
            size_of::<FiguresRow>(),
            size_of::<Run>(),
            TYPES,
            RUNS,
            HISTORY,
            ALERTS,
            size_of::<libc::pthread_mutex_t>(),
        ];
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut i = 0;
        while i < parts.len() {
            hash = (hash ^ parts[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            i += 1;
        }
        hash
    }
}
