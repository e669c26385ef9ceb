//! A load that measures itself: what each tool says of it.

#![allow(missing_docs)]

mod kit;

use kit::directory::File;
use kit::{Scratch, command};
use retrial::{Class, location};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const HOLD: Duration = Duration::from_micros(400);
const THINK: Duration = Duration::from_micros(500);
const SESSIONS: u32 = 2;
/// Each tool looks so long, every 10 ms.
const FOR: &str = "20s";
const LOOKS: f64 = 2_000.0;

/// What the load has counted so far, each by a clock or a flag of its own.
#[derive(Default)]
struct Truth {
    gets: AtomicU64,
    held_ns: AtomicU64,
    /// Requests that found another session holding.
    busy: AtomicU64,
    holding: AtomicU32,
    stop: AtomicBool,
}

/// Ends the load, also where what is asked fails.
struct End<'a>(&'a Truth);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Relaxed);
    }
}

/// A moment of it.
#[derive(Clone, Copy)]
struct At {
    time: Instant,
    gets: u64,
    held_ns: u64,
    busy: u64,
}

impl Truth {
    fn now(&self) -> At {
        let (gets, held_ns, busy) = (self.gets.load(Relaxed), self.held_ns.load(Relaxed), self.busy.load(Relaxed));
        At { time: Instant::now(), gets, held_ns, busy }
    }

    fn work(&self, instance: &retrial::Instance, mutex: &retrial::Mutex<u64>) {
        let session = instance.session("load", Class::Normal).unwrap();
        while !self.stop.load(Relaxed) {
            self.busy.fetch_add(u64::from(self.holding.load(Relaxed) > 0), Relaxed);
            let held = mutex.exclusive(&session, location!("load")).unwrap();
            self.holding.store(1, Relaxed);
            let since = Instant::now();
            busy_for(HOLD);
            let held_ns = u64::try_from(since.elapsed().as_nanos()).unwrap();
            self.holding.store(0, Relaxed);
            drop(held);
            self.held_ns.fetch_add(held_ns, Relaxed);
            self.gets.fetch_add(1, Relaxed);
            std::thread::sleep(THINK);
        }
    }
}

fn busy_for(time: Duration) {
    let since = Instant::now();
    while since.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// λ in 1/s, S in us, U and ρ from one moment to the next.
fn figures(from: At, to: At) -> [f64; 4] {
    let time_s = (to.time - from.time).as_secs_f64();
    let [gets, held_ns, busy] =
        [to.gets - from.gets, to.held_ns - from.held_ns, to.busy - from.busy].map(|count| count as f64);
    [gets / time_s, held_ns / 1e3 / gets, held_ns / 1e9 / time_s, busy / gets]
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn number(row: &Value, name: &str) -> Option<f64> {
    row[name].as_f64()
}

fn pct(row: &Value, name: &str) -> Option<f64> {
    Some(number(row, name)? / 100.0)
}

/// What a tool says, `None` where it does not say it, beside the truth. S and U are from looks: what chance does
/// to so many of them (nineteen times of twenty) is not held against a tool.
fn compare(tool: &str, said: [Option<f64>; 4], truth: [f64; 4], worst: &mut f64) {
    print!("{tool:14}");
    let chance = 1.96 * ((1.0 - truth[2]) / truth[2] / LOOKS).sqrt();
    for ((name, said), truth) in ["λ", "S us", "U", "ρ"].iter().zip(said).zip(truth) {
        let Some(said) = said else { continue };
        let off = said / truth - 1.0;
        print!("  {name} {said:.4} of {truth:.4} ({:+.2} %)", 100.0 * off);
        let sampled = *name == "S us" || *name == "U";
        *worst = worst.max(off.abs() - if sampled { chance } else { 0.0 });
    }
    println!();
}

/// `cargo test --release -p retrial-cli --test truth -- --ignored --nocapture`
#[test]
#[ignore = "measures: for a machine that does nothing else, in release"]
fn every_tool_tells_the_load_within_3_percent() {
    let scratch = Scratch::new();
    let file = File::new("r.db");
    let instance = scratch.instance();
    let mutex: retrial::Mutex<u64> = instance.mutex("m", "load", || 0).unwrap();
    let (truth, mut worst) = (Truth::default(), 0.0f64);
    std::thread::scope(|scope| {
        let _end = End(&truth);
        for _ in 0..SESSIONS {
            scope.spawn(|| truth.work(&instance, &mutex));
        }
        let during = |arguments: &[&str]| {
            let from = truth.now();
            let text = scratch.run(arguments);
            (text, figures(from, truth.now()))
        };

        let (text, known) = during(&["top", "--once", "--every", FOR, "--json"]);
        let row = &json(&text)["mutexes"][0];
        let said = [
            number(row, "gets_per_s"),
            number(row, "holding_time_us"),
            pct(row, "utilization_pct"),
            pct(row, "miss_ratio_pct"),
        ];
        compare("top --once", said, known, &mut worst);

        let columns = "SELECT gets_per_s, holding_time_us, utilization, miss_ratio FROM v$mutex";
        let of_row =
            |row: &Value| ["gets_per_s", "holding_time_us", "utilization", "miss_ratio"].map(|n| number(row, n));
        let (text, known) = during(&["sql", "--over", FOR, columns, "--json"]);
        compare("sql --over", of_row(&json(&text)[0]), known, &mut worst);

        let (text, known) = during(&["report", "--for", FOR, "--json"]);
        let of_report = |text: &str| {
            let row = &json(text)["mutexes"][0];
            ["throughput", "holding_time_us", "utilization", "miss_ratio"].map(|name| number(row, name))
        };
        compare("report", of_report(&text), known, &mut worst);

        let (text, known) = during(&["ash", "--for", FOR, "--holders", "--json"]);
        compare("ash", [None, None, number(&json(&text), "holding"), None], known, &mut worst);

        let counters = || {
            let text = scratch.run(&["export", "--once"]);
            let of = |name: &str| {
                let line = text.lines().find(|line| line.starts_with(&format!("{name}{{mutex=\"m\""))).unwrap();
                line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
            };
            (Instant::now(), of("retrial_mutex_gets_total"), of("retrial_mutex_misses_total"))
        };
        let (from, first) = (truth.now(), counters());
        std::thread::sleep(Duration::from_secs(20));
        let (last, to) = (counters(), truth.now());
        let gets = last.1 - first.1;
        let said = [Some(gets / (last.0 - first.0).as_secs_f64()), None, None, Some((last.2 - first.2) / gets)];
        compare("export", said, figures(from, to), &mut worst);

        let (_, known) = during(&["record", &file, "--for", FOR, "--interval", "1s"]);
        let of_file = |arguments: &[&str]| {
            let output = command(arguments).output().unwrap();
            assert!(output.status.success(), "{}", kit::both(&output));
            String::from_utf8(output.stdout).unwrap()
        };
        let from_report = of_report(&of_file(&["report", &file, "--json"]));
        compare("record, report", from_report, known, &mut worst);
        let from_ash = number(&json(&of_file(&["ash", &file, "--holders", "--json"])), "holding");
        compare("record, ash", [None, None, from_ash, None], known, &mut worst);
        // The digits of a recording are the same wherever it is read.
        let from_sql = of_row(&json(&of_file(&["sql", &file, "--over", "19s", columns, "--json"]))[0]);
        compare("record, sql", from_sql, known, &mut worst);
    });
    assert!(worst < 0.03, "{:.2} % off", 100.0 * worst);
}
