//! What is held between begin and end of a hold, and the views of the data that were made of it.

use crate::hold::Hold;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyAny;
use retrial::{Mode, Session};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ptr;

/// What is held. Changed with the interpreter lock.
#[derive(Default)]
pub(crate) struct State {
    /// The session that holds it; null while it is not entered. No other has the address of one that holds.
    owner: Cell<*const Session<'static>>,
    /// Dropped by its owner alone. One that its thread left behind is recovered with the session.
    hold: Cell<Option<ManuallyDrop<retrial::Hold<'static>>>>,
    pub(crate) owner_died: Cell<bool>,
    /// How often it was entered: tells what is held now, and a view of that, from what was held earlier.
    entries: Cell<usize>,
    /// What `data` gave since it was entered, and of which objects: those of one mutex may differ in format.
    given: RefCell<Vec<(*const Hold, Py<PyAny>)>>,
    /// Views that there are of those made since it was entered: what `data` gave, and what was made of it.
    views: Cell<usize>,
}

// SAFETY: touched with the interpreter lock only (the module says that it needs it), and the hold in it by
// the thread of its session only, as `Hold::is_owned` checks. The pointers to objects are compared, not
// followed.
unsafe impl Send for State {}
// SAFETY: as above.
unsafe impl Sync for State {}

impl State {
    #[inline]
    pub(crate) fn owner(&self) -> *const Session<'static> {
        self.owner.get()
    }

    /// Keeps what was got.
    #[inline]
    pub(crate) fn begin(&self, session: &'static Session<'static>, hold: retrial::Hold<'static>, has_died: bool) {
        self.entries.set(self.entries.get().wrapping_add(1));
        self.views.set(0);
        // A thread that ended as the holder has left them.
        let is_left = !self.given.borrow().is_empty();
        let left = is_left.then(|| self.given.take());
        self.owner_died.set(has_died);
        self.hold.set(Some(ManuallyDrop::new(hold)));
        self.owner.set(session);
        // Last: Python's code may run.
        drop(left);
    }

    #[inline]
    pub(crate) fn entries(&self) -> usize {
        self.entries.get()
    }

    /// What is held, to be given back by the thread that has it.
    #[inline]
    pub(crate) fn end(&self) -> Option<retrial::Hold<'static>> {
        self.owner.set(ptr::null());
        self.hold.take().map(ManuallyDrop::into_inner)
    }

    /// What is held, to be put back; nothing while the owner waits in a conversion.
    pub(crate) fn take(&self) -> Option<ManuallyDrop<retrial::Hold<'static>>> {
        self.hold.take()
    }

    pub(crate) fn put_back(&self, hold: ManuallyDrop<retrial::Hold<'static>>) {
        self.hold.set(Some(hold));
    }

    /// Whether a thread holds it in S, or waits to convert S: others get S and E beside that. What is entered
    /// in another mode when they get it was left by a thread that has ended. So was S where its thread has ended;
    /// and in a child of fork the hold is the parent's.
    pub(crate) fn is_shared(&self) -> bool {
        let hold = self.hold.take();
        let is_shared = hold.as_ref().is_none_or(|hold| hold.mode() == Mode::Shared);
        self.hold.set(hold);
        // SAFETY: null, or a session that holds something, which stays in memory.
        let owner = unsafe { self.owner.get().as_ref() };
        is_shared && owner.is_some_and(|owner| !owner.is_forked() && owner.is_attended())
    }

    /// The view that an object has given of what is held.
    pub(crate) fn given(&self, py: Python<'_>, by: *const Hold) -> Option<Py<PyAny>> {
        let given = self.given.borrow();
        given.iter().find(|(giver, _)| ptr::eq(*giver, by)).map(|(_, view)| view.clone_ref(py))
    }

    pub(crate) fn give(&self, by: *const Hold, view: Py<PyAny>) {
        self.given.borrow_mut().push((by, view));
    }

    /// One of them, which is taken out first: Python's code may run when it is released.
    #[inline]
    fn pop_given(&self) -> Option<Py<PyAny>> {
        self.given.borrow_mut().pop().map(|(_, view)| view)
    }

    /// Counts a view: which hold it is of.
    pub(crate) fn count_view(&self) -> usize {
        self.views.set(self.views.get() + 1);
        self.entries.get()
    }

    /// The end of a view of that hold.
    pub(crate) fn forget_view(&self, of: usize) {
        if of == self.entries.get() {
            self.views.set(self.views.get().saturating_sub(1));
        }
    }

    /// Ends the views that `data` gave. An error when others were made of them, which still reach the data.
    #[inline]
    pub(crate) fn end_views(&self, py: Python<'_>) -> PyResult<()> {
        while let Some(view) = self.pop_given() {
            // It fails where others were made of it, which are counted.
            let _ = view.call_method0(py, "release");
        }
        if self.views.get() == 0 {
            return Ok(());
        }
        let why = "views made of the data are still there; drop them before the mutex is released or shared";
        Err(PyBufferError::new_err(why))
    }
}
