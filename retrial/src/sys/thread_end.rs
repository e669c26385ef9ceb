//! The end of a thread.

use crate::error::SessionError;
use std::ffi::c_void;
use std::sync::OnceLock;

/// What is to run when a thread ends, after the destructors of its thread-locals and of all other keys. Not
/// when the process ends meanwhile: `exit` destroys thread-locals, but ends no thread before the kernel does.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct ThreadEnd {
    key: OnceLock<libc::pthread_key_t>,
    run: fn(),
}

/// Rounds in which libc calls the destructors of keys: `PTHREAD_DESTRUCTOR_ITERATIONS`.
const ROUNDS: usize = 4;

impl ThreadEnd {
    /// A static one: it is registered by its address.
    #[must_use]
    pub const fn new(run: fn()) -> Self {
        Self { key: OnceLock::new(), run }
    }

    /// Has it run at the end of the calling thread, once. Not where the first call of a thread is by the destructor
    /// of another key: then too few rounds may be left.
    ///
    /// # Errors
    ///
    /// [`SessionError::NoKey`].
    pub fn awaits(&'static self) -> Result<(), SessionError> {
        let key = self.key()?;
        // One that is awaited already has its round: from the first one on, a call by the destructor of
        // another key would have it come after the last.
        // SAFETY: the key was made.
        if unsafe { libc::pthread_getspecific(key) }.is_null() { self.after(key, 1) } else { Ok(()) }
    }

    fn key(&self) -> Result<libc::pthread_key_t, SessionError> {
        if let Some(key) = self.key.get() {
            return Ok(*key);
        }
        let mut key = 0;
        // SAFETY: `key` is writable.
        succeeded(unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) })?;
        let first = *self.key.get_or_init(|| key);
        if first != key {
            // Another thread was faster.
            // SAFETY: made above, and no thread has data of it.
            unsafe { libc::pthread_key_delete(key) };
        }
        Ok(first)
    }

    /// The round is in the low bits of its address.
    fn after(&'static self, key: libc::pthread_key_t, round: usize) -> Result<(), SessionError> {
        let value = std::ptr::from_ref(self).cast::<c_void>().map_addr(|at| at | round);
        // SAFETY: the key was made.
        succeeded(unsafe { libc::pthread_setspecific(key, value) })
    }
}

fn succeeded(rc: libc::c_int) -> Result<(), SessionError> {
    if rc == 0 { Ok(()) } else { Err(SessionError::NoKey) }
}

extern "C" fn ended(value: *mut c_void) {
    let at = value.map_addr(|at| at & !7).cast::<ThreadEnd>();
    // SAFETY: what `after` has stored: a static of that alignment, with the round beside its address.
    let end: &'static ThreadEnd = unsafe { &*at };
    let round = value.addr() & 7;
    // A thread that had data of the key has memory for them.
    let is_next = round < ROUNDS && end.key().and_then(|key| end.after(key, round + 1)).is_ok();
    if !is_next {
        (end.run)();
    }
}
