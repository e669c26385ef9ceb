//! Sessions of a recording that wait for each other.

use super::snapshot::{Session, State};
use super::store::{Recorded, Recording};
use super::{Snapshot, Span};
use crate::blocking::{self, Deadlock, Link};
use miette::Report;
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

/// The rings at the end of a part of a recording; else the last ones in it, and when they were over.
pub fn latest(recording: &Recording, from: Recorded, to: Recorded, span: &Span) -> Result<Vec<Deadlock>, Report> {
    let now = deadlocks(&span.to);
    if !now.is_empty() {
        return Ok(now);
    }
    let seen = recording.deadlocked(to.instance, from.id, to.id)?.map(|id| recording.snapshot(id)).transpose()?;
    let Some(seen) = seen.as_ref().or(span.from.as_ref()) else { return Ok(now) };
    let mut rings = deadlocks(seen);
    let seen_ns = seen.at.real_ns;
    for ring in &mut rings {
        let mut end_ns = seen_ns;
        for link in &ring.links {
            // A snapshot ends the samples before it.
            let later = recording.waited_until(to.instance, link.sid, link.since_ns, (seen_ns, to.at_ns))?;
            end_ns = end_ns.max(later.unwrap_or(0));
        }
        ring.ended_ns = Some(seen.at.monotonic_ns + (end_ns - seen_ns));
    }
    // One that stood at the begin may have been over then.
    let begin_ns = span.from.as_ref().map_or(0, |from| from.at.monotonic_ns);
    rings.retain(|ring| ring.ended_ns > Some(begin_ns));
    Ok(rings)
}
