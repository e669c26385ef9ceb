//! One miss, form factors, k.

use super::{ATTEMPTS, DIST, GAMMA, K, LIMIT, RATE, Results, UTILIZATION, field, optional, required};
use crate::error::from_zero;
use crate::function::{Function, Inputs, Unit};
use crate::special;
use crate::spin::{self, Attempts};

pub(super) static FUNCTIONS: &[Function] = &[
    Function {
        name: "holding",
        summary: "moments of a holding time",
        formula: "S = E X, S_r = E X²/2S, c² = E X²/S² - 1",
        domain: "any distribution; infinite moments are null",
        source: "eq. 2",
        parameters: &[DIST],
        results: &[
            field("mean", "s", "S"),
            field("second_moment", "s²", "E X²; null if infinite"),
            field("residual_mean", "s", "what a miss has before it, S_r; null if infinite"),
            field("variation", "1", "squared coefficient of variation; null if infinite"),
        ],
        run: holding,
    },
    Function {
        name: "residual",
        summary: "one isolated miss: k₀, Γ, T_r and what they are made of",
        formula: "k₀ = E(X-∆)⁺/S, Γ = E min(R,∆) = S_r - T_r, T_r = E((X-∆)⁺)²/2S",
        domain: "nobody competes; limit from 0",
        source: "eqs. 3 to 6; relative error 1e-11",
        parameters: &[DIST, LIMIT],
        results: &[
            field("k0", "1", "failed spins by misses without competition, k₀"),
            GAMMA,
            field("remaining", "s", "T_r = E(R-∆)⁺, not conditioned on failure; null if infinite"),
            field("survival", "1", "Q(∆) = P(X > ∆)"),
            field("density", "1/s", "p(∆); null where single values have a probability, or it is infinite"),
            field("mean_residual", "s", "E(X-∆ | X > ∆), 0 if nothing is above"),
            field("minimum", "s", "E min(X,∆)"),
            field("minimum_squared", "s²", "E min(X,∆)²"),
        ],
        run: residual,
    },
    Function {
        name: "transform",
        summary: "transform of a holding time that is cut at the spin limit",
        formula: "L = ∫₀^∆ e^(-Λx) Q(x) dx, φ = E e^(-Λ min(X,∆)) = 1 - ΛL",
        domain: "attempt_rate and limit from 0",
        source: "MODEL.md, Concurrency; relative error 1e-11",
        parameters: &[DIST, LIMIT, ATTEMPTS],
        results: &[
            field("transform", "s", "L(Λ,∆)"),
            field("unattended", "1", "φ: probability that nobody spins at a release"),
        ],
        run: transform,
    },
    Function {
        name: "form-factor",
        summary: "chance at a release against a Poisson number of others, and the paper's form of it",
        formula: "F₁(x) = (1 - e^-x)/x; paper: F_c(x) = -Ein(-x)/(e^x - 1)",
        domain: "x from 0; exact for Poisson attempts. F_c is an average over intervals, not over requests: up to 37 % too large (at x = 3)",
        source: "F_c: eq. 7; F₁: Slivnyak, PASTA",
        parameters: &[required("x", Unit::Number, "mean number of the others")],
        results: &[field("f1", "1", "F₁"), field("paper", "1", "F_c")],
        run: form_factor,
    },
    Function {
        name: "spin",
        summary: "k and Γ at a given rate of attempts, losers of a release sleep",
        formula: "k = 1 - L(Λ,∆)/S, Γ = E min(R,∆); floor: limit to infinity",
        domain: "Poisson attempts (exact); limit and attempt_rate from 0",
        source: "eqs. 8 to 10 with F₁ and Λ in the place of F_c and λ",
        parameters: &[DIST, LIMIT, ATTEMPTS],
        results: &[K, GAMMA, field("floor", "1", "below this no spin limit brings k")],
        run: spin_at,
    },
    Function {
        name: "spin-paper",
        summary: "k as the paper has it: its form factor, fresh requests only",
        formula: "k = 1 - E[min(X,∆) F_c(λ min(X,∆))]/S",
        domain: "for comparison: up to 72 % too small",
        source: "eqs. 7 to 10",
        parameters: &[DIST, LIMIT, RATE],
        results: &[K],
        run: |i| Ok(vec![Some(spin::inefficiency_paper(i.distribution("dist"), i.number("limit"), i.number("rate"))?)]),
    },
    Function {
        name: "spin-linear",
        summary: "k to the first order in ρ",
        formula: "k = k₀ + a ρ E min(X,∆)²/2S²",
        domain: "Λ min(∆,S) far below 1: up to +18 % at ρ = 0.05, +37 % at 0.1",
        source: "after eq. 10",
        parameters: &[
            DIST,
            LIMIT,
            UTILIZATION,
            optional("a", Unit::Number, "1", "1, or 1/2 for the paper's form factor"),
        ],
        results: &[K],
        run: |i| {
            let (limit, rho) = (i.number("limit"), i.number("utilization"));
            Ok(vec![Some(spin::inefficiency_linear(i.distribution("dist"), limit, rho, i.number("a"))?)])
        },
    },
    Function {
        name: "spin-open",
        summary: "k, κ and the rate of attempts of an open system",
        formula: "Λ = λ/(1 - kρ), k = 1 - L(Λ,∆)/S, κ = k/(1 - kρ)",
        domain: "ρ below 1; sleeps much longer than S and spread: error of k up to 1.7 S_r/T for T from 10 S",
        source: "renewal of holding and idle times; MODEL.md, Concurrency",
        parameters: &[DIST, LIMIT, RATE],
        results: &[
            field("utilization", "1", "ρ = λS"),
            K,
            field("sleep_ratio", "1", "sleeps by fresh misses, κ"),
            field("attempt_rate", "1/s", "Λ"),
            field("unattended", "1", "φ: probability that nobody spins at a release"),
            GAMMA,
        ],
        run: spin_open,
    },
];

fn holding(i: &Inputs) -> Results {
    let dist = i.distribution("dist");
    let (mean, second) = (dist.mean(), dist.second_moment());
    let finite = |value: f64| second.is_finite().then_some(value);
    Ok(vec![Some(mean), finite(second), dist.residual_mean(), finite(second / (mean * mean) - 1.0)])
}

fn residual(i: &Inputs) -> Results {
    let (dist, limit) = (i.distribution("dist"), i.number("limit"));
    from_zero("limit", limit)?;
    Ok(vec![
        Some(dist.inefficiency(limit)),
        Some(dist.spin_time(limit)),
        dist.remaining(limit),
        Some(dist.survival(limit)),
        dist.density(limit).filter(|density| density.is_finite()),
        Some(dist.mean_residual(limit)),
        Some(dist.minimum(limit)),
        Some(dist.minimum_squared(limit)),
    ])
}

fn transform(i: &Inputs) -> Results {
    let (dist, limit, rate) = (i.distribution("dist"), i.number("limit"), i.number("attempt_rate"));
    from_zero("limit", limit)?;
    from_zero("attempt_rate", rate)?;
    Ok(vec![Some(dist.transform(rate, limit)), Some(dist.unattended(rate, limit))])
}

fn form_factor(i: &Inputs) -> Results {
    let x = i.number("x");
    from_zero("x", x)?;
    Ok(vec![Some(special::form_factor(x)), Some(special::form_factor_paper(x))])
}

fn spin_at(i: &Inputs) -> Results {
    let (dist, limit, rate) = (i.distribution("dist"), i.number("limit"), i.number("attempt_rate"));
    let k = spin::inefficiency(dist, limit, rate)?;
    Ok(vec![Some(k), Some(dist.spin_time(limit)), Some(spin::floor(dist, rate)?)])
}

fn spin_open(i: &Inputs) -> Results {
    let (dist, limit, rate) = (i.distribution("dist"), i.number("limit"), i.number("rate"));
    let Attempts { attempt_rate, inefficiency, sleep_ratio, unattended } = spin::open(dist, limit, rate)?;
    let values = [rate * dist.mean(), inefficiency, sleep_ratio, attempt_rate, unattended, dist.spin_time(limit)];
    Ok(values.map(Some).into())
}
