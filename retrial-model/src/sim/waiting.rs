//! A wait: spin, step, spin, step… by the scheme in force; what the library's `waiter.rs` and `mutex/getting.rs` do, on the
//! virtual clock and for mode X.

use super::engine::Engine;
use super::session::Doing;
use super::workload::Sleeps;
use super::{NS, Time};
use rand::Rng;
use retrial::P;
use retrial::interposer::Parked;
use retrial::parking::{Announced, Parks};
use retrial::views::{Counter, What};
use retrial::wait::{Adaption, Attempt, Load, Step};
use std::time::Duration;

fn picoseconds(duration: Duration) -> Time {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).saturating_mul(NS)
}

impl Engine<'_> {
    /// A session asks for the mutex.
    pub(super) fn request(&mut self, s: u32) {
        self.tally.requested(self.now);
        self.choose(s);
        let session = &mut self.sessions[s as usize];
        session.requested = self.now;
        if self.mutex.is_open(false) {
            return self.acquire(s, false);
        }
        session.failed = 0;
        session.parks = 0;
        session.since_park = 0;
        session.woken = false;
        session.park = Parks::default();
        self.tally.count(Counter::Misses);
        self.tally.count(Counter::Busy);
        self.controller.misses += 1;
        if self.costs.step > 0 { self.run_as(s, Doing::Missing, self.costs.step) } else { self.try_again(s) }
    }

    fn now_ns(&self) -> u64 {
        self.now / NS
    }

    fn attempt(&mut self, s: u32) -> Attempt<'_> {
        let random = self.streams.waits.next_u64();
        let session = &self.sessions[s as usize];
        Attempt {
            params: &self.workload.params,
            failed: session.failed,
            parks: session.parks,
            since_park: session.since_park,
            since_park_ns: (self.now - session.parked) / NS,
            woken: session.woken,
            high_priority: false,
            parked: self.mutex.parking.parked(),
            pthread_in_use: self.controller.state.pthread_in_use,
            queues: false,
            poll_ns: u32::try_from(self.workload.machine.poll_ns).unwrap_or(u32::MAX),
            random,
        }
    }

    /// The spin after a miss or a step; its first look may find the mutex open.
    pub(super) fn try_again(&mut self, s: u32) {
        let scheme = self.scheme;
        let attempt = self.attempt(s);
        let (polls, handed) = (scheme.spins(&attempt), attempt.takes_handover(false));
        let session = &mut self.sessions[s as usize];
        session.handed = handed;
        if self.mutex.is_open(session.handed) {
            return self.acquire(s, true);
        }
        if session.failed > 0 {
            self.tally.count(Counter::Busy);
        }
        session.doing = Doing::Spinning;
        session.rest = u64::from(polls) * self.costs.poll;
        if session.rest == 0 { self.spin_failed(s) } else { self.spin(s) }
    }

    /// A wait has ended with the mutex.
    pub(super) fn wait_over(&mut self, s: u32) {
        let session = &mut self.sessions[s as usize];
        if session.failed == 0 {
            return self.tally.count(Counter::SpinGets);
        }
        self.tally.spin += u128::from(self.now - session.last);
        session.park.end(|to| self.mutex.change(to));
        let took = self.now - self.sessions[s as usize].started;
        self.tally.longest = self.tally.longest.max(took);
        self.note(s, What::Got, 0, took);
    }

    /// The spin has come to its limit, or has lost a race.
    pub(super) fn spin_failed(&mut self, s: u32) {
        let session = &mut self.sessions[s as usize];
        session.stepped = self.now;
        if session.failed == 0 {
            session.started = self.now;
            session.parked = self.now;
            self.tally.count(Counter::Waits);
            self.note(s, What::Began, 0, 0);
        } else {
            self.tally.spin += u128::from(self.now - session.last);
        }
        if self.costs.step > 0 { self.run_as(s, Doing::Stepping, self.costs.step) } else { self.step(s) }
    }

    /// Does what the scheme says next.
    pub(super) fn step(&mut self, s: u32) {
        let scheme = self.scheme;
        let step = scheme.step(&self.attempt(s));
        let session = &mut self.sessions[s as usize];
        session.failed = session.failed.saturating_add(1);
        session.since_park = session.since_park.saturating_add(1);
        match step {
            Step::Yield => self.give_way(s),
            Step::Sleep(asked) => self.sleep(s, asked),
            Step::Overflow(asked) => {
                self.tally.count(Counter::QueueFull);
                self.sleep(s, asked);
            }
            Step::Park(limit) => self.park(s, limit),
        }
    }

    /// The session has its processor again after a yield.
    pub(super) fn yielded(&mut self, s: u32) {
        let session = &mut self.sessions[s as usize];
        session.last = self.now;
        let took = self.now - session.stepped;
        self.tally.count(Counter::Yields);
        self.tally.yields += u128::from(took);
        self.note(s, What::Yield, 0, took);
        self.try_again(s);
    }

    fn sleep(&mut self, s: u32, asked: Duration) {
        let asked = self.jittered(asked);
        let takes = match self.workload.sleeps {
            // What a sleep takes was measured with its call.
            Sleeps::Timed => self.lasts(asked).saturating_sub(self.costs.sleep_call),
            Sleeps::Exponential => {
                let uniform = ((self.streams.waits.next_u64() >> 11) + 1) as f64 * 2f64.powi(-53);
                (-uniform.ln() * asked as f64) as Time
            }
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
        let sleeps = session.sleeps;
        self.timers.set(self.slot(s), self.now.saturating_add(sleeps));
        self.leave(s);
    }

    /// The published sleeps are exact unless `sleep_jitter` is set.
    fn jittered(&mut self, asked: Duration) -> Time {
        let half_width = self.workload.params.get(P::SleepJitter) * 1000;
        let asked_ns = picoseconds(asked) / NS;
        let jittered = if half_width != 0 && self.scheme.takes_jitter() {
            (asked_ns + self.streams.waits.next_u64() % (2 * half_width)).saturating_sub(half_width)
        } else {
            asked_ns
        };
        jittered * NS
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

    /// Announces that the session parks, and looks by itself after `limit`.
    fn park(&mut self, s: u32, limit: Duration) {
        let throttle = self.scheme.throttles_wakes();
        let waited = Duration::from_nanos((self.now - self.sessions[s as usize].started) / NS);
        let on_x = self.mutex.holder != super::processors::NONE;
        let attempt = self.attempt(s);
        let asks = attempt.asks_for_handover(waited, on_x).filter(|_| throttle);
        let (watch, timeout) = attempt.looks(limit);
        let handed = attempt.takes_handover(false);
        let now_ns = self.now_ns();
        let parking = &mut self.mutex.parking;
        if asks.is_some_and(|interval| parking.handover_is_due(now_ns, interval)) {
            *parking = parking.starve(now_ns, true);
        }
        let session = &mut self.sessions[s as usize];
        session.woken = false;
        session.announced = session.park.announce(throttle, |to| self.mutex.change(to));
        session.seen = self.mutex.wakes;
        session.handed = handed;
        session.asked = picoseconds(timeout);
        let Announced { watches, answers, .. } = session.announced;
        session.timeout = if watches { picoseconds(watch) } else { session.asked };
        let barrier = if answers { self.costs.barrier } else { 0 };
        // The count of those who wait lies in the line that the others poll and change, and so it does when the park is over.
        let announcing = barrier + self.line();
        if announcing > 0 { self.run_as(s, Doing::Announcing, announcing) } else { self.last_look(s) }
    }

    /// The look between the announcement and the sleep.
    pub(super) fn last_look(&mut self, s: u32) {
        let session = &mut self.sessions[s as usize];
        if self.mutex.is_open(session.handed) {
            return self.unparked(s, Parked::Looked);
        }
        // The kernel puts to sleep whom nobody has woken meanwhile: on its way there it takes what a call takes that finds nothing to do.
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
        session.park.come_back(session.announced, &how, |to| self.mutex.change(to));
        session.since_park = 0;
        session.parked = self.now;
        session.parks = session.parks.saturating_add(1);
        session.woken = how == Parked::Woken;
        self.owed += self.line();
        self.controller.queue_sleeps += 1;
        self.tally.count(Counter::Parks);
        if how == Parked::Woken {
            self.tally.count(Counter::Wakes);
        }
        self.split(s, if how == Parked::TimedOut { What::TimedOut } else { What::Woken });
        self.try_again(s);
    }

    /// After a release that lets only who has been parked get the mutex.
    pub(super) fn hand_over(&mut self, s: u32) {
        if !self.wake_one(s) {
            // Nobody was asleep: whoever comes may have it.
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
        if !self.is_adaptive {
            return;
        }
        let now_ns = self.now_ns();
        let controller = &mut self.controller;
        let load = Load {
            gets: self.mutex.gets - controller.last_gets,
            misses: controller.misses - controller.last_misses,
            queue_sleeps: controller.queue_sleeps - controller.last_queue_sleeps,
            queued: u64::from(self.mutex.parking.parked()),
            elapsed_ns: now_ns - controller.last_ns,
        };
        let before: Adaption = controller.state;
        let Some(after) = before.check(load, &self.workload.params) else { return };
        controller.last_gets = self.mutex.gets;
        controller.last_misses = controller.misses;
        controller.last_queue_sleeps = controller.queue_sleeps;
        controller.last_ns = now_ns;
        controller.state = after;
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
