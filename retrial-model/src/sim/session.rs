//! A session of a simulation: where it is, what it does there, and how far its wait is.

use super::Time;
use super::tally::Use;
use retrial::parking::{Announced, Parks};
use retrial::wait::{Course, Experience};

/// What a session does, or did until it became ready to run again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Doing {
    /// Nothing: it has left, or has not come yet.
    Absent,
    /// Does its work before it thinks.
    Working,
    /// Thinks on its processor.
    Thinking,
    /// Thinks elsewhere.
    Away,
    /// Is about to ask for the mutex.
    Arriving,
    /// Has missed, and is about to poll.
    Missing,
    Spinning,
    /// Its spin has failed, and it is about to do the next step.
    Stepping,
    /// A yield with no other session ready to run.
    Yielding,
    /// Has given its processor to others.
    Yielded,
    /// Has announced that it parks, and waits for the barrier.
    Announcing,
    /// Has had its last look at the mutex, and is on its way into the kernel.
    Parking,
    /// On its way into a timed sleep.
    Dozing,
    Sleeping,
    Slept,
    Parked,
    Woken,
    TimedOut,
    Holding,
    /// Holds it until the cache line with the word is its processor's alone again.
    Releasing,
    /// Wakes others after a release.
    Calling,
}

impl Doing {
    /// What the processor is used for meanwhile.
    pub(super) const fn uses(self) -> Use {
        match self {
            Self::Working | Self::Thinking => Use::Think,
            Self::Holding | Self::Releasing => Use::Hold,
            Self::Missing | Self::Spinning | Self::Stepping => Use::Spin,
            Self::Yielding => Use::Yield,
            _ => Use::Call,
        }
    }
}

/// Where a session is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum At {
    /// Off the processors; a timer or a wake-up brings it back.
    Nowhere,
    /// In a run queue.
    Ready,
    /// On a processor that switches to it.
    Starting,
    /// On a processor.
    Running,
}

#[allow(clippy::struct_excessive_bools)] // each true or not by itself
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) doing: Doing,
    pub(super) at: At,
    /// Where it runs, or ran last.
    pub(super) processor: u32,
    /// Processor time left of what it does, and since when it runs.
    pub(super) rest: Time,
    pub(super) since: Time,
    /// The session that woke it up.
    pub(super) waker: u32,
    pub(super) gets: u64,
    /// The copy of the mutex that it asked for last.
    pub(super) copy: u32,
    pub(super) requested: Time,
    pub(super) experience: Experience,
    /// Whether it has asked for a handover in this wait.
    pub(super) asked_for_x: bool,

    // The wait under way.
    pub(super) course: Course,
    /// Whether it may take a mutex that was handed over.
    pub(super) handed: bool,
    /// Ends of the last failed spin and of the last step.
    pub(super) stepped: Time,
    pub(super) last: Time,
    /// What the last sleep or park was asked for, and what the sleep takes.
    pub(super) asked: Time,
    pub(super) sleeps: Time,
    /// Place among the sessions that spin.
    pub(super) place: u32,

    // The park under way, and what the parks so far have to tell the next one.
    pub(super) timeout: Time,
    pub(super) seen: u32,
    pub(super) announced: Announced,
    pub(super) park: Parks,
}

impl Session {
    pub(super) fn new(processor: u32, course: Course) -> Self {
        Self {
            doing: Doing::Absent,
            at: At::Nowhere,
            processor,
            rest: 0,
            since: 0,
            waker: 0,
            gets: 0,
            copy: 0,
            requested: 0,
            experience: Experience::default(),
            asked_for_x: false,
            course,
            handed: false,
            stepped: 0,
            last: 0,
            asked: 0,
            sleeps: 0,
            place: 0,
            timeout: 0,
            seen: 0,
            announced: Announced::default(),
            park: Parks::default(),
        }
    }
}
