//! Figures: one cube per session with one writer, of which every view is a projection.
//!
//! A row counts what a session did at one mutex, at one location, in one wait event. Totals by mutex, by type
//! and location, by event or by session are sums over rows. Nothing is recorded on the path of a get that
//! does not miss, but the mutex's own count of gets.
//!
//! Sums wrap: what another process wrote into a counter is some number, and no reason to panic.

use crate::histogram::{Histogram, SharedHistogram};
use crate::mode::Mode;
use crate::operation_log::{LocationId, MutexId};
use crate::sys::{AtomicU32, AtomicU64, Observed as _, Ordering};

macro_rules! counters {
    ($( $id:ident $name:literal $doc:literal; )*) => {
        /// A figure of a row of the cube.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Counter { $( #[doc = $doc] $id ),* }

        impl Counter {
            /// Every counter, in the order of the row.
            pub const ALL: &'static [Counter] = &[ $( Counter::$id ),* ];
            /// Column names, units last.
            pub const NAMES: &'static [&'static str] = &[ $( $name ),* ];
            /// What each of them counts.
            pub const DESCRIPTIONS: &'static [&'static str] = &[ $( $doc ),* ];
        }
    };
}

counters! {
    Misses "misses" "Requests that found the mutex busy at the first try: got within the first spin, or waits.";
    SpinGets "spin_gets" "Misses that ended within the first spin.";
    Busy "busy" "Tries that found the mutex busy: misses, and later spins whose first look did.";
    Waits "waits" "Misses whose first spin failed.";
    Yields "yields" "Steps that gave the processor away.";
    Sleeps "sleeps" "Timed sleeps that nobody could end.";
    Parks "parks" "Times in the queue.";
    Wakes "wakes" "Parks that a releaser ended.";
    GaveUp "gave_up" "Waits that ended without the mutex: deadline passed.";
    QueueFull "queue_full" "Steps that found no place in the queue.";
    WaitNs "wait_ns" "Time from the first failed spin to the end of the wait.";
    SpinNs "spin_ns" "Part of it spent spinning.";
    YieldNs "yield_ns" "Part of it spent in yields.";
    SleptNs "slept_ns" "Part of it slept as asked for, and parked until woken.";
    OverNs "over_ns" "Part of it slept longer than asked for: timer granularity and run queue.";
    MaxNs "max_ns" "Longest single wait.";
}

/// Number of counters.
pub const COUNTERS: usize = Counter::ALL.len();

/// Kinds of pthread objects, and whether an interposer handles them itself; it passes the rest on to libc.
/// The position is the number that [`interposer::count_call`](crate::interposer::count_call) takes.
pub const CALLS: [(&str, bool); 16] = [
    ("normal mutex", true),
    ("recursive mutex", true),
    ("errorcheck mutex", true),
    ("adaptive mutex", true),
    ("shared mutex", true),
    ("robust mutex", true),
    ("rwlock, read", true),
    ("rwlock, write", true),
    ("spin lock", true),
    ("condition", true),
    ("inheriting mutex", false),
    ("protecting mutex", false),
    ("shared condition", false),
    ("rwlock that prefers writers, write", false),
    ("destroyed or unknown mutex", false),
    ("shared condition with a private mutex", true),
];

/// What a row is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The mutex waited for.
    pub mutex: MutexId,
    /// Where in the code it was asked for.
    pub location: LocationId,
    /// The wait event.
    pub event: WaitEvent,
}

/// What a session waits for: the mode it asked for, and whether the holder kept out every mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct WaitEvent {
    /// Whether it is an event and no mutex: a semaphore's post, the last thread at a barrier, a condition's
    /// signal. An event has no holder.
    pub for_event: bool,
    /// The mode asked for.
    pub mode: Mode,
    /// Whether the holder had X or LX while S or E was asked for: a "wait on X".
    pub on_x: bool,
}

/// Types of what is waited for without being held, by the interposer's names.
pub const EVENT_TYPES: [&str; 4] = ["pthread semaphore", "pthread barrier", "pthread condition", "retrial condition"];

impl WaitEvent {
    /// The name in the source's form: `library cache: mutex X`, `cursor: pin S wait on X`.
    #[must_use]
    pub fn name(self, mutex_type: &str) -> String {
        if self.for_event {
            return mutex_type.to_owned();
        }
        let wait = if self.on_x { " wait on X" } else { "" };
        match mutex_type {
            "Cursor Pin" => format!("cursor: pin {}{wait}", self.mode),
            "Library Cache" => format!("library cache: mutex {}{wait}", self.mode),
            other => format!("{other}: mutex {}{wait}", self.mode),
        }
    }
}

impl Key {
    const VALID: u64 = 1 << 63;

    pub(crate) const fn pack(self) -> u64 {
        Self::VALID
            | (self.event.for_event as u64) << 51
            | (self.event.on_x as u64) << 50
            | (self.event.mode as u64) << 48
            | (self.location.0 as u64) << 32
            | self.mutex.0 as u64
    }

    pub(crate) const fn unpack(bits: u64) -> Option<Self> {
        if bits & Self::VALID == 0 {
            return None;
        }
        let Some(mode) = Mode::from_number((bits >> 48 & 3) as u8) else { return None };
        Some(Self {
            mutex: MutexId(bits as u32),
            location: LocationId((bits >> 32) as u16),
            event: WaitEvent { mode, on_x: bits >> 50 & 1 == 1, for_event: bits >> 51 & 1 == 1 },
        })
    }
}

/// A row of a session's cube.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct FiguresRow {
    key: AtomicU64,
    counters: [AtomicU64; COUNTERS],
    lengths: SharedHistogram,
}

// As small as `BUCKETS` says.
const _: () = assert!(size_of::<FiguresRow>() == 384);

impl FiguresRow {
    /// Adds to a counter. Only by the session that owns the row.
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        let cell = &self.counters[counter as usize];
        // Relaxed, and no RMW: one writer.
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Counts a wait that has ended after so long.
    pub(crate) fn ended(&self, wait_ns: u64) {
        self.add(Counter::WaitNs, wait_ns);
        self.lengths.count(wait_ns);
        let cell = &self.counters[Counter::MaxNs as usize];
        cell.store(cell.load(Ordering::Relaxed).max(wait_ns), Ordering::Relaxed);
    }

    /// Counts a wait that its session's death has cut off. Only by the recoverer of that session.
    pub(crate) fn end_cut_off(&self, took_ns: u64) {
        if let Some((_, before)) = self.read() {
            let mut after = before;
            after.add_wait_under_way(took_ns);
            self.add(Counter::SleptNs, after.get(Counter::SleptNs).wrapping_sub(before.get(Counter::SleptNs)));
            self.ended(took_ns);
        }
    }

    /// The row's key and figures, `None` while it is unused.
    pub(crate) fn read(&self) -> Option<(Key, Figures)> {
        // Acquire: pairs with the Release in `find`; the figures are of this key.
        let key = self.key()?;
        Some((key, self.figures()))
    }

    /// The row's key, `None` while it is unused.
    pub(crate) fn key(&self) -> Option<Key> {
        Key::unpack(self.key.acquire())
    }

    /// The figures, whatever the key.
    pub(crate) fn figures(&self) -> Figures {
        Figures {
            counters: std::array::from_fn(|i| self.counters[i].load(Ordering::Relaxed)),
            lengths: self.lengths.read(),
        }
    }

    /// Replaces the figures. Only by the row's writer.
    pub(crate) fn set(&self, figures: &Figures) {
        for (counter, value) in self.counters.iter().zip(&figures.counters) {
            counter.store(*value, Ordering::Relaxed);
        }
        self.lengths.set(&figures.lengths);
    }

    pub(crate) fn clear(&self) {
        self.set(&Figures::default());
        self.key.store(0, Ordering::Release);
    }
}

/// The position of the row for `key` among a session's rows, of which `used` are in use; the last row takes
/// what finds no place. `None` if it is a fresh row and `populate` does not get memory for it.
pub(crate) fn place_of(
    rows: &[FiguresRow],
    used: &AtomicU32,
    key: Key,
    populate: impl FnOnce(&FiguresRow) -> bool,
) -> Option<usize> {
    let (packed, last) = (key.pack(), rows.len().checked_sub(1)?);
    let in_use = (used.load(Ordering::Relaxed) as usize).min(rows.len());
    let known = rows[..in_use].iter().position(|row| row.key.load(Ordering::Relaxed) == packed);
    if known.is_some() || in_use > last {
        return known.or(Some(last));
    }
    if !populate(&rows[in_use]) {
        return None;
    }
    let of_many = Key { mutex: MutexId(0), location: LocationId(0), event: key.event }.pack();
    // Release: the counters of a fresh row are 0 for a reader that sees the key.
    rows[in_use].key.store(if in_use < last { packed } else { of_many }, Ordering::Release);
    used.store(u32::try_from(in_use + 1).unwrap_or(u32::MAX), Ordering::Relaxed);
    Some(in_use)
}

/// A value for every counter, and how long the waits were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// In the order of [`Counter::ALL`].
    pub counters: [u64; COUNTERS],
    /// The waits that have ended, also those that gave up, by their length. [`Counter::Waits`] counts those
    /// under way, too.
    pub lengths: Histogram,
}

impl Figures {
    /// The value of a counter.
    #[must_use]
    pub const fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// Adds those of another row; the longest wait is the longer one.
    pub fn add(&mut self, other: &Self) {
        for &counter in Counter::ALL {
            let (mine, theirs) = (&mut self.counters[counter as usize], other.get(counter));
            *mine = if matches!(counter, Counter::MaxNs) { (*mine).max(theirs) } else { mine.wrapping_add(theirs) };
        }
        self.lengths.add(&other.lengths);
    }

    /// Counts a wait under way as if it ended now, `took_ns` after it began. What no step of it has counted
    /// yet counts as slept: a spin or a yield would have been over long ago.
    pub(crate) fn add_wait_under_way(&mut self, took_ns: u64) {
        let parts = [Counter::SpinNs, Counter::YieldNs, Counter::SleptNs, Counter::OverNs];
        let all_ns = parts.iter().fold(0, |sum: u64, part| sum.wrapping_add(self.get(*part)));
        // The parts of finished waits add up to their time.
        let counted_ns = all_ns.saturating_sub(self.get(Counter::WaitNs));
        let mut add = |counter: Counter, ns: u64| {
            let cell = &mut self.counters[counter as usize];
            *cell = cell.wrapping_add(ns);
        };
        add(Counter::SleptNs, took_ns.saturating_sub(counted_ns));
        add(Counter::WaitNs, took_ns);
        self.counters[Counter::MaxNs as usize] = self.get(Counter::MaxNs).max(took_ns);
    }

    /// Growth since an earlier reading; the longest wait is that of the later one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut growth = *self;
        for &counter in Counter::ALL {
            if !matches!(counter, Counter::MaxNs) {
                growth.counters[counter as usize] = self.get(counter).saturating_sub(earlier.get(counter));
            }
        }
        growth.lengths = self.lengths.since(&earlier.lengths);
        growth
    }

    /// Steps that left the processor, as the source counts sleeps: yields, timed sleeps and parks.
    #[must_use]
    pub const fn sleeps(&self) -> u64 {
        self.get(Counter::Yields).wrapping_add(self.get(Counter::Sleeps)).wrapping_add(self.get(Counter::Parks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_packing() {
        for mode in Mode::ALL {
            for (on_x, for_event) in [(false, false), (true, false), (false, true)] {
                let event = WaitEvent { for_event, mode, on_x };
                let key = Key { mutex: MutexId(77), location: LocationId(3), event };
                assert_eq!(Key::unpack(key.pack()), Some(key));
            }
        }
        assert_eq!(Key::unpack(0), None);
    }

    #[test]
    fn events_have_the_sources_names() {
        let event = |mode, on_x| WaitEvent { mode, on_x, for_event: false };
        assert_eq!(event(Mode::Shared, true).name("Cursor Pin"), "cursor: pin S wait on X");
        assert_eq!(event(Mode::Exclusive, false).name("Library Cache"), "library cache: mutex X");
        assert_eq!(event(Mode::Examine, false).name("hash table"), "hash table: mutex E");
    }

    #[test]
    fn a_full_cube_counts_the_rest_in_its_last_row() {
        let rows: [FiguresRow; 4] = Default::default();
        let used = AtomicU32::new(0);
        let event = WaitEvent { mode: Mode::Exclusive, on_x: false, for_event: false };
        for mutex in 1..=6 {
            let key = Key { mutex: MutexId(mutex), location: LocationId(0), event };
            rows[place_of(&rows, &used, key, |_| true).unwrap()].add(Counter::Misses, 1);
        }
        let misses: Vec<u64> = rows.iter().filter_map(FiguresRow::read).map(|(_, f)| f.get(Counter::Misses)).collect();
        assert_eq!(misses, [1, 1, 1, 3]);
        let key = Key { mutex: MutexId(1), location: LocationId(0), event };
        assert_eq!(place_of(&rows, &used, key, |_| false), Some(0), "has memory");
        let none = AtomicU32::new(0);
        assert_eq!((place_of(&rows, &none, key, |_| false), none.load(Ordering::Relaxed)), (None, 0));
    }
}
