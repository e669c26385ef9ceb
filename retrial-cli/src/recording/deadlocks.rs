//! Sessions of a snapshot that wait for each other.

use super::Snapshot;
use super::snapshot::{Session, State};
use crate::blocking::{self, Deadlock, Link};
use retrial::views::Sid;
use std::collections::BTreeMap;

/// The rings of sessions in a snapshot that wait for each other.
pub fn deadlocks(snapshot: &Snapshot) -> Vec<Deadlock> {
    let links_of = |session: &Session| {
        let holders = session.blockers.iter().map(|(holder, _)| *holder);
        Some((session.info.sid, Link::all(&session.info, holders)?))
    };
    // A wait that ended while it was looked at is in no ring.
    let deadlocked = snapshot.sessions.iter().filter(|session| session.state == State::Deadlocked);
    let links: BTreeMap<Sid, Vec<Link>> = deadlocked.filter_map(links_of).collect();
    let named = |link: &Link| (snapshot.mutex_label(link.mutex), snapshot.place(link.location).to_owned());
    blocking::rings(&links).into_iter().map(|ring| Deadlock::named(ring, named)).collect()
}
