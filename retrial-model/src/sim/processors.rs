//! The processors: which session runs on each, and which are ready to.
//!
//! One run queue a processor, as Linux has: a yield gives way to those of the own queue only, and whether a
//! woken session runs near or far is known. A session that becomes ready goes to its last processor if that
//! is idle, else to any idle one if the machine is not much used, else to a queue. A processor whose queue is
//! empty takes from the longest one the session that ran last longest ago, but none that ran just before, whose
//! data are taken to be in the caches there (Linux: `task_hot`). While there are only such, it looks again at
//! each tick.
//!
//! Which session is next is Linux's own rule, EEVDF (I. Stoica, H. Abdel-Wahab, *Earliest eligible virtual
//! deadline first*, 1995; in Linux since 6.6), for sessions of equal weight. A session's virtual time is the time
//! that it has run. It is eligible while that is not above the mean of its processor. The eligible session whose
//! slice is due first is next. The lag of a session is how much less it ran than the mean. It keeps that while
//! it sleeps. A session that ran more than the mean does not leave its queue when it goes to sleep, but when its
//! turn comes (Linux calls it delayed). If it wakes up before, it goes on with the slice that it had.

use super::Time;
use super::run_queue::{Entity, Entry, Processor, Virtual};
use super::utilization::Utilization;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No session, or no processor.
pub(super) const NONE: u32 = u32::MAX;

/// Bits of a word of the set of idle processors.
const WORD: u32 = u64::BITS;

#[derive(Debug)]
pub(super) struct Processors {
    all: Vec<Processor>,
    idle: Vec<u64>,
    /// Ready sessions of all queues.
    ready: u32,
    entities: Vec<Entity>,
    /// Entries so far.
    entries: u64,
    slice: Time,
    /// From one tick to the next; 0: the running session is looked at when its slice is over.
    tick: Time,
    /// No other processor takes a session for so long after it ran.
    hot: Time,
    used: Utilization,
    /// [`super::Machine::imbalance_pct`] / 100.
    imbalance: f64,
}

impl Processors {
    pub(super) fn new(count: u32, slice: Time, tick: Time, hot: Time, imbalance: f64) -> Self {
        let (all, idle, entities, used) = (Vec::new(), Vec::new(), Vec::new(), Utilization::default());
        let mut processors = Self { all, idle, ready: 0, entities, entries: 0, slice, tick, hot, used, imbalance };
        (0..count).for_each(|_| processors.add());
        processors
    }

    /// One more, idle.
    pub(super) fn add(&mut self) {
        let number = self.all.len() as u32;
        if number.is_multiple_of(WORD) {
            self.idle.push(0);
        }
        self.all.push(Processor::new());
        self.idle[(number / WORD) as usize] |= 1 << (number % WORD);
    }

    pub(super) fn count(&self) -> u32 {
        self.all.len() as u32
    }

    pub(super) fn get(&self, processor: u32) -> &Processor {
        &self.all[processor as usize]
    }

    fn set_idle(&mut self, processor: u32, idle: bool, now: Time) {
        if self.is_idle(processor) != idle {
            self.idle[(processor / WORD) as usize] ^= 1 << (processor % WORD);
            self.used.change(!idle, now);
        }
    }

    fn is_idle(&self, processor: u32) -> bool {
        self.idle[(processor / WORD) as usize] >> (processor % WORD) & 1 == 1
    }

    /// The processor for a session that wakes up, if there is an idle one for it: its last one, or where Linux looks
    /// for another one ([`super::Machine::imbalance_pct`]), any.
    pub(super) fn idle_for(&self, last: u32) -> Option<u32> {
        let count = f64::from(self.count());
        let looks = || count * (1.0 - (self.used.mean() / count * self.imbalance).powi(2)) >= 1.0;
        self.idle(last).filter(|idle| *idle == last || looks())
    }

    /// An idle processor: the wanted one if it is.
    pub(super) fn idle(&self, wanted: u32) -> Option<u32> {
        if self.is_idle(wanted) {
            return Some(wanted);
        }
        let word = self.idle.iter().position(|word| *word != 0)?;
        Some(word as u32 * WORD + self.idle[word].trailing_zeros())
    }

    /// A session that was in no queue comes to a processor. It keeps its lag.
    pub(super) fn join(&mut self, processor: u32, session: u32, now: Time) {
        self.count_run(processor, now);
        if self.entities.len() <= session as usize {
            self.entities.resize(session as usize + 1, Entity::default());
        }
        let (queue, entity) = (&mut self.all[processor as usize], &mut self.entities[session as usize]);
        // Its own weight draws the mean to it.
        let lag = i128::from(entity.lag) * (queue.count + 1) / queue.count.max(1);
        entity.virtual_time = queue.mean() - lag as Virtual;
        entity.deadline = entity.virtual_time + self.slice as Virtual;
        queue.add(entity.virtual_time);
    }

    /// A session wakes up that has not left its queue yet, on this processor: it is ready. If its turn could
    /// have come, it has no lag, and a new slice. Whether it was such a session.
    pub(super) fn rejoin(&mut self, processor: u32, session: u32, now: Time) -> bool {
        self.count_run(processor, now);
        let (queue, Some(entity)) = (&mut self.all[processor as usize], self.entities.get_mut(session as usize)) else {
            return false;
        };
        if !std::mem::take(&mut entity.is_delayed) {
            return false;
        }
        if queue.is_eligible(entity.virtual_time) {
            queue.remove(entity.virtual_time);
            entity.lag = 0;
            self.join(processor, session, now);
            self.push(processor, session);
        } else {
            queue.ready += 1;
            self.ready += 1;
        }
        true
    }

    /// Puts a session of the processor into its queue.
    pub(super) fn push(&mut self, processor: u32, session: u32) {
        self.all[processor as usize].ready += 1;
        self.ready += 1;
        self.enter(processor, session);
    }

    fn enter(&mut self, processor: u32, session: u32) {
        let (queue, entity) = (&mut self.all[processor as usize], &mut self.entities[session as usize]);
        self.entries += 1;
        entity.entry = self.entries;
        if queue.is_eligible(entity.virtual_time) {
            queue.eligible.push(Reverse((entity.deadline, self.entries, session)));
        } else {
            queue.others.push(Reverse((entity.virtual_time, self.entries, session)));
        }
    }

    /// A session of the processor begins to run after a delay. That is time that it has run, unless the processor
    /// was idle.
    pub(super) fn start(&mut self, processor: u32, session: u32, now: Time, delay: Time) {
        let (since, counted) = (now + delay, if self.is_idle(processor) { now + delay } else { now });
        self.set_idle(processor, false, now);
        let entity = self.entities[session as usize];
        let rest = (entity.deadline - entity.virtual_time).max(0) as Time;
        let processor = &mut self.all[processor as usize];
        processor.running = session;
        processor.since = since;
        processor.counted = counted;
        processor.until = since + rest.min(self.slice);
    }

    /// When the running session is looked at: at a tick once its slice is over.
    pub(super) fn due(&self, processor: u32, now: Time) -> Time {
        let &Processor { until, running, .. } = self.get(processor);
        match self.tick {
            0 if until > now => until,
            // It goes on with another slice.
            0 => {
                let entity = self.entities[running as usize];
                now + (entity.deadline - entity.virtual_time) as Time
            }
            _ => self.tick_from(until.max(now + 1)),
        }
    }

    /// The next tick at which an idle processor looks for a session that it may take; `None` if none is ready.
    pub(super) fn balances_at(&self, now: Time) -> Option<Time> {
        // A tick that is now has been.
        (self.ready > 0 && self.tick > 0).then(|| self.tick_from(now + 1))
    }

    fn tick_from(&self, time: Time) -> Time {
        time.div_ceil(self.tick) * self.tick
    }

    /// Whether a session that woke up preempts the running one. That has run for `after` or to the end of its slice,
    /// so that any session may be next, or it has run more than its share, and the woken session is next.
    pub(super) fn preempts(&mut self, processor: u32, woken: u32, after: Time, now: Time) -> bool {
        self.count_run(processor, now);
        let queue = self.get(processor);
        let is_over = now >= queue.until.min(queue.since + after);
        let is_eligible = queue.is_eligible(self.entities[queue.running as usize].virtual_time);
        is_over || !is_eligible && self.next(processor).peek().is_some_and(|next| next.0.2 == woken)
    }

    /// Counts what the running session has run. A slice that is over is followed by the next one.
    fn count_run(&mut self, processor: u32, now: Time) {
        let queue = &mut self.all[processor as usize];
        if queue.running == NONE {
            return;
        }
        let ran = now.saturating_sub(queue.counted) as Virtual;
        queue.counted = queue.counted.max(now);
        queue.sum += i128::from(ran);
        let entity = &mut self.entities[queue.running as usize];
        entity.ran = now;
        entity.virtual_time += ran;
        if entity.virtual_time >= entity.deadline {
            entity.deadline = entity.virtual_time + self.slice as Virtual;
        }
    }

    /// The running session gives up the rest of its slice, which counts as run: a yield does so in Linux 6.18.
    pub(super) fn forfeit(&mut self, processor: u32, now: Time) {
        self.count_run(processor, now);
        let queue = &mut self.all[processor as usize];
        let entity = &mut self.entities[queue.running as usize];
        if queue.is_eligible(entity.virtual_time) {
            queue.sum += i128::from(entity.deadline - entity.virtual_time);
            entity.virtual_time = entity.deadline;
            entity.deadline += self.slice as Virtual;
        }
    }

    /// The running session goes to sleep. It leaves the queue if it is eligible.
    pub(super) fn part(&mut self, processor: u32, now: Time) {
        self.count_run(processor, now);
        let queue = &self.all[processor as usize];
        let session = queue.running;
        if queue.is_eligible(self.entities[session as usize].virtual_time) {
            self.go(processor, session);
        } else {
            self.entities[session as usize].is_delayed = true;
            self.enter(processor, session);
        }
    }

    /// A session leaves its processor. Its lag is at most two slices, or a tick.
    fn go(&mut self, processor: u32, session: u32) {
        let most = (2 * self.slice).max(self.tick) as Virtual;
        let (queue, entity) = (&mut self.all[processor as usize], &mut self.entities[session as usize]);
        entity.lag = (queue.mean() - entity.virtual_time).clamp(-most, most);
        queue.remove(entity.virtual_time);
    }

    /// Puts the running session back into its queue, and takes the next one: the same one if its turn is not
    /// over.
    pub(super) fn rotate(&mut self, processor: u32, now: Time) -> u32 {
        self.count_run(processor, now);
        self.push(processor, self.get(processor).running);
        self.pick(processor).expect("at least the running session is ready")
    }

    /// A session sets a timer on its processor, which an interrupt from then on ends.
    pub(super) fn set_timer(&mut self, processor: u32, session: u32, from: Time) {
        self.all[processor as usize].timers.push(Reverse((from, session)));
    }

    /// The sessions of a processor whose timers an interrupt ends now.
    pub(super) fn timers(&mut self, processor: u32, now: Time) -> Vec<u32> {
        let timers = &mut self.all[processor as usize].timers;
        let mut ended = Vec::new();
        while timers.peek().is_some_and(|next| next.0.0 <= now) {
            ended.extend(timers.pop().map(|Reverse((_, session))| session));
        }
        ended
    }

    /// A processor has no session to run.
    pub(super) fn stop(&mut self, processor: u32, now: Time) {
        self.set_idle(processor, true, now);
        self.all[processor as usize].running = NONE;
    }

    /// Takes the session that a processor runs next, from its own queue or else from the longest one.
    pub(super) fn pop(&mut self, processor: u32, now: Time) -> Option<u32> {
        if let Some(session) = self.pick(processor) {
            return Some(session);
        }
        if self.ready == 0 {
            return None;
        }
        let from = self.longest();
        let session = self.coldest(from, now)?;
        self.all[from].ready -= 1;
        self.ready -= 1;
        let mean = self.all[from].mean();
        let entity = &mut self.entities[session as usize];
        entity.entry = 0;
        self.all[from].remove(entity.virtual_time);
        // It is as far from the mean of its new queue as it was from that of the old one.
        let moved = self.all[processor as usize].mean() - mean;
        entity.virtual_time += moved;
        entity.deadline += moved;
        self.all[processor as usize].add(entity.virtual_time);
        Some(session)
    }

    /// Takes the session that may run and is due first. The turn of a delayed one is that it leaves; it has no lag
    /// then, unless it ran too much.
    fn pick(&mut self, processor: u32) -> Option<u32> {
        while let Some(Reverse((_, _, session))) = self.next(processor).pop() {
            if !std::mem::take(&mut self.entities[session as usize].is_delayed) {
                self.all[processor as usize].ready -= 1;
                self.ready -= 1;
                return Some(session);
            }
            self.go(processor, session);
            let lag = &mut self.entities[session as usize].lag;
            *lag = (*lag).min(0);
        }
        None
    }

    /// The heap that has the next session of a processor first, if there is one.
    fn next(&mut self, processor: u32) -> &mut BinaryHeap<Entry> {
        let (queue, entities) = (&mut self.all[processor as usize], &self.entities);
        let entity = |session: u32| entities[session as usize];
        while let Some(Reverse((_, order, session))) = queue.others.peek().copied() {
            let Entity { virtual_time, deadline, entry, .. } = entity(session);
            if order == entry && !queue.is_eligible(virtual_time) {
                break;
            }
            queue.others.pop();
            if order == entry {
                queue.eligible.push(Reverse((deadline, order, session)));
            }
        }
        // A session that came with a lag may have moved the mean back.
        while let Some(Reverse((_, order, session))) = queue.eligible.peek().copied() {
            let Entity { virtual_time, entry, .. } = entity(session);
            if order == entry && queue.is_eligible(virtual_time) {
                break;
            }
            queue.eligible.pop();
            if order == entry {
                queue.others.push(Reverse((virtual_time, order, session)));
            }
        }
        if queue.eligible.is_empty() { &mut queue.others } else { &mut queue.eligible }
    }

    /// The ready session of a queue that ran last longest ago, if other processors may take it.
    fn coldest(&self, queue: usize, now: Time) -> Option<u32> {
        let Processor { eligible, others, .. } = &self.all[queue];
        let ready = eligible.iter().chain(others).filter_map(|Reverse((_, order, session))| {
            let Entity { entry, is_delayed, ran, .. } = self.entities[*session as usize];
            (entry == *order && !is_delayed).then_some((ran, *order, *session))
        });
        let (ran, _, session) = ready.min()?;
        (now >= ran + self.hot).then_some(session)
    }

    fn longest(&self) -> usize {
        (0..self.all.len()).max_by_key(|i| (self.all[*i].ready, Reverse(*i))).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Time = 10;

    fn processors(count: u32, ready: &[(u32, u32)]) -> Processors {
        let mut processors = Processors::new(count, SLICE, 0, 0, 0.0);
        for (to, session) in ready {
            processors.join(*to, *session, 0);
            processors.push(*to, *session);
        }
        processors
    }

    /// Has the next one run for so long, and then what it does.
    fn turn(processors: &mut Processors, now: &mut Time, ran: Time, then: fn(&mut Processors, Time)) -> u32 {
        let session = processors.pop(0, 0).unwrap();
        processors.start(0, session, *now, 0);
        *now += ran;
        then(processors, *now);
        session
    }

    fn back(processors: &mut Processors, now: Time) {
        processors.count_run(0, now);
        let running = processors.get(0).running;
        processors.push(0, running);
    }

    fn yields(processors: &mut Processors, now: Time) {
        processors.forfeit(0, now);
        back(processors, now);
    }

    fn sleeps(processors: &mut Processors, now: Time) {
        processors.part(0, now);
    }

    #[test]
    fn an_idle_processor_takes_from_the_longest_queue() {
        let mut processors = processors(3, &[(0, 10), (1, 11), (1, 12)]);
        let taken: Vec<u32> = std::iter::from_fn(|| processors.pop(2, 0)).collect();
        assert_eq!(taken, [11, 10, 12]);
    }

    #[test]
    fn no_other_processor_takes_a_session_that_ran_just_before() {
        let mut processors = Processors::new(2, SLICE, 25, 4 * SLICE, 0.0);
        for session in 1..=3 {
            processors.join(0, session, 0);
            processors.push(0, session);
        }
        let mut now = 0;
        assert_eq!(turn(&mut processors, &mut now, SLICE, back), 1);
        assert_eq!(turn(&mut processors, &mut now, SLICE, back), 2);
        assert_eq!(turn(&mut processors, &mut now, SLICE, back), 3);
        let running = processors.pop(0, now).unwrap();
        processors.start(0, running, now, 0);
        assert_eq!(
            (processors.pop(1, now), processors.balances_at(now)),
            (None, Some(50)),
            "the latest tick was at 25"
        );
        // 1 runs on; 2 ran longer ago than 3.
        assert_eq!((running, processors.pop(1, 6 * SLICE)), (1, Some(2)));
        assert_eq!((processors.pop(1, 6 * SLICE), processors.get(0).ready), (None, 1));
    }

    #[test]
    fn the_own_queue_comes_first_and_in_order() {
        let mut processors = processors(2, &[(0, 1), (1, 2), (1, 3), (0, 4)]);
        assert_eq!((processors.pop(0, 0), processors.pop(0, 0)), (Some(1), Some(4)));
        assert_eq!(processors.get(1).ready, 2);
    }

    #[test]
    fn whole_slices_are_turns() {
        let (mut processors, mut now) = (processors(1, &[(0, 1), (0, 2), (0, 3)]), 0);
        let order: Vec<u32> = (0..7).map(|_| turn(&mut processors, &mut now, SLICE, back)).collect();
        assert_eq!(order, [1, 2, 3, 1, 2, 3, 1]);
    }

    #[test]
    fn a_yield_counts_as_a_slice() {
        // 1 runs for four slices; 2 and 3 yield at once, as often.
        let (mut processors, mut now) = (processors(1, &[(0, 1), (0, 2), (0, 3)]), 0);
        assert_eq!(turn(&mut processors, &mut now, 4 * SLICE, back), 1);
        let order: Vec<u32> = (0..9).map(|_| turn(&mut processors, &mut now, 1, yields)).collect();
        assert_eq!(order, [2, 3, 2, 3, 2, 3, 2, 3, 1]);
    }

    #[test]
    fn a_session_that_wakes_up_preempts_only_where_it_is_next() {
        // 1 runs, 2 and 3 are ready; 4 comes back with a lag.
        let preempts = |lag: Virtual, ran: Time| {
            let mut processors = processors(1, &[(0, 1), (0, 2), (0, 3)]);
            let running = processors.pop(0, 0).unwrap();
            processors.start(0, running, 0, 0);
            processors.count_run(0, ran);
            processors.entities.resize(5, Entity { lag, ..Entity::default() });
            processors.join(0, 4, 0);
            processors.push(0, 4);
            processors.preempts(0, 4, SLICE, ran)
        };
        assert!(!preempts(0, 0), "1 has not had its share");
        assert!(preempts(6, SLICE / 2), "1 has had more, and 4 is due before 2");
        assert!(!preempts(0, SLICE / 2), "2 is due before 4");
        assert!(preempts(0, SLICE), "the slice is over");
    }

    #[test]
    fn a_session_that_ran_less_than_the_mean_keeps_its_lag_while_it_sleeps() {
        let (mut processors, mut now) = (processors(1, &[(0, 1), (0, 2)]), 0);
        assert_eq!(turn(&mut processors, &mut now, 2 * SLICE, back), 1);
        assert_eq!(turn(&mut processors, &mut now, 1, sleeps), 2);
        assert!(!processors.rejoin(0, 2, now), "it has left");
        let lag = processors.entities[2].lag;
        assert_eq!(lag, SLICE as Virtual - 1);
        assert_eq!(turn(&mut processors, &mut now, 5 * SLICE, back), 1);
        processors.join(0, 2, 0);
        processors.push(0, 2);
        assert_eq!(processors.pop(0, 0), Some(2));
    }

    #[test]
    fn a_session_that_ran_more_than_the_mean_leaves_its_queue_when_its_turn_comes() {
        let (mut processors, mut now) = (processors(1, &[(0, 1), (0, 2)]), 0);
        let ran = SLICE / 2;
        assert_eq!(turn(&mut processors, &mut now, ran, sleeps), 1);
        let before = processors.entities[1].deadline;
        // It goes on with its slice if it wakes up at once.
        assert!(processors.rejoin(0, 1, now));
        assert_eq!((processors.get(0).ready, processors.entities[1].deadline), (2, before));
        assert_eq!(turn(&mut processors, &mut now, 2 * SLICE, back), 2);
        assert_eq!(turn(&mut processors, &mut now, 4 * SLICE, sleeps), 1);
        // 2 runs until it has had as much, and then 1 leaves without a lag.
        (0..3).for_each(|_| assert_eq!(turn(&mut processors, &mut now, SLICE, back), 2));
        assert!(processors.entities[1].is_delayed);
        assert_eq!(turn(&mut processors, &mut now, SLICE, back), 2);
        assert_eq!((processors.rejoin(0, 1, now), processors.entities[1].lag), (false, 0));
    }

    #[test]
    fn a_delayed_session_whose_turn_could_have_come_has_a_new_slice() {
        let (mut processors, mut now) = (processors(1, &[(0, 1), (0, 2)]), 0);
        assert_eq!(turn(&mut processors, &mut now, SLICE / 2, sleeps), 1);
        let runs_on = |processors: &mut Processors, now| processors.count_run(0, now);
        assert_eq!(turn(&mut processors, &mut now, 2 * SLICE, runs_on), 2);
        assert!(processors.rejoin(0, 1, now));
        let Entity { virtual_time, deadline, .. } = processors.entities[1];
        assert_eq!((virtual_time, deadline), (2 * SLICE as Virtual, 3 * SLICE as Virtual));
        assert_eq!(processors.get(0).ready, 1);
    }

    #[test]
    fn a_tick_ends_a_slice() {
        let mut processors = Processors::new(1, SLICE, 25, 0, 0.0);
        processors.join(0, 1, 0);
        processors.start(0, 1, 3, 0);
        assert_eq!(processors.get(0).until, 13);
        assert_eq!([3, 13, 24, 25, 26].map(|now| processors.due(0, now)), [25, 25, 25, 50, 50]);
    }

    #[test]
    fn idle_processors_are_found_past_the_first_word() {
        let mut processors = Processors::new(130, SLICE, 0, 0, 0.0);
        for processor in 0..129 {
            processors.join(processor, processor, 0);
            processors.start(processor, processor, 0, 0);
        }
        assert_eq!((processors.idle(5), processors.idle(129)), (Some(129), Some(129)));
        processors.stop(64, 0);
        assert_eq!(processors.idle(5), Some(64));
    }
}
