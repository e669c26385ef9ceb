//! SQL on instances and recordings: views with the sources' names over snapshots, read-only.

mod answer;
mod computed;
mod database;
mod memory;
mod mistakes;
mod source;
mod tables;

pub use answer::print;
pub use source::{Source, watched};
pub use tables::{describe, names};
