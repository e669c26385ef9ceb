//! What every call does: checks its arguments, answers a code, keeps a message for the thread.

use crate::code::{Answer, Code, Failure};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::fmt::{self, Display, Write};
use std::mem::MaybeUninit;
use std::ptr;

/// Bytes of the longest message, its 0 included.
const MESSAGE: usize = 512;

thread_local! {
    // Nothing to drop, so that it can be read as long as the thread runs.
    static TEXT: [Cell<u8>; MESSAGE] = const { [const { Cell::new(0) }; MESSAGE] };
}

/// Writes into the thread's message what fits, whole characters only.
struct Message(usize);

impl Write for Message {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = (MESSAGE - 1 - self.0).min(text.len());
        let fits = (0..=room).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        TEXT.with(|cells| {
            for (cell, byte) in cells[self.0..].iter().zip(text.as_bytes()[..fits].iter().chain(&[0])) {
                cell.set(*byte);
            }
        });
        self.0 += fits;
        Ok(())
    }
}

/// Keeps the message of an error.
#[cold]
pub(crate) fn failure(code: Code, why: impl Display) -> Failure {
    // A message takes what fits and never fails.
    let _ = write!(Message(0), "{why}");
    Failure(code)
}

/// The code of an answer.
#[inline]
pub(crate) fn code(answer: Answer) -> c_int {
    answer.map_or_else(|Failure(code)| code as c_int, |()| Code::Ok as c_int)
}

/// `retrial_message`: why the thread's last call that failed did so; never NULL.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_message() -> *const c_char {
    TEXT.with(|cells| cells.as_ptr().cast())
}

#[cold]
pub(crate) fn null(name: &str, expected: impl Display) -> Failure {
    failure(Code::Invalid, format_args!("argument `{name}` is NULL, expected {expected}"))
}

/// A string argument: NULL, or a string with its 0 that outlives the call, as the header says. A pointer by
/// which C is trusted is an `Option<&T>` in the calls' signatures, and this is the same for strings.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    pub(crate) const fn literal(text: &'static CStr) -> Self {
        Self(text.as_ptr())
    }

    pub(crate) const fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The text; `name` is the argument's.
    pub(crate) fn get<'a>(self, name: &str) -> Result<&'a str, Failure> {
        if self.is_null() {
            return Err(null(name, "a string"));
        }
        // SAFETY: a string with its 0 that outlives the call.
        let bytes = unsafe { CStr::from_ptr(self.0) };
        bytes.to_str().map_err(|error| failure(Code::Invalid, format_args!("argument `{name}` is not UTF-8: {error}")))
    }

    /// The same; NULL is the empty one.
    pub(crate) fn or_empty<'a>(self, name: &str) -> Result<&'a str, Failure> {
        if self.is_null() { Ok("") } else { self.get(name) }
    }
}

/// A place for a result, which C has not initialised.
pub(crate) type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// Stores a result where C wants it.
pub(crate) fn out<T>(name: &str, to: Out<T>, value: impl FnOnce() -> Result<T, Failure>) -> Answer {
    to.ok_or_else(|| null(name, "a place for the result"))?.write(value()?);
    Ok(())
}

/// Keeps the thread from being cancelled in a call that opens files or maps memory.
pub(crate) struct Uncancelled(c_int);

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

impl Uncancelled {
    pub(crate) fn new() -> Self {
        const PTHREAD_CANCEL_DISABLE: c_int = 1;
        let mut old = 0;
        // SAFETY: `old` is writable.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut old) };
        Self(old)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the old state may be NULL.
        unsafe { pthread_setcancelstate(self.0, ptr::null_mut()) };
    }
}
