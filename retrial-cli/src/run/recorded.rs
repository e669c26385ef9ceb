//! The recording of a run, by a thread beside it.

use crate::instances::attach_error;
use crate::recording::store::Writer;
use crate::recording::store::parquet::Partitions;
use crate::recording::{Pace, Recorder, Snapshot};
use miette::Report;
use retrial::{Address, Observer};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// The files that a recording goes to.
pub struct Files {
    path: PathBuf,
    writer: Writer,
    partitions: Option<Partitions>,
}

impl Files {
    /// The recording, and the directory of its Parquet files, if they are wanted.
    pub fn open(path: &Path, parquet: Option<&Path>) -> Result<Self, Report> {
        let partitions = parquet.map(|directory| Partitions::new(directory, None)).transpose()?;
        Ok(Self { path: path.to_owned(), writer: Writer::open(path)?, partitions })
    }

    /// Records this instance from now on. The first snapshot has been taken at the return, so that nothing that
    /// happens after it is missed.
    pub fn record(self, address: &Address) -> Result<Recorded, Report> {
        let observer = Observer::open(address).map_err(attach_error)?;
        let recorder = Arc::new(Recorder::new(self.writer, Pace::default()));
        let shared = Arc::clone(&recorder);
        let (taken, first) = mpsc::channel();
        let tell = move |_: &Snapshot, _| taken.send(()).unwrap_or(());
        let thread = std::thread::spawn(move || shared.record(&observer, &tell));
        // A recorder that fails before its first snapshot ends this, too: `finish` says why.
        let _ = first.recv();
        Ok(Recorded { recorder, thread, path: self.path, partitions: self.partitions })
    }
}

/// The recorder of a run, in a thread of its own.
pub struct Recorded {
    recorder: Arc<Recorder>,
    thread: JoinHandle<()>,
    path: PathBuf,
    partitions: Option<Partitions>,
}

impl Recorded {
    /// The period of the recording ends here.
    pub fn program_ended(&self) {
        self.recorder.end();
    }

    /// Takes the last snapshot, and writes the Parquet files.
    pub fn finish(self) -> Result<(), Report> {
        self.recorder.stop();
        self.thread.thread().unpark();
        let _ = self.thread.join();
        Arc::into_inner(self.recorder).map_or(Ok(()), Recorder::finish)?;
        if let Some(mut partitions) = self.partitions {
            partitions.write(&self.path, u64::MAX)?;
        }
        Ok(())
    }
}
