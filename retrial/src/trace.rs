//! The steps of a session's waits, folded into runs as they happen: a ring with one writer that `trace`
//! reads.

use crate::operation_log::{LocationId, MutexId};
use crate::stats::{Key, WaitEvent};
use crate::sys::{AtomicU64, Observed as _, Ordering};
use crate::word::Sid;
use std::time::Duration;

/// What a run of equal events is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum What {
    /// A wait began: the first spin has failed.
    Began = 1,
    /// Yields.
    Yield = 2,
    /// Sleeps of one length.
    Sleep = 3,
    /// Parks that a releaser or a signal ended.
    Woken = 4,
    /// Parks that ended by their time-out.
    TimedOut = 5,
    /// The wait ended with the mutex.
    Got = 6,
    /// The wait ended without it: its deadline has passed.
    GaveUp = 7,
}

impl What {
    const ALL: [Self; 7] =
        [Self::Began, Self::Yield, Self::Sleep, Self::Woken, Self::TimedOut, Self::Got, Self::GaveUp];
}

impl What {
    /// The name, as the views show it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["began", "yield", "sleep", "woken", "timed_out", "got", "gave_up"][self as usize - 1]
    }
}

/// A run in shared memory.
#[repr(C, align(64))]
pub(crate) struct Run {
    /// Number of the run, from 1; written last. 0 while the rest is being written.
    number: AtomicU64,
    /// What and key's event.
    what: AtomicU64,
    key: AtomicU64,
    count: AtomicU64,
    asked_ns: AtomicU64,
    total_ns: AtomicU64,
    started_ns: AtomicU64,
    blocker: AtomicU64,
}

/// A run of equal events of one wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Number of the run within its session, from 1.
    pub number: u64,
    /// What happened.
    pub what: What,
    /// How often in a row.
    pub count: u64,
    /// Time asked for, of the last one.
    pub asked: Duration,
    /// Time taken, of all together.
    pub actual: Duration,
    /// Start of the first, by the monotonic clock.
    pub started_ns: u64,
    /// The mutex waited for.
    pub mutex: MutexId,
    /// Where in the code.
    pub location: LocationId,
    /// What is waited for.
    pub event: WaitEvent,
    /// Who held it.
    pub blocker: Sid,
}

/// An event as it is written.
#[derive(Clone, Copy)]
pub(crate) struct Note {
    pub(crate) now_ns: u64,
    pub(crate) key: Key,
    pub(crate) blocker: Sid,
    pub(crate) what: What,
    pub(crate) asked_ns: u64,
    pub(crate) took_ns: u64,
}

/// Writes runs. Only by the session that owns the ring; `last` is the number of the latest run.
pub(crate) fn note(ring: &[Run], last: &AtomicU64, event: Note) {
    let Note { now_ns, key, blocker, what, asked_ns, took_ns } = event;
    let number = last.load(Ordering::Relaxed);
    let current = &ring[(number % ring.len() as u64) as usize];
    let same = number != 0
        && matches!(what, What::Yield | What::Sleep | What::Woken | What::TimedOut)
        && current.what.load(Ordering::Relaxed) == what as u64
        && (what != What::Sleep || current.asked_ns.load(Ordering::Relaxed) == asked_ns);
    if same {
        current.asked_ns.store(asked_ns, Ordering::Relaxed);
        current.total_ns.store(current.total_ns.load(Ordering::Relaxed).wrapping_add(took_ns), Ordering::Relaxed);
        // Release: a reader that sees the count sees the time of it.
        current.count.store(current.count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        return;
    }
    // Wraps: another program may have written any number there.
    let after = number.wrapping_add(1);
    let next = &ring[(after % ring.len() as u64) as usize];
    // A reader that copies meanwhile sees the number change and drops its copy.
    next.number.store(0, Ordering::Relaxed);
    crate::sys::fence(Ordering::Release);
    next.what.store(what as u64, Ordering::Relaxed);
    next.key.store(key.pack(), Ordering::Relaxed);
    next.count.store(1, Ordering::Relaxed);
    next.asked_ns.store(asked_ns, Ordering::Relaxed);
    next.total_ns.store(took_ns, Ordering::Relaxed);
    next.started_ns.store(now_ns.saturating_sub(took_ns), Ordering::Relaxed);
    next.blocker.store(u64::from(blocker.number()), Ordering::Relaxed);
    next.number.store(after, Ordering::Release);
    last.store(after, Ordering::Release);
}

/// The run with this number, `None` when it was overwritten or has not happened.
pub(crate) fn read(ring: &[Run], number: u64) -> Option<Event> {
    let run = &ring[(number % ring.len() as u64) as usize];
    // Acquire: pairs with the Release of the number in `note`.
    if number == 0 || run.number.acquire() != number {
        return None;
    }
    let what = run.what.load(Ordering::Relaxed);
    let key = Key::unpack(run.key.load(Ordering::Relaxed))?;
    let event = Event {
        number,
        what: What::ALL.into_iter().find(|known| *known as u64 == what)?,
        count: run.count.acquire(),
        asked: Duration::from_nanos(run.asked_ns.load(Ordering::Relaxed)),
        actual: Duration::from_nanos(run.total_ns.load(Ordering::Relaxed)),
        started_ns: run.started_ns.load(Ordering::Relaxed),
        mutex: key.mutex,
        location: key.location,
        event: key.event,
        blocker: Sid::new(run.blocker.load(Ordering::Relaxed) as u32),
    };
    crate::sys::fence(Ordering::Acquire);
    (run.number.load(Ordering::Relaxed) == number).then_some(event)
}

impl Event {
    /// The line that `trace` prints: `yield() call repeated 99 times`, `sleep timeout=1 ms, actual 1.09 ms`.
    #[must_use]
    pub fn line(&self) -> String {
        let repeated = if self.count > 1 { format!(" call repeated {} times", self.count) } else { String::new() };
        let mean = self.actual / u32::try_from(self.count).unwrap_or(u32::MAX).max(1);
        match self.what {
            What::Began => format!("spin failed, {} wanted, blocked by sid {}", self.event.mode, self.blocker),
            What::Yield => format!("yield(){repeated}"),
            What::Sleep => format!("sleep timeout={}, actual {}{repeated}", ms(self.asked), ms(mean)),
            What::Woken => format!("park woken after {}{repeated}", ms(mean)),
            What::TimedOut => format!("park timeout={}, actual {}{repeated}", ms(self.asked), ms(mean)),
            What::Got => format!("got {} after {}", self.event.mode, long(self.actual)),
            What::GaveUp => format!("gave up after {}", long(self.actual)),
        }
    }
}

/// `49.3 s`, or as [`ms`] below a second.
fn long(time: Duration) -> String {
    if time < Duration::from_secs(1) { ms(time) } else { format!("{:.3} s", time.as_secs_f64()) }
}

/// `1 ms`, `1.09 ms`, `0.021 ms`.
fn ms(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    let text = if ms < 0.1 { format!("{ms:.4}") } else { format!("{ms:.2}") };
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} ms")
}
