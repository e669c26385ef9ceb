//! The mutex of a simulation: the holder, what the library's record knows of the parked, and the futex queue,
//! for mode X.

use super::processors::NONE;
use retrial::parking::Parking;
use retrial::wait::Restriction;

#[derive(Debug)]
pub(super) struct Mutex {
    pub(super) holder: u32,
    /// Whether it was handed over, to a session that has been parked.
    pub(super) handover: bool,
    pub(super) parking: Parking,
    pub(super) restriction: Restriction,
    /// Wake-ups so far.
    pub(super) wakes: u32,
    pub(super) gets: u64,
    /// Yields and sleeps of all sessions so far.
    pub(super) soft_spins: u64,
    /// Processor of the latest holder: its cache has the line.
    pub(super) line: u32,
    queue: Queue,
}

impl Mutex {
    pub(super) fn new() -> Self {
        let (holder, line, parking, restriction) = (NONE, NONE, Parking::default(), Restriction::default());
        Self {
            holder,
            handover: false,
            parking,
            restriction,
            wakes: 0,
            gets: 0,
            soft_spins: 0,
            line,
            queue: Queue::default(),
        }
    }

    /// Whether a get can have it. `handed`: also when it was handed over.
    pub(super) fn is_open(&self, handed: bool, now_ns: u64) -> bool {
        self.holder == NONE && (handed || !self.handover || self.parking.handover_is_stale(now_ns))
    }

    /// Changes what is known of the parked. What it was before.
    pub(super) fn change(&mut self, to: &dyn Fn(Parking) -> Parking) -> Parking {
        let after = to(self.parking);
        std::mem::replace(&mut self.parking, after)
    }

    /// Puts a session to sleep.
    pub(super) fn sleep(&mut self, session: u32) {
        self.queue.push(session);
    }

    /// The time of a sleeper has passed.
    pub(super) fn leave(&mut self, session: u32) {
        self.queue.remove(session);
    }

    /// Takes the sleeper that fell asleep first.
    pub(super) fn first(&mut self) -> Option<u32> {
        self.queue.pop()
    }
}

/// The sleepers on the futex in the order in which they fell asleep.
#[derive(Debug)]
struct Queue {
    places: Vec<Place>,
    first: u32,
    last: u32,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    before: u32,
    after: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self { places: Vec::new(), first: NONE, last: NONE }
    }
}

impl Queue {
    fn push(&mut self, session: u32) {
        let index = session as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, Place { before: NONE, after: NONE });
        }
        let last = std::mem::replace(&mut self.last, session);
        self.places[index] = Place { before: last, after: NONE };
        *self.after(last) = session;
    }

    fn remove(&mut self, session: u32) {
        let Place { before, after } = self.places[session as usize];
        *self.after(before) = after;
        match after {
            NONE => self.last = before,
            after => self.places[after as usize].before = before,
        }
    }

    /// The link to the session after this one, or to the first of the queue.
    fn after(&mut self, session: u32) -> &mut u32 {
        match session {
            NONE => &mut self.first,
            session => &mut self.places[session as usize].after,
        }
    }

    fn pop(&mut self) -> Option<u32> {
        let first = self.first;
        if first == NONE {
            return None;
        }
        self.remove(first);
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_woken_in_the_order_in_which_they_fell_asleep_but_for_those_that_left() {
        let mut mutex = Mutex::new();
        for session in [4, 1, 2, 3] {
            mutex.sleep(session);
        }
        mutex.leave(1);
        assert_eq!(mutex.first(), Some(4));
        mutex.leave(3);
        mutex.sleep(5);
        let woken: Vec<u32> = std::iter::from_fn(|| mutex.first()).collect();
        assert_eq!(woken, [2, 5]);
    }
}
