//! What an instance was at a moment, to be shown now or kept: one type that every tool reads.
//!
//! [`Snapshot`] is plain data. [`Taker`] takes them of an instance, [`Period`] is what happened between two
//! of them, as profiles by whatever key, from which every figure follows by `Measure`. [`Recorder`] takes
//! them again and again, and samples between them, into the file that [`store`] writes and reads.

pub mod deadlocks;
pub mod findings;
pub mod history;
mod pauses;
mod period;
mod recorder;
pub mod report;
mod sampling;
mod scene;
mod snapshot;
mod state;
pub mod store;
mod taking;
#[cfg(test)]
mod tests;
pub mod views;

pub use deadlocks::deadlocks;
pub use pauses::Pauses;
pub use period::Period;
pub use recorder::{Pace, Progress, Recorder};
pub use sampling::Sampler;
pub use scene::{Scene, Span};
pub use snapshot::{Alert, Held, Identity, Moment, Mutex, Parameter, Session, Snapshot, State, wait_class};
pub use state::{Load, Spent};
pub use store::host;
pub use taking::Taker;
