//! Looks that come when they are due, also where all processors are busy.

/// The shortest slice that the kernel takes, in ns.
const SLICE_NS: u64 = 100_000;

/// Has this thread run as soon as it wakes up. A sampler that waits until a processor is free looks where
/// holders have just let go: with two processors and two busy sessions it saw a utilization of 0.79 as 0.60.
///
/// Linux from 6.12 on lets a thread that asks for a short slice preempt one with a longer slice, and takes
/// nothing from it in the long run (`sched_setattr(2)`; EEVDF). Where the kernel refuses, or is older, it stays
/// as it is.
///
/// Its timers have no slack: with the usual 50 us the kernel lets a timer wait for the next one of its processor,
/// which is that of a session whose thinking ends, and U was 4 % too low.
pub fn punctual() {
    // SAFETY: no memory is passed.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let length = size_of::<libc::sched_attr>() as libc::c_uint;
    // SAFETY: numbers, of which 0 is one.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: `attributes` is writable, and so long.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, length, 0) };
    if known != 0 || attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    (attributes.size, attributes.sched_runtime) = (length, SLICE_NS);
    // SAFETY: `attributes` is readable, and says how long it is.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}
