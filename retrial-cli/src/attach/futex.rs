//! What a thread waits for in the kernel, by its system call and by the memory at that address.
//!
//! A futex is 4 bytes that may be anything. A `pthread_mutex_t` of glibc's is taken for one only if all of
//! this fits together: what the thread expected to find there, how it called, and the fields beside the word.

use crate::run::record::{ELISION, ROBUST, SHARED, SORT, TID};
use crate::who::thread::Syscall;

/// Bytes that are read at a futex: the fields of a `pthread_mutex_t`.
pub const BYTES: usize = crate::run::record::RECORD;

/// Bits of the kind of a `pthread_mutex_t`, beside those of [`crate::run::record`].
const INHERIT: u32 = 0x20;
const PROTECT: u32 = 0x40;
/// Sorts of a `pthread_mutex_t`, by libc's numbers.
const SORTS: [&str; 4] = ["", ", recursive", ", errorcheck", ", adaptive"];
const RECURSIVE: u32 = 1;

/// Bit of the word of a robust mutex, or one with priority inheritance, that says that threads wait.
const WAITERS: u32 = 0x8000_0000;
/// The word of a normal mutex that threads may wait for, which is also what its waiters expect.
const CONTENDED: u32 = 2;
/// Bits of the word of a mutex with priority protection that are not its ceiling.
const BELOW_CEILING: u32 = (1 << 19) - 1;

/// Operations of the system call, without these bits.
const PRIVATE: u64 = 0x80;
const REALTIME: u64 = 0x100;
const WAIT: u64 = 0;
const LOCK_PI: u64 = 6;
const WAIT_BITSET: u64 = 9;
const WAIT_REQUEUE_PI: u64 = 11;
const LOCK_PI2: u64 = 13;

/// Maximum number of a thread that Linux gives.
const TID_MAX: u32 = 1 << 22;

/// A wait of a thread in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    pub address: u64,
    /// The operation without its flags; `None` of `futex_waitv`.
    operation: Option<u64>,
    is_private: bool,
    is_timed: bool,
    /// What the thread expected to find at the address.
    expected: u32,
}

/// What lies at the address of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guess {
    /// A mutex that this thread has, by the number that its process knows it by; 0 of one without an owner at
    /// this moment. The kind is `None` of a futex with priority inheritance that is no `pthread_mutex_t`.
    Mutex { kind: Option<u32>, owner: u32 },
    /// The number of a thread, which the kernel clears when that thread ends.
    End { tid: u32 },
    /// Anything else: a condition, a semaphore, a barrier, a lock of another kind or another runtime.
    Other,
}

impl Wait {
    /// The wait that a system call is; `None` of any other call. `is_in_futex` says whether the kernel's
    /// function that the thread sleeps in is one of futexes.
    pub fn of(call: &Syscall, is_in_futex: bool) -> Option<Self> {
        let [address, operation, expected, timeout, ..] = call.arguments;
        match call.number {
            libc::SYS_futex => {}
            // The call goes on after a signal, with the same arguments.
            libc::SYS_restart_syscall if is_in_futex => {}
            libc::SYS_futex_waitv => {
                // The address is that of a list.
                let (operation, is_private, is_timed, expected) = (None, false, timeout != 0, 0);
                return Some(Self { address, operation, is_private, is_timed, expected });
            }
            _ => return None,
        }
        let is_private = operation & PRIVATE != 0;
        let operation = operation & !(PRIVATE | REALTIME);
        let is_wait = matches!(operation, WAIT | LOCK_PI | WAIT_BITSET | WAIT_REQUEUE_PI | LOCK_PI2);
        // The kernel looks at the lower half of the register.
        let expected = u32::try_from(expected & u64::from(u32::MAX)).unwrap_or(0);
        let operation = Some(operation);
        is_wait.then_some(Self { address, operation, is_private, is_timed: timeout != 0, expected })
    }

    /// What lies at its address, by what is there now.
    pub fn guess(self, found: &Found) -> Guess {
        match self.operation {
            Some(LOCK_PI | LOCK_PI2) => {
                let kind = Some(found.kind).filter(|kind| is_kind(*kind) && kind & INHERIT != 0);
                Guess::Mutex { kind, owner: found.lock & TID }
            }
            Some(WAIT | WAIT_BITSET) if self.is_of_mutex(found) => {
                let owner = if found.kind & ROBUST != 0 { found.lock & TID } else { found.owner };
                Guess::Mutex { kind: Some(found.kind), owner }
            }
            // The word of a thread that lives; joiners do not set the bit that robust mutexes have.
            Some(WAIT | WAIT_BITSET)
                if !self.is_private && found.lock == self.expected && (3..TID_MAX).contains(&found.lock) =>
            {
                Guess::End { tid: found.lock }
            }
            _ => Guess::Other,
        }
    }

    /// Whether the call is one of glibc's for a mutex of the kind that is found there.
    fn is_of_mutex(self, found: &Found) -> bool {
        let kind = found.kind;
        // Only a lock with a deadline asks by bits; locks of other runtimes do without one.
        let is_call = self.operation == Some(WAIT) || self.is_timed;
        let is_expected = match kind {
            _ if kind & ROBUST != 0 => self.expected & WAITERS != 0 && self.expected & TID != 0,
            _ if kind & PROTECT != 0 => self.expected & BELOW_CEILING == CONTENDED,
            _ => self.expected == CONTENDED && found.lock <= CONTENDED,
        };
        let is_private = kind & (ROBUST | SHARED) == 0;
        is_kind(kind) && kind & INHERIT == 0 && is_call && is_expected && self.is_private == is_private && found.fits()
    }
}

/// The fields of a `pthread_mutex_t`, if it is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    lock: u32,
    count: u32,
    owner: u32,
    /// Threads that have it, or are to get it back after a wait for a condition.
    users: u32,
    kind: u32,
}

impl Found {
    pub fn parse(bytes: &[u8; BYTES]) -> Self {
        let (words, _) = bytes.as_chunks::<4>();
        let [lock, count, owner, users, kind] = std::array::from_fn(|i| u32::from_ne_bytes(words[i]));
        Self { lock, count, owner, users, kind }
    }

    /// The thread that has a mutex that was known before to be one of this kind; `None` if it is none any
    /// more. 0: none has it.
    pub fn owner_of(&self, kind: u32) -> Option<u32> {
        if self.kind != kind || !self.fits() {
            return None;
        }
        let is_held = self.lock & TID & BELOW_CEILING != 0;
        let in_word = kind & (ROBUST | INHERIT) != 0;
        Some(if in_word { self.lock & TID } else { self.owner * u32::from(is_held) })
    }

    /// Whether the fields can be those of one mutex: what has an owner has a user.
    const fn fits(&self) -> bool {
        let is_plain = self.kind & (ROBUST | INHERIT | PROTECT) == 0;
        // Only a recursive mutex counts; others have a count only if they are of the kinds above.
        let is_count = !is_plain || self.kind & SORT == RECURSIVE || self.count == 0;
        let is_owner = self.owner == 0 || self.owner < TID_MAX && self.users != 0;
        is_count && is_owner && self.users < TID_MAX
    }
}

/// Whether glibc has mutexes of this kind.
const fn is_kind(kind: u32) -> bool {
    kind & !(SORT | ELISION | ROBUST | INHERIT | PROTECT | SHARED) == 0
        && kind & (INHERIT | PROTECT) != INHERIT | PROTECT
}

/// `pthread mutex, recursive, robust`; `None` of a futex with priority inheritance that is of no known kind.
pub fn kind_text(kind: Option<u32>) -> String {
    let Some(kind) = kind else { return "futex with priority inheritance".to_owned() };
    let mut text = format!("pthread mutex{}", SORTS[(kind & SORT) as usize]);
    for (bit, word) in
        [(ROBUST, "robust"), (INHERIT, "priority inheritance"), (PROTECT, "priority ceiling"), (SHARED, "shared")]
    {
        if kind & bit != 0 {
            text += ", ";
            text += word;
        }
    }
    text
}

/// Whether other processes may have a mutex of this kind.
pub fn is_shared(kind: Option<u32>) -> bool {
    kind.is_none_or(|kind| kind & SHARED != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(operation: u64, expected: u32, timeout: u64) -> Wait {
        let arguments = [0x1000, operation, u64::from(expected), timeout, 0, 0];
        let call = Syscall { number: libc::SYS_futex, arguments, sp: None, ip: None };
        Wait::of(&call, true).unwrap()
    }

    const OWNER: u32 = 77;

    /// A mutex of this kind that a thread has.
    fn held(lock: u32, kind: u32) -> Found {
        Found { lock, count: u32::from(kind & SORT == RECURSIVE), owner: OWNER, users: 1, kind }
    }

    #[test]
    fn a_mutex_is_one_by_its_word_its_call_and_its_fields() {
        let mutex = |kind| Guess::Mutex { kind: Some(kind), owner: OWNER };
        for kind in [0, 1, 2, 3, 0x100, 0x200] {
            assert_eq!(wait(PRIVATE, 2, 0).guess(&held(2, kind)), mutex(kind));
        }
        assert_eq!(wait(PRIVATE | REALTIME | WAIT_BITSET, 2, 0x7000).guess(&held(2, 0)), mutex(0), "with a deadline");
        assert_eq!(wait(0, 2, 0).guess(&held(2, SHARED)), mutex(SHARED));
        assert_eq!(wait(0, WAITERS | OWNER, 0).guess(&held(WAITERS | OWNER, ROBUST)), mutex(ROBUST));
        assert_eq!(wait(PRIVATE | LOCK_PI, 0, 0).guess(&held(WAITERS | OWNER, INHERIT)), mutex(INHERIT));
        assert_eq!(wait(PRIVATE | LOCK_PI, 0, 0).guess(&held(OWNER, 9999)), Guess::Mutex { kind: None, owner: OWNER });
        assert_eq!(wait(PRIVATE, 5 << 19 | 2, 0).guess(&held(5 << 19 | 2, PROTECT)), mutex(PROTECT));
    }

    #[test]
    fn what_is_not_altogether_a_mutex_is_none() {
        let other = |wait: Wait, found: Found| assert_eq!(wait.guess(&found), Guess::Other, "{wait:?} {found:?}");
        // A condition: it expects what its waiters had counted, by bits.
        other(wait(PRIVATE | REALTIME | WAIT_BITSET, 0, 0), Found::default());
        // A lock of Rust's library, beside whatever it protects.
        other(wait(PRIVATE | WAIT_BITSET, 2, 0), held(2, 0));
        for found in [held(2, SHARED), held(2, 4242), held(7, 0), Found { users: 0, ..held(2, 0) }] {
            other(wait(PRIVATE, 2, 0), found);
        }
        other(wait(PRIVATE, 2, 0), Found { owner: u32::MAX, ..held(2, 0) });
        other(wait(PRIVATE, 2, 0), Found { count: 1, ..held(2, 0) });
        other(wait(PRIVATE, 1, 0), held(2, 0));
        let list = Syscall { number: libc::SYS_futex_waitv, arguments: [0x1000, 2, 0, 0, 0, 0], sp: None, ip: None };
        other(Wait::of(&list, true).unwrap(), held(2, 0));
    }

    #[test]
    fn a_joined_thread_is_told_and_calls_that_do_not_wait_are_none() {
        let join = wait(REALTIME | WAIT_BITSET, 4242, 0);
        assert_eq!(join.guess(&Found { lock: 4242, ..Found::default() }), Guess::End { tid: 4242 });
        let wake =
            Syscall { number: libc::SYS_futex, arguments: [0x1000, PRIVATE | 1, 1, 0, 0, 0], sp: None, ip: None };
        assert_eq!(Wait::of(&wake, true), None);
        let restarted = Syscall { number: libc::SYS_restart_syscall, arguments: [0x1000, PRIVATE, 2, 0, 0, 0], ..wake };
        assert_eq!(Wait::of(&restarted, true), Some(wait(PRIVATE, 2, 0)));
        assert_eq!(Wait::of(&restarted, false), None, "a sleep that goes on");
    }

    #[test]
    fn a_known_mutex_is_held_or_free_or_no_mutex_any_more() {
        assert_eq!(held(1, 0).owner_of(0), Some(OWNER));
        assert_eq!(Found { lock: 0, owner: 0, users: 0, ..held(0, 0) }.owner_of(0), Some(0));
        assert_eq!(held(WAITERS | OWNER, ROBUST).owner_of(ROBUST), Some(OWNER));
        assert_eq!((held(1, 0).owner_of(1), Found { users: 0, ..held(1, 0) }.owner_of(0)), (None, None));
    }

    #[test]
    fn a_kind_has_a_name() {
        assert_eq!(kind_text(Some(1 | ROBUST | SHARED)), "pthread mutex, recursive, robust, shared");
        assert_eq!(kind_text(Some(0)), "pthread mutex");
    }
}
