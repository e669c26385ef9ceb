//! A condition over the figures of an instance, looked at again and again, and what is done when it holds.

pub mod action;
pub mod expression;
pub mod rate;
pub mod trigger;
pub mod values;
pub mod waiting;
