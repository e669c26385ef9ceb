//! Many threads and one mutex.

use crate::machine::cores;
use crate::peers::{Peer, PthreadAdaptive, PthreadDefault, PthreadRobust, Scheme};
use crate::report::{Output, print, rounded, spread};
use crate::work::{self, Work};
use retrial::sys;
use serde_json::json;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    /// Numbers of threads; twice the cores is always one of them
    #[arg(long, default_value = "1,2,8,64,256", value_delimiter = ',')]
    threads: Vec<u32>,
    /// Times in the critical section, in ns
    #[arg(long, default_value = "0,100,1000", value_delimiter = ',')]
    cs_ns: Vec<u64>,
    /// Rounds through all peers
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Time of a peer in a round, in ms
    #[arg(long, default_value_t = 200)]
    round_ms: u64,
    /// Only peers whose name contains one of these
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
}

/// What came of one round of a peer.
struct Sample {
    mops: f64,
    cpu: f64,
    jain: f64,
    longest_ms: f64,
}

type Measure = fn(u32, u64, Duration) -> Sample;

/// Every peer; schemes by their position in `retrial::wait::NAMES`.
const PEERS: [(&str, Measure); 15] = [
    entry::<std::sync::Mutex<u64>>(),
    entry::<parking_lot::Mutex<u64>>(),
    entry::<PthreadDefault>(),
    entry::<PthreadAdaptive>(),
    entry::<PthreadRobust>(),
    entry::<Scheme<0>>(),
    entry::<Scheme<1>>(),
    entry::<Scheme<2>>(),
    entry::<Scheme<3>>(),
    entry::<Scheme<4>>(),
    entry::<Scheme<5>>(),
    entry::<Scheme<6>>(),
    entry::<Scheme<7>>(),
    entry::<Scheme<8>>(),
    entry::<Scheme<9>>(),
];

const _: () = assert!(PEERS.len() - 5 == retrial::wait::NAMES.len(), "every scheme is a peer");

/// Those measured unless others are asked for.
const USUAL: [&str; 9] = ["std", "parking_lot", "pthread", "orbit", "ydb", "sleep", "backoff", "adaptive", "latch"];

const fn entry<P: Peer>() -> (&'static str, Measure) {
    (P::NAME, measure::<P>)
}

fn measure<P: Peer>(threads: u32, rounds: u64, duration: Duration) -> Sample {
    let peer = P::new(threads);
    let (stop, cpu_ns, longest_ns) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    // When the first thread began: this one may come late to its own start beside so many.
    let start_ns = AtomicU64::new(u64::MAX);
    let barrier = Barrier::new(threads as usize + 1);
    let (ops, elapsed) = std::thread::scope(|scope| {
        let spawn = |_| {
            let work = || {
                let session = peer.session();
                barrier.wait();
                start_ns.fetch_min(sys::now_ns(), Ordering::Relaxed);
                let cpu = sys::thread_cpu_ns();
                let (mut ops, mut longest) = (0u64, 0u64);
                while !stop.load(Ordering::Relaxed) {
                    // Only what the clock can see without being the load: every 16th.
                    let asked = if ops % 16 == 0 { sys::now_ns() } else { 0 };
                    peer.with(&session, |value| {
                        *value = value.wrapping_add(1);
                        if rounds > 0 {
                            work::spin(rounds);
                        }
                    });
                    if asked != 0 {
                        longest = longest.max(sys::now_ns() - asked);
                    }
                    ops += 1;
                }
                cpu_ns.fetch_add(sys::thread_cpu_ns() - cpu, Ordering::Relaxed);
                longest_ns.fetch_max(longest, Ordering::Relaxed);
                ops
            };
            std::thread::Builder::new().stack_size(128 << 10).spawn_scoped(scope, work).expect("a thread")
        };
        let workers: Vec<_> = (0..threads).map(spawn).collect();
        barrier.wait();
        std::thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
        let elapsed = (sys::now_ns() - start_ns.load(Ordering::Relaxed)) as f64 / 1e9;
        let ops: Vec<f64> = workers.into_iter().map(|worker| worker.join().expect("no panic") as f64).collect();
        (ops, elapsed)
    });
    let (sum, squares) = (ops.iter().sum::<f64>(), ops.iter().map(|x| x * x).sum::<f64>());
    Sample {
        mops: sum / elapsed / 1e6,
        cpu: cpu_ns.into_inner() as f64 / 1e9 / elapsed,
        jain: if squares > 0.0 { sum * sum / (ops.len() as f64 * squares) } else { 1.0 },
        longest_ms: longest_ns.into_inner() as f64 / 1e6,
    }
}

pub fn run(args: &Args, output: Output) {
    let wanted = |name: &str| {
        if args.peers.is_empty() {
            USUAL.iter().any(|usual| name.starts_with(usual))
        } else {
            args.peers.iter().any(|part| name.contains(part.as_str()))
        }
    };
    let peers: Vec<_> = PEERS.into_iter().filter(|(name, _)| wanted(name)).collect();
    let mut threads = args.threads.clone();
    threads.push(u32::try_from(2 * cores()).unwrap_or(u32::MAX));
    threads.sort_unstable();
    threads.dedup();
    let work = Work::calibrate();
    if output.is_text() {
        println!("{}", crate::machine::line());
        println!("threads on one mutex; {} rounds of {} ms; * best of its group\n", args.rounds, args.round_ms);
    }
    let mut rows = Vec::new();
    for &cs_ns in &args.cs_ns {
        for &threads in &threads {
            let rounds = work.rounds(Duration::from_nanos(cs_ns));
            let mut samples: Vec<Vec<Sample>> = peers.iter().map(|_| Vec::new()).collect();
            for _ in 0..args.rounds.max(1) {
                for ((_, measure), samples) in peers.iter().zip(&mut samples) {
                    samples.push(measure(threads, rounds, Duration::from_millis(args.round_ms)));
                }
            }
            let of = |samples: &[Sample], figure: fn(&Sample) -> f64| {
                spread(&mut samples.iter().map(figure).collect::<Vec<_>>())
            };
            let best = samples.iter().map(|s| of(s, |s| s.mops).0).fold(0.0, f64::max);
            for ((name, _), samples) in peers.iter().zip(&samples) {
                let (median, least, most) = of(samples, |s| s.mops);
                let mark = if output.is_text() && median >= best { " *" } else { "" };
                rows.push(vec![
                    json!(format!("{name}{mark}")),
                    json!(threads),
                    json!(cs_ns),
                    json!(rounded(median, 3)),
                    json!(rounded(least, 3)),
                    json!(rounded(most, 3)),
                    json!(rounded(median / best, 2)),
                    json!(rounded(of(samples, |s| s.cpu).0, 2)),
                    json!(rounded(of(samples, |s| s.jain).0, 3)),
                    json!(rounded(of(samples, |s| s.longest_ms).0, 2)),
                ]);
            }
            if output.is_text() {
                print(&COLUMNS, &std::mem::take(&mut rows), output);
                println!();
            }
        }
    }
    if !output.is_text() {
        print(&COLUMNS, &rows, output);
    }
}

const COLUMNS: [&str; 10] =
    ["peer", "threads", "cs_ns", "mops_per_s", "min", "max", "to_best", "cpu_s_per_s", "jain", "longest_ms"];
