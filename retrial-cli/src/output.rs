//! What is printed, as the library of the bench has it, and JSON.

pub use retrial_bench::output::*;

use serde::Serialize;

/// Prints a document.
pub fn json(document: &(impl Serialize + ?Sized)) {
    line(&serde_json::to_string_pretty(document).unwrap_or_default());
}
