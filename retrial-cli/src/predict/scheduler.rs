//! The scheduler of this machine, as the simulator has it: Linux's, with the slice and the tick of its kernel.

use retrial_model::sim::Machine;

/// Linux's slice for one processor in ns, `normalized_sysctl_sched_base_slice` of `kernel/sched/fair.c`. From 2,
/// 4 and 8 processors on, those that are online, it is 2, 3 and 4 times as long (`update_sysctl`).
const SLICE_NS: u64 = 700_000;

/// The same machine with the slice and the tick that this one's kernel has: the slice as debugfs says, where it
/// may be read.
pub fn scheduled_here(machine: Machine) -> Machine {
    let told = std::fs::read_to_string("/sys/kernel/debug/sched/base_slice_ns");
    let told = told.ok().and_then(|slice| slice.trim().parse().ok());
    // SAFETY: no memory is involved.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    let quantum_ns = told.unwrap_or(SLICE_NS * u64::from(1 + online.clamp(1, 8).ilog2()));
    let tick_ns = tick_ns().unwrap_or(machine.tick_ns);
    Machine { quantum_ns, tick_ns, preempt_after_ns: Some(quantum_ns), ..machine }
}

/// The tick is what the kernel's coarse clock goes on by.
fn tick_ns() -> Option<u64> {
    let mut tick = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `tick` is writable.
    let found = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut tick) };
    u64::try_from(tick.tv_nsec).ok().filter(|ns| found == 0 && *ns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_has_100_to_1000_ticks_a_second() {
        let here = scheduled_here(Machine::ideal());
        assert!((1_000_000..=10_000_000).contains(&here.tick_ns), "{} ns", here.tick_ns);
        assert!((100_000..=100_000_000).contains(&here.quantum_ns), "{} ns", here.quantum_ns);
    }
}
