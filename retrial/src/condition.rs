//! The waiters of a condition, and which of them a signal releases.
//!
//! ```text
//!  0          4      8        12      16            20        24     28
//! +----------+------+--------+-------+-------------+---------+------+
//! | sequence | lock | inside | group | unsignalled | signals | open |
//! +----------+------+--------+-------+-------------+---------+------+
//! ```
//!
//! A waiter joins the *open group*. A signal is for the *signalled group*, which nobody joins any more: it is
//! owed to a waiter that was there before. When each waiter of the signalled group has its signal, that group
//! is *released*, and the next signal makes the open group the signalled one. So there are three kinds of
//! groups, by their age:
//!
//! | age | group | a waiter of it that looks |
//! |---|---|---|
//! | 0 | open | goes on waiting |
//! | 1 | signalled | takes one of the `signals`, if there is one |
//! | 2 and more | released | leaves |
//!
//! A broadcast releases both other groups. All fields are changed under `lock`, whose release is the last
//! touch of a call.
//!
//! A waiter sleeps on the futex `sequence`, which each signal moves, with the bit of its group. The wake-up
//! of a signal is for the bit of the signalled group. It may come late: a [`Wake`] is by address, and the
//! signaller may keep it until it gives the mutex back. No waiter that came after the signal can take it, as
//! long as no younger group has the same bit. Groups get their bits in turn; long before a bit is used again,
//! a wake-up is for the waiters of every group, so that no released waiter sleeps on then.
//!
//! A waiter that looks by itself (at its deadline, after a signal's handler) may take a signal whose wake-up
//! is for another waiter of its group. The other waiter then finds no signal, and sleeps on.

use crate::sys::protocol::AtomicU32;
use crate::sys::{self, Futex, Ordering};

mod wake;

pub use wake::Wake;

/// Bits that groups have in turn. As many as the kernel has for the waiters of a futex.
const BITS: u32 = if cfg!(any(loom, shuttle)) { 4 } else { 32 };
/// Number of groups after which all released waiters are woken. Twice before a bit is used again: the group
/// that is signalled then is released by the next time.
const EVERYBODY_EVERY: u32 = BITS / 2;

/// Maximum number of waiters that the kernel can be asked to wake.
pub const EVERYBODY: u32 = i32::MAX as u32;

/// In `lock`, below the number of the process: whether it is held, and whether threads may sleep on it.
const STATE: u32 = 3;
const HELD: u32 = 1;
const AWAITED: u32 = 2;
const PROCESS_SHIFT: u32 = 2;

/// Looks at the lock before a thread sleeps: a call has it for some ten instructions.
const LOOKS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 100 };

/// In `inside`: a thread waits for it to become 0.
const DESTROYED: u32 = 1 << 31;

/// The waiters of a condition, in 28 bytes of which all zeros is a condition without waiters.
///
/// Each call is given the number of the process, 30 bits: what another process has left there, of which this
/// one is a child, is forgotten.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Waiters {
    /// Changes with each signal; waiters sleep on it.
    sequence: Futex,
    lock: Futex,
    /// Waiters that have not left, and [`DESTROYED`].
    inside: Futex,
    /// Number of the open group.
    group: AtomicU32,
    /// Waiters of the signalled group for which there is no signal.
    unsignalled: AtomicU32,
    /// Signals for the signalled group that no waiter has taken.
    signals: AtomicU32,
    /// Waiters of the open group.
    open: AtomicU32,
}

/// What a waiter knows of its wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    group: u32,
    /// What the sequence was at the last look: the waiter sleeps while it still is.
    pub expected: u32,
}

impl Place {
    /// The bits with which the waiter sleeps.
    #[must_use]
    pub const fn bits(self) -> u32 {
        bit(self.group)
    }
}

/// The bit of a group.
const fn bit(group: u32) -> u32 {
    1 << (group % BITS)
}

/// What a waiter finds when it looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// It was signalled, and has left.
    Released,
    /// It was not signalled, and has left.
    Left,
    /// It goes on waiting.
    Waits,
}

/// The lock, held until dropped.
struct Held<'a> {
    waiters: &'a Waiters,
    process: u32,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let lock: *const Futex = &raw const self.waiters.lock;
        // Release: pairs with the Acquire of the next one that locks. From here on the condition may be gone.
        if self.waiters.lock.swap(self.process, Ordering::Release) & STATE == AWAITED {
            sys::futex_wake_private(lock, 1, u32::MAX);
        }
    }
}

impl std::ops::Deref for Held<'_> {
    type Target = Waiters;

    fn deref(&self) -> &Waiters {
        self.waiters
    }
}

fn load(field: &AtomicU32) -> u32 {
    // Relaxed: ordered by the lock.
    field.load(Ordering::Relaxed)
}

fn store(field: &AtomicU32, value: u32) {
    // Relaxed: ordered by the lock.
    field.store(value, Ordering::Relaxed);
}

fn add(field: &AtomicU32, n: i32) {
    // No RMW: under the lock.
    store(field, load(field).wrapping_add_signed(n));
}

impl Waiters {
    /// What they sleep on.
    #[must_use]
    pub const fn futex(&self) -> *const u32 {
        (&raw const self.sequence).cast()
    }

    fn lock(&self, process: u32) -> Held<'_> {
        let process = process << PROCESS_SHIFT;
        // Acquire: pairs with the Release in `Held::drop`.
        if self.lock.compare_exchange(process, process | HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_slow(process);
        }
        Held { waiters: self, process }
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, process: u32) {
        let mut held = HELD;
        let mut looks = 0;
        loop {
            // Relaxed: the exchange below looks again.
            let seen = self.lock.load(Ordering::Relaxed);
            let is_ours = seen & !STATE == process;
            if !is_ours || seen & STATE == 0 {
                // Acquire: as in `lock`.
                let got = self.lock.compare_exchange(seen, process | held, Ordering::Acquire, Ordering::Relaxed);
                if got.is_ok() {
                    if !is_ours {
                        self.forget();
                    }
                    return;
                }
            } else if looks < LOOKS {
                looks += 1;
                sys::spin_loop();
            } else {
                let awaited = process | AWAITED;
                // Relaxed: nothing is published. The releaser finds the mark in its exchange.
                let marked = self.lock.compare_exchange(seen, awaited, Ordering::Relaxed, Ordering::Relaxed);
                if marked.is_ok() {
                    sys::futex_wait_private(&self.lock, awaited, u32::MAX);
                    // Other threads may sleep beside this one.
                    held = AWAITED;
                }
            }
        }
    }

    /// Forgets the waiters of another process: they wait there.
    fn forget(&self) {
        store(&self.inside, 0);
        for field in [&self.unsignalled, &self.signals, &self.open] {
            store(field, 0);
        }
    }

    /// Counts a waiter in. The caller has the mutex.
    pub fn enter(&self, process: u32) -> Place {
        let held = self.lock(process);
        add(&held.inside, 1);
        add(&held.open, 1);
        Place { group: load(&held.group), expected: load(&held.sequence) }
    }

    /// What a waiter finds that is awake. `leaves`: it does not go on waiting, whatever it finds.
    ///
    /// Unless it goes on waiting, this is its last touch.
    pub fn look(&self, process: u32, place: &mut Place, leaves: bool) -> Look {
        let held = self.lock(process);
        let found = held.look(place, leaves);
        if found != Look::Waits {
            held.leave();
        }
        found
    }

    /// Counts a waiter out that cannot take a signal. If there was one for it, another waiter is signalled in
    /// its place.
    ///
    /// This is its last touch.
    pub fn withdraw(&self, process: u32, mut place: Place) -> Option<Wake> {
        let held = self.lock(process);
        let was_signalled = held.look(&mut place, true) == Look::Released;
        let wake = if was_signalled { held.signal() } else { None };
        held.leave();
        wake
    }

    /// Whether a signal finds a waiter. Looked at without the lock: where no thread waits, a signal costs
    /// nothing.
    #[inline]
    fn is_waited_for(&self, process: u32) -> bool {
        // Relaxed: the waiters that a signal is owed to have given the mutex back after `enter`, and the
        // signaller has had it since: to change what they wait for, or before that.
        self.inside.load(Ordering::Relaxed) & !DESTROYED != 0
            && self.lock.load(Ordering::Relaxed) >> PROCESS_SHIFT == process
    }

    /// Signals one waiter: the wake-up that is owed, if there is a waiter without a signal.
    #[inline]
    pub fn signal(&self, process: u32) -> Option<Wake> {
        if !self.is_waited_for(process) {
            return None;
        }
        self.signal_waiter(process)
    }

    #[inline(never)]
    fn signal_waiter(&self, process: u32) -> Option<Wake> {
        self.lock(process).signal()
    }

    /// Releases all waiters: the wake-up that is owed, if there is a waiter without a signal.
    #[inline]
    pub fn broadcast(&self, process: u32) -> Option<Wake> {
        if !self.is_waited_for(process) {
            return None;
        }
        self.signal_all(process)
    }

    #[inline(never)]
    fn signal_all(&self, process: u32) -> Option<Wake> {
        let held = self.lock(process);
        if load(&held.unsignalled) == 0 && load(&held.open) == 0 {
            return None;
        }
        add(&held.group, 2);
        for field in [&held.unsignalled, &held.signals, &held.open] {
            store(field, 0);
        }
        Some(held.wake(EVERYBODY, u32::MAX))
    }

    /// Waits until all waiters have left, for a condition that is destroyed. Every wake-up is under way.
    pub fn wait_until_left(&self, process: u32) {
        loop {
            // Locked also when no waiter is inside: the last one may be about to unlock.
            let held = self.lock(process);
            let inside = load(&held.inside) | DESTROYED;
            if inside == DESTROYED {
                return store(&held.inside, 0);
            }
            store(&held.inside, inside);
            drop(held);
            sys::futex_wait_private(&self.inside, inside, u32::MAX);
        }
    }
}

impl Held<'_> {
    fn look(&self, place: &mut Place, leaves: bool) -> Look {
        match load(&self.group).wrapping_sub(place.group) {
            1 if load(&self.signals) != 0 => {
                add(&self.signals, -1);
                Look::Released
            }
            0 | 1 if !leaves => {
                place.expected = load(&self.sequence);
                Look::Waits
            }
            0 => {
                add(&self.open, -1);
                Look::Left
            }
            1 => {
                add(&self.unsignalled, -1);
                Look::Left
            }
            _ => Look::Released,
        }
    }

    fn leave(self) {
        add(&self.inside, -1);
        let inside: *const Futex = &raw const self.inside;
        let is_last = load(&self.inside) == DESTROYED;
        drop(self);
        if is_last {
            sys::futex_wake_private(inside, 1, u32::MAX);
        }
    }

    fn signal(&self) -> Option<Wake> {
        let mut wakes_all = false;
        if load(&self.unsignalled) == 0 {
            let open = load(&self.open);
            if open == 0 {
                return None;
            }
            add(&self.group, 1);
            store(&self.unsignalled, open);
            store(&self.signals, 0);
            store(&self.open, 0);
            // Where all that are inside are of the group that is signalled now, no released waiter sleeps.
            let is_due = load(&self.group).is_multiple_of(EVERYBODY_EVERY);
            wakes_all = is_due && load(&self.inside) != open;
        }
        add(&self.unsignalled, -1);
        add(&self.signals, 1);
        let bits = bit(load(&self.group).wrapping_sub(1));
        let (count, bits) = if wakes_all { (EVERYBODY, u32::MAX) } else { (1, bits) };
        Some(self.wake(count, bits))
    }

    /// Has waiters that are about to sleep look again.
    fn wake(&self, count: u32, bits: u32) -> Wake {
        add(&self.sequence, 1);
        Wake { sequence: &raw const self.sequence, count, bits }
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod interleavings;
