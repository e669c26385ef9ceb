//! How fast the simulator is: events per second of processor time, for a few workloads.
//!
//! `cargo run --release -p retrial-model --example events`

use retrial::P;
use retrial_model::sim::{Arrivals, Machine, Measure, Workload, run};

struct Case {
    name: &'static str,
    scheme: &'static str,
    sessions: u32,
    processors: u32,
    duration: f64,
}

const CASES: [Case; 8] = [
    Case { name: "few", scheme: "backoff", sessions: 8, processors: 4, duration: 5.0 },
    Case { name: "few", scheme: "ydb", sessions: 8, processors: 4, duration: 5.0 },
    Case { name: "few", scheme: "orbit", sessions: 8, processors: 4, duration: 5.0 },
    Case { name: "many", scheme: "backoff", sessions: 1024, processors: 64, duration: 2.0 },
    Case { name: "many", scheme: "10g", sessions: 1024, processors: 64, duration: 1.0 },
    Case { name: "many", scheme: "orbit", sessions: 1024, processors: 64, duration: 5.0 },
    Case { name: "largest", scheme: "sleep", sessions: 16_384, processors: 256, duration: 1.0 },
    Case { name: "largest", scheme: "orbit", sessions: 16_384, processors: 256, duration: 5.0 },
];

fn time(name: &str, workload: &Workload) -> Result<(), Box<dyn std::error::Error>> {
    let start = retrial::sys::thread_cpu_ns();
    let outcome = run(workload, 1)?;
    let took = (retrial::sys::thread_cpu_ns() - start) as f64 * 1e-9;
    println!(
        "{name:<36} {:>12} events {:>7.2} s {:>6.2} M events/s   {:>12.0} gets/s",
        outcome.events,
        took,
        outcome.events as f64 / took / 1e6,
        outcome.get(Measure::Throughput).unwrap(),
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut open = Workload::new(Arrivals::Open { rate: 5e5 }, "exponential:mean=1us".parse()?, 10.0);
    open.machine = Machine::ideal();
    open.params = open.params.with(P::Scheme, 3);
    time("open, 10g, ideal machine", &open)?;
    for Case { name, scheme, sessions, processors, duration } in CASES {
        let arrivals = Arrivals::Closed { sessions, think: "exponential:mean=2us".parse()?, on_processor: true };
        let mut workload = Workload::new(arrivals, "exponential:mean=500ns".parse()?, duration);
        workload.machine = Machine::default().with_processors(processors);
        workload.params = workload.params.with(P::Scheme, P::Scheme.parse(scheme, 0)?);
        time(&format!("{name}, {scheme}, {sessions} on {processors}"), &workload)?;
    }
    Ok(())
}
