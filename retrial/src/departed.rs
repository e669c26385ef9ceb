//! What departed sessions have counted: before another session gets a slot, the rows of the last one are
//! added to those of slot 0.
//!
//! Each row is added exactly once, whenever the claimer is killed. The sums are noted first; the note is then
//! in force; then the sums are stored and the row is cleared; then the note is taken back. A claimer that
//! finds a note in force repeats what follows it, which comes to the same however often.

use crate::addition::Addition;
use crate::fail;
use crate::instance::Instance;
use crate::segment::Segment;
use crate::stats::FiguresRow;
use crate::sys::{self, Ordering};

/// The next step is stored after all that was stored before it, also for a claimer that comes after a kill.
fn step() {
    sys::fence(Ordering::Release);
    fail::point();
}

impl Instance {
    /// Adds what the last session of a slot has counted to the sums of the departed, and leaves its rows
    /// empty. By the thread that has the lock of the tables and that of the slot. Whether there was memory
    /// for them.
    pub(crate) fn add_departed(&self, number: u32) -> bool {
        let segment = &self.tables.segment;
        let Some(slot) = segment.slot(number as usize) else { return false };
        let (rows, sums) = (segment.rows(number as usize), segment.rows(0));
        let used = (slot.rows_used.load(Ordering::Relaxed) as usize).min(rows.len());
        let addition = &segment.header().addition;
        for (position, row) in rows[..used].iter().enumerate() {
            let Some(key) = row.key() else { continue };
            let Some(to) = segment.place_of(0, key) else { return false };
            note_sum(addition, to, &sums[to], row);
            step();
            addition.from.store(u64::from(number) << 32 | position as u64, Ordering::Relaxed);
            step();
            finish(segment);
        }
        slot.rows_used.store(0, Ordering::Relaxed);
        true
    }

    /// Ends the addition in whose midst an earlier claimer was killed. By the thread that has the lock of the
    /// tables.
    pub(crate) fn finish_addition(&self) {
        finish(&self.tables.segment);
    }
}

/// Apart from what calls it: the stack of a program's thread may have few pages, and figures have 376 bytes.
#[inline(never)]
fn note_sum(addition: &Addition, to: usize, sum: &FiguresRow, row: &FiguresRow) {
    let mut sum = sum.figures();
    sum.add(&row.figures());
    addition.note(to, &sum);
}

/// What follows a note that is in force.
#[inline(never)]
fn finish(segment: &Segment) {
    let addition = &segment.header().addition;
    let Some((session, position)) = addition.from() else { return };
    let row = |session: u64, position: u64| -> Option<&FiguresRow> {
        segment.rows(usize::try_from(session).ok()?).get(usize::try_from(position).ok()?)
    };
    let (to, sums) = addition.to();
    // What another process wrote there may name no row.
    if let (Some(from), Some(to)) = (row(session, position), row(0, to)) {
        to.set(&sums);
        step();
        from.clear();
        step();
    }
    // Before the note is taken back: a reader that finds no note finds another number.
    addition.done.fetch_add(1, Ordering::Relaxed);
    step();
    addition.from.store(0, Ordering::Relaxed);
    step();
}
