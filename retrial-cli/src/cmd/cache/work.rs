//! `retrial cache work`: the sources' workload of one cursor that all sessions execute.

use super::{One, cache_error, duration, session_error, signals};
use crate::output::{Format, Table, counted};
use miette::Report;
use retrial::views::Counter;
use retrial::{Class, Instance};
use retrial_cache::{Cache, Key, Namespace};
use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Execute one cursor from many sessions: got in E, shared while it runs, got in E again to be given back
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    one: One,
    /// Sessions, as threads
    #[arg(long, value_name = "N", default_value_t = 4)]
    sessions: u32,
    /// How long, with its unit
    #[arg(long = "for", value_name = "TIME", default_value = "5s")]
    time: String,
    /// How long an execution runs, as busy work
    #[arg(long, value_name = "TIME", default_value = "3us")]
    run: String,
    /// Hot copies of the cursor
    #[arg(long, value_name = "N", default_value_t = 1)]
    copies: u8,
}

const CURSOR: Key<'_> = Key::new(Namespace::Child, "", "select 1 from dual where 1=2");

pub fn run(args: &Args, format: Format) -> Result<ExitCode, Report> {
    let time = duration::argument("--for", &args.time)?;
    let busy = duration::argument("--run", &args.run)?;
    let instance = args.one.which.attach()?;
    let cache = Cache::open(&instance, &args.one.cache).map_err(cache_error)?;
    let session = instance.session("retrial cache", Class::Normal).map_err(session_error)?;
    let client = cache.join(&session).map_err(cache_error)?;
    let plan = client.get_or_insert(&CURSOR, b"a plan").map_err(cache_error)?;
    drop(plan);
    client.mark_hot(&CURSOR, args.copies).map_err(cache_error)?;
    signals::catch();
    let before = waits(&instance);
    let (stop, executed, failed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicBool::new(false));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..args.sessions {
            scope.spawn(|| match execute(&instance, &cache, busy, &stop) {
                Ok(count) => {
                    executed.fetch_add(count, Ordering::Relaxed);
                }
                Err(error) => {
                    eprintln!("{error:?}");
                    failed.store(true, Ordering::Relaxed);
                    stop.store(true, Ordering::Relaxed);
                }
            });
        }
        while start.elapsed() < time && signals::received().is_none() && !stop.load(Ordering::Relaxed) {
            retrial::sys::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let (elapsed, after) = (start.elapsed().as_secs_f64(), waits(&instance));
    let (executed, misses, waited) = (executed.into_inner(), after.0 - before.0, (after.1 - before.1) as f64 / 1e9);
    let cells = [
        ("sessions", args.sessions.into()),
        ("copies", u32::from(args.copies).into()),
        ("executed", executed.into()),
        ("executions_per_s", (executed as f64 / elapsed).into()),
        ("misses", misses.into()),
        ("wait_s", waited.into()),
    ];
    if format.is_text() {
        format.say(&format!(
            "{} executed the cursor {executed} times in {elapsed:.2} s, with {}:",
            counted(args.sessions.into(), "session", "sessions"),
            counted(args.copies.into(), "copy", "copies"),
        ));
    }
    Table::one(cells).print(format);
    Ok(if failed.into_inner() { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

/// Gets that found a mutex busy, and ns waited, by all sessions of an instance so far.
fn waits(instance: &Instance) -> (u64, u64) {
    let sum = |counter: Counter| instance.tables().figures().iter().map(|(_, _, figures)| figures.get(counter)).sum();
    let times = [Counter::SpinNs, Counter::YieldNs, Counter::SleptNs, Counter::OverNs];
    (sum(Counter::Misses), times.map(sum).iter().sum())
}

fn execute(instance: &Instance, cache: &Cache<'_>, busy: Duration, stop: &AtomicBool) -> Result<u64, Report> {
    let session = instance.session("cache work", Class::Normal).map_err(session_error)?;
    let client = cache.join(&session).map_err(cache_error)?;
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let run = |_: &[u8]| {
            let start = Instant::now();
            while start.elapsed() < busy {
                std::hint::spin_loop();
            }
        };
        let done = client.execute(&CURSOR, run).map_err(cache_error)?;
        if done.is_none() {
            // It was evicted meanwhile.
            let build = |bytes: &mut [u8]| {
                bytes.copy_from_slice(b"a plan");
                Ok::<_, Infallible>(())
            };
            drop(client.get_or_create(&CURSOR, 6, build).map_err(cache_error)?);
        }
        count += 1;
    }
    Ok(count)
}
