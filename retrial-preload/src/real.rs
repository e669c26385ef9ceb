//! libc's own functions, found behind ours.
//!
//! All are looked up at once, at start or by the first call that needs one: a look-up on the path of a lock
//! can deadlock, for the loader may allocate and the allocator may lock.

use libc::{
    c_char, c_int, c_void, clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t, pthread_mutexattr_t,
    pthread_rwlock_t, pthread_rwlockattr_t, pthread_spinlock_t, timespec,
};
use retrial::sys::Errno;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::Duration;

macro_rules! reals {
    ($( $name:ident $symbol:literal ( $($arg:ident: $type:ty),* ); )*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy)]
        enum At { $( $name ),* }

        const NAMES: &[&CStr] = &[ $( $symbol ),* ];
        static FOUND: [AtomicPtr<c_void>; NAMES.len()] = [const { AtomicPtr::new(null_mut()) }; NAMES.len()];

        $(
            #[allow(dead_code)] // the shim calls some by their pointers
            /// libc's function of this name.
            ///
            /// # Safety
            ///
            /// That of the function.
            pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                let found = find(At::$name);
                if found.is_null() {
                    return libc::ENOSYS;
                }
                // SAFETY: libc's symbol of this name is a function of this type.
                let function = unsafe {
                    std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(found)
                };
                // SAFETY: the caller's.
                unsafe { function($($arg),*) }
            }
        )*
    };
}

reals! {
    mutex_init c"pthread_mutex_init" (mutex: *mut pthread_mutex_t, attr: *const pthread_mutexattr_t);
    mutex_destroy c"pthread_mutex_destroy" (mutex: *mut pthread_mutex_t);
    mutex_lock c"pthread_mutex_lock" (mutex: *mut pthread_mutex_t);
    mutex_trylock c"pthread_mutex_trylock" (mutex: *mut pthread_mutex_t);
    mutex_timedlock c"pthread_mutex_timedlock" (mutex: *mut pthread_mutex_t, at: *const timespec);
    mutex_clocklock c"pthread_mutex_clocklock" (mutex: *mut pthread_mutex_t, clock: clockid_t, at: *const timespec);
    mutex_unlock c"pthread_mutex_unlock" (mutex: *mut pthread_mutex_t);
    mutex_consistent c"pthread_mutex_consistent" (mutex: *mut pthread_mutex_t);
    mutex_getprioceiling c"pthread_mutex_getprioceiling" (mutex: *const pthread_mutex_t, ceiling: *mut c_int);
    mutex_setprioceiling c"pthread_mutex_setprioceiling"
        (mutex: *mut pthread_mutex_t, ceiling: c_int, before: *mut c_int);
    cond_init c"pthread_cond_init" (cond: *mut pthread_cond_t, attr: *const pthread_condattr_t);
    cond_destroy c"pthread_cond_destroy" (cond: *mut pthread_cond_t);
    cond_signal c"pthread_cond_signal" (cond: *mut pthread_cond_t);
    cond_broadcast c"pthread_cond_broadcast" (cond: *mut pthread_cond_t);
    cond_wait c"pthread_cond_wait" (cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t);
    cond_timedwait c"pthread_cond_timedwait" (cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, at: *const timespec);
    cond_clockwait c"pthread_cond_clockwait"
        (cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t, at: *const timespec);
    rwlock_init c"pthread_rwlock_init" (rwlock: *mut pthread_rwlock_t, attr: *const pthread_rwlockattr_t);
    rwlock_destroy c"pthread_rwlock_destroy" (rwlock: *mut pthread_rwlock_t);
    rwlock_rdlock c"pthread_rwlock_rdlock" (rwlock: *mut pthread_rwlock_t);
    rwlock_wrlock c"pthread_rwlock_wrlock" (rwlock: *mut pthread_rwlock_t);
    rwlock_tryrdlock c"pthread_rwlock_tryrdlock" (rwlock: *mut pthread_rwlock_t);
    rwlock_trywrlock c"pthread_rwlock_trywrlock" (rwlock: *mut pthread_rwlock_t);
    rwlock_timedrdlock c"pthread_rwlock_timedrdlock" (rwlock: *mut pthread_rwlock_t, at: *const timespec);
    rwlock_timedwrlock c"pthread_rwlock_timedwrlock" (rwlock: *mut pthread_rwlock_t, at: *const timespec);
    rwlock_clockrdlock c"pthread_rwlock_clockrdlock" (rwlock: *mut pthread_rwlock_t, clock: clockid_t, at: *const timespec);
    rwlock_clockwrlock c"pthread_rwlock_clockwrlock" (rwlock: *mut pthread_rwlock_t, clock: clockid_t, at: *const timespec);
    rwlock_unlock c"pthread_rwlock_unlock" (rwlock: *mut pthread_rwlock_t);
    spin_init c"pthread_spin_init" (spin: *mut pthread_spinlock_t, shared: c_int);
    spin_destroy c"pthread_spin_destroy" (spin: *mut pthread_spinlock_t);
    spin_lock c"pthread_spin_lock" (spin: *mut pthread_spinlock_t);
    spin_trylock c"pthread_spin_trylock" (spin: *mut pthread_spinlock_t);
    spin_unlock c"pthread_spin_unlock" (spin: *mut pthread_spinlock_t);
    sem_wait c"sem_wait" (semaphore: *mut c_void);
    sem_timedwait c"sem_timedwait" (semaphore: *mut c_void, at: *const timespec);
    sem_clockwait c"sem_clockwait" (semaphore: *mut c_void, clock: clockid_t, at: *const timespec);
    barrier_wait c"pthread_barrier_wait" (barrier: *mut c_void);
    dl_find_object c"_dl_find_object" (address: *mut c_void, result: *mut c_void);
}

/// The version of conditions with the format of today; of the others all versions do the same.
#[cfg(target_arch = "x86_64")]
const CONDITION: &CStr = c"GLIBC_2.3.2";
#[cfg(target_arch = "aarch64")]
const CONDITION: &CStr = c"GLIBC_2.17";

unsafe extern "C" {
    static retrial_real_cond_wait: AtomicPtr<c_void>;
    static retrial_real_cond_timedwait: AtomicPtr<c_void>;
    static retrial_real_cond_clockwait: AtomicPtr<c_void>;
    static retrial_real_sem_wait: AtomicPtr<c_void>;
    static retrial_real_sem_timedwait: AtomicPtr<c_void>;
    static retrial_real_sem_clockwait: AtomicPtr<c_void>;
}

/// Never null once looked up: a program that finds this library has the loader's functions.
static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Whether what is not found now is not there.
static RESOLVED: AtomicBool = AtomicBool::new(false);

#[inline]
fn find(at: At) -> *mut c_void {
    let found = FOUND[at as usize].load(Ordering::Acquire);
    if found.is_null() && !RESOLVED.load(Ordering::Acquire) { find_all(at) } else { found }
}

#[cold]
fn find_all(at: At) -> *mut c_void {
    resolve();
    FOUND[at as usize].load(Ordering::Acquire)
}

/// Looks all functions up. Again is harmless.
pub(crate) fn resolve() {
    let _errno = Errno::keep();
    for (name, found) in NAMES.iter().zip(&FOUND) {
        // Stored one by one: should the loader call this library, what it needs may be there already.
        found.store(look_up(name), Ordering::Release);
    }
    DLOPEN.store(look_up(c"dlopen"), Ordering::Release);
    tell_shim();
    RESOLVED.store(true, Ordering::Release);
}

/// Gives the shim its pointers.
fn tell_shim() {
    // SAFETY: defined in condition.c, as a pointer.
    let (wait, timedwait, clockwait) =
        unsafe { (&retrial_real_cond_wait, &retrial_real_cond_timedwait, &retrial_real_cond_clockwait) };
    wait.store(find_now(At::cond_wait), Ordering::Release);
    timedwait.store(find_now(At::cond_timedwait), Ordering::Release);
    clockwait.store(find_now(At::cond_clockwait), Ordering::Release);
    // SAFETY: as above.
    let (wait, timedwait, clockwait) =
        unsafe { (&retrial_real_sem_wait, &retrial_real_sem_timedwait, &retrial_real_sem_clockwait) };
    wait.store(find_now(At::sem_wait), Ordering::Release);
    timedwait.store(find_now(At::sem_timedwait), Ordering::Release);
    clockwait.store(find_now(At::sem_clockwait), Ordering::Release);
}

fn find_now(at: At) -> *mut c_void {
    FOUND[at as usize].load(Ordering::Relaxed)
}

/// For the shim, which has the pointers only.
pub(crate) fn resolve_if_needed() {
    find(At::cond_wait);
}

/// The address of libc's `dlopen`.
pub(crate) fn dlopen() -> *mut c_void {
    if DLOPEN.load(Ordering::Acquire).is_null() {
        resolve();
    }
    DLOPEN.load(Ordering::Acquire)
}

/// Whether `ThreadSanitizer` is in this process, as a library. If so, what is passed on is passed to it.
pub(crate) fn finds_thread_sanitizer() -> bool {
    // SAFETY: a string with its 0.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__tsan_init".as_ptr()) };
    if found.is_null() {
        forget_error();
        return false;
    }
    for (name, found) in NAMES.iter().zip(&FOUND) {
        // Its own functions have no versions.
        // SAFETY: a string with its 0.
        found.store(unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }, Ordering::Release);
    }
    tell_shim();
    true
}

/// The program is not to find the error of a look-up of ours.
fn forget_error() {
    // SAFETY: has no preconditions.
    unsafe { libc::dlerror() };
}

/// What the libraries of Valgrind's checkers of threads are called: they follow libc's calls, and these only.
const CHECKERS: [&[u8]; 2] = [b"vgpreload_helgrind-", b"vgpreload_drd-"];

/// The library of a checker that follows libc's calls, if this process runs under one.
pub(crate) fn finds_checker() -> Option<CString> {
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: the loader's record.
        let name = unsafe { (*info).dlpi_name };
        if name.is_null() {
            return 0;
        }
        // SAFETY: the loader's string.
        let path = unsafe { CStr::from_ptr(name) };
        let file = path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let is_one = CHECKERS.iter().any(|checker| file.starts_with(checker));
        if is_one {
            // SAFETY: what `finds_checker` has handed on.
            unsafe { *found.cast::<Option<CString>>() = Some(path.to_owned()) };
        }
        c_int::from(is_one)
    }
    let mut found = None::<CString>;
    // SAFETY: the function is called with its own argument, before this returns.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

/// The calls on conditions. A library before this one that takes some of them finds libc's by version, past
/// this library.
const OF_CONDITIONS: [&CStr; 7] = [
    c"pthread_cond_init",
    c"pthread_cond_destroy",
    c"pthread_cond_wait",
    c"pthread_cond_timedwait",
    c"pthread_cond_clockwait",
    c"pthread_cond_signal",
    c"pthread_cond_broadcast",
];

/// A library before this one that takes calls on conditions, or one that takes the clock, if there is any:
/// then only some calls would come here, or with moments that are not the kernel's.
pub(crate) fn finds_taker() -> Option<&'static CStr> {
    let base = |module: &libc::Dl_info| module.dli_fbase;
    // Not by the addresses of our own functions: those are look-ups, too.
    let own = base(&origin(look_up as *const c_void)?.0);
    let of_conditions = OF_CONDITIONS.iter().filter_map(|call| found_first(call)).find(|found| base(found) != own);
    let libcs = base(&origin(look_up(c"gnu_get_libc_version"))?.0);
    // Sanitizers, which may be part of the program, hand the kernel's time on.
    let sanitizer = found_first(c"__sanitizer_print_stack_trace").map(|found| base(&found));
    let is_other = |found: &libc::Dl_info| base(found) != libcs && Some(base(found)) != sanitizer;
    let taker = of_conditions.or_else(|| found_first(c"clock_gettime").filter(is_other))?;
    // SAFETY: the loader's string.
    (!taker.dli_fname.is_null()).then(|| unsafe { CStr::from_ptr(taker.dli_fname) })
}

/// The module in which the program's calls find this name first. None where that is a program at a fixed
/// address which takes the address of the function: it has a jump of that name to another module.
fn found_first(name: &CStr) -> Option<libc::Dl_info> {
    // SAFETY: a string with its 0.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if address.is_null() {
        forget_error();
        return None;
    }
    let (found, symbol) = origin(address)?;
    // SAFETY: the loader's table of symbols.
    let is_jump = !symbol.is_null() && unsafe { (*symbol).st_shndx } == SHN_UNDEF;
    (!is_jump).then_some(found)
}

/// The module of an address, and the symbol that it is if the module exports it.
fn origin(address: *const c_void) -> Option<(libc::Dl_info, *const libc::Elf64_Sym)> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    let mut symbol = null();
    // SAFETY: both are writable.
    let found = unsafe { dladdr1(address, info.as_mut_ptr(), &raw mut symbol, RTLD_DL_SYMENT) };
    // SAFETY: zeros are a value, and the call may have filled it.
    (found != 0).then(|| (unsafe { info.assume_init() }, symbol))
}

const RTLD_DL_SYMENT: c_int = 1;
const SHN_UNDEF: u16 = 0;

unsafe extern "C" {
    fn dladdr1(
        address: *const c_void,
        info: *mut libc::Dl_info,
        symbol: *mut *const libc::Elf64_Sym,
        flags: c_int,
    ) -> c_int;
}

/// Whether this libc has the look-up of objects by address that takes no lock, of 2.35.
pub(crate) fn has_dl_find_object() -> bool {
    !find(At::dl_find_object).is_null()
}

/// The next function of this name behind ours; null when there is none.
pub(crate) fn look_up(name: &CStr) -> *mut c_void {
    let symbol: *const c_char = name.as_ptr();
    if name.to_bytes().starts_with(b"pthread_cond_") && name != c"pthread_cond_clockwait" {
        // SAFETY: both are strings with their 0.
        let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, symbol, CONDITION.as_ptr()) };
        if !found.is_null() {
            return found;
        }
    }
    // SAFETY: a string with its 0.
    unsafe { libc::dlsym(libc::RTLD_NEXT, symbol) }
}

/// A moment that has passed, by any clock.
pub(crate) static PAST: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

/// A moment by the clock that libc's `clocklock` functions are given, or by the one that `timedlock` goes by
/// where they are not there (before 2.30).
fn moment(clocked: At, timeout: Duration) -> (Option<clockid_t>, timespec) {
    let clock = if find(clocked).is_null() { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC };
    let mut now = PAST;
    // SAFETY: `now` is writable, and the clock exists.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    // A park is long, not for ever: the additions stay far below the limits.
    let timeout = timeout.min(Duration::from_secs(3600));
    let nsec = now.tv_nsec + i64::from(timeout.subsec_nanos());
    now.tv_sec += timeout.as_secs().cast_signed() + nsec / 1_000_000_000;
    now.tv_nsec = nsec % 1_000_000_000;
    ((clock == libc::CLOCK_MONOTONIC).then_some(clock), now)
}

macro_rules! within {
    ($( $name:ident $type:ty, $clocked:ident, $timed:ident; )*) => { $(
        /// Locks within a time, as libc does.
        ///
        /// # Safety
        ///
        /// That of the function.
        pub(crate) unsafe fn $name(object: *mut $type, timeout: Duration) -> c_int {
            let (clock, at) = moment(At::$clocked, timeout);
            match clock {
                // SAFETY: the caller's; the moment is readable.
                Some(clock) => unsafe { $clocked(object, clock, &raw const at) },
                // SAFETY: as above.
                None => unsafe { $timed(object, &raw const at) },
            }
        }
    )* };
}

within! {
    mutex_within pthread_mutex_t, mutex_clocklock, mutex_timedlock;
    rwlock_read_within pthread_rwlock_t, rwlock_clockrdlock, rwlock_timedrdlock;
    rwlock_write_within pthread_rwlock_t, rwlock_clockwrlock, rwlock_timedwrlock;
}
