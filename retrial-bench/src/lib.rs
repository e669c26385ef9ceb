//! The engine that measures loads on mutexes, and what prints its figures: under the command `retrial` and
//! under the benchmarks against peers. It knows no subcommand.
//!
//! The measurement behind `retrial bench`: a cell is so many sessions of one kind on one mutex, which may be
//! anybody's.
//!
//! The parent has one thread and forks for every cell: a process for each session, or one process with a
//! thread for each. So a cell can be killed when it is stuck, and processor time and memory of one cell do
//! not leak into the next.

#![allow(missing_docs, unreachable_pub)] // nobody links it but the command and the benchmarks
#![allow(clippy::missing_errors_doc, clippy::missing_panics_doc)] // as above
#![allow(clippy::must_use_candidate, clippy::return_self_not_must_use)] // as above
#![allow(clippy::needless_pass_by_value)] // an error takes what it is about

pub mod arguments;
pub mod board;
pub mod calibration;
pub mod cell;
pub mod chart;
pub mod check;
pub mod clock;
pub mod duration;
pub mod errors;
pub mod histogram;
pub mod limits;
pub mod load;
pub mod machine;
pub mod ours;
pub mod outcome;
pub mod output;
pub mod peer;
pub mod plot;
pub mod process;
pub mod rounds;
pub mod signals;
pub mod work;
pub mod worker;
