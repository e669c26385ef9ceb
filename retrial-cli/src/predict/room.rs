//! The threads of sessions, as the kernel knows them: their times, the processors that they may use, and what
//! others take of these.

use crate::cgroup;
use crate::output::whole;
use crate::recording::Spent;
use crate::who::thread::{State, Thread};
use retrial::views::{Phase, SessionInfo, Sid, Standing, Tables};
use retrial_bench::machine::Ticks;
use retrial_bench::process::own_cpu;
use retrial_model::Profile;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;

/// How busy each processor was so far, and the observer's own part of it.
#[derive(Clone)]
struct Use {
    each: BTreeMap<usize, Ticks>,
    observer_s: f64,
}

impl Use {
    fn now() -> Self {
        Self { each: Ticks::of_each(), observer_s: own_cpu().as_secs_f64() }
    }
}

/// The threads that the sessions have, or had at an earlier look.
#[derive(Clone)]
pub struct Room {
    used: Use,
    /// Their times, by session and thread: a SID is used again.
    times: HashMap<(Sid, u32), Spent>,
    /// Looks at each session, and how many of them found it away: asleep, and at no mutex.
    looks: HashMap<Sid, [u64; 2]>,
    /// Where each session may run.
    allowed: HashMap<Sid, (BTreeSet<usize>, u32)>,
    /// Processors that the groups of processes may use at a time, where they are limited.
    quotas: HashMap<u32, Option<f64>>,
    observer: BTreeSet<usize>,
}

impl Room {
    pub fn now(tables: &Tables) -> Self {
        let mut room = Self {
            used: Use::now(),
            times: HashMap::new(),
            looks: HashMap::new(),
            allowed: HashMap::new(),
            quotas: HashMap::new(),
            observer: allowed(0).unwrap_or_default(),
        };
        room.look(tables);
        room
    }

    /// Looks whether a session is away.
    pub fn look_at(&mut self, session: &SessionInfo) {
        // Sessions of the interposer have no log.
        let waits = session.wait.is_some_and(|(key, ..)| !key.event.for_event);
        let is_at_a_mutex = waits || at_mutexes(session).next().is_some();
        let state = if is_at_a_mutex { None } else { Thread::state_of(session.pid, session.tid) };
        let is_away = matches!(state, Some(State::Asleep | State::Uninterruptible));
        let [looks, away] = self.looks.entry(session.sid).or_default();
        *looks += 1;
        *away += u64::from(is_away);
    }

    /// Looks again. Of a thread that has ended the latest look counts.
    pub fn look(&mut self, tables: &Tables) {
        for session in tables.sessions() {
            self.look_at(&session);
            let (sid, pid, tid) = (session.sid, session.pid, session.tid);
            if let Some(spent) = Spent::of(pid, tid) {
                self.times.insert((sid, tid), spent);
            }
            if let Some(allowed) = allowed(tid) {
                self.allowed.insert(sid, (allowed, pid));
            }
            self.quotas.entry(pid).or_insert_with(|| quota(pid));
        }
        self.used = Use::now();
    }

    /// Puts into a profile how many these sessions are, the time of their threads since an earlier look, the
    /// processors that they may use, and what others took of these.
    pub fn put(&self, measured: &mut Profile, sessions: &HashSet<Sid>, earlier: &Self) {
        measured.sessions = u32::try_from(sessions.len()).ok().filter(|n| *n > 0);
        let times = || self.times.iter().filter(|((sid, _), _)| sessions.contains(sid));
        let known: HashSet<Sid> = times().map(|((sid, _), _)| *sid).collect();
        let grown = |of: fn(&Spent) -> u64| {
            let then = |thread| earlier.times.get(thread).map_or(0, of);
            // A thread may be older than its session, which began meanwhile.
            let most_ns = whole(measured.time_s * 1e9);
            let sum: u64 = times().map(|(thread, now)| of(now).saturating_sub(then(thread)).min(most_ns)).sum();
            (!known.is_empty() && known.len() == sessions.len()).then_some(sum as f64 / 1e9)
        };
        measured.cpu_s = grown(|spent| spent.cpu_ns);
        measured.queued_s = grown(|spent| spent.queued_ns);
        let sum = |i: usize| {
            let of =
                |room: &Self| sessions.iter().filter_map(|sid| room.looks.get(sid)).map(|found| found[i]).sum::<u64>();
            (of(self) - of(earlier)) as f64
        };
        let (looks, all_s) = (sum(0), sessions.len() as f64 * measured.time_s);
        measured.away_s = (looks > 0.0).then(|| all_s * sum(1) / looks);
        let of: Vec<&(BTreeSet<usize>, u32)> = sessions.iter().filter_map(|sid| self.allowed.get(sid)).collect();
        let set: BTreeSet<usize> = of.iter().flat_map(|(set, _)| set).copied().collect();
        if set.is_empty() {
            return;
        }
        let pids: HashSet<u32> = of.iter().map(|(_, pid)| *pid).collect();
        let quotas = pids.iter().map(|pid| self.quotas.get(pid).copied().flatten());
        // Processes of one group have one quota: the largest is no more than they may have together.
        let quota = quotas.reduce(|a, b| Some(a?.max(b?))).flatten();
        measured.processors = Some(quota.map_or(set.len() as f64, |quota| quota.min(set.len() as f64)));
        let busy_since = |cpu: &usize| self.used.each.get(cpu)?.busy_since(*earlier.used.each.get(cpu)?);
        let busy: Option<f64> = set.iter().map(busy_since).sum();
        measured.busy = busy.map(|busy| busy / set.len() as f64);
        let ours = self.observer.intersection(&set).count() as f64 / self.observer.len().max(1) as f64;
        let observer_s = ours * (self.used.observer_s - earlier.used.observer_s);
        let others = |busy, cpu_s| f64::max(busy * measured.time_s - cpu_s - observer_s, 0.0);
        measured.others_s = busy.zip(measured.cpu_s).map(|(busy, cpu_s)| others(busy, cpu_s));
    }
}

/// The mutexes that a session has, or asks for, by its log.
pub fn at_mutexes(session: &SessionInfo) -> impl Iterator<Item = &Standing> {
    session.log.iter().filter(|standing| standing.record.phase != Phase::Left)
}

/// Processors that a thread may run on; 0: the caller.
fn allowed(tid: u32) -> Option<BTreeSet<usize>> {
    // The kernel refuses a mask that is shorter than its own, which is of 8,192 processors at most.
    let mut mask = [0u64; 128];
    // SAFETY: `mask` is writable, and so long.
    let length =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, size_of_val(&mask), mask.as_mut_ptr().cast::<u8>()) };
    let bits = 8 * usize::try_from(length).ok()?;
    Some((0..bits).filter(|bit| mask[bit / 64] >> (bit % 64) & 1 == 1).collect())
}

/// Processors that a process may use at a time, by the quotas of its control groups.
fn quota(pid: u32) -> Option<f64> {
    cgroup::least(&cgroup::quotas(&|path| fs::read_to_string(path).ok(), &pid.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_is_asleep_at_no_mutex_is_away() {
        let instance = retrial::Instance::anonymous(retrial::Capacity::default()).unwrap();
        let mutex = instance.mutex("m", "test", || 0).unwrap();
        let session = |name| instance.session(name, retrial::Class::Normal).unwrap();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let holder = session("holds");
        std::thread::scope(|scope| {
            let guard = mutex.exclusive(&holder, retrial::location!()).unwrap();
            scope.spawn(move || {
                let _away = session("away");
                let _ = ends.recv();
            });
            scope.spawn(|| drop(mutex.exclusive(&session("waits"), retrial::location!()).unwrap()));
            let asleep = || {
                let sessions = instance.tables().sessions();
                sessions.iter().filter(|s| matches!(Thread::state_of(s.pid, s.tid), Some(State::Asleep))).count()
            };
            while asleep() < 2 {
                std::thread::yield_now();
            }
            let before = Room::now(instance.tables());
            let mut room = before.clone();
            let mut sessions = instance.tables().sessions();
            (0..10).for_each(|_| sessions.iter().for_each(|session| room.look_at(session)));
            // As those of the interposer.
            for session in &mut sessions {
                session.log.clear();
            }
            (0..10).for_each(|_| sessions.iter().for_each(|session| room.look_at(session)));
            let old = Spent { cpu_ns: 1_000_000_000_000, ..Spent::default() };
            room.times.insert((sessions[0].sid, 1), old);
            let mut measured = Profile { time_s: 12.0, ..Profile::default() };
            room.put(&mut measured, &sessions.iter().map(|session| session.sid).collect(), &before);
            drop((guard, end));
            assert_eq!((sessions.len(), measured.away_s), (3, Some(12.0)), "one of three");
            assert_eq!(measured.cpu_s, Some(12.0), "of 1,000 s of a thread that was there before");
        });
    }

    #[test]
    fn a_thread_may_run_on_as_many_processors_as_the_library_counts() {
        // Of a group's quota it counts no more.
        let allowed = allowed(0).unwrap();
        assert!(allowed.len() >= std::thread::available_parallelism().unwrap().get());
        assert_eq!(Ticks::of_each().keys().filter(|cpu| allowed.contains(cpu)).count(), allowed.len());
    }
}
