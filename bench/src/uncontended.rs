//! One thread that gets and releases: the price of a mutex that nobody else wants.

use crate::peers::{
    Bare, Exclusive, Peer, PthreadAdaptive, PthreadDefault, PthreadRobust, Shared, Timed, TwoExchanges,
};
use crate::report::{Output, print, rounded, spread};
use retrial::sys;
use serde_json::json;
use std::hint::black_box;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    /// Rounds through all peers
    #[arg(long, default_value_t = 25)]
    rounds: usize,
    /// Time of a peer in a round, in ms
    #[arg(long, default_value_t = 20)]
    round_ms: u64,
}

impl Default for Args {
    fn default() -> Self {
        Self { rounds: 25, round_ms: 20 }
    }
}

/// A peer that does so many pairs and says how long that took.
type Round = Box<dyn Fn(u64) -> Duration>;

fn peer<P: Peer + 'static>() -> (&'static str, Round) {
    let peer: &'static P = Box::leak(Box::new(P::new(1)));
    let session: &'static P::Session = Box::leak(Box::new(peer.session()));
    (P::NAME, Box::new(move |pairs| pairs_of(black_box(peer), black_box(session), pairs)))
}

/// The loop: monomorphic, so that each peer is inlined into its own. By the thread's own clock, which stands still while
/// others have the processor.
#[inline(never)]
fn pairs_of<P: Peer>(peer: &'static P, session: &P::Session, pairs: u64) -> Duration {
    let start = sys::thread_cpu_ns();
    for _ in 0..pairs {
        peer.with(session, |value| *value = value.wrapping_add(1));
    }
    Duration::from_nanos(sys::thread_cpu_ns() - start)
}

pub fn run(args: &Args, output: Output) {
    let peers = [
        peer::<Bare>(),
        peer::<TwoExchanges>(),
        peer::<Exclusive>(),
        peer::<Timed>(),
        peer::<Shared>(),
        peer::<std::sync::Mutex<u64>>(),
        peer::<parking_lot::Mutex<u64>>(),
        peer::<PthreadDefault>(),
        peer::<PthreadAdaptive>(),
        peer::<PthreadRobust>(),
    ];
    let (bare, robust) = (0, peers.len() - 1);
    let pairs: Vec<u64> = peers.iter().map(|(_, round)| pairs_in(round, args.round_ms)).collect();
    let mut ns = vec![Vec::new(); peers.len()];
    for _ in 0..args.rounds.max(1) {
        for (i, (_, round)) in peers.iter().enumerate() {
            ns[i].push(round(pairs[i]).as_nanos() as f64 / pairs[i] as f64);
        }
    }
    let ratio = |i: usize, to: usize| {
        let mut ratios: Vec<f64> = ns[i].iter().zip(&ns[to]).map(|(own, other)| own / other).collect();
        rounded(spread(&mut ratios).0, 2)
    };
    let spreads: Vec<(f64, f64, f64)> = ns.iter().map(|values| spread(&mut values.clone())).collect();
    // The bare pairs are no mutexes: they cannot wait, count or be recovered.
    let best = spreads[2..].iter().map(|s| s.0).fold(f64::INFINITY, f64::min);
    let rows: Vec<_> = (0..peers.len())
        .map(|i| {
            let (median, least, most) = spreads[i];
            let mark = if i >= 2 && median <= best { " *" } else { "" };
            vec![
                json!(format!("{}{}", peers[i].0, if output.is_text() { mark } else { "" })),
                json!(rounded(median, 2)),
                json!(rounded(least, 2)),
                json!(rounded(most, 2)),
                json!(ratio(i, bare)),
                json!(ratio(i, robust)),
            ]
        })
        .collect();
    if output.is_text() {
        println!("{}", crate::machine::line());
        println!(
            "get + increment + release by one thread of two, processor time; {} rounds of {} ms\n",
            args.rounds, args.round_ms
        );
    }
    print(&["peer", "ns", "ns_min", "ns_max", "to_bare_pair", "to_robust"], &rows, output);
    if output.is_text() {
        println!("\n* best of the mutexes; ns: median of the rounds; ratios: median of the ratios within each round");
    }
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
