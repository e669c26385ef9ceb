//! Look after look at a process: which share of them each mutex had a holder in, and how many threads waited.

use super::futex::kind_text;
use super::look::{Holder, Look, Looker, What};
use super::place::{Place, Places, label};
use crate::output::{Table, column};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Number of threads by which the first stack that is read moves from one look to the next.
const STEP: usize = 7;

/// What was seen of a process.
#[derive(Default)]
pub struct Samples {
    pub looks: u64,
    by_address: BTreeMap<u64, Seen>,
    /// Threads that were seen to have something, by their numbers.
    labels: HashMap<u32, String>,
}

/// What was seen of what lies at one address.
#[derive(Default)]
struct Seen {
    /// `None` of an event.
    kind: Option<String>,
    name: String,
    /// Looks since it was met.
    looks: u64,
    held: u64,
    waiting: u64,
    most: usize,
    holders: HashMap<u32, u64>,
    places: HashMap<String, u64>,
}

/// A mutex, or an event, for tables.
struct Row<'s> {
    address: u64,
    seen: &'s Seen,
    holder: Option<(String, u64)>,
    place: Option<&'s str>,
    total: u64,
}

impl Samples {
    /// Counts one look.
    pub fn add(&mut self, looker: &Looker, look: &Look, places: &mut Places) {
        self.looks += 1;
        for futex in &look.futexes {
            let seen = self
                .by_address
                .entry(futex.address)
                .or_insert_with(|| Seen { name: places.mutex(&looker.process, futex.address), ..Seen::default() });
            seen.waiting += futex.waiters as u64;
            seen.most = seen.most.max(futex.waiters);
            let What::Mutex { kind, holder } = futex.what else { continue };
            seen.kind = Some(kind_text(kind));
            if let Some(tid) = holder.tid() {
                seen.held += 1;
                *seen.holders.entry(tid).or_default() += 1;
                let other = if let Holder::Other { pid, .. } = holder { Some(pid) } else { None };
                self.labels.entry(tid).or_insert_with(|| label(&looker.process, tid, other));
            }
        }
        for seen in self.by_address.values_mut() {
            seen.looks += 1;
        }
        // Not all stacks are read: each look begins with another thread.
        let first = usize::try_from(self.looks).unwrap_or(0) * STEP % look.waits.len().max(1);
        let (before, after) = look.waits.split_at(first);
        for waiting in after.iter().chain(before) {
            let Place { call, at } = places.wait(&looker.process, &waiting.sleeper);
            if let Some(place) = at.or(call)
                && let Some(seen) = self.by_address.get_mut(&waiting.address)
            {
                *seen.places.entry(place).or_default() += 1;
            }
        }
    }

    /// Mean number of threads that waited for an event.
    pub fn waiting_for_events(&self) -> f64 {
        let events = self.by_address.values().filter(|seen| seen.kind.is_none());
        events.map(|seen| seen.waiting).sum::<u64>() as f64 / self.looks.max(1) as f64
    }

    /// The mutexes, most waited for first; then, for programs, the events and how long all was looked at.
    pub fn table(&self, over: Duration, with_events: bool) -> Table {
        let total = self.by_address.values().filter(|seen| seen.kind.is_some()).map(|seen| seen.waiting).sum();
        let mut rows: Vec<Row<'_>> =
            self.by_address.iter().map(|(address, seen)| self.row(*address, seen, total)).collect();
        rows.retain(|row| with_events || row.seen.kind.is_some());
        rows.sort_by_key(|row| (row.seen.kind.is_none(), std::cmp::Reverse(row.seen.waiting), row.address));
        let looks = self.looks.max(1) as f64;
        let of_mutex = |row: &Row<'_>, value: f64| row.seen.kind.is_some().then_some(value);
        let share = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
        Table::of(
            &[
                column("mutex", |row: &Row<'_>| row.seen.name.clone()),
                column("address", |row: &Row<'_>| format!("{:#x}", row.address)).for_programs(),
                column("kind", |row: &Row<'_>| row.seen.kind.clone().unwrap_or_else(|| "event".to_owned())),
                column("waiting_avg", move |row: &Row<'_>| row.seen.waiting as f64 / looks).rounded(3),
                column("waiting_max", |row: &Row<'_>| row.seen.most),
                column("waits_pct", move |row: &Row<'_>| of_mutex(row, share(row.seen.waiting, row.total))).rounded(2),
                column("held_pct", move |row: &Row<'_>| of_mutex(row, share(row.seen.held, row.seen.looks))).rounded(2),
                column("held_most_by", |row: &Row<'_>| row.holder.clone().map(|(name, _)| name)),
                column("held_most_pct", move |row: &Row<'_>| {
                    row.holder.as_ref().map(|(_, held)| share(*held, row.seen.held))
                })
                .rounded(2)
                .for_programs(),
                column("waited_most_at", |row: &Row<'_>| row.place),
                column("looks", |row: &Row<'_>| row.seen.looks).for_programs(),
                column("looked_s", move |_: &Row<'_>| over.as_secs_f64()).for_programs(),
            ],
            rows,
        )
    }

    fn row<'s>(&'s self, address: u64, seen: &'s Seen, total: u64) -> Row<'s> {
        let holder = seen.holders.iter().max_by_key(|(tid, held)| (**held, std::cmp::Reverse(**tid)));
        let holder = holder.map(|(tid, held)| (self.labels.get(tid).cloned().unwrap_or_default(), *held));
        let place = seen.places.iter().max_by_key(|(place, count)| (**count, std::cmp::Reverse(*place)));
        Row { address, seen, holder, place: place.map(|(place, _)| place.as_str()), total }
    }
}
