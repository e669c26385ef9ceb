//! SQL on instances and recordings: views with the sources' names over snapshots, read-only.

mod answer;
mod computed;
mod database;
mod memory;
mod mistakes;
mod source;
mod tables;

pub use answer::{ask, check_condition, print, separate};
pub use database::Database;
pub use mistakes::{nearest, several};
pub use source::{SAMPLE, SAMPLES_MAX, Source, nothing, watched};
pub use tables::{Column, columns, describe, names};
