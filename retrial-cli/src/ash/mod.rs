//! Groups of samples: which sessions held and waited, by any of the samples' columns.

mod answer;
mod heatmap;
mod question;

pub use answer::{Answer, Looked};
pub use heatmap::{Axis, Heatmap};
pub use question::{Groups, Question, columns};

/// The view that is asked.
pub const VIEW: &str = "ash";
