//! The error number of the calling thread.

/// Where libc has it.
#[inline]
#[must_use]
pub fn errno() -> *mut i32 {
    // SAFETY: has no preconditions.
    unsafe { libc::__errno_location() }
}

/// What it is.
pub(super) fn error() -> i32 {
    // SAFETY: this thread's own, always valid.
    unsafe { *errno() }
}

/// Keeps `errno` as it was: lock calls report by what they return, and the interposer is called in their
/// place.
#[derive(Debug)]
pub struct Errno(i32);

impl Errno {
    /// Until this value is dropped.
    #[inline]
    #[must_use]
    pub fn keep() -> Self {
        // SAFETY: this thread's own, always valid.
        Self(unsafe { *errno() })
    }
}

impl Drop for Errno {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as in `keep`.
        unsafe { *errno() = self.0 };
    }
}
