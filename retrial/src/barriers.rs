//! The barriers that sessions have the kernel do, and for which processes.

use crate::instance::Instance;
use crate::operation_log::MutexId;
use crate::sys::protocol::fence;
use crate::sys::{self, Ordering};

/// In place of a process: there are several.
const SEVERAL: u64 = u64::MAX;

impl Instance {
    /// A session of this process begins. Whether barriers are for this process alone: see [`Self::barrier`].
    pub(crate) fn note_process(&self, pid: u32, pid_namespace: u64) {
        // A PID says which process it is within its namespace; 0: that is not known.
        let this = if pid_namespace == 0 { SEVERAL } else { pid_namespace << 32 | u64::from(pid) };
        let process = &self.tables.segment.header().process;
        let known =
            process.compare_exchange(0, this, Ordering::Relaxed, Ordering::Relaxed).unwrap_or_else(|known| known);
        if known != 0 && known != this {
            process.store(SEVERAL, Ordering::Relaxed);
        }
        // SeqCst: either a session that parks sees it, or the releases of this one see that session.
        fence(Ordering::SeqCst);
    }

    /// A full memory barrier for a session that parks: on each processor that runs this process, and where the
    /// releases of `mutex` may be another one's, on what Linux finds of those (see [`sys::barrier_beyond`]). Whether
    /// the kernel did it.
    pub(crate) fn barrier(&self, mutex: MutexId) -> bool {
        // The kernel does none in a process of one thread.
        fence(Ordering::SeqCst);
        // Mutexes that are not registered may be got by sessions of any instance.
        let is_alone =
            || mutex != MutexId::default() && self.tables.segment.header().process.load(Ordering::Relaxed) != SEVERAL;
        sys::barrier_in_process() && (is_alone() || sys::barrier_beyond())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::{Capacity, Class};

    #[test]
    fn barriers_go_beyond_the_process_once_another_one_has_had_a_session() {
        let made = || Instance::anonymous(Capacity::default()).unwrap();
        let process = |instance: &Instance| instance.tables.segment.header().process.load(Ordering::Relaxed);
        let (instance, unknown) = (made(), made());
        assert_eq!(process(&instance), 0);
        for name in ["first", "second"] {
            drop(instance.session(name, Class::Normal).unwrap());
            assert!(![0, SEVERAL].contains(&process(&instance)));
        }
        for pid in [sys::pid() + 1, sys::pid()] {
            instance.note_process(pid, sys::pid_namespace());
            assert_eq!(process(&instance), SEVERAL);
        }
        unknown.note_process(sys::pid(), 0);
        assert_eq!(process(&unknown), SEVERAL);
    }
}
