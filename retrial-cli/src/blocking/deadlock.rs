//! Sessions that wait for each other.

use crate::naming::Names;
use crate::output::in_line;
use retrial::views::{LocationId, SessionInfo, Sid, Tables};
use retrial::{Mode, MutexId};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A session that waits for a session that waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    pub sid: Sid,
    pub pid: u32,
    pub tid: u32,
    pub mutex: MutexId,
    pub mode: Mode,
    pub location: LocationId,
    /// Begin of the wait, by the monotonic clock.
    pub since_ns: u64,
    pub holder: Sid,
}

impl Link {
    /// From a session to each of the holders of what it waits for; `None` of one that does not wait, or is
    /// dead.
    pub fn all(session: &SessionInfo, holders: impl Iterator<Item = Sid>) -> Option<Vec<Self>> {
        let (key, since_ns, _) = session.wait.filter(|_| !session.dead)?;
        let link = |holder| Self {
            sid: session.sid,
            pid: session.pid,
            tid: session.tid,
            mutex: key.mutex,
            mode: key.event.mode,
            location: key.location,
            since_ns,
            holder,
        };
        Some(holders.map(link).collect())
    }
}

/// The rings among the links from session to session.
pub fn rings(links: &BTreeMap<Sid, Vec<Link>>) -> Vec<Vec<Link>> {
    let (mut found, mut done) = (Vec::new(), BTreeSet::new());
    for first in links.keys() {
        // The sessions from the first one to where we are, and how many links of each have been followed.
        let mut path: Vec<(Sid, usize)> = vec![(*first, 0)];
        while let Some((sid, followed)) = path.last_mut() {
            let next = links.get(sid).filter(|_| !done.contains(sid)).and_then(|links| links.get(*followed));
            let Some(link) = next else {
                done.insert(*sid);
                path.pop();
                continue;
            };
            *followed += 1;
            match path.iter().position(|(on_path, _)| *on_path == link.holder) {
                Some(start) => {
                    found.push(path[start..].iter().map(|(sid, followed)| links[sid][followed - 1].clone()).collect());
                }
                None => path.push((link.holder, 0)),
            }
        }
    }
    found
}

/// What keeps sessions from waiting for each other for these mutexes, in words.
pub fn remedy<'a>(mutexes: impl IntoIterator<Item = (MutexId, &'a str)>) -> String {
    let in_order: BTreeMap<MutexId, &str> = mutexes.into_iter().collect();
    match in_order.into_values().collect::<Vec<_>>().as_slice() {
        [one] => format!("it does not happen if {one} is released before the same session gets it again"),
        many => format!("it does not happen if all get these in one order, such as {}", many.join(", then ")),
    }
}

/// Sessions that wait for each other, with the names that mutexes and places had when that was seen.
#[derive(Clone, Debug)]
pub struct Deadlock {
    pub links: Vec<Link>,
    /// Of each link: the mutex and the place.
    names: Vec<(String, String)>,
    /// When it was seen to be over: by the monotonic clock.
    pub ended_ns: Option<u64>,
}

impl Deadlock {
    pub fn new(links: Vec<Link>, names: &mut Names<'_>) -> Self {
        Self::named(links, |link| (names.mutex(link.mutex), names.place(link.location)))
    }

    /// With the names of the mutex and the place of each link.
    pub fn named(links: Vec<Link>, of: impl FnMut(&Link) -> (String, String)) -> Self {
        let names = links.iter().map(of).collect();
        Self { links, names, ended_ns: None }
    }

    /// Whether the sessions wait still, or have died in these waits.
    pub fn lasts(&self, tables: &Tables) -> bool {
        let waits: BTreeSet<(Sid, u64)> = tables.waits().map(|(sid, _, since_ns)| (sid, since_ns)).collect();
        self.links.iter().all(|link| waits.contains(&(link.sid, link.since_ns)))
    }

    /// Since when all of them waited, and until when, which is `now_ns` unless it is over.
    fn lasted_s(&self, now_ns: u64) -> f64 {
        let since_ns = self.links.iter().map(|link| link.since_ns).max().unwrap_or(0);
        self.ended_ns.unwrap_or(now_ns).saturating_sub(since_ns) as f64 / 1e9
    }

    /// A line that says what it is, and one for each session: what it waits for, where, and held by which
    /// session.
    pub fn text(&self, now_ns: u64) -> String {
        let (count, s) = (self.links.len(), self.lasted_s(now_ns));
        let mut text = match (count, self.ended_ns) {
            (1, None) => format!("DEADLOCK: a session waits for itself, for {s:.1} s"),
            (_, None) => format!("DEADLOCK: {count} sessions wait for each other, for {s:.1} s"),
            (_, Some(_)) => {
                format!(
                    "DEADLOCK of {count} sessions for {s:.1} s, until a deadline, an unlock or the end of a session ended it"
                )
            }
        };
        for (link, (mutex, place)) in self.links.iter().zip(&self.names) {
            let (mutex, place) = (in_line(mutex), in_line(place));
            let Link { sid, pid, tid, mode, holder, .. } = link;
            let by = if holder == sid { "itself".to_owned() } else { format!("session {holder}") };
            let _ = write!(
                text,
                "\n  session {sid} (pid {pid}, tid {tid}) waits for {mode} of {mutex} at {place}, held by {by}"
            );
        }
        let mutexes = self.links.iter().zip(&self.names).map(|(link, (mutex, _))| (link.mutex, mutex.as_str()));
        text + "\n  " + &in_line(&remedy(mutexes))
    }

    pub fn json(&self, now_ns: u64) -> Value {
        let link = |(link, (mutex, place)): (&Link, &(String, String))| {
            json!({
                "sid": link.sid.number(),
                "pid": link.pid,
                "tid": link.tid,
                "mutex": mutex,
                "mode": link.mode.name(),
                "at": place,
                "held_by_sid": link.holder.number(),
            })
        };
        let links: Vec<Value> = self.links.iter().zip(&self.names).map(link).collect();
        json!({ "for_s": self.lasted_s(now_ns), "ended": self.ended_ns.is_some(), "sessions": links })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(edges: &[(u32, u32)]) -> BTreeMap<Sid, Vec<Link>> {
        let mut links: BTreeMap<Sid, Vec<Link>> = BTreeMap::new();
        for (sid, holder) in edges {
            let (sid, holder) = (Sid::new(*sid), Sid::new(*holder));
            let (mutex, mode, location) = (MutexId(1), Mode::Exclusive, LocationId(0));
            let link = Link { sid, pid: 1, tid: 1, mutex, mode, location, since_ns: 0, holder };
            links.entry(sid).or_default().push(link);
        }
        links
    }

    fn rings_of(edges: &[(u32, u32)]) -> Vec<Vec<u32>> {
        let found = rings(&links(edges));
        found.iter().map(|ring| ring.iter().map(|link| link.sid.number()).collect()).collect()
    }

    #[test]
    fn a_ring_is_found_once_and_who_waits_behind_it_is_not_in_it() {
        assert_eq!(rings_of(&[(2, 3), (3, 2), (4, 2)]), [vec![2, 3]]);
        assert_eq!(rings_of(&[(2, 3), (3, 2), (1, 3)]), [vec![3, 2]]);
        assert_eq!(rings_of(&[(5, 5)]), [vec![5]]);
        assert_eq!(rings_of(&[(1, 2), (2, 3), (4, 3)]), Vec::<Vec<u32>>::new());
        // One of several readers is in it.
        assert_eq!(rings_of(&[(1, 9), (1, 2), (2, 1)]), [vec![1, 2]]);
    }

    #[test]
    fn two_rings_are_two() {
        assert_eq!(rings_of(&[(1, 2), (2, 1), (3, 4), (4, 5), (5, 3)]), [vec![1, 2], vec![3, 4, 5]]);
    }
}
