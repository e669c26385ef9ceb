//! Sessions of a snapshot that wait for each other.

use super::Snapshot;
use crate::blocking::{self, Deadlock, Link};
use retrial::views::Sid;
use std::collections::BTreeMap;

/// The rings of sessions in a snapshot that wait for each other.
pub fn deadlocks(snapshot: &Snapshot) -> Vec<Deadlock> {
    let mut links: BTreeMap<Sid, Vec<Link>> = BTreeMap::new();
    for session in &snapshot.sessions {
        let info = &session.info;
        let Some((key, since_ns, _)) = info.wait.filter(|_| !info.dead) else { continue };
        let link = |&(holder, _): &(Sid, _)| Link {
            sid: info.sid,
            pid: info.pid,
            tid: info.tid,
            mutex: key.mutex,
            mode: key.event.mode,
            location: key.location,
            since_ns,
            holder,
        };
        links.insert(info.sid, session.blockers.iter().map(link).collect());
    }
    let named = |link: &Link| (snapshot.mutex_label(link.mutex), snapshot.place(link.location).to_owned());
    blocking::rings(&links).into_iter().map(|ring| Deadlock::named(ring, named)).collect()
}
