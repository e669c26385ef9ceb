//! The processors: which session runs on each, and which are ready to.
//!
//! One run queue a processor, as Linux has: a yield gives way to those of the own queue only, and whether a
//! woken session runs near or far is known. A session that becomes ready goes to its last processor if that
//! is idle, else to any idle one, else to a queue; a processor whose queue is empty takes from the longest
//! one. So no processor idles while a session is ready.
//!
//! A queue has two parts: those who woke up to preempt, and the others, each of whom is passed over for a
//! quantum at most.

use super::Time;

/// No session, or no processor.
pub(super) const NONE: u32 = u32::MAX;

/// Bits of a word of the set of idle processors.
const WORD: u32 = u64::BITS;

/// Parts of a run queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// Sessions that woke up to preempt.
    First,
    /// Sessions that have run, and sessions that woke up to wait for their turn.
    Last,
}

#[derive(Clone, Debug)]
pub(super) struct Processor {
    pub(super) running: u32,
    /// First and last session of each part.
    parts: [(u32, u32); 2],
    /// Sessions in both parts.
    pub(super) ready: u32,
    /// When the quantum of the running session began.
    pub(super) since: Time,
}

#[derive(Debug)]
pub(super) struct Processors {
    all: Vec<Processor>,
    idle: Vec<u64>,
    /// Ready sessions of all queues.
    ready: u32,
    /// The next ready session after each one, and since when each is ready.
    next: Vec<(u32, Time)>,
}

impl Processors {
    pub(super) fn new(count: u32) -> Self {
        let mut processors = Self { all: Vec::new(), idle: Vec::new(), ready: 0, next: Vec::new() };
        (0..count).for_each(|_| processors.add());
        processors
    }

    /// One more, idle.
    pub(super) fn add(&mut self) {
        let number = self.all.len() as u32;
        if number.is_multiple_of(WORD) {
            self.idle.push(0);
        }
        self.all.push(Processor { running: NONE, parts: [(NONE, NONE); 2], ready: 0, since: 0 });
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

    /// A session begins to run.
    pub(super) fn start(&mut self, processor: u32, session: u32, since: Time) {
        self.set_idle(processor, false);
        let processor = &mut self.all[processor as usize];
        processor.running = session;
        processor.since = since;
    }

    /// A processor has no session to run.
    pub(super) fn stop(&mut self, processor: u32) {
        self.set_idle(processor, true);
        self.all[processor as usize].running = NONE;
    }

    /// Puts a session at the end of a part of a queue.
    pub(super) fn push(&mut self, processor: u32, session: u32, part: Part, now: Time) {
        if self.next.len() <= session as usize {
            self.next.resize(session as usize + 1, (NONE, 0));
        }
        self.next[session as usize] = (NONE, now);
        self.ready += 1;
        let processor = &mut self.all[processor as usize];
        processor.ready += 1;
        let (first, last) = &mut processor.parts[part as usize];
        match std::mem::replace(last, session) {
            NONE => *first = session,
            last => self.next[last as usize].0 = session,
        }
    }

    /// Takes the session that a processor runs next, from its own queue or else from the longest one: of the
    /// last part whoever came before the first of the other part by so long.
    pub(super) fn pop(&mut self, processor: u32, patience: Time) -> Option<u32> {
        if self.ready == 0 {
            return None;
        }
        let own = self.all[processor as usize].ready != 0;
        let from = if own { processor as usize } else { self.longest() };
        let queue = &mut self.all[from];
        let since = |part: Part| {
            let (first, _) = queue.parts[part as usize];
            self.next.get(first as usize).map(|(_, since)| *since)
        };
        let part = match (since(Part::First), since(Part::Last)) {
            (Some(first), Some(last)) if first < last.saturating_add(patience) => Part::First,
            (Some(_), None) => Part::First,
            _ => Part::Last,
        };
        let (head, tail) = &mut queue.parts[part as usize];
        let session = *head;
        *head = self.next[session as usize].0;
        if *head == NONE {
            *tail = NONE;
        }
        queue.ready -= 1;
        self.ready -= 1;
        Some(session)
    }

    fn longest(&self) -> usize {
        (0..self.all.len()).max_by_key(|i| (self.all[*i].ready, std::cmp::Reverse(*i))).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(processors: &mut Processors, sessions: &[(u32, u32)]) {
        for (to, session) in sessions {
            processors.push(*to, *session, Part::Last, 0);
        }
    }

    #[test]
    fn an_idle_processor_takes_from_the_longest_queue() {
        let mut processors = Processors::new(3);
        push(&mut processors, &[(0, 10), (1, 11), (1, 12)]);
        let taken: Vec<u32> = std::iter::from_fn(|| processors.pop(2, 0)).collect();
        assert_eq!(taken, [11, 10, 12]);
    }

    #[test]
    fn the_own_queue_comes_first_and_in_order() {
        let mut processors = Processors::new(2);
        push(&mut processors, &[(0, 1), (1, 2), (1, 3), (0, 4)]);
        assert_eq!((processors.pop(0, 0), processors.pop(0, 0)), (Some(1), Some(4)));
        assert_eq!(processors.get(1).ready, 2);
    }

    #[test]
    fn who_woke_up_goes_first_but_not_for_ever() {
        let mut processors = Processors::new(1);
        for (session, now) in [(1, 0), (2, 10)] {
            processors.push(0, session, Part::Last, now);
        }
        (10..16).for_each(|session| processors.push(0, session, Part::First, u64::from(session - 10) * 10));
        // Each of the others when those come who woke up 30 later.
        let order: Vec<u32> = std::iter::from_fn(|| processors.pop(0, 30)).collect();
        assert_eq!(order, [10, 11, 12, 1, 13, 2, 14, 15]);
    }

    #[test]
    fn idle_processors_are_found_past_the_first_word() {
        let mut processors = Processors::new(130);
        (0..129).for_each(|processor| processors.start(processor, processor, 0));
        assert_eq!((processors.idle(5), processors.idle(129)), (Some(129), Some(129)));
        processors.stop(64);
        assert_eq!(processors.idle(5), Some(64));
    }
}
