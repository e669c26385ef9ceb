//! The measurement behind `retrial bench`: a cell is so many sessions of one kind on one mutex, which may be anybody's.
//!
//! The parent has one thread and forks for every cell: a process for each session, or one process with a thread for each.
//! So a cell can be killed when it is stuck, and processor time and memory of one cell do not leak into the next.

pub mod board;
pub mod cell;
pub mod check;
pub mod clock;
pub mod figures;
pub mod histogram;
pub mod limits;
pub mod load;
pub mod machine;
pub mod ours;
pub mod outcome;
pub mod peer;
pub mod plot;
pub mod process;
pub mod work;
pub mod worker;
