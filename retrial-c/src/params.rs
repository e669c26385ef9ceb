//! Parameters of an instance or of a mutex type.

use crate::call::{code, failure, null, text};
use crate::code::{Answer, Code, Failure};
use crate::instance::{Handle, Open};
use retrial::views::TypeId;
use retrial::{Instance, P};
use std::ffi::{c_char, c_int};
use std::ptr;

/// # Safety
///
/// As for [`text`].
unsafe fn type_of(instance: &Instance, name: *const c_char) -> Result<Option<TypeId>, Failure> {
    if name.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's.
    let name = unsafe { text("type", name) }?;
    let found = instance.tables().type_named(name);
    let unknown = || {
        failure(Code::NotFound, format_args!("no mutex type `{name}`; make a mutex of it first, or NULL for all types"))
    };
    found.map(Some).ok_or_else(unknown)
}

/// # Safety
///
/// As for [`text`].
unsafe fn named(name: *const c_char) -> Result<P, Failure> {
    // SAFETY: the caller's.
    Ok(P::named(unsafe { text("name", name) }?)?)
}

/// `retrial_param_set`.
///
/// # Safety
///
/// Pointers are NULL or what the header says; so it is with all calls of this crate.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_param_set(
    at: *const Handle,
    mutex_type: *const c_char,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    // SAFETY: the caller's.
    code(unsafe { set(at, mutex_type, name, value) })
}

unsafe fn set(at: *const Handle, mutex_type: *const c_char, name: *const c_char, value: *const c_char) -> Answer {
    // SAFETY: the caller's.
    let open = unsafe { Open::new(at) }?;
    let instance = open.instance();
    // SAFETY: the caller's.
    let param = unsafe { named(name) }?;
    // SAFETY: the caller's.
    let mutex_type = unsafe { type_of(instance, mutex_type) }?;
    if value.is_null() {
        instance.unset(param, mutex_type);
        return Ok(());
    }
    // SAFETY: the caller's.
    let value = unsafe { text("value", value) }?;
    let scheme = usize::try_from(instance.params(mutex_type).get(P::Scheme)).unwrap_or(usize::MAX);
    instance.set(param, mutex_type, param.parse(value, scheme)?);
    Ok(())
}

/// `retrial_param_get`.
///
/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_param_get(
    at: *const Handle,
    mutex_type: *const c_char,
    name: *const c_char,
    value: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the caller's.
    code(unsafe { get(at, mutex_type, name, value, size) })
}

unsafe fn get(
    at: *const Handle,
    mutex_type: *const c_char,
    name: *const c_char,
    value: *mut c_char,
    size: usize,
) -> Answer {
    // SAFETY: the caller's.
    let open = unsafe { Open::new(at) }?;
    // SAFETY: the caller's.
    let param = unsafe { named(name) }?;
    // SAFETY: the caller's.
    let mutex_type = unsafe { type_of(open.instance(), mutex_type) }?;
    let found = param.format(open.instance().params(mutex_type).get(param)) + "\0";
    if value.is_null() {
        return Err(null("value", "a buffer for the text"));
    }
    if found.len() > size {
        return Err(failure(Code::Invalid, format_args!("the buffer has {size} bytes, expected {}", found.len())));
    }
    // SAFETY: as long as the caller says, and that was checked.
    unsafe { ptr::copy_nonoverlapping(found.as_ptr().cast(), value, found.len()) };
    Ok(())
}
