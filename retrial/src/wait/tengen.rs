//! `10g`: yields for ever, the busy wait of versions 10.2 to 11.1.
//!
//! The shortest waits while a processor is free for every waiter; a waiter for a long holder burns one whole.
//! Source: Nikolaev, "Exploring mutexes" (MEDIAS 2012), § IV.

use super::{Attempt, Scheme, Step};

pub(super) struct TenG;

impl Scheme for TenG {
    fn step(&self, _: &Attempt<'_>) -> Step {
        Step::Yield
    }
}
