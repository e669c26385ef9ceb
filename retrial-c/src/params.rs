//! Parameters of an instance or of a mutex type.

use crate::call::{Text, code, failure};
use crate::code::{Answer, Code, Failure};
use crate::instance::{Handle, Open};
use retrial::views::TypeId;
use retrial::{Instance, P};
use std::ffi::{c_char, c_int};

fn type_of(instance: &Instance, name: Text) -> Result<Option<TypeId>, Failure> {
    if name.is_null() {
        return Ok(None);
    }
    let name = name.get("type")?;
    let found = instance.tables().type_named(name);
    let unknown = || {
        failure(Code::NotFound, format_args!("no mutex type `{name}`; make a mutex of it first, or NULL for all types"))
    };
    found.map(Some).ok_or_else(unknown)
}

/// `retrial_param_set`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_param_set(
    at: Option<&'static Handle>,
    mutex_type: Text,
    name: Text,
    value: Text,
) -> c_int {
    code(set(at, mutex_type, name, value))
}

fn set(at: Option<&'static Handle>, mutex_type: Text, name: Text, value: Text) -> Answer {
    let open = Open::new(at)?;
    let instance = open.instance();
    let param = P::named(name.get("name")?)?;
    let mutex_type = type_of(instance, mutex_type)?;
    if value.is_null() {
        instance.unset(param, mutex_type);
        return Ok(());
    }
    let scheme = usize::try_from(instance.params(mutex_type).get(P::Scheme)).unwrap_or(usize::MAX);
    instance.set(param, mutex_type, param.parse(value.get("value")?, scheme)?);
    Ok(())
}

/// `retrial_param_get`.
///
/// # Safety
///
/// `value` is NULL or has `size` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_param_get(
    at: Option<&'static Handle>,
    mutex_type: Text,
    name: Text,
    value: *mut c_char,
    size: usize,
) -> c_int {
    code(get(at, mutex_type, name).and_then(|found| {
        if value.is_null() {
            return Err(crate::call::null("value", "a buffer for the text"));
        }
        if found.len() > size {
            return Err(failure(Code::Invalid, format_args!("the buffer has {size} bytes, expected {}", found.len())));
        }
        // SAFETY: as long as the caller says, and that was checked.
        unsafe { value.copy_from_nonoverlapping(found.as_ptr().cast(), found.len()) };
        Ok(())
    }))
}

/// The value as text, with its 0.
fn get(at: Option<&'static Handle>, mutex_type: Text, name: Text) -> Result<String, Failure> {
    let open = Open::new(at)?;
    let param = P::named(name.get("name")?)?;
    let mutex_type = type_of(open.instance(), mutex_type)?;
    Ok(param.format(open.instance().params(mutex_type).get(param)) + "\0")
}
