//! The processors: which session runs on each, and which are ready to.
//!
//! One run queue a processor, as Linux has: a yield gives way to those of the own queue only, and whether a
//! woken session runs near or far is known. A session that becomes ready goes to its last processor if that
//! is idle, else to any idle one, else to a queue; a processor whose queue is empty takes from the longest
//! one. So no processor idles while a session is ready.
//!
//! Which session is next is Linux's own rule, EEVDF (I. Stoica, H. Abdel-Wahab, *Earliest eligible virtual
//! deadline first*, 1995; in Linux since 6.6), for sessions of equal weight. A session's virtual time is the time
//! that it has run. It is eligible while that is not above the mean of its processor. The eligible session whose
//! slice is due first is next. The lag of a session is how much less it ran than the mean. It keeps that while
//! it sleeps.

use super::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No session, or no processor.
pub(super) const NONE: u32 = u32::MAX;

/// Bits of a word of the set of idle processors.
const WORD: u32 = u64::BITS;

/// Virtual time in ps.
type Virtual = i64;

/// A session in a queue: its virtual time or deadline, the order of such entries, and which session.
type Entry = Reverse<(Virtual, u64, u32)>;

/// A session to the scheduler.
#[derive(Clone, Copy, Default, Debug)]
struct Entity {
    virtual_time: Virtual,
    deadline: Virtual,
    /// While it sleeps: by how much it ran less than the mean, and on which processor.
    lag: Virtual,
    slept_on: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Processor {
    pub(super) running: u32,
    /// When the running session got the processor, until when its slice lasts, and up to when the virtual
    /// time has been counted.
    since: Time,
    until: Time,
    counted: Time,
    /// Sum of the virtual times of all its sessions, the running one's too, and their number.
    sum: i128,
    count: i128,
    /// Eligible sessions, by deadline.
    eligible: BinaryHeap<Entry>,
    /// The other ready sessions, by virtual time.
    others: BinaryHeap<Entry>,
    /// Mean virtual time when there was a session last.
    mean: Virtual,
}

impl Processor {
    /// Sessions that are ready.
    pub(super) fn ready(&self) -> u32 {
        (self.eligible.len() + self.others.len()) as u32
    }

    fn mean(&self) -> Virtual {
        if self.count == 0 { self.mean } else { (self.sum / self.count) as Virtual }
    }

    fn is_eligible(&self, virtual_time: Virtual) -> bool {
        i128::from(virtual_time) * self.count <= self.sum
    }

    /// A session with this virtual time comes to the processor.
    fn add(&mut self, virtual_time: Virtual) {
        self.sum += i128::from(virtual_time);
        self.count += 1;
    }

    /// It goes.
    fn remove(&mut self, virtual_time: Virtual) {
        self.mean = self.mean();
        self.sum -= i128::from(virtual_time);
        self.count -= 1;
    }
}

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
}

impl Processors {
    pub(super) fn new(count: u32, slice: Time, tick: Time) -> Self {
        let (all, idle, entities) = (Vec::new(), Vec::new(), Vec::new());
        let mut processors = Self { all, idle, ready: 0, entities, entries: 0, slice, tick };
        (0..count).for_each(|_| processors.add());
        processors
    }

    /// One more, idle.
    pub(super) fn add(&mut self) {
        let number = self.all.len() as u32;
        if number.is_multiple_of(WORD) {
            self.idle.push(0);
        }
        self.all.push(Processor {
            running: NONE,
            since: 0,
            until: 0,
            counted: 0,
            sum: 0,
            count: 0,
            eligible: BinaryHeap::new(),
            others: BinaryHeap::new(),
            mean: 0,
        });
        self.set_idle(number, true);
    }

    pub(super) fn count(&self) -> u32 {
        self.all.len() as u32
    }

    pub(super) fn get(&self, processor: u32) -> &Processor {
        &self.all[processor as usize]
    }

    fn set_idle(&mut self, processor: u32, idle: bool) {
        let bit = 1 << (processor % WORD);
        let word = &mut self.idle[(processor / WORD) as usize];
        *word = if idle { *word | bit } else { *word & !bit };
    }

    fn is_idle(&self, processor: u32) -> bool {
        self.idle[(processor / WORD) as usize] >> (processor % WORD) & 1 == 1
    }

    /// An idle processor: the wanted one if it is.
    pub(super) fn idle(&self, wanted: u32) -> Option<u32> {
        if self.is_idle(wanted) {
            return Some(wanted);
        }
        let word = self.idle.iter().position(|word| *word != 0)?;
        Some(word as u32 * WORD + self.idle[word].trailing_zeros())
    }

    /// A session that was in no queue comes to a processor. It keeps its lag. If it ran too much, and comes back
    /// to its processor, it keeps its virtual time until the mean has reached that.
    pub(super) fn join(&mut self, processor: u32, session: u32) {
        if self.entities.len() <= session as usize {
            let new = Entity { slept_on: NONE, ..Entity::default() };
            self.entities.resize(session as usize + 1, new);
        }
        let (queue, entity) = (&mut self.all[processor as usize], &mut self.entities[session as usize]);
        let mean = queue.mean();
        entity.virtual_time = if entity.lag >= 0 || entity.slept_on != processor {
            // Its own weight draws the mean to it.
            let lag = i128::from(entity.lag.max(0)) * (queue.count + 1) / queue.count.max(1);
            mean - lag as Virtual
        } else {
            entity.virtual_time.max(mean)
        };
        entity.deadline = entity.virtual_time + self.slice as Virtual;
        queue.add(entity.virtual_time);
    }

    /// Puts a session of the processor into its queue.
    pub(super) fn push(&mut self, processor: u32, session: u32) {
        let (queue, entity) = (&mut self.all[processor as usize], self.entities[session as usize]);
        self.entries += 1;
        self.ready += 1;
        if queue.is_eligible(entity.virtual_time) {
            queue.eligible.push(Reverse((entity.deadline, self.entries, session)));
        } else {
            queue.others.push(Reverse((entity.virtual_time, self.entries, session)));
        }
    }

    /// A session of the processor begins to run.
    pub(super) fn start(&mut self, processor: u32, session: u32, since: Time) {
        self.set_idle(processor, false);
        let entity = self.entities[session as usize];
        let rest = (entity.deadline - entity.virtual_time).max(0) as Time;
        let processor = &mut self.all[processor as usize];
        processor.running = session;
        processor.since = since;
        processor.counted = since;
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
            // A tick that is now has been.
            tick => until.max(now + 1).div_ceil(tick) * tick,
        }
    }

    /// Whether no session that wakes up preempts the running one: it is eligible, and has run neither for `after`
    /// nor to the end of its slice.
    pub(super) fn is_protected(&mut self, processor: u32, after: Time, now: Time) -> bool {
        self.count_run(processor, now);
        let queue = self.get(processor);
        let until = queue.until.min(queue.since + after);
        now < until && queue.is_eligible(self.entities[queue.running as usize].virtual_time)
    }

    /// Counts what the running session has run. A slice that is over is followed by the next one.
    fn count_run(&mut self, processor: u32, now: Time) {
        let queue = &mut self.all[processor as usize];
        let ran = now.saturating_sub(queue.counted) as Virtual;
        queue.counted = queue.counted.max(now);
        queue.sum += i128::from(ran);
        let entity = &mut self.entities[queue.running as usize];
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

    /// The running session goes to sleep. Its lag is at most two slices, or a tick.
    pub(super) fn part(&mut self, processor: u32, now: Time) {
        self.count_run(processor, now);
        let most = (2 * self.slice).max(self.tick) as Virtual;
        let queue = &mut self.all[processor as usize];
        let entity = &mut self.entities[queue.running as usize];
        entity.lag = (queue.mean() - entity.virtual_time).clamp(-most, most);
        entity.slept_on = processor;
        queue.remove(entity.virtual_time);
    }

    /// Puts the running session back into its queue, and takes the next one: the same one if its turn is not
    /// over.
    pub(super) fn rotate(&mut self, processor: u32, now: Time) -> u32 {
        self.count_run(processor, now);
        self.push(processor, self.get(processor).running);
        self.ready -= 1;
        self.pick(processor)
    }

    /// A processor has no session to run.
    pub(super) fn stop(&mut self, processor: u32) {
        self.set_idle(processor, true);
        self.all[processor as usize].running = NONE;
    }

    /// Takes the session that a processor runs next, from its own queue or else from the longest one.
    pub(super) fn pop(&mut self, processor: u32) -> Option<u32> {
        if self.ready == 0 {
            return None;
        }
        self.ready -= 1;
        if self.all[processor as usize].ready() != 0 {
            return Some(self.pick(processor));
        }
        let from = self.longest();
        let session = self.pick(from as u32);
        let mean = self.all[from].mean();
        let entity = &mut self.entities[session as usize];
        self.all[from].remove(entity.virtual_time);
        // It is as far from the mean of its new queue as it was from that of the old one.
        let moved = self.all[processor as usize].mean() - mean;
        entity.virtual_time += moved;
        entity.deadline += moved;
        self.all[processor as usize].add(entity.virtual_time);
        Some(session)
    }

    /// Of a queue that is not empty: the session that may run and is due first.
    fn pick(&mut self, processor: u32) -> u32 {
        let queue = &mut self.all[processor as usize];
        while let Some(Reverse((virtual_time, order, session))) = queue.others.peek().copied()
            && queue.is_eligible(virtual_time)
        {
            queue.others.pop();
            queue.eligible.push(Reverse((self.entities[session as usize].deadline, order, session)));
        }
        // A session that came with a lag may have moved the mean back.
        while let Some(Reverse((_, order, session))) = queue.eligible.pop() {
            let virtual_time = self.entities[session as usize].virtual_time;
            if queue.is_eligible(virtual_time) {
                return session;
            }
            queue.others.push(Reverse((virtual_time, order, session)));
        }
        queue.others.pop().expect("a session is ready").0.2
    }

    fn longest(&self) -> usize {
        (0..self.all.len()).max_by_key(|i| (self.all[*i].ready(), Reverse(*i))).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Time = 10;

    fn processors(count: u32, ready: &[(u32, u32)]) -> Processors {
        let mut processors = Processors::new(count, SLICE, 0);
        for (to, session) in ready {
            processors.join(*to, *session);
            processors.push(*to, *session);
        }
        processors
    }

    /// Has the next one run for so long, and then what it does.
    fn turn(processors: &mut Processors, now: &mut Time, ran: Time, then: fn(&mut Processors, Time)) -> u32 {
        let session = processors.pop(0).unwrap();
        processors.start(0, session, *now);
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
        let taken: Vec<u32> = std::iter::from_fn(|| processors.pop(2)).collect();
        assert_eq!(taken, [11, 10, 12]);
    }

    #[test]
    fn the_own_queue_comes_first_and_in_order() {
        let mut processors = processors(2, &[(0, 1), (1, 2), (1, 3), (0, 4)]);
        assert_eq!((processors.pop(0), processors.pop(0)), (Some(1), Some(4)));
        assert_eq!(processors.get(1).ready(), 2);
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
    fn who_sleeps_keeps_its_lag() {
        let mut processors = processors(1, &[(0, 1), (0, 2)]);
        let mut now = 0;
        // 1 has its slice and sleeps, which is more than its share; when it comes back 2 is first.
        assert_eq!(turn(&mut processors, &mut now, SLICE, sleeps), 1);
        processors.join(0, 1);
        processors.push(0, 1);
        assert_eq!(turn(&mut processors, &mut now, 2 * SLICE, back), 2);
        // 1 has run less than 2 when it goes to sleep: it is next when it comes back.
        assert_eq!(turn(&mut processors, &mut now, 1, sleeps), 1);
        let lag = processors.entities[1].lag;
        assert!(lag > 0, "{lag}");
        assert_eq!(turn(&mut processors, &mut now, 5 * SLICE, back), 2);
        processors.join(0, 1);
        processors.push(0, 1);
        assert_eq!(processors.pop(0), Some(1));
    }

    #[test]
    fn a_tick_ends_a_slice() {
        let mut processors = Processors::new(1, SLICE, 25);
        processors.join(0, 1);
        processors.start(0, 1, 3);
        assert_eq!(processors.get(0).until, 13);
        assert_eq!([3, 13, 24, 25, 26].map(|now| processors.due(0, now)), [25, 25, 25, 50, 50]);
    }

    #[test]
    fn idle_processors_are_found_past_the_first_word() {
        let mut processors = Processors::new(130, SLICE, 0);
        for processor in 0..129 {
            processors.join(processor, processor);
            processors.start(processor, processor, 0);
        }
        assert_eq!((processors.idle(5), processors.idle(129)), (Some(129), Some(129)));
        processors.stop(64);
        assert_eq!(processors.idle(5), Some(64));
    }
}
