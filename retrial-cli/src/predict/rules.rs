//! What there is to advise: rules, each a function of what was measured, in the order in which they are worth
//! a try.

use super::cases::{scheme, settings};
use super::fit::{limit_s, sleep_s};
use crate::duration::seconds;
use crate::output::{counted, short, whole};
use retrial::views::{Counter, Params};
use retrial::{P, wait};
use retrial_model::sim::{Arrivals, Workload};
use retrial_model::theory::{self, Spared};
use retrial_model::{Measure, Profile, tuning};

/// What a rule has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub rule: &'static str,
    pub title: &'static str,
    /// The figures that show it.
    pub evidence: Vec<String>,
    pub change: Change,
    /// What it costs, and what may go wrong, where that is known beside the figures.
    pub price: Option<&'static str>,
    pub risk: Option<&'static str>,
}

/// What is advised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A parameter of the mutex's type.
    Set(P, u64),
    /// So many copies of the mutex, which its program has to make.
    Copies(u32),
    /// So many processors for its sessions.
    Processors(u32),
}

impl Change {
    /// The workload with it.
    pub fn applied(self, workload: &Workload) -> Workload {
        let mut changed = workload.clone();
        match self {
            Self::Set(p, value) => changed.params = changed.params.with(p, value),
            Self::Copies(copies) => changed.copies = copies,
            Self::Processors(processors) => changed.machine.processors = Some(processors),
        }
        changed
    }

    /// For what no parameter does: the command that measures it here, with sessions that hold and think as
    /// those did. `None` where `retrial bench` does not make the load: between two gets it computes for less than
    /// 1 ms, or sleeps for longer.
    pub fn trial(self, workload: &Workload) -> Option<String> {
        const ASLEEP_S: f64 = 1e-3;
        let (Self::Copies(copies), Arrivals::Closed { sessions, think, on_processor }) = (self, &workload.arrivals)
        else {
            return None;
        };
        let think_s = workload.work + think.mean();
        let is_asleep = think_s >= ASLEEP_S;
        if is_asleep == *on_processor || is_asleep && workload.work > TRIFLE * think_s {
            return None;
        }
        let time = |seconds: f64| format!("{}ns", whole(seconds * 1e9));
        let (cs, think) = (time(workload.hold.mean()), time(think_s));
        // The nearer of the two: the residual time is half of the mean where all are the same, the mean where
        // exponential.
        let is_regular = workload.hold.residual_mean().is_some_and(|residual| residual < 0.75 * workload.hold.mean());
        let distribution = if is_regular { "fixed" } else { "exponential" };
        let plain = Workload { params: Params::default(), ..workload.clone() };
        let set = |setting: &str| format!(" --set {setting}");
        let set: String = settings(workload, &plain).split_whitespace().map(set).collect();
        Some(format!(
            "retrial bench --schemes {} --sessions {sessions} --copies 1,{copies} --cs {cs} --think {think} --distribution {distribution}{set}",
            scheme(workload)
        ))
    }
}

type Rule = fn(&Profile, &Workload) -> Option<Finding>;

/// All rules.
const RULES: &[Rule] =
    &[sleeps_too_many, spins_too_long, sleeps_too_long, parks_too_soon, spins_too_short, hot_mutex, too_few_processors];

/// What they find, in their order.
pub fn findings(measured: &Profile, workload: &Workload) -> Vec<Finding> {
    merged(RULES.iter().filter_map(|rule| rule(measured, workload)))
}

/// Where two advise the same change, it is one finding with the evidence of both.
pub fn merged(found: impl IntoIterator<Item = Finding>) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    for found in found {
        match all.iter_mut().find(|known| known.change == found.change) {
            Some(known) => known.evidence.extend(found.evidence),
            None => all.push(found),
        }
    }
    all
}

/// Fewer tries that found the mutex busy say nothing.
const TRIES: f64 = 50.0;

/// The price of a second of processor time against one of waiting.
const PROCESSOR_PRICE: f64 = 1.0;

/// No spin limit is longer than so many holding times: what is left then is no hold that ends soon.
const LONGEST: f64 = 20.0;

/// The parameter that says how long the scheme spins, and the limit with the least cost, in s.
fn best_limit(measured: &Profile, workload: &Workload) -> Option<(P, f64)> {
    let ns = |time: u64| time as f64 / 1e9;
    let machine = &workload.machine;
    let switches_s = 2.0 * ns(machine.yield_switch_ns);
    let (p, spared) = theory::Scheme::of(workload).limit?;
    // MODEL.md, Tuning: b of a sleep, of a park, and of a yield to others.
    let cost_s = match spared {
        Spared::Sleep => {
            let sleep_s = if measured.count(Counter::Sleeps) > 0.0 { Measure::SleepTime.of(measured)? } else { 1e-3 };
            (sleep_s + PROCESSOR_PRICE * switches_s) / (1.0 + PROCESSOR_PRICE)
        }
        Spared::WakeUp => switches_s + wake_s(workload) / PROCESSOR_PRICE,
        Spared::Yield => switches_s,
    };
    let attempts = (measured.gets? as f64 + measured.failed()) / measured.time_s;
    let longest = LONGEST * workload.hold.mean();
    let optimum = tuning::limit(&workload.hold, cost_s, attempts).ok()?;
    Some((p, optimum.limit.map_or(longest, |limit| limit.min(longest))))
}

/// Time from a release to the session that it wakes.
fn wake_s(workload: &Workload) -> f64 {
    (workload.machine.wake_call_ns + workload.machine.wake_far_ns) as f64 / 1e9
}

/// So many polls, within the parameter's domain.
fn polls(p: P, limit_s: f64, workload: &Workload) -> u64 {
    let polls = whole((limit_s * 1e9 / workload.machine.poll_ns as f64).ceil());
    match p.row().domain {
        retrial::views::Domain::Number(low, high) => polls.clamp(low, high),
        retrial::views::Domain::Names(_) => polls,
    }
}

fn sessions(measured: &Profile) -> u32 {
    measured.sessions.unwrap_or(0)
}

/// Share of the time that the mutex is held; where it was not sampled, arrivals saw it.
pub fn utilization(measured: &Profile) -> Option<f64> {
    Measure::Utilization.of(measured).or_else(|| Measure::MissRatio.of(measured))
}

/// Sessions between request and get, by Little's law; at least those whose waits are registered, also where none gets
/// the mutex.
pub fn waiting(measured: &Profile) -> f64 {
    let of = |measure: Measure| measure.of(measured).unwrap_or(0.0);
    (of(Measure::Wait) * of(Measure::Throughput)).max(measured.registered_s() / measured.time_s)
}

/// A smaller share of the sessions' time is not worth a finding.
pub const TRIFLE: f64 = 0.02;

/// Whether sessions spend more than a trifle of their time waiting, as enough tries say.
pub fn wait_matters(measured: &Profile) -> bool {
    measured.count(Counter::Busy) >= TRIES && waiting(measured) >= TRIFLE * f64::from(sessions(measured).max(1))
}

/// Processors are too few for the sessions, and spins burn what the holder could run on.
fn spins_too_long(measured: &Profile, workload: &Workload) -> Option<Finding> {
    let processors = workload.machine.processors?;
    let (p, best_s) = best_limit(measured, workload)?;
    let (now_s, spinning) = (limit_s(workload), Measure::SpinningProcessors.of(measured)?);
    let cpus = Measure::BusyProcessors.of(measured)?;
    if sessions(measured) <= processors
        || now_s <= 2.0 * best_s
        || spinning < 0.5 * cpus
        || measured.count(Counter::Busy) < TRIES
    {
        return None;
    }
    Some(Finding {
        rule: "spins_too_long",
        title: "processors spin that others need",
        evidence: vec![
            format!("{} on {processors} processors", counted(sessions(measured).into(), "session", "sessions")),
            format!("{} of the {} processors that they use spin", short(spinning), short(cpus)),
            format!("a spin lasts up to {}, the mutex is held for {}", seconds(now_s), seconds(workload.hold.mean())),
        ],
        change: Change::Set(p, polls(p, best_s, workload)),
        price: Some(
            "a get that finds the mutex busy leaves its processor more often: switches and wake-ups instead of spins",
        ),
        risk: Some("waits are longer where a processor would have been free to spin"),
    })
}

/// Sleeping sessions look at the mutex far too seldom for how short it is held.
fn sleeps_too_long(measured: &Profile, workload: &Workload) -> Option<Finding> {
    const ASLEEP: f64 = 4.0;
    let (sleep_s, asleep) = (Measure::SleepTime.of(measured)?, Measure::Asleep.of(measured)?);
    let hold_s = workload.hold.mean();
    if !wait_matters(measured) || asleep < ASLEEP || !sleeps_past(measured, hold_s) {
        return None;
    }
    let free = 1.0 - utilization(measured)?;
    let evidence = vec![
        format!("{} of {} sessions asleep at a time", short(asleep), sessions(measured)),
        format!("a sleep takes {}, the mutex is held for {}", seconds(sleep_s), seconds(hold_s)),
        format!(
            "{}/s of sleeps; the mutex is free {} % of the time",
            short(Measure::SleepsPerS.of(measured)?),
            short(100.0 * free)
        ),
    ];
    Some(to_orbit(
        "sleeps_too_long",
        "sessions sleep for far longer than the mutex is held, and nobody wakes them",
        evidence,
    ))
}

/// Whether sessions sleep for so much longer than the mutex is held that they sleep past many holds.
pub fn sleeps_past(measured: &Profile, hold_s: f64) -> bool {
    const TIMES: f64 = 20.0;
    let is_long = Measure::SleepTime.of(measured).is_some_and(|sleep_s| sleep_s >= TIMES * hold_s);
    is_long && is_timed(measured) && measured.count(Counter::Busy) >= TRIES
}

/// Whether sessions wait by timed sleeps, which no release ends.
fn is_timed(measured: &Profile) -> bool {
    measured.count(Counter::Sleeps) > measured.count(Counter::Parks)
}

/// Advises the default scheme, whose releases wake the sleepers.
fn to_orbit(rule: &'static str, title: &'static str, evidence: Vec<String>) -> Finding {
    Finding {
        rule,
        title,
        evidence,
        change: Change::Set(P::Scheme, wait::DEFAULT as u64),
        price: Some("releases wake parked sessions: a system call for some of them"),
        risk: Some("another order of service: few sessions are active at a time, in turns"),
    }
}

/// Sessions park for a mutex that is free again long before a wake-up reaches them.
fn parks_too_soon(measured: &Profile, workload: &Workload) -> Option<Finding> {
    const SHARE: f64 = 0.1;
    let (parks, gets) = (measured.count(Counter::Parks), measured.gets? as f64);
    let hold_s = workload.hold.mean();
    let wake_s = wake_s(workload);
    if workload.params.get(P::Scheme) == wait::DEFAULT as u64
        || !wait_matters(measured)
        || parks < SHARE * gets
        || hold_s >= wake_s
    {
        return None;
    }
    let evidence = vec![
        format!("{} parks in 100 gets", short(100.0 * parks / gets)),
        format!("the mutex is held for {}, to wake a parked session takes {}", seconds(hold_s), seconds(wake_s)),
    ];
    let title = "sessions park for a mutex that is free again before a wake-up reaches them";
    let price = "processor time: sessions spin and yield before they park";
    Some(Finding { price: Some(price), ..to_orbit("parks_too_soon", title, evidence) })
}

/// So many sessions look so often that the processors are busy with waking them up in vain.
fn sleeps_too_many(measured: &Profile, workload: &Workload) -> Option<Finding> {
    const SHARE: f64 = 0.2;
    /// Processors; less is not worth a change, however little the sessions do besides.
    const LEAST: f64 = 0.1;
    let (sleeps_per_s, cpus) = (Measure::SleepsPerS.of(measured)?, Measure::BusyProcessors.of(measured)?);
    // The sleep itself, and the spin that follows it in vain.
    let spin_s = limit_s(workload);
    let (own_s, timer_s) = sleep_s(measured, &workload.machine, spin_s);
    // A timer that is due on an idle processor interrupts no session.
    let used = cpus / f64::from(workload.machine.processors.unwrap_or(u32::MAX));
    let each_s = own_s + timer_s * used.min(1.0) + spin_s;
    let waking = (sleeps_per_s * each_s).min(cpus);
    let is_trifle = waking < LEAST.max(SHARE * cpus);
    if !wait_matters(measured) || !is_timed(measured) || is_trifle {
        return None;
    }
    let evidence = vec![
        format!("{} of {} sessions asleep at a time", short(Measure::Asleep.of(measured)?), sessions(measured)),
        format!("{} sleeps/s for {} gets/s", short(sleeps_per_s), short(Measure::Throughput.of(measured)?)),
        format!(
            "some {} of the {} processors that they use, at {} a sleep",
            short(waking),
            short(cpus),
            seconds(each_s)
        ),
    ];
    Some(to_orbit("sleeps_too_many", "processors are busy with sessions that wake up in vain", evidence))
}

/// Spins end just before the mutex would have been free, and cost what follows: a sleep, a park, or a yield.
fn spins_too_short(measured: &Profile, workload: &Workload) -> Option<Finding> {
    const INEFFICIENT: f64 = 0.1;
    let (p, best_s) = best_limit(measured, workload)?;
    let (now_s, k) = (limit_s(workload), Measure::SpinInefficiency.of(measured)?);
    if !wait_matters(measured) || now_s >= best_s / 2.0 || k < INEFFICIENT {
        return None;
    }
    // A yield has no sleep time.
    let sleep = Measure::SleepTime.of(measured).map(|time_s| format!("a sleep takes {}; ", seconds(time_s)));
    let sleep = sleep.unwrap_or_default();
    Some(Finding {
        rule: "spins_too_short",
        title: "spins end before the mutex is free, and what follows takes longer",
        evidence: vec![
            format!(
                "{} % of the spins fail (k), {} sleeps, parks and yields a miss (kappa)",
                short(100.0 * k),
                short(Measure::SleepRatio.of(measured)?)
            ),
            format!("a spin lasts up to {}, the mutex is held for {}", seconds(now_s), seconds(workload.hold.mean())),
            format!("{sleep}the best limit by theory is {}", seconds(best_s)),
        ],
        change: Change::Set(p, polls(p, best_s, workload)),
        price: Some("processor time: up to the longer limit at each get that finds the mutex busy"),
        risk: Some("with more sessions than processors spins take them from holders"),
    })
}

/// Utilization from which on a mutex can hardly give more gets.
pub const SATURATED: f64 = 0.8;

/// Share of the time that the mutex would be held if its holders never waited for a processor.
fn needed(measured: &Profile, workload: &Workload) -> Option<f64> {
    Some(workload.hold.mean() * Measure::Throughput.of(measured)?)
}

/// One mutex that many want at once: no parameter makes it wider. Where its holders wait for a processor it is held for
/// longer than they need: that is no lack of copies.
fn hot_mutex(measured: &Profile, workload: &Workload) -> Option<Finding> {
    const COPIES: u32 = 4;
    const HELD: f64 = 0.5;
    let (miss_ratio, share) = (Measure::MissRatio.of(measured)?, Measure::ShareOfType.of(measured)?);
    let (utilization, waiting) = (utilization(measured)?.min(needed(measured, workload)?), waiting(measured));
    if utilization < HELD || share < 0.5 || waiting < 0.5 {
        return None;
    }
    Some(Finding {
        rule: "hot_mutex",
        title: "one mutex has most of the gets of its type and is held most of the time",
        evidence: vec![
            format!("{} % of the gets of its type", short(100.0 * share)),
            format!(
                "needed {} % of the time, {} % of the gets find it busy",
                short(100.0 * utilization),
                short(100.0 * miss_ratio)
            ),
            format!("{} sessions wait for it at a time", short(waiting)),
        ],
        change: Change::Copies(COPIES),
        price: Some("memory for the copies; what needs all of them takes them all"),
        risk: Some("more processors than now must be free for the sessions that no longer wait"),
    })
}

/// Sessions that could run wait for a processor for longer than they have one, and not because others do.
fn too_few_processors(measured: &Profile, workload: &Workload) -> Option<Finding> {
    const WAITS: f64 = 0.5;
    let (processors, running) = (workload.machine.processors?, measured.running());
    let used = Measure::BusyProcessors.of(measured)?;
    let is_of_the_mutex = needed(measured, workload)? >= SATURATED;
    if running > WAITS || used < WAITS * f64::from(processors) || is_of_the_mutex {
        return None;
    }
    Some(Finding {
        rule: "too_few_processors",
        title: "sessions wait for processors more than they run",
        evidence: vec![
            format!("{} on {processors} processors", counted(sessions(measured).into(), "session", "sessions")),
            format!("a session that could run was on a processor for {} % of the time", short(100.0 * running)),
        ],
        change: Change::Processors(2 * processors),
        price: Some("the processors"),
        risk: Some(
            "what steps of a wait cost with so many is not known here: caches, migrations, others of their group",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use retrial::views::Figures;
    use retrial_model::Distribution;

    /// A load of one second, and what was measured of it.
    #[derive(Clone)]
    struct Load {
        scheme: &'static str,
        set: Option<(P, u64)>,
        hold_s: f64,
        processors: u32,
        sessions: u32,
        gets: u64,
        gets_of_type: u64,
        counters: Vec<(Counter, u64)>,
        waiting_s: f64,
        cpu_s: f64,
        spin_cpu_s: f64,
        queued_s: f64,
    }

    impl Load {
        fn found(&self) -> Vec<&'static str> {
            let hold = Distribution::exponential(self.hold_s).unwrap();
            let mut workload = Workload::new(Arrivals::Open { rate: self.gets as f64 }, hold, 1.0);
            workload.machine.processors = Some(self.processors);
            workload.params = workload.params.with(P::Scheme, wait::named(self.scheme).unwrap() as u64);
            if let Some((p, value)) = self.set {
                workload.params = workload.params.with(p, value);
            }
            let mut figures = Figures::default();
            for (counter, count) in &self.counters {
                figures.counters[*counter as usize] = *count;
            }
            let measured = Profile {
                time_s: 1.0,
                gets: Some(self.gets),
                gets_of_type: Some(self.gets_of_type),
                sessions: Some(self.sessions),
                waiting_s: Some(self.waiting_s),
                cpu_s: Some(self.cpu_s),
                spin_cpu_s: Some(self.spin_cpu_s),
                queued_s: Some(self.queued_s),
                figures,
                ..Profile::default()
            };
            findings(&measured, &workload).into_iter().map(|finding| finding.rule).collect()
        }

        /// With another count.
        fn with(&self, counter: Counter, count: u64) -> Self {
            let mut counters = self.counters.clone();
            counters.retain(|(other, _)| *other != counter);
            counters.push((counter, count));
            Self { counters, ..self.clone() }
        }
    }

    /// The sick load is found by its rule alone, and nothing in its neighbours, which differ by one
    /// condition.
    fn is_found<const N: usize>(rule: &'static str, sick: &Load, healthy: [Load; N]) {
        assert_eq!(sick.found(), [rule]);
        for (i, load) in healthy.iter().enumerate() {
            assert_eq!(load.found(), [""; 0], "{rule}, neighbour {i}");
        }
    }

    /// Four sessions that wait for half a second in one, and find the mutex busy at a third of the gets.
    fn load(scheme: &'static str, hold_s: f64) -> Load {
        Load {
            scheme,
            set: None,
            hold_s,
            processors: 8,
            sessions: 4,
            gets: 100_000,
            gets_of_type: 1_000_000,
            counters: vec![(Counter::Busy, 40_000), (Counter::Misses, 30_000)],
            waiting_s: 0.5,
            cpu_s: 2.0,
            spin_cpu_s: 0.1,
            queued_s: 0.0,
        }
    }

    #[test]
    fn sessions_that_park_for_short_holds_are_to_spin_first() {
        let sick = load("pthread", 1e-6).with(Counter::Parks, 20_000);
        is_found(
            "parks_too_soon",
            &sick,
            [
                sick.with(Counter::Parks, 5_000),
                Load { hold_s: 1e-3, ..sick.clone() },
                Load { scheme: "orbit", ..sick.clone() },
                Load { waiting_s: 0.05, ..sick.clone() },
            ],
        );
    }

    #[test]
    fn spins_are_cut_where_others_need_the_processors() {
        let sick = Load {
            set: Some((P::SpinCount, 20_000)),
            processors: 2,
            sessions: 16,
            spin_cpu_s: 1.5,
            ..load("10g", 10e-6)
        };
        is_found(
            "spins_too_long",
            &sick,
            [
                Load { sessions: 2, ..sick.clone() },
                Load { set: Some((P::SpinCount, 0)), ..sick.clone() },
                Load { spin_cpu_s: 0.9, ..sick.clone() },
                sick.with(Counter::Busy, 40),
            ],
        );
    }

    #[test]
    fn sessions_that_sleep_past_many_holds_are_to_be_woken() {
        let sleeps = |asleep_s: u64| {
            let load = Load { sessions: 16, waiting_s: 8.0, ..load("sleep", 20e-6) }.with(Counter::Busy, 100_000);
            load.with(Counter::Sleeps, 3_000).with(Counter::SleptNs, asleep_s * 1_000_000_000)
        };
        let sick = sleeps(5);
        is_found(
            "sleeps_too_long",
            &sick,
            [
                sleeps(3),
                Load { hold_s: 100e-6, ..sick.clone() },
                Load { sessions: 500, ..sick.clone() },
                sick.with(Counter::Parks, 3_000),
                sick.with(Counter::Busy, 40),
            ],
        );
    }

    #[test]
    fn sessions_that_wake_up_in_vain_are_to_be_woken_by_releases() {
        let sick = load("sleep", 20e-6).with(Counter::Sleeps, 30_000).with(Counter::SleptNs, 2_000_000_000);
        is_found(
            "sleeps_too_many",
            &sick,
            [
                sick.with(Counter::Sleeps, 10_000),
                Load { waiting_s: 0.05, ..sick.with(Counter::SleptNs, 50_000_000) },
                Load { cpu_s: 7.0, ..sick.clone() },
                sick.with(Counter::Busy, 40),
            ],
        );
    }

    #[test]
    fn rules_that_advise_the_same_are_one_finding() {
        let load = Load { sessions: 16, waiting_s: 8.0, cpu_s: 0.4, ..load("sleep", 20e-6) };
        let both = load.with(Counter::Sleeps, 20_000).with(Counter::SleptNs, 8_000_000_000);
        assert_eq!(both.found(), ["sleeps_too_many", "spins_too_short"]);
        assert_eq!(Load { cpu_s: 4.0, ..both }.found(), ["sleeps_too_long", "spins_too_short"]);
    }

    #[test]
    fn spins_that_end_before_the_mutex_is_free_are_to_be_longer() {
        let fail = |count: u64| {
            let load = Load { set: Some((P::SpinCount, 10)), ..load("patch6904068", 5e-6) };
            load.with(Counter::Sleeps, count).with(Counter::SleptNs, count * 300_000)
        };
        let sick = fail(10_000);
        is_found(
            "spins_too_short",
            &sick,
            [
                Load { set: Some((P::SpinCount, 3_000)), cpu_s: 8.0, ..sick.clone() },
                fail(3_000),
                Load { sessions: 200, ..sick.clone() },
                sick.with(Counter::Busy, 40),
            ],
        );
    }

    #[test]
    fn spins_that_end_in_a_yield_are_to_be_longer_too() {
        let sick = Load { set: Some((P::SpinCount, 10)), ..load("10g", 0.5e-6) }.with(Counter::Yields, 20_000);
        is_found(
            "spins_too_short",
            &sick,
            [
                Load { set: Some((P::SpinCount, 1_000)), ..sick.clone() },
                // A yield is over before the mutex is free.
                Load { hold_s: 50e-6, ..sick.clone() },
                sick.with(Counter::Yields, 3_000),
            ],
        );
    }

    #[test]
    fn only_a_load_that_the_bench_makes_has_a_command() {
        let command = |think_s: f64, on_processor: bool, work: f64| {
            let [hold, think] = [10e-6, think_s].map(|mean| Distribution::exponential(mean).unwrap());
            let arrivals = Arrivals::Closed { sessions: 4, think, on_processor };
            Change::Copies(4).trial(&Workload { work, ..Workload::new(arrivals, hold, 1.0) })
        };
        let thinks = |think_s, on_processor, work, time: &str| {
            command(think_s, on_processor, work).is_some_and(|command| command.contains(&format!(" --think {time} ")))
        };
        assert!(thinks(20e-6, true, 0.0, "20000ns") && thinks(20e-6, true, 5e-6, "25000ns"));
        assert!(thinks(5e-3, false, 20e-6, "5020000ns"), "next to no work");
        assert_eq!(command(20e-6, false, 0.0), None, "it computes for less than 1 ms");
        assert_eq!(command(5e-3, true, 0.0), None, "and sleeps for more");
        assert_eq!(command(5e-3, false, 1e-3), None, "and does not do both");
    }

    #[test]
    fn a_mutex_that_most_gets_are_of_and_that_is_held_most_of_the_time_is_to_have_copies() {
        let sick = Load { gets_of_type: 110_000, waiting_s: 2.0, ..load("orbit", 7e-6) }.with(Counter::Misses, 70_000);
        is_found(
            "hot_mutex",
            &sick,
            [
                Load { gets_of_type: 250_000, ..sick.clone() },
                Load { waiting_s: 0.4, ..sick.clone() },
                sick.with(Counter::Misses, 40_000),
                // Its holders wait for processors: they need it for 0.4 of the time.
                Load { hold_s: 4e-6, ..sick.clone() },
            ],
        );
    }

    #[test]
    fn sessions_that_wait_for_processors_more_than_they_run_need_more() {
        let sick = Load { processors: 2, sessions: 16, queued_s: 3.0, ..load("orbit", 1e-6) };
        is_found(
            "too_few_processors",
            &sick,
            [
                Load { queued_s: 1.9, ..sick.clone() },
                // Others have the processors.
                Load { cpu_s: 0.9, ..sick.clone() },
                // The mutex has hardly more gets to give.
                Load { hold_s: 9e-6, ..sick.clone() },
            ],
        );
    }
}
