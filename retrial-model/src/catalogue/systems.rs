//! Exact chains and closed systems.

use super::{DIST, LIMIT, RATE, Results, SLEEP, WAIT, field, optional, required};
use crate::chain::{self, Steady};
use crate::closed::{self, Branch, Closed, Population};
use crate::closure;
use crate::error::ModelError;
use crate::function::{Field, Function, Inputs, Parameter, Unit};

const SESSIONS: Parameter = required("sessions", Unit::Number, "sessions, N");
const THINK: Parameter = required("think", Unit::Seconds, "mean time between a release and the next request, Z");

const AWAY: Parameter = optional("away", Unit::Number, "0", "1: sessions think away from the processors");
const YIELD: Parameter = optional("yield_time", Unit::Seconds, "0.7us", "duration of a yield, y");
const WAKE: Parameter = required("wake", Unit::Seconds, "from the release to the run of a parked session, L_w");
const PROCESSORS: Parameter = optional("processors", Unit::Number, "", "processors, C; one for each session if absent");

const THROUGHPUT: Field = field("throughput", "1/s", "gets, X");
const HELD: Field = field("utilization", "1", "share of time that the mutex is held");
const MISSES: Field = field("misses", "1", "share of gets that find the mutex busy");
const SLEEPS: Field = field("sleeps", "1", "sleeps or parks per get");
const YIELDS: Field = field("yields", "1", "yields per get");
const RUNNABLE: Field = field("runnable", "1", "mean number of sessions that run or want to");

const CLOSED: &[Field] = &[THROUGHPUT, HELD, WAIT, MISSES, SLEEPS, YIELDS, RUNNABLE];
const SLOWED: &[Field] = &[
    THROUGHPUT,
    HELD,
    WAIT,
    MISSES,
    SLEEPS,
    YIELDS,
    RUNNABLE,
    field("slowdown", "1", "by what the processors are too few, g; 1 if they are not"),
];
const IN_TURNS: &[Field] = &[
    THROUGHPUT,
    HELD,
    WAIT,
    MISSES,
    SLEEPS,
    YIELDS,
    RUNNABLE,
    field("active", "1", "sessions that take part while the others wait for a processor"),
];

const CHAIN: &[Field] = &[
    field("throughput", "1/s", "gets"),
    field("k", "1", "failed spins by attempts that found the mutex busy; 0 if none did"),
    field("spin_time", "s", "mean time of a spin, Γ; 0 if there is none"),
    WAIT,
    field("spinning", "s", "spin part of the wait, W_s"),
    field("misses", "1", "attempts per get that found the mutex busy, M"),
    field("sleeps", "1", "sleeps per get"),
    field("idle_wait", "s", "part of the wait while the mutex is free, W_idle"),
    field("sleepers", "1", "mean number of sleepers at an acquisition"),
];

pub(super) static FUNCTIONS: &[Function] = &[
    Function {
        name: "chain-open",
        summary: "the open system with exponential sleeps, exactly",
        formula: "Markov chain of the sleepers at acquisitions",
        domain: "ρ below 1, E X² finite, losers of a release sleep; up to 50000 sleepers",
        source: "theorem; MODEL.md, Exact chain",
        parameters: &[DIST, LIMIT, RATE, SLEEP],
        results: CHAIN,
        run: |i| {
            let (limit, rate) = (i.number("limit"), i.number("rate"));
            chain(chain::open(i.distribution("dist"), limit, rate, i.number("sleep"))?)
        },
    },
    Function {
        name: "chain-closed",
        summary: "sessions that think and sleep for exponential times, exactly",
        formula: "Markov chain of the sleepers at acquisitions",
        domain: "a processor for each session, losers of a release sleep; up to 1000 sessions",
        source: "theorem; MODEL.md, Exact chain",
        parameters: &[DIST, LIMIT, SESSIONS, THINK, SLEEP],
        results: CHAIN,
        run: |i| {
            let (limit, sessions, think) = (i.number("limit"), i.number("sessions"), i.number("think"));
            chain(chain::closed(i.distribution("dist"), limit, sessions, think, i.number("sleep"))?)
        },
    },
    Function {
        name: "closed-spin",
        summary: "sessions that spin and yield for ever (10g, scheme 0)",
        formula: "W_n = U_(n-1) S_r + S L_(n-1), X_n = n/(Z + S + W_n); processors shared equally: S, ∆, y, and Z on them, times g, g = R/C",
        domain: "E X² finite; exact for exponential times, X up to 8 % too high for more regular ones and 12 % \
                 too low for c² = 5 from 2 to 32 sessions. Fewer processors than runnable sessions: pure spin \
                 collapses, X +6 to -17 % where turns are much shorter than S; where they are longer, as on Linux, \
                 closed-spin-turns",
        source: "mean value analysis of M/G/1//N",
        parameters: &[DIST, LIMIT, SESSIONS, THINK, AWAY, YIELD, PROCESSORS],
        results: SLOWED,
        run: |i| {
            let (limit, pause) = (i.number("limit"), i.number("yield_time"));
            slowed(i, |g| closed::spinning(i.distribution("dist"), limit, population(i).slowed(g), pause))
        },
    },
    Function {
        name: "closed-spin-turns",
        summary: "the same on processors that take turns much longer than S, yields honoured",
        formula: "the population n with R(n) = C takes part",
        domain: "as closed-spin: X +5 to -17 % at N/C = 1.5 to 3, below -1 % for c² = 5 only; throughput does not collapse",
        source: "MODEL.md, Closed systems",
        parameters: &[DIST, LIMIT, SESSIONS, THINK, AWAY, YIELD, TURNS],
        results: IN_TURNS,
        run: |i| {
            let (limit, pause) = (i.number("limit"), i.number("yield_time"));
            in_turns(i, |population| closed::spinning(i.distribution("dist"), limit, population, pause))
        },
    },
    Function {
        name: "closed-spin-preempted",
        summary: "the same without yields, in turns on too few processors: a preempted holder keeps everybody waiting",
        formula: "X = X_C/(1 + U_C (N - C)/C), X_C that of C sessions",
        domain: "E X² finite; X up to 16 % too low at N/C = 1.5 to 3 (Z = 5 S, 4 and 8 processors)",
        source: "MODEL.md, Closed systems",
        parameters: &[DIST, LIMIT, SESSIONS, THINK, TURNS],
        results: CLOSED,
        run: |i| {
            let (limit, processors) = (i.number("limit"), i.number("processors"));
            let population = Population { sessions: i.number("sessions"), think: i.number("think"), away: false };
            plain(closed::preempted(i.distribution("dist"), limit, population, processors)?)
        },
    },
    Function {
        name: "closed-sleep",
        summary: "many sessions that sleep after every failed spin",
        formula: "N = X(Z + S) + ΛU(Γ + kT), X = 1/(S + φ/Λ), U = XS",
        domain: "large N: X up to 1.6/N too low; chain-closed is exact. Processors shared equally if there are fewer than runnable sessions",
        source: "mean field of the exact chain",
        parameters: &[DIST, LIMIT, SESSIONS, THINK, AWAY, SLEEP, PROCESSORS],
        results: SLOWED,
        run: |i| {
            let (limit, sleep) = (i.number("limit"), i.number("sleep"));
            slowed(i, |g| closed::sleeping(i.distribution("dist"), limit, population(i).slowed(g), sleep / g))
        },
    },
    Function {
        name: "closed-scheme",
        summary: "sessions that yield before they sleep: patch 6904068 (0 yields), scheme 1 (1), scheme 2 (2)",
        formula: "at an acquisition each of the others thinks, sleeps or has lost by itself; shares that one holding and one idle time give again",
        domain: "exact for 2 sessions without yields; else X within 6 % from 4 to 32 sessions for T = 100 S, down to 40 % too low for times always the same where T is much longer than Z (chain-closed is exact without yields); up to 1000 sessions, 10 yields, sleeps from a tenth of the spin limit. Processors shared equally: X 9 to 21 % too high beside run queues",
        source: "multinomial closure of the exact chain; MODEL.md, Closed systems",
        parameters: &[
            DIST,
            LIMIT,
            SESSIONS,
            THINK,
            AWAY,
            SLEEP,
            optional("yields", Unit::Number, "0", "yields before the first sleep, c"),
            YIELD,
            PROCESSORS,
        ],
        results: SLOWED,
        run: |i| {
            let (limit, sleep) = (i.number("limit"), i.number("sleep"));
            let (yields, pause) = (i.number("yields"), i.number("yield_time"));
            slowed(i, |g| {
                let population = population(i).slowed(g);
                closure::closed(i.distribution("dist"), limit, population, sleep / g, yields, pause)
            })
        },
    },
    Function {
        name: "closed-fifo",
        summary: "a FIFO queue that spins, parks and hands over",
        formula: "M/G/1//N with the service S + p L_w, p: the share of holders that were parked",
        domain: "two stable solutions: the lock convoy, or spinning=1 from a queue that spins; X within 2.5 % from 2 to 32 sessions",
        source: "MODEL.md, Closed systems",
        parameters: &[
            DIST,
            LIMIT,
            SESSIONS,
            THINK,
            AWAY,
            WAKE,
            optional("spinning", Unit::Number, "0", "1: the solution without a convoy"),
        ],
        results: CLOSED,
        run: |i| {
            let branch = if i.number("spinning") == 0.0 { Branch::Convoy } else { Branch::Spinning };
            plain(closed::fifo(i.distribution("dist"), i.number("limit"), population(i), i.number("wake"), branch)?)
        },
    },
    Function {
        name: "closed-barge",
        summary: "a park queue that lets others in before the one woken, one wake-up at a time",
        formula: "parks/s = 1/(L_w + 1/X) with the X of those awake",
        domain: "E X² finite; X -5 to +17 % from 2 to 32 sessions (most with L_w = 3 S, ∆ = S/2, Z = S), W -22 to +11 % where it is above S, up to 3 times too long where it is below",
        source: "MODEL.md, Closed systems",
        parameters: &[DIST, LIMIT, SESSIONS, THINK, AWAY, WAKE],
        results: CLOSED,
        run: |i| plain(closed::barging(i.distribution("dist"), i.number("limit"), population(i), i.number("wake"))?),
    },
];

const TURNS: Parameter = required("processors", Unit::Number, "processors, C");

fn population(i: &Inputs) -> Population {
    Population { sessions: i.number("sessions"), think: i.number("think"), away: i.number("away") != 0.0 }
}

fn plain(closed: Closed) -> Results {
    let Closed { throughput, utilization, wait, misses, sleeps, yields, runnable } = closed;
    Ok([throughput, utilization, wait, misses, sleeps, yields, runnable].map(Some).into())
}

fn slowed(i: &Inputs, system: impl Fn(f64) -> Result<Closed, ModelError>) -> Results {
    let (closed, slow) = match i.optional("processors") {
        Some(processors) => closed::shared(processors, i.number("sessions"), system)?,
        None => (system(1.0)?, 1.0),
    };
    let mut results = plain(closed)?;
    results.push(Some(slow));
    Ok(results)
}

fn in_turns(i: &Inputs, system: impl Fn(Population) -> Result<Closed, ModelError>) -> Results {
    let mean = i.distribution("dist").mean();
    let (closed, active) = closed::in_turns(i.number("processors"), population(i), mean, system)?;
    let mut results = plain(closed)?;
    results.push(Some(active));
    Ok(results)
}

fn chain(steady: Steady) -> Results {
    let Steady { inefficiency, spin_time, misses, sleeps, wait, spinning, idle_wait, sleepers, throughput } = steady;
    Ok([throughput, inefficiency, spin_time, wait, spinning, misses, sleeps, idle_wait, sleepers].map(Some).into())
}
