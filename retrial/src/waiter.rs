//! The slow path: interprets a wait scheme with the real clock, for whatever can be waited for.

use crate::costs::Cost;
use crate::entries::{MutexEntry, RestrictionCells, TypeId};
use crate::instance::Instance;
use crate::mode::Mode;
use crate::operation_log::{LocationId, MutexId};
use crate::params::{P, Params};
use crate::parking::Parked;
use crate::probes;
use crate::recorder::{At, Recorder};
use crate::session::Session;
use crate::stats::{Counter, Key, WaitEvent};
use crate::sys::{self, Deadline, Ordering};
use crate::trace::What;
use crate::wait::{Course, First, Park, Seen, Step, Wanted};
use std::time::Duration;

mod adapting;
mod asking;
mod learning;
mod spinning;
mod target;

pub(crate) use spinning::measure_poll_ns;
use spinning::spin;
pub use target::Target;

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
    /// Whether the session comes out of a condition's queue.
    pub from_queue: bool,
}

/// Why a wait ended without the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The deadline has passed.
    TimedOut,
    /// The session would wait for itself.
    Deadlock,
    /// The question whether to give up, or a handler of a signal, has forked, and this is the child: the wait
    /// is its parent's.
    Forked,
}

/// What waits: a session, or a thread without one. It uses one instance, which is the session's:
///
/// ```compile_fail,E0451
/// # use retrial::{Capacity, Class, Instance, interposer::Waiter};
/// # let (ours, theirs) = (Instance::anonymous(Capacity::default())?, Instance::anonymous(Capacity::default())?);
/// # let session = theirs.session("", Class::Normal)?;
/// let waiter = Waiter { instance: Some(&ours), session: Some(&session) };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Waiter<'a> {
    instance: Option<&'a Instance>,
    session: Option<&'a Session<'a>>,
}

/// Time of a poll where no instance has measured it.
const A_POLL_NS: u64 = 30;

/// A wait under way.
struct Wait<'a> {
    waiter: Waiter<'a>,
    recorder: Recorder<'a>,
    entry: Option<&'a MutexEntry>,
    restriction: Option<&'a RestrictionCells>,
    want: Want,
    /// Read afresh before every step.
    params: Params,
    course: Course,
    /// Ends of the last step and of the last failed spin, by the monotonic clock.
    last: u64,
    now: u64,
    /// When the session was last asked whether to give up.
    asked: u64,
    alerted: bool,
    /// Whether it has slept since its last look after the blocker, and no release woke it.
    slept: bool,
}

impl<'a> Wait<'a> {
    fn begin<T: Target>(waiter: Waiter<'a>, target: &T, want: Want) -> Self {
        let (blocker, exclusive) = target.blocker();
        let on_x = exclusive && matches!(want.mode, Mode::Shared | Mode::Examine);
        let event = WaitEvent { mode: want.mode, on_x, for_event: false };
        let key = Key { mutex: want.mutex, location: want.location, event };
        let entry = waiter.instance.and_then(|instance| instance.tables.mutex_entry(want.mutex));
        let poll_ns = waiter.instance.map_or(A_POLL_NS, |all| all.tables.cost(Cost::Poll));
        let params = waiter.params(want.mutex_type);
        let restriction = learning::restriction_of(target, waiter.instance, entry);
        let parks_first = want.from_queue || learning::is_restricted(target, restriction, &params);
        let first = |session: &Session<'_>| session.experience(|known| known.first(&params, sys::now_ns));
        let wanted = Wanted {
            mode: want.mode,
            high_priority: waiter.session.is_some_and(Session::is_high_priority),
            halvings: waiter.session.map_or(0, |session| session.experience(|known| known.halvings())),
            first: if parks_first { First::Park } else { waiter.session.map_or(First::Spin, first) },
            poll_ns: u32::try_from(poll_ns).unwrap_or(u32::MAX),
            soft_spins: adapting::soft_spins(entry, &params).map_or(0, |count| count.load(Ordering::Relaxed)),
        };
        let wait = Self {
            waiter,
            recorder: Recorder::new(waiter.session, key, blocker),
            entry,
            restriction,
            want,
            params,
            course: Course::begin(wanted),
            last: 0,
            now: 0,
            asked: 0,
            alerted: false,
            slept: false,
        };
        probes::miss(&wait.recorder);
        wait.recorder.add(Counter::Misses, 1);
        wait.recorder.add(Counter::Busy, 1);
        if let Some(cells) = wait.adaptive() {
            cells.misses.fetch_add(1, Ordering::Relaxed);
        }
        wait
    }

    fn seen<T: Target>(&self, target: &T, on_x: bool) -> Seen<'_> {
        Seen {
            params: &self.params,
            now_ns: self.now,
            parked: target.parked(),
            gets: target.gets(),
            soft_spins: self.soft_spins().map_or(0, |count| count.load(Ordering::Relaxed)),
            on_x,
            restricted: learning::is_restricted(target, self.restriction, &self.params),
            pthread_in_use: self.pthread_in_use(),
            random: self.waiter.session.map_or(self.now, Session::random),
        }
    }

    /// Polls as long as the scheme says, at most until the deadline.
    fn spin<T: Target>(&mut self, target: &T, deadline: Option<Deadline>) -> Option<T::Got> {
        let how = self.course.spin(&self.params, self.pthread_in_use(), || target.gets())?;
        let is_first = self.course.failed() == 0;
        if !is_first && !target.is_open(how.handed) {
            self.recorder.add(Counter::Busy, 1);
        }
        let got = spin(|handed| target.is_open(handed), |handed| target.try_get(handed), how, deadline)?;
        if is_first {
            self.recorder.add(Counter::SpinGets, 1);
        } else {
            self.now = sys::now_ns();
            self.recorder.add(Counter::SpinNs, self.now.saturating_sub(self.last));
            self.learn_whether_yields_pay(true);
            self.ended_with(target);
        }
        Some(got)
    }

    /// Notes a failed spin. The time left until the deadline, `None` when it has passed.
    fn failed(&mut self, deadline: Option<Deadline>) -> Option<Duration> {
        self.now = sys::now_ns();
        if self.course.failed() == 0 {
            self.recorder.begin(self.now, At::Spin);
            self.asked = self.now;
        } else {
            self.recorder.add(Counter::SpinNs, self.now.saturating_sub(self.last));
            self.look_how_long();
        }
        deadline.map_or(Some(Duration::MAX), Deadline::left)
    }

    fn look_how_long(&mut self) {
        let Some(instance) = self.waiter.instance else { return };
        let waited_ns = self.now.saturating_sub(self.course.started_ns());
        let threshold = self.params.alert_threshold();
        if self.alerted || u128::from(waited_ns) <= threshold.as_nanos() {
            return;
        }
        // Thousands wait for one holder: each alert looks at that one's thread, and takes a place in the log.
        // Mutexes without an entry have one turn together.
        let alerted_ns = self.entry.map_or(&instance.tables.segment.header().alerted_ns, |entry| &entry.alerted_ns);
        if sys::is_due(alerted_ns, self.now, threshold) && instance.has_alert_left(self.now, threshold) {
            self.alerted = true;
            self.recorder.alert(instance, waited_ns);
        }
    }

    /// At the deadline: also takes what was handed over, so that a short wait is not turned away for ever by
    /// a handover to the dead.
    fn last_try<T: Target>(&self, target: &T) -> Option<T::Got> {
        // All waits may end so before their first look.
        target.look_after_blocker(self.now, true);
        let got = target.try_get(true);
        if got.is_some() {
            self.ended_with(target);
        } else {
            self.give_up(target);
        }
        got
    }

    /// When it began, for the figures: at the end of the first failed spin, which may be right now.
    fn started(&self) -> u64 {
        if self.course.failed() == 0 { self.now } else { self.course.started_ns() }
    }

    fn give_up<T: Target>(&self, target: &T) {
        target.ended(false);
        self.recorder.add(Counter::GaveUp, 1);
        self.recorder.end(self.started(), self.now, What::GaveUp);
    }

    /// Notes that a wait of at least one step has ended with the target.
    fn ended_with<T: Target>(&self, target: &T) {
        target.ended(true);
        self.recorder.end(self.started(), self.now, What::Got);
    }

    /// Does what the scheme says next. `Some` when that gave the target.
    fn step<T: Target>(&mut self, target: &T, left: Duration) -> Option<T::Got> {
        // Read afresh: a change takes effect at the very next step.
        self.params = self.waiter.params(self.want.mutex_type);
        let (blocker, on_x) = target.blocker();
        self.recorder.blocker = blocker;
        let mut course = self.course;
        let seen = self.seen(target, on_x);
        let step = course.step(&seen);
        let before = seen.gets;
        self.course = course;
        // Before the first park too: the watcher may have died with the blocker.
        if step != Step::Yield || course.failed() > 1 {
            target.look_after_blocker(self.now, std::mem::take(&mut self.slept));
        }
        if let Some(instance) = self.waiter.instance
            && (step != Step::Yield || course.failed() == 1)
        {
            self.recorder.remember(instance, self.now, before, course.failed());
        }
        if let (Step::Yield | Step::Sleep(_), Some(count)) = (step, self.soft_spins()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        match step {
            Step::Yield => {
                self.recorder.is_at(At::Yield);
                let since = if self.course.failed() > 1 { self.last } else { self.now };
                sys::yield_now();
                self.last = sys::now_ns();
                let took = self.last.saturating_sub(self.now);
                self.begin_turn(target, since);
                self.recorder.add(Counter::Yields, 1);
                self.recorder.add(Counter::YieldNs, took);
                self.recorder.step(self.last, What::Yield, 0, took);
                None
            }
            Step::Sleep(asked) | Step::Overflow(asked) => {
                if matches!(step, Step::Overflow(_)) {
                    self.recorder.add(Counter::QueueFull, 1);
                    self.count_queue_sleep();
                }
                // Under `orbit` it stands by.
                if !crate::wait::scheme(self.params.get(P::Scheme)).is_orbit() {
                    target.steps_aside();
                }
                let asked = asked.min(left);
                self.recorder.is_at(At::Sleep);
                sys::sleep(asked);
                self.slept = true;
                self.last = sys::now_ns();
                self.recorder.add(Counter::Sleeps, 1);
                self.recorder.slept(self.last, What::Sleep, asked, self.last.saturating_sub(self.now));
                None
            }
            Step::Ask(interval) => {
                self.course.asked(target.ask_for_handover(self.now, interval));
                self.last = sys::now_ns();
                None
            }
            Step::Park(how) => self.park(target, Park { left, ..how }),
        }
    }

    /// A wait that is one park.
    fn in_one_park<T: Target>(&mut self, target: &T, deadline: Option<Deadline>) -> Option<T::Got> {
        const LONG: Duration = Duration::from_secs(3600);
        let got = self.failed(deadline).and_then(|left| self.park(target, Park { left, ..Park::lasting(LONG) }));
        if got.is_none() {
            self.now = sys::now_ns();
            self.give_up(target);
        }
        got
    }

    fn park<T: Target>(&mut self, target: &T, how: Park) -> Option<T::Got> {
        self.learn_whether_yields_pay(false);
        if let Some(interval) = how.asks {
            target.ask_for_handover(self.now, interval);
        }
        self.recorder.is_at(At::Park);
        probes::park(&self.recorder, how.lasts(false));
        let parked = target.park(how);
        if self.waiter.is_forked() {
            let Parked::Got(got) = parked else { return None };
            return Some(got);
        }
        self.last = sys::now_ns();
        self.course.park_ended(&parked);
        self.recorder.add(Counter::Parks, 1);
        self.count_queue_sleep();
        let what = if matches!(parked, Parked::TimedOut) {
            self.slept = true;
            What::TimedOut
        } else {
            self.recorder.add(Counter::Wakes, u64::from(matches!(parked, Parked::Woken)));
            What::Woken
        };
        self.recorder.slept(self.last, what, how.lasts(false), self.last.saturating_sub(self.now));
        let Parked::Got(got) = parked else { return None };
        self.recorder.end(self.started(), self.last, What::Got);
        Some(got)
    }
}

impl<'a> Waiter<'a> {
    /// A session, whose waits are recorded.
    #[must_use]
    pub const fn of(session: &'a Session<'a>) -> Self {
        Self { instance: Some(session.instance()), session: Some(session) }
    }

    /// A thread that has no session: nothing is recorded.
    #[must_use]
    pub const fn without_session(instance: &'a Instance) -> Self {
        Self { instance: Some(instance), session: None }
    }

    /// A thread that may not touch an instance, or has none: it waits by the defaults.
    #[must_use]
    pub const fn stranger() -> Self {
        Self { instance: None, session: None }
    }

    fn params(&self, mutex_type: TypeId) -> Params {
        self.instance.map_or_else(Params::default, |instance| instance.params(Some(mutex_type)))
    }

    /// Whether this is a child of fork: what the session has written is the parent's, and so is what it would
    /// write.
    fn is_forked(&self) -> bool {
        self.session.is_some_and(Session::is_forked)
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
            // A handler may have forked in the step.
            if self.is_forked() {
                return Err(Ended::Forked);
            }
            if let Some(got) = wait.spin(target, deadline) {
                if wait.adaptive().is_some() {
                    self.adapt(target, want.mutex, want.mutex_type);
                }
                return Ok(got);
            }
            let left = wait.failed(deadline).and_then(|left| wait.ask(target, left));
            let left = match left {
                _ if self.is_forked() => return Err(Ended::Forked),
                Some(_) if target.is_hopeless() => {
                    wait.give_up(target);
                    return Err(Ended::Deadlock);
                }
                Some(left) => left,
                None => return wait.last_try(target).ok_or(Ended::TimedOut),
            };
            wait.learn_whether_alone(target);
            if let Some(got) = wait.step(target, left) {
                return Ok(got);
            }
        }
    }
}
