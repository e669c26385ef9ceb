//! A mutex in memory that its processes do not share: each has a copy, and they exclude nobody. Looked for by
//! programs that are compiled with `RETRIAL_DEBUG`.

use crate::call::{Uncancelled, code, failure};
use crate::code::{Answer, Code};
use crate::mutex::{At, OfSession};
use crate::session::InUse;
use retrial::engine::RawMutex;
use retrial::views::Place;
use std::cell::Cell;
use std::ffi::c_int;

/// Pages whose mapping a thread remembers.
const REMEMBERED: usize = 64;

thread_local! {
    /// Pages that were found shared, each at its number modulo [`REMEMBERED`].
    static SHARED: [Cell<usize>; REMEMBERED] = const { [const { Cell::new(0) }; REMEMBERED] };
}

/// `retrial_mutex_check`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn retrial_mutex_check(session: OfSession, mutex: At) -> c_int {
    code(check(session, mutex))
}

fn check(session: OfSession, mutex: At) -> Answer {
    let (session, mutex) = (InUse::new(session)?, mutex.get()?);
    let Some(id) = mutex.bound(session.instance())?.map(RawMutex::id) else { return Ok(()) };
    let Some(registered) = session.instance().tables().mutex_info(id) else { return Ok(()) };
    // Private memory does for the threads of the process that registered it.
    if registered.place == Place::Arena || registered.pid == session.pid() || is_shared(mutex) {
        return Ok(());
    }
    let pid = registered.pid;
    Err(failure(
        Code::Invalid,
        format_args!(
            "the mutex lies in private memory of this process, and process {pid} got it first, which has a copy of its \
             own; put it into memory that both share (MAP_SHARED)"
        ),
    ))
}

/// Whether other processes have what is at an address too, as far as the kernel says.
fn is_shared<T>(at: &T) -> bool {
    let address = std::ptr::from_ref(at).addr();
    let page = address >> 12;
    let _uncancelled = Uncancelled::new();
    SHARED.with(|shared| {
        let remembered = &shared[page % REMEMBERED];
        if remembered.get() != page && mapping(address).is_none_or(|permissions| !permissions.ends_with('p')) {
            remembered.set(page);
        }
        remembered.get() == page
    })
}

/// The permissions of the mapping at an address, as `rw-s`.
fn mapping(address: usize) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (begin, end) = fields.next()?.split_once('-')?;
        let [begin, end] = [begin, end].map(|text| usize::from_str_radix(text, 16).ok());
        (begin?..end?).contains(&address).then(|| fields.next().map(str::to_owned))?
    })
}
