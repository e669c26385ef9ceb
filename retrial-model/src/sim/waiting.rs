//! A wait: interprets the library's [`Course`] on the virtual clock, for mode X.

use super::engine::Engine;
use super::processors::NONE;
use super::session::Doing;
use super::workload::Sleeps;
use super::{NS, Time};
use retrial::Mode;
use retrial::interposer::Parked;
use retrial::parking::{self, Circumstances, Found, HANDOVER_LASTS, Parking, Parks};
use retrial::views::{Counter, What};
use retrial::wait::{Counts, Course, First, Park, Restriction, Seen, Step, Wanted};
use std::time::Duration;

fn picoseconds(duration: Duration) -> Time {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).saturating_mul(NS)
}

impl<'a> Engine<'a> {
    /// A session asks for the mutex.
    pub(super) fn request(&mut self, s: u32) {
        self.tally.requested(self.now);
        self.choose(s);
        let now_ns = self.now_ns();
        let restricted = self.is_restricted();
        let session = &mut self.sessions[s as usize];
        session.requested = self.now;
        if self.mutex.is_open(false, now_ns) {
            return self.acquire(s, false);
        }
        let first = if restricted { First::Park } else { session.experience.first(&self.workload.params, || now_ns) };
        session.park = Parks::default();
        let halvings = session.experience.halvings();
        self.sessions[s as usize].course = self.course(first, halvings);
        self.tally.count(Counter::Misses);
        self.tally.count(Counter::Busy);
        self.controller.counted.misses += 1;
        if self.costs.step > 0 { self.run_as(s, Doing::Missing, self.costs.step) } else { self.try_again(s) }
    }

    /// A wait that begins.
    pub(super) fn course(&self, first: First, halvings: u32) -> Course {
        let poll_ns = u32::try_from(self.workload.machine.poll_ns).unwrap_or(u32::MAX);
        let wanted = Wanted {
            mode: Mode::Exclusive,
            high_priority: false,
            first,
            halvings,
            poll_ns,
            soft_spins: self.mutex.soft_spins,
        };
        Course::begin(wanted)
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.now / NS
    }

    fn circumstances(&self) -> Circumstances {
        Circumstances { now_ns: self.now_ns(), is_real_time: || false }
    }

    /// Whether one session is to be active alone.
    fn is_restricted(&self) -> bool {
        Restriction::applies(&self.workload.params) && self.mutex.restriction.is_on()
    }

    /// What a session saw at a time.
    fn seen(&mut self, at: Time) -> Seen<'a> {
        Seen {
            params: &self.workload.params,
            now_ns: at / NS,
            parked: self.mutex.parking.parked(),
            gets: self.mutex.gets,
            soft_spins: self.mutex.soft_spins,
            on_x: self.mutex.holder != NONE,
            restricted: self.is_restricted(),
            pthread_in_use: self.controller.state.pthread_in_use,
            random: self.streams.wait(),
        }
    }

    /// The spin after a miss or a step; its first look may find the mutex open.
    pub(super) fn try_again(&mut self, s: u32) {
        let (now_ns, pthread_in_use) = (self.now_ns(), self.controller.state.pthread_in_use);
        let session = &mut self.sessions[s as usize];
        let gets = self.mutex.gets;
        let Some(how) = session.course.spin(&self.workload.params, pthread_in_use, || gets) else {
            return self.spin_failed(s);
        };
        session.handed = how.handed;
        if self.mutex.is_open(how.handed, now_ns) {
            return self.acquire(s, true);
        }
        if session.course.failed() > 0 {
            self.tally.count(Counter::Busy);
        }
        session.doing = Doing::Spinning;
        session.rest = u64::from(how.polls) * self.costs.poll;
        if session.rest == 0 { self.spin_failed(s) } else { self.spin(s) }
    }

    /// A wait has ended with the mutex.
    pub(super) fn wait_over(&mut self, s: u32) {
        let session = &mut self.sessions[s as usize];
        if session.course.failed() == 0 {
            return self.tally.count(Counter::SpinGets);
        }
        session.experience.yielded(&session.course, true);
        self.tally.spin += u128::from(self.now - session.last);
        session.park.end(|to| self.mutex.change(to));
        if std::mem::take(&mut session.asked_for_x) {
            self.mutex.change(&Parking::not_for_x);
        }
        let took = self.now - self.sessions[s as usize].course.started_ns() * NS;
        self.tally.longest = self.tally.longest.max(took);
        self.tally.lengths.count(took / NS, 1);
        self.note(s, What::Got, 0, took);
    }

    /// The spin has come to its limit, or has lost a race.
    pub(super) fn spin_failed(&mut self, s: u32) {
        let session = &mut self.sessions[s as usize];
        session.stepped = self.now;
        if Restriction::applies(&self.workload.params) {
            let (mutex, interval) = (&mut self.mutex, self.workload.params.handover_interval());
            if let Some(after) = mutex.restriction.see(self.now / NS, interval, mutex.parking.parked(), || mutex.gets) {
                mutex.restriction = after;
            }
        }
        let session = &mut self.sessions[s as usize];
        if session.course.failed() == 0 {
            self.tally.count(Counter::Waits);
            self.note(s, What::Began, 0, 0);
        } else {
            self.tally.spin += u128::from(self.now - session.last);
        }
        if self.costs.step > 0 { self.run_as(s, Doing::Stepping, self.costs.step) } else { self.step(s) }
    }

    /// Does what the scheme says next.
    pub(super) fn step(&mut self, s: u32) {
        let seen = self.seen(self.sessions[s as usize].stepped);
        let session = &mut self.sessions[s as usize];
        let step = session.course.step(&seen);
        self.mutex.soft_spins += u64::from(matches!(step, Step::Yield | Step::Sleep(_)));
        match step {
            Step::Yield => self.give_way(s),
            Step::Sleep(asked) => self.sleep(s, asked),
            Step::Overflow(asked) => {
                self.tally.count(Counter::QueueFull);
                self.controller.counted.queue_sleeps += 1;
                self.sleep(s, asked);
            }
            Step::Ask(interval) => {
                let asked = self.ask(s, interval);
                let session = &mut self.sessions[s as usize];
                session.course.asked(asked);
                session.last = self.now;
                self.try_again(s);
            }
            Step::Park(how) => self.park(s, &how),
        }
    }

    /// The session has its processor again after a yield.
    pub(super) fn yielded(&mut self, s: u32) {
        let session = &mut self.sessions[s as usize];
        let since = if session.course.failed() > 1 { session.last } else { session.stepped };
        let was_away = session.experience.was_away(&session.course, &self.workload.params);
        if let Some(after) = self.mutex.restriction.waited_awake(since / NS, self.now / NS, was_away) {
            self.mutex.restriction = after;
        }
        session.last = self.now;
        let took = self.now - session.stepped;
        session.experience.begin_turn(self.now / NS);
        self.tally.count(Counter::Yields);
        self.tally.yields += u128::from(took);
        self.note(s, What::Yield, 0, took);
        self.try_again(s);
    }

    fn sleep(&mut self, s: u32, asked: Duration) {
        let asked = picoseconds(asked);
        let takes = match self.workload.sleeps {
            // What a sleep takes was measured with its call.
            Sleeps::Timed => self.lasts(asked).saturating_sub(self.costs.sleep_call),
            Sleeps::Exponential => self.streams.sleep(asked),
        };
        let session = &mut self.sessions[s as usize];
        session.asked = asked;
        session.sleeps = takes;
        if self.costs.sleep_call > 0 { self.run_as(s, Doing::Dozing, self.costs.sleep_call) } else { self.doze(s) }
    }

    /// The timer is set: leaves the processor until it is due.
    pub(super) fn doze(&mut self, s: u32) {
        let session = &mut self.sessions[s as usize];
        session.doing = Doing::Sleeping;
        let due = self.now.saturating_add(session.sleeps);
        // No earlier than was asked for.
        let slack = self.costs.timer_slack.min(session.sleeps.saturating_sub(session.asked));
        let processor = session.processor;
        self.processors.set_timer(processor, s, due.saturating_sub(slack));
        self.timers.set(self.slot(s), due);
        self.leave(s);
    }

    /// The timer of a session that sleeps is due: an interrupt of its processor ends all sleeps that it may end.
    pub(super) fn timer_due(&mut self, s: u32) {
        let processor = self.sessions[s as usize].processor;
        self.interrupt_on(processor, self.costs.timer);
        for sleeper in self.processors.timers(processor, self.now) {
            self.timers.clear(self.slot(sleeper));
            self.turn_to(self.sessions[sleeper as usize].copy);
            self.comes_back(sleeper, Doing::Slept);
        }
    }

    /// What a timer of this length takes.
    fn lasts(&self, asked: Time) -> Time {
        self.workload.machine.slept_ns(asked / NS).saturating_mul(NS)
    }

    pub(super) fn slept(&mut self, s: u32) {
        self.tally.count(Counter::Sleeps);
        self.split(s, What::Sleep);
        self.try_again(s);
    }

    /// Splits the time of a sleep or park into what was asked for and the rest.
    fn split(&mut self, s: u32, what: What) {
        let session = &mut self.sessions[s as usize];
        session.last = self.now;
        let (took, asked) = (self.now - session.stepped, session.asked);
        self.tally.slept += u128::from(took.min(asked));
        self.tally.over += u128::from(took.saturating_sub(asked));
        self.note(s, what, asked, took);
    }

    /// Asks for a handover.
    fn ask(&mut self, s: u32, interval: Duration) -> bool {
        let (circumstances, mutex) = (self.circumstances(), &mut self.mutex);
        let asked = circumstances.ask(mutex.parking, interval, true, |to| mutex.change(to));
        self.sessions[s as usize].asked_for_x |= asked;
        asked
    }

    /// Announces that the session parks.
    fn park(&mut self, s: u32, how: &Park) {
        if let Some(interval) = how.asks {
            self.ask(s, interval);
        }
        let mutex = &mut self.mutex;
        let session = &mut self.sessions[s as usize];
        session.experience.yielded(&session.course, false);
        session.announced = session.park.announce(how.wakes, |to| mutex.change(to));
        let watches = session.announced.watches;
        session.seen = mutex.wakes;
        session.handed = how.handed;
        session.asked = picoseconds(how.lasts(false));
        session.timeout = picoseconds(how.lasts(watches));
        let barrier = if session.announced.needs_barrier() { self.barrier(s) } else { 0 };
        // The count of the waiting sessions lies in the cache line that the others poll and change. So the
        // announcement waits for that line, and once more when the park is over.
        let announcing = barrier + self.transaction();
        if announcing > 0 { self.run_as(s, Doing::Announcing, announcing) } else { self.last_look(s) }
    }

    /// The look between the announcement and the sleep.
    pub(super) fn last_look(&mut self, s: u32) {
        let now_ns = self.now_ns();
        let session = &mut self.sessions[s as usize];
        if self.mutex.is_open(session.handed, now_ns) {
            return self.unparked(s, Parked::Looked);
        }
        if self.mutex.holder == NONE {
            let longest = picoseconds(HANDOVER_LASTS);
            session.announced.is_brief = longest < session.timeout;
            session.timeout = session.timeout.min(longest);
        }
        // The kernel puts the session to sleep unless it was woken meanwhile: until then it takes the time of
        // a call that finds nothing to do.
        self.run_as(s, Doing::Parking, self.costs.yield_alone);
    }

    /// The kernel's look before the sleep.
    pub(super) fn fall_asleep(&mut self, s: u32) {
        let session = &mut self.sessions[s as usize];
        if self.mutex.wakes != session.seen {
            return self.unparked(s, Parked::Looked);
        }
        session.doing = Doing::Parked;
        let timeout = session.timeout;
        self.mutex.sleep(s);
        let lasts = self.lasts(timeout);
        self.timers.set(self.slot(s), self.now.saturating_add(lasts));
        self.leave(s);
    }

    /// A park has ended, and the session has its processor.
    pub(super) fn unparked(&mut self, s: u32, how: Parked<()>) {
        let session = &mut self.sessions[s as usize];
        let found = match self.mutex.holder {
            _ if self.mutex.handover => Found::HandedOver,
            NONE => Found::Open,
            _ => Found::Busy,
        };
        session.park.come_back(session.announced, &how, found, |to| self.mutex.change(to));
        session.course.park_ended(&how);
        self.owed += self.transaction();
        self.controller.counted.queue_sleeps += 1;
        self.tally.count(Counter::Parks);
        if how == Parked::Woken {
            self.tally.count(Counter::Wakes);
        }
        self.split(s, if how == Parked::TimedOut { What::TimedOut } else { What::Woken });
        self.try_again(s);
    }

    /// Whether the release that is due now hands over.
    pub(super) fn hands_over(&mut self) -> bool {
        let (parking, now_ns) = (self.mutex.parking, self.now_ns());
        let found = || (self.workload.params, self.circumstances());
        let hands_over = parking.concerns_releases() && parking::hands_over(parking, self.mutex.gets, found);
        if hands_over {
            self.mutex.parking = parking.handed_over(now_ns);
        }
        hands_over && parking.has_a_taker()
    }

    /// After a release that lets only the session that it wakes get the mutex, which is the session that parked
    /// first.
    pub(super) fn hand_over(&mut self, waker: u32, for_x: bool) {
        if !self.wake_one(waker) && !for_x {
            // No session was asleep: any may have it.
            self.mutex.handover = false;
        }
    }

    /// Wakes the session that parked first. Whether there was one.
    pub(super) fn wake_one(&mut self, waker: u32) -> bool {
        let then = self.mutex.parking;
        self.mutex.wakes += 1;
        let woken = self.mutex.first();
        self.mutex.parking = match woken {
            Some(_) => then.wake().has_woken(then, 1),
            None => then.wake().has_woken_nobody(then),
        };
        match woken {
            Some(woken) => self.awaken(woken, waker),
            None => self.owed += self.costs.yield_alone,
        }
        woken.is_some()
    }

    /// Runs the controller of `adaptive`; the session has just got the mutex.
    pub(super) fn adapt(&mut self, s: u32) {
        if !self.workload.params.is_adaptive() {
            return;
        }
        let controller = &mut self.controller;
        let counted = Counts { gets: self.mutex.gets, now_ns: self.now / NS, ..controller.counted };
        let before = controller.state;
        let parked = self.mutex.parking.parked();
        let Some(after) = before.check(&controller.last, &counted, parked, &self.workload.params) else { return };
        (controller.last, controller.state) = (counted, after);
        if after.pthread_in_use != before.pthread_in_use {
            self.tally.type_switches += 1;
            self.mutex.wakes += 1;
            while let Some(sleeper) = self.mutex.first() {
                self.mutex.parking = self.mutex.parking.has_woken(self.mutex.parking, 1);
                self.awaken(sleeper, s);
            }
        }
    }
}
