//! `orbit`, the default: spin by time, a few yields, then park with a long jittered time-out and one look after it.
//!
//! Few sessions are active, the others are parked. Whoever keeps coming back to the mutex wakes nobody as long as the active ones
//! fill the mutex or the processors; when its turn is over it wakes the next one and queues. So sessions change at the price of a
//! wake-up per turn, and nobody waits for longer than a round.
//!
//! The time-outs are such that all parked sessions of a mutex together retry at most `orbit_retry_rate` times a second,
//! whatever their number, and a release wakes nobody while a woken session is on its way. So waiting costs what the
//! holder can spare, from 1 to 16,384 sessions. Loses to pure spinning while every waiter has a processor of its own
//! and holding times are longer than `orbit_spin_time`.

use super::{Attempt, Release, Scheme, Step, Usage};
use crate::params::P;
use std::time::Duration;

pub(super) struct Orbit;

/// No park is shorter than this: below it a time-out races with the wake-ups that it only has to heal.
const PARK_MIN: Duration = Duration::from_millis(10);

/// Nor any longer, whatever the count of parked sessions says.
const PARK_MAX: Duration = Duration::from_mins(1);

/// Whoever queues at once has given up its turn, or was woken out of a condition's queue while the signaller still has the mutex.
/// To spin for it would take it from the signaller at every turn: a convoy of the program's own, such as Python's interpreter
/// lock, then changes hands at every step instead of now and then (16 threads on a queue: 5 times slower, measured).
const fn queues(attempt: &Attempt<'_>) -> bool {
    attempt.queues && attempt.parks == 0
}

/// Long turns cost least. But no longer than it takes to have a round of all who are parked within `orbit_round`.
fn turn_ns(usage: &Usage<'_>) -> u64 {
    let shortest = usage.params.get(P::OrbitTurn) * 1000;
    let round_ns = usage.params.get(P::OrbitRound) * 1_000_000 * u64::from(usage.processors);
    (round_ns / u64::from(usage.parked.max(1))).clamp(shortest, 32 * shortest)
}

impl Scheme for Orbit {
    fn spins(&self, attempt: &Attempt<'_>) -> u32 {
        if queues(attempt) {
            return 0;
        }
        let limit = super::clamp(attempt.params.get(P::OrbitSpinTime) * 1000 / u64::from(attempt.poll_ns.max(1)));
        match (attempt.parks, attempt.woken) {
            (0, _) if attempt.failed == 0 => limit,
            (_, true) => limit,
            (0, _) => limit / 8,
            (_, false) => 0,
        }
    }

    fn step(&self, attempt: &Attempt<'_>) -> Step {
        let params = attempt.params;
        // Not beside others that are parked: a yield may last until all who are ready have run, and whoever is woken meanwhile
        // comes first (80 ms at 256 threads, measured).
        let yields = attempt.parks == 0 && attempt.parked == 0 && u64::from(attempt.failed) < params.get(P::OrbitYields);
        if yields && !queues(attempt) {
            return Step::Yield;
        }
        let share = Duration::from_secs(1) * attempt.parked.saturating_add(1) / super::clamp(params.get(P::OrbitRetryRate));
        let mean = share.clamp(PARK_MIN, PARK_MAX);
        // Uniform on 0.5 to 1.5 times the mean: jitter far wider than any holding time, so that losers do not meet again.
        let permille = 500 + u32::try_from(attempt.random % 1000).unwrap_or(0);
        Step::Park(mean / 1000 * permille)
    }

    fn release(&self, usage: &Usage<'_>) -> Release {
        let params = usage.params;
        let spin_ns = params.get(P::OrbitSpinTime) * 1000;
        if usage.gap_ns >= 2 * spin_ns {
            return Release::Wake;
        }
        if params.get(P::Fairness) != 0 && usage.turn_ns > turn_ns(usage) {
            return Release::Leave;
        }
        // Enough sessions keep coming back to fill the mutex, or the processors.
        let fills_mutex = usage.hold_ns * usage.all >= usage.took_ns / 8 * 7;
        let fills_processors = 2 * usage.all >= usage.own * (2 * u64::from(usage.processors)).saturating_sub(1);
        if fills_mutex || fills_processors { Release::Stay } else { Release::Wake }
    }

    fn throttles_wakes(&self) -> bool {
        true
    }

    fn takes_jitter(&self) -> bool {
        false
    }
}
