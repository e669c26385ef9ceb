//! Searches for dead sessions, on behalf of sessions that wait.

use crate::instance::{Admin, Instance};
use crate::raw_mutex::RawMutex;
use crate::slot::Slot;
use crate::sys::{self, Ordering, Taken};
use std::time::Duration;

/// Shortest time between two searches of all slots for dead sessions, whether for the whole instance or for a
/// debt to one mutex that was busy.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_millis(10);

/// Shortest time between two questions to the kernel for the thread of a session on behalf of waiters, or for
/// all threads on behalf of claims of one process.
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(1);

impl Instance {
    /// Looks for dead sessions, at most once in 10 ms in the whole instance, and for threads that are gone
    /// without a mark as [`Instance::ask_for_thread`] does: the caller waits for references, and the word
    /// does not say whose they are. What the dead owe to other mutexes is noted for the waiters of those.
    pub(crate) fn sweep(&self, here: Option<&RawMutex>, now_ns: u64) {
        if sys::is_due(&self.tables.segment.header().swept_ns, now_ns, SWEEP_EVERY) {
            self.tables.slots().for_each(|(_, slot)| self.ask_for_thread(slot, now_ns));
            self.recover_all_with(here);
        }
    }

    /// Asks the kernel for the thread of a session that keeps others waiting, at most once a second for all
    /// of them together.
    pub(crate) fn ask_for_thread(&self, slot: &Slot, now_ns: u64) {
        let pid_namespace = sys::pid_namespace();
        // A process in another namespace cannot ask, and takes nobody's turn.
        let can_ask = slot.pid_namespace.load(Ordering::Relaxed) == pid_namespace;
        if can_ask && sys::is_due(&slot.asked_ns, now_ns, ASK_EVERY) && !self.look_for_thread(slot, pid_namespace) {
            slot.asked_ns.store(0, Ordering::Relaxed);
        }
    }

    /// Finds out which sessions' threads are gone although the kernel did not mark their locks, for the next
    /// recovery. The kernel does not mark a thread that replaced its process by `execve` without being its
    /// first thread, nor more than 2,048 sessions of one thread.
    ///
    /// Asks the kernel for each session of this PID namespace. So does a session that finds all slots taken
    /// or waits for references; one that waits for a holder asks for that one's thread. Each of these
    /// questions is asked at most once a second. Leaves out what it finds while another thread has the lock
    /// of the tables.
    pub fn look_for_threads(&self) {
        let pid_namespace = sys::pid_namespace();
        for (_, slot) in self.tables.slots() {
            self.look_for_thread(slot, pid_namespace);
        }
    }

    /// Whether it is done: not while another thread has the lock of the tables.
    fn look_for_thread(&self, slot: &Slot, pid_namespace: u64) -> bool {
        if slot.lost_thread(pid_namespace).is_none() {
            return true;
        }
        // With the lock no thread claims the slot while the kernel is asked again and the slot is marked: a
        // new thread with the id of the dead one would be taken for it. The lock is not kept from slot to
        // slot: a process that is stopped in here would stop every claim.
        let admin = self.tables.segment.admin();
        if admin.try_take() == Taken::No {
            return false;
        }
        let _admin = Admin(admin);
        slot.look_for_thread(pid_namespace);
        true
    }
}
