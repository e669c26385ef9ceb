//! The simulator: discrete events on a virtual clock, with the wait schemes of the library itself.
//!
//! A [`Workload`] says which sessions come, how long they hold, by which parameters they wait and on which
//! [`Machine`]; [`run`] gives an [`Outcome`], [`replicate`] the means of many with their confidence
//! intervals. The same seed gives the same events.
//!
//! ```
//! use retrial::P;
//! use retrial_model::sim::{Arrivals, Measure, Workload, run};
//!
//! let think = "exponential:mean=5us".parse()?;
//! let arrivals = Arrivals::Closed { sessions: 16, think, on_processor: true };
//! let mut workload = Workload::new(arrivals, "exponential:mean=1us".parse()?, 0.01);
//! workload.params = workload.params.with(P::Scheme, retrial::wait::named("ydb").unwrap() as u64);
//! let outcome = run(&workload, 1)?;
//! println!("{:.0} gets/s, {:.2} busy", outcome.get(Measure::Throughput).unwrap(), outcome.get(Measure::Utilization).unwrap());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The model
//!
//! * **Waiting** is what [`retrial::wait`] says: its schemes decide on spins, steps and releases, its
//!   controller on the type that `adaptive` uses, its [`Parking`](retrial::parking::Parking) what is known of
//!   the parked. The steps between sessions (announcements, the futex queue, handovers) are those of the
//!   library for mode X, on the virtual clock.
//! * **A spin** is one interval, which its limit or a release ends, not a row of polls. Of the sessions that
//!   spin on a processor at a release one gets the mutex, all equally likely. The others spin on, or take
//!   their next step at once with `on_lost_race = sleep`. They see the release half a cache line's round trip
//!   late, so that a session that comes back to the mutex at once may get it before them; and the release
//!   comes as much later, since they have the line that it stores to. The more processors spin, the longer
//!   each way of the line takes ([`Machine::line_crowd_ns`]).
//! * **A step** takes time beside its yield, sleep or park ([`Machine::step_ns`]). A park whose wake-up comes
//!   before the kernel's last look does not sleep. A timed sleep takes processor time
//!   ([`Machine::sleep_call_ns`]), and one interrupt ([`Machine::timer_ns`]) ends all sleeps of a processor that
//!   are due soon after.
//! * **Copies** of the mutex: each get is of any of them, all equally likely, and waits for that one.
//! * **Processors** have a run queue each, from which Linux's rule takes the next session: EEVDF, with slices
//!   ([`Machine::quantum_ns`]) whose end is seen at a tick ([`Machine::tick_ns`]), also while the session
//!   holds the mutex. A yield gives up the rest of the slice. A session that sleeps or parks leaves the
//!   queue, at once if it ran no more than the mean, else when it would be next. A session that spins
//!   occupies its processor. A session that wakes up goes on in its queue if it has not left that yet, else
//!   on its last processor if that is idle, else on another idle one if the machine is not much used
//!   ([`Machine::imbalance_pct`]). Else it preempts at once a session that has had its slice
//!   ([`Machine::preempt_after_ns`]), or one that ran more than the mean if it is next itself. A processor
//!   without work takes from the longest queue, at once and at ticks, but no session that ran just before
//!   ([`Machine::migration_ns`]).
//! * **Interruptions** of a processor, by its tick, other interrupts and other programs, come at random moments
//!   and take so much longer what its session does ([`Machine::interrupt_ns`]).
//! * **Not modelled**: priorities, processors of unequal speed, modes other than X, deadlines, deaths, changes
//!   of parameters during a run.

mod engine;
mod error;
mod estimates;
mod holding;
mod machine;
mod mutex;
mod outcome;
mod processors;
mod run_queue;
mod scheduling;
mod session;
mod streams;
mod tally;
mod timers;
mod trace;
mod utilization;
mod waiting;
mod workload;

pub use crate::measure::Measure;
pub use engine::run;
pub use error::SimulationError;
pub use estimates::{Estimate, Estimates, replicate};
pub use machine::{GUESSED, Machine};
pub use outcome::{Outcome, ProcessorTime};
pub use workload::{Arrivals, Sleeps, Spread, Workload};

/// A time of the virtual clock, in ps: fine enough for holding times of a few ns, and without rounding that
/// adds up.
type Time = u64;

/// A nanosecond.
const NS: Time = 1000;

/// A time in s.
fn seconds(time: u128) -> f64 {
    time as f64 * 1e-12
}

/// The time nearest to so many seconds.
fn time(seconds: f64) -> Time {
    (seconds * 1e12).round() as Time
}
