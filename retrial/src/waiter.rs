//! The slow path: interprets a wait scheme with the real clock, for whatever can be waited for.

use crate::entries::{AdaptionCells, TypeId};
use crate::fail;
use crate::instance::Instance;
use crate::machine::Cost;
use crate::mode::Mode;
use crate::operation_log::{LocationId, MutexId, Record};
use crate::params::{P, Params};
use crate::parking::Parked;
use crate::session::Session;
use crate::stats::{Counter, Key, Row, WaitEvent};
use crate::sys::{self, Deadline, Ordering};

use crate::trace::{self, Note, What};
use crate::wait::{ADAPTIVE, Adaption, Attempt, Load, Scheme, Step};
use crate::word::Sid;
use std::fmt;
use std::time::Duration;

/// Something that can be waited for: a mutex in a mode, ours or in a foreign format.
pub trait Target {
    /// What a get gives.
    type Got;

    /// Whether a plain look finds it open. `handed`: also when it was handed over.
    fn is_open(&self, handed: bool) -> bool;

    /// One exchange.
    fn try_get(&self, handed: bool) -> Option<Self::Got>;

    /// Queues for a wake-up.
    fn park(&self, how: Park) -> Parked<Self::Got>;

    /// Called when a wait of at least one step has ended, with the target if it `got` it: others may have to be woken.
    fn ended(&self, got: bool) {
        let _ = got;
    }

    /// Whether a session whose time has passed may take what was handed over.
    fn may_take_handover_at_deadline(&self) -> bool {
        true
    }

    /// Asks the next release to hand over to the session that parked first, unless one did so within `interval`.
    fn ask_for_handover(&self, now_ns: u64, interval: Duration) {
        let _ = (now_ns, interval);
    }

    /// Sessions parked now.
    fn parked(&self) -> u32;

    /// Who holds it, and whether nobody can pass it in any mode.
    fn blocker(&self) -> (Sid, bool);

    /// Whether the session waits for itself.
    fn is_hopeless(&self) -> bool {
        false
    }

    /// Whether the session parks at once and stays parked until a release wakes it or its time has passed: no look of its own
    /// could tell a release from other memory in the same place.
    fn parks_at_once(&self) -> bool {
        false
    }

    /// Called before each step: looks whether the blocker is dead.
    fn look_after_blocker(&self) {}

    /// Gets so far.
    fn gets(&self) -> u64;

    /// Called by the holder: sends every get through the slow path, or no longer.
    fn set_attention(&self, on: bool) {
        let _ = on;
    }

    /// Wakes everybody who is parked, in queue order.
    fn wake_all(&self) {}
}

/// How a session parks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Park {
    /// Time to its look by itself, if it is the parked session that watches.
    pub watch: Duration,
    /// The same if another one watches: all of these together look so rarely that the number of parked sessions costs nothing.
    pub timeout: Duration,
    /// Time to its deadline.
    pub left: Duration,
    /// Whether releases need wake nobody while enough woken sessions are on their way.
    pub throttle: bool,
    /// Whether it may take what was handed over.
    pub handed: bool,
    /// Whether it has waited for longer than a handover to each of the parked sessions takes: handovers are to these first.
    pub overdue: bool,
}

impl Park {
    /// For so long for whatever a session does there.
    #[must_use]
    pub const fn lasting(time: Duration) -> Self {
        Self { watch: time, timeout: time, left: time, throttle: false, handed: true, overdue: false }
    }

    /// Longest sleep.
    #[must_use]
    pub fn lasts(&self, watches: bool) -> Duration {
        self.left.min(if watches { self.watch } else { self.timeout })
    }
}

/// What is wanted, for the figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// The mutex.
    pub mutex: MutexId,
    /// Its type, whose parameters hold.
    pub mutex_type: TypeId,
    /// Where in the code.
    pub location: LocationId,
    /// The mode.
    pub mode: Mode,
    /// Whether the session comes out of a condition's queue. Then it does not spin: the signaller most likely has the mutex still.
    pub from_queue: bool,
}

/// Why a wait ended without the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The deadline has passed.
    TimedOut,
    /// The session would wait for itself.
    Deadlock,
}

/// Who waits: an instance, whose parameters and tables are used, and a session if the thread has one.
#[derive(Clone, Copy, Debug)]
pub struct Waiter<'a> {
    /// The instance.
    pub instance: &'a Instance,
    /// The session; without one nothing is recorded.
    pub session: Option<&'a Session<'a>>,
}

/// Maximum pauses between two looks of a spin that backs off: about the time in which a cache line comes over and goes back twice.
const BACKS_OFF_TO: u32 = 32;

/// Looks without atomics, and tries the exchange when a look finds the target open. One that `backs_off` pauses twice as long after each
/// look, so that the holder's processor has the line for longer.
fn spin<T: Target>(target: &T, polls: u32, handed: bool, stops_at_lost_race: bool, backs_off: bool) -> Option<T::Got> {
    let (mut left, mut pauses) = (polls, 1);
    loop {
        if target.is_open(handed) {
            if let Some(got) = target.try_get(handed) {
                return Some(got);
            }
            if stops_at_lost_race {
                return None;
            }
        }
        if left == 0 {
            return None;
        }
        let now = pauses.min(left);
        left -= now;
        for _ in 0..now {
            sys::spin_loop();
        }
        if backs_off {
            pauses = (2 * pauses).min(BACKS_OFF_TO);
        }
    }
}

/// Where a wait is recorded.
struct Recorder<'a> {
    session: Option<&'a Session<'a>>,
    row: Option<&'a Row>,
    key: Key,
    blocker: Sid,
}

impl Recorder<'_> {
    fn add(&self, counter: Counter, n: u64) {
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

    /// Splits the time of a sleep or park into what was asked for and the rest.
    fn slept(&self, now: u64, what: What, asked: Duration, took_ns: u64) {
        let asked_ns = u64::try_from(asked.as_nanos()).unwrap_or(u64::MAX);
        self.add(Counter::SleptNs, took_ns.min(asked_ns));
        self.add(Counter::OverNs, took_ns.saturating_sub(asked_ns));
        self.note(now, what, asked_ns, took_ns);
    }

    fn begin(&self, now: u64) {
        self.add(Counter::Waits, 1);
        if let Some(session) = self.session {
            let slot = session.slot;
            slot.wait_since_ns.store(now, Ordering::Relaxed);
            slot.wait_blocker.store(u64::from(self.blocker.number()), Ordering::Relaxed);
            // Release: whoever finds the wait finds the rest of it.
            slot.wait.store(self.key.pack(), Ordering::Release);
        }
        self.note(now, What::Began, 0, 0);
    }

    /// Notes who has it now, for readers that cannot read the mutex.
    fn set_blocker(&mut self, blocker: Sid) {
        self.blocker = blocker;
        if let Some(session) = self.session {
            session.slot.wait_blocker.store(u64::from(blocker.number()), Ordering::Relaxed);
        }
    }

    fn end(&self, started: u64, now: u64, what: What) {
        let took = now.saturating_sub(started);
        if let Some(session) = self.session {
            session.slot.wait.store(0, Ordering::Relaxed);
        }
        // Release: a reader that still finds the wait under way does not find its time in the row (pairs with the Acquire fence in
        // `Tables::rows_until`).
        sys::fence(Ordering::Release);
        self.add(Counter::WaitNs, took);
        if let Some(row) = self.row {
            row.longest(took);
        }
        self.note(now, what, 0, took);
    }

    /// Replaces the row of the sleep history for this mutex and blocker.
    fn remember(&self, instance: &Instance, now: u64, gets: u64, sleeps: u32) {
        let Some(session) = self.session else { return };
        let key = u64::from(self.key.mutex.0) << 32 | u64::from(self.blocker.number());
        let rows = instance.tables.segment.history();
        let past = &rows[(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % rows.len()];
        let record = Record {
            phase: crate::operation_log::Phase::Getting,
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
}

/// A wait under way.
struct Wait<'a> {
    waiter: Waiter<'a>,
    recorder: Recorder<'a>,
    adaption: Option<&'a AdaptionCells>,
    want: Want,
    /// Read afresh before every step.
    params: Params,
    failed: u32,
    parks: u32,
    since_park: u32,
    /// Whether its last park was ended by a release, and it has neither got the target nor parked since.
    woken: bool,
    /// End of the first failed spin, and of the last step; by the monotonic clock.
    started: u64,
    /// End of its last park, or `started`.
    parked_ns: u64,
    last: u64,
    now: u64,
    alerted: bool,
}

impl<'a> Wait<'a> {
    fn begin<T: Target>(waiter: Waiter<'a>, target: &T, want: Want) -> Self {
        let instance = waiter.instance;
        let (blocker, exclusive) = target.blocker();
        let on_x = exclusive && matches!(want.mode, Mode::Shared | Mode::Examine);
        let key = Key {
            mutex: want.mutex,
            location: want.location,
            event: WaitEvent { mode: want.mode, on_x, for_event: false },
        };
        let row = waiter.session.map(|session| {
            let rows = instance.tables.segment.rows(session.sid().number() as usize);
            crate::stats::find(rows, &session.slot.rows_used, key)
        });
        let entry = instance.tables.mutex_entry(want.mutex);
        let wait = Self {
            waiter,
            recorder: Recorder { session: waiter.session, row, key, blocker },
            adaption: entry.map(|entry| &entry.adaption),
            want,
            params: instance.params(Some(want.mutex_type)),
            failed: 0,
            parks: 0,
            since_park: 0,
            woken: false,
            started: 0,
            parked_ns: 0,
            last: 0,
            now: 0,
            alerted: false,
        };
        wait.recorder.add(Counter::Misses, 1);
        wait.recorder.add(Counter::Busy, 1);
        if let Some(cells) = wait.adaptive() {
            cells.misses.fetch_add(1, Ordering::Relaxed);
        }
        wait
    }

    /// State of the controller, while `adaptive` is in force.
    fn adaptive(&self) -> Option<&'a AdaptionCells> {
        self.adaption.filter(|_| self.params.get(P::Scheme) == ADAPTIVE as u64)
    }

    fn attempt<T: Target>(&self, target: &T) -> Attempt<'_> {
        Attempt {
            params: &self.params,
            failed: self.failed,
            parks: self.parks,
            since_park: self.since_park,
            since_park_ns: self.now.saturating_sub(self.parked_ns),
            woken: self.woken,
            high_priority: self.waiter.is_high_priority(),
            parked: target.parked(),
            pthread_in_use: self.adaptive().is_some_and(|cells| cells.state.load(Ordering::Relaxed) & 1 == 1),
            queues: self.want.from_queue,
            poll_ns: u32::try_from(self.waiter.instance.tables.cost(Cost::Poll)).unwrap_or(u32::MAX),
            random: self.waiter.session.map_or(self.last, Session::random),
        }
    }

    fn scheme(&self) -> &'static dyn Scheme {
        crate::wait::scheme(self.params.get(P::Scheme))
    }

    /// Polls as long as the scheme says.
    fn spin<T: Target>(&mut self, target: &T) -> Option<T::Got> {
        let attempt = self.attempt(target);
        let (polls, handed) = (self.scheme().spins(&attempt), attempt.takes_handover(self.want.mode == Mode::Shared));
        if self.failed > 0 && !target.is_open(handed) {
            self.recorder.add(Counter::Busy, 1);
        }
        let backs_off = self.scheme().throttles_wakes();
        let got = spin(target, polls, handed, self.params.get(P::OnLostRace) != 0, backs_off)?;
        if self.failed == 0 {
            self.recorder.add(Counter::SpinGets, 1);
        } else {
            self.now = sys::now_ns();
            self.recorder.add(Counter::SpinNs, self.now.saturating_sub(self.last));
            self.ended_with(target);
        }
        Some(got)
    }

    /// Notes a failed spin. The time left until the deadline, `None` when it has passed.
    fn failed(&mut self, deadline: Option<Deadline>) -> Option<Duration> {
        self.now = sys::now_ns();
        if self.failed == 0 {
            self.started = self.now;
            self.parked_ns = self.now;
            self.recorder.begin(self.now);
        } else {
            self.recorder.add(Counter::SpinNs, self.now.saturating_sub(self.last));
        }
        let waited = self.now.saturating_sub(self.started);
        if !self.alerted && waited > self.params.get(P::AlertThreshold) * 1_000_000 {
            self.alerted = true;
            self.waiter.alert(&self.recorder, waited);
        }
        if waited > 1_000_000_000 {
            self.waiter.instance.search();
        }
        deadline.map_or(Some(Duration::MAX), Deadline::left)
    }

    /// At the deadline: also takes what was handed over, so that a short wait is not turned away for ever by a handover to
    /// the dead.
    fn last_try<T: Target>(&self, target: &T) -> Option<T::Got> {
        let got = target.try_get(target.may_take_handover_at_deadline());
        if got.is_some() {
            self.ended_with(target);
        } else {
            self.give_up(target);
        }
        got
    }

    fn give_up<T: Target>(&self, target: &T) {
        target.ended(false);
        self.recorder.add(Counter::GaveUp, 1);
        self.recorder.end(self.started, self.now, What::GaveUp);
    }

    /// Notes that a wait of at least one step has ended with the target.
    fn ended_with<T: Target>(&self, target: &T) {
        target.ended(true);
        self.recorder.end(self.started, self.now, What::Got);
    }

    /// Does what the scheme says next. `Some` when that gave the target.
    fn step<T: Target>(&mut self, target: &T, left: Duration) -> Option<T::Got> {
        // Read afresh: a change takes effect at the very next step.
        self.params = self.waiter.instance.params(Some(self.want.mutex_type));
        let step = self.scheme().step(&self.attempt(target));
        self.recorder.set_blocker(target.blocker().0);
        if step != Step::Yield || self.failed == 0 {
            self.recorder.remember(self.waiter.instance, self.now, target.gets(), self.failed + 1);
        }
        self.failed = self.failed.saturating_add(1);
        self.since_park = self.since_park.saturating_add(1);
        match step {
            Step::Yield => {
                sys::yield_now();
                self.last = sys::now_ns();
                let took = self.last.saturating_sub(self.now);
                self.recorder.add(Counter::Yields, 1);
                self.recorder.add(Counter::YieldNs, took);
                self.recorder.note(self.last, What::Yield, 0, took);
                None
            }
            Step::Sleep(asked) | Step::Overflow(asked) => {
                if matches!(step, Step::Overflow(_)) {
                    self.recorder.add(Counter::QueueFull, 1);
                }
                let asked = self.jittered(asked).min(left);
                sys::sleep(asked);
                self.last = sys::now_ns();
                self.recorder.add(Counter::Sleeps, 1);
                self.recorder.slept(self.last, What::Sleep, asked, self.last.saturating_sub(self.now));
                None
            }
            Step::Park(limit) => self.park(target, limit, left),
        }
    }

    /// The whole wait.
    fn in_one_park<T: Target>(&mut self, target: &T, deadline: Option<Deadline>) -> Option<T::Got> {
        const LONG: Duration = Duration::from_hours(1);
        let got = self.failed(deadline).and_then(|left| self.park(target, LONG, left));
        if got.is_none() {
            self.now = sys::now_ns();
            self.give_up(target);
        }
        got
    }

    fn park<T: Target>(&mut self, target: &T, limit: Duration, left: Duration) -> Option<T::Got> {
        let throttle = self.scheme().throttles_wakes();
        let attempt = self.attempt(target);
        let waited = Duration::from_nanos(self.now.saturating_sub(self.started));
        if throttle && let Some(interval) = attempt.asks_for_handover(waited, target.blocker().1) {
            target.ask_for_handover(self.now, interval);
        }
        let (watch, timeout) = attempt.looks(limit);
        let limit = timeout.min(left);
        let handed = attempt.takes_handover(self.want.mode == Mode::Shared);
        let overdue = throttle && attempt.is_overdue(waited);
        let parked = target.park(Park { watch, timeout, left, throttle, handed, overdue });
        self.woken = false;
        self.last = sys::now_ns();
        self.parks = self.parks.saturating_add(1);
        self.since_park = 0;
        self.parked_ns = self.last;
        self.recorder.add(Counter::Parks, 1);
        if let Some(cells) = self.adaptive() {
            cells.queue_sleeps.fetch_add(1, Ordering::Relaxed);
        }
        let what = if matches!(parked, Parked::TimedOut) {
            What::TimedOut
        } else {
            self.recorder.add(Counter::Wakes, u64::from(matches!(parked, Parked::Woken)));
            What::Woken
        };
        self.recorder.slept(self.last, what, limit, self.last.saturating_sub(self.now));
        match parked {
            Parked::Got(got) => {
                self.recorder.end(self.started, self.last, What::Got);
                Some(got)
            }
            Parked::Woken => {
                self.woken = true;
                None
            }
            Parked::Looked | Parked::TimedOut => None,
        }
    }

    /// The published sleeps are exact unless `sleep_jitter` is set.
    fn jittered(&self, asked: Duration) -> Duration {
        let half_width = self.params.get(P::SleepJitter) * 1000;
        match self.waiter.session {
            Some(session) if half_width != 0 && self.scheme().takes_jitter() => {
                let extra = Duration::from_nanos(session.random() % (2 * half_width));
                (asked + extra).saturating_sub(Duration::from_nanos(half_width))
            }
            _ => asked,
        }
    }
}

impl Waiter<'_> {
    fn is_high_priority(&self) -> bool {
        self.session.is_some_and(Session::is_high_priority)
    }

    /// Waits for the target after a first try has failed: spin, step, spin, step… by the scheme in force.
    ///
    /// # Errors
    ///
    /// [`Ended`].
    pub fn wait<T: Target>(&self, target: &T, want: Want, deadline: Option<Deadline>) -> Result<T::Got, Ended> {
        let mut wait = Wait::begin(*self, target, want);
        if target.parks_at_once() {
            return wait.in_one_park(target, deadline).ok_or(Ended::TimedOut);
        }
        loop {
            if let Some(got) = wait.spin(target) {
                if wait.adaptive().is_some() {
                    self.adapt(target, want.mutex, &wait.params);
                }
                return Ok(got);
            }
            let left = match wait.failed(deadline) {
                Some(_) if target.is_hopeless() => {
                    wait.give_up(target);
                    return Err(Ended::Deadlock);
                }
                Some(left) => left,
                None => return wait.last_try(target).ok_or(Ended::TimedOut),
            };
            // Before the first park too: who is parked already may be dead with the blocker.
            target.look_after_blocker();
            if let Some(got) = wait.step(target, left) {
                return Ok(got);
            }
        }
    }

    /// Writes who waits for how long and for whom, then what the holder is at.
    fn alert(&self, recorder: &Recorder<'_>, waited_ns: u64) {
        let instance = self.instance;
        let (mutex, in_word) = (recorder.key.mutex, recorder.blocker);
        let holder = instance.tables.holder(mutex, in_word);
        instance.alert_line(format_args!(
            "session {} has waited {:.1} s for {} in {} at {}; held by {}",
            recorder.session.map_or(Sid::NONE, Session::sid),
            waited_ns as f64 / 1e9,
            recorder.key.event.mode,
            instance.tables.mutex_label(mutex),
            instance.tables.location_label(recorder.key.location),
            fmt::from_fn(|f| match holder {
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

    /// Runs the controller of `adaptive`; the caller has just got the target.
    pub fn adapt<T: Target>(&self, target: &T, mutex: MutexId, params: &Params) {
        let Some(entry) = self.instance.tables.mutex_entry(mutex) else {
            // Its entry is another mutex's by now. Without one nobody would take the flag away.
            target.set_attention(false);
            return;
        };
        let cells = &entry.adaption;
        let state = cells.state.load(Ordering::Relaxed);
        if params.get(P::Scheme) as usize != ADAPTIVE {
            // Another scheme may have been set while pthread was in use.
            if state != 0 {
                cells.state.store(0, Ordering::Relaxed);
            }
            target.set_attention(false);
            return;
        }
        let growth = |now: u64, last: &sys::AtomicU64| now.saturating_sub(last.load(Ordering::Relaxed));
        let (gets, now) = (target.gets(), sys::now_ns());
        let misses = cells.misses.load(Ordering::Relaxed);
        let queue_sleeps = cells.queue_sleeps.load(Ordering::Relaxed);
        let load = Load {
            gets: growth(gets, &cells.last_gets),
            misses: growth(misses, &cells.last_misses),
            queue_sleeps: growth(queue_sleeps, &cells.last_queue_sleeps),
            queued: u64::from(target.parked()),
            elapsed_ns: growth(now, &cells.last_ns),
        };
        let before = Adaption { pthread_in_use: state & 1 == 1, streak: state >> 1 };
        let Some(after) = before.check(load, params) else { return };
        fail::point();
        cells.last_gets.store(gets, Ordering::Relaxed);
        cells.last_misses.store(misses, Ordering::Relaxed);
        cells.last_queue_sleeps.store(queue_sleeps, Ordering::Relaxed);
        cells.last_ns.store(now, Ordering::Relaxed);
        let switched = after.pthread_in_use != before.pthread_in_use;
        if switched {
            cells.switches.store(cells.switches.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            target.set_attention(after.pthread_in_use);
        }
        fail::point();
        // The type in use is stored last; then the queued sessions start over.
        cells.state.store(after.streak << 1 | u64::from(after.pthread_in_use), Ordering::Release);
        fail::point();
        if switched {
            target.wake_all();
        }
    }
}
