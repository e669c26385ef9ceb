//! The file of a segment: created whole or not at all, opened without trust.

use crate::address::{Address, PREFIX};
use crate::costs::Cost;
use crate::entries::SOURCE_TYPES;
use crate::error::{AttachError, CreateError};
use crate::fail;
use crate::segment::{Capacity, Layout, Segment};
#[cfg(not(any(loom, shuttle)))]
use crate::sys::RobustLock;
use crate::sys::{self, Ordering};
use crate::tables::Tables;
use crate::text::hash;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// `RETRIAL\0`, as the first bytes of a segment read.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RETRIAL\0");
/// An instance mapped read-only. It takes no session and changes nothing.
#[derive(Debug)]
pub struct Observer(Tables);

impl Observer {
    /// What is in it, to be read.
    #[must_use]
    pub const fn tables(&self) -> &Tables {
        &self.0
    }

    /// Maps an instance read-only. What the file says is text and numbers of any process that can write it:
    /// nothing here depends on it, but a file that is truncated while it is mapped is a `SIGBUS`.
    ///
    /// # Errors
    ///
    /// [`AttachError`].
    pub fn open(address: &Address) -> Result<Self, AttachError> {
        open(address, false).map(Self)
    }
}

/// Removes an instance's name. Processes that are attached go on with it; no other one finds it.
///
/// # Errors
///
/// When there is none, or it is not a segment of ours, or may not be removed.
pub fn remove(address: &Address) -> Result<(), AttachError> {
    if let Err(error) = Observer::open(address)
        && !matches!(error, AttachError::Format { .. } | AttachError::Truncated { .. } | AttachError::Capacity { .. })
    {
        return Err(error);
    }
    let failed = |source| AttachError::Io { path: address.path.clone(), source };
    let owner = fs::symlink_metadata(&address.path).map_err(failed)?.uid();
    let user = sys::euid();
    if owner != user && owner != 0 && user != 0 {
        return Err(AttachError::Owner { path: address.path.clone(), found: owner, expected: user });
    }
    fs::remove_file(&address.path).map_err(|source| AttachError::Io { path: address.path.clone(), source })
}

impl CreateError {
    /// The same error, said of this path.
    pub(crate) fn at(self, at: &Path) -> Self {
        match self {
            Self::NoSpace { needed, .. } => Self::NoSpace { path: at.into(), needed },
            Self::Io { source, .. } => Self::Io { path: at.into(), source },
            other => other,
        }
    }
}

pub(crate) fn check(capacity: Capacity) -> Result<Layout, CreateError> {
    for (field, found, low, high) in capacity.checked() {
        if !(low..=high).contains(&found) {
            return Err(CreateError::Capacity { field, found, low, high });
        }
    }
    Ok(Layout::of(capacity))
}

/// Where a process finds its open files: a file without a name is linked from there.
pub(crate) const OPEN_FILES: &str = "/proc/self/fd";

/// A file without a name in `directory`. Where the file system has none, or none can be linked for want of `/proc`, with
/// a temporary one.
pub(crate) fn unnamed_file(directory: &Path) -> io::Result<(File, Option<PathBuf>)> {
    let open =
        |path: &Path, flags| OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(flags).open(path);
    match open(directory, libc::O_TMPFILE) {
        Ok(file) if Path::new(OPEN_FILES).exists() => return Ok((file, None)),
        Err(e) if !matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => return Err(e),
        _ => {}
    }
    let path = directory.join(format!(".{PREFIX}{}.{}", sys::pid(), sys::now_ns()));
    let file = open(&path, libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW)?;
    Ok((file, Some(path)))
}

/// Gives a file its name; never replaces one.
pub(crate) fn link(source: &Path, path: &Path) -> io::Result<()> {
    let text = |path: &Path| std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other);
    let (from, to) = (text(source)?, text(path)?);
    // SAFETY: both are strings with their 0.
    let rc =
        unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes an empty file a segment.
pub(crate) fn format(file: &File, layout: Layout, address: Option<Address>) -> Result<Tables, CreateError> {
    let failed = |source: io::Error| CreateError::Io { path: PathBuf::new(), source };
    let no_space = |needed| CreateError::NoSpace { path: PathBuf::new(), needed };
    let is_full = |e: &io::Error| matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG));
    let len = layout.len as u64;
    // Asked first: a file that grows beyond its limit is a signal.
    if len > sys::file_size_max() {
        return Err(CreateError::FileSize { needed: len, limit: sys::file_size_max() });
    }
    file.set_len(len).map_err(|e| if is_full(&e) { no_space(len) } else { failed(e) })?;
    let mapping = Segment::map(file.as_fd(), &layout, true).map_err(failed)?;
    // SAFETY: just mapped, for us alone.
    let segment = unsafe { Segment::new(mapping, layout) };
    if !segment.populate_fixed() {
        return Err(no_space(segment.fixed_len()));
    }
    fail::point();
    let header = segment.header();
    for (cell, (_, value, _, _)) in header.capacity.iter().zip(segment.capacity().checked()) {
        cell.store(value, Ordering::Relaxed);
    }
    header.created_ns.store(sys::clock_ns(sys::Clock::Realtime), Ordering::Relaxed);
    header.creator.store(u64::from(sys::pid()), Ordering::Relaxed);
    let barrier = sys::register_for_barriers() && sys::barrier_in_process() && sys::barrier_beyond();
    header.fence.store(if barrier { 1 } else { 2 }, Ordering::Relaxed);
    header.costs[Cost::Poll as usize].store(crate::waiter::measure_poll_ns(), Ordering::Relaxed);
    segment.admin().init();
    for (entry, name) in segment.types().iter().zip(SOURCE_TYPES) {
        entry.hash.store(hash(name), Ordering::Relaxed);
        entry.name.set(name);
    }
    header.fingerprint.store(Layout::fingerprint(), Ordering::Relaxed);
    // Release: the file gets its name after this, and a process that opens it finds the rest.
    header.magic.store(MAGIC, Ordering::Release);
    fail::point();
    Ok(Tables { segment, address })
}

/// Opens and checks an instance. Trusts nothing that it finds.
pub(crate) fn open(address: &Address, writable: bool) -> Result<Tables, AttachError> {
    let path = address.path.clone();
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => AttachError::NotFound(address.to_string()),
        io::ErrorKind::PermissionDenied => {
            let (owner, mode) = fs::symlink_metadata(&path).map_or((0, 0), |m| (m.uid(), m.mode() & 0o7777));
            AttachError::Permission { path: path.clone(), owner, mode, user: sys::euid() }
        }
        _ if source.raw_os_error() == Some(libc::ELOOP) => {
            AttachError::FileKind { path: path.clone(), found: "symbolic link" }
        }
        _ if source.raw_os_error() == Some(libc::ENXIO) => {
            AttachError::FileKind { path: path.clone(), found: "device or socket" }
        }
        io::ErrorKind::IsADirectory => AttachError::FileKind { path: path.clone(), found: "directory" },
        _ => AttachError::Io { path: path.clone(), source },
    };
    // O_NONBLOCK: a FIFO of this name does not make us wait.
    let file = OpenOptions::new()
        .read(true)
        .write(writable)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(&path)
        .map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let kind = metadata.file_type();
    if !kind.is_file() {
        let found = if kind.is_dir() {
            "directory"
        } else if kind.is_fifo() {
            "FIFO"
        } else {
            "device or socket"
        };
        return Err(AttachError::FileKind { path, found });
    }
    let user = sys::euid();
    // A process that takes part lets the others write where it writes. So it takes part only in an instance
    // of its own user or of root, and root only in root's. To look is safe.
    if writable && metadata.uid() != user && metadata.uid() != 0 {
        return Err(AttachError::Owner { path, found: metadata.uid(), expected: user });
    }
    let layout = layout_in(&file, metadata.len(), address)?;
    let mapping = Segment::map(file.as_fd(), &layout, writable).map_err(failed)?;
    // SAFETY: just mapped, for us alone.
    let segment = unsafe { Segment::new(mapping, layout) };
    // A process that takes part takes this lock at every claim, and bytes that are no lock would keep it
    // waiting.
    #[cfg(not(any(loom, shuttle)))]
    if writable && segment.admin().kind() != RobustLock::KIND {
        let (found, expected) = (u64::from(segment.admin().kind()), u64::from(RobustLock::KIND));
        return Err(AttachError::Capacity { path, field: "lock kind", found, low: expected, high: expected });
    }
    Ok(Tables { segment, address: Some(address.clone()) })
}

/// The layout that the header of a file of `found` bytes says, checked.
fn layout_in(file: &File, found: u64, address: &Address) -> Result<Layout, AttachError> {
    let path = address.path.clone();
    let smallest = Layout::of(Capacity { sessions: 1, mutexes: 1, locations: 1, rows: 1, arena: 0 }).len as u64;
    let word = |index: u64| {
        let mut bytes = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, index * 8)
            .map(|()| u64::from_le_bytes(bytes))
            .map_err(|source| AttachError::Io { path: path.clone(), source })
    };
    let magic = if found >= 8 { word(0)? } else { 0 };
    if magic != MAGIC {
        return Err(AttachError::Magic { path, found: magic, expected: MAGIC });
    }
    if found < smallest {
        return Err(AttachError::Truncated { path, found, expected: smallest });
    }
    let format = word(1)?;
    if format != Layout::fingerprint() {
        return Err(AttachError::Format { path, found: format, expected: Layout::fingerprint() });
    }
    // Read once, by value: what another process writes into the header later changes nothing here.
    let mut capacity = Capacity::default();
    let mut values = [0; 5];
    for (i, (field, _, low, high)) in capacity.checked().into_iter().enumerate() {
        values[i] = word(2 + i as u64)?;
        if !(low..=high).contains(&values[i]) {
            return Err(AttachError::Capacity { path, field, found: values[i], low, high });
        }
    }
    let small = |i: usize| u32::try_from(values[i]).unwrap_or(0);
    capacity =
        Capacity { sessions: small(0), mutexes: small(1), locations: small(2), rows: small(3), arena: values[4] };
    let layout = Layout::of(capacity);
    if found < layout.len as u64 {
        return Err(AttachError::Truncated { path, found, expected: layout.len as u64 });
    }
    Ok(layout)
}
