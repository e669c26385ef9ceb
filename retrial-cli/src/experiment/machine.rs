//! The machines that experiments are simulated for: this one as calibrated, and those of the sources.
//!
//! The simulator knows one cost of a cache line's way between processors. Where processors are of several
//! sockets, this is that of a far line: most pairs of processors are of different sockets then. What each
//! further spinning processor adds to it is supposed to be a sixteenth of it.

use crate::calibration;
use crate::predict::scheduler::scheduled_here;
use retrial_model::sim;

/// The machine that everything measured is of.
pub const HERE: &str = "here";

/// A machine and what its steps cost.
#[derive(Clone, Debug)]
pub struct Machine {
    pub name: &'static str,
    pub processors: u32,
    pub costs: sim::Machine,
    /// Where the figures are from.
    pub from: &'static str,
}

/// This one.
pub fn here(may_measure: bool) -> Machine {
    let (costs, from) = match calibration::load() {
        Some(costs) => ((&costs).into(), "as `retrial calibrate` has kept it"),
        None if may_measure => ((&retrial::views::Costs::measure(|_| {})).into(), "as measured before the experiments"),
        None => (sim::Machine::default(), "round numbers: `retrial calibrate` has kept nothing for this machine"),
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Machine { name: HERE, processors: u32::try_from(processors).unwrap_or(1), costs: scheduled_here(costs), from }
}

/// Costs of a server of which nothing is known, beside those that a source gives.
const SERVER: sim::Machine = sim::Machine {
    preempt_after_ns: Some(1_000_000),
    exchange_ns: 10,
    line_ns: 130,
    line_crowd_ns: 5,
    yield_switch_ns: 1_500,
    wake_call_ns: 2_000,
    wake_far_ns: 6_000,
    wake_near_ns: 1_600,
    barrier_ns: 2_000,
    sleep_ns: [55_000, 155_000, 1_060_000, 10_060_000],
    ..sim::Machine::ideal()
};

const SPARC: sim::Machine = sim::Machine {
    poll_ns: 34,
    exchange_ns: 50,
    line_ns: 200,
    line_crowd_ns: 8,
    yield_alone_ns: 9_500,
    yield_switch_ns: 9_500,
    wake_call_ns: 10_000,
    wake_far_ns: 20_000,
    wake_near_ns: 10_000,
    sleep_ns: [1_000_000, 1_000_000, 1_030_000, 10_030_000],
    ..SERVER
};

/// 000: a database server of a quarter rack, 2 sockets with 6 cores of 2 threads.
pub const EXADATA: Machine = Machine {
    name: "Exadata X2-2",
    processors: 24,
    costs: sim::Machine { poll_ns: 7, yield_alone_ns: 700, ..SERVER },
    from: "2 sockets with 12 cores, 24 threads; 255 polls in 1.8 us and a yield in 0.7 us (000, table 5); the rest supposed, as measured on a small server",
};

/// 001: 8 cores of 4 threads.
pub const T2000: Machine = Machine {
    name: "Sun T2000",
    processors: 32,
    costs: SPARC,
    from: "8 cores, 32 threads; 255 polls in 8.7 us and a yield in 9.5 us (000, table 5, of the T2; together the 18 us of 001), 1 ms slept in 1.03 ms (001); the rest supposed",
};

/// 002: 2 sockets with 8 cores of 8 threads.
pub const T5240: Machine = Machine {
    name: "Sun T5240",
    processors: 128,
    costs: sim::Machine { line_ns: 400, line_crowd_ns: 17, ..SPARC },
    from: "2 sockets with 16 cores, 128 threads; spins and yields as of the T2 (000, table 5); the rest supposed",
};

/// 003: 4 sockets.
pub const SOCKETS: Machine = Machine {
    name: "4 sockets",
    processors: 192,
    costs: sim::Machine {
        poll_ns: 7,
        yield_alone_ns: 700,
        line_ns: 400,
        line_crowd_ns: 17,
        wake_far_ns: 10_000,
        ..SERVER
    },
    from: "192 processors; as Exadata X2-2, but a cache line's way to another socket and back in 400 ns, and for each further processor that polls it 17 ns more a transaction, of which the way has four: supposed",
};

/// 004 says nothing of its servers.
pub const ENGINE: Machine = Machine {
    name: "16 processors",
    processors: 16,
    costs: sim::Machine { poll_ns: 17, yield_alone_ns: 300, ..SERVER },
    from: "the source does not say how many processors: 16 and all costs are supposed",
};
