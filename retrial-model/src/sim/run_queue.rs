//! The run queue of a processor, and what its scheduler knows of a session: see [`super::processors`].

use super::Time;
use super::processors::NONE;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Virtual time in ps.
pub(super) type Virtual = i64;

/// A session in a queue: its virtual time or deadline, the order of such entries, and which session.
pub(super) type Entry = Reverse<(Virtual, u64, u32)>;

/// A session to the scheduler.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Entity {
    pub(super) virtual_time: Virtual,
    pub(super) deadline: Virtual,
    /// When it ran last.
    pub(super) ran: Time,
    /// While it is in no queue: by how much it ran less than the mean.
    pub(super) lag: Virtual,
    /// Number of its entry in a queue; older ones are void.
    pub(super) entry: u64,
    /// Whether it sleeps and is still in its queue.
    pub(super) is_delayed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Processor {
    pub(super) running: u32,
    /// When the running session got the processor, until when its slice lasts, and up to when the virtual
    /// time has been counted.
    pub(super) since: Time,
    pub(super) until: Time,
    pub(super) counted: Time,
    /// Sum of the virtual times of all its sessions, the running and the delayed ones' too, and their number.
    pub(super) sum: i128,
    pub(super) count: i128,
    /// Sessions that are ready.
    pub(super) ready: u32,
    /// Eligible sessions, by deadline.
    pub(super) eligible: BinaryHeap<Entry>,
    /// The others, by virtual time.
    pub(super) others: BinaryHeap<Entry>,
    /// Mean virtual time when there was a session last.
    pub(super) mean: Virtual,
    /// Sessions that went to sleep here, by when an interrupt may end that at the earliest.
    pub(super) timers: BinaryHeap<Reverse<(Time, u32)>>,
}

impl Processor {
    /// Idle.
    pub(super) fn new() -> Self {
        Self {
            running: NONE,
            since: 0,
            until: 0,
            counted: 0,
            sum: 0,
            count: 0,
            ready: 0,
            eligible: BinaryHeap::new(),
            others: BinaryHeap::new(),
            mean: 0,
            timers: BinaryHeap::new(),
        }
    }

    pub(super) fn mean(&self) -> Virtual {
        if self.count == 0 { self.mean } else { (self.sum / self.count) as Virtual }
    }

    pub(super) fn is_eligible(&self, virtual_time: Virtual) -> bool {
        i128::from(virtual_time) * self.count <= self.sum
    }

    /// A session with this virtual time comes to the processor.
    pub(super) fn add(&mut self, virtual_time: Virtual) {
        self.sum += i128::from(virtual_time);
        self.count += 1;
    }

    /// It goes.
    pub(super) fn remove(&mut self, virtual_time: Virtual) {
        self.mean = self.mean();
        self.sum -= i128::from(virtual_time);
        self.count -= 1;
    }
}
