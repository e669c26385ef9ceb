//! The locks of a program that was not started under `retrial run`: what the kernel and its memory tell.

pub mod futex;
pub mod look;
pub mod place;
pub mod process;
pub mod rwlock;
pub mod samples;
pub mod text;
