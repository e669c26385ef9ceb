//! The traits of `lock_api` 0.4.

use super::{RawLock, until};
use crate::mode::Mode;
use crate::mutex::Patience;
use std::time::{Duration, Instant};

// SAFETY: exclusive while X is held; guards stay on their thread, as the marker says.
unsafe impl lock_api::RawMutex for RawLock {
    #[allow(clippy::declare_interior_mutable_const)] // what the trait asks for
    const INIT: Self = Self(crate::raw_mutex::RawMutex::new());
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        self.get(Mode::Exclusive, Patience::Endless);
    }

    fn try_lock(&self) -> bool {
        self.get(Mode::Exclusive, Patience::None)
    }

    unsafe fn unlock(&self) {
        self.release(Mode::Exclusive);
    }

    fn is_locked(&self) -> bool {
        self.is_held()
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawMutexTimed for RawLock {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.get(Mode::Exclusive, Patience::within(timeout))
    }

    fn try_lock_until(&self, timeout: Instant) -> bool {
        self.get(Mode::Exclusive, until(timeout))
    }
}

// SAFETY: X excludes X and S.
unsafe impl lock_api::RawRwLock for RawLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(crate::raw_mutex::RawMutex::new());
    type GuardMarker = lock_api::GuardNoSend;

    fn lock_shared(&self) {
        self.get(Mode::Shared, Patience::Endless);
    }

    fn try_lock_shared(&self) -> bool {
        self.get(Mode::Shared, Patience::None)
    }

    unsafe fn unlock_shared(&self) {
        self.release(Mode::Shared);
    }

    fn lock_exclusive(&self) {
        self.get(Mode::Exclusive, Patience::Endless);
    }

    fn try_lock_exclusive(&self) -> bool {
        self.get(Mode::Exclusive, Patience::None)
    }

    unsafe fn unlock_exclusive(&self) {
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
unsafe impl lock_api::RawRwLockTimed for RawLock {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        self.get(Mode::Shared, Patience::within(timeout))
    }

    fn try_lock_shared_until(&self, timeout: Instant) -> bool {
        self.get(Mode::Shared, until(timeout))
    }

    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        self.get(Mode::Exclusive, Patience::within(timeout))
    }

    fn try_lock_exclusive_until(&self, timeout: Instant) -> bool {
        self.get(Mode::Exclusive, until(timeout))
    }
}

// SAFETY: X becomes S without letting anybody in between.
unsafe impl lock_api::RawRwLockDowngrade for RawLock {
    unsafe fn downgrade(&self) {
        self.share(Mode::Exclusive);
    }
}

// SAFETY: E excludes E and X, and becomes X when the readers have left.
unsafe impl lock_api::RawRwLockUpgrade for RawLock {
    fn lock_upgradable(&self) {
        self.get(Mode::Examine, Patience::Endless);
    }

    fn try_lock_upgradable(&self) -> bool {
        self.get(Mode::Examine, Patience::None)
    }

    unsafe fn unlock_upgradable(&self) {
        self.release(Mode::Examine);
    }

    unsafe fn upgrade(&self) {
        self.upgrade(Patience::Endless);
    }

    unsafe fn try_upgrade(&self) -> bool {
        self.upgrade(Patience::None)
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockUpgradeTimed for RawLock {
    fn try_lock_upgradable_for(&self, timeout: Duration) -> bool {
        self.get(Mode::Examine, Patience::within(timeout))
    }

    fn try_lock_upgradable_until(&self, timeout: Instant) -> bool {
        self.get(Mode::Examine, until(timeout))
    }

    unsafe fn try_upgrade_for(&self, timeout: Duration) -> bool {
        self.upgrade(Patience::within(timeout))
    }

    unsafe fn try_upgrade_until(&self, timeout: Instant) -> bool {
        self.upgrade(until(timeout))
    }
}
