//! The screen of `retrial top`: what was seen of an instance, a state that keys change, and how both are
//! drawn.
//!
//! [`Seen`] is plain data, made of two snapshots; [`State`] is what the user has chosen. A key changes the
//! state and may ask for an [`Effect`]; [`draw()`] writes both into a buffer. So all of it is tested without
//! a terminal. [`live`] has the threads and the terminal.

mod columns;
mod draw;
mod filter;
mod grid;
mod head;
mod lists;
pub mod live;
mod pages;
mod panel;
pub mod rows;
mod seen;
mod state;
pub mod terminal;
#[cfg(test)]
pub mod tests;
mod tree;

pub use draw::once;
pub use seen::Seen;
pub use state::State;
