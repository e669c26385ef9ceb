//! Which sessions hold what, wait for what, and wait for each other: all sessions of an instance at one look.
//!
//! A session's log says what it holds; the word of a mutex in the arena says who holds it. Threads under
//! `retrial run` write no log, and their mutexes lie in their processes' memory: these are read there, by the
//! address in the instance's table, where the kernel allows it.

use crate::run::record::{self, Format, Formats, Owner, RECORD, Record};
use retrial::sys::now_ns;
use retrial::views::{Key, Kind, LocationId, MutexInfo, Phase, Place, SessionInfo, Sid, Standing, Tables, Word};
use retrial::{Mode, MutexId};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

mod deadlock;

pub use deadlock::{Deadlock, Link, remedy, rings};

/// One look at an instance.
pub struct Look<'t> {
    tables: &'t Tables,
    /// By SID.
    pub sessions: Vec<SessionInfo>,
    /// What was read of mutexes in processes' memory.
    pub read: BTreeMap<MutexId, Read>,
    /// The words of mutexes in the arena, by number. Each is read once: two reads could name two holders of
    /// X.
    words: Vec<(MutexId, Word)>,
    /// Living sessions by their threads.
    threads: HashMap<u32, Sid>,
    by_session: HashMap<Sid, Vec<(MutexId, Mode)>>,
    by_mutex: HashMap<MutexId, Vec<(Sid, Mode)>>,
}

/// What a mutex in a process's memory was.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Its owner; `None` where its memory does not say.
    owner: Option<Owner>,
    /// Of a mutex of the library.
    pub word: Option<Word>,
    /// Its gets so far, where they are counted in it.
    gets: Option<u64>,
}

impl<'t> Look<'t> {
    /// With every mutex in the memory of a process.
    pub fn at_all(tables: &'t Tables) -> Self {
        Self::at(tables, &tables.mutexes(), |_| true)
    }

    /// With those in the memory of processes that are waited for.
    pub fn at_awaited(tables: &'t Tables) -> Self {
        let awaited: BTreeSet<MutexId> = tables.waits().map(|(_, key, _)| key.mutex).collect();
        Self::at(tables, &tables.mutexes(), |mutex| awaited.contains(&mutex.id))
    }

    /// At these mutexes, for callers that look again and again and have the list. `is_read` says which of the
    /// mutexes in processes' memory are read there: each costs a read of that memory.
    pub fn at(tables: &'t Tables, mutexes: &[MutexInfo], is_read: impl Fn(&MutexInfo) -> bool) -> Self {
        // The sessions first: a session that waits from before the mutexes are read until after that holds
        // all that time what was read.
        let mut sessions = tables.sessions();
        sessions.sort_by_key(|session| session.sid);
        let threads = sessions.iter().filter(|s| !s.dead).map(|session| (session.tid, session.sid)).collect();
        let word = |mutex: &MutexInfo| Some((mutex.id, tables.mutex_state(mutex.id)?.word));
        let mut words: Vec<(MutexId, Word)> = mutexes.iter().filter_map(word).collect();
        words.sort_unstable_by_key(|(mutex, _)| *mutex);
        // Two reads of one word could name two holders of it.
        let is_known = |id: MutexId| words.binary_search_by_key(&id, |(mutex, _)| *mutex).is_ok();
        let elsewhere = |mutex: &&MutexInfo| mutex.place != Place::Arena && !is_known(mutex.id);
        let read = read(tables, mutexes.iter().filter(elsewhere).filter(|mutex| is_read(mutex)));
        let (by_session, by_mutex) = (HashMap::new(), HashMap::new());
        let mut look = Self { tables, sessions, read, words, threads, by_session, by_mutex };
        look.match_up();
        look.end_waits();
        look
    }

    /// Takes sessions for what they were when the mutexes were read: one that has got what it waited for
    /// waits no more, and not for itself.
    fn end_waits(&mut self) {
        let got: Vec<usize> = (0..self.sessions.len()).filter(|at| self.has_got(&self.sessions[*at])).collect();
        for at in got {
            let SessionInfo { sid, wait, log, .. } = &self.sessions[at];
            let Some((key, since_ns, _)) = *wait else { continue };
            // A thread without a log may have locked its own mutex again, and waits for itself then.
            let is_logged = log.iter().any(|standing| standing.record.mutex == key.mutex);
            let now = self.tables.session_info(*sid).and_then(|session| session.wait);
            if is_logged || now.is_none_or(|(now, now_since_ns, _)| (now, now_since_ns) != (key, since_ns)) {
                self.sessions[at].wait = None;
            }
        }
    }

    /// Notes what each session holds.
    fn match_up(&mut self) {
        let by_log = |session: &SessionInfo| -> Vec<(Sid, MutexId, Mode)> {
            let held = session.log.iter().map(|standing| self.standing(session, standing));
            held.filter_map(|now| Some((session.sid, now.record.mutex, now.holds?))).collect()
        };
        let mut held: Vec<(Sid, MutexId, Mode)> = self.sessions.iter().flat_map(by_log).collect();
        let logged: HashSet<(Sid, MutexId)> = held.iter().map(|(sid, mutex, _)| (*sid, *mutex)).collect();
        // In the word, but in no log: a thread under `retrial run`, or a word that was poked.
        let in_arena = self.words.iter();
        let in_arena =
            in_arena.filter_map(|(mutex, word)| Some((word.sid(), *mutex, word.kind().and_then(Kind::mode)?)));
        let in_processes = self.read.iter().filter_map(|(id, read)| Some((self.owner(*read)?, *id, read.mode())));
        held.extend(in_arena.chain(in_processes).filter(|(sid, mutex, _)| !logged.contains(&(*sid, *mutex))));
        // Holders of several readers' mutex, and what a session holds, are in the same order at every look.
        held.sort_unstable_by_key(|(sid, mutex, _)| (*sid, *mutex));
        for (sid, mutex, mode) in held {
            self.by_session.entry(sid).or_default().push((mutex, mode));
            self.by_mutex.entry(mutex).or_default().push((sid, mode));
        }
    }

    /// What a record of a session's log means beside the word that this look has.
    fn standing(&self, session: &SessionInfo, then: &Standing) -> Standing {
        then.record.standing(session.sid, self.word(then.record.mutex), then.waits)
    }

    /// What a session holds.
    pub fn held(&self, sid: Sid) -> &[(MutexId, Mode)] {
        self.by_session.get(&sid).map_or(&[], Vec::as_slice)
    }

    /// Where a session got what it holds, by its log.
    pub fn held_at(&self, sid: Sid, mutex: MutexId) -> Option<LocationId> {
        let session = &self.sessions[self.sessions.binary_search_by_key(&sid, |session| session.sid).ok()?];
        let mut records = session.log.iter().map(|standing| standing.record);
        records.find(|record| record.mutex == mutex && record.phase != Phase::Left).map(|record| record.location)
    }

    /// Whether a session that waited when it was looked at has got that mutex since: the mutexes are read a
    /// moment later.
    pub fn has_got(&self, session: &SessionInfo) -> bool {
        let Some((key, ..)) = session.wait else { return false };
        let asks = |then: &Standing| then.record.mutex == key.mutex && self.standing(session, then).asks.is_some();
        self.held(session.sid).contains(&(key.mutex, key.event.mode)) && !session.log.iter().any(asks)
    }

    /// The sessions that hold a mutex, and their modes.
    pub fn holders(&self, mutex: MutexId) -> &[(Sid, Mode)] {
        self.by_mutex.get(&mutex).map_or(&[], Vec::as_slice)
    }

    /// The mutexes that are held.
    pub fn all_held(&self) -> impl Iterator<Item = MutexId> {
        self.by_mutex.keys().copied()
    }

    /// The same for people: `1 X`, `2 S, 3 S`, or nothing.
    pub fn holders_text(&self, mutex: MutexId) -> String {
        text(&self.holders(mutex).iter().map(|(sid, mode)| (*sid, Some(*mode))).collect::<Vec<_>>())
    }

    /// The holders of a mutex that a session waits for. With a log it is not one of them: a session that
    /// converts what it has does not wait for itself, and the library refuses gets that would.
    fn holders_for(&self, session: &SessionInfo, mutex: MutexId) -> impl Iterator<Item = (Sid, Mode)> {
        let is_logged = session.log.iter().any(|standing| standing.record.mutex == mutex);
        self.holders(mutex).iter().copied().filter(move |(holder, _)| !(is_logged && *holder == session.sid))
    }

    /// The holders of what a session waits for; where the mutex cannot be read, its holder at the session's
    /// last step.
    pub fn blockers(&self, session: &SessionInfo) -> Vec<(Sid, Option<Mode>)> {
        let Some((key, _, at_last_step)) = session.wait else { return Vec::new() };
        let now: Vec<_> = self.holders_for(session, key.mutex).map(|(sid, mode)| (sid, Some(mode))).collect();
        let is_read =
            self.word(key.mutex).is_some() || self.read.get(&key.mutex).is_some_and(|read| read.owner.is_some());
        if !now.is_empty() || is_read || at_last_step.is_none() {
            return now;
        }
        vec![(self.session_behind(at_last_step), None)]
    }

    /// Sessions that wait for each other, or for themselves: each ring once. None of them gets any further
    /// unless a deadline or another thread's unlock ends a wait.
    pub fn deadlocks(&self) -> Vec<Vec<Link>> {
        // A session that has waited for the same since before the mutexes were read holds now what was read.
        let still: BTreeSet<(Sid, Key, u64)> = self.tables.waits().collect();
        let links: BTreeMap<Sid, Vec<Link>> = (self.sessions.iter())
            .filter_map(|session| {
                let (key, since_ns, _) = session.wait?;
                let stays = still.contains(&(session.sid, key, since_ns));
                let holders = self.holders_for(session, key.mutex).map(|(holder, _)| holder);
                Some((session.sid, Link::all(session, holders).filter(|_| stays)?))
            })
            .collect();
        rings(&links)
    }

    /// Gets of a mutex so far: of its record in the arena, as noted when it went, or of its record in the
    /// memory of its process, which was another mutex's before where they are fewer than the `least` that are
    /// known of.
    pub fn gets(&self, mutex: &MutexInfo, least: u64) -> Option<u64> {
        let counted = self.tables.mutex_state(mutex.id).map_or(mutex.gets, |state| Some(state.gets));
        counted.or_else(|| self.read.get(&mutex.id)?.gets.filter(|gets| *gets >= least))
    }

    /// What a mutex is, for people; empty where it cannot be read.
    pub fn word_text(&self, mutex: MutexId) -> String {
        match (self.tables.mutex_state(mutex), self.read.get(&mutex)) {
            (Some(state), _) => state.word.to_string(),
            (None, Some(read)) => read.text(self),
            (None, None) => String::new(),
        }
    }

    /// The word of a mutex of the library.
    fn word(&self, mutex: MutexId) -> Option<Word> {
        let known = self.words.binary_search_by_key(&mutex, |(mutex, _)| *mutex).ok().map(|at| self.words[at].1);
        // A mutex that was made since then is in no list.
        let known = known.or_else(|| self.tables.mutex_state(mutex).map(|state| state.word));
        known.or_else(|| self.read.get(&mutex)?.word)
    }

    fn owner(&self, read: Read) -> Option<Sid> {
        match read.owner? {
            Owner::Nobody => None,
            Owner::Session(sid) => Some(self.session_behind(sid)),
            Owner::Thread(tid) => Some(self.session_behind(Sid::guest(tid))),
        }
    }

    /// A session of this look.
    pub fn session(&self, sid: Sid) -> Option<&SessionInfo> {
        self.sessions.binary_search_by_key(&sid, |session| session.sid).ok().map(|at| &self.sessions[at])
    }

    /// The session of a thread that is named by its id, where it has one.
    pub fn session_behind(&self, sid: Sid) -> Sid {
        sid.guest_tid().and_then(|tid| self.threads.get(&tid).copied()).unwrap_or(sid)
    }
}

impl Read {
    fn mode(&self) -> Mode {
        self.word.and_then(|word| word.kind().and_then(Kind::mode)).unwrap_or(Mode::Exclusive)
    }

    /// What it is, for people.
    fn text(&self, look: &Look<'_>) -> String {
        match (self.word, self.owner) {
            (Some(word), _) => word.to_string(),
            (None, None) => String::new(),
            (None, Some(Owner::Nobody)) => "free".to_owned(),
            (None, Some(_)) => look.owner(*self).map_or_else(String::new, |sid| format!("sid {sid} X")),
        }
    }
}

/// Reads mutexes in processes' memory: the ones that can be read and are the mutexes they are taken for.
fn read<'m>(tables: &Tables, mutexes: impl Iterator<Item = &'m MutexInfo>) -> BTreeMap<MutexId, Read> {
    let mut by_process: HashMap<u32, Vec<&MutexInfo>> = HashMap::new();
    for mutex in mutexes.filter(|mutex| mutex.address != 0 && mutex.gets.is_none()) {
        by_process.entry(mutex.pid).or_default().push(mutex);
    }
    let mut all = BTreeMap::new();
    if by_process.is_empty() {
        return all;
    }
    let (formats, mut buffer) = (Formats::of(tables), vec![[0; RECORD]; 512]);
    // Sessions count the gets of the interposer's mutexes, and a get takes more than a nanosecond.
    let (before_ns, before) = (now_ns(), tables.session_gets());
    for (pid, mutexes) in by_process {
        let mut left = &mutexes[..];
        while !left.is_empty() {
            let count = match record::read(pid, left.iter().map(|mutex| mutex.address), &mut buffer) {
                Ok(count) => count,
                Err(libc::EFAULT) => 0,
                // It is gone, or not ours to read.
                Err(_) => break,
            };
            for (mutex, bytes) in left.iter().zip(&buffer[..count]) {
                let format = formats.format(mutex.mutex_type);
                let record = Record::parse(bytes, format);
                let gets = match format {
                    // A mutex that is missed for the first time has no number yet.
                    Format::Library => record.ours(mutex.id, now_ns(), true).map(|(_, gets)| Some(gets)),
                    Format::Private => {
                        let most = before + now_ns().saturating_sub(before_ns);
                        record.ours(mutex.id, most, true).map(|(_, gets)| Some(gets))
                    }
                    Format::Libc => record.libcs().map(|(_, count)| count.map(u64::from)),
                    Format::Rwlock | Format::Spin => Some(None),
                };
                if let Some(gets) = gets {
                    all.insert(mutex.id, Read { owner: record.owner(), word: record.word(), gets });
                }
            }
            // The record after the last one that could be read is not there.
            let done = count + usize::from(count < left.len().min(buffer.len()));
            left = &left[done.min(left.len())..];
        }
    }
    all
}

/// What a session holds, for people: `m X, n S`.
pub fn held_text(held: impl Iterator<Item = (MutexId, Mode)>, mut name: impl FnMut(MutexId) -> String) -> String {
    held.map(|(mutex, mode)| format!("{} {mode}", name(mutex))).collect::<Vec<_>>().join(", ")
}

/// `1 X`, `2 S, 3 S`, or nothing.
pub fn text(holders: &[(Sid, Option<Mode>)]) -> String {
    let each = holders.iter().map(|(sid, mode)| mode.map_or_else(|| sid.to_string(), |mode| format!("{sid} {mode}")));
    each.collect::<Vec<_>>().join(", ")
}
