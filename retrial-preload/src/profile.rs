//! What a profile samples: gets, the time that they hold, and waits, each with the thread's registers and a
//! copy of its stack, which `retrial run --profile` unwinds. Nothing is unwound or named here.
//!
//! Which get and which wait is sampled: [`crate::sampling`].
//!
//! With a profile [`process::is_known_on`] is false, so that all calls take the paths that come here. Without
//! one nothing of this runs.

use crate::instance::Type;
use crate::process;
use crate::sampling::{GET_SHIFT_MAX, WAIT_SHIFT_MAX};
use crate::thread::Thread;
use libc::iovec;
use retrial::interposer::samples::{
    CLAIMED, FILE, FREE, FULL, GET, HOLD, MAGIC, MAPS, Registers, Ring, SLOTS, STACK, Sample, Slot, VARIABLE, WAIT,
};
use retrial::sys::Errno;
use retrial::{Mode, MutexId, sys};
use std::cell::Cell;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Slots that are looked at for a free one.
const PROBES: usize = 8;
/// A page, as far as copying goes: stacks begin and end at multiples of it.
const PAGE: usize = 4096;

static RING: AtomicPtr<Ring> = AtomicPtr::new(null_mut());
static IMAGE: AtomicU32 = AtomicU32::new(0);

/// What is got, or waited for.
#[derive(Clone, Copy)]
pub(crate) struct Lock {
    pub(crate) address: usize,
    pub(crate) mutex: MutexId,
    pub(crate) object: Type,
    pub(crate) mode: Mode,
}

/// Takes part in the profile that the environment names, if it names one.
///
/// # Errors
///
/// What there is to say, if anything.
pub(crate) fn join() -> Result<(), Option<String>> {
    let Some(directory) = std::env::var_os(VARIABLE) else { return Ok(()) };
    let directory = Path::new(&directory);
    let ring = map(&directory.join(FILE)).map_err(|error| {
        // What `retrial run` started may start programs long after it has ended.
        (error.kind() != ErrorKind::NotFound).then(|| format!("no profile: {}: {error}", directory.display()))
    })?;
    let image = ring.images.fetch_add(1, Ordering::Relaxed) + 1;
    // Written here, since a program that runs for a moment is gone before another process could look.
    let maps = fs::read("/proc/self/maps").unwrap_or_default();
    let _ = fs::write(directory.join(format!("{MAPS}{image}")), maps);
    IMAGE.store(image, Ordering::Relaxed);
    RING.store(from_ref(ring).cast_mut(), Ordering::Release);
    process::set_profiled();
    Ok(())
}

fn map(path: &Path) -> io::Result<&'static Ring> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    if file.metadata()?.len() != size_of::<Ring>() as u64 {
        return Err(io::Error::other("made by another version of retrial"));
    }
    let (protection, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
    let ring = unsafe { libc::mmap(null_mut(), size_of::<Ring>(), protection, libc::MAP_SHARED, fd, 0) };
    if ring == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: mapped in this length, never unmapped; what others write is atomics and slots that they have
    // claimed.
    let ring = unsafe { &*ring.cast::<Ring>() };
    if ring.magic.load(Ordering::Acquire) != MAGIC {
        return Err(io::Error::other("made by another version of retrial"));
    }
    Ok(ring)
}

fn ring() -> Option<&'static Ring> {
    // SAFETY: null, or mapped for good by `join`.
    unsafe { RING.load(Ordering::Acquire).as_ref() }
}

/// A thread has got a lock.
#[inline]
pub(crate) fn got(thread: &Thread, lock: impl FnOnce() -> Lock) {
    if process::is_profiled() {
        got_profiled(thread, lock());
    }
}

#[cold]
#[inline(never)]
fn got_profiled(thread: &Thread, lock: Lock) {
    let (sampling, Some(ring)) = (&thread.sampling, ring()) else { return };
    sampling.refresh(ring);
    let shift = sampling.gets.shift.get();
    if sampling.below(shift) != 0 {
        return;
    }
    let _errno = Errno::keep();
    let Some(_inside) = thread.enter() else { return };
    sampling.gets.adapt(ring.gap_ns.load(Ordering::Relaxed), GET_SHIFT_MAX);
    let (weight, key) = (1 << shift, sampling.random() | 1);
    record(ring, Sample { key, ..sample(GET, lock, weight) });
    // A hold that another thread released is still there.
    let is_old = |hold: &&Cell<(usize, u64, u64)>| hold.get().0 == lock.address;
    let free = sampling.holds.iter().find(is_old).or_else(|| sampling.holds.iter().find(|hold| hold.get().0 == 0));
    if let Some(hold) = free {
        hold.set((lock.address, key, sys::now_ns()));
    }
}

/// A thread is about to release a lock, altogether.
#[inline]
pub(crate) fn leaving(thread: &Thread, address: usize) {
    if process::is_profiled() {
        leaving_profiled(thread, address);
    }
}

#[cold]
#[inline(never)]
fn leaving_profiled(thread: &Thread, address: usize) {
    let sampling = &thread.sampling;
    let Some(hold) = sampling.holds.iter().find(|hold| hold.get().0 == address) else { return };
    let _errno = Errno::keep();
    let (Some(ring), Some(_inside)) = (ring(), thread.enter()) else { return };
    let (_, key, since) = hold.replace((0, 0, 0));
    if sampling.epoch.get() == process::epoch() {
        let value_ns = sys::now_ns().saturating_sub(since);
        record(ring, Sample { kind: HOLD, key, value_ns, ..Sample::default() });
    }
}

/// When a wait that may be sampled begins, in ns; `None` without a profile.
pub(crate) fn wait_begins() -> Option<u64> {
    process::is_profiled().then(sys::now_ns)
}

/// A wait has ended, in the library.
pub(crate) fn waited(thread: &Thread, lock: Lock, since: u64) {
    let Some(ring) = ring() else { return };
    let sampling = &thread.sampling;
    sampling.refresh(ring);
    let waited_ns = sys::now_ns().saturating_sub(since).max(1);
    let shift = sampling.waits.shift.get();
    if sampling.below(shift) < waited_ns {
        sampling.waits.adapt(ring.gap_ns.load(Ordering::Relaxed), WAIT_SHIFT_MAX);
        let weight = waited_ns.max(1 << shift);
        record(ring, Sample { value_ns: waited_ns, ..sample(WAIT, lock, weight) });
    }
}

fn sample(kind: u32, lock: Lock, weight: u64) -> Sample {
    Sample {
        kind,
        pid: sys::pid(),
        image: IMAGE.load(Ordering::Relaxed),
        mutex: lock.mutex.0,
        mutex_type: u32::from(lock.object.id().0),
        is_shared: u32::from(lock.mode == Mode::Shared),
        address: lock.address as u64,
        weight,
        ..Sample::default()
    }
}

/// Writes a sample.
#[inline(never)]
fn record(ring: &Ring, mut sample: Sample) {
    let began = sys::thread_cpu_ns();
    let Some(at) = claim(ring) else {
        ring.dropped.fetch_add(1, Ordering::Relaxed);
        match sample.kind {
            GET => ring.dropped_gets.fetch_add(sample.weight, Ordering::Relaxed),
            WAIT => ring.dropped_wait_ns.fetch_add(sample.weight, Ordering::Relaxed),
            _ => 0,
        };
        return;
    };
    let slot: *mut Slot = ring.slots[at].get();
    if sample.kind != HOLD {
        // SAFETY: within the slot.
        let stack = unsafe { &raw mut (*slot).stack };
        copy_stack(&mut sample, stack.cast());
    }
    // SAFETY: within the slot.
    let written = unsafe { &raw mut (*slot).sample };
    // SAFETY: claimed, so nobody else looks at it.
    unsafe { written.write(sample) };
    // Release: pairs with the Acquire of the reader.
    ring.states[at].store(FULL, Ordering::Release);
    ring.spent_ns.fetch_add(sys::thread_cpu_ns().saturating_sub(began), Ordering::Relaxed);
    ring.bytes.fetch_add(size_of::<Sample>() as u64 + sample.stack_len, Ordering::Relaxed);
}

fn claim(ring: &Ring) -> Option<usize> {
    (0..PROBES).find_map(|_| {
        let at = ring.next.fetch_add(1, Ordering::Relaxed) as usize % SLOTS;
        // Acquire: pairs with the Release of its last reader.
        let claimed = ring.states[at].compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed);
        claimed.is_ok().then_some(at)
    })
}

/// Copies the stack from here on, to where libc has the thread's own data above it, or as far as it can be
/// read: by the kernel, which knows that of any stack.
#[inline(never)]
fn copy_stack(sample: &mut Sample, into: *mut u8) {
    sample.registers = registers();
    let from = sample.registers.sp as usize;
    // SAFETY: has no preconditions.
    let above = unsafe { libc::pthread_self() } as usize;
    let end = if (from..from + STACK).contains(&above) { above } else { from + STACK };
    // Page by page: what cannot be read ends the copy between two of these.
    let mut pages = [const { iovec { iov_base: null_mut(), iov_len: 0 } }; STACK / PAGE + 1];
    let mut start = from;
    for page in &mut pages {
        let next = ((start | (PAGE - 1)) + 1).min(end);
        *page = iovec { iov_base: start as *mut libc::c_void, iov_len: next - start };
        start = next;
    }
    let into = iovec { iov_base: into.cast(), iov_len: STACK };
    let own = sys::pid().cast_signed();
    // SAFETY: the kernel reads what is readable, and writes into the slot only.
    let len =
        unsafe { libc::process_vm_readv(own, &raw const into, 1, pages.as_ptr(), pages.len() as libc::c_ulong, 0) };
    sample.stack_len = u64::try_from(len).unwrap_or(0);
}

/// The registers that unwinding begins with.
#[allow(clippy::inline_always)] // the frame of a function that has returned is gone
#[inline(always)]
#[cfg(target_arch = "x86_64")]
fn registers() -> Registers {
    let (ip, sp, fp): (u64, u64, u64);
    // SAFETY: reads registers only.
    unsafe {
        core::arch::asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) ip, out(reg) sp, out(reg) fp,
            options(nomem, nostack, preserves_flags));
    }
    Registers { ip, sp, fp, lr: 0 }
}

/// The registers that unwinding begins with.
#[allow(clippy::inline_always)] // the frame of a function that has returned is gone
#[inline(always)]
#[cfg(target_arch = "aarch64")]
fn registers() -> Registers {
    let (ip, sp, fp, lr): (u64, u64, u64, u64);
    // SAFETY: reads registers only.
    unsafe {
        // The link register first: one of the others may be put in it.
        core::arch::asm!("mov {}, x30", "adr {}, .", "mov {}, sp", "mov {}, x29", out(reg) lr, out(reg) ip,
            out(reg) sp, out(reg) fp, options(nomem, nostack, preserves_flags));
    }
    Registers { ip, sp, fp, lr }
}
