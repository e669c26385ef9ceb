//! Threads that gave the mutex back to wait on a condition, and come back to it.

use super::PrivateMutex;
use crate::foreign::Sort;
use crate::thread::Thread;
use libc::{EPERM, c_int};
use std::sync::atomic::Ordering;

/// In `users`, one thread that will come back from a condition, so that the mutex may not be destroyed. Above
/// what a lock by libc's call and an unlock by ours, or the other way round, leave in the count.
pub(super) const WAITER: u32 = 1 << 16;

impl PrivateMutex {
    /// Gives all locks back, for a wait on a condition: how many there were beyond the first.
    ///
    /// # Errors
    ///
    /// `EPERM` when it is not the caller's, and it would be noticed.
    pub(crate) fn release_all(&self, sort: Sort, thread: &Thread) -> Result<u32, c_int> {
        if sort.knows_owner() && !self.is_own(thread) {
            return Err(EPERM);
        }
        let depth = if sort == Sort::Recursive { self.depth.load(Ordering::Relaxed) } else { 0 };
        if depth != 0 {
            self.depth.store(0, Ordering::Relaxed);
        }
        self.owner.store(0, Ordering::Relaxed);
        self.users.store(self.users.load(Ordering::Relaxed).wrapping_add(WAITER), Ordering::Relaxed);
        self.release(thread);
        Ok(depth)
    }

    /// After the get that followed `release_all`.
    pub(crate) fn come_back(&self, depth: u32) {
        self.users.store(self.users.load(Ordering::Relaxed).wrapping_sub(WAITER), Ordering::Relaxed);
        if depth != 0 {
            self.depth.store(depth, Ordering::Relaxed);
        }
    }

    /// Whether a thread will come back to it from a condition.
    pub(super) fn has_users(&self) -> bool {
        self.users.load(Ordering::Relaxed).wrapping_add(WAITER / 2) >= WAITER
    }
}
