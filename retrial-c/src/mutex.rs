//! `retrial_mutex`: gets, releases and conversions.

use crate::call::{Uncancelled, code, failure, null, text, text_or_empty};
use crate::code::{Answer, Code, Failure};
use crate::instance::{self, Open};
use crate::location::{CLocation, location};
use crate::session::{self, InUse};
use retrial::engine::EngineMutex;
use retrial::sys::{Clock, Deadline, now_ns};
use retrial::{Hold, Mode, Patience};
use std::ffi::{c_char, c_int, c_void};
use std::mem::{self, ManuallyDrop};
use std::ptr;

/// `RETRIAL_NOW`: one try.
pub(crate) const NOW: u64 = 0;
/// `RETRIAL_FOREVER`: no deadline.
pub(crate) const FOREVER: u64 = u64::MAX;

const fn patience(deadline_ns: u64) -> Patience {
    match deadline_ns {
        NOW => Patience::None,
        FOREVER => Patience::Endless,
        at_ns => Patience::Until(Deadline { clock: Clock::Monotonic, at_ns }),
    }
}

/// # Safety
///
/// NULL, or a `retrial_mutex` that stays mapped.
#[inline]
unsafe fn mutex_at<'a>(at: *const EngineMutex) -> Result<&'a EngineMutex, Failure> {
    if !at.is_aligned() {
        return Err(failure(Code::Invalid, "the address of the mutex is not a multiple of 8; align the struct"));
    }
    // SAFETY: aligned, and atomics only: any bytes are a value.
    unsafe { at.as_ref() }.ok_or_else(|| null("mutex", "a mutex"))
}

/// `retrial_mutex_named`.
///
/// # Safety
///
/// Pointers are NULL or what the header says; so it is with all calls of this crate.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_mutex_named(
    at: *const instance::Handle,
    name: *const c_char,
    mutex_type: *const c_char,
    size: usize,
    to: *mut *const EngineMutex,
    data: *mut *mut c_void,
) -> c_int {
    let _uncancelled = Uncancelled::new();
    let find = || {
        // SAFETY: the caller's.
        let open = unsafe { Open::new(at) }?;
        // SAFETY: the caller's.
        let (name, mutex_type) = unsafe { (text("name", name)?, text("type", mutex_type)?) };
        let (mutex, bytes) = open.instance().mutex_bytes(name, mutex_type, size)?;
        // SAFETY: NULL or writable, as the caller says.
        if let Some(data) = unsafe { data.as_mut() } {
            *data = bytes.cast();
        }
        Ok(ptr::from_ref(mutex))
    };
    // SAFETY: the caller's.
    code(unsafe { crate::call::out("mutex", to, find) })
}

/// `retrial_mutex_init`.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_mutex_init(
    at: *const instance::Handle,
    mutex: *mut EngineMutex,
    mutex_type: *const c_char,
    name: *const c_char,
) -> c_int {
    let _uncancelled = Uncancelled::new();
    let init = || {
        // SAFETY: the caller's.
        let open = unsafe { Open::new(at) }?;
        // SAFETY: the caller's.
        let (mutex_type, name) = unsafe { (text("type", mutex_type)?, text_or_empty("name", name)?) };
        // SAFETY: the caller's.
        unsafe { mutex_at(mutex) }?;
        // SAFETY: not NULL and aligned, and no session uses it yet, as the header says.
        unsafe { ptr::write(mutex, EngineMutex::default()) };
        // SAFETY: just written.
        unsafe { &*mutex }.bind(open.instance(), mutex_type, name)?;
        Ok(())
    };
    code(init())
}

/// `retrial_mutex_destroy`.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_mutex_destroy(at: *const instance::Handle, mutex: *const EngineMutex) -> c_int {
    let destroy = || {
        // SAFETY: the caller's.
        let open = unsafe { Open::new(at) }?;
        // SAFETY: the caller's.
        let mutex = unsafe { mutex_at(mutex) }?;
        // SAFETY: no session gets it any more, and it is not a named one, as the header says.
        let is_free = unsafe { mutex.unbind(open.instance()) }?;
        is_free.then_some(()).ok_or_else(|| failure(Code::Busy, "the mutex is held; release it first"))
    };
    code(destroy())
}

/// `retrial_mutex_get_until`.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_mutex_get_until(
    session: *const session::Handle,
    mutex: *const EngineMutex,
    mode: c_int,
    deadline_ns: u64,
    at: *const CLocation,
) -> c_int {
    // SAFETY: the caller's.
    code(unsafe { get(session, mutex, mode, deadline_ns, at) })
}

unsafe fn get(
    session: *const session::Handle,
    mutex: *const EngineMutex,
    mode: c_int,
    deadline_ns: u64,
    at: *const CLocation,
) -> Answer {
    // SAFETY: the caller's.
    let session = unsafe { InUse::new(session) }?;
    // SAFETY: the caller's.
    let record = unsafe { mutex_at(mutex) }?.record(session.instance())?;
    // SAFETY: the caller's.
    let at = unsafe { location(at) }?;
    let mode = u8::try_from(mode).ok().and_then(Mode::from_number).ok_or_else(|| {
        failure(Code::Invalid, format_args!("mode {mode}, expected RETRIAL_S, RETRIAL_X, RETRIAL_LX or RETRIAL_E"))
    })?;
    // SAFETY: the session is of the instance that the record was asked for.
    match unsafe { record.get(&session, mode, at, patience(deadline_ns)) } {
        Ok(hold) => {
            mem::forget(hold);
            Ok(())
        }
        Err(error) => {
            let mut hold = None;
            let failure = Failure::from(error.map(|guard| hold = Some(guard)));
            mem::forget(hold);
            Err(failure)
        }
    }
}

/// The hold of a session, which stays held.
///
/// # Safety
///
/// Every hold of the session was forgotten.
unsafe fn held<'a>(session: &'a InUse, mutex: &'a EngineMutex) -> Result<ManuallyDrop<Hold<'a>>, Failure> {
    if session.is_forked() {
        return Err(failure(
            Code::Forked,
            format_args!("the session is of process {}, which has the mutex; open one in the child", session.pid()),
        ));
    }
    let record = mutex.record(session.instance())?;
    // SAFETY: of its instance, and forgotten, as the caller says.
    let mut holds = Mode::ALL.into_iter().filter_map(|mode| unsafe { record.resume(session, mode) });
    let hold = holds.next().map(ManuallyDrop::new);
    hold.ok_or_else(|| {
        failure(
            Code::NotHeld,
            format_args!("session {} does not hold the mutex; the session that got it releases it", session.sid()),
        )
    })
}

/// Does something with what a session holds.
///
/// # Safety
///
/// As the calls.
#[inline]
unsafe fn with_hold(
    session: *const session::Handle,
    mutex: *const EngineMutex,
    f: impl FnOnce(&mut ManuallyDrop<Hold<'_>>) -> Answer,
) -> c_int {
    // SAFETY: the caller's.
    code(unsafe { InUse::new(session) }.and_then(|session| {
        // SAFETY: the caller's.
        let mutex = unsafe { mutex_at(mutex) }?;
        // SAFETY: all holds of this crate are forgotten.
        let mut hold = unsafe { held(&session, mutex) }?;
        f(&mut hold)
    }))
}

#[cold]
fn wrong_mode(held: Mode, expected: &str) -> Failure {
    failure(Code::WrongMode, format_args!("the session holds the mutex in {held}, expected {expected}"))
}

/// `retrial_mutex_release`.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_mutex_release(
    session: *const session::Handle,
    mutex: *const EngineMutex,
) -> c_int {
    let release = |hold: &mut ManuallyDrop<Hold<'_>>| {
        // SAFETY: dropped once: its record is gone then.
        unsafe { ManuallyDrop::drop(hold) };
        Ok(())
    };
    // SAFETY: the caller's.
    unsafe { with_hold(session, mutex, release) }
}

/// `retrial_mutex_consistent`.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_mutex_consistent(
    session: *const session::Handle,
    mutex: *const EngineMutex,
) -> c_int {
    let declare = |hold: &mut ManuallyDrop<Hold<'_>>| {
        if hold.mode() == Mode::Shared {
            return Err(wrong_mode(Mode::Shared, "X, LX or E"));
        }
        hold.consistent();
        Ok(())
    };
    // SAFETY: the caller's.
    unsafe { with_hold(session, mutex, declare) }
}

/// `retrial_mutex_examine`.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_mutex_examine(
    session: *const session::Handle,
    mutex: *const EngineMutex,
    deadline_ns: u64,
) -> c_int {
    let examine = |hold: &mut ManuallyDrop<Hold<'_>>| match hold.mode() {
        Mode::Shared => Ok(hold.examine(patience(deadline_ns))?),
        other => Err(wrong_mode(other, "S")),
    };
    // SAFETY: the caller's.
    unsafe { with_hold(session, mutex, examine) }
}

/// `retrial_mutex_upgrade`.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_mutex_upgrade(
    session: *const session::Handle,
    mutex: *const EngineMutex,
    deadline_ns: u64,
) -> c_int {
    let upgrade = |hold: &mut ManuallyDrop<Hold<'_>>| match hold.mode() {
        Mode::Examine => Ok(hold.upgrade(patience(deadline_ns))?),
        other => Err(wrong_mode(other, "E")),
    };
    // SAFETY: the caller's.
    unsafe { with_hold(session, mutex, upgrade) }
}

/// `retrial_mutex_share`.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_mutex_share(
    session: *const session::Handle,
    mutex: *const EngineMutex,
) -> c_int {
    let share = |hold: &mut ManuallyDrop<Hold<'_>>| match hold.mode() {
        Mode::Shared => Err(wrong_mode(Mode::Shared, "X, LX or E")),
        _ => {
            hold.share();
            Ok(())
        }
    };
    // SAFETY: the caller's.
    unsafe { with_hold(session, mutex, share) }
}

/// `retrial_deadline_ns`: so many ns from now.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_deadline_ns(timeout_ns: u64) -> u64 {
    // A deadline that overflows is none.
    now_ns().saturating_add(timeout_ns)
}
