//! The memory that samples come in, and the thread that takes them out while the program runs.

use super::tallies::Tallies;
use miette::{Report, miette};
pub(crate) use retrial::interposer::samples::VARIABLE;
use retrial::interposer::samples::{FILE, FREE, FULL, GAP_NS, GET, HOLD, MAGIC, Ring, STACK, WAIT};
use retrial::sys::{now_ns, thread_cpu_ns};
use retrial_bench::errors::directory;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a profile leaves: folded stacks and flame graphs, by wait time and by holding time.
pub const FILES: [&str; 4] = ["wait.folded", "wait.svg", "hold.folded", "hold.svg"];

/// The time between two samples of a thread grows while there are more samples than this, and shrinks while
/// there are fewer than a quarter.
const SAMPLES_PER_S: u64 = 4000;
const ADAPTED_EVERY_NS: u64 = 100_000_000;
/// From one look to the next: after one that found something, and after one that did not.
const BUSY: Duration = Duration::from_millis(1);
const IDLE: Duration = Duration::from_millis(5);

/// A profile being recorded.
pub struct Recording {
    /// Where the samples are, and the mappings of the programs.
    place: PathBuf,
    ring: &'static Ring,
    /// The directory of [`FILES`].
    pub output: PathBuf,
}

/// What taking samples cost.
#[derive(Clone, Copy, Default, Debug)]
pub struct Cost {
    /// In the program.
    pub spent_ns: u64,
    pub bytes: u64,
    /// Unwinding, by us.
    pub observer_ns: u64,
    /// Samples that found no room, and what they stood for.
    pub dropped: u64,
    pub dropped_gets: u64,
    pub dropped_wait_ns: u64,
}

impl Recording {
    /// Makes the memory, and the files that it is to end in: what cannot be written is known before the
    /// program runs.
    pub fn create(output: &Path) -> Result<Self, Report> {
        fs::create_dir_all(output).map_err(|error| unwritable(output, &error))?;
        for name in FILES {
            let path = output.join(name);
            File::create(&path).map_err(|error| unwritable(&path, &error))?;
        }
        let place = PathBuf::from(format!("/dev/shm/retrial-profile.{}", std::process::id()));
        // A run that was killed may have left a directory with this process id in its name.
        let _ = fs::remove_dir_all(&place);
        fs::DirBuilder::new().mode(0o700).create(&place).map_err(|error| no_memory(&place, &error))?;
        let ring = map(&place.join(FILE)).map_err(|error| {
            let _ = fs::remove_dir_all(&place);
            no_memory(&place, &error)
        })?;
        Ok(Self { place, ring, output: output.to_owned() })
    }

    /// Has a program take part.
    pub fn tell(&self, command: &mut Command) {
        command.env(VARIABLE, &self.place);
    }

    /// Takes samples until `stop`. The caller unparks this thread after setting it.
    pub fn observe(&self, stop: &AtomicBool) -> (Tallies, Cost) {
        let began = thread_cpu_ns();
        let mut tallies = Tallies::new(&self.place);
        let (mut adapted_at, mut taken) = (now_ns(), 0);
        while !stop.load(Ordering::Acquire) {
            let found = self.drain(&mut tallies);
            taken += found;
            let elapsed = now_ns() - adapted_at;
            if elapsed > ADAPTED_EVERY_NS {
                self.adapt(taken * 1_000_000_000 / elapsed);
                (adapted_at, taken) = (now_ns(), 0);
            }
            std::thread::park_timeout(if found > 0 { BUSY } else { IDLE });
        }
        self.drain(&mut tallies);
        let load = |field: &std::sync::atomic::AtomicU64| field.load(Ordering::Relaxed);
        let cost = Cost {
            spent_ns: load(&self.ring.spent_ns),
            bytes: load(&self.ring.bytes),
            observer_ns: thread_cpu_ns() - began,
            dropped: load(&self.ring.dropped),
            dropped_gets: load(&self.ring.dropped_gets),
            dropped_wait_ns: load(&self.ring.dropped_wait_ns),
        };
        (tallies, cost)
    }

    /// Has threads take fewer samples where many threads take some.
    fn adapt(&self, samples_per_s: u64) {
        let gap = self.ring.gap_ns.load(Ordering::Relaxed);
        if samples_per_s > SAMPLES_PER_S {
            self.ring.gap_ns.store(gap * 2, Ordering::Relaxed);
        } else if samples_per_s < SAMPLES_PER_S / 4 {
            self.ring.gap_ns.store((gap / 2).max(GAP_NS), Ordering::Relaxed);
        }
    }

    /// Takes what there is: how many samples.
    fn drain(&self, tallies: &mut Tallies) -> u64 {
        let mut found = 0;
        for (state, slot) in self.ring.states.iter().zip(&self.ring.slots) {
            // Acquire: pairs with the Release of the thread that filled it.
            if state.load(Ordering::Acquire) != FULL {
                continue;
            }
            found += 1;
            // SAFETY: no thread writes a full slot.
            let slot = unsafe { &*slot.get() };
            let len = usize::try_from(slot.sample.stack_len).unwrap_or(0).min(STACK);
            match slot.sample.kind {
                GET => tallies.get(&slot.sample, &slot.stack[..len]),
                WAIT => tallies.wait(&slot.sample, &slot.stack[..len]),
                HOLD => tallies.hold(&slot.sample),
                _ => {}
            }
            // Release: pairs with the Acquire of the next writer.
            state.store(FREE, Ordering::Release);
        }
        found
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // What the program left running keeps its mapping.
        let _ = fs::remove_dir_all(&self.place);
    }
}

fn map(path: &Path) -> io::Result<&'static Ring> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    let len = libc::off_t::try_from(size_of::<Ring>()).map_err(io::Error::other)?;
    // All of it is reserved now: a write to a file system that has become full is a signal.
    // SAFETY: the file is open for writing.
    let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let (protection, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
    let ring = unsafe { libc::mmap(null_mut(), size_of::<Ring>(), protection, libc::MAP_SHARED, fd, 0) };
    if ring == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: mapped in this length, for the rest of our life; zeros are a ring.
    let ring = unsafe { &*ring.cast::<Ring>() };
    ring.gap_ns.store(GAP_NS, Ordering::Relaxed);
    // Release: a process that finds it finds the rest.
    ring.magic.store(MAGIC, Ordering::Release);
    Ok(ring)
}

pub(super) fn unwritable(path: &Path, error: &io::Error) -> Report {
    let directory = directory(path);
    miette!(
        code = "retrial::run::profile",
        help = format!("ls -ld {0}; df {0}; or: retrial run --profile=DIRECTORY -- …", directory.display()),
        "profile {}: {error}",
        path.display()
    )
}

fn no_memory(place: &Path, error: &io::Error) -> Report {
    miette!(
        code = "retrial::run::profile_memory",
        help = "df /dev/shm",
        "{}: {error}; samples need {} MiB of shared memory",
        place.display(),
        size_of::<Ring>() >> 20
    )
}
