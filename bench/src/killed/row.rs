//! What rounds come to.

use super::{Load, Variant};
use retrial_bench::output::rounded;
use serde::{Deserialize, Serialize};

/// Of the word of a robust mutex: who has it.
const OWNER: u32 = 0x3fff_ffff;

/// What the rounds of a variant came to. `None` where it is not known: a mutex in LMDB is not looked into,
/// glibc counts no calls.
#[derive(Serialize, Clone, Default)]
pub struct Row {
    pub variant: String,
    pub hold_us: Option<f64>,
    pub rounds: u32,
    pub hangs: u32,
    pub hangs_percent: f64,
    /// Hangs while nobody had the mutex.
    pub word_free: Option<u32>,
    /// Hangs that one wake-up by hand ended.
    pub woken: Option<u32>,
    pub violations: u64,
    /// Gets that found `ENOTRECOVERABLE`.
    pub not_recoverable: u32,
    /// Survivors that ended otherwise than by exit 0.
    pub errors: u32,
    pub kills: u32,
    /// Killed inside the critical section.
    pub holders_killed: Option<u32>,
    /// Gets that found `EOWNERDEAD`.
    pub owner_deaths: Option<u32>,
    /// Calls on mutexes, as the report of `retrial run` has them.
    pub handled: Option<u64>,
    pub fallback: Option<u64>,
}

/// A line of the program.
#[derive(Deserialize)]
pub struct Round {
    pub seed: u64,
    pub kills: u32,
    pub holders_killed: u32,
    pub owner_deaths: u32,
    pub violations: u64,
    pub not_recoverable: u32,
    pub errors: u32,
    pub hung: bool,
    pub woken: bool,
    pub word: u32,
    pub states: String,
}

impl Round {
    pub const fn is_wrong(&self) -> bool {
        self.violations > 0 || self.errors > 0 || self.not_recoverable > 0
    }
}

impl Row {
    pub fn new(variant: &Variant, load: Load) -> Self {
        let hold_us = match load {
            Load::Own { hold, .. } => Some(hold.as_secs_f64() * 1e6),
            Load::MdbLoad => None,
        };
        let looks_into = hold_us.map(|_| 0);
        let counted = variant.scheme.as_ref().map(|_| 0);
        Self {
            variant: variant.name.clone(),
            hold_us,
            word_free: looks_into,
            woken: looks_into,
            holders_killed: looks_into,
            owner_deaths: looks_into,
            handled: counted,
            fallback: counted,
            ..Self::default()
        }
    }

    pub fn add(&mut self, round: &Round) {
        let more = |figure: &mut Option<u32>, by: u32| *figure = figure.map(|figure| figure + by);
        self.rounds += 1;
        self.hangs += u32::from(round.hung);
        self.hangs_percent = rounded(f64::from(self.hangs) / f64::from(self.rounds) * 100.0, 2);
        more(&mut self.word_free, u32::from(round.hung && round.word & OWNER == 0));
        more(&mut self.woken, u32::from(round.woken));
        self.violations += round.violations;
        self.not_recoverable += round.not_recoverable;
        self.errors += round.errors;
        self.kills += round.kills;
        more(&mut self.holders_killed, round.holders_killed);
        more(&mut self.owner_deaths, round.owner_deaths);
    }

    pub fn is_wrong(&self) -> bool {
        self.hangs > 0 || self.violations > 0 || self.errors > 0 || self.not_recoverable > 0
    }
}
