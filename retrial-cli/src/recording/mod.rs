//! What an instance was at a moment, to be shown now or kept: one type that every tool reads.
//!
//! [`Snapshot`] is plain data. [`Taker`] takes them of an instance, [`Period`] is what happened between two of them, as profiles by
//! whatever key, from which every figure follows by `Measure`.

mod period;
mod snapshot;
mod state;
mod taking;
#[cfg(test)]
mod tests;

pub use period::Period;
pub use snapshot::{Alert, Held, Identity, Moment, Mutex, Parameter, Session, Snapshot, State};
pub use state::Load;
pub use taking::Taker;
