//! Mutexes of Rust, between threads.

use super::Lock;

impl Lock for std::sync::Mutex<()> {
    fn new() -> Self {
        Self::default()
    }

    #[inline]
    fn with(&self, section: impl FnOnce()) -> bool {
        let guard = self.lock();
        section();
        guard.is_ok()
    }
}

impl Lock for std::sync::RwLock<()> {
    fn new() -> Self {
        Self::default()
    }

    #[inline]
    fn with(&self, section: impl FnOnce()) -> bool {
        let guard = self.write();
        section();
        guard.is_ok()
    }

    #[inline]
    fn read(&self, section: impl FnOnce()) -> bool {
        let guard = self.read();
        section();
        guard.is_ok()
    }
}

/// Implements [`Lock`] for a lock of `lock_api`.
macro_rules! lock {
    ($mutex:ty, $get:ident, $read:ident) => {
        impl Lock for $mutex {
            fn new() -> Self {
                Self::default()
            }

            #[inline]
            fn with(&self, section: impl FnOnce()) -> bool {
                let _guard = self.$get();
                section();
                true
            }

            #[inline]
            fn read(&self, section: impl FnOnce()) -> bool {
                let _guard = self.$read();
                section();
                true
            }
        }
    };
}

lock!(parking_lot::Mutex<()>, lock, lock);
lock!(usync::Mutex<()>, lock, lock);
lock!(parking_lot::RwLock<()>, write, read);
