//! The shared memory of an instance: where each table is. Raw addresses are nowhere else.
//!
//! ```text
//! +--------+--------+-------+-----------+---------+---------+--------+-------+------+-------+-------+
//! | header | params | types | locations | mutexes | history | alerts | slots | rows | steps | arena |
//! +--------+--------+-------+-----------+---------+---------+--------+-------+------+-------+-------+
//! ```
//!
//! Every table starts at a page. Where follows from the capacities in the header by [`Layout::of`] alone: a segment
//! holds no offsets of its own tables, so none can be hostile. Everything in the tables is an atomic of plain integers,
//! so any bytes that another process leaves there are some value.

use crate::session::Slot;
use crate::stats::Row;
use crate::sys::{self, AtomicU64, RobustLock};
use crate::tables::{Alert, Header, Location, MutexEntry, ParamRow, Past, TypeEntry};
use crate::trace::Run;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const PAGE: usize = 4096;

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
    capacity: Capacity,
    params: usize,
    types: usize,
    locations: usize,
    mutexes: usize,
    history: usize,
    alerts: usize,
    slots: usize,
    rows: usize,
    runs: usize,
    arena: usize,
    /// Bytes of the whole segment.
    pub len: usize,
}

impl Layout {
    /// The layout of a segment with these capacities, which must be in their ranges.
    #[must_use]
    pub fn of(capacity: Capacity) -> Self {
        let mut next = 0;
        let mut table = |size: usize, count: usize| {
            let start = next;
            next += (size * count).next_multiple_of(PAGE);
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
            slots: table(size_of::<Slot>(), sessions),
            rows: table(size_of::<Row>() * capacity.rows as usize, sessions),
            runs: table(size_of::<Run>() * RUNS, sessions),
            arena: table(1, usize::try_from(capacity.arena).unwrap_or(0)),
            len: next,
        }
    }

    /// A number that differs between builds which would read a segment differently.
    #[must_use]
    pub const fn fingerprint() -> u64 {
        let parts = [
            4, // counts changes of meaning that leave all sizes as they are
            size_of::<Header>(),
            size_of::<ParamRow>(),
            crate::params::PARAM_COUNT,
            size_of::<TypeEntry>(),
            size_of::<Location>(),
            size_of::<MutexEntry>(),
            size_of::<Past>(),
            size_of::<Alert>(),
            size_of::<Slot>(),
            size_of::<Row>(),
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

/// A mapped segment. Unmapped when dropped, unless [`Segment::leak`] was called.
#[derive(Debug)]
pub(crate) struct Segment {
    base: *mut u8,
    len: usize,
    layout: Layout,
    leaked: std::cell::Cell<bool>,
    /// What a model has on its own heap: it knows no atomics in mapped memory.
    #[cfg(any(loom, shuttle))]
    model: (Box<[Slot]>, RobustLock),
}

// SAFETY: the mapping is shared memory that is only read and written as atomics; `leaked` is only touched by
// `leak`, which is called under the instance's exclusive access to its counter.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Maps the first `len` bytes of a file.
    pub(crate) fn map(file: BorrowedFd<'_>, len: usize, writable: bool) -> io::Result<*mut u8> {
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(base.cast()) }
    }

    /// # Safety
    ///
    /// `base` is a shared mapping of `layout.len` bytes that nobody else unmaps.
    pub(crate) unsafe fn new(base: *mut u8, layout: Layout) -> Self {
        Self {
            base,
            len: layout.len,
            layout,
            leaked: std::cell::Cell::new(false),
            #[cfg(any(loom, shuttle))]
            model: ((0..=layout.capacity.sessions).map(|_| Slot::default()).collect(), RobustLock::default()),
        }
    }

    /// Keeps the mapping for the life of the process: a lock that the kernel knows of is in it.
    pub(crate) fn leak(&self) {
        self.leaked.set(true);
    }

    pub(crate) const fn capacity(&self) -> Capacity {
        self.layout.capacity
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// A table as a slice.
    ///
    /// # Safety
    ///
    /// `start` is a table of `T` in the layout and holds at least `count` of them.
    unsafe fn table<T>(&self, start: usize, count: usize) -> &[T] {
        debug_assert!(start + count * size_of::<T>() <= self.len);
        // SAFETY: the caller says that the table is inside the mapping.
        let first = unsafe { self.base.add(start) }.cast::<T>();
        // SAFETY: tables start at pages, are as long as `Layout::of` made them, and hold atomics only.
        unsafe { std::slice::from_raw_parts(first, count) }
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the header is at 0 and the mapping is at least a page.
        unsafe { &self.table::<Header>(0, 1)[0] }
    }

    pub(crate) fn params(&self) -> &[ParamRow] {
        // SAFETY: as laid out.
        unsafe { self.table(self.layout.params, TYPES + 1) }
    }

    pub(crate) fn types(&self) -> &[TypeEntry] {
        // SAFETY: as laid out.
        unsafe { self.table(self.layout.types, TYPES) }
    }

    pub(crate) fn locations(&self) -> &[Location] {
        // SAFETY: as laid out.
        unsafe { self.table(self.layout.locations, self.layout.capacity.locations as usize + 1) }
    }

    pub(crate) fn mutexes(&self) -> &[MutexEntry] {
        // SAFETY: as laid out.
        unsafe { self.table(self.layout.mutexes, self.layout.capacity.mutexes as usize + 1) }
    }

    pub(crate) fn history(&self) -> &[Past] {
        // SAFETY: as laid out.
        unsafe { self.table(self.layout.history, HISTORY) }
    }

    pub(crate) fn alerts(&self) -> &[Alert] {
        // SAFETY: as laid out.
        unsafe { self.table(self.layout.alerts, ALERTS) }
    }

    /// The lock of the tables.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn admin(&self) -> &RobustLock {
        &self.header().admin
    }

    #[cfg(any(loom, shuttle))]
    pub(crate) fn admin(&self) -> &RobustLock {
        &self.model.1
    }

    #[cfg(any(loom, shuttle))]
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.model.0
    }

    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn slots(&self) -> &[Slot] {
        // SAFETY: as laid out.
        unsafe { self.table(self.layout.slots, self.layout.capacity.sessions as usize + 1) }
    }

    pub(crate) fn rows(&self, sid: usize) -> &[Row] {
        let rows = self.layout.capacity.rows as usize;
        assert!(sid <= self.layout.capacity.sessions as usize, "a SID of this instance");
        // SAFETY: as laid out, and the SID was checked.
        unsafe { self.table(self.layout.rows + sid * rows * size_of::<Row>(), rows) }
    }

    pub(crate) fn runs(&self, sid: usize) -> &[Run] {
        assert!(sid <= self.layout.capacity.sessions as usize, "a SID of this instance");
        // SAFETY: as laid out, and the SID was checked.
        unsafe { self.table(self.layout.runs + sid * RUNS * size_of::<Run>(), RUNS) }
    }

    /// Memory of the arena, or `None` when it is not all inside.
    pub(crate) fn arena(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len as u64)?;
        if end > self.layout.capacity.arena {
            return None;
        }
        // SAFETY: checked to be inside the arena, which is inside the mapping.
        Some(unsafe { self.base.add(self.layout.arena + usize::try_from(offset).ok()?) })
    }

    /// Words of the segment, for `peek`; `None` beyond its end or off alignment.
    pub(crate) fn words(&self, offset: u64, count: usize) -> Option<&[AtomicU64]> {
        let start = usize::try_from(offset).ok()?;
        let bytes = count.checked_mul(8)?;
        if !start.is_multiple_of(8) || start.checked_add(bytes)? > self.len {
            return None;
        }
        // SAFETY: checked to be inside and aligned.
        Some(unsafe { self.table(start, count) })
    }

    /// Offset in the segment of something that is in it.
    pub(crate) fn offset_of(&self, inside: *const u8) -> u64 {
        (inside.addr() - self.base.addr()) as u64
    }

    /// Gives the tables that every instance uses memory now: what waiters write must not fault when the file system is
    /// full. Whether there was enough.
    #[must_use]
    pub(crate) fn populate_fixed(&self) -> bool {
        let (history, slots) = (self.layout.history, self.layout.slots);
        // SAFETY: the header, parameters and types are whole pages at the start of the mapping.
        let start = unsafe { sys::populate(self.base, self.layout.locations) };
        // SAFETY: history and alerts are whole pages, and the slots follow them.
        start && unsafe { self.populate_pages(history, slots - history) } && self.populate_session(0)
    }

    /// Bytes that [`Segment::populate_fixed`] takes.
    pub(crate) const fn fixed_len(&self) -> u64 {
        let session = 3 * PAGE;
        (self.layout.locations + self.layout.slots - self.layout.history + session) as u64
    }

    /// Gives an entry of a table memory now, before it is looked at: a look at a page that has none takes memory too.
    /// Whether there was enough.
    #[must_use]
    pub(crate) fn populate_entry<T>(&self, entry: &T) -> bool {
        let start = std::ptr::from_ref(entry).addr() - self.base.addr();
        let first = start / PAGE * PAGE;
        let end = (start + size_of::<T>()).next_multiple_of(PAGE);
        // SAFETY: the entry is in a table, and tables are whole pages.
        unsafe { self.populate_pages(first, end - first) }
    }

    /// Gives a session's slot, first rows and runs memory now. Whether there was enough.
    #[must_use]
    pub(crate) fn populate_session(&self, sid: usize) -> bool {
        let rows = self.layout.capacity.rows as usize * size_of::<Row>();
        let parts = [
            (self.layout.slots, size_of::<Slot>()),
            (self.layout.rows, rows),
            (self.layout.runs, RUNS * size_of::<Run>()),
        ];
        parts.into_iter().all(|(start, size)| {
            let first = (start + sid * size) / PAGE * PAGE;
            let end = (start + sid * size + size.min(PAGE)).next_multiple_of(PAGE);
            // SAFETY: a SID of this instance: the pages are inside the mapping.
            unsafe { self.populate_pages(first, end - first) }
        })
    }

    /// Gives a part of the arena memory now. Whether there was enough.
    #[must_use]
    pub(crate) fn populate_arena(&self, offset: u64, len: usize) -> bool {
        let start = self.layout.arena + usize::try_from(offset).unwrap_or(0);
        let first = start / PAGE * PAGE;
        let end = (start + len).next_multiple_of(PAGE).min(self.len);
        // SAFETY: the caller has allocated this part of the arena.
        unsafe { self.populate_pages(first, end.saturating_sub(first)) }
    }

    /// # Safety
    ///
    /// `first` and `len` are whole pages inside the mapping.
    unsafe fn populate_pages(&self, first: usize, len: usize) -> bool {
        // SAFETY: inside the mapping, says the caller.
        let address = unsafe { self.base.add(first) };
        // SAFETY: as above.
        unsafe { sys::populate(address, len) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if !self.leaked.get() {
            // SAFETY: the mapping is ours, and every borrow of it borrows `self`.
            unsafe { libc::munmap(self.base.cast(), self.len) };
        }
    }
}
