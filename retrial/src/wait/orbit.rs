//! `orbit`, the default: spin by time, twice the mean holding time where that is known and not too long; a few yields; then park
//! with a long jittered time-out and one look after it.
//!
//! Few sessions are active, the others are parked. Whoever keeps coming back to the mutex wakes nobody as long as the active ones
//! fill the mutex or the processors; when its turn is over it wakes the next one and queues. So sessions change at the price of a
//! wake-up per turn, and nobody waits for longer than a round.
//!
//! The time-outs are such that all parked sessions of a mutex together retry at most `orbit_retry_rate` times a second,
//! whatever their number, and a release wakes nobody while a woken session is on its way. So waiting costs what the
//! holder can spare, from 1 to 16,384 sessions. Loses to schemes that never sleep while holding times are longer than eight times
//! `orbit_spin_time` and every waiter has a processor of its own.

use super::{Attempt, Release, Scheme, Step, Usage};
use crate::params::{P, Params};
use std::time::Duration;

pub(super) struct Orbit;

/// No park is shorter than this: below it a time-out races with the wake-ups that it only has to heal.
const PARK_MIN: Duration = Duration::from_millis(10);

/// Whoever has parked often parks for up to so many times that: thousands, each waiting for a mutex of its own that is held for long,
/// would fill a processor with looks (2,000: one of two, measured).
const PARK_MIN_TIMES: u32 = 16;

/// Nor any longer, whatever the count of parked sessions says.
const PARK_MAX: Duration = Duration::from_mins(1);

/// Whoever queues at once has given up its turn, or was woken out of a condition's queue while the signaller still has the mutex.
/// To spin for it would take it from the signaller at every turn: a convoy of the program's own, such as Python's interpreter
/// lock, then changes hands at every step instead of now and then (16 threads on a queue: 5 times slower, measured).
///
/// So does whoever would only slow another one down that has the mutex to itself for a turn.
const fn queues(attempt: &Attempt<'_>) -> bool {
    (attempt.queues || attempt.alone) && attempt.parks == 0
}

/// Long turns cost least. But no longer than it takes to have a round of all who are parked within `orbit_round`.
fn turn_ns(usage: &Usage<'_>) -> u64 {
    let shortest = usage.params.get(P::OrbitTurn) * 1000;
    let round_ns = usage.params.get(P::OrbitRound) * 1_000_000 * u64::from(usage.processors);
    (round_ns / u64::from(usage.parked.max(1))).clamp(shortest, 32 * shortest)
}

/// Holds of up to so many times `orbit_spin_time` are waited for to their end, in most cases. With sections of 20 and 50 us on two
/// processors that gets 1.4 and 1.3 times the throughput of parking, for as much processor time a get (measured).
const WORTH_SPINNING: u64 = 8;

/// Longest spin.
fn spin_ns(params: &Params, hold_ns: u64) -> u64 {
    let wake_up = params.get(P::OrbitSpinTime) * 1000;
    if hold_ns > WORTH_SPINNING * wake_up { wake_up } else { wake_up.max(2 * hold_ns) }
}

impl Scheme for Orbit {
    fn spins(&self, attempt: &Attempt<'_>) -> u32 {
        if queues(attempt) {
            return 0;
        }
        let limit = super::clamp(spin_ns(attempt.params, attempt.hold_ns) / u64::from(attempt.poll_ns.max(1)));
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
        let mean = share.clamp(PARK_MIN * attempt.parks.saturating_add(1).min(PARK_MIN_TIMES), PARK_MAX);
        // Uniform on 0.5 to 1.5 times the mean: jitter far wider than any holding time, so that losers do not meet again.
        let permille = 500 + u32::try_from(attempt.random % 1000).unwrap_or(0);
        Step::Park(mean / 1000 * permille)
    }

    fn release(&self, usage: &Usage<'_>) -> Release {
        let params = usage.params;
        if usage.gap_ns == 0 || usage.gap_ns >= 2 * spin_ns(params, usage.hold_ns) {
            return Release::Wake;
        }
        if params.get(P::Fairness) != 0 && usage.turn_ns > turn_ns(usage) {
            return Release::Leave;
        }
        // Enough sessions keep coming back to fill the mutex, or the processors.
        // Saturating: where a mutex was made anew at its place, or poked, `all` is anything.
        let fills_mutex = usage.hold_ns.saturating_mul(usage.all) >= usage.took_ns / 8 * 7;
        let fills_processors = usage.all.saturating_mul(2) >= usage.own * (2 * u64::from(usage.processors)).saturating_sub(1);
        if usage.alone || fills_mutex || fills_processors { Release::Stay } else { Release::Wake }
    }

    fn throttles_wakes(&self) -> bool {
        true
    }

    fn takes_jitter(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(params: &Params) -> Usage<'_> {
        Usage {
            params,
            gap_ns: 1200,
            hold_ns: 1000,
            turn_ns: 0,
            took_ns: 50_000,
            own: 25,
            all: 50,
            parked: 62,
            processors: 2,
            alone: false,
        }
    }

    #[test]
    fn a_known_holding_time_is_spun_for_as_long_as_a_wake_up_costs_about_that() {
        let params = Params::default();
        let spin = |hold_us: u64| spin_ns(&params, hold_us * 1000) / 1000;
        assert_eq!([0, 1, 4, 5, 20, 64, 65, 1000].map(spin), [8, 8, 8, 10, 40, 128, 8, 8]);
    }

    #[test]
    fn who_fills_the_mutex_or_the_processors_stays_until_its_turn_is_over() {
        let params = Params::default();
        let stays = usage(&params);
        assert_eq!(Orbit.release(&stays), Release::Stay);
        // Alone, and the mutex is free for half of the time.
        let alone = Usage { all: 25, ..stays };
        assert_eq!(Orbit.release(&alone), Release::Wake);
        assert_eq!(Orbit.release(&Usage { hold_ns: 1990, ..alone }), Release::Stay);
        assert_eq!(Orbit.release(&Usage { alone: true, ..alone }), Release::Stay);
        // Nobody can wait for who is away for longer than a spin.
        assert_eq!(Orbit.release(&Usage { gap_ns: 16_000, ..stays }), Release::Wake);
        assert_eq!(Orbit.release(&Usage { gap_ns: 16_000, hold_ns: 7000, ..stays }), Release::Stay);
        assert_eq!(Orbit.release(&Usage { gap_ns: 0, ..stays }), Release::Wake, "not known yet");
        // A round of 25 ms for 62 on 2 processors.
        assert_eq!(Orbit.release(&Usage { turn_ns: 806_000, ..stays }), Release::Stay);
        assert_eq!(Orbit.release(&Usage { turn_ns: 807_000, ..stays }), Release::Leave);
        assert_eq!(Orbit.release(&Usage { turn_ns: 8_000_001, parked: 1, ..stays }), Release::Leave);
        assert_eq!(Orbit.release(&Usage { turn_ns: 250_001, parked: 1000, ..stays }), Release::Leave);
        let throughput = params.with(P::Fairness, 0);
        assert_eq!(Orbit.release(&Usage { params: &throughput, turn_ns: 1 << 40, ..stays }), Release::Stay);
    }
}
