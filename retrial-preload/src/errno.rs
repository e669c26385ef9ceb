//! The error number of the calling thread.

use libc::c_int;

/// Where libc has it.
pub(crate) fn errno() -> *mut c_int {
    // SAFETY: has no preconditions.
    unsafe { libc::__errno_location() }
}

/// Keeps `errno` as it was: lock calls report by what they return.
pub(crate) struct Errno(c_int);

impl Errno {
    pub(crate) fn keep() -> Self {
        // SAFETY: this thread's own, always valid.
        Self(unsafe { *errno() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as in `keep`.
        unsafe { *errno() = self.0 };
    }
}
