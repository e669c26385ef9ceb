//! Waits that ask their session now and then whether to give up.

use super::{Target, Wait};
use std::time::Duration;

/// Minimum time between two questions: a language's answer takes some 100 ns.
const EVERY: Duration = Duration::from_millis(1);

/// Maximum step of a session that is asked. A signal ends a step; this is for one that comes right before it.
const AT_LEAST_EVERY: Duration = Duration::from_millis(500);

impl Wait<'_> {
    /// The longest next step of so much time that is left; `None` when the session gives up.
    pub(super) fn ask<T: Target>(&mut self, target: &T, left: Duration) -> Option<Duration> {
        let Some(session) = self.waiter.session.filter(|session| session.is_asked()) else { return Some(left) };
        if self.now.saturating_sub(self.asked) >= EVERY.as_nanos() as u64 {
            self.asked = self.now;
            // The answer may wait for a language's lock.
            target.steps_aside();
            if session.asks_to_give_up() {
                return None;
            }
        }
        Some(left.min(AT_LEAST_EVERY))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::views::Counter::{GaveUp, Waits};
    use crate::views::{Phase, Word};
    use crate::{Capacity, Class, ConvertError, GetError, Instance, Mode, Patience, location};
    use std::cell::Cell;
    use std::sync::atomic::{AtomicI32, Ordering};
    use std::time::{Duration, Instant};

    thread_local!(static ASKED: Cell<u32> = const { Cell::new(0) });

    #[test]
    fn a_wait_ends_when_the_session_gives_up_and_is_one_wait_until_then() {
        let instance = Instance::anonymous(Capacity::default()).unwrap();
        let mutex = instance.mutex("m", "t", || 0u64).unwrap();
        let (holder, waiter) =
            (instance.session("h", Class::Normal).unwrap(), instance.session("w", Class::Normal).unwrap());
        waiter.ask_while_waiting(|| {
            ASKED.set(ASKED.get() + 1);
            ASKED.get() == 5
        });
        let hold = mutex.exclusive(&holder, location!()).unwrap();
        let begin = Instant::now();
        let got = mutex.get(&waiter, Mode::Exclusive, location!(), Patience::Endless);
        assert!(matches!(got, Err(GetError::TimedOut)));
        assert_eq!(ASKED.get(), 5);
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        let (_, _, figures) = instance.tables().figures()[0];
        let counted = |counter| figures.get(counter);
        assert_eq!((counted(Waits), counted(GaveUp)), (1, 1));
        drop(hold);
    }

    #[test]
    fn a_question_that_panics_gives_up_and_a_drain_is_taken_back() {
        let instance = Instance::anonymous(Capacity::default()).unwrap();
        let mutex = instance.mutex("m", "t", || 0u64).unwrap();
        let sessions = ["reads", "drains"].map(|name| instance.session(name, Class::Normal).unwrap());
        sessions[1].ask_while_waiting(|| panic!("an answer"));
        let reads = mutex.shared(&sessions[0], location!()).unwrap();
        let mut drains = mutex.examine(&sessions[1], location!()).unwrap();
        let upgrade = || drains.upgrade(Patience::Endless);
        let upgraded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(upgrade));
        assert!(matches!(upgraded, Ok(Err(ConvertError::TimedOut))), "{upgraded:?}");
        assert_eq!((mutex.raw().load().sid(), mutex.raw().load().references()), (sessions[1].sid(), 1));
        drop(drains);
        drop(reads);
        assert_eq!(mutex.raw().load(), Word::FREE);
    }

    /// The child of the last question.
    static CHILD: AtomicI32 = AtomicI32::new(-1);
    static STATUS: AtomicI32 = AtomicI32::new(-1);

    /// Forks once, and goes on in the child. The parent gives up when that has ended.
    fn forks() -> bool {
        let mut status = -1;
        if CHILD.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // SAFETY: the child waits, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        CHILD.store(child, Ordering::Relaxed);
        // SAFETY: `status` is writable.
        let ended = child != 0 && unsafe { libc::waitpid(child, &raw mut status, 0) } == child;
        STATUS.store(status, Ordering::Relaxed);
        ended
    }

    /// The child, which has come out of its parent's wait, ends.
    fn end_child(is_told: bool) {
        if CHILD.swap(-1, Ordering::Relaxed) == 0 {
            // SAFETY: no handler of the parent's runs.
            unsafe { libc::_exit(i32::from(!is_told)) };
        }
        assert_eq!(STATUS.load(Ordering::Relaxed), 0, "the child is told that the session is its parent's");
    }

    #[test]
    fn a_child_that_is_forked_by_the_question_leaves_its_parents_wait_alone() {
        let instance = Instance::anonymous(Capacity::default()).unwrap();
        let mutex = instance.mutex("m", "t", || 0u64).unwrap();
        let (other, waiter) =
            (instance.session("o", Class::Normal).unwrap(), instance.session("w", Class::Normal).unwrap());
        waiter.ask_while_waiting(forks);
        let patience = || Patience::within(Duration::from_secs(1));
        let of_waiter = || instance.tables().session_info(waiter.sid()).unwrap().log;

        let hold = mutex.exclusive(&other, location!()).unwrap();
        let got = mutex.get(&waiter, Mode::Exclusive, location!(), patience());
        end_child(matches!(got, Err(GetError::Forked { .. })));
        assert!(matches!(got, Err(GetError::TimedOut)));
        drop(hold);

        let mut reads = mutex.shared(&waiter, location!()).unwrap();
        let examines = mutex.examine(&other, location!()).unwrap();
        let promoted = reads.examine(patience());
        end_child(matches!(promoted, Err(ConvertError::Forked { .. })));
        assert!(matches!(promoted, Err(ConvertError::TimedOut)));
        assert_eq!((of_waiter().len(), of_waiter()[0].record.phase), (1, Phase::Held));
        drop(examines);
        drop(reads);

        let (reads, mut examines) =
            (mutex.shared(&other, location!()).unwrap(), mutex.examine(&waiter, location!()).unwrap());
        let drained = examines.upgrade(patience());
        end_child(matches!(drained, Err(ConvertError::Forked { .. })));
        assert!(matches!(drained, Err(ConvertError::TimedOut)));
        assert_eq!(mutex.raw().load().sid(), waiter.sid());
        drop(examines);
        drop(reads);
        assert_eq!((mutex.raw().load(), of_waiter().len()), (Word::FREE, 0));
    }
}
