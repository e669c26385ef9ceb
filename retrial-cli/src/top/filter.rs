//! What a typed text lets pass of the lists.

use super::seen::{MutexRow, Seen, SessionRow};
use retrial::views::{LocationId, Sid};
use std::collections::HashSet;

/// What a typed text lets pass: names and places that contain it, whatever the case.
pub struct Filter<'s> {
    wanted: String,
    seen: &'s Seen,
    /// Mutexes that have been waited for at such a place.
    waited_there: HashSet<retrial::MutexId>,
}

impl<'s> Filter<'s> {
    pub fn new(text: &str, seen: &'s Seen) -> Self {
        let wanted = text.to_lowercase();
        let mut filter = Self { wanted, seen, waited_there: HashSet::new() };
        if !filter.wanted.is_empty() {
            let to = seen.to();
            let places = to.places.iter().filter(|(_, place)| filter.has(place));
            let places: HashSet<LocationId> = places.map(|(id, _)| *id).collect();
            let rows = to.rows.iter().filter(|(_, key, _)| places.contains(&key.location));
            filter.waited_there = rows.map(|(_, key, _)| key.mutex).collect();
        }
        filter
    }

    fn has(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.wanted)
    }

    pub fn has_mutex(&self, row: &MutexRow<'_>) -> bool {
        self.wanted.is_empty()
            || self.has(&row.mutex.label())
            || self.has(row.to.type_name(row.mutex.info.mutex_type))
            || self.waited_there.contains(&row.mutex.info.id)
    }

    pub fn has_session(&self, row: &SessionRow<'_>) -> bool {
        let info = &row.session.info;
        let waits = |(key, ..): &(retrial::views::Key, u64, Sid)| {
            self.has(&self.seen.to().mutex_label(key.mutex)) || self.has(self.seen.to().place(key.location))
        };
        self.wanted.is_empty()
            || self.has(&info.name)
            || self.has(&info.action)
            || self.has(row.session.state.name())
            || info.pid.to_string() == self.wanted
            || info.tid.to_string() == self.wanted
            || info.wait.as_ref().is_some_and(waits)
            || row.session.holds.iter().any(|held| self.has(&self.seen.to().mutex_label(held.mutex)))
    }
}
