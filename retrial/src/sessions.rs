//! The sessions of an instance, as the views show them.

use crate::operation_log::{MutexId, Record};
use crate::slot::Slot;
use crate::stats::{CALLS, Figures, Key};
use crate::sys::{Observed as _, Ordering};
use crate::tables::Tables;
use crate::trace::Event;
use crate::word::Sid;
use std::fmt;

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
    /// What its log says.
    pub log: Vec<Record>,
    /// What it waits for, since when by the monotonic clock, and the SID that held it then.
    pub wait: Option<(Key, u64, Sid)>,
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
        let wait = Key::unpack(slot.wait.acquire()).map(|key| {
            let blocker = Sid::new(slot.wait_blocker.load(Ordering::Relaxed) as u32);
            (key, slot.wait_since_ns.load(Ordering::Relaxed), blocker)
        });
        Some(SessionInfo {
            sid,
            pid: slot.pid.load(Ordering::Relaxed),
            tid: slot.tid.load(Ordering::Relaxed),
            dead: slot.is_dead(),
            kept: slot.is_kept(),
            high_priority: slot.class.load(Ordering::Relaxed) != 0,
            name: slot.name.get(),
            action: slot.action.get(),
            claimed_ns: slot.claimed_ns.load(Ordering::Relaxed),
            log: slot.log.iter().filter_map(|cell| Record::unpack(cell.acquire())).collect(),
            wait,
            first_run: slot.earlier_runs.load(Ordering::Relaxed).wrapping_add(1),
            last_run: slot.last_run.acquire(),
        })
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

    /// Where that session got the mutex and what it is at: `has it in LX from reload; pid 812, tid 812, stopped`.
    pub(crate) fn holder_label<'a>(&'a self, mutex: MutexId, slot: &'a Slot, in_word: bool) -> impl fmt::Display {
        fmt::from_fn(move |f| {
            if let Some(record) = slot.has(mutex, in_word) {
                write!(f, "has it in {} from {}; ", record.mode, self.location_label(record.location))?;
            }
            slot.describe(f)
        })
    }

    /// Number of the latest run of steps of a session; 0 before its first. Cheap, to be polled.
    #[must_use]
    pub fn last_run(&self, sid: Sid) -> u64 {
        self.slot(sid).map_or(0, |slot| slot.last_run.acquire())
    }

    /// Every row of every session's figures, and those of departed sessions under [`Sid::NONE`].
    #[must_use]
    pub fn figures(&self) -> Vec<(Sid, Key, Figures)> {
        let all = std::iter::once(Sid::NONE).chain(self.sids());
        all.flat_map(|sid| {
            let slot = self.segment.slot(sid.number() as usize);
            let used = slot.map_or(0, |slot| slot.rows_used.acquire() as usize);
            let rows = self.segment.rows(sid.number() as usize);
            rows[..used.min(rows.len())].iter().filter_map(move |row| row.read().map(|(key, f)| (sid, key, f)))
        })
        .collect()
    }

    /// Gets counted by sessions rather than by mutexes, as interposers do.
    #[must_use]
    pub fn session_gets(&self) -> u64 {
        let all = std::iter::once(Sid::NONE).chain(self.sids());
        let slots = all.filter_map(|sid| self.segment.slot(sid.number() as usize));
        let gets = slots.map(|slot| slot.gets.load(Ordering::Relaxed));
        gets.fold(0, u64::wrapping_add)
    }

    /// Calls of interposers' functions so far, by [`CALLS`].
    #[must_use]
    pub fn calls(&self) -> [u64; CALLS.len()] {
        let mut sums = [0u64; CALLS.len()];
        let all = std::iter::once(Sid::NONE).chain(self.sids());
        for slot in all.filter_map(|sid| self.segment.slot(sid.number() as usize)) {
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
