//! From spins to gets and releases: which session gets the mutex, for how long, and what a release does.

use super::Time;
use super::engine::Engine;
use super::processors::NONE;
use super::session::{Doing, Session};
use super::workload::Arrivals;

impl Engine<'_> {
    /// Joins the sessions that spin on a processor.
    pub(super) fn spin(&mut self, s: u32) {
        self.sessions[s as usize].place = self.spinning.len() as u32;
        self.spinning.push(s);
        self.run(s);
    }

    pub(super) fn leave_spinning(&mut self, s: u32) {
        let place = self.sessions[s as usize].place;
        self.spinning.swap_remove(place as usize);
        if let Some(moved) = self.spinning.get(place as usize) {
            self.sessions[*moved as usize].place = place;
        }
    }

    /// A session that spun has its processor again.
    pub(super) fn spin_on(&mut self, s: u32) {
        let is_open = self.mutex.is_open(self.sessions[s as usize].handed, self.now_ns());
        if is_open { self.acquire(s, true) } else { self.spin(s) }
    }

    /// A session gets the mutex. `waited`: after a miss.
    pub(super) fn acquire(&mut self, s: u32, waited: bool) {
        self.mutex.holder = s;
        self.mutex.handover = false;
        if waited {
            self.wait_over(s);
        }
        if waited || self.controller.state.pthread_in_use {
            self.adapt(s);
        }
        self.mutex.gets += 1;
        let session = &mut self.sessions[s as usize];
        session.gets += 1;
        self.tally.got(session.requested, self.now);
        self.held_since = self.now;
        let processor = session.processor;
        let is_near = std::mem::replace(&mut self.mutex.line, processor) == processor;
        let transfer = if is_near { self.costs.exchange } else { self.transaction() };
        let hold = self.streams.hold(&self.workload.hold);
        self.run_as(s, Doing::Holding, hold.saturating_add(transfer));
    }

    /// What it takes to have the line from another processor, or from all others, past all that ask for it
    /// too. On its way there and back there are four: each of the two takes it, and reads what the other one
    /// has written.
    pub(super) fn transaction(&self) -> Time {
        let others = self.spinning.len().saturating_sub(1) as Time;
        self.costs.line / 4 + others * self.costs.line_crowd
    }

    /// Spinning sessions share the cache line: the store that releases waits for it to come back.
    pub(super) fn take_line_back(&mut self, s: u32) {
        if self.spinning.is_empty() || self.costs.line == 0 {
            return self.release(s);
        }
        self.run_as(s, Doing::Releasing, self.transaction());
    }

    pub(super) fn release(&mut self, s: u32) {
        self.tally.releases += 1;
        self.tally.busy += self.tally.part(self.held_since, self.now);
        self.mutex.holder = NONE;
        let (_, for_x) = self.mutex.parking.starving();
        self.mutex.handover = self.hands_over();
        self.sessions[s as usize].doing = Doing::Calling;
        let seen = self.release_seen();
        let handed = self.mutex.handover;
        if self.spinning.is_empty() {
            // No session is there to see it.
        } else if self.costs.line == 0 {
            self.offer();
        } else if !self.timers.is_set(seen) {
            self.timers.set(seen, self.now + self.transaction());
        }
        self.owed = 0;
        if handed {
            self.hand_over(s, for_x);
        } else if self.mutex.parking.wakes() {
            self.wake_one(s);
        }
        if self.owed > 0 { self.run_as(s, Doing::Calling, 0) } else { self.end_cycle(s) }
    }

    /// The spinning sessions see the mutex free, if it still is.
    pub(super) fn offer(&mut self) {
        if self.mutex.holder != NONE {
            return;
        }
        let handover = self.mutex.handover;
        let may = |sessions: &[Session], s: u32| !handover || sessions[s as usize].handed;
        let (sessions, spinning) = (&self.sessions, &self.spinning);
        let racing = if handover { spinning.iter().filter(|s| may(sessions, **s)).count() } else { spinning.len() };
        if racing == 0 {
            return;
        }
        let drawn = if racing == 1 { 0 } else { self.streams.race(racing) };
        let winner = if handover {
            spinning.iter().copied().filter(|s| may(sessions, *s)).nth(drawn).expect("so many race")
        } else {
            spinning[drawn]
        };
        self.stop_spinning(winner);
        let mut losers = std::mem::take(&mut self.losers);
        if self.losers_step {
            losers.extend(self.spinning.iter().copied().filter(|s| may(&self.sessions, *s)));
            for loser in &losers {
                self.stop_spinning(*loser);
            }
        }
        self.acquire(winner, true);
        for loser in losers.drain(..) {
            self.spin_failed(loser);
        }
        self.losers = losers;
    }

    fn stop_spinning(&mut self, s: u32) {
        self.charge(s);
        self.timers.clear(self.slot(s));
        self.leave_spinning(s);
    }

    /// The session has released the mutex and made its wake-up.
    pub(super) fn end_cycle(&mut self, s: u32) {
        if self.work > 0 { self.run_as(s, Doing::Working, self.work) } else { self.think_or_leave(s) }
    }

    pub(super) fn think_or_leave(&mut self, s: u32) {
        let think = self.think();
        match self.workload.arrivals {
            Arrivals::Closed { on_processor: true, .. } => self.run_as(s, Doing::Thinking, think),
            Arrivals::Closed { .. } => {
                self.sessions[s as usize].doing = Doing::Away;
                self.timers.set(self.slot(s), self.now.saturating_add(think));
                self.leave(s);
            }
            Arrivals::Open { .. } => {
                self.sessions[s as usize].doing = Doing::Absent;
                self.absent.push(s);
                self.leave(s);
            }
        }
    }
}
