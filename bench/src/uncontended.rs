//! One thread that gets and releases: the price of a mutex that nobody else wants.

use crate::peers::{self, Round};
use crate::report::{Output, header};
use crate::row;
use miette::Report;
use retrial_bench::outcome::median;
use retrial_bench::output::rounded;
use retrial_bench::signals;
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

/// One thread gets and releases (the default)
#[derive(clap::Args)]
pub struct Args {
    /// Rounds through all peers
    #[arg(long, default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Time of a peer in a round, in ms
    #[arg(long, default_value_t = ROUND_MS)]
    round_ms: u64,
    /// Only peers whose name contains one of these; those that others are compared with are always measured
    #[arg(long, value_name = "PART,…", value_delimiter = ',')]
    peers: Vec<String>,
    /// Three rounds of 5 ms
    #[arg(long)]
    quick: bool,
}

const ROUNDS: u32 = 25;
const ROUND_MS: u64 = 20;

impl Default for Args {
    fn default() -> Self {
        Self { rounds: ROUNDS, round_ms: ROUND_MS, peers: Vec::new(), quick: false }
    }
}

/// What everybody is compared with.
const BARE: &str = "compare-exchange + store";
const ROBUST: &str = "pthread process-shared robust";

/// Processor time of a pair: median, least and greatest of the rounds; medians of the ratios within each
/// round.
#[derive(Serialize)]
struct Row {
    peer: String,
    ns: f64,
    ns_min: f64,
    ns_max: f64,
    to_bare_pair: f64,
    to_robust: f64,
}

pub fn run(args: &Args, output: &Output) -> Result<ExitCode, Report> {
    // glibc takes a short cut while a process has a single thread; no program that needs a mutex has one.
    std::thread::spawn(|| {
        loop {
            std::thread::park();
        }
    });
    let (rounds, round_ms) = if args.quick { (3, 5) } else { (args.rounds, args.round_ms) };
    let (bare_pairs, all) = peers::uncontended();
    let chosen: Vec<&str> = peers::chosen(all.clone(), &args.peers)?.iter().map(|entry| entry.name).collect();
    let wanted = |name: &str| chosen.contains(&name) || name == BARE || name == ROBUST;
    // The bare pairs are no mutexes: they cannot wait, count or be recovered.
    let mutexes: Vec<&str> = all[bare_pairs..].iter().map(|entry| entry.name).collect();
    let peers: Vec<_> = all.into_iter().filter(|entry| wanted(entry.name)).collect();
    let loops: Vec<Round> = peers.iter().map(peers::Entry::round).collect::<Result<_, _>>()?;
    let pairs: Vec<u64> = loops.iter().map(|round| pairs_in(round, round_ms)).collect();
    let mut ns = vec![Vec::new(); peers.len()];
    signals::catch();
    for _ in 0..rounds {
        for i in 0..peers.len() {
            ns[i].push(loops[i](pairs[i]).as_nanos() as f64 / pairs[i] as f64);
        }
        if signals::received().is_some() {
            break;
        }
    }
    let position = |name: &str| peers.iter().position(|entry| entry.name == name).unwrap_or_default();
    let (bare, robust) = (position(BARE), position(ROBUST));
    let ratio = |i: usize, to: usize| {
        let ratios = ns[i].iter().zip(&ns[to]).map(|(own, other)| own / other);
        rounded(median(ratios.collect()).unwrap_or(0.0), 2)
    };
    let middle = |i: usize| rounded(median(ns[i].clone()).unwrap_or(0.0), 2);
    let is_mutex = |i: usize| mutexes.contains(&peers[i].name);
    let best = (0..peers.len()).filter(|i| is_mutex(*i)).map(middle).fold(f64::INFINITY, f64::min);
    let row = |i: usize| Row {
        peer: format!("{}{}", peers[i].name, if !output.json && is_mutex(i) && middle(i) <= best { " *" } else { "" }),
        ns: middle(i),
        ns_min: rounded(ns[i].iter().copied().fold(f64::INFINITY, f64::min), 2),
        ns_max: rounded(ns[i].iter().copied().fold(0.0, f64::max), 2),
        to_bare_pair: ratio(i, bare),
        to_robust: ratio(i, robust),
    };
    let rows: Vec<Row> = (0..peers.len()).map(row).collect();
    let mut lines = header();
    let done = ns[0].len();
    lines.push(format!(
        "get + increment + release by one thread of two, processor time; {done} rounds of {round_ms} ms; * best of the mutexes"
    ));
    output.say(&format!("{}\n", lines.join("\n")));
    output.whole(&lines, &row::table(&rows))?;
    Ok(ExitCode::SUCCESS)
}

/// Pairs that take about so long.
fn pairs_in(round: &Round, ms: u64) -> u64 {
    let mut pairs = 10_000;
    loop {
        let took = round(pairs);
        if took >= Duration::from_millis(2) {
            let wanted = pairs as f64 * ms.max(1) as f64 / (took.as_secs_f64() * 1e3);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a few millions
            return (wanted as u64).max(1);
        }
        pairs *= 4;
    }
}
