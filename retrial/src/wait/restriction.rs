//! Whether one session is active alone at a mutex, learnt by trial (*concurrency restriction*: D. Dice and
//! A. Kogan, *Avoiding Scalability Collapse by Restricting Concurrency*, 2019).
//!
//! A second active session fills the time in which the first one does something else. But with each change of
//! the holder what the mutex protects moves from one cache to another, and each look, park and wake-up takes
//! time from the holder. Which of the two is more depends on the machine and on the sections. So both are
//! tried in turn, and the gets per time compared.

use crate::params::{Fairness, P, Params};
use std::time::Duration;

/// What is going on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Phase {
    /// What the last trials said holds.
    #[default]
    Settled,
    /// The same, measured.
    Same,
    /// The opposite, measured.
    Opposite,
    /// The opposite, not measured yet: sessions that were active park, or are woken.
    Settling,
}

/// By how much one alone is to be better for the restriction to begin, and company for it to end, in percent.
/// A measurement of few gets says no more; and the sessions that were to be company may be asleep all the
/// time. Where sessions wait awake for half of the time and more in company, one alone only has to be no
/// worse: nobody waits awake then.
const BEGINS: u64 = 10;
const ENDS: u64 = 3;

/// Minimum number of gets in a measurement.
///
/// No trial follows where as many waits were of sessions that had been away for an interval, and there were so many
/// gets at most for each of them. Sessions come from outside then: a session that is active alone has no section to
/// go on with, and the queue of the sessions that come meanwhile takes long to go down again. Long sections bring
/// such waits too, but fewer.
const GETS: u64 = 16;

/// Intervals of a measurement, a few turns, which last for one each while one session is active alone. Of the
/// opposite one is enough where it is better or worse by a tenth, or where nobody waits awake for long.
const INTERVALS: u64 = 3;

/// From so many intervals on a measurement of company says nothing: nobody waited for a while, and the next
/// look came late. One of one alone does, for nobody waits awake in it. Where there were too few gets,
/// company is as good: sections are so long that a change of the holder, which takes microseconds, does not
/// harm them.
const LATE: u64 = 8;

/// Maximum number of quarters of an interval, and of growths of the queue, before the opposite is measured. While
/// one is to be active alone the number of parked sessions grows by those that are ready to run, each of which
/// needs a processor to find out: 256 threads take 4 ms on two.
const QUARTERS: u8 = 15;

/// Maximum length of an interval. A session that stands by sleeps for half of it: what a mutex may be idle for
/// at the most. Twice the default.
const LONGEST: Duration = Duration::from_millis(2);

/// `orbit_handover_interval`, as trials take it.
pub(super) fn interval(params: &Params) -> Duration {
    params.handover_interval().min(LONGEST)
}

/// The time between two trials, as a power of two of intervals: the first, the last, and the growth with each
/// trial that says what the one before said.
const FIRST_GAP: u8 = 2;
const LAST_GAP: u8 = 9;
const GAP_GROWS: u8 = 2;

/// A trial of the restriction is over when more sessions are parked than four times as many as before it, and
/// this: where they come from outside at a rate of their own, the queue that grows meanwhile takes long to go
/// down again. Where sessions of the company wait awake, it settles on first.
const MORE_PARKED: u16 = 16;

/// Unit of the time that sessions wait awake, as a power of 2 of ns: 64 ns.
const AWAKE_UNIT: u32 = 6;

/// What the clock goes back by where it is another one: of a machine started anew, or of another container.
const ANOTHER_CLOCK_NS: u64 = 1_000_000_000;

/// See the module. The restriction begins after two trials in a row that speak for it. It ends with the first
/// that speaks for company, or with the second in a row where sessions of the company wait awake.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Restriction {
    phase: Phase,
    /// Whether one session is active alone, between trials.
    alone: bool,
    /// Whether the last trial spoke against that.
    doubted: bool,
    /// Whether sessions waited awake for half of [`Phase::Same`] and more, when that was last company.
    awake: bool,
    gap: u8,
    /// Beginning of the phase by the monotonic clock, and the gets of the mutex then.
    since_ns: u64,
    gets: u64,
    /// Gets per second in [`Phase::Same`]; while that lasts, how long sessions have waited awake in it, in
    /// [`AWAKE_UNIT`].
    rate: u32,
    /// Number of parked sessions when [`Phase::Same`] ended, or a quarter of [`Phase::Settling`], or a trial
    /// settles on. While [`Phase::Same`] lasts, the waits of sessions that were away.
    parked: u16,
    /// Quarters of an interval in [`Phase::Settling`] so far.
    quarters: u8,
}

impl Restriction {
    /// Whether there are trials under these parameters. `fifo` hands over at each release in any case.
    #[must_use]
    pub fn applies(params: &Params) -> bool {
        super::scheme(params.get(P::Scheme)).is_orbit() && params.fairness() != Fairness::Fifo
    }

    /// Whether one session is active alone between trials.
    #[must_use]
    pub(crate) const fn is_settled_alone(self) -> bool {
        self.alone
    }

    /// Whether it is in force now: sessions that miss park at once, and one that is woken stands by.
    #[must_use]
    pub fn is_on(self) -> bool {
        self.alone != matches!(self.phase, Phase::Opposite | Phase::Settling)
    }

    /// A session has yielded, and spun before that, from `since_ns` on: what follows, if that counts.
    /// `was_away`: see [`Experience::was_away`](super::Experience::was_away).
    #[must_use]
    pub fn waited_awake(self, since_ns: u64, now_ns: u64, was_away: bool) -> Option<Self> {
        let counts = self.phase == Phase::Same && !self.alone;
        let ns = now_ns.saturating_sub(since_ns.max(self.since_ns));
        let units = u32::try_from(ns >> AWAKE_UNIT).unwrap_or(u32::MAX);
        let parked = self.parked.saturating_add(u16::from(was_away));
        counts.then(|| Self { rate: self.rate.saturating_add(units), parked, ..self })
    }

    /// What follows from the time, the parked sessions and the gets so far; `None` while nothing does.
    /// `interval` is `orbit_handover_interval`, of which 2 ms count at most.
    #[must_use]
    pub fn see(self, now_ns: u64, interval: Duration, parked: u32, gets: impl FnOnce() -> u64) -> Option<Self> {
        let interval_ns = interval.min(LONGEST).as_nanos() as u64;
        let is_another_clock = self.since_ns.saturating_sub(now_ns) > ANOTHER_CLOCK_NS;
        let took_ns = if is_another_clock { u64::MAX } else { now_ns.saturating_sub(self.since_ns) };
        let next_look_ns = match self.phase {
            Phase::Settled => interval_ns << self.gap.clamp(FIRST_GAP, LAST_GAP),
            Phase::Same => interval_ns * INTERVALS,
            Phase::Opposite => interval_ns / 2,
            Phase::Settling => interval_ns / 4,
        };
        let parked = u16::try_from(parked).unwrap_or(u16::MAX);
        let is_trial = self.phase == Phase::Opposite && self.is_on();
        let is_crowded = is_trial && parked > self.parked.saturating_mul(4).saturating_add(MORE_PARKED);
        if took_ns < next_look_ns && !is_crowded {
            return None;
        }
        let gets = gets();
        let passed = gets.wrapping_sub(self.gets);
        let per_second = u128::from(passed) * 1_000_000_000 / u128::from(took_ns.max(1));
        let rate = u32::try_from(per_second).unwrap_or(u32::MAX);
        let is_late = took_ns >= interval_ns.saturating_mul(LATE);
        // Far worse, in thirds, where enough gets were to be expected. While sessions find out that they are
        // to park it is worse in any case.
        let expected = u128::from(self.rate) * u128::from(took_ns) / 1_000_000_000;
        let is_below = |thirds| expected >= u128::from(GETS) && u128::from(passed) * 3 < expected * thirds;
        let after = match self.phase {
            Phase::Settled => Self { phase: Phase::Same, rate: 0, parked: 0, ..self },
            // Sessions have not all found out yet.
            _ if is_crowded && self.awake && self.quarters < QUARTERS && !is_below(2) => self.settling(parked),
            // More than one in a ns: a count that has come round, or of another mutex.
            _ if is_crowded || is_another_clock || passed > took_ns => self.settled(false),
            _ if is_late && passed < GETS => self.settled(false),
            // As if company had not been measured, or tried.
            Phase::Same if is_late && !self.alone => Self { phase: Phase::Settled, ..self },
            _ if is_late && !self.is_on() => self.settled(true),
            Phase::Settling if self.quarters > 0 && is_below(1) => self.settled(self.alone),
            Phase::Opposite if is_below(2) => self.settled(self.alone),
            Phase::Settling if self.is_on() && parked > self.parked.saturating_add(1) && self.quarters < QUARTERS => {
                self.settling(parked)
            }
            Phase::Settling => Self { phase: Phase::Opposite, parked, ..self },
            _ if took_ns < interval_ns || passed < GETS => return None,
            Phase::Same if !self.alone && u64::from(self.parked) >= GETS.max(passed / GETS) => self.settled(false),
            Phase::Same => {
                let awake = if self.alone { self.awake } else { u64::from(self.rate) << AWAKE_UNIT >= took_ns / 2 };
                Self { phase: Phase::Settling, awake, rate, parked, quarters: 0, ..self }
            }
            Phase::Opposite => {
                let (alone, together) = if self.alone { (self.rate, rate) } else { (rate, self.rate) };
                let is_better = |a: u32, b: u32, by: u64| u64::from(a) * 100 >= u64::from(b) * (100 + by);
                let is_close = !is_better(alone, together, BEGINS) && !is_better(together, alone, BEGINS);
                if is_close && self.awake && took_ns < interval_ns * INTERVALS {
                    return None;
                }
                let is_worth_it = self.alone || self.awake || is_better(alone, together, BEGINS);
                self.settled(is_worth_it && !is_better(together, alone, ENDS))
            }
        };
        Some(Self { since_ns: now_ns, gets, ..after })
    }

    /// Sessions find out that they are to park.
    fn settling(self, parked: u16) -> Self {
        Self { phase: Phase::Settling, parked, quarters: self.quarters + 1, ..self }
    }

    /// A trial is over.
    fn settled(self, is_better_alone: bool) -> Self {
        let says_the_same = is_better_alone == self.alone;
        let doubted = !says_the_same && !self.doubted && (self.awake || !self.alone);
        let alone = if doubted { self.alone } else { is_better_alone };
        let gap = if says_the_same { LAST_GAP.min(self.gap.clamp(FIRST_GAP, LAST_GAP) + GAP_GROWS) } else { FIRST_GAP };
        Self { phase: Phase::Settled, alone, doubted, gap, ..self }
    }

    /// As it is in memory.
    #[must_use]
    pub(crate) const fn pack(self) -> [u64; 3] {
        let flags = self.phase as u64
            | (self.alone as u64) << 2
            | (self.doubted as u64) << 3
            | (self.quarters as u64) << 4
            | (self.awake as u64) << 15;
        [
            flags | (self.gap as u64) << 8 | (self.parked as u64) << 16 | (self.rate as u64) << 32,
            self.since_ns,
            self.gets,
        ]
    }

    /// Of what is in memory, whatever that is.
    #[must_use]
    pub(crate) const fn unpack([state, since_ns, gets]: [u64; 3]) -> Self {
        let phase = match state & 3 {
            1 => Phase::Same,
            2 => Phase::Opposite,
            3 => Phase::Settling,
            _ => Phase::Settled,
        };
        let (alone, doubted, quarters) = (state & 4 != 0, state & 8 != 0, state as u8 >> 4);
        let (gap, awake) = ((state >> 8) as u8 & 0x7f, state & 1 << 15 != 0);
        let (parked, rate) = ((state >> 16) as u16, (state >> 32) as u32);
        Self { phase, alone, doubted, awake, gap, since_ns, gets, rate, parked, quarters }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(1);
    const MS: u64 = 1_000_000;

    /// A load with so many gets in a ms alone and together, seen every quarter of a ms for some time. The
    /// restriction at its end, how often it was found on, and the number of trials.
    fn load(
        mut all: Restriction,
        at: &mut (u64, u64),
        [alone, together]: [u64; 2],
        for_ms: u64,
    ) -> (Restriction, u64, u64) {
        let (mut on, mut trials) = (0, 0);
        for _ in 0..4 * for_ms {
            at.0 += MS / 4;
            at.1 += if all.is_on() { alone } else { together } / 4;
            if let Some(next) = all.see(at.0, INTERVAL, 3, || at.1) {
                trials += u64::from(all.phase == Phase::Same && next.phase == Phase::Settling);
                all = next;
            }
            on += u64::from(all.is_on());
        }
        (all, on, trials)
    }

    #[test]
    fn one_session_is_active_alone_where_that_is_faster_by_a_tenth_after_two_trials() {
        let begun = |rates, for_ms| load(Restriction::default(), &mut (17 * MS, 5), rates, for_ms).0.is_on();
        assert!(!begun([4400, 4000], 7) && begun([4400, 4000], 16));
        assert!(!begun([4396, 4000], 2000) && !begun([400, 4000], 2000));
    }

    #[test]
    fn what_was_learnt_holds_until_company_is_faster_or_a_measurement_has_too_few_gets() {
        let mut at = (17 * MS, 5);
        let (all, ..) = load(Restriction::default(), &mut at, [4400, 4000], 2000);
        let (all, ..) = load(all, &mut at, [4000, 4116], 2000);
        assert!(all.is_on());
        assert!(!load(all, &mut at, [4000, 4120], 2000).0.is_on());
        let measured = Restriction { phase: Phase::Same, ..all };
        for (doubted, awake) in [(false, true), (true, true), (false, false)] {
            let stays = awake && !doubted;
            let measured = Restriction { doubted, awake, ..measured };
            let late = |n| measured.see(measured.since_ns + 9 * MS, INTERVAL, 0, || measured.gets + n).unwrap();
            assert_eq!(
                [15, 16].map(|n| (late(n).phase, late(n).is_settled_alone(), late(n).doubted)),
                [(Phase::Settled, stays, stays), (Phase::Settling, true, doubted)]
            );
            assert_eq!(late(15).gap, FIRST_GAP);
        }
    }

    #[test]
    fn gets_of_another_mutex_say_nothing() {
        let tried = Restriction {
            phase: Phase::Opposite,
            doubted: true,
            rate: 1,
            since_ns: 5,
            gets: 7,
            ..Restriction::default()
        };
        let after = |n| tried.see(5 + 3 * MS, INTERVAL, 0, || n).unwrap();
        assert_eq!([7 + 3 * MS, 8 + 3 * MS, 0].map(|n| after(n).is_on()), [true, false, false]);
    }

    #[test]
    fn trials_become_rare_while_they_say_the_same_and_cost_little() {
        for (rates, on) in [([8000, 4000], true), ([2000, 4000], false)] {
            let mut at = (17 * MS, 5);
            let (all, ..) = load(Restriction::default(), &mut at, rates, 2000);
            let (after, was_on, trials) = load(all, &mut at, rates, 5140);
            assert_eq!((after.is_on(), trials), (on, 10));
            let wrong = if on { 4 * 5140 - was_on } else { was_on };
            assert_eq!(wrong, 30, "three quarters of a ms of 514, for half of the gets is far worse");
        }
    }

    #[test]
    fn a_load_that_changes_is_noticed_at_the_next_trial() {
        let mut at = (17 * MS, 5);
        let (all, ..) = load(Restriction::default(), &mut at, [8000, 4000], 2000);
        assert!(all.is_on());
        let (all, on, _) = load(all, &mut at, [2000, 4000], 600);
        assert!(!all.is_on() && on < 4 * 520);
        let (all, ..) = load(all, &mut at, [8000, 4000], 2000);
        assert!(all.is_on());
    }

    #[test]
    fn one_alone_has_to_be_no_worse_where_sessions_wait_awake_for_half_of_the_time() {
        let after_two_trials = |alone, awake_ns| {
            let (mut all, mut at, mut passed) = (Restriction::default(), 17 * MS, 0);
            for _ in 0..4 * 20 {
                at += MS / 4;
                passed += if all.is_on() { alone } else { 1000 };
                all = all.waited_awake(at - awake_ns / 4, at, false).unwrap_or(all);
                all = all.see(at, INTERVAL, 3, || passed).unwrap_or(all);
            }
            all.is_settled_alone()
        };
        let half_ns = (MS / 2).next_multiple_of(4 << AWAKE_UNIT);
        assert!(after_two_trials(971, half_ns) && !after_two_trials(970, half_ns));
        assert!(!after_two_trials(1099, half_ns - 4) && after_two_trials(1100, 0));
        let counts =
            |phase, alone| Restriction { phase, alone, ..Restriction::default() }.waited_awake(0, 64, false).is_some();
        assert!(counts(Phase::Same, false) && !counts(Phase::Same, true) && !counts(Phase::Opposite, true));
        let begun = Restriction { phase: Phase::Same, since_ns: MS, ..Restriction::default() };
        assert_eq!(
            begun.waited_awake(0, MS + 640, false),
            begun.waited_awake(MS, MS + 640, false),
            "what was before does not count"
        );
    }

    #[test]
    fn a_measurement_of_company_that_lasts_says_nothing_and_one_of_one_alone_counts() {
        let mut at = (17 * MS, 5);
        // 16 gets take 16 ms.
        let (all, on, trials) = load(Restriction::default(), &mut at, [1, 1], 10_000);
        assert!(!all.is_on());
        assert_eq!((on, trials), (0, 0), "they are too few to begin with");
        let restricted = Restriction { alone: true, gap: LAST_GAP, since_ns: at.0, gets: at.1, ..all };
        let (all, ..) = load(restricted, &mut at, [3, 4], 600);
        assert!(!all.is_on());
        // Nobody looks for a while.
        let measured = Restriction { phase: Phase::Same, doubted: true, gap: 4, rate: 4000, ..all };
        let after =
            |from: Restriction, ms, n| from.see(from.since_ns + ms * MS, INTERVAL, 0, || from.gets + n).unwrap();
        assert_eq!([7, 8].map(|ms| after(measured, ms, 99).phase), [Phase::Settling, Phase::Settled]);
        assert_eq!((after(measured, 8, 99).doubted, after(measured, 8, 99).gap), (true, 4), "as if there were none");
        let settling = Restriction { phase: Phase::Settling, ..measured };
        assert_eq!([15, 16].map(|n| after(settling, 8, n).phase), [Phase::Settled, Phase::Opposite]);
        let tried = Restriction { phase: Phase::Opposite, ..measured };
        assert_eq!([43, 44].map(|n| after(tried, 10, n).is_on()), [false, true], "4,400 a second");
        let company = after(Restriction { alone: true, ..tried }, 10, 999);
        assert_eq!((company.phase, company.is_on(), company.gap), (Phase::Settled, true, 6));
    }

    #[test]
    fn a_trial_of_what_is_far_worse_ends_after_half_the_time() {
        let tried = Restriction { phase: Phase::Opposite, rate: 1_200_000, ..Restriction::default() };
        let after = |all: Restriction, quarters, n| all.see(quarters * MS / 4, INTERVAL, 0, || n);
        for alone in [false, true] {
            let tried = Restriction { alone, ..tried };
            assert_eq!((after(tried, 1, 0), after(tried, 2, 400)), (None, None));
            let settled = after(tried, 2, 399).unwrap();
            assert_eq!((settled.phase, settled.is_on()), (Phase::Settled, alone));
        }
        // Of 15 and 16 gets that were to be expected.
        let of = |rate| after(Restriction { rate, ..tried }, 2, 0).is_some();
        assert_eq!([30_000, 32_000].map(of), [false, true]);
    }

    #[test]
    fn the_opposite_is_measured_for_three_intervals_where_it_is_as_good_to_within_a_tenth() {
        for alone in [false, true] {
            let company = Restriction { phase: Phase::Opposite, alone, rate: 1_000_000, ..Restriction::default() };
            let tried = Restriction { awake: true, ..company };
            assert!(company.see(MS, INTERVAL, 0, || 1000).is_some(), "nobody waits awake for long");
            let after = |intervals, n| tried.see(intervals * MS, INTERVAL, 0, || intervals * n);
            // In percent of 1,000 gets.
            let ends = [90, 91, 109, 110].map(|n| [1, 2, 3].map(|intervals| after(intervals, 10 * n).is_some()));
            assert_eq!(ends, [[true; 3], [false, false, true], [false, false, true], [true; 3]]);
        }
    }

    #[test]
    fn the_opposite_is_measured_when_sessions_have_stopped_to_park_after_four_intervals_at_most() {
        let begun = Restriction { phase: Phase::Settling, rate: 1_000_000, parked: 3, ..Restriction::default() };
        let parked = |by: &dyn Fn(u32) -> u32, begun: Restriction| {
            let (mut all, mut quarters) = (begun, 0u32);
            while matches!(all.phase, Phase::Settling) {
                assert!(all.is_on() != all.alone);
                quarters += 1;
                let now = u64::from(quarters) * MS / 4;
                all = all.see(now, INTERVAL, by(quarters), || u64::from(quarters) * 250).unwrap();
            }
            (quarters, all.phase, all.parked)
        };
        assert_eq!(parked(&|_| 3, begun), (1, Phase::Opposite, 3));
        assert_eq!(parked(&|quarters| 5 * quarters.min(7), begun), (8, Phase::Opposite, 35));
        assert_eq!(parked(&|quarters| 100 * quarters, begun), (16, Phase::Opposite, 1600));
        // Company: they are woken.
        let company = Restriction { alone: true, ..begun };
        assert_eq!(parked(&|quarters| 5 * quarters, company), (1, Phase::Opposite, 5));
        // To less than a third, but for the first quarter.
        let few = |quarters, n| {
            let settling = Restriction { quarters, ..begun };
            let after = settling.see(MS / 4, INTERVAL, 99, || n).unwrap();
            (after.phase, after.is_on())
        };
        assert_eq!([few(0, 83), few(1, 84)], [(Phase::Settling, true); 2]);
        assert_eq!(few(1, 83), (Phase::Settled, false));
    }

    #[test]
    fn a_trial_of_the_restriction_settles_on_when_the_queue_grows_and_then_ends_at_once() {
        let tried =
            Restriction { phase: Phase::Opposite, doubted: true, parked: 3, since_ns: 7, ..Restriction::default() };
        let after = |all: Restriction, parked| all.see(8, INTERVAL, parked, || 9);
        assert_eq!(after(tried, 28), None);
        assert_eq!(after(tried, 29).unwrap().phase, Phase::Settled, "sessions come from outside");
        let tried = Restriction { awake: true, ..tried };
        let settling = after(tried, 29).unwrap();
        assert_eq!((settling.phase, settling.parked, settling.quarters), (Phase::Settling, 29, 1));
        let far_worse = Restriction { rate: u32::MAX, since_ns: 0, ..tried };
        let settled = far_worse.see(8, INTERVAL, 29, || 22).unwrap();
        assert_eq!((settled.phase, settled.is_on()), (Phase::Settled, false), "less than two thirds of 34 gets");
        let settled = after(Restriction { quarters: QUARTERS, ..tried }, 29).unwrap();
        assert_eq!((settled.phase, settled.is_on(), settled.doubted), (Phase::Settled, false, false));
        assert_eq!(after(Restriction { alone: true, ..tried }, 99), None, "others are active in this one");
    }

    #[test]
    fn no_trial_follows_where_sessions_come_from_outside() {
        let begun = Restriction { parked: 99, gap: FIRST_GAP, ..Restriction::default() }.see(4 * MS, INTERVAL, 3, || 0);
        let after = |waits, gets, alone| {
            let all = Restriction { alone, ..begun.unwrap() };
            let all = (0..waits).fold(all, |all, _| all.waited_awake(0, 5 * MS, true).unwrap_or(all));
            let all = all.waited_awake(0, 5 * MS, false).unwrap_or(all);
            let next = all.see(7 * MS, INTERVAL, 3, || gets).unwrap();
            (next.phase, next.gap)
        };
        assert_eq!(
            [(15, 20), (19, 320)].map(|(waits, gets)| after(waits, gets, false)),
            [(Phase::Settling, FIRST_GAP); 2]
        );
        let none = (Phase::Settled, FIRST_GAP + GAP_GROWS);
        assert_eq!([(16, 20), (20, 320)].map(|(waits, gets)| after(waits, gets, false)), [none; 2]);
        assert_eq!(after(20, 320, true), (Phase::Settling, FIRST_GAP), "nobody waits awake in it");
    }

    #[test]
    fn it_comes_back_from_memory_as_it_was_and_whatever_is_there_can_be_used() {
        let mut at = (17 * MS, 5);
        let mut all = Restriction::default();
        for _ in 0..100 {
            let awake = Restriction { awake: true, ..all };
            assert_eq!([all, awake].map(|all| Restriction::unpack(all.pack())), [all, awake]);
            all = load(all, &mut at, [8000, 4000], 1).0;
        }
        for garbage in [[u64::MAX; 3], [0x5555_5555_5555_5555; 3], [6, 40_000 * MS, 0]] {
            let (all, ..) = load(Restriction::unpack(garbage), &mut at, [2000, 4000], 2000);
            assert!(!all.is_on(), "{garbage:?}");
        }
    }
}
