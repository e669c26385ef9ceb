//! `retrial_mutex`: gets, releases and conversions.

use crate::call::{Out, Text, Uncancelled, code, failure, null, out};
use crate::code::{Answer, Code, Failure};
use crate::instance::{self, Open};
use crate::location::CLocation;
use crate::session::{self, InUse};
use retrial::engine::EngineMutex;
use retrial::sys::{Clock, Deadline, now_ns};
use retrial::{Hold, Mode, Patience};
use std::ffi::{c_int, c_void};
use std::mem::{self, ManuallyDrop};

/// `RETRIAL_NOW`: one try.
pub(crate) const NOW: u64 = 0;
/// `RETRIAL_FOREVER`: no deadline.
pub(crate) const FOREVER: u64 = u64::MAX;

pub(crate) const fn patience(deadline_ns: u64) -> Patience {
    match deadline_ns {
        NOW => Patience::None,
        FOREVER => Patience::Endless,
        at_ns => Patience::Until(Deadline { clock: Clock::Monotonic, at_ns }),
    }
}

/// What C lays into memory of its own: atomics only, so that any bytes are a value.
pub(crate) trait Object: Default {
    const NAME: &str;
}

impl Object for EngineMutex {
    const NAME: &str = "mutex";
}

/// An argument: NULL, or an object that stays mapped, as the header says. No reference: C may have put it anywhere.
#[repr(transparent)]
pub(crate) struct At<T = EngineMutex>(*mut T);

impl<T: Object> At<T> {
    #[inline]
    pub(crate) fn get<'a>(self) -> Result<&'a T, Failure> {
        if !self.0.is_aligned() {
            return Err(misaligned(T::NAME));
        }
        // SAFETY: aligned, and atomics only: any bytes are a value.
        unsafe { self.0.as_ref() }.ok_or_else(|| null(T::NAME, format_args!("a {}", T::NAME)))
    }

    /// Makes it a fresh one, whatever bytes are there.
    pub(crate) fn clear<'a>(self) -> Result<&'a T, Failure> {
        let Self(at) = self;
        Self(at).get()?;
        // SAFETY: not NULL and aligned, and no session uses it yet, as the header says.
        unsafe { at.write(T::default()) };
        Self(at).get()
    }
}

#[cold]
fn misaligned(name: &str) -> Failure {
    failure(Code::Invalid, format_args!("the address of the {name} is not a multiple of 8; align the struct"))
}

pub(crate) type OfInstance = Option<&'static instance::Handle>;
pub(crate) type OfSession = Option<&'static session::Handle>;

/// `retrial_mutex_named`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_mutex_named(
    at: OfInstance,
    name: Text,
    mutex_type: Text,
    size: usize,
    to: Out<&'static EngineMutex>,
    data: Out<*mut c_void>,
) -> c_int {
    let _uncancelled = Uncancelled::new();
    code(out("mutex", to, || {
        let (name, mutex_type) = (name.get("name")?, mutex_type.get("type")?);
        let (mutex, bytes) = Open::new(at)?.instance().mutex_bytes(name, mutex_type, size)?;
        if let Some(data) = data {
            data.write(bytes.cast());
        }
        Ok(mutex)
    }))
}

/// `retrial_mutex_init`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_mutex_init(at: OfInstance, mutex: At, mutex_type: Text, name: Text) -> c_int {
    let _uncancelled = Uncancelled::new();
    code(init(at, mutex, mutex_type, name))
}

fn init(at: OfInstance, mutex: At, mutex_type: Text, name: Text) -> Answer {
    let open = Open::new(at)?;
    let (mutex_type, name) = (mutex_type.get("type")?, name.or_empty("name")?);
    mutex.clear()?.bind(open.instance(), mutex_type, name)?;
    Ok(())
}

/// `retrial_mutex_destroy`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_mutex_destroy(at: OfInstance, mutex: At) -> c_int {
    code(destroy(at, mutex))
}

fn destroy(at: OfInstance, mutex: At) -> Answer {
    let (open, mutex) = (Open::new(at)?, mutex.get()?);
    // SAFETY: no session gets it any more, and it is not a named one, as the header says.
    let is_free = unsafe { mutex.unbind(open.instance()) }?;
    is_free.then_some(()).ok_or_else(|| failure(Code::Busy, "the mutex is held; release it first"))
}

/// `retrial_mutex_get_call`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_mutex_get_call(
    session: OfSession,
    mutex: At,
    mode: c_int,
    deadline_ns: u64,
    at: Option<&CLocation>,
) -> c_int {
    code(get(session, mutex, mode, deadline_ns, at))
}

fn get(session: OfSession, mutex: At, mode: c_int, deadline_ns: u64, at: Option<&CLocation>) -> Answer {
    let session = InUse::new(session)?;
    let location = at.unwrap_or_else(|| session.nowhere()).id(session.instance())?;
    let mode = u8::try_from(mode).ok().and_then(Mode::from_number).ok_or_else(|| {
        failure(Code::Invalid, format_args!("mode {mode}, expected RETRIAL_S, RETRIAL_X, RETRIAL_LX or RETRIAL_E"))
    })?;
    // Last: it binds a new mutex, and what is refused changes nothing.
    let mutex = mutex.get()?;
    let record = mutex.record(session.instance())?;
    session.arrives_at(mutex, record);
    // SAFETY: the session is of the instance that the record was asked for.
    match unsafe { record.get_at(&session, mode, location, patience(deadline_ns)) } {
        Ok(hold) => {
            mem::forget(hold);
            session.has_got(mutex, record);
            Ok(())
        }
        Err(error) => Err(Failure::from(error.map(ManuallyDrop::new))),
    }
}

/// What a session holds, which stays held.
pub(crate) fn held<'a>(session: &'a InUse, mutex: &'a EngineMutex) -> Result<ManuallyDrop<Hold<'a>>, Failure> {
    let hold = mutex.bound(session.instance())?.and_then(|record| {
        session.changes(record);
        // SAFETY: of its instance, and `get` has forgotten the hold.
        Mode::ALL.into_iter().find_map(|mode| unsafe { record.resume(session, mode) })
    });
    hold.map(ManuallyDrop::new).ok_or_else(|| {
        failure(
            Code::NotHeld,
            format_args!("session {} does not hold the mutex; the session that got it releases it", session.sid()),
        )
    })
}

/// Does something with what a session holds.
#[inline]
fn with_hold(session: OfSession, mutex: At, f: impl FnOnce(&mut ManuallyDrop<Hold<'_>>) -> Answer) -> c_int {
    code(InUse::new(session).and_then(|session| f(&mut held(&session, mutex.get()?)?)))
}

/// Refuses unless it is held in one of these modes.
pub(crate) fn expect(held: Mode, expected: &[Mode]) -> Answer {
    if expected.contains(&held) {
        return Ok(());
    }
    let names: Vec<_> = expected.iter().map(|mode| mode.name()).collect();
    let names = names.join(" or ");
    Err(failure(Code::WrongMode, format_args!("the session holds the mutex in {held}, expected {names}")))
}

/// The modes with the holder field.
const ALONE: &[Mode] = &[Mode::Exclusive, Mode::LongExclusive, Mode::Examine];

/// `retrial_mutex_release_end`: what is left of an inlined release that has to wake.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_mutex_release_end(session: OfSession, mutex: At) -> c_int {
    code(InUse::new(session).and_then(|session| {
        let record = mutex.get()?.bound(session.instance())?.ok_or_else(not_begun)?;
        // SAFETY: of its instance.
        unsafe { record.end_inlined(&session) }.then_some(()).ok_or_else(not_begun)
    }))
}

#[cold]
fn not_begun() -> Failure {
    failure(Code::Invalid, "no release of retrial.h is under way; call retrial_mutex_release instead")
}

/// `retrial_mutex_release_call`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_mutex_release_call(session: OfSession, mutex: At) -> c_int {
    with_hold(session, mutex, |hold| {
        // SAFETY: dropped once: its record is gone then.
        unsafe { ManuallyDrop::drop(hold) };
        Ok(())
    })
}

/// `retrial_mutex_consistent`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_mutex_consistent(session: OfSession, mutex: At) -> c_int {
    with_hold(session, mutex, |hold| {
        expect(hold.mode(), ALONE)?;
        hold.consistent();
        Ok(())
    })
}

/// `retrial_mutex_examine`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_mutex_examine(session: OfSession, mutex: At, deadline_ns: u64) -> c_int {
    with_hold(session, mutex, |hold| {
        expect(hold.mode(), &[Mode::Shared])?;
        Ok(hold.examine(patience(deadline_ns))?)
    })
}

/// `retrial_mutex_upgrade`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_mutex_upgrade(session: OfSession, mutex: At, deadline_ns: u64) -> c_int {
    with_hold(session, mutex, |hold| {
        expect(hold.mode(), &[Mode::Examine])?;
        Ok(hold.upgrade(patience(deadline_ns))?)
    })
}

/// `retrial_mutex_share`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_mutex_share(session: OfSession, mutex: At) -> c_int {
    with_hold(session, mutex, |hold| {
        expect(hold.mode(), ALONE)?;
        hold.share();
        Ok(())
    })
}

/// `retrial_deadline_ns`: so many ns from now.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_deadline_ns(timeout_ns: u64) -> u64 {
    // A deadline that overflows is none.
    now_ns().saturating_add(timeout_ns)
}

/// `retrial_deadline_of`: a time of `CLOCK_MONOTONIC`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_deadline_of(at: Option<&libc::timespec>) -> u64 {
    let Some(at) = at else { return NOW };
    let (Ok(seconds), Ok(ns)) = (u64::try_from(at.tv_sec), u64::try_from(at.tv_nsec)) else { return NOW };
    seconds.checked_mul(1_000_000_000).and_then(|whole| whole.checked_add(ns)).unwrap_or(FOREVER)
}
