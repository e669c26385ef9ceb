//! One miss, form factors, k.

use super::{ATTEMPTS, DIST, GAMMA, K, LIMIT, RATE, Results, UTILIZATION, field, optional, required};
use crate::error::from_zero;
use crate::function::{Function, Inputs, Unit};
use crate::leftover::{self, SpinningOn};
use crate::special;
use crate::spin::{self, Attempts};
use crate::statistics;

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
        name: "spin-scaling",
        summary: "k₀ at a multiple of a spin limit at which it is known",
        formula: "k₀(n∆) = C (k₀/C)ⁿ, Γ(n∆) - Γ(∆) = τ(k₀ - k₀(n∆)), τ = ∆/ln(C/k₀)",
        domain: "holding times with an exponential tail from ∆ on, C = 1 if they are exponential; nobody competes",
        source: "paper, scaling rule; its one C in Q and in k is two, which differ by τ/S",
        parameters: &[
            required("k0", Unit::Number, "failed spins by misses at ∆, without competition"),
            LIMIT,
            optional("factor", Unit::Number, "2", "n, from 1"),
            optional("constant", Unit::Number, "1", "C: k₀ = C e^(-∆/τ)"),
        ],
        results: &[
            field("k0", "1", "at n∆"),
            field("more_time", "s", "what the mean time of a spin grows by"),
            field("tail", "s", "τ"),
        ],
        run: |i| {
            let (k, limit) = (i.number("k0"), i.number("limit"));
            let scaled = spin::scaled(k, limit, i.number("factor"), i.number("constant"))?;
            Ok([scaled.inefficiency, scaled.more_time, scaled.tail].map(Some).into())
        },
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
    Function {
        name: "spin-on-linear",
        summary: "k when losers of a release spin on, to the first order in the rate of attempts",
        formula: "k = k₀ + Λ/2S E[Y ∫ Q from ∆ - Y to ∆], Y = min(X,∆)",
        domain: "within 1 % where k₀ dominates (ρ up to 0.1, ∆ up to S); of no use where k₀ goes to 0",
        source: "MODEL.md, Spins against others",
        parameters: &[DIST, LIMIT, ATTEMPTS],
        results: &[K],
        run: |i| {
            let (limit, attempt_rate) = (i.number("limit"), i.number("attempt_rate"));
            Ok(vec![Some(leftover::linear(i.distribution("dist"), limit, attempt_rate)?)])
        },
    },
    Function {
        name: "spin-on-open",
        summary: "k, Γ and the rate of attempts of an open system whose losers spin on",
        formula: "mean field: Poisson(ℓ s(x) + Λ min(x,∆)) competitors at a release after x; Λ = λ/(1 - kρ)",
        domain: "ρ below 1, long sleeps: k off by 1.4 % (Γ 0.5 %) for ∆ up to S, 4.6 % (2.2 %) up to 2 S, 8 % (4.7 %) up to 5 S; for times more regular than exponential ∆ up to 2 S only",
        source: "MODEL.md, Spins against others",
        parameters: &[DIST, LIMIT, RATE],
        results: &[
            field("utilization", "1", "ρ = λS"),
            K,
            field("sleep_ratio", "1", "sleeps by fresh misses, κ"),
            field("attempt_rate", "1/s", "Λ"),
            GAMMA,
            field("leftover", "1", "mean number of spinners left after an acquisition, ℓ"),
        ],
        run: spin_on_open,
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

fn spin_on_open(i: &Inputs) -> Results {
    let (dist, limit, rate) = (i.distribution("dist"), i.number("limit"), i.number("rate"));
    let SpinningOn { attempt_rate, inefficiency, spin_time, leftover } = leftover::open(dist, limit, rate)?;
    let utilization = rate * dist.mean();
    let sleep_ratio = statistics::sleep_ratio(inefficiency, utilization)?;
    Ok([utilization, inefficiency, sleep_ratio, attempt_rate, spin_time, leftover].map(Some).into())
}
