//! `lock_api` 0.5 on retrial mutexes: its `Mutex<T>` and `RwLock<T>`.
//!
//! ```
//! use retrial::lock_api::v0_5::RwLock;
//! use lock_api_05::RwLockUpgradableReadGuard;
//!
//! let names = RwLock::new(vec!["a"]);
//! let read = names.upgradable_read();
//! if !read.contains(&"b") {
//!     RwLockUpgradableReadGuard::upgrade(read).push("b");
//! }
//! assert_eq!(*names.read(), ["a", "b"]);
//! ```

use super::{RawLock, until};
use crate::mode::Mode;
use crate::mutex::Patience;
use lock_api_05::GuardNoSend;
use std::time::{Duration, Instant};

/// A [`lock_api_05::Mutex`] on a retrial mutex.
pub type Mutex<T> = lock_api_05::Mutex<RawLock, T>;
/// A [`lock_api_05::RwLock`] on a retrial mutex.
pub type RwLock<T> = lock_api_05::RwLock<RawLock, T>;

impl RawLock {
    /// However long it takes.
    fn got(&self, mode: Mode) -> GuardNoSend {
        self.get(mode, Patience::Endless);
        GuardNoSend::new()
    }

    fn try_get(&self, mode: Mode, patience: Patience) -> Option<GuardNoSend> {
        self.get(mode, patience).then(GuardNoSend::new)
    }

    fn try_to_upgrade(&self, guard: GuardNoSend, patience: Patience) -> Result<GuardNoSend, GuardNoSend> {
        if self.upgrade(patience) { Ok(guard) } else { Err(guard) }
    }
}

// SAFETY: exclusive while X is held; guards stay on their thread.
unsafe impl lock_api_05::RawMutex for RawLock {
    #[allow(clippy::declare_interior_mutable_const)] // what the trait asks for
    const INIT: Self = Self(crate::raw_mutex::RawMutex::new());
    type Guard = GuardNoSend;

    fn lock(&self) -> GuardNoSend {
        self.got(Mode::Exclusive)
    }

    fn try_lock(&self) -> Option<GuardNoSend> {
        self.try_get(Mode::Exclusive, Patience::None)
    }

    unsafe fn unlock(&self, _: GuardNoSend) {
        self.release(Mode::Exclusive);
    }

    fn is_locked(&self) -> bool {
        self.is_held()
    }
}

// SAFETY: as above.
unsafe impl lock_api_05::RawMutexTimed for RawLock {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> Option<GuardNoSend> {
        self.try_get(Mode::Exclusive, Patience::within(timeout))
    }

    fn try_lock_until(&self, timeout: Instant) -> Option<GuardNoSend> {
        self.try_get(Mode::Exclusive, until(timeout))
    }
}

// SAFETY: X excludes X and S.
unsafe impl lock_api_05::RawRwLock for RawLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(crate::raw_mutex::RawMutex::new());
    type SharedGuard = GuardNoSend;
    type ExclusiveGuard = GuardNoSend;

    fn lock_shared(&self) -> GuardNoSend {
        self.got(Mode::Shared)
    }

    fn try_lock_shared(&self) -> Option<GuardNoSend> {
        self.try_get(Mode::Shared, Patience::None)
    }

    unsafe fn unlock_shared(&self, _: GuardNoSend) {
        self.release(Mode::Shared);
    }

    fn lock_exclusive(&self) -> GuardNoSend {
        self.got(Mode::Exclusive)
    }

    fn try_lock_exclusive(&self) -> Option<GuardNoSend> {
        self.try_get(Mode::Exclusive, Patience::None)
    }

    unsafe fn unlock_exclusive(&self, _: GuardNoSend) {
        self.release(Mode::Exclusive);
    }

    fn is_locked(&self) -> bool {
        self.is_held()
    }

    fn is_locked_exclusive(&self) -> bool {
        self.is_held_alone()
    }
}

// SAFETY: as above.
unsafe impl lock_api_05::RawRwLockTimed for RawLock {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_shared_for(&self, timeout: Duration) -> Option<GuardNoSend> {
        self.try_get(Mode::Shared, Patience::within(timeout))
    }

    fn try_lock_shared_until(&self, timeout: Instant) -> Option<GuardNoSend> {
        self.try_get(Mode::Shared, until(timeout))
    }

    fn try_lock_exclusive_for(&self, timeout: Duration) -> Option<GuardNoSend> {
        self.try_get(Mode::Exclusive, Patience::within(timeout))
    }

    fn try_lock_exclusive_until(&self, timeout: Instant) -> Option<GuardNoSend> {
        self.try_get(Mode::Exclusive, until(timeout))
    }
}

// SAFETY: X becomes S without letting anybody in between.
unsafe impl lock_api_05::RawRwLockDowngrade for RawLock {
    unsafe fn downgrade(&self, guard: GuardNoSend) -> GuardNoSend {
        self.share(Mode::Exclusive);
        guard
    }
}

// SAFETY: E excludes E and X, and becomes X when the readers have left.
unsafe impl lock_api_05::RawRwLockUpgrade for RawLock {
    type UpgradableGuard = GuardNoSend;

    fn lock_upgradable(&self) -> GuardNoSend {
        self.got(Mode::Examine)
    }

    fn try_lock_upgradable(&self) -> Option<GuardNoSend> {
        self.try_get(Mode::Examine, Patience::None)
    }

    unsafe fn unlock_upgradable(&self, _: GuardNoSend) {
        self.release(Mode::Examine);
    }

    unsafe fn upgrade(&self, guard: GuardNoSend) -> GuardNoSend {
        self.upgrade(Patience::Endless);
        guard
    }

    unsafe fn try_upgrade(&self, guard: GuardNoSend) -> Result<GuardNoSend, GuardNoSend> {
        self.try_to_upgrade(guard, Patience::None)
    }
}

// SAFETY: as above.
unsafe impl lock_api_05::RawRwLockUpgradeTimed for RawLock {
    fn try_lock_upgradable_for(&self, timeout: Duration) -> Option<GuardNoSend> {
        self.try_get(Mode::Examine, Patience::within(timeout))
    }

    fn try_lock_upgradable_until(&self, timeout: Instant) -> Option<GuardNoSend> {
        self.try_get(Mode::Examine, until(timeout))
    }

    unsafe fn try_upgrade_for(&self, guard: GuardNoSend, timeout: Duration) -> Result<GuardNoSend, GuardNoSend> {
        self.try_to_upgrade(guard, Patience::within(timeout))
    }

    unsafe fn try_upgrade_until(&self, guard: GuardNoSend, timeout: Instant) -> Result<GuardNoSend, GuardNoSend> {
        self.try_to_upgrade(guard, until(timeout))
    }
}
