//! Where a wait is recorded: counters, the ring of a session's wait traces, the sleep history.

use crate::instance::Instance;
use crate::operation_log::{Phase, Record};
use crate::probes;
use crate::session::Session;
use crate::stats::{Counter, FiguresRow, Key};
use crate::sys::{self, Ordering};
use crate::trace::{self, Note, What};
use crate::word::Sid;
use std::time::Duration;

/// What a wait is at.
#[derive(Clone, Copy)]
pub(crate) enum At {
    Spin,
    Yield,
    Sleep,
    Park,
}

/// Their names, in this order.
pub const STEPS: [&str; 4] = ["spin", "yield", "sleep", "park"];

/// Where a wait is recorded.
pub(crate) struct Recorder<'a> {
    pub(crate) session: Option<&'a Session<'a>>,
    row: Option<&'a FiguresRow>,
    pub(crate) key: Key,
    pub(crate) blocker: Sid,
}

impl<'a> Recorder<'a> {
    /// Of a wait of a session, if there is one: without one nothing is recorded, and nothing is counted where
    /// a full file system has no memory for it.
    pub(crate) fn new(session: Option<&'a Session<'a>>, key: Key, blocker: Sid) -> Self {
        let row = session.and_then(|session| session.instance.tables.segment.row(session.sid().number() as usize, key));
        Self { session, row, key, blocker }
    }

    pub(crate) fn add(&self, counter: Counter, n: u64) {
        if let Some(row) = self.row {
            row.add(counter, n);
        }
    }

    fn note(&self, now_ns: u64, what: What, asked_ns: u64, took_ns: u64) {
        if let Some(session) = self.session {
            let ring = session.instance.tables.segment.runs(session.sid().number() as usize);
            let step = Note { now_ns, key: self.key, blocker: self.blocker, what, asked_ns, took_ns };
            trace::note(ring, &session.slot.last_run, step);
        }
    }

    /// Notes a step that has been taken.
    pub(crate) fn step(&self, now_ns: u64, what: What, asked_ns: u64, took_ns: u64) {
        probes::step(self, what, asked_ns, took_ns);
        self.note(now_ns, what, asked_ns, took_ns);
    }

    /// Splits the time of a sleep or park into what was asked for and the rest.
    pub(crate) fn slept(&self, now: u64, what: What, asked: Duration, took_ns: u64) {
        let asked_ns = u64::try_from(asked.as_nanos()).unwrap_or(u64::MAX);
        self.add(Counter::SleptNs, took_ns.min(asked_ns));
        self.add(Counter::OverNs, took_ns.saturating_sub(asked_ns));
        self.step(now, what, asked_ns, took_ns);
    }

    pub(crate) fn begin(&self, now: u64, at: At) {
        self.add(Counter::Waits, 1);
        if let Some(session) = self.session {
            let slot = session.slot;
            slot.wait_since_ns.store(now, Ordering::Relaxed);
            self.is_at(at);
            // Release: a reader that finds the wait finds the rest of it.
            slot.wait.store(self.key.pack(), Ordering::Release);
        }
        probes::wait_begin(self);
        self.note(now, What::Began, 0, 0);
    }

    /// Notes what the wait is at, and which session has the mutex, for readers that cannot read that.
    pub(crate) fn is_at(&self, at: At) {
        if let Some(session) = self.session {
            session.slot.wait_is_at.store((at as u64) << 32 | u64::from(self.blocker.number()), Ordering::Relaxed);
        }
    }

    pub(crate) fn end(&self, started: u64, now: u64, what: What) {
        let took = now.saturating_sub(started);
        if let Some(session) = self.session {
            session.slot.wait.store(0, Ordering::Relaxed);
        }
        // Release: a reader that still finds the wait under way does not find its time in the row (pairs with
        // the
        // Acquire fence in `Tables::rows_until`).
        sys::fence(Ordering::Release);
        if let Some(row) = self.row {
            row.ended(took);
        }
        probes::wait_end(self, took, what);
        self.note(now, what, 0, took);
    }

    /// Replaces the row of the sleep history for this mutex and blocker.
    pub(crate) fn remember(&self, instance: &Instance, now: u64, gets: u64, sleeps: u32) {
        let Some(session) = self.session else { return };
        let key = u64::from(self.key.mutex.0) << 32 | u64::from(self.blocker.number());
        let rows = instance.tables.segment.history();
        let past = &rows[(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % rows.len()];
        let record = Record {
            phase: Phase::Getting,
            mode: self.key.event.mode,
            location: self.key.location,
            mutex: self.key.mutex,
        };
        past.at_ns.store(now, Ordering::Relaxed);
        past.waiter.store(u64::from(session.sid().number()), Ordering::Relaxed);
        past.what.store(record.pack(), Ordering::Relaxed);
        past.gets.store(gets, Ordering::Relaxed);
        past.sleeps.store(u64::from(sleeps), Ordering::Relaxed);
        past.key.store(key, Ordering::Release);
    }

    /// Writes which session waits, for how long and for whom, then what the holder is at.
    pub(crate) fn alert(&self, instance: &Instance, waited_ns: u64) {
        let (mutex, in_word) = (self.key.mutex, self.blocker);
        let holder = instance.tables.holder(mutex, in_word);
        instance.alert_line(format_args!(
            "session {} has waited {:.1} s for {} in {} at {}; held by {}",
            self.session.map_or(Sid::NONE, Session::sid),
            waited_ns as f64 / 1e9,
            self.key.event.mode,
            instance.tables.mutex_label(mutex),
            instance.tables.location_label(self.key.location),
            crate::text::written(|f| match holder {
                Some((holder, _)) => write!(f, "session {holder}"),
                None if in_word.is_none() => f.write_str("nobody by now"),
                None => write!(f, "{in_word}"),
            }),
        ));
        if let Some((holder, slot)) = holder {
            let label = instance.tables.holder_label(mutex, slot, !in_word.is_none());
            instance.alert_line(format_args!("session {holder} {label}"));
        }
    }
}
