//! Whether an object of a cache is to have hot copies, how many, and what they will come to.
//!
//! The number is that of [`tuning::copies`] with what was measured; what it comes to is simulated, each
//! session with the copy of its processor. What copies cost is that they are made again at each change of the
//! object: sessions wait while they make them, under the mutexes of the cache's shards.

use super::check::{TOLERANCE, compare, fits};
use super::fit;
use super::holds::Timed;
use super::prediction::{Prediction, predict};
use super::recording::{Holds, think};
use super::rules::{SATURATED, TRIFLE, waiting};
use crate::output::{short, whole};
use retrial::views::{Counter, Params};
use retrial_model::sim::{Arrivals, Machine, SimulationError, Spread, Workload};
use retrial_model::{Distribution, DistributionError, Measure, Profile, tuning};
use std::ops::Range;

/// What a copy costs that is never made again, in waiting sessions: its memory and its entry of the mutex
/// table.
pub const KEEPING: f64 = 1e-3;
/// Most events of one simulation: a second or so.
const EVENTS: u64 = 5_000_000;
/// Fewer misses say nothing.
const MISSES: f64 = 50.0;

/// What was measured of an object, all its copies together.
#[derive(Clone, Debug)]
pub struct Hot {
    pub measured: Profile,
    /// Copies that it has, itself among them.
    pub copies: u32,
    /// How often it is made or changed.
    pub births_per_s: f64,
}

/// What copies are limited by.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most copies that the cache allows.
    pub copies_max: u32,
    /// Shards, over which the creation of copies is spread, and the share of time that the busiest one's
    /// mutex is held.
    pub shards: u32,
    pub creating: f64,
    /// Time that making a copy takes a session, in s, and for which it has a mutex of the cache: finding the
    /// object, room for the copy, the copy, and getting rid of the one before.
    pub making_s: f64,
    pub params: Params,
    pub machine: Machine,
    pub seeds: Range<u64>,
}

/// What is suggested.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Suggestion {
    /// Copies to have; `None` where it is better left as it is.
    pub copies: Option<u32>,
    /// Why not, or what is not sure.
    pub why: Option<String>,
    /// Sessions that wait at a time, as measured.
    pub waiting: f64,
    /// Waits per second with the copies, and how many times fewer that is than now.
    pub waits_per_s: Option<f64>,
    pub factor: Option<f64>,
    /// Share of time that a shard's mutex would be held to make copies, and for what it is held now.
    pub creating: f64,
}

impl Suggestion {
    fn not(self, why: String) -> Self {
        Self { why: Some(why), ..self }
    }
}

/// What to do about an object.
///
/// # Errors
///
/// What the simulation says of a workload that it cannot do.
pub fn suggest(hot: &Hot, limits: &Limits) -> Result<Suggestion, SimulationError> {
    let measured = &hot.measured;
    let of = |measure: Measure| measure.of(measured).unwrap_or(0.0);
    let (rate, utilization) = (of(Measure::Throughput), of(Measure::MissRatio).min(0.999));
    let waiting = waiting(measured);
    let found = Suggestion { waiting, creating: limits.creating, ..Suggestion::default() };
    let misses = measured.count(Counter::Misses);
    if misses < MISSES {
        return Ok(found.not(format!("only {} gets found it busy", short(misses))));
    }
    if waiting < TRIFLE {
        return Ok(found.not(format!("only {} sessions wait for it at a time", short(waiting))));
    }
    // Each copy is made once for each birth, unless it is executed less often than that.
    let copy_cost = KEEPING + hot.births_per_s * limits.making_s;
    let a = of(Measure::Wait) * (1.0 - utilization) / utilization;
    let Ok(best) = tuning::copies(rate, utilization, a, 1.0, copy_cost) else {
        return Ok(found.not("nothing says how long it is held".to_owned()));
    };
    // A session takes the copy of its processor: more copies than processors are of no use.
    let most = limits.machine.processors.unwrap_or(u32::MAX).min(limits.copies_max).min(u8::MAX.into());
    let copies = u32::try_from(whole(best.copies)).unwrap_or(u32::MAX).min(most).max(1);
    let creating = |copies: u32| {
        let made_per_s = (hot.births_per_s * f64::from(copies - 1)).min(rate);
        limits.creating + made_per_s * limits.making_s / f64::from(limits.shards)
    };
    let least = creating(copies.max(2));
    let found = Suggestion { creating: least, ..found };
    if least >= SATURATED {
        return Ok(found.not(format!(
            "it changes {} times a second, and each copy is made anew each time: creation (kglhdgn1 62) would have a \
             shard's mutex for {} % of the time",
            short(hot.births_per_s),
            short(100.0 * least.min(1.0))
        )));
    }
    if copies <= 1 {
        return Ok(found.not(format!(
            "it changes {} times a second: making a copy anew each time takes {} sessions, and {} wait now",
            short(hot.births_per_s),
            short(copy_cost),
            short(waiting)
        )));
    }
    if copies == hot.copies {
        return Ok(found.not(format!("it has its best number of copies, {copies}")));
    }
    let compared = match compared(hot, limits, copies, found.clone()) {
        Err(error @ SimulationError::Events { .. }) => found.not(format!("too much to simulate: {error}")),
        compared => compared?,
    };
    Ok(Suggestion { copies: Some(copies), ..compared })
}

/// What so many copies come to, beside what is.
fn compared(hot: &Hot, limits: &Limits, copies: u32, found: Suggestion) -> Result<Suggestion, SimulationError> {
    let (machine, params) = (limits.machine.clone(), limits.params);
    let Some(fitted) = fit::workload(&hot.measured, &Timed::default(), params, machine) else {
        return Ok(found.not("nothing says how long it is held".to_owned()));
    };
    let present = Workload { copies: hot.copies, spread: Spread::Processor, events_max: EVENTS, ..fitted.workload };
    // From outside nobody sees how the short times vary for which an object's mutex is held: of times that do
    // and times that do not, those are taken with which the waits are more like what was measured.
    let measured = Measure::WaitsPerS.of(&hot.measured).unwrap_or(0.0);
    let waits = |of: &Prediction| of.mean(Measure::WaitsPerS).unwrap_or(0.0);
    let off = |of: &Prediction| (waits(of).max(1.0) / measured.max(1.0)).ln().abs();
    let shapes: [Shape; 2] = [Distribution::exponential, Distribution::deterministic];
    let mut likely: Option<(Workload, Prediction)> = None;
    for shape in shapes {
        let (workload, now) = fitted_to(&hot.measured, present.clone(), shape, &limits.seeds)?;
        if likely.as_ref().is_none_or(|(_, other)| off(&now) < off(other)) {
            likely = Some((workload, now));
        }
    }
    let Some((present, now)) = likely else { return Ok(found) };
    let then = predict(&Workload { copies, ..present }, &limits.seeds, &Holds::Given)?;
    let factor = (waits(&then) > 0.0).then(|| waits(&now) / waits(&then));
    let is_fit = fits(&compare(&hot.measured, &now)) && off(&now) <= TOLERANCE.ln_1p();
    let why = (!is_fit).then(|| "the model does not fit the present".to_owned());
    Ok(Suggestion { factor, waits_per_s: Some(factor.map_or(0.0, |factor| measured / factor)), why, ..found })
}

/// Holding times of this mean.
type Shape = fn(f64) -> Result<Distribution, DistributionError>;

/// The workload with times of this shape, so long that the simulation has the gets and misses that were
/// measured: what is measured has the way of the cache line in it, which the simulation adds.
fn fitted_to(
    measured: &Profile,
    mut workload: Workload,
    shape: Shape,
    seeds: &Range<u64>,
) -> Result<(Workload, Prediction), SimulationError> {
    const ROUNDS: usize = 4;
    let mut hold_s = workload.hold.mean();
    let mut round = |workload: &mut Workload, is_last: bool| {
        if let Ok(hold) = shape(hold_s) {
            workload.hold = hold;
        }
        let now = predict(workload, seeds, &Holds::Given)?;
        let of = |measure: Measure| Some((measure.of(measured)?, now.mean(measure).filter(|mean| *mean > 0.0)?));
        if let (Some((misses, simulated)), false) = (of(Measure::MissRatio), is_last) {
            hold_s *= (misses / simulated).clamp(0.5, 2.0);
        }
        if let (Some((gets, simulated)), Arrivals::Closed { sessions, think, .. }, false) =
            (of(Measure::Throughput), &mut workload.arrivals, is_last)
        {
            let cycle_s = |rate: f64| f64::from(*sessions) / rate;
            // Where sessions wait for a processor, all of the difference may leave no time to think.
            let mean_s = think.mean() + cycle_s(gets) - cycle_s(simulated);
            *think = self::think(mean_s.max(think.mean() / 2.0), hold_s);
        }
        Ok(now)
    };
    for _ in 1..ROUNDS {
        round(&mut workload, false)?;
    }
    let now = round(&mut workload, true)?;
    Ok((workload, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use retrial::P;
    use retrial_model::profile::Samples;
    use retrial_model::sim::run;

    /// A mutex that is held for 1 us each time, and as busy as the sources' hot object, on so many
    /// processors. Neither the holding times nor the think times are those that a prediction supposes. There
    /// are no more sessions than processors: those that wait for a preempted holder are most of the waits
    /// otherwise, and holders are preempted too seldom in a second to compare two. Nor is it the default
    /// scheme: whether one session is active alone at one of four copies is tried a few times in that second,
    /// and chance decides, so that waits differ by three times.
    fn object(processors: u32) -> Workload {
        let sessions = processors;
        let hold = Distribution::deterministic(1e-6).unwrap();
        let think: Distribution = format!("erlang:stages=3,mean={}us", 3 * processors).parse().unwrap();
        let arrivals = Arrivals::Closed { sessions, think, on_processor: true };
        let mut workload = Workload::new(arrivals, hold, 1.0);
        workload.warm_up = 0.1;
        workload.spread = Spread::Processor;
        workload.machine.processors = Some(processors);
        workload.params = workload.params.with(P::Scheme, retrial::wait::named("ydb").unwrap() as u64);
        workload
    }

    /// What is measured of it: no sample of holders, as of an object of a cache.
    fn measured(workload: &Workload) -> Profile {
        let seen = run(workload, 17).unwrap().profile;
        let samples = Samples::default();
        Profile { samples, waits: None, spin_cpu_s: None, waiting_cpu_s: None, waited_s: None, ..seen }
    }

    fn limits(processors: u32) -> Limits {
        let workload = object(processors);
        Limits {
            copies_max: 255,
            shards: 16,
            creating: 0.01,
            making_s: 10e-6,
            params: workload.params,
            machine: workload.machine,
            seeds: 1..4,
        }
    }

    #[test]
    fn waits_fall_by_the_factor_that_was_predicted_on_24_and_on_192_processors() {
        for (processors, most) in [(24, &[2, 4][..]), (192, &[4])] {
            let (present, limits) = (object(processors), limits(processors));
            let hot = Hot { measured: measured(&present), copies: 1, births_per_s: 0.0 };
            for copies_max in most.iter().copied() {
                let limits = Limits { copies_max, ..limits.clone() };
                let suggestion = suggest(&hot, &limits).unwrap();
                assert_eq!(suggestion.copies, Some(copies_max), "{suggestion:?}");
                let then = measured(&Workload { copies: copies_max, ..present.clone() });
                let waits = |of: &Profile| Measure::WaitsPerS.of(of).unwrap();
                let (factor, predicted) = (waits(&hot.measured) / waits(&then), suggestion.factor.unwrap());
                eprintln!(
                    "{processors} processors, {copies_max} copies: {factor:.2} times fewer waits, predicted {predicted:.2}, {suggestion:?}"
                );
                assert!((predicted / factor - 1.0).abs() < 0.25, "{processors}: {factor}, predicted {predicted}");
            }
        }
    }

    /// As of 8 sessions on 2 processors that are preempted: they wait for long, and the mutex is held for 1 ns.
    #[test]
    fn what_the_model_does_not_fit_is_simulated_in_bounded_time() {
        let think = Distribution::exponential(2.3e-6).unwrap();
        let arrivals = Arrivals::Closed { sessions: 8, think, on_processor: true };
        let hold = Distribution::exponential(1.1e-9).unwrap();
        let mut workload = Workload { events_max: EVENTS, ..Workload::new(arrivals, hold, 0.3) };
        workload.machine.processors = Some(2);
        let mut measured = Profile { time_s: 1.0, gets: Some(200_000), sessions: Some(8), ..Profile::default() };
        measured.figures.counters[Counter::Misses as usize] = 4_000;
        let (fitted, _) = fitted_to(&measured, workload, Distribution::exponential, &(1..3)).unwrap();
        let Arrivals::Closed { think, .. } = fitted.arrivals else { panic!("{:?}", fitted.arrivals) };
        assert!(think.mean() > 1e-6, "{think:?}");
    }

    #[test]
    fn an_object_that_changes_all_the_time_is_not_to_be_marked() {
        let (present, limits) = (object(24), limits(24));
        let measured = measured(&present);
        let at =
            |births_per_s: f64| suggest(&Hot { measured: measured.clone(), copies: 1, births_per_s }, &limits).unwrap();
        let (never, rarely) = (at(0.0), at(1000.0));
        assert!(never.copies >= rarely.copies && rarely.copies > Some(1), "{never:?}, {rarely:?}");
        // 16 shards would make so many, but sessions would do little else.
        let often = at(1e6);
        assert!(often.copies.is_none() && often.why.as_deref().unwrap().contains("sessions"), "{often:?}");
        let one = Limits { shards: 1, ..limits.clone() };
        let often = suggest(&Hot { measured: measured.clone(), copies: 1, births_per_s: 1e6 }, &one).unwrap();
        assert!(often.copies.is_none() && often.why.as_deref().unwrap().contains("kglhdgn1 62"), "{often:?}");
    }

    #[test]
    fn an_object_that_is_not_waited_for_is_not_to_be_marked() {
        for (think_s, why) in [(1e-3, "gets found it busy"), (20e-6, "sessions wait for it at a time")] {
            let think = Distribution::exponential(think_s).unwrap();
            let arrivals = Arrivals::Closed { sessions: 2, think, on_processor: true };
            let present = Workload { arrivals, ..object(24) };
            let hot = Hot { measured: measured(&present), copies: 1, births_per_s: 0.0 };
            let suggestion = suggest(&hot, &limits(24)).unwrap();
            assert!(suggestion.copies.is_none() && suggestion.why.as_deref().unwrap().contains(why), "{suggestion:?}");
        }
    }
}
