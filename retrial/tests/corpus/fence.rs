//! Puts every shared mapping of a file between two pages that nobody may touch: a step beyond either end of a
//! segment is a crash, wherever the kernel would have put the mapping.
//!
//! The definitions here take the place of libc's for everything in this program; what is no such mapping is passed on.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

const PAGE: usize = 4096;

/// Starts of the mappings between pages of ours.
static FENCED: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// Mappings made between such pages so far.
pub(crate) static COUNT: AtomicUsize = AtomicUsize::new(0);

/// # Safety
///
/// That of `mmap(2)`.
unsafe fn map(at: *mut c_void, len: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe { libc::syscall(libc::SYS_mmap, at, len, protection, flags, fd, offset) as *mut c_void }
}

/// # Safety
///
/// That of `mmap(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let slot = FENCED.iter().find(|slot| slot.load(Ordering::Relaxed) == 0);
    let (Some(slot), true) = (slot, at.is_null() && fd >= 0 && flags & libc::MAP_SHARED != 0) else {
        // SAFETY: the caller's.
        return unsafe { map(at, len, protection, flags, fd, offset) };
    };
    let inside = len.next_multiple_of(PAGE);
    let nothing = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let fence = unsafe { map(at, inside + 2 * PAGE, libc::PROT_NONE, nothing, -1, 0) };
    if fence == libc::MAP_FAILED {
        return fence;
    }
    let base = fence.wrapping_byte_add(PAGE);
    // SAFETY: replaces pages of the mapping above.
    let mapped = unsafe { map(base, len, protection, flags | libc::MAP_FIXED, fd, offset) };
    if mapped == base {
        slot.store(base.addr(), Ordering::Relaxed);
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
    mapped
}

/// # Safety
///
/// That of `munmap(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
    let slot = FENCED.iter().find(|slot| !at.is_null() && slot.load(Ordering::Relaxed) == at.addr());
    let (at, len) = if let Some(slot) = slot {
        slot.store(0, Ordering::Relaxed);
        (at.wrapping_byte_sub(PAGE), len.next_multiple_of(PAGE) + 2 * PAGE)
    } else {
        (at, len)
    };
    // SAFETY: the caller's, and the pages around are ours.
    let result = unsafe { libc::syscall(libc::SYS_munmap, at, len) };
    result as c_int
}
