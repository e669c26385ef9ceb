//! The tree of who waits for whom: each session that waits has one session above it, a holder of what it
//! waits for.

use crate::blocking::Look;
use retrial::MutexId;
use retrial::views::Sid;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Sessions that wait, each below a holder of what it waits for.
#[derive(Default, Debug)]
pub struct Tree {
    /// What is at the top: first sessions that wait for each other and get no further by themselves, then by
    /// how many wait behind.
    pub roots: Vec<Root>,
    /// The session that each one waits for.
    above: BTreeMap<Sid, Sid>,
    /// The sessions that wait for a mutex behind a holder: first the ones with sessions behind them, then the
    /// longest waits.
    below: HashMap<(Sid, MutexId), Vec<Sid>>,
    /// What each holder is waited for.
    awaited: BTreeMap<Sid, Vec<MutexId>>,
    /// How many wait behind a session, directly or not; of a session in a ring, behind the whole ring.
    behind: HashMap<Sid, usize>,
    /// Sessions that wait for each other.
    deadlocked: BTreeSet<Sid>,
    /// Of each ring the one that stands at the top.
    tops: BTreeSet<Sid>,
}

/// The top of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Root {
    /// A holder that waits for nobody.
    Holder(Sid),
    /// One of several that wait for each other.
    Ring(Sid),
    /// A mutex without a known holder: its readers are not noted, or it was given back just now.
    Unheld(MutexId),
}

/// A wait: of which session, for what, since when, and the holders.
#[derive(Clone, Debug)]
pub struct Wait {
    pub sid: Sid,
    pub mutex: MutexId,
    pub since_ns: u64,
    pub holders: Vec<Sid>,
}

impl Tree {
    /// Of the waits for mutexes of a look. Events, such as a semaphore's post, have no holder and are in no
    /// tree.
    pub fn of(look: &Look<'_>) -> Self {
        let waits = look.sessions.iter().filter(|session| !session.dead).filter_map(|session| {
            let (key, since_ns, _) = session.wait.filter(|(key, ..)| !key.event.for_event)?;
            let holders = look.blockers(session).into_iter().map(|(sid, _)| sid).collect();
            Some(Wait { sid: session.sid, mutex: key.mutex, since_ns, holders })
        });
        let links = look.deadlocks().into_iter().flatten().map(|link| (link.sid, link.holder)).collect();
        Self::new(waits.collect(), &links)
    }

    /// `rings`: of sessions that are known to wait for each other, for which session each one does.
    pub fn new(mut waits: Vec<Wait>, rings: &HashMap<Sid, Sid>) -> Self {
        waits.sort_by_key(|wait| (wait.since_ns, wait.sid));
        let mut tree = Self { deadlocked: rings.keys().copied().collect(), ..Self::default() };
        let mut unheld = BTreeSet::new();
        for wait in &waits {
            let above = rings.get(&wait.sid).or_else(|| wait.holders.first()).copied();
            match above {
                Some(above) => {
                    tree.above.insert(wait.sid, above);
                }
                None => {
                    unheld.insert(wait.mutex);
                }
            }
            tree.below.entry((above.unwrap_or(Sid::NONE), wait.mutex)).or_default().push(wait.sid);
            let awaited = tree.awaited.entry(above.unwrap_or(Sid::NONE)).or_default();
            if !awaited.contains(&wait.mutex) {
                awaited.push(wait.mutex);
            }
        }
        tree.count();
        tree.order();
        let waiting: HashSet<Sid> = waits.iter().map(|wait| wait.sid).collect();
        let holders = tree.awaited.keys().filter(|sid| !sid.is_none() && !waiting.contains(sid));
        let mut roots: Vec<Root> = holders.map(|sid| Root::Holder(*sid)).collect();
        tree.tops = tree.rings().into_iter().collect();
        roots.extend(tree.tops.iter().copied().map(Root::Ring));
        roots.extend(unheld.into_iter().map(Root::Unheld));
        roots.sort_by_cached_key(|root| {
            let of_mutex = |mutex| tree.waiters(Sid::NONE, mutex).iter().map(|sid| 1 + tree.behind(*sid)).sum();
            let behind = match root {
                Root::Holder(sid) | Root::Ring(sid) => tree.behind(*sid),
                Root::Unheld(mutex) => of_mutex(*mutex),
            };
            Reverse((matches!(root, Root::Ring(_)), behind))
        });
        tree.roots = roots;
        tree
    }

    /// Adds up how many wait behind each session: upwards from the ones behind which none waits.
    fn count(&mut self) {
        let mut open: HashMap<Sid, usize> = HashMap::new();
        for above in self.above.values() {
            *open.entry(*above).or_default() += 1;
        }
        let mut ready: Vec<Sid> = self.above.keys().filter(|sid| !open.contains_key(sid)).copied().collect();
        while let Some(sid) = ready.pop() {
            let Some(above) = self.above.get(&sid) else { continue };
            *self.behind.entry(*above).or_default() += 1 + self.behind.get(&sid).copied().unwrap_or(0);
            let left = open.entry(*above).or_default();
            *left -= 1;
            if *left == 0 {
                ready.push(*above);
            }
        }
        // What is left over waits for itself: all of a ring have the same behind them.
        for first in self.rings() {
            let ring: Vec<Sid> = self.ring(first).collect();
            let all = ring.iter().map(|sid| 1 + self.behind.get(sid).copied().unwrap_or(0)).sum::<usize>() - 1;
            self.behind.extend(ring.into_iter().map(|sid| (sid, all)));
        }
    }

    fn order(&mut self) {
        for waiters in self.below.values_mut() {
            // Stable: the longest waits stay first.
            waiters.sort_by_key(|sid| Reverse(self.behind.get(sid).copied().unwrap_or(0)));
        }
    }

    /// The session with the lowest SID of each ring.
    fn rings(&self) -> Vec<Sid> {
        let (mut lowest, mut done) = (Vec::new(), HashSet::new());
        for first in self.above.keys() {
            let (mut path, mut on_path, mut at) = (Vec::new(), HashSet::new(), Some(*first));
            while let Some(sid) = at
                && !done.contains(&sid)
                && on_path.insert(sid)
            {
                path.push(sid);
                at = self.above.get(&sid).copied();
            }
            if let Some(start) = path.iter().position(|sid| Some(*sid) == at) {
                lowest.extend(path[start..].iter().min());
            }
            done.extend(path);
        }
        lowest
    }

    /// The sessions of a ring from this one on, each followed by the one that it waits for.
    fn ring(&self, first: Sid) -> impl Iterator<Item = Sid> {
        let next = move |sid: &Sid| self.above.get(sid).copied().filter(|sid| *sid != first);
        std::iter::successors(Some(first), next)
    }

    /// How many wait behind a session.
    pub fn behind(&self, sid: Sid) -> usize {
        self.behind.get(&sid).copied().unwrap_or(0)
    }

    /// The mutexes for which others wait behind a session; of SID 0, the mutexes without a known holder.
    pub fn awaited(&self, sid: Sid) -> &[MutexId] {
        self.awaited.get(&sid).map_or(&[], Vec::as_slice)
    }

    /// Who waits for a mutex behind a session.
    pub fn waiters(&self, holder: Sid, mutex: MutexId) -> &[Sid] {
        self.below.get(&(holder, mutex)).map_or(&[], Vec::as_slice)
    }

    /// The session that this one waits for.
    pub fn above(&self, sid: Sid) -> Option<Sid> {
        self.above.get(&sid).copied()
    }

    /// Whether a session that waits is at the top, as one of those who wait for each other.
    pub fn is_top(&self, sid: Sid) -> bool {
        self.tops.contains(&sid)
    }

    pub fn is_deadlocked(&self, sid: Sid) -> bool {
        self.deadlocked.contains(&sid)
    }

    /// Every session that waits.
    pub fn len(&self) -> usize {
        self.below.values().map(Vec::len).sum()
    }

    /// Adds the holders of a mutex for which no session waits.
    pub fn add_holders(&mut self, mutex: MutexId, holders: impl Iterator<Item = Sid>) {
        for sid in holders {
            self.roots.push(Root::Holder(sid));
            self.awaited.insert(sid, vec![mutex]);
        }
    }

    /// Keeps only what has to do with a mutex: the sessions that wait for it, the ones behind these, and the
    /// holders for which they wait in turn.
    pub fn only(&mut self, mutex: MutexId) {
        let mut kept: HashSet<Sid> = HashSet::new();
        let mut open: Vec<Sid> = (self.below.iter().filter(|((_, of), _)| *of == mutex))
            .flat_map(|(_, waiters)| waiters.iter().copied())
            .collect();
        let mut above: Vec<Sid> = open.clone();
        while let Some(sid) = open.pop() {
            if kept.insert(sid) {
                open.extend(self.awaited(sid).iter().flat_map(|mutex| self.waiters(sid, *mutex)).copied());
            }
        }
        let mut chain: HashSet<Sid> = HashSet::new();
        while let Some(sid) = above.pop() {
            if chain.insert(sid) {
                above.extend(self.above(sid));
            }
        }
        kept.extend(chain);
        for waiters in self.below.values_mut() {
            waiters.retain(|sid| kept.contains(sid));
        }
        self.below.retain(|_, waiters| !waiters.is_empty());
        for (sid, awaited) in &mut self.awaited {
            awaited.retain(|mutex| self.below.contains_key(&(*sid, *mutex)));
        }
        self.roots.retain(|root| match root {
            Root::Holder(sid) | Root::Ring(sid) => kept.contains(sid),
            Root::Unheld(unheld) => *unheld == mutex,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits as `(session, mutex, holder)`, the longest first; holder 0 is none.
    fn tree(waits: &[(u32, u32, u32)], rings: &[(u32, u32)]) -> Tree {
        let wait = |(i, (sid, mutex, holder)): (usize, &(u32, u32, u32))| Wait {
            sid: Sid::new(*sid),
            mutex: MutexId(*mutex),
            since_ns: i as u64,
            holders: Some(Sid::new(*holder)).filter(|sid| !sid.is_none()).into_iter().collect(),
        };
        let rings = rings.iter().map(|(sid, holder)| (Sid::new(*sid), Sid::new(*holder))).collect();
        Tree::new(waits.iter().enumerate().map(wait).collect(), &rings)
    }

    fn numbers(sids: &[Sid]) -> Vec<u32> {
        sids.iter().map(|sid| sid.number()).collect()
    }

    #[test]
    fn who_waits_for_nobody_is_at_the_top_and_who_blocks_most_comes_first() {
        let tree = tree(&[(2, 10, 1), (3, 10, 1), (4, 11, 3), (5, 12, 3), (7, 13, 6)], &[]);
        assert_eq!(tree.roots, [Root::Holder(Sid::new(1)), Root::Holder(Sid::new(6))]);
        assert_eq!(numbers(tree.waiters(Sid::new(1), MutexId(10))), [3, 2], "3 has two behind it");
        assert_eq!(tree.awaited(Sid::new(3)), [MutexId(11), MutexId(12)]);
        assert_eq!([1, 3, 4, 6].map(|sid| tree.behind(Sid::new(sid))), [4, 2, 0, 1]);
        assert_eq!(tree.len(), 5);
    }

    #[test]
    fn a_ring_has_one_top_and_all_that_wait_behind_it_below() {
        let tree = tree(&[(3, 10, 2), (2, 11, 3), (4, 10, 2), (5, 12, 4)], &[(2, 3), (3, 2)]);
        assert_eq!(tree.roots, [Root::Ring(Sid::new(2))]);
        assert!(tree.is_deadlocked(Sid::new(3)) && !tree.is_deadlocked(Sid::new(4)));
        assert_eq!([2, 3, 4].map(|sid| tree.behind(Sid::new(sid))), [3, 3, 1]);
        let itself = super::tests::tree(&[(5, 10, 5)], &[(5, 5)]);
        assert_eq!((itself.roots.as_slice(), itself.behind(Sid::new(5))), (&[Root::Ring(Sid::new(5))][..], 0));
    }

    #[test]
    fn a_mutex_without_a_holder_is_at_the_top_itself() {
        let tree = tree(&[(2, 10, 0), (3, 11, 2)], &[]);
        assert_eq!(tree.roots, [Root::Unheld(MutexId(10))]);
        assert_eq!(numbers(tree.waiters(Sid::NONE, MutexId(10))), [2]);
    }

    #[test]
    fn what_has_to_do_with_a_mutex_is_who_waits_behind_it_and_whom_they_wait_for() {
        let mut tree = tree(&[(2, 10, 1), (3, 11, 2), (4, 12, 3), (5, 13, 2), (7, 14, 6)], &[]);
        tree.only(MutexId(11));
        assert_eq!(tree.roots, [Root::Holder(Sid::new(1))]);
        assert_eq!(tree.len(), 3, "5 waits behind 2, but for another mutex: {tree:?}");
        assert_eq!(tree.awaited(Sid::new(2)), [MutexId(11)]);
    }

    #[test]
    fn a_chain_of_many_is_counted_without_a_deep_stack() {
        let waits: Vec<(u32, u32, u32)> = (2..60_000).map(|sid| (sid, sid, sid - 1)).collect();
        assert_eq!(tree(&waits, &[]).behind(Sid::new(1)), 59_998);
    }
}
