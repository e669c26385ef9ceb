//! What a workload would come to under other conditions: by the simulator, and by theory where it has a
//! formula.
//!
//! A [`Recording`](recording::Recording) is a workload with how it was found: described, recorded, or
//! [measured](live) at a live instance and [fitted](fit). [`predict`](prediction::predict) says what it comes
//! to, [`cases`] what to compare it with, [`rules`] what to advise. docs/PREDICTION.md has the formulas and
//! where they are wrong.

pub mod cases;
pub mod check;
pub mod condition;
pub mod fit;
pub mod holds;
pub mod hot;
pub mod live;
pub mod prediction;
pub mod recording;
pub mod room;
pub mod rules;
pub mod scheduler;
pub mod search;
pub mod source;
