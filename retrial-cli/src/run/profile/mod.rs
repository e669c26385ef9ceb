//! `--profile`: which lock is got from where, for how long it is waited for and held. The program copies
//! registers and the top of its stacks into memory that it shares with this process
//! (`retrial-preload/src/profile.rs`); here they are unwound, added up and named.

pub mod recording;
pub mod report;
pub mod stacks;
pub mod tallies;
