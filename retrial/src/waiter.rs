//! The slow path: interprets a wait scheme with the real clock, for whatever can be waited for.

use crate::aol::{LocationId, MutexId, Record};
use crate::instance::{Instance, TypeId};
use crate::mode::Mode;
use crate::params::{P, Params};
use crate::session::Session;
use crate::stats::{Counter, Key, Row, WaitEvent};
use crate::sys::{self, Deadline, Ordering};
use crate::trace::{self, What};
use crate::wait::{ADAPTIVE, Adaption, Attempt, Load, Scheme, Step};
use crate::word::Sid;
use std::time::Duration;

/// Something that can be waited for: a mutex in a mode, ours or in a foreign format.
pub trait Target {
    /// What a get gives.
    type Got;

    /// Whether a plain look finds it open. `handed`: also when it was handed over.
    fn is_open(&self, handed: bool) -> bool;

    /// One exchange.
    fn try_get(&self, handed: bool) -> Option<Self::Got>;

    /// Queues for a wake-up, for `timeout` at most. `throttle`: releases need wake nobody while a woken session is on its way.
    fn park(&self, timeout: Duration, throttle: bool) -> Parked<Self::Got>;

    /// Called when a session that was woken has got the target, and when it gave up (`got` is false): others may be woken.
    fn woken_is_done(&self, got: bool) {
        let _ = got;
    }

    /// Asks the next release to hand over to the session that parked first, unless one did so within `interval`.
    fn ask_for_handover(&self, now_ns: u64, interval: Duration) {
        let _ = (now_ns, interval);
    }

    /// Sessions parked now.
    fn parked(&self) -> u32;

    /// Who holds it, and whether nobody can pass it in any mode.
    fn blocker(&self) -> (Sid, bool);

    /// Called after each step: looks whether the blocker is dead.
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

/// How a park ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parked<G> {
    /// With the target: foreign formats queue and get in one.
    Got(G),
    /// A releaser woke us, or it was open at the last look.
    Woken,
    /// The time has passed.
    TimedOut,
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
}

/// The deadline has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedOut;

/// Who waits: an instance, whose parameters and tables are used, and a session if the thread has one.
#[derive(Clone, Copy, Debug)]
pub struct Waiter<'a> {
    /// The instance.
    pub instance: &'a Instance,
    /// The session; without one nothing is recorded.
    pub session: Option<&'a Session<'a>>,
}

/// Time of a poll of the word, for schemes that spin by time. In ns, at least 1.
pub(crate) fn measure_poll_ns() -> u64 {
    const POLLS: u64 = 2000;
    let word = sys::AtomicU64::new(1);
    let round = || {
        let start = sys::now_ns();
        for _ in 0..POLLS {
            if std::hint::black_box(&word).load(Ordering::Relaxed) == 0 {
                break;
            }
            std::hint::spin_loop();
        }
        (sys::now_ns() - start) / POLLS
    };
    // The least of several: the others were interrupted.
    (0..5).map(|_| round()).min().unwrap_or(1).max(1)
}

/// How a spin ended.
enum Spun<G> {
    Got(G),
    Failed,
}

fn spin<T: Target>(target: &T, polls: u32, handed: bool, on_lost_race: u64) -> Spun<T::Got> {
    let mut left = polls;
    loop {
        if target.is_open(handed) {
            if let Some(got) = target.try_get(handed) {
                return Spun::Got(got);
            }
            if on_lost_race != 0 {
                return Spun::Failed;
            }
        }
        if left == 0 {
            return Spun::Failed;
        }
        left -= 1;
        std::hint::spin_loop();
    }
}

/// A wait under way: what is known of it and where it is recorded.
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

    fn note(&self, now: u64, what: What, asked_ns: u64, took_ns: u64) {
        if let Some(session) = self.session {
            let ring = session.instance.segment.runs(session.sid().number() as usize);
            let last = &session.slot.last_run;
            trace::note(ring, last, now, self.key, self.blocker.number(), what, asked_ns, took_ns);
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

    fn end(&self, started: u64, now: u64, what: What) {
        let took = now - started;
        self.add(Counter::WaitNs, took);
        if let Some(row) = self.row {
            row.longest(took);
        }
        if let Some(session) = self.session {
            session.slot.wait.store(0, Ordering::Relaxed);
        }
        self.note(now, what, 0, took);
    }

    /// Replaces the row of the sleep history for this mutex and blocker.
    fn remember(&self, instance: &Instance, now: u64, gets: u64, sleeps: u32) {
        let Some(session) = self.session else { return };
        let key = u64::from(self.key.mutex.0) << 32 | u64::from(self.blocker.number());
        let rows = instance.segment.history();
        let past = &rows[(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % rows.len()];
        let record = Record {
            phase: crate::aol::Phase::Getting,
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

/// A yielding wait may take a handed-over mutex after so many steps: whoever it was handed to may be dead.
const HEAL_EVERY: u32 = 64;

impl Waiter<'_> {
    /// Waits for the target after a first try has failed: spin, step, spin, step… by the scheme in force.
    ///
    /// # Errors
    ///
    /// [`TimedOut`] when the deadline passes first.
    pub fn wait<T: Target>(&self, target: &T, want: Want, deadline: Option<Deadline>) -> Result<T::Got, TimedOut> {
        let (blocker, exclusive) = target.blocker();
        let on_x = exclusive && matches!(want.mode, Mode::Shared | Mode::Examine);
        let key = Key { mutex: want.mutex, location: want.location, event: WaitEvent { mode: want.mode, on_x } };
        let mut recorder = Recorder {
            session: self.session,
            row: self.session.map(|session| {
                let rows = self.instance.segment.rows(session.sid().number() as usize);
                crate::stats::find(rows, &session.slot.rows_used, key)
            }),
            key,
            blocker,
        };
        let adaption = self.instance.mutex_entry(want.mutex).map(|entry| &entry.adaption);
        let mut params = self.instance.params(Some(want.mutex_type));
        recorder.add(Counter::Misses, 1);
        if let (Some(cells), ADAPTIVE) = (adaption, params.get(P::Scheme) as usize) {
            cells.misses.fetch_add(1, Ordering::Relaxed);
        }

        let (mut failed, mut parks, mut woken) = (0u32, 0u32, false);
        let (mut started, mut last, mut alerted) = (0, 0, false);
        loop {
            let scheme = crate::wait::scheme(params.get(P::Scheme));
            let attempt = Attempt {
                params: &params,
                failed,
                parks,
                woken,
                high_priority: self.session.is_some_and(|session| session.high_priority),
                parked: target.parked(),
                pthread_in_use: adaption.is_some_and(|cells| cells.state.load(Ordering::Relaxed) & 1 == 1),
                poll_ns: self.instance.poll_ns(),
                random: self.session.map_or(last, Session::random),
            };
            let handed = woken || parks > 0 && !woken || failed % HEAL_EVERY == HEAL_EVERY - 1;
            if let Spun::Got(got) = spin(target, scheme.spins(&attempt), handed, params.get(P::OnLostRace)) {
                if woken {
                    target.woken_is_done(true);
                }
                if failed == 0 {
                    recorder.add(Counter::SpinGets, 1);
                } else {
                    let now = sys::now_ns();
                    recorder.add(Counter::SpinNs, now - last);
                    recorder.end(started, now, What::Got);
                }
                self.adapt(target, want.mutex, &params);
                return Ok(got);
            }
            let now = sys::now_ns();
            if failed == 0 {
                started = now;
                recorder.begin(now);
            } else {
                recorder.add(Counter::SpinNs, now - last);
            }
            let left = match deadline.map(Deadline::left) {
                Some(None) => {
                    if woken {
                        target.woken_is_done(false);
                    }
                    recorder.add(Counter::GaveUp, 1);
                    recorder.end(started, now, What::GaveUp);
                    return Err(TimedOut);
                }
                Some(Some(left)) => left,
                None => Duration::MAX,
            };
            if !alerted && now - started > params.get(P::AlertThreshold) * 1_000_000 {
                alerted = true;
                self.alert(&recorder, now - started);
            }
            // Read afresh: a change takes effect at the very next step.
            let fresh = self.instance.params(Some(want.mutex_type));
            let scheme = crate::wait::scheme(fresh.get(P::Scheme));
            let step = scheme.step(&Attempt { params: &fresh, ..attempt });
            params = fresh;
            recorder.blocker = target.blocker().0;
            let timed = !matches!(step, Step::Yield);
            if timed || failed == 0 {
                recorder.remember(self.instance, now, target.gets(), failed + 1);
            }
            if woken && !matches!(step, Step::Park(_)) {
                target.woken_is_done(false);
            }
            woken = false;
            if scheme.throttles_wakes() && matches!(step, Step::Park(_)) {
                let interval = Duration::from_micros(params.get(P::HandoverInterval));
                match params.get(P::Fairness) {
                    0 => {}
                    1 if now - started < params.get(P::HandoverInterval) * 1000 => {}
                    1 => target.ask_for_handover(now, interval),
                    _ => target.ask_for_handover(now, Duration::ZERO),
                }
            }
            // The step ends where the next spin begins, so that the parts of a wait add up to it.
            let (parked, ended) = self.perform(target, step, scheme, &params, &recorder, now, left);
            last = ended;
            match parked {
                Some(Parked::Got(got)) => {
                    recorder.end(started, last, What::Got);
                    return Ok(got);
                }
                Some(Parked::Woken) => woken = true,
                Some(Parked::TimedOut) | None => {}
            }
            if let (true, Some(cells), ADAPTIVE) = (parked.is_some(), adaption, params.get(P::Scheme) as usize) {
                cells.queue_sleeps.fetch_add(1, Ordering::Relaxed);
            }
            parks += u32::from(parked.is_some());
            failed = failed.saturating_add(1);
            target.look_after_blocker();
        }
    }

    /// Performs a step and records it: how the park ended if it was one, and when the step ended.
    #[allow(clippy::too_many_arguments)]
    fn perform<T: Target>(
        &self,
        target: &T,
        step: Step,
        scheme: &dyn Scheme,
        params: &Params,
        recorder: &Recorder<'_>,
        now: u64,
        left: Duration,
    ) -> (Option<Parked<T::Got>>, u64) {
        match step {
            Step::Yield => {
                sys::yield_now();
                let after = sys::now_ns();
                recorder.add(Counter::Yields, 1);
                recorder.add(Counter::YieldNs, after - now);
                recorder.note(after, What::Yield, 0, after - now);
                (None, after)
            }
            Step::Sleep(asked) | Step::Overflow(asked) => {
                if matches!(step, Step::Overflow(_)) {
                    recorder.add(Counter::QueueFull, 1);
                }
                let jitter = if scheme.takes_jitter() { params.get(P::SleepJitter) * 1000 } else { 0 };
                let extra = match (jitter, self.session) {
                    (0, _) | (_, None) => 0,
                    (half, Some(session)) => session.random() % (2 * half),
                };
                let exact =
                    (asked + Duration::from_nanos(extra)).saturating_sub(Duration::from_nanos(jitter)).min(left);
                sys::sleep(exact);
                let after = sys::now_ns();
                recorder.add(Counter::Sleeps, 1);
                recorder.slept(after, What::Sleep, exact, after - now);
                (None, after)
            }
            Step::Park(limit) => {
                let limit = limit.min(left);
                let parked = target.park(limit, scheme.throttles_wakes());
                let after = sys::now_ns();
                recorder.add(Counter::Parks, 1);
                let what = if matches!(parked, Parked::TimedOut) {
                    What::TimedOut
                } else {
                    recorder.add(Counter::Wakes, 1);
                    What::Woken
                };
                recorder.slept(after, what, limit, after - now);
                (Some(parked), after)
            }
        }
    }

    fn alert(&self, recorder: &Recorder<'_>, waited_ns: u64) {
        let instance = self.instance;
        instance.alert(&format!(
            "session {} has waited {:.1} s for {} in {} at {}; held by session {}",
            recorder.session.map_or(Sid::NONE, Session::sid),
            waited_ns as f64 / 1e9,
            recorder.key.event.mode,
            instance.mutex_name(recorder.key.mutex),
            instance.location_name(recorder.key.location),
            recorder.blocker,
        ));
    }

    /// Runs the controller of `adaptive`; the caller has just got the target.
    pub fn adapt<T: Target>(&self, target: &T, mutex: MutexId, params: &Params) {
        let Some(entry) = self.instance.mutex_entry(mutex) else { return };
        let cells = &entry.adaption;
        let state = cells.state.load(Ordering::Relaxed);
        if params.get(P::Scheme) as usize != ADAPTIVE {
            if state & 1 == 1 {
                // Another scheme was set while pthread was in use.
                cells.state.store(0, Ordering::Relaxed);
                target.set_attention(false);
            }
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
        cells.last_gets.store(gets, Ordering::Relaxed);
        cells.last_misses.store(misses, Ordering::Relaxed);
        cells.last_queue_sleeps.store(queue_sleeps, Ordering::Relaxed);
        cells.last_ns.store(now, Ordering::Relaxed);
        let switched = after.pthread_in_use != before.pthread_in_use;
        if switched {
            cells.switches.store(cells.switches.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            target.set_attention(after.pthread_in_use);
        }
        // The type in use is stored last; then the queued sessions start over.
        cells.state.store(after.streak << 1 | u64::from(after.pthread_in_use), Ordering::Release);
        if switched {
            target.wake_all();
        }
    }
}
