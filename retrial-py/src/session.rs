//! The sessions of threads: one for each instance that a thread uses, made when it first gets a mutex.

use crate::errors::{Kind, OrRaise, raise};
use crate::instance::Shared;
use pyo3::prelude::*;
use retrial::sys::ThreadEnd;
use retrial::{Class, Session};
use std::cell::{Cell, RefCell};
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::Arc;

/// A session of this thread, and what keeps its instance mapped. Dropped in this order.
struct Entry {
    session: Box<Session<'static>>,
    shared: Arc<Shared>,
}

thread_local! {
    /// The last one that was used: the instance and the session.
    static LAST: Cell<(*const Shared, *const Session<'static>)> = const { Cell::new((ptr::null(), ptr::null())) };

    /// All of them. Nothing to drop: destructors of other thread-locals may release mutexes.
    static OPENED: ManuallyDrop<RefCell<Vec<Entry>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };

    /// The session that waits for a mutex, or null: a signal handler of Python's that runs meanwhile gets
    /// none.
    static WAITING: Cell<*const Session<'static>> = const { Cell::new(ptr::null()) };

    /// What a signal handler has raised while this thread waited.
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Ends what the thread has. It has no interpreter lock any more.
static END: ThreadEnd = ThreadEnd::new(|| {
    LAST.set((ptr::null(), ptr::null()));
    OPENED.with(|opened| opened.take()).into_iter().for_each(end);
});

/// Ends a session. What it still holds is recovered when the kernel has ended the thread. The memory of one that
/// holds something, and of a parent's, stays: holds are told apart by its address.
fn end(entry: Entry) {
    if entry.session.is_forked() || entry.session.has_records() {
        mem::forget(entry);
    }
}

/// The calling thread's session of an instance, if it has one.
#[inline]
pub(crate) fn existing(shared: &Shared) -> *const Session<'static> {
    let (last, session) = LAST.get();
    if ptr::eq(last, shared) { session } else { search(shared) }
}

#[cold]
fn search(shared: &Shared) -> *const Session<'static> {
    if is_waiting() {
        return ptr::null();
    }
    OPENED.with(|opened| {
        let opened = opened.borrow();
        let found = opened.iter().find(|entry| ptr::eq(&raw const *entry.shared, shared));
        found.map_or(ptr::null(), |entry| {
            LAST.set((shared, &raw const *entry.session));
            &raw const *entry.session
        })
    })
}

/// The calling thread's session of an instance. It lives until the thread closes the instance, or ends.
#[inline]
pub(crate) fn of(py: Python<'_>, shared: &Arc<Shared>) -> PyResult<&'static Session<'static>> {
    match own(shared)? {
        Some(session) => Ok(session),
        None => open(py, shared),
    }
}

/// The session that this thread has, of an instance that is open; not a parent's.
#[inline]
fn own(shared: &Shared) -> PyResult<Option<&'static Session<'static>>> {
    shared.check_open()?;
    // SAFETY: this thread's own, which only this thread ends.
    Ok(unsafe { existing(shared).as_ref() }.filter(|session| !session.is_forked()))
}

/// The calling thread's name, and whether it is the main one, which runs signal handlers.
fn thread(py: Python<'_>) -> PyResult<(String, bool)> {
    let threading = py.import("threading")?;
    let thread = threading.call_method0("current_thread")?;
    let name = thread.getattr("name")?.str()?;
    // A name may have bytes that are no text.
    Ok((name.to_string_lossy().into_owned(), thread.is(threading.call_method0("main_thread")?)))
}

#[cold]
fn open(py: Python<'_>, shared: &Arc<Shared>) -> PyResult<&'static Session<'static>> {
    if is_waiting() {
        let why = "this thread waits for a mutex: a signal handler that runs meanwhile cannot get another one";
        return Err(raise(Kind::Deadlock, why));
    }
    let (name, is_main) = thread(py)?;
    // Python's code has run, a signal handler's perhaps: it may have made this session, or closed the instance.
    if let Some(session) = own(shared)? {
        return Ok(session);
    }
    END.awaits().map_err(|error| raise(Kind::Error, error))?;
    // SAFETY: the entry keeps the instance mapped for longer than the session.
    let instance = unsafe { &*ptr::from_ref(&shared.instance) };
    // SAFETY: holds are refused to other threads, and what a view of the data may do once the thread has ended
    // is what any mapped memory in Python may do; docs/PYTHON.md says so.
    let session = unsafe { instance.thread_session(&name, Class::Detect) }.or_raise()?;
    if is_main {
        session.ask_while_waiting(signalled);
    }
    let session = Box::new(session);
    let at = &raw const *session;
    OPENED.with(|opened| {
        let mut opened = opened.borrow_mut();
        let is_left =
            |entry: &Entry| entry.session.is_forked() || entry.shared.is_closed() && !entry.session.has_records();
        opened.extract_if(.., |entry| is_left(entry)).for_each(end);
        opened.push(Entry { session, shared: Arc::clone(shared) });
    });
    LAST.set((Arc::as_ptr(shared), at));
    // SAFETY: in the box that was pushed above.
    Ok(unsafe { &*at })
}

/// Ends the calling thread's session of an instance that is to be closed.
pub(crate) fn close(shared: &Shared) -> PyResult<()> {
    // SAFETY: this thread's own.
    let Some(session) = (unsafe { existing(shared).as_ref() }) else { return Ok(()) };
    if session.has_records() && !session.is_forked() {
        return Err(raise(Kind::Error, "this thread holds mutexes of the instance; release them before it is closed"));
    }
    LAST.set((ptr::null(), ptr::null()));
    OPENED.with(|opened| {
        opened.borrow_mut().extract_if(.., |entry| ptr::eq(&raw const *entry.shared, shared)).for_each(end);
    });
    Ok(())
}

/// Whether the calling thread waits. A child that is forked meanwhile, by a signal handler, does not.
fn is_waiting() -> bool {
    // SAFETY: this thread's own session, which is not ended while it waits; a parent's stays in memory.
    unsafe { WAITING.get().as_ref() }.is_some_and(|session| !session.is_forked())
}

/// A wait of the calling thread.
pub(crate) struct Waiting;

impl Waiting {
    pub(crate) fn begin(session: &Session<'static>) -> Self {
        LAST.set((ptr::null(), ptr::null()));
        WAITING.set(session);
        Self
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.set(ptr::null());
    }
}

/// Asked by a wait of the main thread, which has given the interpreter lock up: whether a signal handler of
/// Python's has raised something.
#[allow(clippy::redundant_closure_for_method_calls)] // the method alone has another lifetime
fn signalled() -> bool {
    let raised = Python::attach(|py| py.check_signals()).err();
    let is_raised = raised.is_some();
    if is_raised {
        RAISED.set(raised);
    }
    is_raised
}

/// What a signal handler has raised in this thread's last wait.
pub(crate) fn raised() -> Option<PyErr> {
    RAISED.take()
}
