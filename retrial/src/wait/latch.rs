//! `latch`: a long spin, then a FIFO queue; the releaser posts the session that queued first.
//!
//! Fair and thrifty for holds of many microseconds; its spin of 20,000 polls (half a millisecond) starves a
//! full machine.
//! Source: Nikolaev, "Exploring mutexes" (MEDIAS 2012), § I.

use super::{Attempt, Scheme, Step};
use crate::params::P;

pub(super) struct Latch;

impl Scheme for Latch {
    fn spins(&self, attempt: &Attempt<'_>) -> u32 {
        super::clamp(attempt.params.get(P::LatchSpinCount))
    }

    fn step(&self, attempt: &Attempt<'_>) -> Step {
        super::ydb::queue(attempt)
    }
}
