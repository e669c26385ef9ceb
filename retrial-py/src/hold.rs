//! `retrial.Hold`: a mutex asked for, and held between `__enter__` and `__exit__`.

use crate::errors::{Kind, OrRaise, Raised, raise};
use crate::mutex::Named;
use crate::session;
use crate::state::State;
use crate::wait::Wait;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyMemoryView};
use retrial::engine::Get;
use retrial::views::LocationId;
use retrial::{ConvertError, GetError, GetFailure, Mode, Patience, Session};
use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::Arc;

/// What a hold asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) mode: Mode,
    pub(crate) wait: Wait,
    pub(crate) at: Option<LocationId>,
    /// Whether a mutex whose holder has died is kept, rather than given back with an exception.
    pub(crate) keeps: bool,
}

/// A mutex asked for, for `with`.
#[pyclass(frozen, module = "retrial")]
pub(crate) struct Hold {
    named: Arc<Named>,
    ask: Ask,
    state: State,
    /// In place of that, the state that all objects of a mutex have together.
    common: Option<Arc<State>>,
    /// Elements and bytes of each, where views read them.
    shape: [ffi::Py_ssize_t; 2],
}

/// Why a mutex was not got: what the library says, or what was raised meanwhile, perhaps by a signal handler.
pub(crate) enum Refused {
    Get(GetFailure),
    Raised(PyErr),
}

impl From<PyErr> for Refused {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl From<Refused> for PyErr {
    #[cold]
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Get(failure) => raise(failure.kind(), failure),
            Refused::Raised(error) => error,
        }
    }
}

#[cold]
fn not_held() -> PyErr {
    raise(Kind::NotHeld, "this thread does not hold the mutex in this way; the thread that got it releases it")
}

/// Where the caller is: file and line. `None` in a thread of C's, which runs no function of Python's.
///
/// By the interpreter's own calls: they run no code of the program's, so that an error has nothing to say.
fn caller(py: Python<'_>) -> Option<String> {
    // SAFETY: this thread has the interpreter lock.
    let frame = unsafe { ffi::PyEval_GetFrame() };
    // SAFETY: the thread's own frame, or null; borrowed.
    let frame = unsafe { Bound::from_borrowed_ptr_or_opt(py, frame.cast()) }?;
    let file = frame.getattr("f_code").and_then(|code| code.getattr("co_filename")?.str()).ok()?;
    let line: u32 = frame.getattr("f_lineno").and_then(|line| line.extract()).ok()?;
    // A file's name may have bytes that are no text.
    Some(format!("{}:{line}", file.to_string_lossy().rsplit('/').next().unwrap_or_default()))
}

/// What a thread does without the interpreter lock: the same thread, so that its session may go along.
struct Apart<T>(T);

// SAFETY: `detach` runs it in the calling thread.
unsafe impl<T> Send for Apart<T> {}

impl<R, F: FnOnce() -> R> Apart<F> {
    fn run(self) -> Apart<R> {
        Apart((self.0)())
    }
}

/// Does something without the interpreter lock.
pub(crate) fn detached<R>(py: Python<'_>, f: impl FnOnce() -> R) -> R {
    let task = Apart(f);
    py.detach(move || task.run()).0
}

/// Releases. S waits while another thread has E, which may need the interpreter lock to go on.
fn give_back(py: Python<'_>, hold: retrial::Hold<'static>) {
    if hold.mode() == Mode::Shared { detached(py, || drop(hold)) } else { drop(hold) }
}

/// Waits without the interpreter lock. What a signal handler raised meanwhile goes before what the wait gave.
fn apart<R>(py: Python<'_>, session: &Session<'static>, wait: impl FnOnce() -> R) -> (R, PyResult<()>) {
    let waiting = session::Waiting::begin(session);
    let got = detached(py, wait);
    drop(waiting);
    (got, session::raised().map_or(Ok(()), Err))
}

impl Hold {
    pub(crate) fn new(named: Arc<Named>, ask: Ask, common: Option<Arc<State>>) -> Self {
        let bytes = named.format.bytes;
        let shape = [named.size / bytes, bytes].map(ffi::Py_ssize_t::try_from).map(Result::unwrap_or_default);
        Self { named, ask, state: State::default(), common, shape }
    }

    #[inline]
    fn state(&self) -> &State {
        self.common.as_deref().unwrap_or(&self.state)
    }

    /// Gets the mutex.
    #[inline]
    pub(crate) fn enter(&self, py: Python<'_>, wait: Wait) -> Result<(), Refused> {
        let session = session::of(py, &self.named.shared)?;
        // SAFETY: the hold goes before the mapping: `named` keeps that, and so does the session.
        let record = unsafe { &*ptr::from_ref(self.named.record()) };
        let at = self.ask.at.unwrap_or(self.named.shared.nowhere);
        // SAFETY: the session is of the mutex's instance.
        let got = unsafe { record.get_at(session, self.ask.mode, at, Patience::None) };
        let (session, got, death) = match got {
            Ok(hold) => (session, hold, false),
            Err(error) => self.contended(py, session, error, wait)?,
        };
        if matches!(self.ask.mode, Mode::Shared | Mode::Examine) && self.state().is_shared() {
            give_back(py, got);
            let call = if self.ask.mode == Mode::Shared { "shared" } else { "examine" };
            let why = format_args!("this hold is entered already; make another one by `mutex.{call}()`");
            return Err(raise(Kind::NotHeld, why).into());
        }
        self.state().begin(session, got, death);
        Ok(())
    }

    /// The get that was not had at once: the session that has it, and whether a holder has died.
    #[cold]
    fn contended(
        &self,
        py: Python<'_>,
        mut session: &'static Session<'static>,
        error: GetError<retrial::Hold<'static>>,
        wait: Wait,
    ) -> Result<(&'static Session<'static>, retrial::Hold<'static>, bool), Refused> {
        let mut got: Get<'static> = Err(error);
        if matches!(got, Err(GetError::Busy)) && wait != Wait::Once {
            let at = match self.ask.at {
                Some(at) => at,
                None => caller(py).map_or(self.named.shared.nowhere, |place| self.named.shared.place(&place)),
            };
            // Taken anew: Python's code may have run, a finalizer's, and closed the instance, which ends the session.
            session = session::of(py, &self.named.shared)?;
            // SAFETY: as in `enter`.
            let record = unsafe { &*ptr::from_ref(self.named.record()) };
            // SAFETY: the session is of the mutex's instance.
            let (waited, raised) =
                apart(py, session, || unsafe { record.get_at(session, self.ask.mode, at, wait.patience()) });
            got = waited;
            if let Err(raised) = raised {
                detached(py, || drop(got));
                return Err(raised.into());
            }
        }
        match got {
            Ok(hold) => Ok((session, hold, false)),
            Err(GetError::OwnerDied(died)) if self.ask.keeps => Ok((session, died.guard, true)),
            // What it gives back may be S.
            Err(error) => Err(Refused::Get(detached(py, || GetFailure::from(error)))),
        }
    }

    /// Whether the calling thread holds it.
    #[inline]
    fn is_owned(&self) -> bool {
        let session = session::existing(&self.named.shared);
        // SAFETY: this thread's own session.
        ptr::eq(self.state().owner(), session) && unsafe { session.as_ref() }.is_some_and(|it| !it.is_forked())
    }

    fn check_owned(&self) -> PyResult<()> {
        if self.is_owned() { Ok(()) } else { Err(not_held()) }
    }

    /// Ends the views of what the calling thread holds: whether that is all that reaches the data. Python's code may
    /// run meanwhile, a callback of a view's say. An error of its own where that has given back what was held, and
    /// perhaps got it again.
    #[inline]
    fn end_views(&self, py: Python<'_>) -> PyResult<PyResult<()>> {
        self.check_owned()?;
        let state = self.state();
        let entries = state.entries();
        let ended = state.end_views(py);
        if state.entries() == entries && !state.owner().is_null() { Ok(ended) } else { Err(not_held()) }
    }

    pub(crate) fn release(&self, py: Python<'_>) -> PyResult<()> {
        let ended = self.end_views(py)?;
        if let Some(hold) = self.state().end() {
            give_back(py, hold);
        }
        ended
    }

    /// The end of a `with`. A child of fork has its parent's object, not the hold.
    #[inline]
    pub(crate) fn exit(&self, py: Python<'_>, exc_type: &Bound<'_, PyAny>) -> PyResult<()> {
        // SAFETY: null, or a session that holds something, which stays in memory.
        if unsafe { self.state().owner().as_ref() }.is_some_and(Session::is_forked) {
            return Ok(());
        }
        match self.release(py) {
            // The exception under way says more. Its traceback may be what keeps a view; and a `Condition`
            // whose wait it ended does not have the mutex.
            Err(_) if !exc_type.is_none() => Ok(()),
            released => released,
        }
    }

    /// As of a lock of Python's: whether it was got. One try by the thread that has it is answered by no,
    /// from which `threading.Condition` knows that it is held.
    pub(crate) fn acquire(&self, py: Python<'_>, wait: Wait) -> PyResult<bool> {
        match self.enter(py, wait) {
            Ok(()) => Ok(true),
            Err(Refused::Get(GetFailure::TimedOut | GetFailure::Busy)) => Ok(false),
            Err(Refused::Get(GetFailure::Deadlock { .. })) if wait == Wait::Once => Ok(false),
            Err(refused) => Err(refused.into()),
        }
    }

    /// The view of the data.
    pub(crate) fn view<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (hold, py) = (slf.get(), slf.py());
        hold.check_owned()?;
        if let Some(view) = hold.state().given(py, hold) {
            return Ok(view.into_bound(py));
        }
        let view = PyMemoryView::from(slf.as_any())?.into_any();
        hold.state().give(hold, view.clone().unbind());
        Ok(view)
    }

    /// Does something with what the calling thread holds, which it may do in these modes.
    fn with_hold<R>(
        &self,
        modes: &[Mode],
        change: impl FnOnce(&mut retrial::Hold<'static>) -> PyResult<R>,
    ) -> PyResult<R> {
        self.check_owned()?;
        let Some(mut hold) = self.state().take() else {
            return Err(raise(Kind::NotHeld, "the hold is being converted"));
        };
        let mode = hold.mode();
        let changed = if modes.contains(&mode) {
            change(&mut hold)
        } else {
            let names: Vec<_> = modes.iter().map(|mode| mode.name()).collect();
            Err(raise(Kind::NotHeld, format_args!("the mutex is held in {mode}, expected {}", names.join(" or "))))
        };
        self.state().put_back(hold);
        changed
    }

    /// Refuses unless the calling thread holds it in one of these modes.
    fn expect(&self, modes: &[Mode]) -> PyResult<()> {
        self.with_hold(modes, |_| Ok(()))
    }

    /// Converts it, without the interpreter lock where that does not go at once.
    fn convert(
        &self,
        py: Python<'_>,
        from: Mode,
        timeout: Option<f64>,
        to: fn(&mut retrial::Hold<'static>, Patience) -> Result<(), ConvertError>,
    ) -> PyResult<()> {
        let wait = Wait::of(timeout)?;
        self.expect(&[from])?;
        // The view is read-only in the one mode, and not in the other.
        self.end_views(py)??;
        self.with_hold(&[from], |hold| {
            match to(hold, Patience::None) {
                Err(ConvertError::Busy) if wait != Wait::Once => {
                    // SAFETY: this thread's own, as `with_hold` has checked.
                    let session = unsafe { &*self.state().owner() };
                    let (converted, raised) = apart(py, session, || to(hold, wait.patience()));
                    raised?;
                    converted.or_raise()
                }
                converted => converted.or_raise(),
            }
        })
    }
}

/// The modes with the holder field.
const ALONE: &[Mode] = &[Mode::Exclusive, Mode::LongExclusive, Mode::Examine];

#[pymethods]
impl Hold {
    fn __enter__(slf: &Bound<'_, Self>) -> PyResult<Py<Self>> {
        let hold = slf.get();
        hold.enter(slf.py(), hold.ask.wait)?;
        Ok(slf.clone().unbind())
    }

    #[pyo3(signature = (exc_type, exc, traceback, /))]
    #[allow(unused_variables)] // Python says all three
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: &Bound<'_, PyAny>,
        exc: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.exit(py, exc_type)
    }

    #[getter]
    fn data<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::view(slf)
    }

    /// The mode in which it is held: `S`, `X`, `LX` or `E`.
    #[getter]
    fn mode(&self) -> PyResult<&'static str> {
        self.with_hold(&Mode::ALL, |hold| Ok(hold.mode().name()))
    }

    /// Whether the get found that an earlier holder had died.
    #[getter]
    fn owner_died(&self) -> bool {
        self.state().owner_died.get()
    }

    fn consistent(&self) -> PyResult<()> {
        self.with_hold(ALONE, |hold| {
            hold.consistent();
            self.state().owner_died.set(false);
            Ok(())
        })
    }

    #[pyo3(signature = (*, timeout=None))]
    fn examine(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.convert(py, Mode::Shared, timeout, retrial::Hold::examine)
    }

    #[pyo3(signature = (*, timeout=None))]
    fn upgrade(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.convert(py, Mode::Examine, timeout, retrial::Hold::upgrade)
    }

    fn share(&self, py: Python<'_>) -> PyResult<()> {
        self.expect(ALONE)?;
        self.end_views(py)??;
        self.with_hold(ALONE, |hold| {
            hold.share();
            Ok(())
        })
    }

    #[allow(clippy::needless_pass_by_value)] // as `pyo3` calls it
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let hold = slf.get();
        // SAFETY: Python gives a buffer to be filled in, and sees `obj` in any case.
        unsafe { (*view).obj = ptr::null_mut() };
        let mode = hold.with_hold(&Mode::ALL, |hold| Ok(hold.mode()))?;
        let readonly = !matches!(mode, Mode::Exclusive | Mode::LongExclusive);
        if readonly && flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err(format!(
                "the mutex is held in {mode}: its data are changed in X or LX"
            )));
        }
        let wanted = |flag: c_int| flags & flag == flag;
        let (named, shape) = (&hold.named, hold.shape.as_ptr().cast_mut());
        let filled = ffi::Py_buffer {
            buf: named.bytes.cast(),
            obj: slf.clone().into_any().into_ptr(),
            len: hold.shape[0] * hold.shape[1],
            itemsize: hold.shape[1],
            readonly: c_int::from(readonly),
            ndim: 1,
            format: if wanted(ffi::PyBUF_FORMAT) { format_of(named.format.name) } else { ptr::null_mut() },
            shape: if wanted(ffi::PyBUF_ND) { shape } else { ptr::null_mut() },
            strides: if wanted(ffi::PyBUF_STRIDES) { shape.wrapping_add(1) } else { ptr::null_mut() },
            suboffsets: ptr::null_mut(),
            internal: ptr::without_provenance_mut(hold.state().count_view()),
        };
        // SAFETY: as above. What it points to lives as long as `obj`, and the mapping with it.
        unsafe { view.write(filled) };
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: Python gives the buffer that was filled in above.
        self.state().forget_view(unsafe { (*view).internal }.addr());
    }
}

fn format_of(name: &'static CStr) -> *mut std::ffi::c_char {
    name.as_ptr().cast_mut()
}
