//! The one table of measures: what follows from a [`Profile`], with name, symbol, unit and definition.
//!
//! Everything that prints a figure of a mutex, a session or an instance, measured or simulated, takes it from
//! here. The definitions are those of Nikolaev, *Exploring mutexes* (MEDIAS 2012), table 4, made to hold for
//! requests that give up and for intervals with waits under way; `docs/DESIGN.md` says why.

use crate::profile::{Profile, Samples};
use retrial::views::Counter;
use serde::{Deserialize, Serialize};

macro_rules! measures {
    ($( $id:ident $name:literal $symbol:literal $unit:literal $doc:literal $of:expr; )*) => {
        /// A figure that follows from a [`Profile`]. Units are SI; a measure is absent where there is nothing
        /// to compute it from.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[repr(usize)]
        pub enum Measure { $( #[doc = $doc] $id ),* }

        impl Measure {
            /// Every measure.
            pub const ALL: &'static [Self] = &[ $( Self::$id ),* ];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str { [ $( $name ),* ][self as usize] }

            /// Its symbol in the sources and in theory, or its name for people where it has none.
            #[must_use]
            pub const fn symbol(self) -> &'static str { [ $( $symbol ),* ][self as usize] }

            /// Its unit; empty for a number without one.
            #[must_use]
            pub const fn unit(self) -> &'static str { [ $( $unit ),* ][self as usize] }

            /// What it is.
            #[must_use]
            pub const fn description(self) -> &'static str { [ $( $doc ),* ][self as usize] }

            /// Its value; `None` where there is nothing to compute it from.
            #[must_use]
            pub fn of(self, profile: &Profile) -> Option<f64> {
                let value = match self { $( Self::$id => ($of as fn(&Profile) -> Option<f64>)(profile) ),* };
                value.filter(|value| value.is_finite())
            }
        }
    };
}

measures! {
    Throughput "throughput" "λ" "1/s" "Gets per second, λ."
        |p| ratio(p.gets? as f64, p.time_s);
    Utilization "utilization" "U" "" "Share of the time in which the mutex was held, as an observer saw it, U."
        |p| ratio(p.samples.held_s, p.samples.time_s);
    UtilizationError "utilization_error" "± U" "" "Half width of the 95 % interval of U, as a share of it, by the number of looks; that of S is as wide. Wider where a hold lasts for many looks."
        utilization_error;
    MissRatio "miss_ratio" "ρ" "" "Share of the requests that found the mutex busy at the first try, ρ: about the utilization, as arrivals see time averages."
        |p| ratio(p.count(Counter::Misses), p.requests()?);
    SpinInefficiency "spin_inefficiency" "k" "" "Share of the tries that found the mutex busy whose spin failed, k."
        |p| ratio(p.failed(), p.busy_tries());
    SpinInefficiencyTable4 "spin_inefficiency_table_4" "k₄" "" "k as table 4 has it, from what the source could count: sleeps/(ρ(gets + sleeps)). It holds where each failed spin is followed by one long sleep."
        |p| ratio(p.sleeps(), Measure::MissRatio.of(p)? * (p.gets? as f64 + p.sleeps()));
    SleepRatio "sleep_ratio" "κ" "" "Steps that left the processor, per miss, κ."
        |p| ratio(p.sleeps(), p.count(Counter::Misses));
    SleepsPerS "sleeps_per_s" "ω" "1/s" "Steps that left the processor, per second, ω: yields, sleeps, parks."
        |p| ratio(p.sleeps(), p.time_s);
    SleepsPerGet "sleeps_per_get" "κρ" "" "Steps that left the processor, per get: yields, sleeps, parks."
        |p| ratio(p.sleeps(), p.gets? as f64);
    HoldingTime "holding_time" "S" "s" "Mean holding time, S: U/λ while it was sampled, with at least 5 samples that found it held; ρ/λ where nobody sampled."
        holding_time;
    SpinTime "spin_time" "Γ" "s" "Processor time of the spin of a try that found the mutex busy, Γ."
        |p| ratio(p.spin_cpu_s.or(p.first_spins_s()).and(p.spins_s())?, p.busy_tries());
    Wait "wait" "W" "s" "Mean time from request to get, W; without first spins where nobody saw who waits."
        |p| ratio(p.waited_s.unwrap_or_else(|| p.registered_s().max(p.waiting_s.unwrap_or(0.0))), p.gets? as f64);
    WaitP50 "wait_p50" "W p50" "s" "Time from request to get that half of the gets do not exceed."
        |p| Some(p.waits?.p50_s);
    WaitP99 "wait_p99" "W p99" "s" "Time from request to get that 99 of 100 gets do not exceed, up to an eighth too long."
        |p| Some(p.waits?.p99_s);
    WaitP999 "wait_p999" "W p99.9" "s" "Time from request to get that 999 of 1000 gets do not exceed, up to an eighth too long."
        |p| Some(p.waits?.p999_s);
    WaitMax "wait_max" "W max" "s" "Longest time from request to get; of registered waits alone where no others are timed."
        |p| p.waits.map_or_else(|| registered_max(p), |waits| Some(waits.max_s));
    Waiting "waiting" "L" "" "Mean number of sessions between request and get, L."
        |p| ratio(p.waiting_s?, p.time_s);
    Active "active" "L + U" "" "Mean number of sessions that have it or want it: between request and release."
        |p| Some(Measure::Waiting.of(p)? + Measure::Utilization.of(p)?);
    Registered "registered" "W_o" "s" "Time of all waits together, each from its first failed spin on; waits under way are in it."
        |p| Some(p.registered_s());
    RegisteredMean "registered_mean" "w_o" "s" "Mean time of a wait from its first failed spin on."
        |p| ratio(p.registered_s(), p.count(Counter::Waits));
    RegisteredMax "registered_max" "w max" "s" "Longest wait from its first failed spin on; of a period absent where there had been one as long before."
        registered_max;
    RegisteredP50 "registered_p50" "w p50" "s" "Time from its first failed spin on that half of the ended waits do not exceed, read from buckets by powers of two."
        |p| quantile(p, 0.5);
    RegisteredP90 "registered_p90" "w p90" "s" "Time from its first failed spin on that 9 of 10 ended waits do not exceed, read from buckets by powers of two."
        |p| quantile(p, 0.9);
    RegisteredP99 "registered_p99" "w p99" "s" "Time from its first failed spin on that 99 of 100 ended waits do not exceed, read from buckets by powers of two."
        |p| quantile(p, 0.99);
    SpinShare "spin_share" "spin" "" "Share of the time of the waits spent spinning."
        |p| part(p, Counter::SpinNs);
    YieldShare "yield_share" "yield" "" "Share of the time of the waits spent in yields."
        |p| part(p, Counter::YieldNs);
    SleptShare "slept_share" "slept" "" "Share of the time of the waits slept as asked for, and parked until woken."
        |p| part(p, Counter::SleptNs);
    OverShare "over_share" "over" "" "Share of the time of the waits slept longer than asked for: timer granularity and run queue."
        |p| part(p, Counter::OverNs);
    WaitsPerGet "waits_per_get" "waits/get" "" "Waits, per get."
        |p| ratio(p.count(Counter::Waits), p.gets? as f64);
    WaitsPerS "waits_per_s" "waits/s" "1/s" "Waits, per second."
        |p| ratio(p.count(Counter::Waits), p.time_s);
    SleepTime "sleep_time" "T" "s" "Mean time of a sleep or park, T."
        |p| ratio((p.count(Counter::SleptNs) + p.count(Counter::OverNs)) / 1e9, p.count(Counter::Sleeps) + p.count(Counter::Parks));
    Asleep "asleep" "asleep" "" "Mean number of sessions asleep or parked."
        |p| ratio((p.count(Counter::SleptNs) + p.count(Counter::OverNs)) / 1e9, p.time_s);
    BusyProcessors "busy_processors" "cpus" "" "Mean number of processors that the sessions used."
        |p| ratio(p.cpu_s?, p.time_s);
    WaitingProcessors "waiting_processors" "cpus waiting" "" "Mean number of processors that did nothing but wait for the mutex: spins and yields."
        |p| ratio(p.waiting_cpu_s?, p.time_s);
    SpinningProcessors "spinning_processors" "cpus spinning" "" "Mean number of processors that spun."
        |p| ratio(p.spins_s()?, p.time_s);
    ProcessorPerGet "processor_per_get" "cpu/get" "s" "Processor time of the sessions, per get."
        |p| ratio(p.cpu_s?, p.gets? as f64);
    Fairness "fairness" "J" "" "Jain's index of the gets by session, (Σx)²/(nΣx²): from 1/sessions, where one has them all, to 1."
        |p| jain(&p.gets_by_session);
    ShareOfType "share_of_type" "of type" "" "Share of the gets of all mutexes of the type."
        |p| ratio(p.gets? as f64, p.gets_of_type? as f64);
}

/// Samples that found the mutex held, from which on they say how long it is held.
const HELD_MIN: u64 = 5;

/// The quotient, where there is one.
fn ratio(a: f64, b: f64) -> Option<f64> {
    (b > 0.0).then(|| a / b)
}

fn part(profile: &Profile, part: Counter) -> Option<f64> {
    ratio(profile.count(part) / 1e9, profile.registered_s())
}

/// Looks are taken for independent of each other.
fn utilization_error(profile: &Profile) -> Option<f64> {
    /// Standard deviations that 95 % of a normal distribution lie within.
    const WITHIN: f64 = 1.96;
    let Samples { looks, held, .. } = profile.samples;
    let utilization = ratio(held as f64, looks as f64)?;
    Some(WITHIN * ratio(1.0 - utilization, held as f64)?.sqrt())
}

fn holding_time(profile: &Profile) -> Option<f64> {
    let Samples { looks, held, time_s, held_s, gets } = profile.samples;
    if time_s > 0.0 {
        return ratio(held_s, gets as f64).filter(|_| looks == 0 || held >= HELD_MIN);
    }
    ratio(Measure::MissRatio.of(profile)?, Measure::Throughput.of(profile)?)
}

/// The longest wait: there is none where waits have a time, but no longest one is known.
fn registered_max(profile: &Profile) -> Option<f64> {
    let longest_s = profile.count(Counter::MaxNs) / 1e9;
    Some(longest_s).filter(|longest_s| *longest_s > 0.0 || profile.registered_s() == 0.0)
}

/// The time in s that this share of the ended waits do not exceed. Within a bucket they are taken for spread
/// evenly, as Prometheus takes them: at most a factor of two off.
fn quantile(profile: &Profile, share: f64) -> Option<f64> {
    let lengths = &profile.figures.lengths;
    let rank = share * lengths.total() as f64;
    let longest_s = registered_max(profile).filter(|longest_s| *longest_s > 0.0);
    let longest_us = longest_s.map_or(f64::INFINITY, |longest_s| longest_s * 1e6);
    let mut below = 0.0;
    lengths.filled().find_map(|(begin_us, end_us, count)| {
        let (before, count) = (below, count as f64);
        below += count;
        let begin_us = begin_us as f64;
        let end_us = end_us.map_or(begin_us, |end_us| end_us as f64);
        let quantile_us = begin_us + (rank - before) / count * (end_us - begin_us);
        (below >= rank).then_some(quantile_us.min(longest_us) / 1e6)
    })
}

/// Jain's index of fairness: 1 when all have the same, 1/n when one has all.
///
/// Jain, Chiu, Hawe, *A quantitative measure of fairness* (1984): `(Σx)² / (n Σx²)`. Nothing is neither fair
/// nor unfair.
fn jain(shares: &[u64]) -> Option<f64> {
    let sum: f64 = shares.iter().map(|x| *x as f64).sum();
    let squares: f64 = shares.iter().map(|x| (*x as f64).powi(2)).sum();
    ratio(sum * sum, shares.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Waits;

    fn profile(gets: u64, counters: &[(Counter, u64)]) -> Profile {
        let mut profile = Profile { time_s: 2.0, gets: Some(gets), ..Profile::default() };
        for (counter, value) in counters {
            profile.figures.counters[*counter as usize] = *value;
        }
        profile
    }

    fn close(found: Option<f64>, expected: f64) {
        assert!(found.is_some_and(|found| (found - expected).abs() < 1e-12), "{found:?}, expected {expected}");
    }

    #[test]
    fn table_4_is_consistent_with_itself() {
        let mut profile = profile(1000, &[(Counter::Misses, 250), (Counter::Sleeps, 100)]);
        profile.samples = Samples::over(100, 25, 2.0, 1000);
        let of = |measure: Measure| measure.of(&profile).unwrap();
        // κ = k / (1 − kρ), and λ κ ρ = ω, and S = U/λ.
        let (k, rho) = (of(Measure::SpinInefficiencyTable4), of(Measure::MissRatio));
        close(Some(of(Measure::SleepRatio)), k / (1.0 - k * rho));
        close(Some(of(Measure::Throughput) * of(Measure::SleepRatio) * rho), of(Measure::SleepsPerS));
        close(Some(of(Measure::HoldingTime)), 0.25 / 500.0);
    }

    #[test]
    fn who_gives_up_has_requested_missed_and_failed_but_not_got() {
        let profile = profile(20, &[(Counter::Misses, 90), (Counter::GaveUp, 80), (Counter::Busy, 100)]);
        close(Measure::MissRatio.of(&profile), 0.9);
        close(Measure::SpinInefficiency.of(&profile), 0.8);
        close(Measure::SleepRatio.of(&profile), 0.0);
    }

    #[test]
    fn where_first_spins_are_not_known_the_others_are_a_lower_bound() {
        let counters = [(Counter::SpinNs, 500_000_000), (Counter::Busy, 100)];
        let unknown = Profile { cpu_s: Some(3.0), ..profile(20, &counters) };
        close(Measure::SpinningProcessors.of(&unknown), 0.25);
        assert_eq!(Measure::SpinTime.of(&unknown), None);
        let known = Profile { waiting_s: Some(1.5), ..unknown };
        close(Measure::SpinningProcessors.of(&known), 0.75);
        close(Measure::SpinTime.of(&known), 0.015);
    }

    #[test]
    fn waits_under_way_are_requests() {
        close(Measure::MissRatio.of(&profile(1, &[(Counter::Misses, 3)])), 1.0);
    }

    #[test]
    fn what_has_nothing_to_be_computed_from_is_absent() {
        let nothing = Profile::default();
        let known: Vec<&str> = Measure::ALL.iter().filter(|m| m.of(&nothing).is_some()).map(|m| m.name()).collect();
        assert_eq!(known, ["wait_max", "registered", "registered_max"], "what adds up from counters is 0");
        let uncounted = Profile { gets: None, ..profile(0, &[(Counter::Misses, 5)]) };
        assert_eq!(Measure::MissRatio.of(&uncounted), None, "gets that are not known");
        assert_eq!(jain(&[0, 0]), None);
    }

    #[test]
    fn jain_is_1_for_equals_and_1_over_n_for_one_alone() {
        close(jain(&[5, 5, 5, 5]), 1.0);
        close(jain(&[5, 0, 0, 0]), 0.25);
    }

    #[test]
    fn few_samples_say_nothing_of_the_holding_time() {
        let mut profile = profile(1000, &[(Counter::Misses, 250)]);
        close(Measure::HoldingTime.of(&profile), 0.25 / 500.0);
        profile.samples = Samples::over(100, HELD_MIN - 1, 2.0, 1000);
        assert_eq!(Measure::HoldingTime.of(&profile), None);
    }

    #[test]
    fn a_utilization_of_0_3_takes_ten_thousand_looks_to_be_right_within_3_pct() {
        let mut profile = profile(1000, &[]);
        let mut error = |looks, held| {
            profile.samples = Samples::over(looks, held, 2.0, 1000);
            Measure::UtilizationError.of(&profile)
        };
        close(error(10_000, 3000).map(|error| (error * 1e3).round()), 30.0);
        close(error(1000, 300).map(|error| (error * 1e3).round()), 95.0);
        close(error(1000, 1000), 0.0);
        assert_eq!((error(1000, 0), error(0, 0)), (None, None), "nothing was seen");
    }

    #[test]
    fn the_parts_of_the_waits_add_up() {
        let parts = [Measure::SpinShare, Measure::YieldShare, Measure::SleptShare, Measure::OverShare];
        let counters = [(Counter::SpinNs, 1), (Counter::YieldNs, 2), (Counter::SleptNs, 30), (Counter::OverNs, 7)];
        let profile = profile(1, &counters);
        close(Some(parts.iter().map(|part| part.of(&profile).unwrap()).sum()), 1.0);
    }

    #[test]
    fn two_snapshots_have_a_difference_and_parts_a_sum() {
        let early = profile(1000, &[(Counter::Misses, 100), (Counter::Sleeps, 10)]);
        let mut late = profile(1500, &[(Counter::Misses, 350), (Counter::Sleeps, 60)]);
        late.time_s = 4.0;
        let growth = late.since(&early);
        close(Measure::MissRatio.of(&growth), 0.5);
        close(Measure::SleepRatio.of(&growth), 0.2);
        close(Measure::Throughput.of(&growth), 250.0);
        let sum = Profile::sum([&growth, &early]);
        assert_eq!((sum.gets, sum.figures), (late.gets, late.figures));
        let uncounted = Profile { gets: None, ..early };
        assert_eq!(Measure::Throughput.of(&Profile::sum([&sum, &uncounted])), None, "the gets of a part are not known");
    }

    #[test]
    fn the_longest_wait_of_a_period_is_known_where_none_before_was_as_long() {
        let of = |max_ns, wait_ns| {
            profile(10, &[(Counter::MaxNs, max_ns), (Counter::WaitNs, wait_ns), (Counter::SleptNs, wait_ns)])
        };
        let early = of(2_000_000_000, 3_000_000_000);
        let (same, more) = (of(2_000_000_000, 4_000_000_000), of(2_500_000_000, 5_500_000_000));
        for measure in [Measure::RegisteredMax, Measure::WaitMax] {
            close(measure.of(&early), 2.0);
            close(measure.of(&more.since(&early)), 2.5);
            assert_eq!(measure.of(&same.since(&early)), None, "a wait of a second at most, but how long?");
            close(measure.of(&early.since(&early)), 0.0);
        }
    }

    #[test]
    fn quantiles_of_waits_lie_in_their_buckets_and_none_is_beyond_the_longest() {
        let mut profile = profile(10, &[(Counter::MaxNs, 900_000), (Counter::Waits, 101)]);
        assert_eq!(Measure::RegisteredP50.of(&profile), None, "none has ended");
        profile.figures.lengths.count(5_000, 60);
        profile.figures.lengths.count(70_000, 30);
        profile.figures.lengths.count(900_000, 10);
        // The 50th of 60 between 4 and 8 us, the last of 30 between 64 and 128, the 9th of 10 between 512 and 1,024.
        close(Measure::RegisteredP50.of(&profile), (4.0 + 50.0 / 60.0 * 4.0) * 1e-6);
        close(Measure::RegisteredP90.of(&profile), 128e-6);
        close(Measure::RegisteredP99.of(&profile), 900e-6);
        profile.figures.counters[Counter::MaxNs as usize] = 1_000_000;
        close(Measure::RegisteredP99.of(&profile), (512.0 + 0.9 * 512.0) * 1e-6);
        // Of a period with as long a wait before, the longest is not known.
        let mut later = profile.clone();
        later.figures.lengths.count(700_000_000_000, 1);
        close(Measure::RegisteredP99.of(&later.since(&profile)), (1_u64 << 29) as f64 * 1e-6);
    }

    #[test]
    fn a_profile_survives_writing() {
        let mut profile = profile(7, &[(Counter::Misses, 3)]);
        profile.figures.lengths.count(5_000, 2);
        profile.figures.lengths.count(u64::MAX, 1);
        profile.waits = Some(Waits { p50_s: 1.0, ..Waits::default() });
        let text = serde_json::to_string(&profile).unwrap();
        assert_eq!(serde_json::from_str::<Profile>(&text).unwrap(), profile);
    }

    #[test]
    fn names_are_different_and_symbols_too() {
        for names in [Measure::name, Measure::symbol] {
            let mut all: Vec<&str> = Measure::ALL.iter().map(|measure| names(*measure)).collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), Measure::ALL.len());
        }
    }
}
