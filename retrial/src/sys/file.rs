//! Files of the proc file system, read by raw system calls: libc's `open`, `read` and `close` are
//! cancellation points, and a session that waits for a mutex must not be cancelled there.

use super::Errno;
use std::ffi::CStr;
use std::mem::MaybeUninit;

/// A file that is open for reading. Nothing is allocated.
#[derive(Debug)]
pub struct File(libc::c_long);

impl File {
    /// Opens a file. `None` when the kernel refuses.
    #[must_use]
    pub fn open(path: &CStr) -> Option<Self> {
        let _errno = Errno::keep();
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: the path is a string with its 0.
        let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
        (fd >= 0).then_some(Self(fd))
    }

    /// Reads up to the buffer's length. How many bytes there were: 0 at the end, and where reading fails.
    pub fn read(&self, buffer: &mut [u8]) -> usize {
        let _errno = Errno::keep();
        // SAFETY: the buffer is writable in this length.
        let len = unsafe { libc::syscall(libc::SYS_read, self.0, buffer.as_mut_ptr(), buffer.len()) };
        usize::try_from(len).unwrap_or(0)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _errno = Errno::keep();
        // SAFETY: opened by `open`, and closed only here.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// Number of a file in its file system. `None` when the kernel does not say.
pub(super) fn inode(path: &CStr) -> Option<u64> {
    let _errno = Errno::keep();
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    let at = libc::AT_FDCWD;
    // SAFETY: the path is a string with its 0, and `stat` is writable.
    let rc = unsafe { libc::syscall(libc::SYS_newfstatat, at, path.as_ptr(), stat.as_mut_ptr(), 0) };
    // SAFETY: zeros are a value, and the call may have filled it.
    (rc == 0).then(|| unsafe { stat.assume_init() }.st_ino)
}

/// The number of the PID namespace of this process; 0 when the kernel does not say.
pub(super) fn pid_namespace() -> u64 {
    inode(c"/proc/self/ns/pid").unwrap_or(0)
}
