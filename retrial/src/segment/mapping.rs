//! What of a segment a process has mapped: the beginning, and more of it when it meets more sessions.

use super::{Layout, PAGE, Segment};
use crate::sys::{self, Ordering};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// Factor by which the mapped sessions become more. Each step takes a lock that all processes with the segment
/// have in common: of thousands that begin together, most should have made their last step with their claim.
const TIMES: usize = 8;

impl Segment {
    /// Maps the beginning of a file with room to grow, or where there is no such room all of it: where it is,
    /// and how long.
    pub(crate) fn map(file: BorrowedFd<'_>, layout: &Layout, writable: bool) -> io::Result<(*mut u8, usize)> {
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        let map = |at: usize, len: usize| {
            // SAFETY: a new mapping that overlaps nothing: at this address if it is free, else where the
            // kernel chooses.
            let base = unsafe { libc::mmap(at as *mut _, len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
            if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(base.cast::<u8>()) }
        };
        let (first, room) = (layout.first_len(), room(layout.len));
        if first < layout.len
            && room != 0
            && let Ok(base) = map(room, first)
        {
            if base.addr() == room {
                return Ok((base, first));
            }
            // SAFETY: just mapped.
            unsafe { libc::munmap(base.cast(), first) };
        }
        map(0, layout.len).map(|base| (base, layout.len))
    }

    /// Length of the mapping that grows to an `end` beyond it: as many sessions times a power of [`TIMES`].
    fn grown(&self, mapped: usize, end: usize) -> usize {
        let mut sessions = mapped - self.layout.sessions;
        while self.layout.sessions + sessions < end {
            sessions *= TIMES;
        }
        (self.layout.sessions + sessions).min(self.layout.len)
    }

    /// Has the segment mapped up to an `end` in it. Whether it is; not where the address space or a limit has
    /// no room.
    pub(super) fn reach(&self, end: usize) -> bool {
        const TRIES: u32 = 1000;
        // Threads that grew it in the parent of this process are not here.
        let generation = sys::generation() << 16;
        let next = |all: u64, change: u64| {
            if all >> 16 << 16 == generation { all.wrapping_add(change) } else { generation + u64::from(change == 1) }
        };
        let growing = |change: u64| {
            let before = self.growing.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |all| Some(next(all, change)));
            before.unwrap_or_else(|all| all)
        };
        for _ in 0..TRIES {
            // Acquire: pairs with the Release below.
            let mapped = self.mapped.load(Ordering::Acquire);
            if end <= mapped {
                return true;
            }
            if sys::calls_are_limited() {
                return false;
            }
            let longer = self.grown(mapped, end);
            // SeqCst: a thread that fails and sees no other thread growing sees the length that the others
            // have left.
            let others = growing(1);
            // A limit may leave room for this session alone.
            let has_grown = [longer, end.next_multiple_of(PAGE)].into_iter().any(|longer| {
                // SAFETY: grows our mapping in place, or not at all.
                let base = unsafe { libc::mremap(self.base.cast(), mapped, longer, 0) };
                if base == libc::MAP_FAILED {
                    return false;
                }
                // Release: a thread that finds the length finds the mapping. At most: another thread may have
                // gone on from here.
                self.mapped.fetch_max(longer, Ordering::Release);
                true
            });
            let left = growing(u64::MAX);
            if has_grown {
                return true;
            }
            if [others, left].map(|all| all & 0xffff) == [0, 1] && self.mapped.load(Ordering::SeqCst) == mapped {
                return false;
            }
            // Another thread has done so and not said it yet. A handler of a signal that has interrupted it
            // gives up in the end.
            sys::sleep(Duration::from_micros(10));
        }
        false
    }
}

/// An address with `len` bytes of room behind it, in the middle between the stack and 0: far from what
/// programs, their heaps and their libraries map. Each segment lies below the one before. 0 when it is not
/// known.
fn room(len: usize) -> usize {
    /// Addresses are multiples of this, that of huge pages.
    const ALIGN: usize = 1 << 21;
    static TAKEN: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: has no preconditions.
    let stack = usize::try_from(unsafe { libc::getauxval(libc::AT_RANDOM) }).unwrap_or(0);
    let taken = TAKEN.fetch_add(len.next_multiple_of(ALIGN), Ordering::Relaxed);
    // Half of it: below are the program and its heap, where these are not above.
    let middle = stack / 2 / ALIGN * ALIGN;
    middle.checked_sub(taken + len.next_multiple_of(ALIGN)).filter(|room| *room > middle / 2).unwrap_or(0)
}
