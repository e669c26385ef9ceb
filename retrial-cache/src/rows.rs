//! What sessions have pinned: a row for each, which only that session writes.
//!
//! A pin is a store into the session's own row, a fence, and a look at the object. A session that wants no pins
//! of an object says so in the object, has a fence, and reads the rows: a session whose pin is not seen there
//! sees what the object says. (As hazard pointers by Michael, 2004, and as BRAVO by Dice and Kogan, 2019.) A
//! dead session's pins count no more: its row has the time at which that session began, and no living session
//! of that number has begun then. The next session that finds so and asks for what the dead one has pinned
//! takes that time away: processes that have no room to map the session's slot take it for a living one.

use crate::error::CacheError;
use crate::layout::{Head, ObjectRef, PINS, Pinned, Row};
use retrial::sys::protocol::{AtomicU64, fence};
use retrial::views::{Sid, Tables};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// Pins of a row's first line, which is looked at always.
pub(crate) const FIRST_LINE: usize = if cfg!(loom) { 1 } else { 7 };

/// The rows of a cache.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'i> {
    pub(crate) all: &'i [Row],
    pub(crate) head: &'i Head,
    pub(crate) tables: &'i Tables,
}

/// A pin that was seen in a row.
pub(crate) struct Seen {
    pub(crate) sid: Sid,
    pub(crate) object: ObjectRef,
    pub(crate) how: Pinned,
}

impl<'i> Rows<'i> {
    pub(crate) fn row(&self, sid: Sid) -> Option<&'i Row> {
        self.all.get(sid.number() as usize)
    }

    /// Takes a row for a session that began then. Its figures go on from those of earlier sessions of this
    /// number.
    pub(crate) fn join(&self, sid: Sid, tag: u64) -> Result<&'i Row, CacheError> {
        let row = self.row(sid).ok_or(CacheError::OtherInstance)?;
        if row.tag.load(Relaxed) == tag {
            return Err(CacheError::Joined);
        }
        row.tag.store(0, Relaxed);
        self.head.rows_used.fetch_max(u64::from(sid.number()), Relaxed);
        // What a dead session of this number has left.
        row.pins.iter().for_each(|pin| pin.store(0, Relaxed));
        row.deep.store(0, Relaxed);
        // Release: with the tag come the pins' zeros.
        row.tag.store(tag, Release);
        Ok(row)
    }

    /// The rows that sessions have had.
    pub(crate) fn used(&self) -> &'i [Row] {
        let used = self.head.rows_used.load(Acquire) as usize;
        &self.all[..=used.min(self.all.len() - 1)]
    }

    /// Every pin of a living session that is asked for. What an object said before this call is seen by sessions
    /// whose pins are not seen here.
    pub(crate) fn seen(&self, is_asked: impl Fn(ObjectRef, Pinned) -> bool) -> Vec<Seen> {
        // SeqCst: pairs with the fence between a pin and the look at its object.
        fence(SeqCst);
        let mut seen = Vec::new();
        for (number, row) in self.used().iter().enumerate() {
            let tag = row.tag.load(Acquire);
            if tag == 0 {
                continue;
            }
            let sid = Sid::new(number as u32);
            let deep = (row.deep.load(Acquire) as usize).clamp(FIRST_LINE, PINS);
            let before = seen.len();
            for pin in row.pins[..deep].iter().map(|pin| pin.load(Acquire)).filter(|pin| *pin != 0) {
                let (object, how) = ObjectRef::of_pin(pin);
                if is_asked(object, how) {
                    seen.push(Seen { sid, object, how });
                }
            }
            // A session of this number that began at another time has not pinned them.
            if seen.len() > before && !self.tables.may_live_since(sid, tag) {
                seen.truncate(before);
                // For processes that have no room to map its slot.
                let _ = row.tag.compare_exchange(tag, 0, Release, Relaxed);
            }
        }
        seen
    }
}

/// A free place in a row.
#[inline]
pub(crate) fn free_place(row: &Row) -> Result<usize, CacheError> {
    let is_free = |pin: &AtomicU64| pin.load(Relaxed) == 0;
    let place = row.pins.iter().position(is_free).ok_or(CacheError::Pins { capacity: PINS })?;
    if place >= FIRST_LINE && row.deep.load(Relaxed) <= place as u64 {
        // Release: a session that reads the rows sees it no later than the pin, after the same fence.
        row.deep.store(place as u64 + 1, Release);
    }
    Ok(place)
}
