//! Mutexes and read-write locks of the system's C library.

use super::Lock;
use libc::c_int;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

const DEFAULT: u8 = 0;
const ADAPTIVE: u8 = 1;
const SHARED: u8 = 2;
const ROBUST: u8 = 3;

/// A mutex of this kind.
#[repr(transparent)]
pub struct Mutex<const KIND: u8>(UnsafeCell<libc::pthread_mutex_t>);

pub type Default = Mutex<DEFAULT>;
/// Spins before it sleeps.
pub type Adaptive = Mutex<ADAPTIVE>;
pub type Shared = Mutex<SHARED>;
/// Process-shared too.
pub type Robust = Mutex<ROBUST>;

// SAFETY: made for many threads; the process-shared ones for many processes.
unsafe impl<const KIND: u8> Sync for Mutex<KIND> {}

/// Of glibc.
const PTHREAD_MUTEX_ADAPTIVE_NP: c_int = 3;

impl<const KIND: u8> Lock for Mutex<KIND> {
    fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    fn init(&self) {
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attr = attributes.as_mut_ptr();
        // SAFETY: `attr` is writable.
        let mut failed = unsafe { libc::pthread_mutexattr_init(attr) };
        if KIND == ADAPTIVE {
            // SAFETY: made above.
            failed |= unsafe { libc::pthread_mutexattr_settype(attr, PTHREAD_MUTEX_ADAPTIVE_NP) };
        }
        if KIND == SHARED || KIND == ROBUST {
            // SAFETY: made above.
            failed |= unsafe { libc::pthread_mutexattr_setpshared(attr, libc::PTHREAD_PROCESS_SHARED) };
        }
        if KIND == ROBUST {
            // SAFETY: made above.
            failed |= unsafe { libc::pthread_mutexattr_setrobust(attr, libc::PTHREAD_MUTEX_ROBUST) };
        }
        // SAFETY: nobody uses the mutex yet.
        failed |= unsafe { libc::pthread_mutex_init(self.0.get(), attr) };
        assert_eq!(failed, 0, "the C library makes every kind of mutex");
    }

    #[inline]
    fn with(&self, section: impl FnOnce()) -> bool {
        // SAFETY: initialised in its place by `init`.
        let code = unsafe { libc::pthread_mutex_lock(self.0.get()) };
        // Robust, and its owner died: it is ours, and a failure all the same, since nobody is to die.
        let ours = code == 0 || code == libc::EOWNERDEAD;
        if code == libc::EOWNERDEAD {
            // SAFETY: we hold it.
            unsafe { libc::pthread_mutex_consistent(self.0.get()) };
        }
        if code == 0 {
            section();
        }
        if ours {
            // SAFETY: we hold it.
            unsafe { libc::pthread_mutex_unlock(self.0.get()) };
        }
        code == 0
    }
}

/// A read-write lock, which prefers readers; between processes or not.
#[repr(transparent)]
pub struct RwLock<const SHARED: bool>(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: as the mutexes.
unsafe impl<const SHARED: bool> Sync for RwLock<SHARED> {}

impl<const SHARED: bool> RwLock<SHARED> {
    /// Does the section when `code` says that the lock was got.
    #[inline]
    fn finish(&self, code: c_int, section: impl FnOnce()) -> bool {
        if code == 0 {
            section();
            // SAFETY: we hold it.
            unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
        }
        code == 0
    }
}

impl<const SHARED: bool> Lock for RwLock<SHARED> {
    fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER))
    }

    fn init(&self) {
        let mut attributes = MaybeUninit::<libc::pthread_rwlockattr_t>::uninit();
        let attr = attributes.as_mut_ptr();
        // SAFETY: `attr` is writable.
        let mut failed = unsafe { libc::pthread_rwlockattr_init(attr) };
        if SHARED {
            // SAFETY: made above.
            failed |= unsafe { libc::pthread_rwlockattr_setpshared(attr, libc::PTHREAD_PROCESS_SHARED) };
        }
        // SAFETY: nobody uses the lock yet.
        failed |= unsafe { libc::pthread_rwlock_init(self.0.get(), attr) };
        assert_eq!(failed, 0, "the C library makes every kind of read-write lock");
    }

    #[inline]
    fn with(&self, section: impl FnOnce()) -> bool {
        // SAFETY: initialised in its place by `init`.
        let code = unsafe { libc::pthread_rwlock_wrlock(self.0.get()) };
        self.finish(code, section)
    }

    #[inline]
    fn read(&self, section: impl FnOnce()) -> bool {
        // SAFETY: as above.
        let code = unsafe { libc::pthread_rwlock_rdlock(self.0.get()) };
        self.finish(code, section)
    }
}
