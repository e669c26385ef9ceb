//! Samples who holds and who waits, again and again.

use super::snapshot::{Snapshot, State};
use super::store::{Holder, Rounds, Sample};
use crate::blocking::Look;
use retrial::sys::{Clock, clock_ns, now_ns};
use retrial::views::{Counter, LocationId, MutexInfo, Place, SessionInfo, Sid, Standing, Tables};
use retrial::{Mode, MutexId};
use retrial_model::profile::Samples;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Mutexes in processes' memory whose holders are sampled while nobody waits for them: those missed most.
/// Each is a read of that memory.
const CHOSEN: usize = 24;
/// The mutexes are read again after this time, and so many times as long as that takes.
const KNOWN_NS: u64 = 1_000_000_000;
const KNOWN_TIMES: u64 = 500;
/// Samples in a row are one up to this time.
const LONGEST_NS: u64 = 1_000_000_000;

/// Samples an instance.
pub struct Sampler<'t> {
    tables: &'t Tables,
    known: Vec<MutexInfo>,
    known_until_ns: u64,
    last_mutex: MutexId,
    /// Of mutexes in processes' memory, those that are sampled while nobody waits for them.
    chosen: HashSet<MutexId>,
    /// Misses by mutex at the last snapshot.
    misses: HashMap<MutexId, u64>,
    /// What has been seen of each mutex so far.
    seen: HashMap<MutexId, Samples>,
    /// Mutexes that have been sampled since the last snapshot.
    tallies: HashMap<MutexId, Tally>,
    rounds: Rounds,
    latest_ns: u64,
    /// Sessions that waited for each other at the latest round, and since when each did.
    ring: BTreeSet<(Sid, u64)>,
    /// Whether the round before had the same ring.
    ring_stands: bool,
    /// The ring that is in the latest snapshot.
    ring_shown: BTreeSet<(Sid, u64)>,
    /// Samples that may go on at the next round, by session, whether it waits, and mutex.
    open: HashMap<(Sid, bool, MutexId), (Sample, u64)>,
    done: Vec<Sample>,
}

/// What was seen of a mutex since the last snapshot, or since it was first looked at.
#[derive(Clone, Copy, Default)]
struct Tally {
    /// Rounds since the last snapshot that were over when it was first looked at.
    before: Rounds,
    /// Rounds that found it held, and their time.
    held: u64,
    held_ns: u64,
    /// Gets by then.
    gets: Option<u64>,
}

impl<'t> Sampler<'t> {
    pub fn new(tables: &'t Tables) -> Self {
        Self::after(tables, HashMap::new())
    }

    /// With what an earlier sampler had seen of the mutexes: what is seen only ever grows, and a period that
    /// begins in the earlier one's time has a difference.
    pub fn after(tables: &'t Tables, seen: HashMap<MutexId, Samples>) -> Self {
        crate::punctual::punctual();
        Self {
            tables,
            seen,
            known: Vec::new(),
            known_until_ns: 0,
            last_mutex: MutexId(0),
            chosen: HashSet::new(),
            misses: HashMap::new(),
            tallies: HashMap::new(),
            rounds: Rounds::default(),
            latest_ns: now_ns(),
            ring: BTreeSet::new(),
            ring_stands: false,
            ring_shown: BTreeSet::new(),
            open: HashMap::new(),
            done: Vec::new(),
        }
    }

    /// One look at all sessions, which stands for the time since the last one.
    pub fn round(&mut self) {
        let is_read_again = self.know_mutexes();
        let awaited: BTreeSet<MutexId> = self.tables.waits().map(|(_, key, _)| key.mutex).collect();
        let look =
            Look::at(self.tables, &self.known, |mutex| awaited.contains(&mutex.id) || self.chosen.contains(&mutex.id));
        let (real_ns, now) = (clock_ns(Clock::Realtime), now_ns());
        let length_ns = now.saturating_sub(self.latest_ns);
        self.latest_ns = now;
        self.rounds.rounds += 1;
        self.rounds.length_ns += length_ns;
        for mutex in look.all_held() {
            if let Some(tally) = self.tallies.get_mut(&mutex) {
                tally.held += 1;
                tally.held_ns += length_ns;
            }
        }
        if is_read_again {
            self.begin_tallies(&look);
        }
        let ring = ring(&look);
        self.ring_stands = ring == self.ring;
        self.ring = ring;
        let mut samples = Vec::new();
        for session in &look.sessions {
            let is_living = u64::from(!session.dead);
            self.rounds.sessions_ns += length_ns * is_living;
            // At the moment of its log, of which the share is right: it may hold or wait by that of the
            // words.
            let asks = session.log.iter().find(|standing| standing.is_busy || standing.waits);
            let holds = asks.is_none()
                && if session.log.is_empty() {
                    (session.wait.is_none() || look.has_got(session)) && !look.held(session.sid).is_empty()
                } else {
                    session.wait.is_none() && session.log.iter().any(|standing| standing.holds.is_some())
                };
            self.rounds.holding_ns += length_ns * is_living * u64::from(holds);
            if let Some(asked) = asks.filter(|standing| !standing.waits && !session.dead) {
                self.rounds.spinning_ns += length_ns;
                samples.push(Sample { length_ns, ..spins_first(&look, session, asked, real_ns) });
            }
            for (mutex, mode) in look.held(session.sid) {
                samples.push(Sample { length_ns, ..held(&look, session, *mutex, *mode, real_ns) });
            }
            samples.extend(Self::waiting(&look, session, real_ns).map(|sample| Sample { length_ns, ..sample }));
        }
        self.take(samples);
    }

    /// Whether the mutexes were read again. Those of processes' memory that have come since the last snapshot
    /// are sampled from now on, as long as there are few.
    fn know_mutexes(&mut self) -> bool {
        let (before, last) = (now_ns(), self.tables.last_mutex());
        if before < self.known_until_ns && last == self.last_mutex {
            return false;
        }
        self.known = self.tables.mutexes();
        self.last_mutex = last;
        let now = now_ns();
        self.known_until_ns = now + KNOWN_NS.max(KNOWN_TIMES * (now - before));
        for mutex in self.known.iter().filter(|mutex| mutex.place != Place::Arena) {
            if self.chosen.len() < CHOSEN {
                self.chosen.insert(mutex.id);
            }
        }
        true
    }

    /// Has the next rounds count the holders of mutexes that no round has counted yet. This round does not
    /// count: a mutex in a process's memory becomes known when it is missed, and is held then.
    fn begin_tallies(&mut self, look: &Look<'_>) {
        for mutex in &self.known {
            let is_read = self.chosen.contains(&mutex.id) && look.read.contains_key(&mutex.id);
            if is_read || mutex.place == Place::Arena {
                let begin = || Tally { before: self.rounds, gets: look.gets(mutex, 0), ..Tally::default() };
                self.tallies.entry(mutex.id).or_insert_with(begin);
            }
        }
    }

    fn waiting(look: &Look<'_>, session: &SessionInfo, at_ns: u64) -> Option<Sample> {
        let (key, since_ns, _) = session.wait.filter(|_| !session.dead)?;
        let blocker = look.blockers(session).first().map(|(sid, mode)| holder(look, *sid, *mode, key.mutex));
        Some(Sample {
            waits: true,
            mode: Some(key.event.mode),
            location: Some(key.location),
            on_x: key.event.on_x,
            for_event: key.event.for_event,
            since_ns: Some(since_ns),
            step: session.step,
            blocker,
            ..held(look, session, key.mutex, key.event.mode, at_ns)
        })
    }

    /// Notes what was seen: what goes on as before makes the sample before longer.
    fn take(&mut self, samples: Vec<Sample>) {
        let mut open = HashMap::with_capacity(samples.len());
        for sample in samples {
            let key = (sample.sid, sample.waits, sample.mutex);
            let earlier = self.open.remove(&key);
            let (sample, end_ns) = match earlier {
                Some((earlier, end_ns)) if goes_on(&earlier, &sample) => {
                    let (count, length_ns) = (earlier.count + 1, earlier.length_ns + sample.length_ns);
                    (Sample { count, length_ns, ..earlier }, end_ns)
                }
                earlier => {
                    self.done.extend(earlier.map(|(earlier, _)| earlier));
                    let end_ns = sample.at_ns + LONGEST_NS;
                    (sample, end_ns)
                }
            };
            if sample.at_ns + sample.length_ns >= end_ns {
                self.done.push(sample);
            } else {
                open.insert(key, (sample, end_ns));
            }
        }
        let ended = std::mem::replace(&mut self.open, open);
        self.done.extend(ended.into_values().map(|(sample, _)| sample));
    }

    /// Whether sessions wait for each other, have done so for two rounds, and are in no snapshot.
    pub fn has_new_ring(&self) -> bool {
        !self.ring.is_empty() && self.ring_stands && self.ring != self.ring_shown
    }

    /// How many samples there are that have not been taken.
    pub fn count(&self) -> usize {
        self.done.len() + self.open.len()
    }

    /// The samples that are complete.
    pub fn done(&mut self) -> Vec<Sample> {
        std::mem::take(&mut self.done)
    }

    /// Puts what was seen of the mutexes into a snapshot, ends all samples, none later than the snapshot, and
    /// says of how many rounds they are.
    pub fn complete(&mut self, snapshot: &mut Snapshot) -> (Vec<Sample>, Rounds) {
        let rounds = std::mem::take(&mut self.rounds);
        let mut misses: HashMap<MutexId, u64> = HashMap::new();
        for (_, key, figures) in snapshot.rows.iter().filter(|(_, key, _)| !key.event.for_event) {
            *misses.entry(key.mutex).or_default() += figures.get(Counter::Misses);
        }
        let mut tallies = HashMap::with_capacity(snapshot.mutexes.len());
        let mut seen = HashMap::with_capacity(snapshot.mutexes.len());
        for mutex in snapshot.mutexes.iter_mut().filter(|mutex| !mutex.is_event) {
            let id = mutex.info.id;
            let growth = self.tallies.remove(&id).map(|tally| tally.end(rounds, mutex.gets)).unwrap_or_default();
            mutex.samples = self.seen.remove(&id).unwrap_or_default().and(&growth);
            seen.insert(id, mutex.samples);
            // What is chosen from now on has been sampled all the time at the next snapshot.
            tallies.insert(id, Tally { gets: mutex.gets, ..Tally::default() });
        }
        self.seen = seen;
        let is_shown = snapshot.sessions.iter().any(|session| session.state == State::Deadlocked);
        self.ring_shown = if is_shown { self.ring.clone() } else { BTreeSet::new() };
        self.choose(snapshot, &misses);
        tallies.retain(|id, _| {
            snapshot.mutex(*id).is_some_and(|mutex| mutex.info.place == Place::Arena || self.chosen.contains(id))
        });
        (self.misses, self.tallies) = (misses, tallies);
        let open = std::mem::take(&mut self.open);
        self.done.extend(open.into_values().map(|(sample, _)| sample));
        let mut samples = self.done();
        for sample in &mut samples {
            sample.at_ns = sample.at_ns.min(snapshot.at.real_ns);
        }
        (samples, rounds)
    }

    fn choose(&mut self, snapshot: &Snapshot, misses: &HashMap<MutexId, u64>) {
        let growth = |id: &MutexId| misses[id].saturating_sub(self.misses.get(id).copied().unwrap_or(0));
        let mut missed: Vec<MutexId> = misses.keys().copied().collect();
        missed.retain(|id| snapshot.mutex(*id).is_some_and(|mutex| mutex.info.place != Place::Arena));
        missed.sort_by_key(|id| std::cmp::Reverse((growth(id), id.0)));
        self.chosen = missed.into_iter().take(CHOSEN).collect();
    }
}

impl Tally {
    /// What was seen, when the next snapshot counts so many gets.
    fn end(self, rounds: Rounds, gets: Option<u64>) -> Samples {
        let s = |ns: u64| ns as f64 / 1e9;
        Samples {
            looks: rounds.rounds - self.before.rounds,
            held: self.held,
            time_s: s(rounds.length_ns - self.before.length_ns),
            held_s: s(self.held_ns),
            gets: gets.unwrap_or(0).saturating_sub(self.gets.unwrap_or(0)),
        }
    }
}

/// Sessions that wait for each other, and since when each does, in whatever order they are found. They hold what
/// others wait for.
fn ring(look: &Look<'_>) -> BTreeSet<(Sid, u64)> {
    let may_be = look.sessions.iter().any(|session| session.wait.is_some() && !look.held(session.sid).is_empty());
    let rings = if may_be { look.deadlocks() } else { Vec::new() };
    rings.into_iter().flatten().map(|link| (link.sid, link.since_ns)).collect()
}

fn held(look: &Look<'_>, session: &SessionInfo, mutex: MutexId, mode: Mode, at_ns: u64) -> Sample {
    let location: Option<LocationId> = look.held_at(session.sid, mutex);
    Sample {
        at_ns,
        sid: session.sid,
        waits: false,
        mutex,
        count: 1,
        length_ns: 0,
        mode: Some(mode),
        location,
        on_x: false,
        for_event: false,
        since_ns: None,
        step: None,
        blocker: None,
        action: session.action.clone(),
    }
}

/// A session in its first spin. Each look is a sample of its own: whether it is the same spin is not known.
fn spins_first(look: &Look<'_>, session: &SessionInfo, asked: &Standing, at_ns: u64) -> Sample {
    let (record, mode) = (asked.record, asked.asks.unwrap_or(asked.record.mode));
    let beside = look.holders(record.mutex).iter().find(|(sid, _)| *sid != session.sid);
    let is_exclusive = |mode: Mode| matches!(mode, Mode::Exclusive | Mode::LongExclusive);
    Sample {
        waits: true,
        location: Some(record.location),
        on_x: !is_exclusive(mode) && beside.is_some_and(|(_, mode)| is_exclusive(*mode)),
        since_ns: Some(now_ns()),
        step: Some(retrial::views::STEPS[0]),
        blocker: beside.map(|(sid, mode)| holder(look, *sid, Some(*mode), record.mutex)),
        ..held(look, session, record.mutex, mode, at_ns)
    }
}

fn holder(look: &Look<'_>, sid: Sid, mode: Option<Mode>, mutex: MutexId) -> Holder {
    let (claimed_ns, pid) = look.session(sid).map_or((0, 0), |session| (session.claimed_ns, session.pid));
    Holder { sid, claimed_ns, pid, mode, location: look.held_at(sid, mutex) }
}

/// Whether a sample says the same as the one before.
fn goes_on(earlier: &Sample, sample: &Sample) -> bool {
    Sample { at_ns: sample.at_ns, count: sample.count, length_ns: sample.length_ns, ..earlier.clone() } == *sample
}
