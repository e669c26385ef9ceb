//! The machine that is simulated: its processors, and what each step of a wait costs there.

use super::error::{SimulationError, check};
use super::{NS, Time};
use retrial::views::Cost;
use serde::{Deserialize, Serialize};

/// Maximum number of processors.
pub(super) const PROCESSORS_MAX: u32 = 4096;

/// What the steps of a wait cost, and what there is to run on. Times in ns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Machine {
    /// Processors; without a number every session has one of its own.
    pub processors: Option<u32>,
    /// How long a session runs while others of its processor are ready: the slice of the scheduler.
    pub quantum_ns: u64,
    /// From one tick of a processor's clock to the next, at which it sees that a slice is over; 0: at once.
    pub tick_ns: u64,
    /// An idle processor takes no session from the queue of another one for so long after it ran: Linux's
    /// `migration_cost_ns`.
    pub migration_ns: u64,
    /// A session whose last processor is busy when it wakes up is given an idle one only while
    /// P (1 - (u i / 100)^2) >= 1, where P processors were used to the part u of late, and i is this: Linux's
    /// `imbalance_pct` (`update_idle_cpu_scan`). 0: always.
    pub imbalance_pct: u32,
    /// How long it runs at least before a session that wakes up preempts it without waiting for a tick, at most
    /// a slice; without a number no wake-up preempts.
    pub preempt_after_ns: Option<u64>,
    /// One poll of the word with the processor's pause; from 1.
    pub poll_ns: u64,
    /// A get by the processor that had the mutex last.
    pub exchange_ns: u64,
    /// The mutex's way from one processor to another and back, four transactions of the caches: each
    /// processor takes the line from the other, and reads what the other has written. A get by another
    /// processor is one of them, a release beside a spinning session too, and that session sees the release
    /// after one more.
    pub line_ns: u64,
    /// What each further processor that polls the mutex adds to each of them: the line's home serves the
    /// processors that ask for it one after the other (Boyd-Wickizer et al., *Non-scalable locks are
    /// dangerous*, 2012, §3).
    pub line_crowd_ns: u64,
    /// A yield with no other session ready to run; from 1.
    pub yield_alone_ns: u64,
    /// A switch from one session to another; from 1.
    pub yield_switch_ns: u64,
    /// What a miss takes before its first poll, and a step beside the yield, sleep or park that it is: reads
    /// the clock and the parameters, and records.
    pub step_ns: u64,
    /// The waker's own call, for a session whose processor is idle.
    pub wake_call_ns: u64,
    /// From that call until the woken session runs.
    pub wake_far_ns: u64,
    /// The same for a session of the waker's processor, the switch included.
    pub wake_near_ns: u64,
    /// What the first session that parks pays for the barrier on all processors.
    pub barrier_ns: u64,
    /// How long an interruption of a busy processor takes on average, by its tick, other interrupts and other
    /// programs: what its session does takes so much longer. The times are exponential.
    pub interrupt_ns: u64,
    /// From one interruption of a processor to the next, on average. Exponential times; 0: there are none.
    pub interrupt_interval_ns: u64,
    /// Processor time of a timed sleep, beside the switch and the interrupt that ends it.
    pub sleep_call_ns: u64,
    /// Processor time of the interrupt by a timer that is due, which ends all sleeps of its processor that may end.
    pub timer_ns: u64,
    /// By how much a sleep may end before its timer is due, though not before what was asked for: Linux's
    /// `timer_slack`.
    pub timer_slack_ns: u64,
    /// What sleeps of 1 us, 100 us, 1 ms and 10 ms take.
    pub sleep_ns: [u64; 4],
}

/// What no `retrial calibrate` measures: a machine made of its costs has these as in [`Machine::default`].
pub const GUESSED: [&str; 8] = [
    "quantum_ns",
    "tick_ns",
    "migration_ns",
    "imbalance_pct",
    "preempt_after_ns",
    "line_crowd_ns",
    "step_ns",
    "timer_slack_ns",
];

/// What was asked for in [`Machine::sleep_ns`].
const ASKED_NS: [u64; 4] = [1_000, 100_000, 1_000_000, 10_000_000];

impl Default for Machine {
    /// Guesses, all of them: round numbers for a virtual machine with two processors and other work on it.
    /// The comments say what `retrial calibrate` has measured on one (Intel Xeon, Linux 6.18); it measures
    /// all but the number of processors and those that [`GUESSED`] names.
    fn default() -> Self {
        Self {
            processors: Some(2),
            quantum_ns: 1_400_000, // as Linux 6.18 has it with two processors
            tick_ns: 4_000_000,    // CONFIG_HZ=250
            migration_ns: 500_000, // Linux's, whatever the machine
            imbalance_pct: 117,    // Linux's for processors that share a cache
            preempt_after_ns: Some(1_400_000),
            poll_ns: 30,                      // measured 17
            exchange_ns: 6,                   // 10
            line_ns: 420,                     // 130
            line_crowd_ns: 17,                // takes more processors
            yield_alone_ns: 600,              // 223
            yield_switch_ns: 1_500,           // 1,632
            step_ns: 200,                     // 215 to 240, beside a busy neighbour
            wake_call_ns: 13_000,             // 2,219
            wake_far_ns: 30_000,              // 6,209
            wake_near_ns: 5_000,              // 1,634
            barrier_ns: 1_000,                // 1,854
            interrupt_ns: 15_000,             // 7,668 to 15,792 on an AMD EPYC (virtual, 2 CPUs, Linux 6.18)
            interrupt_interval_ns: 1_500_000, // there 500,000 to 2,000,000
            sleep_call_ns: 800,               // 330 to 950
            timer_ns: 30_000,                 // 28,542 to 32,847
            timer_slack_ns: 50_000,           // Linux's, unless a thread has set another one
            // 54,832, 154,445, 1,060,033, 10,064,523
            sleep_ns: [76_000, 180_000, 1_090_000, 10_090_000],
        }
    }
}

impl From<&retrial::views::Costs> for Machine {
    /// As measured by `retrial calibrate`; what was not measured, [`GUESSED`] and the number of processors are
    /// as in [`Machine::default`].
    fn from(measured: &retrial::views::Costs) -> Self {
        let or = |cost: Cost, default: u64| measured.get(cost).unwrap_or(default);
        let default = Self::default();
        let [us, us100, ms, ms10] = default.sleep_ns;
        Self {
            poll_ns: or(Cost::Poll, default.poll_ns),
            exchange_ns: or(Cost::Exchange, default.exchange_ns),
            line_ns: or(Cost::Line, default.line_ns),
            yield_alone_ns: or(Cost::YieldAlone, default.yield_alone_ns),
            yield_switch_ns: or(Cost::YieldSwitch, default.yield_switch_ns),
            wake_call_ns: or(Cost::WakeCall, default.wake_call_ns),
            wake_far_ns: or(Cost::WakeFar, default.wake_far_ns),
            wake_near_ns: or(Cost::WakeNear, default.wake_near_ns),
            barrier_ns: or(Cost::Barrier, default.barrier_ns),
            interrupt_ns: or(Cost::Interrupt, default.interrupt_ns),
            interrupt_interval_ns: or(Cost::InterruptInterval, default.interrupt_interval_ns),
            sleep_call_ns: or(Cost::SleepCall, default.sleep_call_ns),
            timer_ns: or(Cost::Timer, default.timer_ns),
            sleep_ns: [
                or(Cost::Sleep1us, us),
                or(Cost::Sleep100us, us100),
                or(Cost::Sleep1ms, ms),
                or(Cost::Sleep10ms, ms10),
            ],
            ..default
        }
    }
}

impl Machine {
    /// Share of a busy processor's time that its sessions have: interruptions take the rest. What was measured of
    /// sessions has these in it, and simulated sessions are interrupted anew. A half at least, whatever was described.
    #[must_use]
    pub fn own_share(&self) -> f64 {
        match self.interrupt_interval_ns {
            0 => 1.0,
            interval => 1.0 - (self.interrupt_ns as f64 / interval as f64).min(0.5),
        }
    }

    /// Time in s in which every session has a turn on a processor; 0 where each has a processor of its own.
    #[must_use]
    pub fn round_s(&self, sessions: u32) -> f64 {
        let each = f64::from(sessions) / f64::from(self.processors.unwrap_or(sessions).max(1));
        if each > 1.0 { each * self.quantum_ns.max(self.tick_ns) as f64 / 1e9 } else { 0.0 }
    }

    /// A machine on which nothing costs anything and every session has a processor: the one of queueing
    /// theory. A poll, a yield and a switch take 1 ns, since what takes no time can be repeated for ever.
    #[must_use]
    pub const fn ideal() -> Self {
        Self {
            processors: None,
            quantum_ns: 3_000_000,
            tick_ns: 0,
            migration_ns: 0,
            imbalance_pct: 0,
            preempt_after_ns: None,
            poll_ns: 1,
            exchange_ns: 0,
            line_ns: 0,
            line_crowd_ns: 0,
            yield_alone_ns: 1,
            yield_switch_ns: 1,
            step_ns: 0,
            wake_call_ns: 0,
            wake_far_ns: 0,
            wake_near_ns: 0,
            barrier_ns: 0,
            interrupt_ns: 0,
            interrupt_interval_ns: 0,
            sleep_call_ns: 0,
            timer_ns: 0,
            timer_slack_ns: 0,
            sleep_ns: ASKED_NS,
        }
    }

    /// Processor time in s of a timed sleep with its switch, and of its part of the interrupt that ends it. So many
    /// sessions sleep on each processor at a time, and use it for `between_s` from one sleep to the next. Those that
    /// one interrupt ends sleep again one after the other. Those of them that do so within its slack are ended
    /// together.
    #[must_use]
    pub fn sleep_s(&self, sleepers: f64, between_s: f64) -> (f64, f64) {
        let own_ns = (self.sleep_call_ns + self.yield_switch_ns) as f64;
        let together = 1.0 + self.timer_slack_ns as f64 / (own_ns + between_s * 1e9).max(1.0);
        (own_ns / 1e9, self.timer_ns as f64 / together.clamp(1.0, sleepers.max(1.0)) / 1e9)
    }

    /// The same with so many processors.
    #[must_use]
    pub const fn with_processors(mut self, processors: u32) -> Self {
        self.processors = Some(processors);
        self
    }

    /// What a sleep of this length takes: measured lateness, in between by straight lines.
    #[must_use]
    pub fn slept_ns(&self, asked_ns: u64) -> u64 {
        let late = |i: usize| self.sleep_ns[i].saturating_sub(ASKED_NS[i]);
        let above = ASKED_NS.iter().position(|known| asked_ns <= *known);
        let late_ns = match above {
            Some(0) => late(0),
            None => late(ASKED_NS.len() - 1),
            Some(i) => {
                let (from, to) = (ASKED_NS[i - 1], ASKED_NS[i]);
                (late(i - 1) * (to - asked_ns) + late(i) * (asked_ns - from)) / (to - from)
            }
        };
        asked_ns.saturating_add(late_ns)
    }

    /// Whether it can be simulated.
    pub(super) fn check(&self) -> Result<(), SimulationError> {
        check("poll_ns", self.poll_ns as f64, 1.0..=1e9, "1 to 1e9 ns")?;
        check("yield_alone_ns", self.yield_alone_ns as f64, 1.0..=1e9, "1 to 1e9 ns")?;
        check("yield_switch_ns", self.yield_switch_ns as f64, 1.0..=1e9, "1 to 1e9 ns")?;
        check("quantum_ns", self.quantum_ns as f64, 1.0..=1e12, "1 to 1e12 ns")?;
        check("tick_ns", self.tick_ns as f64, 0.0..=1e12, "0 to 1e12 ns")?;
        for (name, ns) in [
            ("migration_ns", self.migration_ns),
            ("exchange_ns", self.exchange_ns),
            ("line_ns", self.line_ns),
            ("line_crowd_ns", self.line_crowd_ns),
            ("step_ns", self.step_ns),
            ("wake_call_ns", self.wake_call_ns),
            ("wake_far_ns", self.wake_far_ns),
            ("wake_near_ns", self.wake_near_ns),
            ("barrier_ns", self.barrier_ns),
            ("interrupt_ns", self.interrupt_ns),
            ("sleep_call_ns", self.sleep_call_ns),
            ("timer_ns", self.timer_ns),
            ("timer_slack_ns", self.timer_slack_ns),
        ] {
            check(name, ns as f64, 0.0..=1e9, "0 to 1e9 ns")?;
        }
        if self.interrupt_interval_ns > 0 {
            check("interrupt_interval_ns", self.interrupt_interval_ns as f64, 1e3..=1e12, "0, or 1e3 to 1e12 ns")?;
        }
        for ns in self.sleep_ns {
            check("sleep_ns", ns as f64, 0.0..=1e9, "0 to 1e9 ns")?;
        }
        check("imbalance_pct", self.imbalance_pct.into(), 0.0..=1e3, "0 to 1000")?;
        let after_ns = self.preempt_after_ns.unwrap_or(0);
        check("preempt_after_ns", after_ns as f64, 0.0..=self.quantum_ns as f64, "0 to quantum_ns")?;
        match self.processors {
            Some(processors) => check("processors", processors.into(), 1.0..=PROCESSORS_MAX.into(), "1 to 4096"),
            None => Ok(()),
        }
    }
}

/// The costs of the machine, in ps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    pub(super) quantum: Time,
    pub(super) tick: Time,
    pub(super) migration: Time,
    pub(super) imbalance: f64,
    pub(super) preempt_after: Option<Time>,
    pub(super) poll: Time,
    pub(super) exchange: Time,
    pub(super) line: Time,
    pub(super) line_crowd: Time,
    pub(super) yield_alone: Time,
    pub(super) switch: Time,
    pub(super) step: Time,
    pub(super) call_far: Time,
    pub(super) call_near: Time,
    pub(super) wake_far: Time,
    pub(super) barrier: Time,
    pub(super) interrupt: Time,
    pub(super) interrupt_interval: Time,
    pub(super) sleep_call: Time,
    pub(super) timer: Time,
    pub(super) timer_slack: Time,
}

impl Costs {
    pub(super) fn of(machine: &Machine) -> Self {
        Self {
            quantum: machine.quantum_ns * NS,
            tick: machine.tick_ns * NS,
            migration: machine.migration_ns * NS,
            imbalance: f64::from(machine.imbalance_pct) / 100.0,
            preempt_after: machine.preempt_after_ns.map(|ns| ns * NS),
            poll: machine.poll_ns * NS,
            exchange: machine.exchange_ns * NS,
            line: machine.line_ns * NS,
            line_crowd: machine.line_crowd_ns * NS,
            yield_alone: machine.yield_alone_ns * NS,
            switch: machine.yield_switch_ns * NS,
            step: machine.step_ns * NS,
            call_far: machine.wake_call_ns * NS,
            // The session that runs next pays for the switch.
            call_near: machine.wake_near_ns.saturating_sub(machine.yield_switch_ns) * NS,
            wake_far: machine.wake_far_ns * NS,
            barrier: machine.barrier_ns * NS,
            interrupt: machine.interrupt_ns * NS,
            interrupt_interval: machine.interrupt_interval_ns * NS,
            sleep_call: machine.sleep_call_ns * NS,
            timer: machine.timer_ns * NS,
            timer_slack: machine.timer_slack_ns * NS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_of_many_share_interrupts() {
        let machine = Machine { sleep_call_ns: 1_000, yield_switch_ns: 1_000, timer_ns: 26_000, ..Machine::default() };
        let each = |sleepers: f64, between_s: f64| {
            let (own_s, timer_s) = machine.sleep_s(sleepers, between_s);
            ((own_s + timer_s) * 1e9).round()
        };
        // All 4 have one; of 100 the 25 that come within 50 us after the first, or with a spin of 8 us each, 5.
        assert_eq!([each(1.0, 0.0), each(0.1, 0.0), each(4.0, 0.0)], [28_000.0, 28_000.0, 8_500.0]);
        assert_eq!([each(100.0, 0.0), each(100.0, 8e-6)], [3_000.0, 2_000.0 + 26_000.0 / 6.0].map(f64::round));
    }

    #[test]
    fn lateness_lies_between_what_was_measured() {
        let machine = Machine { sleep_ns: [76_000, 180_000, 1_090_000, 10_090_000], ..Machine::ideal() };
        assert_eq!(machine.slept_ns(500), 75_500);
        assert_eq!(machine.slept_ns(100_000), 180_000);
        assert_eq!(machine.slept_ns(550_000), 550_000 + 85_000);
        assert_eq!(machine.slept_ns(1_000_000_000), 1_000_090_000);
        assert_eq!(Machine::ideal().slept_ns(12_345), 12_345);
    }
}
