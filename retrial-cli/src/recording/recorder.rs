//! Records instances: a thread for each, one writer for all.

use super::pauses::Pauses;
use super::sampling::Sampler;
use super::snapshot::{Moment, Snapshot};
use super::state::Load;
use super::store::{Sample, Writer};
use super::taking::Taker;
use crate::duration;
use crate::instances::is_there;
use miette::Report;
use retrial::Observer;
use retrial::sys::{Clock, clock_ns, now_ns, thread_cpu_ns};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// How often what is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From one snapshot to the next.
    pub interval: Duration,
    /// From one sample to the next; `None`: no samples.
    pub sample: Option<Duration>,
    /// How long what was recorded is kept; `None`: for ever.
    pub keep: Option<Duration>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { interval: Duration::from_secs(10), sample: Some(Duration::from_millis(10)), keep: None }
    }
}

/// The time from one round of samples to the next is at least this many times what it takes. With 125, the
/// recorder of 64 sessions and 1,000 mutexes took 1.2 % of a processor with all that it does, with 200 0.9 %.
const TIMES_COST: u64 = 200;
/// Time between two writes of samples.
const SAMPLES_NS: u64 = 1_000_000_000;
/// Minimum time between two snapshots for sessions that wait for each other.
const RING_NS: u64 = 1_000_000_000;
/// Time between two looks at whether the instance's name is still its own, and longest sleep.
const NAME_NS: u64 = 250_000_000;
/// Time between two passes that thin out.
const THIN_NS: u64 = 600_000_000_000;

/// Records instances into a file.
pub struct Recorder {
    writer: Mutex<Writer>,
    pace: Pace,
    stop: AtomicBool,
    /// When what is recorded ended, and what the machine was at.
    ended: OnceLock<(Moment, Load)>,
    failure: Mutex<Option<Report>>,
    /// Processor time of the threads that record, and the moment of the beginning.
    cpu_ns: AtomicU64,
    began_ns: u64,
    snapshots: AtomicU64,
    samples: AtomicU64,
    thin_at_ns: AtomicU64,
}

/// What has been recorded so far.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub snapshots: u64,
    pub samples: u64,
    pub size_bytes: u64,
    /// Processor time of the recorder, and the time since it began.
    pub cpu_ns: u64,
    pub wall_ns: u64,
}

impl Progress {
    /// Share of one processor that the recorder took.
    pub fn share(&self) -> f64 {
        if self.wall_ns == 0 { 0.0 } else { self.cpu_ns as f64 / self.wall_ns as f64 }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    pub fn new(writer: Writer, pace: Pace) -> Self {
        Self {
            writer: Mutex::new(writer),
            pace,
            stop: AtomicBool::new(false),
            ended: OnceLock::new(),
            failure: Mutex::new(None),
            cpu_ns: AtomicU64::new(0),
            began_ns: now_ns(),
            snapshots: AtomicU64::new(0),
            samples: AtomicU64::new(0),
            thin_at_ns: AtomicU64::new(0),
        }
    }

    /// Says that what is recorded has ended now: there is only the last snapshot to come, which is of this
    /// moment whenever it is taken.
    pub fn end(&self) {
        let now = Moment { real_ns: clock_ns(Clock::Realtime), monotonic_ns: now_ns() };
        let _ = self.ended.set((now, Load::now()));
    }

    /// Has every [`Self::record`] take its last snapshot and return. Their threads are to be unparked.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub fn progress(&self) -> Progress {
        Progress {
            snapshots: self.snapshots.load(Ordering::Relaxed),
            samples: self.samples.load(Ordering::Relaxed),
            size_bytes: lock(&self.writer).size(),
            cpu_ns: self.cpu_ns.load(Ordering::Relaxed),
            wall_ns: now_ns().saturating_sub(self.began_ns),
        }
    }

    /// Ends the recording: what went wrong, if something did.
    pub fn finish(self) -> Result<(), Report> {
        let closed = self.writer.into_inner().unwrap_or_else(PoisonError::into_inner).close();
        match self.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(failure) => Err(failure),
            None => closed,
        }
    }

    /// Records an instance until it is gone, or the recorder is stopped; `written` is told each snapshot and
    /// its number. A write that fails stops the recorder.
    pub fn record(&self, observer: &Observer, written: &dyn Fn(&Snapshot, i64)) {
        if let Err(failure) = self.try_record(observer, written) {
            lock(&self.failure).get_or_insert(failure);
            self.stop();
        }
    }

    fn try_record(&self, observer: &Observer, written: &dyn Fn(&Snapshot, i64)) -> Result<(), Report> {
        let tables = observer.tables();
        let taker = Taker::new(tables);
        let seen = lock(&self.writer).seen(taker.instance())?;
        let mut recording = Recorded {
            recorder: self,
            taker,
            sampler: Sampler::after(tables, seen),
            cpu_ns: thread_cpu_ns(),
            unsaid_ns: 0,
            pauses: Pauses::default(),
        };
        recording.snapshot(written)?;
        let interval_ns = nanos(self.pace.interval);
        let (mut snapshot_at, mut flush_at, mut name_at) = (now_ns() + interval_ns, now_ns() + SAMPLES_NS, 0);
        let mut ring_at = 0;
        loop {
            let now = now_ns();
            let is_over = self.is_stopped() || now >= name_at && !is_there(tables);
            if now >= name_at {
                name_at = now + NAME_NS;
            }
            let is_waiting = self.ended.get().is_some();
            // Sessions that wait for each other may have been killed by the next snapshot.
            let is_early = now >= ring_at && recording.sampler.has_new_ring();
            if is_over || (is_early || now >= snapshot_at) && !is_waiting {
                recording.snapshot(written)?;
            }
            if is_early {
                ring_at = now + RING_NS;
            }
            if now >= snapshot_at {
                // Snapshots that were missed, as the machine slept, are not made up for.
                snapshot_at = (snapshot_at + interval_ns).max(now);
            }
            if is_over {
                return Ok(());
            }
            if now >= flush_at {
                recording.flush()?;
                flush_at = now + SAMPLES_NS;
            }
            let pause_ns = if is_waiting { NAME_NS } else { recording.sample() };
            let due_at = if is_waiting { name_at } else { snapshot_at.min(name_at) };
            let due = due_at.saturating_sub(now_ns());
            std::thread::park_timeout(Duration::from_nanos(pause_ns.min(due)));
        }
    }

    fn thin(&self, writer: &mut Writer) -> Result<(), Report> {
        let Some(keep) = self.pace.keep else { return Ok(()) };
        let now = now_ns();
        if now < self.thin_at_ns.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.thin_at_ns.store(now + THIN_NS.min(nanos(keep)), Ordering::Relaxed);
        writer.thin(keep, clock_ns(Clock::Realtime))
    }
}

fn nanos(time: Duration) -> u64 {
    duration::nanos(time).min(u64::MAX / 4)
}

/// An instance that is recorded.
struct Recorded<'r> {
    recorder: &'r Recorder,
    taker: Taker<'r>,
    sampler: Sampler<'r>,
    /// Processor time of this thread that the recorder knows of, and the part that no snapshot says yet.
    cpu_ns: u64,
    unsaid_ns: u64,
    pauses: Pauses,
}

/// Samples of which several in a row are one row.
fn count(samples: &[Sample]) -> u64 {
    samples.iter().map(|sample| sample.count).sum()
}

impl Recorded<'_> {
    fn snapshot(&mut self, written: &dyn Fn(&Snapshot, i64)) -> Result<(), Report> {
        let mut snapshot = self.taker.snapshot();
        if let Some((at, load)) = self.recorder.ended.get() {
            (snapshot.at, snapshot.load) = (*at, *load);
        }
        let (samples, mut rounds) = self.sampler.complete(&mut snapshot);
        self.count_cpu();
        rounds.recorder_ns = std::mem::take(&mut self.unsaid_ns);
        let mut writer = lock(&self.recorder.writer);
        let id = writer.store(&snapshot, &samples, rounds)?;
        self.recorder.thin(&mut writer)?;
        drop(writer);
        self.recorder.snapshots.fetch_add(1, Ordering::Relaxed);
        self.recorder.samples.fetch_add(count(&samples), Ordering::Relaxed);
        self.count_cpu();
        written(&snapshot, id);
        Ok(())
    }

    /// Writes the samples so far, so that a recorder that is killed loses no more than a second of them.
    fn flush(&mut self) -> Result<(), Report> {
        let samples = self.sampler.done();
        if !samples.is_empty() {
            lock(&self.recorder.writer).store_samples(self.taker.instance(), &samples)?;
            self.recorder.samples.fetch_add(count(&samples), Ordering::Relaxed);
        }
        self.count_cpu();
        Ok(())
    }

    /// One round of samples. Gives the time to the next one, in ns.
    fn sample(&mut self) -> u64 {
        let Some(every) = self.recorder.pace.sample else { return NAME_NS };
        self.pauses.after(nanos(every), TIMES_COST, || self.sampler.round())
    }

    fn count_cpu(&mut self) {
        let now = thread_cpu_ns();
        let more = now - std::mem::replace(&mut self.cpu_ns, now);
        self.unsaid_ns += more;
        self.recorder.cpu_ns.fetch_add(more, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use retrial::{Address, Capacity, Instance};

    #[test]
    fn the_last_snapshot_is_of_the_end_that_was_said() {
        let path = std::env::temp_dir().join(format!("retrial-recorder-{}", std::process::id()));
        let address = Address::new(path.to_str().unwrap()).unwrap();
        let _instance = Instance::create(&address, Capacity::default(), 0o600).unwrap();
        let observer = Observer::open(&address).unwrap();
        let pace = Pace { interval: Duration::from_millis(10), ..Pace::default() };
        let recorder = Recorder::new(Writer::in_memory(|_| true).unwrap(), pace);
        let taken = Mutex::new(Vec::new());
        let tell = |snapshot: &Snapshot, _| lock(&taken).push(snapshot.at);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| recorder.record(&observer, &tell));
            while lock(&taken).is_empty() {
                std::thread::yield_now();
            }
            recorder.end();
            // The recorder is told to stop some snapshots later.
            std::thread::sleep(Duration::from_millis(50));
            recorder.stop();
            thread.thread().unpark();
        });
        std::fs::remove_file(&path).unwrap();
        let (taken, end) = (lock(&taken), recorder.ended.get().unwrap().0);
        assert_eq!(taken.last(), Some(&end));
        assert!(taken.iter().all(|at| *at <= end), "{taken:?}, {end:?}");
    }
}
