//! One look at a process: which threads wait in futexes, for what, and which thread has that.

use super::futex::{Guess, Wait, is_shared};
use super::process::{Process, Sleeper};
use crate::blocking::{Link, rings};
use crate::run::record::SORT;
use crate::who::tree::{self, Tree};
use miette::Report;
use retrial::views::{LocationId, Sid};
use retrial::{Mode, MutexId};
use std::collections::{BTreeMap, HashMap};

/// Number of reads of a mutex that has no owner: it is between two of them for less time than a read takes.
const READS: usize = 8;

/// Looks at a process again and again, and knows the mutexes that were met.
pub struct Looker {
    pub process: Process,
    /// Kinds of the mutexes that threads have waited for, by address.
    known: BTreeMap<u64, Option<u32>>,
}

/// All threads of a process at one look.
#[derive(Debug, Default)]
pub struct Look {
    /// How many threads there are.
    pub threads: usize,
    /// The threads that wait in futexes.
    pub waits: Vec<Waiting>,
    /// What they wait for, by address, and the mutexes that were waited for before.
    pub futexes: Vec<Futex>,
    pub tree: Tree,
    /// Threads that wait for each other, each followed by the thread that it waits for.
    pub deadlocks: Vec<Vec<Link>>,
}

/// A thread that waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    pub sleeper: Sleeper,
    pub address: u64,
    /// How often it had been taken from a processor.
    switches: Option<(u64, u64)>,
}

/// What is waited for at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Futex {
    pub address: u64,
    pub what: What,
    pub waiters: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    Mutex {
        kind: Option<u32>,
        holder: Holder,
    },
    /// The end of this thread of the process.
    End(u32),
    /// A condition, a semaphore, or whatever else: its holder, if it has one, is not known.
    Event,
}

/// The thread that has a mutex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// No thread at this moment.
    Nobody,
    Thread(u32),
    /// A thread of another process, and its process.
    Other {
        tid: u32,
        pid: u32,
    },
    /// A thread that is not there, by the number that is in the mutex.
    Gone(u32),
}

impl Holder {
    /// Number of the thread.
    pub const fn tid(self) -> Option<u32> {
        match self {
            Self::Nobody => None,
            Self::Thread(tid) | Self::Other { tid, .. } | Self::Gone(tid) => Some(tid),
        }
    }
}

impl Looker {
    pub fn new(process: Process) -> Self {
        Self { process, known: BTreeMap::new() }
    }

    pub fn look(&mut self) -> Result<Look, Report> {
        let tids = self.process.threads()?;
        let mut waits: Vec<(Waiting, Wait)> = Vec::new();
        for tid in &tids {
            let Some(sleeper) = self.process.sleeper(*tid) else { continue };
            let Some(wait) = Wait::of(&sleeper.call, sleeper.is_in_futex) else { continue };
            let switches = self.process.switches(*tid);
            waits.push((Waiting { sleeper, address: wait.address, switches }, wait));
        }
        if waits.is_empty() {
            self.process.check()?;
        }
        let mut by_address: BTreeMap<u64, Vec<Wait>> = BTreeMap::new();
        for (_, wait) in &waits {
            by_address.entry(wait.address).or_default().push(*wait);
        }
        let of = |(address, waits): (&u64, &Vec<Wait>)| {
            let what = self.what(*address, waits, &tids);
            Futex { address: *address, what, waiters: waits.len() }
        };
        let mut futexes: Vec<Futex> = by_address.iter().map(of).collect();
        for futex in &futexes {
            if let What::Mutex { kind, .. } = futex.what {
                self.known.insert(futex.address, kind);
            }
        }
        futexes.extend(self.known_now(&by_address, &tids));
        futexes.sort_unstable_by_key(|futex| futex.address);
        let waits = waits.into_iter().map(|(waiting, _)| waiting).collect();
        let mut look = Look { threads: tids.len(), waits, futexes, ..Look::default() };
        look.deadlocks = self.deadlocks(&look);
        look.tree = look.tree();
        Ok(look)
    }

    /// The mutexes that were waited for before, and are not now.
    fn known_now(&self, waited: &BTreeMap<u64, Vec<Wait>>, tids: &[u32]) -> Vec<Futex> {
        let others = self.known.iter().filter(|(address, _)| !waited.contains_key(address));
        let now = others.filter_map(|(address, kind)| {
            let owner = self.process.found(*address)?.owner_of((*kind)?)?;
            let holder = self.holder(owner, *kind, tids);
            // Memory that has become something else may name any thread.
            let is_mutex = matches!(holder, Holder::Nobody | Holder::Thread(_)) || is_shared(*kind);
            let what = What::Mutex { kind: *kind, holder };
            is_mutex.then_some(Futex { address: *address, what, waiters: 0 })
        });
        now.collect()
    }

    /// What lies at an address that threads wait for.
    fn what(&self, address: u64, waits: &[Wait], tids: &[u32]) -> What {
        let mut without_owner = None;
        for _ in 0..READS {
            let Some(found) = self.process.found(address) else { break };
            // A robust mutex asks each waiter for the word that it found.
            let guesses = waits.iter().map(|wait| wait.guess(&found));
            let guess = guesses.reduce(|best, guess| if best == Guess::Other { guess } else { best });
            match guess.unwrap_or(Guess::Other) {
                Guess::Mutex { kind, owner: 0 } => without_owner = Some(kind),
                Guess::Mutex { kind, owner } => return What::Mutex { kind, holder: self.holder(owner, kind, tids) },
                Guess::End { tid } => return self.process.thread(tid, tids).map_or(What::Event, What::End),
                // A mutex that is given back in this moment.
                Guess::Other if self.known.contains_key(&address) => {}
                Guess::Other => return What::Event,
            }
        }
        // All zero but for a 2 is anything; it is a mutex if it was one before.
        match (self.known.get(&address), without_owner) {
            (Some(kind), _) => What::Mutex { kind: *kind, holder: Holder::Nobody },
            (None, Some(kind)) if kind.is_none_or(|kind| kind > SORT) => What::Mutex { kind, holder: Holder::Nobody },
            (None, _) => What::Event,
        }
    }

    /// Whether a mutex has the same holder now.
    pub fn is_still(&self, futex: &Futex) -> bool {
        let What::Mutex { kind, holder } = futex.what else { return false };
        let owner = self.process.found(futex.address).and_then(|found| found.owner_of(kind?));
        let tids: &[u32] = if let Holder::Thread(tid) = holder { &[tid] } else { &[] };
        kind.is_none() || owner.is_some_and(|owner| self.holder(owner, kind, tids) == holder)
    }

    /// By the number that the process knows a thread by.
    fn holder(&self, owner: u32, kind: Option<u32>, tids: &[u32]) -> Holder {
        if owner == 0 {
            return Holder::Nobody;
        }
        if let Some(tid) = self.process.thread(owner, tids) {
            return Holder::Thread(tid);
        }
        // A mutex of this process alone names a thread of another one where fork has copied it; else the
        // thread has ended, and its number is another's now.
        match self.process.other_process_of(owner) {
            Some(pid) if is_shared(kind) || self.process.descends_from(pid) => Holder::Other { tid: owner, pid },
            _ => Holder::Gone(owner),
        }
    }

    /// Threads that wait for each other and did so together: each has slept from the first look at it until
    /// after the last one's, and what they wait for had its holder then.
    fn deadlocks(&self, look: &Look) -> Vec<Vec<Link>> {
        let mut links: BTreeMap<Sid, Vec<Link>> = BTreeMap::new();
        for waiting in &look.waits {
            let (Some(mutex), Some(holder)) = (look.number(waiting.address), look.behind(waiting.address)) else {
                continue;
            };
            let (sid, tid, pid) = (Sid::guest(waiting.sleeper.tid), waiting.sleeper.tid, self.process.pid);
            let holder = Sid::guest(holder);
            let (mode, location) = (Mode::Exclusive, LocationId(0));
            links.entry(sid).or_default().push(Link { sid, pid, tid, mutex, mode, location, since_ns: 0, holder });
        }
        rings(&links).into_iter().filter(|ring| ring.iter().all(|link| self.stays(look, link))).collect()
    }

    /// Whether a thread still waits in the same sleep, for a mutex with the same holder, or for the end of the
    /// same thread.
    fn stays(&self, look: &Look, link: &Link) -> bool {
        let Some(before) = look.wait(link.tid) else { return false };
        let owner = self.process.found(before.address).and_then(|found| {
            let wait = Wait::of(&before.sleeper.call, before.sleeper.is_in_futex)?;
            match wait.guess(&found) {
                Guess::Mutex { owner: tid, .. } | Guess::End { tid } => {
                    self.process.thread(tid, &[link.holder.guest_tid()?])
                }
                Guess::Other => None,
            }
        });
        // The count is read after the call, both times: a thread that had slept anew would have a higher one.
        let is_same = self.process.sleeper(link.tid).as_ref() == Some(&before.sleeper);
        let is_asleep = before.switches.is_some() && self.process.switches(link.tid) == before.switches;
        owner.is_some() && is_same && is_asleep
    }
}

impl Look {
    /// The number of a mutex in this look; `None` of what is none.
    pub fn mutex(&self, address: u64) -> Option<MutexId> {
        self.number(address)
            .filter(|number| matches!(self.futex(*number), Some(Futex { what: What::Mutex { .. }, .. })))
    }

    /// The number of what is waited for at an address.
    fn number(&self, address: u64) -> Option<MutexId> {
        let at = self.futexes.binary_search_by_key(&address, |futex| futex.address).ok()?;
        u32::try_from(at + 1).ok().map(MutexId)
    }

    /// What has a number.
    pub fn futex(&self, mutex: MutexId) -> Option<&Futex> {
        self.futexes.get((mutex.0 as usize).checked_sub(1)?)
    }

    /// The thread that has a mutex, or whose end is waited for.
    fn behind(&self, address: u64) -> Option<u32> {
        match self.futex(self.number(address)?)?.what {
            What::Mutex { holder, .. } => holder.tid(),
            What::End(tid) => Some(tid),
            What::Event => None,
        }
    }

    pub fn wait(&self, tid: u32) -> Option<&Waiting> {
        let at = self.waits.binary_search_by_key(&tid, |waiting| waiting.sleeper.tid).ok()?;
        self.waits.get(at)
    }

    /// What a thread waits for.
    pub fn waits_for(&self, tid: u32) -> Option<&Futex> {
        let address = self.wait(tid)?.address;
        let at = self.futexes.binary_search_by_key(&address, |futex| futex.address).ok()?;
        self.futexes.get(at)
    }

    /// What is waited for and is no mutex, most waiters first.
    pub fn events(&self) -> Vec<Futex> {
        let is_event = |futex: &&Futex| !matches!(futex.what, What::Mutex { .. });
        let mut events: Vec<Futex> = self.futexes.iter().filter(is_event).copied().collect();
        events.sort_by_key(|futex| std::cmp::Reverse(futex.waiters));
        events
    }

    /// Threads that wait for an event.
    pub fn waiting_for_events(&self) -> usize {
        self.events().iter().map(|futex| futex.waiters).sum()
    }

    /// Waits for the end of a thread are in it where they are part of a deadlock.
    fn tree(&self) -> Tree {
        let links: HashMap<Sid, Sid> = self.deadlocks.iter().flatten().map(|link| (link.sid, link.holder)).collect();
        let wait = |waiting: &Waiting| {
            let sid = Sid::guest(waiting.sleeper.tid);
            let in_ring = || self.number(waiting.address).filter(|_| links.contains_key(&sid));
            Some(tree::Wait {
                sid,
                mutex: self.mutex(waiting.address).or_else(in_ring)?,
                // Since when is not known.
                since_ns: 0,
                holders: self.behind(waiting.address).map(Sid::guest).into_iter().collect(),
            })
        };
        Tree::new(self.waits.iter().filter_map(wait).collect(), &links)
    }
}
