//! How many gets there can have been.

use crate::run::record::Format;

/// All gets of the interposer's mutexes at the latest census, by the sessions; when that was, and when this
/// thread began.
pub struct Counted {
    pub gets: u64,
    pub at_ns: u64,
    pub started_ns: u64,
}

impl Counted {
    /// How often a mutex can have been got: a get takes more than a nanosecond. The library's mutexes count
    /// their gets themselves, perhaps since before this thread looked.
    pub const fn most(&self, format: Format, now_ns: u64) -> u64 {
        let (gets, since_ns) = match format {
            Format::Library => (1_000_000_000, self.started_ns),
            _ => (self.gets, self.at_ns),
        };
        gets.saturating_add(now_ns.saturating_sub(since_ns))
    }
}
