//! Gives processors to sessions, and takes them away.

use super::Time;
use super::engine::Engine;
use super::processors::NONE;
use super::session::{At, Doing};
use super::tally::Use;
use super::timers::{FIRST_PROCESSOR, INTERRUPTION};

impl Engine<'_> {
    /// Runs until the rest of what the session does is over.
    pub(super) fn run(&mut self, s: u32) {
        let slot = self.slot(s);
        let session = &mut self.sessions[s as usize];
        session.at = At::Running;
        session.since = self.now;
        session.rest = session.rest.saturating_add(std::mem::take(&mut self.owed));
        self.timers.set(slot, self.now.saturating_add(session.rest));
    }

    /// Does something else on its processor.
    pub(super) fn run_as(&mut self, s: u32, doing: Doing, rest: Time) {
        let session = &mut self.sessions[s as usize];
        session.doing = doing;
        session.rest = rest;
        self.run(s);
    }

    /// A barrier of a session, and what it takes the session: it interrupts all other processors that run sessions,
    /// for half of that time. Where none does it is a call that finds nothing to do. The kernel makes one barrier after
    /// the other (since 6.8).
    pub(super) fn barrier(&mut self, s: u32) -> Time {
        let mut takes = self.costs.yield_alone.min(self.costs.barrier);
        for processor in 0..self.processors.count() {
            let other = self.processors.get(processor).running;
            if other == s || other == NONE || self.sessions[other as usize].at != At::Running {
                continue;
            }
            takes = self.costs.barrier;
            self.interrupt(other, takes / 2);
        }
        self.barrier_over = self.barrier_over.max(self.now).saturating_add(takes);
        self.barrier_over - self.now
    }

    /// The next interruption of a processor by what is no session.
    pub(super) fn interrupt_later(&mut self) {
        if self.costs.interrupt_interval > 0 {
            let next = self.streams.interrupt(self.costs.interrupt_interval);
            let next = next / Time::from(self.processors.count().max(1));
            self.timers.set(INTERRUPTION, self.now.saturating_add(next));
        }
    }

    /// What is no session interrupts a processor.
    pub(super) fn interrupt_one(&mut self) {
        self.interrupt_later();
        let (takes, count) = (self.streams.interrupt(self.costs.interrupt), self.processors.count());
        let processor = self.streams.interrupted(count);
        self.interrupt_on(processor, takes);
    }

    /// What a processor does takes so much longer.
    pub(super) fn interrupt_on(&mut self, processor: u32, takes: Time) {
        let s = self.processors.get(processor).running;
        if s != NONE {
            self.interrupt(s, takes);
        }
    }

    /// What a session does, or the switch to it, takes so much longer.
    pub(super) fn interrupt(&mut self, s: u32, takes: Time) {
        let slot = self.slot(s);
        let session = &mut self.sessions[s as usize];
        if session.at == At::Running {
            session.rest = session.rest.saturating_add(takes);
        }
        if matches!(session.at, At::Running | At::Starting) {
            self.timers.delay(slot, takes);
        }
    }

    /// Counts the processor time since the session runs.
    pub(super) fn charge(&mut self, s: u32) {
        let session = &self.sessions[s as usize];
        let used = if session.at == At::Starting { Use::Switch } else { session.doing.uses() };
        self.tally.used(used, session.since, self.now);
    }

    /// Leaves its processor to the next session.
    pub(super) fn leave(&mut self, s: u32) {
        self.owed = 0;
        let session = &mut self.sessions[s as usize];
        session.at = At::Nowhere;
        let processor = session.processor;
        self.processors.part(processor, self.now);
        self.next(processor);
    }

    fn next(&mut self, processor: u32) {
        if let Some(next) = self.processors.pop(processor, self.now) {
            return self.start(processor, next, self.costs.switch);
        }
        self.processors.stop(processor, self.now);
        if !self.is_unlimited() {
            match self.processors.balances_at(self.now) {
                Some(tick) => self.timers.set(FIRST_PROCESSOR + processor, tick),
                None => self.timers.clear(FIRST_PROCESSOR + processor),
            }
        }
    }

    /// Has a session run on a processor after a delay.
    fn start(&mut self, processor: u32, s: u32, delay: Time) {
        let slot = self.slot(s);
        let session = &mut self.sessions[s as usize];
        session.processor = processor;
        session.at = At::Starting;
        session.since = self.now;
        self.timers.set(slot, self.now + delay);
        self.tally.switches += 1;
        self.processors.start(processor, s, self.now, delay);
        self.look_later(processor);
    }

    /// Has the running session looked at when its slice is over, if others are ready.
    fn look_later(&mut self, processor: u32) {
        if self.is_unlimited() {
            return;
        }
        let slot = FIRST_PROCESSOR + processor;
        if self.processors.get(processor).ready > 0 {
            self.timers.set(slot, self.processors.due(processor, self.now));
        } else {
            self.timers.clear(slot);
        }
    }

    /// A session wants to run: at once if a processor is idle. `waker`: the session that woke it. Whether a
    /// processor was idle.
    pub(super) fn ready(&mut self, s: u32, waker: Option<u32>) -> bool {
        let last = self.sessions[s as usize].processor;
        let processor = if self.processors.rejoin(last, s, self.now) {
            last
        } else if let Some(idle) = self.processors.idle_for(last) {
            self.processors.join(idle, s, self.now);
            if waker.is_some() {
                self.start(idle, s, self.costs.wake_far.saturating_sub(self.costs.call_near / 2));
            } else {
                // The delay of a timer is in its lateness.
                let session = &mut self.sessions[s as usize];
                session.processor = idle;
                session.at = At::Running;
                self.tally.switches += 1;
                self.processors.start(idle, s, self.now, 0);
                self.go_on(s);
            }
            return true;
        } else {
            let wakers = waker.map_or(last, |waker| self.sessions[waker as usize].processor);
            let shorter = self.processors.get(wakers).ready < self.processors.get(last).ready;
            let processor = if shorter { wakers } else { last };
            self.processors.join(processor, s, self.now);
            self.processors.push(processor, s);
            processor
        };
        let session = &mut self.sessions[s as usize];
        session.at = At::Ready;
        session.processor = processor;
        self.preempt_soon(processor, s);
        self.balance_later(processor);
        false
    }

    /// Has an idle processor, if there is one, look for a session at the next tick.
    fn balance_later(&mut self, busy: u32) {
        if let Some(idle) = self.processors.idle(busy)
            && !self.timers.is_set(FIRST_PROCESSOR + idle)
            && let Some(tick) = self.processors.balances_at(self.now)
        {
            self.timers.set(FIRST_PROCESSOR + idle, tick);
        }
    }

    /// A session woke up on a busy processor: the running one is looked at after this event, or at a tick.
    fn preempt_soon(&mut self, processor: u32, woken: u32) {
        let slot = FIRST_PROCESSOR + processor;
        if self.costs.preempt_after.is_some_and(|after| self.processors.preempts(processor, woken, after, self.now)) {
            self.timers.set(slot, self.now);
        } else if !self.timers.is_set(slot) {
            self.timers.set(slot, self.processors.due(processor, self.now));
        }
    }

    /// Looks at the running session of a processor: another one may be next.
    pub(super) fn look(&mut self, processor: u32) {
        if self.processors.get(processor).running == NONE {
            return self.next(processor);
        }
        if self.processors.get(processor).ready == 0 {
            return;
        }
        let s = self.processors.get(processor).running;
        let next = self.processors.rotate(processor, self.now);
        if next == s {
            return self.look_later(processor);
        }
        self.turn_to(self.sessions[s as usize].copy);
        self.charge(s);
        self.timers.clear(self.slot(s));
        let session = &mut self.sessions[s as usize];
        if session.at == At::Running {
            session.rest -= self.now - session.since;
            if session.doing == Doing::Spinning {
                self.leave_spinning(s);
            }
        }
        self.sessions[s as usize].at = At::Ready;
        self.start(processor, next, self.costs.switch);
    }

    /// Lets the others of its processor run, if their turn has come.
    pub(super) fn give_way(&mut self, s: u32) {
        let processor = self.sessions[s as usize].processor;
        let next = if self.processors.get(processor).ready == 0 {
            s
        } else {
            self.processors.forfeit(processor, self.now);
            self.processors.rotate(processor, self.now)
        };
        if next == s {
            return self.run_as(s, Doing::Yielding, self.costs.yield_alone);
        }
        let session = &mut self.sessions[s as usize];
        session.doing = Doing::Yielded;
        session.at = At::Ready;
        self.owed = 0;
        self.start(processor, next, self.costs.switch);
    }
}
