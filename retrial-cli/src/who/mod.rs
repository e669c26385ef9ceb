//! Who waits for whom now: the tree, and what the threads in it are at.

pub mod object;
pub mod report;
pub mod text;
pub mod thread;
pub mod tree;
pub mod unwind;
