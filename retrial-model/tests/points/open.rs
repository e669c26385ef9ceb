//! Open systems: requests that come from outside.

use super::grid::{
    Found, SLEEP, Setting, YIELD, attempts, given, k, known, measured, open, residual, scheme, sleep_rate, sleep_ratio,
    spin_time, theory, throughput, unattended, utilization, wait, waiting, yields_first,
};
use super::{Point, Seen};
use retrial::P;

/// The open system with sleeps after every failed spin, losers of a release sleep.
pub(super) fn sleeping(family: usize, rho: f64, limit: f64, sleep: f64, gets: f64) -> Point {
    let unit = SLEEP / sleep;
    let setting = Setting {
        family,
        unit,
        arrivals: open(rho, unit),
        params: scheme("patch6904068").with(P::OnLostRace, 1),
        limit,
        pause: 0.0,
        duration: gets / rho,
        warm_up: 20.0 * sleep / (1.0 - rho),
    };
    let residual = residual(family);
    let long = residual / sleep;
    let mut claims = given(
        &[("limit", limit), ("rate", rho), ("sleep", sleep), ("utilization", rho), ("a", 1.0)],
        &[
            ("chain-open", "k", k, 0.0),
            ("chain-open", "spin_time", spin_time, 0.0),
            ("chain-open", "wait", wait, 0.0),
            ("spin-open", "k", k, 1.7 * long),
            ("spin-open", "attempt_rate", Seen::attempt_rate, 1.7 * long),
            ("residual", "spin_time", spin_time, 1.5 * long),
            ("wait", "wait", wait, 3.2 * long),
            ("wait-paper", "wait", wait, 3.2 * long + 0.05),
            ("spin-paper", "k", k, 0.72),
        ],
    );
    if rho <= 0.1 {
        claims.extend(given(&[("limit", limit), ("utilization", rho)], &[("spin-linear", "k", k, 0.37 + 1.7 * long)]));
    }
    claims.push(measured("spin", "k", k, 1.7 * long, attempts(limit)));
    claims.push(measured("transform", "unattended", unattended, 1.7 * long, attempts(limit)));
    claims.push(measured("wait-at", "wait", wait, 0.0, known(rho, residual, sleep)));
    claims.push(measured("wait-paper-at", "wait", wait, 0.4 * long + 0.01, known(rho, residual, sleep)));
    // The counters of a run as table 4 takes them.
    let ratios = 2.4 * long;
    claims.push(measured("statistics", "k", k, ratios, |seen| {
        let time = 1.0;
        let (gets, slept) = (throughput(seen) * time, sleep_rate(seen) * time);
        vec![("gets", gets), ("sleeps", slept), ("time", time), ("utilization", utilization(seen))]
    }));
    claims.push(measured("sleep-ratio", "sleep_ratio", sleep_ratio, ratios, move |seen| {
        vec![("k", k(seen)), ("utilization", rho)]
    }));
    claims.push(measured("inefficiency", "k", k, ratios, move |seen| {
        vec![("sleep_ratio", sleep_ratio(seen)), ("utilization", rho)]
    }));
    // It leaves the spins out.
    let spins = theory(family, "residual", "spin_time", &vec![("limit", limit)])
        / (sleep * theory(family, "spin-open", "k", &vec![("limit", limit), ("rate", rho)]));
    claims.push(measured("scheme-backoff", "wait", wait, spins / (1.0 + spins) + 4.0 * long, move |seen| {
        let k = k(seen);
        vec![("utilization", rho), ("k_first", k), ("k", k), ("sleep", sleep), ("sleep_max", sleep)]
    }));
    let what = format!("open, ρ = {rho}, ∆ = {limit} S, T = {sleep} S");
    setting.point(&what, format!("T = {sleep} S"), format!("ρ = {rho}"), claims)
}

/// Spins for ever: M/G/1.
pub(super) fn queue(family: usize, rho: f64, gets: f64) -> Point {
    let unit = 1e-4;
    let setting = Setting {
        family,
        unit,
        arrivals: open(rho, unit),
        params: scheme("10g"),
        limit: 1e3,
        pause: 0.0,
        duration: 4.0 * gets / rho,
        warm_up: 100.0 / (1.0 - rho).powi(2),
    };
    let residual = residual(family);
    let mut claims =
        given(&[("utilization", rho), ("residual_mean", residual)], &[("wait-identity", "wait", wait, 0.0)]);
    claims.extend(given(
        &[],
        &[
            ("holding", "mean", |seen| utilization(seen) / throughput(seen), 0.0),
            // By the identity, from the wait.
            ("holding", "residual_mean", |seen| wait(seen) * (1.0 / utilization(seen) - 1.0), 0.0),
        ],
    ));
    setting.point(&format!("M/G/1, ρ = {rho}"), "M/G/1".into(), format!("ρ = {rho}"), claims)
}

/// The open system whose losers spin on to their own limit.
pub(super) fn spinning_on(family: usize, rho: f64, limit: f64, gets: f64) -> Point {
    let sleep = 200.0;
    let unit = SLEEP / sleep;
    let setting = Setting {
        family,
        unit,
        arrivals: open(rho, unit),
        params: scheme("patch6904068").with(P::OnLostRace, 0),
        limit,
        pause: 0.0,
        duration: gets / rho,
        warm_up: 20.0 * sleep / (1.0 - rho),
    };
    let residual = residual(family);
    let long = residual / sleep;
    let (in_k, in_time) = if limit <= 1.0 { (0.014, 0.005) } else { (0.046, 0.022) };
    let mut claims = given(
        &[("limit", limit), ("rate", rho)],
        &[("spin-on-open", "k", k, in_k + 1.7 * long), ("spin-on-open", "spin_time", spin_time, in_time + 1.7 * long)],
    );
    if rho <= 0.1 && limit <= 1.0 {
        claims.push(measured("spin-on-linear", "k", k, 0.01 + 1.7 * long, attempts(limit)));
    }
    claims.push(measured("wait-at", "wait", wait, 0.0, known(rho, residual, sleep)));
    let what = format!("losers spin on, ρ = {rho}, ∆ = {limit} S, T = {sleep} S");
    setting.point(&what, format!("∆ = {limit} S"), format!("ρ = {rho}"), claims)
}

/// The open system with yields before the first sleep.
pub(super) fn yielding(family: usize, rho: f64, yields: u32, gets: f64) -> Point {
    let (limit, sleep) = (1.8, 200.0);
    let unit = SLEEP / sleep;
    let setting = Setting {
        family,
        unit,
        arrivals: open(rho, unit),
        params: yields_first(yields),
        limit,
        pause: YIELD,
        duration: gets / rho,
        warm_up: 20.0 * sleep / (1.0 - rho),
    };
    let parameters =
        [("limit", limit), ("rate", rho), ("sleep", sleep), ("yields", yields.into()), ("yield_time", YIELD)];
    let (tagged, paper) = if yields == 1 { (0.18, 0.7) } else { (0.44, 0.97) };
    let mut claims = given(
        &parameters,
        &[("scheme-open", "wait", wait, tagged), ("scheme-open", "attempt_rate", Seen::attempt_rate, 0.2)],
    );
    if rho <= 0.1 {
        claims.extend(given(&parameters, &[("scheme", "wait", wait, 0.7)]));
    }
    let k_open = theory(family, "spin-open", "k", &vec![("limit", limit), ("rate", rho)]);
    let remaining = theory(family, "residual", "remaining", &vec![("limit", limit)]);
    claims.extend(given(
        &[("utilization", rho), ("k", k_open), ("remaining", remaining), ("sleep", sleep), ("yields", yields.into())],
        &[("scheme-paper", "wait", wait, paper)],
    ));
    let what = format!("open, {yields} yields, ρ = {rho}, ∆ = {limit} S, T = {sleep} S");
    setting.point(&what, format!("{yields} yields"), format!("ρ = {rho}"), claims)
}

/// Copies of the mutex that have the utilization ρ each.
pub(super) fn copied(family: usize, rho: f64, copies: u32, gets: f64) -> Point {
    let (limit, sleep) = (2.1, 100.0);
    let (unit, rate) = (SLEEP / sleep, rho * f64::from(copies));
    let setting = Setting {
        family,
        unit,
        arrivals: open(rate, unit),
        params: scheme("patch6904068").with(P::OnLostRace, 1),
        limit,
        pause: 0.0,
        duration: gets / rho,
        warm_up: 20.0 * sleep / (1.0 - rho),
    };
    let long = residual(family) / sleep;
    let parameters = [("limit", limit), ("rate", rate), ("sleep", sleep), ("copies", copies.into())];
    let claims = given(
        &parameters,
        &[
            ("copies", "utilization", utilization, 0.0),
            ("copies", "k", k, 1.7 * long),
            ("copies", "sleep_rate", sleep_rate, 3.2 * long),
            ("copies", "waiting", waiting, 3.2 * long),
        ],
    );
    let what = format!("{copies} copies, ρ = {rho} each, ∆ = {limit} S, T = {sleep} S");
    let mut point = setting.point(&what, format!("{copies} copies"), format!("ρ = {rho}"), claims);
    point.workload.copies = copies;
    point
}

/// The best spin limit for sleeps of 1000 S that cost as much as 2 S of spinning, among attempts at 0.5/S:
/// what a miss costs with it.
pub(super) fn best_limit(family: usize, gets: f64) -> Point {
    let (sleep, b, attempts) = (1000.0, 2.0, 0.5);
    let unit = SLEEP / sleep;
    let weight = sleep / b - 1.0;
    let tuned = vec![("sleep", sleep), ("weight", weight), ("attempt_rate", attempts)];
    let limit = theory(family, "spin-limit", "limit", &tuned);
    // The fresh requests that make so many attempts: λ = Λ/(φ + Λ S).
    let unattended = theory(family, "transform", "unattended", &vec![("limit", limit), ("attempt_rate", attempts)]);
    let rho = attempts / (unattended + attempts);
    let setting = Setting {
        family,
        unit,
        arrivals: open(rho, unit),
        params: scheme("patch6904068").with(P::OnLostRace, 1),
        limit,
        pause: 0.0,
        duration: gets / rho,
        warm_up: 20.0 * sleep / (1.0 - rho),
    };
    let long = residual(family) / sleep;
    let cost: Found = |seen| spin_time(seen) + 2.0 * k(seen);
    let claims = given(&tuned, &[("spin-limit", "cost", cost, 1.7 * long)]);
    let what = format!("best limit {limit:.2} S, b = {b} S, ρ = {rho:.2}, T = {sleep} S");
    setting.point(&what, "best limit".into(), format!("T = {sleep} S"), claims)
}
