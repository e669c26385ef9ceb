//! Closed systems: sessions that think, get, hold and release.

use super::Point;
use super::grid::{
    FAMILIES, SLEEP, Setting, YIELD, given, k, ns, population, residual, scheme, spin_time, theory, throughput, wait,
    yields_first,
};
use retrial::P;

/// Two sessions that ask so rarely that a miss has nobody beside it.
pub(super) fn alone(family: usize, limit: f64, gets: f64) -> Point {
    let (think, sleep) = (100.0, 100.0);
    let unit = SLEEP / sleep;
    let setting = Setting {
        family,
        unit,
        arrivals: population(2, think, unit),
        params: scheme("patch6904068").with(P::OnLostRace, 1),
        limit,
        pause: 0.0,
        duration: 20.0 * gets * think / 2.0,
        warm_up: 10.0 * think,
    };
    let rare = 2.0 * residual(family) / think;
    let mut claims = given(
        &[("limit", limit), ("sessions", 2.0), ("think", think), ("sleep", sleep)],
        &[
            ("residual", "k0", k, rare),
            ("residual", "spin_time", spin_time, rare),
            ("chain-closed", "k", k, 0.0),
            ("closed-scheme", "throughput", throughput, 0.0),
        ],
    );
    if FAMILIES[family].0 == "exponential" {
        let half = theory(family, "residual", "k0", &vec![("limit", limit / 2.0)]);
        claims.extend(given(&[("k0", half), ("limit", limit / 2.0)], &[("spin-scaling", "k0", k, rare)]));
    }
    let what = format!("two sessions, ∆ = {limit} S, Z = T = {sleep} S");
    setting.point(&what, "two sessions".into(), format!("∆ = {limit} S"), claims)
}

/// Sessions that think, and sleep after every failed spin.
pub(super) fn closed(family: usize, sessions: u32, think: f64, limit: f64, gets: f64) -> Point {
    let sleep = 100.0;
    let unit = SLEEP / sleep;
    let setting = Setting {
        family,
        unit,
        arrivals: population(sessions, think, unit),
        params: scheme("patch6904068").with(P::OnLostRace, 1),
        limit,
        pause: 0.0,
        duration: 3.0 * gets,
        warm_up: 20.0 * sleep,
    };
    let parameters = [("limit", limit), ("sessions", sessions.into()), ("think", think), ("sleep", sleep)];
    let exact = if sessions == 2 { 0.0 } else { 0.08 };
    let claims = given(
        &parameters,
        &[
            ("chain-closed", "throughput", throughput, 0.0),
            ("chain-closed", "k", k, 0.0),
            ("chain-closed", "spin_time", spin_time, 0.0),
            ("chain-closed", "wait", wait, 0.0),
            ("closed-scheme", "throughput", throughput, exact),
            ("closed-sleep", "throughput", throughput, 1.7 / f64::from(sessions)),
        ],
    );
    let what = format!("{sessions} sessions, Z = {think} S, ∆ = {limit} S, T = {sleep} S");
    setting.point(&what, "0 yields".into(), format!("{sessions} sessions"), claims)
}

/// The same with yields before the first sleep.
pub(super) fn closed_yielding(family: usize, sessions: u32, think: f64, yields: u32, gets: f64) -> Point {
    let (limit, sleep) = (1.8, 100.0);
    let unit = SLEEP / sleep;
    let setting = Setting {
        family,
        unit,
        arrivals: population(sessions, think, unit),
        params: yields_first(yields),
        limit,
        pause: YIELD,
        duration: 3.0 * gets,
        warm_up: 20.0 * sleep,
    };
    let parameters = [
        ("limit", limit),
        ("sessions", sessions.into()),
        ("think", think),
        ("sleep", sleep),
        ("yields", yields.into()),
        ("yield_time", YIELD),
    ];
    let claims = given(&parameters, &[("closed-scheme", "throughput", throughput, 0.06)]);
    let what = format!("{sessions} sessions, {yields} yields, Z = {think} S, ∆ = {limit} S, T = {sleep} S");
    setting.point(&what, format!("{yields} yields"), format!("{sessions} sessions"), claims)
}

/// Sessions that spin and yield for ever, each with a processor.
pub(super) fn closed_spinning(family: usize, sessions: u32, think: f64, gets: f64) -> Point {
    let (unit, limit) = (1e-4, 2.1);
    let setting = Setting {
        family,
        unit,
        arrivals: population(sessions, think, unit),
        params: scheme("10g"),
        limit,
        pause: 0.0,
        duration: 3.0 * gets,
        warm_up: 50.0 * think,
    };
    let parameters = [("limit", limit), ("sessions", sessions.into()), ("think", think), ("yield_time", 0.0)];
    // Exact where holding times are exponential.
    let allowed = if FAMILIES[family].0 == "exponential" { 0.0 } else { 0.13 };
    let claims = given(&parameters, &[("closed-spin", "throughput", throughput, allowed)]);
    let what = format!("{sessions} sessions that spin, Z = {think} S");
    setting.point(&what, "a processor each".into(), format!("{sessions} sessions"), claims)
}

/// How processors go from one session to the next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turns {
    /// Far shorter than S: shared equally.
    Short,
    /// Far longer, and yields are honoured.
    Long,
    /// Longer, and nobody yields.
    Pure,
}

/// More sessions that spin than processors.
pub(super) fn crowded(family: usize, sessions: u32, processors: u32, turns: Turns, gets: f64) -> Point {
    let (unit, think) = (1e-4, 5.0);
    let limit = if turns == Turns::Pure { 1e4 } else { 2.1 };
    let setting = Setting {
        family,
        unit,
        arrivals: population(sessions, think, unit),
        params: scheme("10g"),
        limit,
        pause: YIELD,
        duration: 3.0 * gets,
        warm_up: 500.0,
    };
    let parameters = [
        ("limit", limit),
        ("sessions", sessions.into()),
        ("think", think),
        ("yield_time", if turns == Turns::Short { 0.0 } else { YIELD }),
        ("processors", processors.into()),
    ];
    let (function, quantum, what) = match turns {
        Turns::Short => ("closed-spin", 0.02, "equal shares"),
        Turns::Long => ("closed-spin-turns", 100.0, "long turns"),
        Turns::Pure => ("closed-spin-preempted", 10.0, "no yields"),
    };
    let claims = given(&parameters, &[(function, "throughput", throughput, 0.2)]);
    let name = format!("{sessions} sessions that spin on {processors} processors, {what}, Z = {think} S");
    let mut point = setting.point(&name, what.into(), format!("{sessions} on {processors}"), claims);
    point.workload.machine.processors = Some(processors);
    point.workload.machine.quantum_ns = ns(quantum * unit);
    point
}

/// More sessions that sleep after failed spins than processors, shared equally.
pub(super) fn crowded_sleepers(family: usize, sessions: u32, processors: u32, gets: f64) -> Point {
    let (think, limit, sleep) = (5.0, 2.1, 100.0);
    let unit = SLEEP / sleep;
    let setting = Setting {
        family,
        unit,
        arrivals: population(sessions, think, unit),
        params: scheme("patch6904068").with(P::OnLostRace, 1),
        limit,
        pause: 0.0,
        duration: 3.0 * gets,
        warm_up: 20.0 * sleep,
    };
    let parameters = [
        ("limit", limit),
        ("sessions", sessions.into()),
        ("think", think),
        ("sleep", sleep),
        ("processors", processors.into()),
    ];
    let claims = given(
        &parameters,
        &[("closed-scheme", "throughput", throughput, 0.25), ("closed-sleep", "throughput", throughput, 0.25)],
    );
    let name = format!("{sessions} sessions on {processors} processors, Z = {think} S, ∆ = {limit} S, T = {sleep} S");
    let mut point = setting.point(&name, "equal shares".into(), format!("{sessions} on {processors}"), claims);
    point.workload.machine.processors = Some(processors);
    point.workload.machine.quantum_ns = ns(0.02 * unit);
    point
}
