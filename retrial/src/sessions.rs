//! The sessions of an instance, as the views show them.

use crate::operation_log::{MutexId, Record};
use crate::recorder::STEPS;
use crate::slot::Slot;
use crate::standing::Standing;
use crate::stats::{CALLS, Figures, Key};
use crate::sys::{self, Observed as _, Ordering, protocol};
use crate::tables::Tables;
use crate::trace::{Event, What};
use crate::word::Sid;
use std::fmt;
use std::time::Duration;

/// Looks at what changes meanwhile: at all rows while claims move some of them, at a record of a log. The
/// last look counts whatever it finds: a row that has moved may be in it twice, or not at all, until the next
/// reading.
const LOOKS: u32 = 8;

/// A session, as the views show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its SID.
    pub sid: Sid,
    /// Its process, in its own PID namespace.
    pub pid: u32,
    /// Its thread, in its own PID namespace.
    pub tid: u32,
    /// Whether its thread is gone and it has not been recovered.
    pub dead: bool,
    /// Whether its thread has ended with a leaked guard, and its process lives: what it holds stays held.
    pub kept: bool,
    /// Whether it is of the high priority class.
    pub high_priority: bool,
    /// Its name.
    pub name: String,
    /// Its action tag.
    pub action: String,
    /// When it began, by the monotonic clock.
    pub claimed_ns: u64,
    /// What it holds and what it asks for, by each record of its log.
    pub log: Vec<Standing>,
    /// What it waits for, since when by the monotonic clock, and the SID that held it at the last step. Not
    /// what it holds by its log.
    pub wait: Option<(Key, u64, Sid)>,
    /// What that wait is at, one of [`STEPS`](crate::views::STEPS); after a yield, a sleep or a park the same
    /// until the next one. A wait for an event is a park.
    pub step: Option<&'static str>,
    /// Number of its first run of steps, which may not have happened yet.
    pub first_run: u64,
    /// Number of the latest run of steps.
    pub last_run: u64,
}

impl Tables {
    /// Every session, living and dead.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.sids().filter_map(|sid| self.session_info(sid)).collect()
    }

    /// What is known of a session, `None` when there is none of this SID.
    #[must_use]
    pub fn session_info(&self, sid: Sid) -> Option<SessionInfo> {
        let slot = self.slot(sid).filter(|slot| slot.is_live())?;
        let is_at = slot.wait_is_at.load(Ordering::Relaxed);
        let wait = slot.wait_under_way().map(|(key, since_ns)| (key, since_ns, Sid::new(is_at as u32)));
        let log: Vec<Standing> = slot.log.iter().filter_map(|cell| self.standing(sid, slot, cell)).collect();
        // It ended between the two looks.
        let wait = wait.filter(|(key, ..)| {
            let mut of_it = log.iter().filter(|standing| standing.record.mutex == key.mutex);
            of_it.clone().any(|standing| standing.asks.is_some())
                || !of_it.any(|standing| standing.holds == Some(key.event.mode))
        });
        let step = wait.and_then(|_| STEPS.get((is_at >> 32) as usize).copied());
        Some(SessionInfo {
            sid,
            step,
            pid: slot.pid.load(Ordering::Relaxed),
            tid: slot.tid.load(Ordering::Relaxed),
            dead: slot.is_dead(),
            kept: slot.is_kept(),
            high_priority: slot.class.load(Ordering::Relaxed) != 0,
            name: slot.name.get(),
            action: slot.action.get(),
            claimed_ns: slot.claimed_ns.load(Ordering::Relaxed),
            log,
            wait,
            first_run: slot.earlier_runs.load(Ordering::Relaxed).wrapping_add(1),
            last_run: slot.last_run.acquire(),
        })
    }

    /// What a session stands for by a record of its log, which says the same before and after the look at the
    /// word: that was read within the same operation, or within another one of the same kind.
    fn standing(&self, sid: Sid, slot: &Slot, cell: &protocol::AtomicU64) -> Option<Standing> {
        let mut bits = cell.acquire();
        for look in 1.. {
            let record = Record::unpack(bits)?;
            let waits = slot.wait_under_way().is_some_and(|(key, _)| key.mutex == record.mutex);
            let word = self.mutex_state(record.mutex).map(|state| state.word);
            let now = cell.acquire();
            if now == bits || look == LOOKS {
                return Some(record.standing(sid, word, waits));
            }
            bits = now;
        }
        None
    }

    /// The session that keeps a mutex from being got: the one in its word, or the first one with a reference
    /// by its log.
    pub(crate) fn holder(&self, mutex: MutexId, in_word: Sid) -> Option<(Sid, &Slot)> {
        let found = if in_word.is_none() {
            self.sids().find(|sid| self.slot(*sid).is_some_and(|slot| slot.has(mutex, false).is_some()))?
        } else {
            in_word
        };
        Some((found, self.slot(found).filter(|slot| slot.is_live())?))
    }

    /// Where that session got the mutex and what it is at:
    /// `has it in LX from reload; pid 812, tid 812, stopped`.
    pub(crate) fn holder_label<'a>(&'a self, mutex: MutexId, slot: &'a Slot, in_word: bool) -> impl fmt::Display {
        crate::text::written(move |f| {
            if let Some(record) = slot.has(mutex, in_word) {
                write!(f, "has it in {} from {}; ", record.mode, self.location_label(record.location))?;
            }
            slot.describe(f)
        })
    }

    /// Whether the session has ended and another one has its slot: rows read by now may be that one's.
    #[must_use]
    pub fn is_followed(&self, session: &SessionInfo) -> bool {
        self.slot(session.sid).is_some_and(|slot| slot.claimed_ns.acquire() != session.claimed_ns)
    }

    /// Number of the latest run of steps of a session; 0 before its first. Cheap, to be polled.
    #[must_use]
    pub fn last_run(&self, sid: Sid) -> u64 {
        self.slot(sid).map_or(0, |slot| slot.last_run.acquire())
    }

    /// The first run of a session's wait under way that is remembered, the next run where there is none yet;
    /// and whether the wait began with it. What came before the session is that of another one, which had the
    /// slot.
    #[must_use]
    pub fn wait_began(&self, session: &SessionInfo) -> (u64, bool) {
        let mut first = session.last_run.wrapping_add(1);
        while first > session.first_run {
            match self.event(session.sid, first - 1).map(|run| run.what) {
                Some(What::Began) => return (first - 1, true),
                None | Some(What::Got | What::GaveUp) => return (first, false),
                Some(_) => first -= 1,
            }
        }
        (first, false)
    }

    /// Every row of every session's figures of mutexes, and those of departed sessions under [`Sid::NONE`]. A
    /// wait under way counts up to now; a wait that its session's death cut off counts up to its last step
    /// only.
    #[must_use]
    pub fn figures(&self) -> Vec<(Sid, Key, Figures)> {
        let mut rows = self.rows_until(self.now_while_living());
        rows.retain(|(_, key, _)| !key.event.for_event);
        rows
    }

    /// The same of waits for events, which have no holder.
    #[must_use]
    pub fn event_figures(&self) -> Vec<(Sid, Key, Figures)> {
        let mut rows = self.rows_until(self.now_while_living());
        rows.retain(|(_, key, _)| key.event.for_event);
        rows
    }

    fn now_while_living(&self) -> impl Fn(Sid, u64) -> Option<u64> {
        let now_ns = sys::now_ns();
        move |sid, _| self.slot(sid).is_some_and(|slot| !slot.is_dead()).then_some(now_ns)
    }

    /// Both together, where `end_ns` is told a session and the begin of its wait under way, and says up to
    /// when that counts.
    pub fn rows_until(&self, end_ns: impl Fn(Sid, u64) -> Option<u64>) -> Vec<(Sid, Key, Figures)> {
        let addition = &self.segment.header().addition;
        let mut all = Vec::new();
        for look in 0..LOOKS {
            if look > 0 {
                // A claim moves all rows of a session one after the other.
                sys::sleep(Duration::from_micros(10 << look));
            }
            let state = addition.state();
            all = self.rows_beside(state.1, &end_ns);
            // Acquire: pairs with the Release fences of a claimer that moves a row.
            sys::fence(Ordering::Acquire);
            if addition.state() == state {
                break;
            }
        }
        all
    }

    /// The same, while this addition is under way or was cut off.
    fn rows_beside(
        &self,
        adding: Option<(u64, u64)>,
        end_ns: impl Fn(Sid, u64) -> Option<u64>,
    ) -> Vec<(Sid, Key, Figures)> {
        let mut all = Vec::new();
        let sums = adding.map(|_| self.segment.header().addition.to());
        for (sid, slot) in self.all_slots() {
            let wait = slot.wait_under_way();
            let first = all.len();
            let rows = self.segment.rows(sid.number() as usize);
            let used = (slot.rows_used.acquire() as usize).min(rows.len());
            for (position, row) in (0..).zip(&rows[..used]) {
                let Some((key, figures)) = row.read() else { continue };
                // A claimer that was killed may have left a row half-way to those of the departed.
                if adding != Some((sid.number().into(), position)) {
                    let figures =
                        sums.filter(|(to, _)| sid.is_none() && *to == position).map_or(figures, |sums| sums.1);
                    all.push((sid, key, figures));
                }
            }
            // Acquire: pairs with the Release fence of a wait that ends, which says so before it counts its
            // time.
            sys::fence(Ordering::Acquire);
            let Some((key, since_ns)) = wait.filter(|_| slot.wait_under_way() == wait) else { continue };
            let Some(end_ns) = end_ns(sid, since_ns) else { continue };
            // What found no row of its own is in the one without a mutex.
            let own = all[first..].iter().position(|row| row.1 == key);
            let row = own.or_else(|| all[first..].iter().position(|row| row.1.mutex == MutexId(0)));
            if let Some(row) = row {
                all[first + row].2.add_wait_under_way(end_ns.saturating_sub(since_ns));
            }
        }
        all
    }

    /// Waits under way, also of dead sessions: the session, what it waits for, and since when by the
    /// monotonic clock. Cheap, to be polled.
    pub fn waits(&self) -> impl Iterator<Item = (Sid, Key, u64)> + use<'_> {
        self.sids().filter_map(|sid| {
            let (key, since_ns) = self.slot(sid)?.wait_under_way()?;
            Some((sid, key, since_ns))
        })
    }

    /// Whether a session's thread is gone and it has not been recovered. Cheap, to be polled.
    #[must_use]
    pub fn is_dead(&self, sid: Sid) -> bool {
        self.slot(sid).is_some_and(Slot::is_dead)
    }

    /// Whether the session of this number that began at this time, by the monotonic clock in ns, may live: it
    /// does, or this process has no room to map its slot. A number is used again.
    #[must_use]
    pub fn may_live_since(&self, sid: Sid, began_ns: u64) -> bool {
        let lives =
            |slot: &Slot| slot.is_live() && !slot.is_dead() && slot.claimed_ns.load(Ordering::Relaxed) == began_ns;
        let is_one = (1..=self.capacity().sessions).contains(&sid.number());
        is_one && self.slot(sid).is_none_or(lives)
    }

    /// Gets counted by sessions rather than by mutexes, as interposers do.
    #[must_use]
    pub fn session_gets(&self) -> u64 {
        let slots = self.all_slots();
        slots.fold(0, |sum, (_, slot)| sum.wrapping_add(slot.gets.load(Ordering::Relaxed)))
    }

    /// Threads under an interposer that have found no room for a session: their waits are in no row.
    #[must_use]
    pub fn threads_without_session(&self) -> u32 {
        self.segment.departed().told.load(Ordering::Relaxed)
    }

    /// Gets of each session, counted so. Those of the sessions that had its slot before are in the total only.
    pub fn gets_by_session(&self) -> impl Iterator<Item = (Sid, u64)> + use<'_> {
        self.all_slots().map(|(sid, slot)| {
            let earlier = slot.earlier_gets.load(Ordering::Relaxed);
            (sid, slot.gets.load(Ordering::Relaxed).wrapping_sub(earlier))
        })
    }

    /// The slots of all sessions, and that of the departed under [`Sid::NONE`].
    fn all_slots(&self) -> impl Iterator<Item = (Sid, &Slot)> + use<'_> {
        std::iter::once((Sid::NONE, self.segment.departed())).chain(self.slots())
    }

    /// Calls of interposers' functions so far, by [`CALLS`].
    #[must_use]
    pub fn calls(&self) -> [u64; CALLS.len()] {
        let mut sums = [0u64; CALLS.len()];
        for (_, slot) in self.all_slots() {
            for (sum, calls) in sums.iter_mut().zip(&slot.calls) {
                *sum = sum.wrapping_add(calls.load(Ordering::Relaxed));
            }
        }
        sums
    }

    /// A run of steps of a session, `None` when it was overwritten or has not happened.
    #[must_use]
    pub fn event(&self, sid: Sid, number: u64) -> Option<Event> {
        self.slot(sid)?;
        crate::trace::read(self.segment.runs(sid.number() as usize), number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Instance;
    use crate::mode::Mode;
    use crate::operation_log::LocationId;
    use crate::recorder::{At, Recorder};
    use crate::segment::Capacity;
    use crate::session::Class;
    use crate::stats::WaitEvent;

    #[test]
    fn a_wait_that_just_begins_has_no_runs_of_the_slots_last_session() {
        let instance = Instance::anonymous(Capacity { sessions: 1, ..Capacity::default() }).unwrap();
        let tables = &instance.tables;
        let event = WaitEvent { for_event: false, mode: Mode::Exclusive, on_x: false };
        let key = Key { mutex: MutexId(1), location: LocationId(0), event };
        let session = || instance.session("waiter", Class::Normal).unwrap();
        let found = |session: &crate::Session<'_>| tables.wait_began(&tables.session_info(session.sid()).unwrap());
        let first = session();
        let waits = Recorder::new(Some(&first), key, Sid::NONE);
        waits.begin(0, At::Spin);
        assert_eq!(found(&first), (1, true));
        waits.step(0, What::Yield, 0, 0);
        assert_eq!(found(&first), (1, true));
        // As of a session that is killed while it waits.
        drop(first);
        let second = session();
        // What it waits for is said before the run that tells of it.
        second.slot.wait.store(key.pack(), Ordering::Release);
        assert_eq!(found(&second), (3, false));
        Recorder::new(Some(&second), key, Sid::NONE).begin(0, At::Spin);
        assert_eq!(found(&second), (3, true));
    }
}
