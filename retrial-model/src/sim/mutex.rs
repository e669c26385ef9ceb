//! The mutex of a simulation: the word, the hints and the futex queue of the library's record, for mode X.

use super::Time;
use super::processors::NONE;
use retrial::turn::Sharing;

/// The flags of the library's `hints` and `waiters`.
#[allow(clippy::struct_excessive_bools)] // bits of the record, each by itself
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hints {
    /// Whether a session that is on its way keeps releases from waking another.
    pub(super) throttled: bool,
    /// Whether a woken session is on its way.
    pub(super) on_its_way: bool,
    /// Whether one of the parked sessions looks by itself before long.
    pub(super) watched: bool,
    /// Whether somebody has parked again in the same wait.
    pub(super) again: bool,
    /// Whether the next release hands over.
    pub(super) starving: bool,
}

#[derive(Debug)]
pub(super) struct Mutex {
    /// What a session's turn knows it by.
    pub(super) id: u64,
    pub(super) holder: u32,
    /// Whether it was handed over, to whoever has been parked.
    pub(super) handover: bool,
    /// Sessions between their announcement and the end of their park.
    pub(super) waiters: u32,
    /// Wake-ups so far.
    pub(super) wakes: u32,
    pub(super) hints: Hints,
    pub(super) handover_asked: Time,
    pub(super) gets: u64,
    /// Processor of the latest holder: its cache has the line.
    pub(super) line: u32,
    pub(super) sharing: Sharing,
    queue: Queue,
}

impl Mutex {
    pub(super) fn new(id: u64) -> Self {
        Self {
            id,
            holder: NONE,
            handover: false,
            waiters: 0,
            wakes: 0,
            hints: Hints::default(),
            handover_asked: 0,
            gets: 0,
            line: NONE,
            sharing: Sharing::default(),
            queue: Queue::default(),
        }
    }

    /// Whether a get can have it. `handed`: also when it was handed over.
    pub(super) fn is_open(&self, handed: bool) -> bool {
        self.holder == NONE && (handed || !self.handover)
    }

    /// Puts a session to sleep. `first`: before those who are parked for the first time.
    pub(super) fn sleep(&mut self, session: u32, first: bool) {
        self.queue.push(session, first);
    }

    /// The time of a sleeper has passed.
    pub(super) fn leave(&mut self, session: u32) {
        self.queue.remove(session);
    }

    /// Counts a wake-up and takes the sleeper that is to be woken: who has parked again, else the first.
    pub(super) fn post(&mut self) -> Option<u32> {
        self.wakes += 1;
        if self.hints.again {
            if let Some(session) = self.queue.pop(true) {
                return Some(session);
            }
            self.hints.again = false;
        }
        self.queue.pop(false)
    }

    /// Takes the sleeper that fell asleep first.
    pub(super) fn first(&mut self) -> Option<u32> {
        self.queue.pop(false)
    }
}

/// The sleepers on the futex in the order in which they fell asleep, those that have parked again apart.
#[derive(Debug)]
struct Queue {
    places: Vec<Place>,
    /// First and last of both kinds.
    ends: [(u32, u32); 2],
    pushed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    before: u32,
    after: u32,
    order: u64,
    again: bool,
}

impl Default for Queue {
    fn default() -> Self {
        Self { places: Vec::new(), ends: [(NONE, NONE); 2], pushed: 0 }
    }
}

impl Queue {
    fn push(&mut self, session: u32, again: bool) {
        let index = session as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, Place { before: NONE, after: NONE, order: 0, again });
        }
        self.pushed += 1;
        let end = &mut self.ends[usize::from(again)];
        self.places[index] = Place { before: end.1, after: NONE, order: self.pushed, again };
        match std::mem::replace(&mut end.1, session) {
            NONE => end.0 = session,
            last => self.places[last as usize].after = session,
        }
    }

    fn remove(&mut self, session: u32) {
        let Place { before, after, again, .. } = self.places[session as usize];
        let end = &mut self.ends[usize::from(again)];
        match before {
            NONE => end.0 = after,
            before => self.places[before as usize].after = after,
        }
        match after {
            NONE => end.1 = before,
            after => self.places[after as usize].before = before,
        }
    }

    fn pop(&mut self, only_again: bool) -> Option<u32> {
        let order = |session: u32| if session == NONE { u64::MAX } else { self.places[session as usize].order };
        let (new, again) = (self.ends[0].0, self.ends[1].0);
        let first = if only_again || order(again) < order(new) { again } else { new };
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
    fn who_parked_again_is_woken_before_the_others() {
        let mut mutex = Mutex::new(1);
        mutex.hints.again = true;
        for (session, again) in [(1, false), (2, true), (3, false), (4, true)] {
            mutex.sleep(session, again);
        }
        mutex.leave(1);
        let woken: Vec<u32> = std::iter::from_fn(|| mutex.post()).collect();
        assert_eq!(woken, [2, 4, 3]);
        assert!(!mutex.hints.again);
    }

    #[test]
    fn without_the_hint_the_first_is_woken() {
        let mut mutex = Mutex::new(1);
        for (session, again) in [(1, false), (2, true), (3, false)] {
            mutex.sleep(session, again);
        }
        let woken: Vec<u32> = std::iter::from_fn(|| mutex.first()).collect();
        assert_eq!(woken, [1, 2, 3]);
    }
}
