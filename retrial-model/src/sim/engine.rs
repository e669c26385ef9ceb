//! The engine: pops events, and takes each session from one thing that it does to the next.

use super::error::SimulationError;
use super::machine::Costs;
use super::mutex::Mutex;
use super::outcome::{End, Outcome};
use super::processors::{NONE, Processors};
use super::session::{At, Doing, Session};
use super::streams::Streams;
use super::tally::Tally;
use super::timers::{ARRIVAL, COUNTING, FIRST_PROCESSOR, INTERRUPTION, RELEASE_SEEN, Timers};
use super::trace::Trace;
use super::workload::{Arrivals, Spread, Workload};
use super::{Time, seconds, time};
use retrial::P;
use retrial::interposer::Parked;
use retrial::wait::{Adaption, Counts, Experience, First};

/// State of the controller of `adaptive`, and what it saw at its last check.
#[derive(Debug, Default)]
pub(super) struct Controller {
    pub(super) state: Adaption,
    pub(super) counted: Counts,
    pub(super) last: Counts,
}

/// What belongs to one copy of the mutex.
#[derive(Debug)]
struct Own {
    mutex: Mutex,
    spinning: Vec<u32>,
    held_since: Time,
    controller: Controller,
}

impl Own {
    fn new() -> Self {
        let mutex = Mutex::new();
        Self { mutex, spinning: Vec::new(), held_since: 0, controller: Controller::default() }
    }
}

pub(super) struct Engine<'a> {
    pub(super) workload: &'a Workload,
    pub(super) costs: Costs,
    /// Between a release and the think time.
    pub(super) work: Time,
    /// Whether the losers of a race take their next step at once.
    pub(super) losers_step: bool,
    pub(super) now: Time,
    pub(super) timers: Timers,
    pub(super) sessions: Vec<Session>,
    /// Sessions that have left, to be used again.
    pub(super) absent: Vec<u32>,
    pub(super) processors: Processors,
    /// Slot of the first session.
    first: u32,
    /// The copies of the mutex. The copy that the event is about is in `mutex`, `spinning`, `held_since` and
    /// `controller`; an unused one is here in its place.
    copies: Vec<Own>,
    copy: u32,
    pub(super) mutex: Mutex,
    /// Sessions that spin on a processor.
    pub(super) spinning: Vec<u32>,
    pub(super) losers: Vec<u32>,
    /// Processor time of calls made during this event, which the session pays with what it does next.
    pub(super) owed: Time,
    /// When the last barrier is over.
    pub(super) barrier_over: Time,
    pub(super) streams: Streams,
    pub(super) controller: Controller,
    pub(super) held_since: Time,
    pub(super) tally: Tally,
    traces: Vec<Trace>,
}

/// Simulates a workload. The same seed gives the same events.
///
/// # Errors
///
/// [`SimulationError`]: the workload is wrong, has no steady state, or makes more events than allowed.
pub fn run(workload: &Workload, seed: u64) -> Result<Outcome, SimulationError> {
    workload.check()?;
    let mut engine = Engine::new(workload, seed);
    let end = time(workload.warm_up) + time(workload.duration);
    let mut events = 0u64;
    engine.begin();
    while let Some((at, slot)) = engine.timers.pop(end) {
        engine.now = at;
        events += 1;
        if events > workload.events_max {
            return Err(SimulationError::Events { events: workload.events_max, after: seconds(at.into()) });
        }
        engine.due(slot)?;
    }
    engine.now = end;
    Ok(engine.end(events))
}

impl<'a> Engine<'a> {
    fn new(workload: &'a Workload, seed: u64) -> Self {
        let (processors, costs) = (workload.machine.processors.unwrap_or(0), Costs::of(&workload.machine));
        Self {
            workload,
            costs,
            work: time(workload.work),
            losers_step: workload.params.get(P::OnLostRace) != 0,
            now: 0,
            timers: Timers::default(),
            sessions: Vec::new(),
            absent: Vec::new(),
            processors: Processors::new(processors, costs.quantum, costs.tick, costs.migration, costs.imbalance),
            first: FIRST_PROCESSOR + processors + workload.copies - 1,
            copies: (0..workload.copies).map(|_| Own::new()).collect(),
            copy: 0,
            mutex: Mutex::new(),
            spinning: Vec::new(),
            losers: Vec::new(),
            owed: 0,
            barrier_over: 0,
            streams: Streams::new(seed),
            controller: Controller::default(),
            held_since: 0,
            tally: Tally::new(0, 0),
            traces: Vec::new(),
        }
    }

    /// Whether every session has a processor of its own.
    pub(super) fn is_unlimited(&self) -> bool {
        self.workload.machine.processors.is_none()
    }

    fn begin(&mut self) {
        match self.workload.arrivals {
            Arrivals::Open { .. } => self.next_arrival(),
            Arrivals::Closed { sessions, .. } => {
                for _ in 0..sessions {
                    let session = self.add_session();
                    // Each comes with a think time of its own, from wherever it is.
                    self.sessions[session as usize].doing = Doing::Away;
                    let think = self.think();
                    self.timers.set(self.slot(session), think);
                }
            }
        }
        if self.workload.warm_up > 0.0 {
            self.timers.set(COUNTING, time(self.workload.warm_up));
        }
        self.interrupt_later();
    }

    pub(super) fn slot(&self, session: u32) -> u32 {
        self.first + session
    }

    fn due(&mut self, slot: u32) -> Result<(), SimulationError> {
        match slot {
            ARRIVAL => return self.arrive(),
            RELEASE_SEEN => {
                self.turn_to(0);
                self.offer();
            }
            COUNTING => self.begin_counting(),
            INTERRUPTION => self.interrupt_one(),
            slot if slot < self.first => match (slot + self.workload.copies).checked_sub(self.first) {
                Some(copy @ 1..) => {
                    self.turn_to(copy);
                    self.offer();
                }
                _ => self.look(slot - FIRST_PROCESSOR),
            },
            slot => self.session_due(slot - self.first),
        }
        Ok(())
    }

    /// The slot of the moment at which the spinning sessions see a release.
    pub(super) fn release_seen(&self) -> u32 {
        if self.copy == 0 { RELEASE_SEEN } else { self.first - self.workload.copies + self.copy }
    }

    /// From here on all is about this copy of the mutex.
    pub(super) fn turn_to(&mut self, copy: u32) {
        if copy != self.copy {
            self.exchange();
            self.copy = copy;
            self.exchange();
        }
    }

    /// Exchanges what belongs to the copy with what is in its place.
    fn exchange(&mut self) {
        let copy = &mut self.copies[self.copy as usize];
        std::mem::swap(&mut self.mutex, &mut copy.mutex);
        std::mem::swap(&mut self.spinning, &mut copy.spinning);
        std::mem::swap(&mut self.held_since, &mut copy.held_since);
        std::mem::swap(&mut self.controller, &mut copy.controller);
    }

    /// The session asks for one of the copies.
    pub(super) fn choose(&mut self, s: u32) {
        if self.workload.copies > 1 {
            let copy = match self.workload.spread {
                Spread::Random => self.streams.copy(self.workload.copies),
                Spread::Processor => self.sessions[s as usize].processor % self.workload.copies,
            };
            self.sessions[s as usize].copy = copy;
            self.turn_to(copy);
        }
    }

    fn begin_counting(&mut self) {
        self.tally = self.tally.again(self.now);
        self.sessions.iter_mut().for_each(|session| session.gets = 0);
    }

    fn session_due(&mut self, s: u32) {
        let Session { at, doing, copy, .. } = self.sessions[s as usize];
        self.turn_to(copy);
        if matches!(at, At::Starting | At::Running) {
            self.charge(s);
        }
        match (at, doing) {
            (At::Starting, _) => {
                self.sessions[s as usize].at = At::Running;
                self.go_on(s);
            }
            (At::Running, Doing::Working) => self.think_or_leave(s),
            (At::Running, Doing::Thinking) => self.request(s),
            (At::Running, Doing::Spinning) => {
                self.leave_spinning(s);
                self.spin_failed(s);
            }
            (At::Running, Doing::Yielding) => self.yielded(s),
            (At::Running, Doing::Missing) => self.try_again(s),
            (At::Running, Doing::Stepping) => self.step(s),
            (At::Running, Doing::Dozing) => self.doze(s),
            (At::Running, Doing::Announcing) => self.last_look(s),
            (At::Running, Doing::Parking) => self.fall_asleep(s),
            (At::Running, Doing::Holding) => self.take_line_back(s),
            (At::Running, Doing::Releasing) => self.release(s),
            (At::Running, Doing::Calling) => self.end_cycle(s),
            (At::Nowhere, Doing::Away) => self.comes_back(s, Doing::Arriving),
            (At::Nowhere, Doing::Woken) => self.woken(s),
            (At::Nowhere, Doing::Sleeping) => self.timer_due(s),
            (At::Nowhere, Doing::Parked) => {
                self.mutex.leave(s);
                self.comes_back(s, Doing::TimedOut);
            }
            (at, doing) => unreachable!("session {s} has no timer when it is {at:?}, {doing:?}"),
        }
    }

    pub(super) fn comes_back(&mut self, s: u32, doing: Doing) {
        self.sessions[s as usize].doing = doing;
        self.ready(s, None);
    }

    /// A session has its processor, or has it again.
    pub(super) fn go_on(&mut self, s: u32) {
        match self.sessions[s as usize].doing {
            Doing::Arriving => self.request(s),
            Doing::Yielded => self.yielded(s),
            Doing::Slept => self.slept(s),
            Doing::Woken => self.unparked(s, Parked::Woken),
            Doing::TimedOut => self.unparked(s, Parked::TimedOut),
            Doing::Spinning => self.spin_on(s),
            _ => self.run(s),
        }
    }

    fn add_session(&mut self) -> u32 {
        let s = self.sessions.len() as u32;
        if self.is_unlimited() {
            self.processors.add();
        }
        self.sessions.push(Session::new(s % self.processors.count(), self.course(First::Spin, 0)));
        if s < self.workload.traced {
            self.traces.push(Trace::default());
        }
        s
    }

    fn next_arrival(&mut self) {
        if let Arrivals::Open { rate } = self.workload.arrivals {
            self.timers.set(ARRIVAL, self.now.saturating_add(self.streams.until_arrival(rate)));
        }
    }

    fn arrive(&mut self) -> Result<(), SimulationError> {
        self.next_arrival();
        let s = self.absent.pop().unwrap_or_else(|| self.add_session());
        let limit = self.workload.sessions_max;
        if s >= limit {
            let gets = self.mutex.gets + self.copies.iter().map(|copy| copy.mutex.gets).sum::<u64>();
            let after = seconds(self.now.into());
            return Err(SimulationError::Population { sessions: s + 1, limit, after, gets });
        }
        self.sessions[s as usize].experience = Experience::default();
        self.comes_back(s, Doing::Arriving);
        Ok(())
    }

    pub(super) fn think(&mut self) -> Time {
        match &self.workload.arrivals {
            Arrivals::Closed { think, .. } => self.streams.think(think),
            Arrivals::Open { .. } => 0,
        }
    }

    /// A wake-up of a parked session by another one, which pays for the call. The session is ready when that is
    /// half over. Sessions that spin have seen the release before, and one of them may have got the mutex.
    pub(super) fn awaken(&mut self, s: u32, waker: u32) {
        let call = self.costs.call_near;
        let session = &mut self.sessions[s as usize];
        session.doing = Doing::Woken;
        session.waker = waker;
        self.owed += call;
        if call > 0 {
            self.timers.set(self.slot(s), self.now + call / 2);
        } else {
            // At once: what takes no time is over before the waker goes on.
            self.timers.clear(self.slot(s));
            self.owed += if self.ready(s, Some(waker)) { self.costs.call_far } else { 0 };
        }
    }

    /// A wake-up has taken effect. That of an idle processor takes longer.
    fn woken(&mut self, s: u32) {
        let waker = self.sessions[s as usize].waker;
        if self.ready(s, Some(waker)) {
            self.interrupt(waker, self.costs.call_far.saturating_sub(self.costs.call_near));
        }
    }

    pub(super) fn note(&mut self, s: u32, what: retrial::views::What, asked: Time, took: Time) {
        if let Some(trace) = self.traces.get_mut(s as usize) {
            trace.note(self.now, what, asked, took, self.mutex.holder);
        }
    }

    fn end(mut self, events: u64) -> Outcome {
        for s in 0..self.sessions.len() as u32 {
            let Session { at, doing, .. } = self.sessions[s as usize];
            if matches!(at, At::Starting | At::Running) {
                self.charge(s);
            }
            let goes_on = at == At::Ready || doing == Doing::Absent || self.timers.is_set(self.slot(s));
            assert!(goes_on, "session {s} is stuck: {at:?}, {doing:?}");
        }
        for copy in 0..self.workload.copies {
            self.turn_to(copy);
            if self.mutex.holder != NONE {
                self.tally.busy += self.tally.part(self.held_since, self.now);
            }
        }
        self.tally.settle(self.now);
        let processors = self.workload.machine.processors;
        let is_open = matches!(self.workload.arrivals, Arrivals::Open { .. });
        Outcome::new(End {
            tally: self.tally,
            now: self.now,
            events,
            processors: processors.unwrap_or(self.sessions.len() as u32),
            sessions: self.sessions.len() as u32,
            copies: self.workload.copies,
            gets: if is_open { Vec::new() } else { self.sessions.iter().map(|session| session.gets).collect() },
            pthread_in_use: self.controller.state.pthread_in_use,
            traces: self.traces.into_iter().map(Trace::into_events).collect(),
        })
    }
}
