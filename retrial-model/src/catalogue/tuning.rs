//! Schemes with yields and growing sleeps, the best spin limit, hot copies.

use super::{DIST, GAMMA, INEFFICIENCY, K, LIMIT, RATE, Results, SLEEP, UTILIZATION, WAIT, field, optional, required};
use crate::error::{ModelError, from_zero, positive};
use crate::function::{Field, Function, Inputs, Parameter, Unit};
use crate::quantity;
use crate::scheme::{self, Prefix};
use crate::tagged;
use crate::tuning::{self, Copies, Optimum, Shared, Unequal};

const YIELDS: Parameter = optional("yields", Unit::Number, "0", "yields before the first sleep, c");
const ALL_FAIL: Parameter =
    required("k_first", Unit::Number, "probability that all spins up to the first sleep fail, k_c");
const SWITCH: Parameter = optional("switch", Unit::Seconds, "0", "CPU time to go to sleep and come back, c_sw");
const WEIGHT: Parameter = optional("weight", Unit::Number, "1", "price of a CPU second against one of waiting, c");
const COMPETITORS: Parameter = optional("attempt_rate", Unit::PerSecond, "0", "attempts Λ of others");
const COPY_COST: Parameter = required("copy_cost", Unit::Number, "cost of a copy in waiting sessions, c_m");
const ALL: Parameter = optional("all", Unit::Number, "0", "share of the requests that take every copy, f");

const OPTIMUM: &[Field] = &[
    field("limit", "s", "best spin limit; null: spin until it is free"),
    field("cost", "s", "Γ + b k with it"),
    field("cost_without", "s", "the same without spins: b"),
];
const COPIES: &[Field] = &[
    field("best", "1", "where the formula has its minimum"),
    field("copies", "1", "best whole number"),
    field("cost", "1", "waiting sessions and cost of the copies with it"),
];

pub(super) static FUNCTIONS: &[Function] = &[
    Function {
        name: "scheme",
        summary: "wait with yields before the first sleep, at low load",
        formula: "as scheme-at, with k_c = k₀((c+1)∆ + c y) and its Γ",
        domain: "low ρ when c > 0: competition in the first spins is not counted (W 5 to 66 % too low at ρ = 0.1); exponential sleeps",
        source: "MODEL.md, Schemes",
        parameters: &[
            DIST,
            LIMIT,
            RATE,
            SLEEP,
            YIELDS,
            optional("yield_time", Unit::Seconds, "0.7us", "duration of a yield, y"),
        ],
        results: &[
            WAIT,
            field("sleeps", "1", "sleeps per get"),
            field("k_first", "1", "probability that all spins up to the first sleep fail, k_c"),
            K,
            GAMMA,
        ],
        run: prefix,
    },
    Function {
        name: "scheme-open",
        summary: "wait with yields before the first sleep, under competition",
        formula: "as scheme-at, with k_c and Γ_c of a tagged session: age of the holding time, rivals that lost with it; Λ = λ(1 + failed spins)",
        domain: "exponential sleeps much longer than S, losers of a release yield or sleep: W up to 18 % off with one yield, 44 % with two (most within 20 %)",
        source: "MODEL.md, Schemes",
        parameters: &[
            DIST,
            LIMIT,
            RATE,
            SLEEP,
            YIELDS,
            optional("yield_time", Unit::Seconds, "0.7us", "duration of a yield, y"),
        ],
        results: &[
            WAIT,
            field("sleeps", "1", "sleeps per get"),
            field("yields", "1", "yields per get"),
            field("k_first", "1", "probability that all spins up to the first sleep fail, k_c"),
            field("time_first", "s", "mean duration of the spins up to the first sleep, Γ_c"),
            field("idle", "s", "part of it, in yields, while the mutex is free"),
            K,
            GAMMA,
            field("attempt_rate", "1/s", "Λ"),
        ],
        run: yielding,
    },
    Function {
        name: "scheme-at",
        summary: "the same for spins that are known",
        formula: "W = ρ [(Γ_c + k_c T)(T + Γ) + (Γ + kT)(S_r - Γ_c)]/(T(1 - kρ) + Γ(1 - ρ))",
        domain: "ρ below 1; exact for exponential sleeps with the true k_c, Γ_c, k, Γ",
        source: "busy-time identity and flow of retries",
        parameters: &[
            UTILIZATION,
            ALL_FAIL,
            required("time_first", Unit::Seconds, "mean duration of the spins up to the first sleep, Γ_c"),
            INEFFICIENCY,
            required("spin_time", Unit::Seconds, "mean time of a later spin, Γ"),
            required("residual_mean", Unit::Seconds, "mean residual holding time, S_r"),
            SLEEP,
        ],
        results: &[WAIT, field("sleeps", "1", "sleeps per get, for T much longer than S_r")],
        run: prefix_at,
    },
    Function {
        name: "scheme-paper",
        summary: "the paper's wait of patch 6904068 (0 yields), scheme 1 (1) and scheme 2 (2)",
        formula: "W = kρ/(1 - kρ) (k^c T + T_r)",
        domain: "with the right k off by -28 to +28 % for scheme 1, -55 to +36 % for scheme 2; for times more regular than exponential down to -68 % and -97 %",
        source: "paper, wait schemes",
        parameters: &[UTILIZATION, INEFFICIENCY, required("remaining", Unit::Seconds, "T_r = E(R-∆)⁺"), SLEEP, YIELDS],
        results: &[WAIT],
        run: |i| {
            let (rho, k, remaining) = (i.number("utilization"), i.number("k"), i.number("remaining"));
            Ok(vec![Some(scheme::wait_paper(rho, k, remaining, i.number("sleep"), i.number("yields"))?)])
        },
    },
    Function {
        name: "scheme-backoff",
        summary: "wait with sleeps that double up to a longest one",
        formula: "W = ρ k_c Σ (kρ)^(i-1) T_i, T_i = min(T 2^(i-1), T_max)",
        domain: "sleeps that are most of the wait: k T much longer than Γ; it leaves the spins out",
        source: "MODEL.md, Schemes",
        parameters: &[
            UTILIZATION,
            ALL_FAIL,
            INEFFICIENCY,
            required("sleep", Unit::Seconds, "first sleep T"),
            required("sleep_max", Unit::Seconds, "longest sleep"),
        ],
        results: &[WAIT, field("sleeps", "1", "sleeps per get")],
        run: backoff,
    },
    Function {
        name: "spin-limit",
        summary: "best spin limit before a sleep",
        formula: "spin on while m(∆) e^(Λ∆) < b, b = (T + c c_sw)/(1 + c), m(∆) = E(X-∆ | X > ∆)",
        domain: "cost Γ + b k of one miss; attempts of others at a fixed rate",
        source: "hazard rate of the residual time; MODEL.md, Tuning",
        parameters: &[DIST, SLEEP, SWITCH, WEIGHT, COMPETITORS],
        results: OPTIMUM,
        run: |i| {
            let (sleep, switch, weight) = (i.number("sleep"), i.number("switch"), i.number("weight"));
            from_zero("sleep", sleep)?;
            from_zero("switch", switch)?;
            from_zero("weight", weight)?;
            optimum(i, (sleep + weight * switch) / (1.0 + weight))
        },
    },
    Function {
        name: "spin-limit-park",
        summary: "best spin limit before parking until the releaser wakes",
        formula: "spin on while m(∆) e^(Λ∆) < b, b = c_sw + L_w/c",
        domain: "a queue; the wake-up is on the way of the get",
        source: "MODEL.md, Tuning",
        parameters: &[
            DIST,
            required("wake", Unit::Seconds, "from the release to the run of a parked session, L_w"),
            SWITCH,
            WEIGHT,
            COMPETITORS,
        ],
        results: OPTIMUM,
        run: |i| {
            let (wake, switch, weight) = (i.number("wake"), i.number("switch"), i.number("weight"));
            from_zero("wake", wake)?;
            from_zero("switch", switch)?;
            positive("weight", weight)?;
            optimum(i, switch + wake / weight)
        },
    },
    Function {
        name: "spin-limit-unknown",
        summary: "spin limit for a holding time that is not known",
        formula: "∆ = b: at most 2 times the cost of a clairvoyant; ∆ = b ln(1 + u(e - 1)), u uniform: e/(e - 1) times",
        domain: "any holding time, nobody competes",
        source: "ski rental",
        parameters: &[
            required("b", Unit::Seconds, "cost of going to sleep, as in spin-limit"),
            optional("quantile", Unit::Number, "1", "u, drawn from 0 to 1"),
        ],
        results: &[field("limit", "s", "spin limit")],
        run: |i| Ok(vec![Some(tuning::unknown(i.number("b"), i.number("quantile"))?)]),
    },
    Function {
        name: "hot-copies",
        summary: "best number of copies of a mutex for W(r) = a r/(1 - b r)",
        formula: "m = bρ + √(λaρ/c_m)",
        domain: "equal shares; b = 1, a = S_r: M/G/1; b = k, a = kT + Γ: retrial, which asks for too many copies as k falls with them",
        source: "MODEL.md, Hot copies",
        parameters: &[
            RATE,
            UTILIZATION_OF_ONE,
            required("a", Unit::Seconds, "wait per utilization at low load"),
            required("b", Unit::Number, "0 to 1"),
            COPY_COST,
        ],
        results: COPIES,
        run: |i| {
            let (rate, rho, a) = (i.number("rate"), i.number("utilization"), i.number("a"));
            copies(tuning::copies(rate, rho, a, i.number("b"), i.number("copy_cost"))?)
        },
    },
    Function {
        name: "hot-copies-open",
        summary: "best number of copies with the k that each number has",
        formula: "least λ W(ρ/m, k(ρ/m)) + c_m m over whole m",
        domain: "as wait, for each copy; up to 100000 copies",
        source: "MODEL.md, Hot copies",
        parameters: &[DIST, LIMIT, RATE, SLEEP, COPY_COST, ALL],
        results: COPIES,
        run: |i| {
            let (limit, rate, sleep) = (i.number("limit"), i.number("rate"), i.number("sleep"));
            let (all, cost) = (i.number("all"), i.number("copy_cost"));
            copies(tuning::best_copies(i.distribution("dist"), limit, rate, sleep, all, cost)?)
        },
    },
    Function {
        name: "copies",
        summary: "a mutex with a number of copies",
        formula: "each copy has λ((1 - f)/m + f), and its own k",
        domain: "as wait, for each copy; equal shares",
        source: "MODEL.md, Hot copies",
        parameters: &[DIST, LIMIT, RATE, SLEEP, required("copies", Unit::Number, "copies of the mutex, m"), ALL],
        results: &[
            field("utilization", "1", "of each copy"),
            K,
            field("sleep_rate", "1/s", "sleeps of all copies, ω"),
            WAIT,
            field("waiting", "1", "mean number of waiting sessions of all copies"),
        ],
        run: shared,
    },
    Function {
        name: "copies-unequal",
        summary: "a mutex with copies that take unequal shares of the requests",
        formula: "Σ λ w W(ρ w) with the k of each copy; 1/Σ w² equal copies would do the same at low load",
        domain: "as wait, for each copy; n sessions that are assigned at random to m copies: E Σ w² = 1/m + (1 - 1/m)/n",
        source: "MODEL.md, Hot copies",
        parameters: &[
            DIST,
            LIMIT,
            RATE,
            SLEEP,
            required("shares", Unit::Text, "of the copies, as 3/2/1; scaled to a sum of 1"),
        ],
        results: &[
            field("utilization", "1", "of the busiest copy"),
            field("sleep_rate", "1/s", "sleeps of all copies, ω"),
            WAIT,
            field("waiting", "1", "mean number of waiting sessions of all copies"),
            field("copies", "1", "equal copies that would do the same at low load"),
        ],
        run: unequal,
    },
];

const UTILIZATION_OF_ONE: Parameter =
    required("utilization", Unit::Number, "λS, which may be above 1: the copies have it together");

fn prefix(i: &Inputs) -> Results {
    let (limit, rate, sleep) = (i.number("limit"), i.number("rate"), i.number("sleep"));
    let (yields, yield_time) = (i.number("yields"), i.number("yield_time"));
    let prefix = Prefix::new(i.distribution("dist"), limit, rate, sleep, yields, yield_time)?;
    let values = [prefix.wait()?, prefix.sleeps(), prefix.all_fail, prefix.inefficiency, prefix.spin_time];
    Ok(values.map(Some).into())
}

fn yielding(i: &Inputs) -> Results {
    let (limit, rate, sleep) = (i.number("limit"), i.number("rate"), i.number("sleep"));
    let (yields, yield_time) = (i.number("yields"), i.number("yield_time"));
    let found = tagged::open(i.distribution("dist"), limit, rate, sleep, yields, yield_time)?;
    let Prefix { all_fail, duration, inefficiency, spin_time, .. } = found.prefix;
    let (wait, sleeps) = (found.wait()?, found.prefix.sleeps());
    let spins = [all_fail, duration, found.idle, inefficiency, spin_time, found.attempt_rate];
    Ok([wait, sleeps, found.yields].into_iter().chain(spins).map(Some).collect())
}

fn prefix_at(i: &Inputs) -> Results {
    let prefix = Prefix {
        utilization: i.number("utilization"),
        all_fail: i.number("k_first"),
        duration: i.number("time_first"),
        inefficiency: i.number("k"),
        spin_time: i.number("spin_time"),
        residual_mean: i.number("residual_mean"),
        sleep: i.number("sleep"),
    };
    Ok(vec![Some(prefix.wait()?), Some(prefix.sleeps())])
}

fn backoff(i: &Inputs) -> Results {
    let (rho, first, k) = (i.number("utilization"), i.number("k_first"), i.number("k"));
    let (sleep, longest) = (i.number("sleep"), i.number("sleep_max"));
    positive("sleep", sleep)?;
    from_zero("sleep_max", longest)?;
    let doubled = (0..2100).map(|i| sleep * f64::from(i).exp2()).take_while(|sleep| *sleep < longest);
    let sleeps: Vec<f64> = doubled.chain([longest]).collect();
    let wait = scheme::wait_backoff(rho, first, k, &sleeps)?;
    Ok(vec![Some(wait), Some(rho * first / (1.0 - k * rho))])
}

fn optimum(i: &Inputs, b: f64) -> Results {
    let Optimum { limit, cost, cost_without } = tuning::limit(i.distribution("dist"), b, i.number("attempt_rate"))?;
    Ok(vec![limit, Some(cost), Some(cost_without)])
}

fn copies(found: Copies) -> Results {
    Ok([found.best, found.copies, found.cost].map(Some).into())
}

fn shared(i: &Inputs) -> Results {
    let (limit, rate, sleep) = (i.number("limit"), i.number("rate"), i.number("sleep"));
    let (copies, all) = (i.number("copies"), i.number("all"));
    let shared: Result<Shared, ModelError> = tuning::shared(i.distribution("dist"), limit, rate, sleep, copies, all);
    let Shared { utilization, inefficiency, sleep_rate, wait, waiting } = shared?;
    Ok([utilization, inefficiency, sleep_rate, wait, waiting].map(Some).into())
}

fn unequal(i: &Inputs) -> Results {
    let (limit, rate, sleep) = (i.number("limit"), i.number("rate"), i.number("sleep"));
    let shares = i.text("shares").split('/').map(quantity::number).collect::<Result<Vec<f64>, _>>();
    let shares = shares.map_err(|message| ModelError::Workload { message })?;
    let unequal: Unequal = tuning::unequal(i.distribution("dist"), limit, rate, sleep, &shares)?;
    let Unequal { utilization, sleep_rate, wait, waiting, copies } = unequal;
    Ok([utilization, sleep_rate, wait, waiting, copies].map(Some).into())
}
