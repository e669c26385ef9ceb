//! What is measured: a mutex of anybody's, with the data beside it that tell whether it excludes.

use crate::check::Protected;
use retrial::sys::Deadline;
use retrial::views::Figures;

/// Why a get gave nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Miss {
    /// The cell is over. Most mutexes know no deadline: their sessions wait on, and the cell ends without
    /// them.
    TimedOut,
    /// With an error.
    Failed,
}

/// A mutex that sessions get. Each is compiled into a loop of its own.
pub trait Peer: Sync {
    /// What a thread needs to get it.
    type Session<'a>
    where
        Self: 'a;

    /// The session of this number, made by the thread that uses it. `None` when there can be no more.
    fn session(&self, index: u32) -> Option<Self::Session<'_>>;

    /// What it protects: in memory that all processes of the cell share, best in the cache line of the mutex.
    fn protected(&self) -> &Protected;

    /// Copies of it: a session uses the one that its number gives.
    fn copies(&self) -> u32 {
        1
    }

    /// What a copy of it protects.
    fn protected_by(&self, _copy: u32) -> &Protected {
        self.protected()
    }

    /// What its sessions have counted so far, where they count.
    fn figures(&self) -> Option<Figures> {
        None
    }

    /// Gets it, does the section, releases it. `writes`: alone, where other gets may be beside each other.
    fn with(
        &self,
        session: &Self::Session<'_>,
        writes: bool,
        deadline: Deadline,
        section: impl FnOnce(),
    ) -> Result<(), Miss>;
}
