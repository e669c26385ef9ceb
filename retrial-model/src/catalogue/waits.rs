//! Figures from counters, and waits of the open system.

use super::{DIST, GAMMA, INEFFICIENCY, K, LIMIT, RATE, Results, SLEEP, UTILIZATION, WAIT, field, optional, required};
use crate::error::ModelError;
use crate::function::{Field, Function, Inputs, Parameter, Unit};
use crate::statistics::{self, Figures};
use crate::wait::{self, Orbit, Waits};

const WAITS: &[Field] = &[
    K,
    GAMMA,
    WAIT,
    field("spinning", "s", "spin part of the wait, W_s"),
    field("sleeping", "s", "sleep part of the wait, W_orb"),
    field("misses", "1", "attempts per get that found the mutex busy, M"),
    field("sleeps", "1", "sleeps per get"),
    field("registered", "s", "wait per get without first spins, W_o"),
    field("per_registered", "s", "the same per registered wait, w_o; null if there are none"),
];

const RESIDUAL: Parameter = required("residual_mean", Unit::Seconds, "mean residual holding time, S_r");

/// What stands for the holding time and the rate where k and Γ are known.
const KNOWN: &[Parameter] =
    &[UTILIZATION, INEFFICIENCY, required("spin_time", Unit::Seconds, "mean time of a spin, Γ"), RESIDUAL, SLEEP];

pub(super) static FUNCTIONS: &[Function] = &[
    Function {
        name: "statistics",
        summary: "k, κ, ω, λ, ρ and S from counters",
        formula: "λ = gets/t, ω = sleeps/t, S = U/λ, κ = sleeps/(U gets), k = κ/(1 + κU)",
        domain: "every failed spin is followed by a counted sleep T: off by 0.3 % at T = 1000 S, 3 % at 100 S, 24 % at 10 S",
        source: "table 4",
        parameters: &[
            required("gets", Unit::Number, "growth of gets"),
            required("sleeps", Unit::Number, "growth of sleeps"),
            required("time", Unit::Seconds, "length of the interval"),
            UTILIZATION,
            optional("samples", Unit::Number, "", "samples that gave the utilization"),
        ],
        results: &[
            field("rate", "1/s", "gets, λ"),
            field("sleep_rate", "1/s", "sleeps, ω"),
            field("holding_time", "s", "S"),
            field("sleep_ratio", "1", "κ"),
            K,
            field("utilization_error", "1", "standard error of the utilization; null without samples"),
        ],
        run: figures,
    },
    Function {
        name: "sleep-ratio",
        summary: "κ from k",
        formula: "κ = k/(1 - kρ)",
        domain: "k and ρ from 0 to 1, not both 1",
        source: "table 4",
        parameters: &[INEFFICIENCY, UTILIZATION],
        results: &[field("sleep_ratio", "1", "κ")],
        run: |i| Ok(vec![Some(statistics::sleep_ratio(i.number("k"), i.number("utilization"))?)]),
    },
    Function {
        name: "inefficiency",
        summary: "k from κ",
        formula: "k = κ/(1 + κρ)",
        domain: "κ from 0, ρ from 0 to 1",
        source: "table 4",
        parameters: &[required("sleep_ratio", Unit::Number, "sleeps by fresh misses, κ"), UTILIZATION],
        results: &[K],
        run: |i| Ok(vec![Some(statistics::inefficiency(i.number("sleep_ratio"), i.number("utilization"))?)]),
    },
    Function {
        name: "wait",
        summary: "wait of an open system that sleeps after every failed spin",
        formula: "M = ρ(T + S_r)/(T(1 - kρ) + (1 - ρ)Γ), W = (kT + Γ)M",
        domain: "ρ below 1, E X² finite; error up to 3.2 S_r/T for T from 10 S (that of k)",
        source: "busy-time identity and flow of retries",
        parameters: &[DIST, LIMIT, RATE, SLEEP],
        results: WAITS,
        run: |i| waits(&orbit(i)?, Orbit::waits),
    },
    Function {
        name: "wait-at",
        summary: "the same for a k and Γ that are known, from measurement or an exact chain",
        formula: "M = ρ(T + S_r)/(T(1 - kρ) + (1 - ρ)Γ), W = (kT + Γ)M",
        domain: "ρ below 1; exact for exponential sleeps with the true k and Γ",
        source: "busy-time identity and flow of retries",
        parameters: KNOWN,
        results: WAITS,
        run: |i| waits(&orbit_at(i), Orbit::waits),
    },
    Function {
        name: "wait-paper",
        summary: "the wait as the paper has it, with the k of the open system",
        formula: "W = ρ/(1 - kρ) [(1 - k²ρ)/(1 - kρ) Γ + k(T + T_r)]",
        domain: "T much longer than S_r: with the true k off by 0.1 % at T = 100 S, 4 % at 10 S, 19 % at 1 S, wrong as T goes to 0",
        source: "eqs. 11 to 14",
        parameters: &[DIST, LIMIT, RATE, SLEEP],
        results: WAITS,
        run: |i| waits(&orbit(i)?, Orbit::waits_paper),
    },
    Function {
        name: "wait-paper-at",
        summary: "the paper's wait for a k and Γ that are known",
        formula: "W = ρ/(1 - kρ) [(1 - k²ρ)/(1 - kρ) Γ + k(T + S_r - Γ)]",
        domain: "as wait-paper",
        source: "eqs. 11 to 14",
        parameters: KNOWN,
        results: WAITS,
        run: |i| waits(&orbit_at(i), Orbit::waits_paper),
    },
    Function {
        name: "wait-identity",
        summary: "wait of any scheme from the time that waits waste while the mutex is free",
        formula: "W = (ρ S_r + W_idle)/(1 - ρ)",
        domain: "Poisson arrivals, ρ below 1; exact. W_idle = 0: M/G/1",
        source: "eq. 13, for every scheme and discipline",
        parameters: &[
            UTILIZATION,
            RESIDUAL,
            optional("idle_wait", Unit::Seconds, "0", "mean wait per get while the mutex is free"),
        ],
        results: &[WAIT],
        run: |i| {
            let (rho, residual) = (i.number("utilization"), i.number("residual_mean"));
            Ok(vec![Some(wait::identity(rho, residual, i.number("idle_wait"))?)])
        },
    },
];

fn figures(i: &Inputs) -> Results {
    let (gets, sleeps, time) = (i.number("gets"), i.number("sleeps"), i.number("time"));
    let Figures { rate, sleep_rate, holding_time, sleep_ratio, inefficiency, utilization_error } =
        statistics::figures(gets, sleeps, time, i.number("utilization"), i.optional("samples"))?;
    Ok(vec![Some(rate), Some(sleep_rate), Some(holding_time), Some(sleep_ratio), Some(inefficiency), utilization_error])
}

fn orbit(i: &Inputs) -> Result<Orbit, ModelError> {
    let dist = i.distribution("dist");
    Orbit::new(dist, i.number("limit"), i.number("rate"), i.number("sleep"))
}

fn orbit_at(i: &Inputs) -> Orbit {
    Orbit {
        utilization: i.number("utilization"),
        inefficiency: i.number("k"),
        spin_time: i.number("spin_time"),
        residual_mean: i.number("residual_mean"),
        sleep: i.number("sleep"),
    }
}

fn waits(orbit: &Orbit, formula: fn(&Orbit) -> Result<Waits, ModelError>) -> Results {
    let Waits { misses, wait, spinning, sleeping, sleeps, registered, per_registered } = formula(orbit)?;
    let values = [orbit.inefficiency, orbit.spin_time, wait, spinning, sleeping, misses, sleeps, registered];
    Ok(values.map(Some).into_iter().chain([per_registered]).collect())
}
