//! What was counted, and the alert log.

use crate::call::{code, failure, null};
use crate::code::{Code, Failure};
use crate::instance::Open;
use crate::mutex::{At, OfInstance};
use retrial::views::{Counter, Figures};
use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::sync::LazyLock;

/// The names of the figures: first the gets, then the counters of the waits.
static NAMES: LazyLock<Vec<CString>> = LazyLock::new(|| {
    let all = ["gets"].iter().chain(Counter::NAMES);
    all.filter_map(|name| CString::new(*name).ok()).collect()
});

/// `retrial_figure_name`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_figure_name(index: usize) -> *const c_char {
    NAMES.get(index).map_or(ptr::null(), |name| name.as_ptr())
}

/// `retrial_mutex_figures`.
///
/// # Safety
///
/// `values` is NULL or has room for `count` numbers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_mutex_figures(
    at: OfInstance,
    mutex: At,
    values: *mut u64,
    count: usize,
) -> c_int {
    code(figures(at, mutex).and_then(|all| {
        if values.is_null() {
            return Err(null("values", "room for `count` numbers"));
        }
        // SAFETY: at most `count`, which the caller says are there.
        unsafe { values.copy_from_nonoverlapping(all.as_ptr(), all.len().min(count)) };
        Ok(())
    }))
}

/// In the order of the names; zeros where no session has got it yet.
fn figures(at: OfInstance, mutex: At) -> Result<Vec<u64>, Failure> {
    let (open, mutex) = (Open::new(at)?, mutex.get()?);
    mutex.bound(open.instance())?;
    let tables = open.instance().tables();
    let Some((id, gets)) = mutex.figures(tables) else { return Ok(vec![0; NAMES.len()]) };
    let mut sum = Figures::default();
    for (_, key, figures) in tables.figures() {
        if key.mutex == id {
            sum.add(&figures);
        }
    }
    Ok([gets].into_iter().chain(Counter::ALL.iter().map(|counter| sum.get(*counter))).collect())
}

/// `retrial_alert_next`.
///
/// # Safety
///
/// `text` is NULL or has `size` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn retrial_alert_next(
    at: OfInstance,
    number: Option<&mut u64>,
    at_ns: Option<&mut u64>,
    text: *mut c_char,
    size: usize,
) -> c_int {
    let Some(number) = number else {
        return code(Err(null("number", "the number of the last alert, 0 for none")));
    };
    if text.is_null() || size == 0 {
        return code(Err(null("text", "a buffer for the text")));
    }
    code(alert(at, *number).map(|(next, when, line)| {
        *number = next;
        if let Some(at_ns) = at_ns {
            *at_ns = when;
        }
        let fits = (0..size.min(line.len() + 1)).rev().find(|&len| line.is_char_boundary(len)).unwrap_or(0);
        let line = line[..fits].to_owned() + "\0";
        // SAFETY: no longer than `size`, as was just made sure of.
        unsafe { text.copy_from_nonoverlapping(line.as_ptr().cast(), line.len()) };
    }))
}

fn alert(at: OfInstance, after: u64) -> Result<(u64, u64, String), Failure> {
    let open = Open::new(at)?;
    let none = || failure(Code::NotFound, format_args!("no alert after number {after}"));
    open.instance().tables().alerts(after).into_iter().next().ok_or_else(none)
}
