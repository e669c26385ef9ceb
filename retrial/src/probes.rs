//! Probes for `bpftrace`, `perf`, GDB and `SystemTap` (USDT): each is one `nop` and an ELF note. All are in
//! waits, wake-ups and recoveries. An uncontended get or release passes none.
//!
//! | provider `retrial` | arguments |
//! |---|---|
//! | `miss` | mutex, session, mode, place, blocker |
//! | `wait_begin` | mutex, session, mode, place, blocker, the blocker's thread |
//! | `park` | mutex, session, mode, place, time-out in ns |
//! | `step` | mutex, session, what, ns asked for, ns that it took |
//! | `wait_end` | mutex, session, mode, place, ns waited, whether it was got |
//! | `wake` | address of the futex in the mutex, sessions to be woken at most, sessions woken |
//! | `death` | mutex, dead session, mode, place |
//! | `recovery` | dead session, its process, mutexes recovered |
//!
//! At most six arguments: `bpftrace` reads no more. A mutex is its number, a session its SID, both 0 where
//! there is none; a thread is 0 where it is not known, and where its session's number is above 256. A mode is a
//! [`Mode`]'s number, or 4 in a wait for an event. A place is the address of its name, 0 where it is not known.
//! What a step was is a [`What`]: 2 yield, 3 sleep, 4 park that was woken, 5 park that timed out.

use crate::entries::Location;
#[cfg(doc)]
use crate::mode::Mode;
use crate::operation_log::{LocationId, MutexId, Record};
use crate::recorder::Recorder;
use crate::session::Session;
use crate::sys::Ordering;
use crate::tables::Tables;
use crate::trace::What;
use crate::word::Sid;
use probe::probe;
use std::ptr;
use std::time::Duration;

/// Highest number of a session whose thread `wait_begin` tells: each session's is in another page, which the
/// kernel has to map for each process that waits, whether somebody traces or not. A semaphore would say that,
/// but `bpftrace` (0.17) does not raise those of the programs that it starts.
const OF_KNOWN_THREAD: u32 = 256;

/// The mode of a wait for an event.
const FOR_EVENT: u8 = 4;

/// Address of the name of a place.
fn place(tables: &Tables, id: LocationId) -> *const Location {
    match tables.segment.locations().get(usize::from(id.0)) {
        Some(entry) if id.0 != 0 => ptr::from_ref(&entry.name).cast(),
        _ => ptr::null(),
    }
}

/// What most probes begin with.
struct Of {
    mutex: u32,
    session: u32,
    mode: u8,
    place: *const Location,
}

impl Of {
    fn wait(recorder: &Recorder<'_>) -> Self {
        let key = recorder.key;
        Self {
            mutex: key.mutex.0,
            session: recorder.session.map_or(Sid::NONE, Session::sid).number(),
            mode: if key.event.for_event { FOR_EVENT } else { key.event.mode as u8 },
            place: recorder.session.map_or(ptr::null(), |session| place(&session.instance.tables, key.location)),
        }
    }
}

pub(crate) fn miss(recorder: &Recorder<'_>) {
    let of = Of::wait(recorder);
    probe!(retrial, miss, of.mutex, of.session, of.mode, of.place, recorder.blocker.number());
}

pub(crate) fn wait_begin(recorder: &Recorder<'_>) {
    let (of, blocker) = (Of::wait(recorder), recorder.blocker);
    let session = recorder.session.filter(|_| blocker.number() <= OF_KNOWN_THREAD);
    let slot = session.and_then(|session| session.instance.tables.slot(blocker));
    let tid = slot.map_or(0, |slot| slot.tid.load(Ordering::Relaxed));
    probe!(retrial, wait_begin, of.mutex, of.session, of.mode, of.place, blocker.number(), tid);
}

pub(crate) fn park(recorder: &Recorder<'_>, timeout: Duration) {
    let (of, timeout_ns) = (Of::wait(recorder), timeout.as_nanos());
    probe!(retrial, park, of.mutex, of.session, of.mode, of.place, timeout_ns);
}

pub(crate) fn step(recorder: &Recorder<'_>, what: What, asked_ns: u64, took_ns: u64) {
    let of = Of::wait(recorder);
    probe!(retrial, step, of.mutex, of.session, what, asked_ns, took_ns);
}

pub(crate) fn wait_end(recorder: &Recorder<'_>, waited_ns: u64, what: What) {
    let (of, got) = (Of::wait(recorder), what == What::Got);
    probe!(retrial, wait_end, of.mutex, of.session, of.mode, of.place, waited_ns, got);
}

#[cfg(not(any(loom, shuttle)))]
pub(crate) fn wake(futex: usize, count: u32, woken: i64) {
    probe!(retrial, wake, futex, count, woken);
}

pub(crate) fn death(tables: &Tables, mutex: MutexId, sid: Sid, record: Record) {
    let place = place(tables, record.location);
    probe!(retrial, death, mutex.0, sid.number(), record.mode, place);
}

pub(crate) fn recovery(sid: Sid, pid: u32, mutexes: u32) {
    probe!(retrial, recovery, sid.number(), pid, mutexes);
}
