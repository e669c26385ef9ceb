//! The end of a thread.

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

    /// Has it run at the end of the calling thread, once.
    ///
    /// # Panics
    ///
    /// When the process has no key for thread-specific data left, or no memory for the data.
    pub fn awaits(&'static self) {
        // One that is awaited already has its round: from the first one on, a call by the destructor of
        // another key would have it come after the last.
        // SAFETY: the key was made.
        if unsafe { libc::pthread_getspecific(self.key()) }.is_null() {
            self.after(1);
        }
    }

    fn key(&self) -> libc::pthread_key_t {
        *self.key.get_or_init(|| {
            let mut key = 0;
            // SAFETY: `key` is writable.
            let rc = unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) };
            assert_eq!(rc, 0, "a key for thread-specific data can be made");
            key
        })
    }

    /// The round is in the low bits of its address.
    fn after(&'static self, round: usize) {
        let value = std::ptr::from_ref(self).cast::<c_void>().map_addr(|at| at | round);
        // SAFETY: the key was made.
        let rc = unsafe { libc::pthread_setspecific(self.key(), value) };
        assert_eq!(rc, 0, "thread-specific data can be stored");
    }
}

extern "C" fn ended(value: *mut c_void) {
    let at = value.map_addr(|at| at & !7).cast::<ThreadEnd>();
    // SAFETY: what `after` has stored: a static of that alignment, with the round beside its address.
    let end: &'static ThreadEnd = unsafe { &*at };
    let round = value.addr() & 7;
    if round < ROUNDS { end.after(round + 1) } else { (end.run)() }
}
