//! Processes and the memory they share with their parent: the `unsafe` of the bench.

use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

/// Types of which zeroed bytes are a value, whoever else writes them meanwhile.
///
/// # Safety
///
/// Only atomics and arrays and `repr(C)` structs of these; nothing to drop.
pub unsafe trait Zeroed: Sync {}

/// Memory that this process shares with the processes it forks.
#[derive(Debug)]
pub struct Shared<T> {
    base: *mut T,
    count: usize,
    owns: PhantomData<T>,
}

// SAFETY: it gives `&T` only, and drops none.
unsafe impl<T: Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Shared<T> {}

impl<T: Zeroed> Shared<T> {
    pub fn zeroed(count: usize) -> io::Result<Self> {
        Self::map(count)
    }
}

impl<T: Sync> Shared<T> {
    /// One value, moved there. It is not dropped.
    pub fn of(value: T) -> io::Result<Self> {
        let shared = Self::map(1)?;
        // SAFETY: mapped, page-aligned, and nobody else has it yet.
        unsafe { shared.base.write(value) };
        Ok(shared)
    }

    /// So many, made one after the other. They are not dropped.
    pub fn filled(count: usize, mut value: impl FnMut() -> T) -> io::Result<Self> {
        let shared = Self::map(count)?;
        for i in 0..count {
            let (place, value) = (shared.base.wrapping_add(i), value());
            // SAFETY: within what was mapped, which is page-aligned, and nobody else has it yet.
            unsafe { place.write(value) };
        }
        Ok(shared)
    }
}

impl<T> Shared<T> {
    /// Zeroed memory for so many, which need not be values yet.
    fn map(count: usize) -> io::Result<Self> {
        let (len, protection) = (count * size_of::<T>(), libc::PROT_READ | libc::PROT_WRITE);
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), count, owns: PhantomData })
    }
}

impl<T> Deref for Shared<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: that many were mapped, page-aligned, zeroed or written, and `drop` unmaps them.
        unsafe { std::slice::from_raw_parts(self.base, self.count) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: our mapping, in the length that `map` gave it; borrows of it borrow `self`.
        unsafe { libc::munmap(self.base.cast(), self.count * size_of::<T>()) };
    }
}

/// Processes that we forked. Killed and reaped when dropped; killed by the kernel when we die.
#[derive(Debug, Default)]
pub struct Crew {
    pids: Vec<libc::pid_t>,
}

impl Crew {
    /// Whether all have been reaped.
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty()
    }

    /// Forks a process that does `task` and ends. The caller has one thread only.
    pub fn fork(&mut self, task: impl FnOnce()) -> io::Result<()> {
        let parent = std::process::id();
        // SAFETY: with one thread there is no lock that a thread missing in the child could hold.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // Before the task can unwind into code of the parent, in builds where panics unwind.
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    if die_with(parent) {
                        task();
                    }
                }));
                // SAFETY: ends the child without running the parent's exit handlers or flushing its buffers.
                unsafe { libc::_exit(i32::from(done.is_err())) }
            }
            pid => {
                self.pids.push(pid);
                Ok(())
            }
        }
    }

    /// How many have not been reaped.
    pub const fn len(&self) -> usize {
        self.pids.len()
    }

    /// Kills and reaps one, by its position in the order of the forks; the last one takes its place.
    pub fn kill(&mut self, at: usize) {
        let pid = self.pids.swap_remove(at);
        end(pid);
        wait(pid, 0);
    }

    /// Processor time that they have used so far.
    pub fn cpu(&self) -> Duration {
        Duration::from_nanos(self.pids.iter().filter_map(|pid| cpu_ns(*pid)).sum())
    }

    /// Reaps those that have ended. Gives how many ended otherwise than by themselves.
    pub fn reap(&mut self) -> usize {
        let before = self.pids.len();
        let mut well = 0;
        self.pids.retain(|pid| match wait(*pid, libc::WNOHANG) {
            Some(status) => {
                well += usize::from(status == 0);
                false
            }
            None => true,
        });
        before - self.pids.len() - well
    }
}

/// Gives this process, but none that it forks, precedence over all normal ones, so that it is not late beside
/// a thousand that compute. Where that is not permitted it stays as it is: figures take into account how late
/// it is.
pub fn take_precedence() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: `priority` is readable.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const priority) };
}

/// Processor time of this process.
pub fn own_cpu() -> Duration {
    cpu_of(libc::RUSAGE_SELF)
}

/// Processor time of all children that have been reaped.
pub fn children_cpu() -> Duration {
    cpu_of(libc::RUSAGE_CHILDREN)
}

fn cpu_of(who: libc::c_int) -> Duration {
    // SAFETY: numbers, of which 0 is one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable.
    unsafe { libc::getrusage(who, &raw mut usage) };
    let time = |time: libc::timeval| {
        Duration::new(time.tv_sec.cast_unsigned(), 0) + Duration::from_micros(time.tv_usec.cast_unsigned())
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Processor time that a child has used so far, in all its threads.
fn cpu_ns(pid: libc::pid_t) -> Option<u64> {
    let mut clock = 0;
    // SAFETY: `clock` is writable.
    if unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } != 0 {
        return None;
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    Some(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.pids.iter().for_each(|pid| end(*pid));
        for pid in &self.pids {
            wait(*pid, 0);
        }
    }
}

/// Kills a child that was not reaped.
fn end(pid: libc::pid_t) {
    // SAFETY: a child of ours that was not reaped, so the number is still its own.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Status of a child that has ended; `None` while it has not.
fn wait(pid: libc::pid_t, flags: i32) -> Option<i32> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is writable.
        let found = unsafe { libc::waitpid(pid, &raw mut status, flags) };
        if found == pid {
            return Some(status);
        }
        if found == -1 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
            continue;
        }
        return (found == -1).then_some(0);
    }
}

/// Has the kernel kill this process when its parent ends. Whether the parent is still there.
fn die_with(parent: u32) -> bool {
    // SAFETY: sets a property of this process, no memory.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    std::os::unix::process::parent_id() == parent
}
