//! What the process knows: whether calls are ours, and which process it is.
//!
//! A fork, by libc or by the raw call, leaves a child with its parent's memory: thread ids and sessions that
//! threads have cached are not theirs any more. So the *cookie* is in a page that the kernel wipes in the
//! child, and every cached value goes with the cookie it was made under.

use crate::instance::instance;
use crate::{instance, program, spots};
use retrial::{Instance, interposer, sys};
use std::ffi::{CStr, c_char};
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const UNDECIDED: u8 = 0;
const ON: u8 = 1;
const OFF: u8 = 2;
/// On, and calls are sampled: the shortest paths are for `ON` alone.
const PROFILED: u8 = 3;

static MODE: AtomicU8 = AtomicU8::new(UNDECIDED);

/// Whether this library handles calls; otherwise all of them go to libc.
#[inline]
pub(crate) fn is_on() -> bool {
    match MODE.load(Ordering::Relaxed) {
        ON | PROFILED => true,
        OFF => false,
        _ => decide(),
    }
}

/// Whether it is known that calls are ours, and nothing of them is sampled.
#[inline]
pub(crate) fn is_known_on() -> bool {
    MODE.load(Ordering::Relaxed) == ON
}

/// Whether calls are sampled.
#[inline]
pub(crate) fn is_profiled() -> bool {
    MODE.load(Ordering::Relaxed) == PROFILED
}

/// Has calls sampled from now on. This library handles them already.
pub(crate) fn set_profiled() {
    MODE.store(PROFILED, Ordering::Relaxed);
}

/// Looks at the environment, without allocating: the first calls come before any constructor has run.
#[cold]
fn decide() -> bool {
    unsafe extern "C" {
        static environ: AtomicPtr<*const c_char>;
    }
    // SAFETY: libc's variable, a pointer.
    let mut entry = unsafe { environ.load(Ordering::Relaxed) };
    if entry.is_null() {
        // Before libc itself has started; asked again.
        return true;
    }
    let (mut mode, mut excluded) = (ON, None);
    loop {
        // SAFETY: the list ends with a null pointer, which ends the loop.
        let text = unsafe { *entry };
        if text.is_null() {
            break;
        }
        // SAFETY: entries are strings.
        let text = unsafe { CStr::from_ptr(text) };
        if text == c"RETRIAL_PRELOAD=off" {
            mode = OFF;
        }
        excluded = excluded.or(text.to_bytes().strip_prefix(b"RETRIAL_EXCLUDE="));
        // SAFETY: as above.
        entry = unsafe { entry.add(1) };
    }
    if excluded.is_some_and(program::is_one_of) {
        mode = OFF;
    }
    if epoch() != 0 {
        // It was on before libc had started: as in `turn_off`.
        mode = ON;
    }
    MODE.store(mode, Ordering::Relaxed);
    mode == ON
}

/// Passes every further call to libc, unless a thread has come by: what it holds or waits for has our format.
/// Whether it does.
pub(crate) fn turn_off() -> bool {
    let unused = epoch() == 0 && cookie() == 0;
    if unused {
        MODE.store(OFF, Ordering::Relaxed);
    }
    unused
}

/// Makes the instance known: threads get their sessions when they next come by.
pub(crate) fn publish(instance: &'static Instance) {
    instance::set(instance);
    // SeqCst: a thread that enters the process at this moment either finds the instance or has its cookie
    // changed here. A page by which no thread has entered stays 0.
    let _ = page().fetch_update(Ordering::SeqCst, Ordering::SeqCst, |cookie| (cookie != 0).then_some(cookie | READY));
}

/// In a cookie: there is an instance.
pub(crate) const READY: u64 = 2;
/// A cookie of a process that is being entered.
const ENTERING: u64 = 1;
const EPOCH_SHIFT: u32 = 2;

/// What the cookie is before there is a page: no thread has cached anything.
static UNSET: AtomicU64 = AtomicU64::new(0);
/// And where there will be none, since the kernel cannot wipe pages (before 4.14): nothing can be cached.
static NONE: AtomicU64 = AtomicU64::new(0);
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(from_ref(&UNSET).cast_mut());
/// Forks between the first process and this one, plus one.
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// The cookie of this process as it is.
#[inline]
pub(crate) fn cookie() -> u64 {
    page().load(Ordering::Relaxed)
}

#[inline]
fn page() -> &'static AtomicU64 {
    // SAFETY: a static or a page that is never unmapped.
    unsafe { &*PAGE.load(Ordering::Acquire) }
}

/// The cookie of this process, which is entered if it is a new one. 0 where nothing can be cached.
pub(crate) fn enter() -> u64 {
    if std::ptr::eq(page(), &raw const UNSET) {
        set_page();
    }
    if std::ptr::eq(page(), &raw const NONE) {
        EPOCH.store(1, Ordering::Relaxed);
        return 0;
    }
    // All others wait for this thread, which a handler may delay, or jump out of.
    let _without_signals = (!interposer::calls_are_limited()).then(sys::Masked::until_dropped);
    // AcqRel: one thread enters; the others see its cookie when it has.
    if page().compare_exchange(0, ENTERING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return entered();
    }
    let epoch = EPOCH.load(Ordering::Relaxed) + 1;
    if epoch > 1 {
        spots::forget();
    }
    if !(sys::register_for_own_barriers() && sys::barrier_in_process()) {
        spots::fence_all();
    }
    // After the calls above, of which the first may take milliseconds: a thread that did not wait for this
    // one has much time to be caught.
    EPOCH.store(epoch, Ordering::Relaxed);
    let cookie = u64::from(epoch) << EPOCH_SHIFT;
    // SeqCst: as in `publish`.
    page().store(cookie, Ordering::SeqCst);
    if instance().is_none() {
        return cookie;
    }
    page().fetch_or(READY, Ordering::SeqCst);
    cookie | READY
}

/// The cookie, once the thread that enters the process is done: until then the epoch and the spots are its
/// parent's.
fn entered() -> u64 {
    loop {
        let cookie = page().load(Ordering::Acquire);
        if cookie & ENTERING == 0 {
            return cookie;
        }
        // No yield: the other thread may have a lower priority.
        sys::sleep(Duration::from_micros(10));
    }
}

/// Whether this is the first process, and entered: none of its threads is what a fork left of a parent's.
pub(crate) fn is_first() -> bool {
    cookie() != 0 && epoch() == 1
}

/// Makes no further system call but those that libc's own locks make: a filter is about to be installed. The
/// calling thread is known.
pub(crate) fn limit_calls() {
    spots::fence_all();
    // Releases that have not seen the flags yet have stored their words by then.
    let _ = sys::barrier_in_process();
    interposer::limit_calls();
    let _ = MODE.compare_exchange(PROFILED, ON, Ordering::Relaxed, Ordering::Relaxed);
}

/// Which process this is among its ancestors; never 0 once a thread has come by.
pub(crate) fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

fn set_page() {
    let (unset, none) = (from_ref(&UNSET).cast_mut(), from_ref(&NONE).cast_mut());
    let page = wiped_page().unwrap_or(none);
    if page == none {
        // No process registers for barriers then.
        spots::fence_all();
    }
    // AcqRel: of two threads that come first together one has its page used.
    let lost = PAGE.compare_exchange(unset, page, Ordering::AcqRel, Ordering::Acquire).is_err();
    if lost && page != none {
        // SAFETY: nobody else knows the page.
        unsafe { libc::munmap(page.cast(), PAGE_LEN) };
    }
}

const PAGE_LEN: usize = 4096;

/// A page of zeros, in every child of a fork anew.
fn wiped_page() -> Option<*mut AtomicU64> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
    let page = unsafe { libc::mmap(null_mut(), PAGE_LEN, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the page was just mapped.
    if unsafe { libc::madvise(page, PAGE_LEN, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: as above.
        unsafe { libc::munmap(page, PAGE_LEN) };
        return None;
    }
    Some(page.cast())
}
