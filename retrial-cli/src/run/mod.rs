//! What is behind `retrial run`: a program started on our mutexes, sampled from outside, and reported on.

pub mod calls;
pub mod child;
mod locks;
pub mod outcome;
pub mod preload;
pub mod profile;
pub mod program;
pub mod record;
mod recorded;
pub mod report;
pub mod sampler;
pub mod settings;
pub mod supervise;
pub mod symbols;
mod unseen;
pub mod variables;
