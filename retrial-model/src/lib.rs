//! Theory and simulation of retrial mutexes.
//!
//! A session that finds the mutex busy spins up to a limit, and sleeps when it has failed; then it tries
//! again. What that costs follows from the distribution of the holding time, the spin limit, the rate of
//! requests and the sleep. All quantities are in SI units: seconds and 1/s. The formulas are those of A.
//! Nikolaev, *Exploring mutexes, the Oracle RDBMS retrial spinlocks* (2012), derived anew; where they depart
//! from the paper, both forms are here, the paper's by name.
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | X, S | `holding`, [`Distribution::mean`] | holding time and its mean |
//! | S_r | [`Distribution::residual_mean`] | what a miss has before it |
//! | ∆ | `limit` | spin limit |
//! | λ, Λ | `rate`, `attempt_rate` | fresh requests; all attempts |
//! | ρ | `utilization` | λS |
//! | k, k₀ | `inefficiency` | failed spins by attempts that found the mutex busy; the same without competition |
//! | Γ | `spin_time` | mean time of a spin |
//! | T_r | [`Distribution::remaining`] | what is left at the limit, 0 for spins that did not fail |
//! | T | `sleep` | mean sleep |
//! | M, κ, ω | `misses`, `sleep_ratio`, `sleep_rate` | busy attempts per get, sleeps per fresh miss, sleeps per second |
//! | ℓ | `leftover` | spinners left after an acquisition, where losers spin on |
//! | W, W_s, W_orb, W_o | `wait`, `spinning`, `sleeping`, `registered` | mean wait, its parts |
//! | N, Z | `sessions`, `think` | closed system |
//!
//! Every formula can be called by name, too: [`functions`], [`Function::call`].

#![allow(clippy::doc_markdown)] // symbols as T_r are those of the paper
#![allow(clippy::many_single_char_names)] // as above
#![allow(clippy::float_cmp)] // compared are values that were set, not computed
#![allow(clippy::cast_sign_loss, clippy::cast_possible_wrap)] // counts are checked to be from 0 and small
#![allow(clippy::unnecessary_wraps)] // functions of a table have one type

pub mod catalogue;
pub mod chain;
pub mod closed;
pub mod closure;
pub mod distribution;
mod error;
mod expectation;
pub mod function;
pub mod leftover;
pub mod measure;
pub mod profile;
mod quadrature;
pub mod quantity;
mod residual;
mod root;
pub mod scheme;
pub mod sim;
pub mod special;
pub mod spin;
pub mod statistics;
pub mod tagged;
pub mod theory;
pub mod tuning;
pub mod wait;

pub use catalogue::functions;
pub use distribution::{Distribution, DistributionError, Family};
pub use error::ModelError;
pub use function::{CallError, Function};
pub use measure::Measure;
pub use profile::Profile;
