//! Figures for Prometheus and what speaks its formats.

pub mod families;
pub mod ledger;
pub mod otlp;
pub mod serve;
pub mod text;
