//! The shared memory of an instance: where each table is. Raw addresses are here, and in the
//! mutexes that give bytes behind them (`named_mutex.rs`, `engine_mutex.rs`, `guard.rs`).
//!
//! ```text
//! +--------+--------+-------+-----------+---------+---------+--------+-------+----------------------+
//! | header | params | types | locations | mutexes | history | alerts | arena | slot, steps, rows; … |
//! +--------+--------+-------+-----------+---------+---------+--------+-------+----------------------+
//! ```
//!
//! Every table starts at a page, and so does what each session has: its slot, its steps, its rows. A process
//! maps the first sessions only, and more of them, at the end of the mapping, when it meets one of these:
//! what a process has mapped counts against its limits, and `mlockall` fills it with memory. Where follows
//! from the capacities in the header by [`Layout::of`] alone: a segment holds no offsets of its own tables,
//! so none can be hostile. Everything in the tables is an atomic of plain integers, so any bytes that another
//! process leaves there are some value.

mod layout;
mod mapping;

use crate::entries::{Alert, Header, Location, MutexEntry, ParamRow, Past, TypeEntry};
use crate::slot::Slot;
use crate::stats::{self, FiguresRow, Key};
use crate::sys::{self, AtomicU64, Ordering, RobustLock};
use crate::trace::Run;
use std::sync::atomic::AtomicUsize;

pub(crate) use layout::{ALERTS, HISTORY, TYPES};
pub use layout::{Capacity, Layout, RUNS};

pub(crate) const PAGE: usize = 4096;

/// A mapped segment. Unmapped when dropped, unless [`Segment::leak`] was called.
#[derive(Debug)]
pub(crate) struct Segment {
    base: *mut u8,
    /// Bytes that are mapped. Only grows.
    mapped: AtomicUsize,
    /// Threads that have it grow right now, in the lower 16 bits; above them the generation of their process.
    growing: AtomicU64,
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
    /// # Safety
    ///
    /// [`Segment::map`] gave it for this layout, and only this segment unmaps it.
    pub(crate) unsafe fn new((base, mapped): (*mut u8, usize), layout: Layout) -> Self {
        Self {
            base,
            mapped: AtomicUsize::new(mapped),
            growing: AtomicU64::new(0),
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
        self.layout.len
    }

    /// A table as a slice.
    ///
    /// # Safety
    ///
    /// `start` is a table of `T` in the layout and holds at least `count` of them.
    unsafe fn table<T>(&self, start: usize, count: usize) -> &[T] {
        debug_assert!(start + count * size_of::<T>() <= self.mapped.load(Ordering::Relaxed));
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

    /// Where a session's record is, `None` where it is none of this instance or cannot be mapped.
    fn session(&self, sid: usize) -> Option<usize> {
        let len = Layout::session_len(self.layout.capacity);
        let start = self.layout.sessions + sid * len;
        (sid <= self.layout.capacity.sessions as usize && self.reach(start + len)).then_some(start)
    }

    #[cfg(any(loom, shuttle))]
    pub(crate) fn slot(&self, sid: usize) -> Option<&Slot> {
        self.model.0.get(sid)
    }

    /// A session's slot, `None` as with all that it has.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn slot(&self, sid: usize) -> Option<&Slot> {
        // SAFETY: as laid out, and mapped.
        self.session(sid).map(|start| unsafe { &self.table(start, 1)[0] })
    }

    /// The slot of the departed, which is mapped from the start.
    pub(crate) fn departed(&self) -> &Slot {
        self.slot(0).expect("the first session records are mapped")
    }

    pub(crate) fn rows(&self, sid: usize) -> &[FiguresRow] {
        let rows = self.layout.capacity.rows as usize;
        // SAFETY: as laid out, and mapped.
        self.session(sid).map_or(&[], |start| unsafe { self.table(start + Layout::ROWS, rows) })
    }

    pub(crate) fn runs(&self, sid: usize) -> &[Run] {
        // SAFETY: as laid out, and mapped.
        self.session(sid).map_or(&[], |start| unsafe { self.table(start + Layout::RUNS, RUNS) })
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

    /// Offset in the arena of what lies there; `None` for what is elsewhere.
    pub(crate) fn arena_offset<T>(&self, of: &T) -> Option<u64> {
        let start = self.base.addr() + self.layout.arena;
        let offset = std::ptr::from_ref(of).addr().checked_sub(start)? as u64;
        self.arena(offset, size_of::<T>()).map(|_| offset)
    }

    /// Words of the segment, for `peek`; `None` beyond its end or off alignment.
    pub(crate) fn words(&self, offset: u64, count: usize) -> Option<&[AtomicU64]> {
        let start = usize::try_from(offset).ok()?;
        let bytes = count.checked_mul(8)?;
        let end = start.checked_add(bytes)?;
        if !start.is_multiple_of(8) || end > self.layout.len || !self.reach(end) {
            return None;
        }
        // SAFETY: checked to be inside and aligned.
        Some(unsafe { self.table(start, count) })
    }

    /// The position of the row for `key` among those of a session: see [`stats::place_of`]. `None` if it is a
    /// fresh one and there is no memory for it.
    pub(crate) fn place_of(&self, sid: usize, key: Key) -> Option<usize> {
        // The row before ends in the page where this one begins, or the session's first pages do.
        let has_memory = |row: &FiguresRow| {
            let start = std::ptr::from_ref(row).addr();
            (start - 1) / PAGE == (start + size_of::<FiguresRow>() - 1) / PAGE
        };
        let rows_used = &self.slot(sid)?.rows_used;
        stats::place_of(self.rows(sid), rows_used, key, |row| has_memory(row) || self.populate_entry(row))
    }

    /// That row.
    pub(crate) fn row(&self, sid: usize, key: Key) -> Option<&FiguresRow> {
        Some(&self.rows(sid)[self.place_of(sid, key)?])
    }

    /// Offset in the segment of something that is in it.
    pub(crate) fn offset_of(&self, inside: *const u8) -> u64 {
        (inside.addr() - self.base.addr()) as u64
    }

    /// Gives the tables that every instance uses memory now: what waiters write must not fault when the file
    /// system is full. Whether there was enough.
    #[must_use]
    pub(crate) fn populate_fixed(&self) -> bool {
        let (history, arena) = (self.layout.history, self.layout.arena);
        // SAFETY: the header, parameters and types are whole pages at the start of the mapping.
        let start = unsafe { sys::populate(self.base, self.layout.locations) };
        // SAFETY: history and alerts are whole pages, and the arena follows them.
        start && unsafe { self.populate_pages(history, arena - history) } && self.populate_session(0)
    }

    /// Bytes that [`Segment::populate_fixed`] takes.
    pub(crate) const fn fixed_len(&self) -> u64 {
        let session = Self::used_len(self.layout.capacity);
        (self.layout.locations + self.layout.arena - self.layout.history + session) as u64
    }

    /// Gives an entry of a table memory now, before it is looked at: a look at a page that has none takes
    /// memory too. Whether there was enough.
    #[must_use]
    pub(crate) fn populate_entry<T>(&self, entry: &T) -> bool {
        let start = std::ptr::from_ref(entry).addr() - self.base.addr();
        let first = start / PAGE * PAGE;
        let end = (start + size_of::<T>()).next_multiple_of(PAGE);
        // SAFETY: the entry is in a table, and tables are whole pages.
        unsafe { self.populate_pages(first, end - first) }
    }

    /// Bytes of what a session has that are used from the start: the pages of its slot, its steps and the
    /// first of its rows. The others get memory when they are taken.
    const fn used_len(capacity: Capacity) -> usize {
        let (used, all) = ((Layout::ROWS + 1).next_multiple_of(PAGE), Layout::session_len(capacity));
        if used < all { used } else { all }
    }

    /// Gives a session's slot, steps and first rows memory now. Whether there was enough.
    #[must_use]
    pub(crate) fn populate_session(&self, sid: usize) -> bool {
        let len = Self::used_len(self.layout.capacity);
        // SAFETY: whole pages, as laid out, and mapped.
        self.session(sid).is_some_and(|start| unsafe { self.populate_pages(start, len) })
    }

    /// Gives a part of the arena memory now. Whether there was enough.
    #[must_use]
    pub(crate) fn populate_arena(&self, offset: u64, len: usize) -> bool {
        let start = self.layout.arena + usize::try_from(offset).unwrap_or(0);
        let first = start / PAGE * PAGE;
        let end = (start + len).next_multiple_of(PAGE).min(self.layout.sessions);
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
            unsafe { libc::munmap(self.base.cast(), *self.mapped.get_mut()) };
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
