//! A storm of kills: processes that get mutexes in every mode and in every scheme, killed by SIGKILL at any moment and
//! replaced; and a soak, which is the same with many processes for a long time.
//!
//! Without the harness of the other tests: this process has one thread, so that a child of fork is a process
//! like any other.
//!
//! | variable | what | default |
//! |---|---|---|
//! | `RETRIAL_STORM_KILLS` | kills in all rounds together | 2000 |
//! | `RETRIAL_STORM_SEED` | of whom is killed when, and what workers do; not of what the kernel does in between | by the clock |
//! | `RETRIAL_STORM_SCHEMES` | rounds to do, by name, with commas | all |
//! | `RETRIAL_STORM_SIGNALS` | signals of conditions | 10000 |
//! | `RETRIAL_STORM_KILL_EVERY` | signals between two kills, on average | 150 |
//! | `RETRIAL_STORM_GLIBC` | 1: glibc's conditions under the same load too | 0 |
//! | `RETRIAL_SOAK_SECONDS` | of the middle phase, in which workers are killed | 2 |
//! | `RETRIAL_SOAK_PROCESSES` | workers at a time | 32 |
//! | `RETRIAL_SOAK_SCHEME` | scheme | orbit |

#[path = "storm/board.rs"]
mod board;
#[path = "storm/crew.rs"]
mod crew;
#[path = "storm/outcome.rs"]
mod outcome;
#[path = "storm/random.rs"]
mod random;
#[path = "storm/settings.rs"]
mod settings;
#[path = "storm/soak.rs"]
mod soak;
#[path = "storm/tokens.rs"]
mod tokens;
#[path = "storm/worker.rs"]
mod worker;

use crew::{Aim, Crew, Plan, Stage};
use outcome::Outcome;
use random::Random;
use retrial::{P, wait};
use settings::{seed, setting};
use std::time::{Duration, Instant};

/// Workers at a time, one round each.
const SIZES: [usize; 3] = [2, 8, 64];

/// A round: the scheme, `None` for one that changes, and `fairness`.
struct Round {
    name: String,
    scheme: Option<u64>,
    fairness: u64,
}

/// Every scheme, `orbit` in all its fairness, and all of them in turn.
fn rounds() -> Vec<Round> {
    let balanced = P::Fairness.row().default;
    let round = |name: &str, scheme: Option<usize>, fairness| Round {
        name: name.into(),
        scheme: scheme.map(|scheme| scheme as u64),
        fairness,
    };
    let mut rounds: Vec<Round> =
        wait::NAMES.iter().enumerate().map(|(scheme, name)| round(name, Some(scheme), balanced)).collect();
    let orbit = wait::named("orbit");
    rounds.push(round("orbit-throughput", orbit, 0));
    rounds.push(round("orbit-fifo", orbit, 2));
    rounds.push(round("switching", None, balanced));
    rounds
}

/// One round with so many workers.
fn weather(round: &Round, plan: &Plan<'_>, kills: u64) -> Outcome {
    let random = Random::of(plan.seed, "params", plan.workers as u64);
    // Short: handovers are to happen between two kills.
    let interval = [1, 50, P::HandoverInterval.row().default][random.below(3) as usize];
    let params = [
        (P::Scheme, round.scheme.unwrap_or(0)),
        (P::Fairness, round.fairness),
        (P::HandoverInterval, interval),
        // Without optimisation 20,000 polls are milliseconds.
        (P::LatchSpinCount, 1000),
        // So that `adaptive` changes its type now and then.
        (P::CheckEvery, 16),
        (P::Streak, 2),
        (P::YdbThreshold, 2),
    ];
    let stage = Stage::new(plan.workers, &params);
    let mut crew = Crew::muster(plan, &stage);
    while crew.kills() < kills {
        if !crew.random.one_in(4) {
            crew.pass(Duration::from_micros(crew.random.below(800)));
        }
        match crew.random.below(8) {
            0 => crew.stop(crew.aim(Aim::Anybody)),
            1 | 2 => crew.let_go_on(),
            3 => crew.replace(crew.aim(Aim::Holder)),
            4 => crew.replace(crew.aim(Aim::Recoverer)),
            _ => crew.replace(crew.aim(Aim::Anybody)),
        }
        if round.scheme.is_none() {
            crew.set(P::Scheme, crew.random.below(wait::NAMES.len() as u64));
            crew.set(P::Fairness, crew.random.below(3));
        }
    }
    crew.dismiss()
}

fn storm() {
    let seed = seed();
    let wanted = std::env::var("RETRIAL_STORM_SCHEMES").ok();
    let mut rounds = rounds();
    if let Some(wanted) = &wanted {
        for name in wanted.split(',') {
            assert!(rounds.iter().any(|round| round.name == name), "RETRIAL_STORM_SCHEMES: no `{name}`");
        }
        rounds.retain(|round| wanted.split(',').any(|name| name == round.name));
    }
    let kills = setting::<u64>("RETRIAL_STORM_KILLS", 2000).div_ceil((rounds.len() * SIZES.len()) as u64);
    println!("seed {seed:#x}");
    println!("{:<16}{} {:>6}", "round", Outcome::heads(), "s");
    let (mut total, start) = (Outcome::default(), Instant::now());
    for round in &rounds {
        let (mut sum, start) = (Outcome::default(), Instant::now());
        let again = format!(
            "RETRIAL_STORM_SEED={seed:#x} RETRIAL_STORM_KILLS={} RETRIAL_STORM_SCHEMES={} cargo test -p retrial --test storm storm",
            kills * SIZES.len() as u64,
            round.name
        );
        for workers in SIZES {
            let mutexes = 1 + Random::of(seed, &round.name, workers as u64).below(board::MUTEXES as u64) as usize;
            let fair = round.scheme == Some(wait::DEFAULT as u64) && round.fairness != 0;
            let plan = Plan { name: &round.name, workers, mutexes, seed, fair, again: &again };
            sum.add_all(&weather(round, &plan, kills));
        }
        print(&round.name, &sum, start);
        total.add_all(&sum);
    }
    print("total", &total, start);
}

fn print(name: &str, outcome: &Outcome, start: Instant) {
    println!("{name:<16}{} {:>6.1}", outcome.row(), start.elapsed().as_secs_f64());
}

const TESTS: &[(&str, fn())] = &[
    ("in_a_storm_of_kills_nothing_is_lost_and_the_living_go_on", storm),
    ("a_soak_in_kills_loses_nothing", soak::soak),
    ("tokens_pass_by_conditions_whoever_is_killed", tokens::tokens),
];

/// What the harness of the other tests does with the arguments that matter here: names, `--exact`, `--skip`, `--list`.
fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut names, mut skipped, mut exact, mut list, mut ignored) = (Vec::new(), Vec::new(), false, false, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--exact" => exact = true,
            "--list" => list = true,
            "--ignored" => ignored = true,
            "--skip" => skipped.extend(arguments.next()),
            "--test-threads" | "--format" | "--color" | "--logfile" | "-Z" => drop(arguments.next()),
            flag if flag.starts_with('-') => {}
            _ => names.push(argument),
        }
    }
    let matches = |test: &str, name: &String| if exact { test == name } else { test.contains(name.as_str()) };
    let chosen: Vec<_> = TESTS
        .iter()
        .filter(|(test, _)| names.is_empty() || names.iter().any(|name| matches(test, name)))
        .filter(|(test, _)| !ignored && !skipped.iter().any(|name| matches(test, name)))
        .collect();
    if list {
        for (test, _) in chosen {
            println!("{test}: test");
        }
        return;
    }
    println!("\nrunning {} tests", chosen.len());
    let start = Instant::now();
    for (test, run) in &chosen {
        println!("test {test} ...");
        run();
        println!("test {test} ... ok");
    }
    // A test that fails ends the process there and then, with what it has found.
    println!(
        "\ntest result: ok. {} passed; 0 failed; 0 ignored; 0 measured; {} filtered out; finished in {:.2}s\n",
        chosen.len(),
        TESTS.len() - chosen.len(),
        start.elapsed().as_secs_f64()
    );
}
