//! `retrial.Mutex`, which is a lock of Python's too.

use crate::errors::{Kind, OrRaise, raise};
use crate::hold::{Ask, Hold, detached};
use crate::instance::{Instance, Shared};
use crate::wait::Wait;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyString};
use retrial::Mode;
use retrial::engine::RawMutex;
use std::ffi::CStr;
use std::sync::Arc;

/// A named mutex and the bytes that it protects.
pub(crate) struct Named {
    /// In the mapping of `shared`.
    record: *const RawMutex,
    pub(crate) bytes: *mut u8,
    pub(crate) size: usize,
    pub(crate) format: &'static Format,
    name: String,
    mutex_type: String,
    pub(crate) shared: Arc<Shared>,
}

// SAFETY: what the pointers point to stays mapped as long as `shared`. The record is made of atomics, and the bytes
// are reached through views alone.
unsafe impl Send for Named {}
// SAFETY: as above.
unsafe impl Sync for Named {}

impl Named {
    #[inline]
    pub(crate) fn record(&self) -> &RawMutex {
        // SAFETY: mapped as long as `shared`.
        unsafe { &*self.record }
    }
}

/// How a view sees the bytes.
pub(crate) struct Format {
    pub(crate) name: &'static CStr,
    pub(crate) bytes: usize,
}

/// The formats of the module `struct` that a `memoryview` can index.
const FORMATS: &[Format] = &[
    Format { name: c"B", bytes: 1 },
    Format { name: c"b", bytes: 1 },
    Format { name: c"H", bytes: 2 },
    Format { name: c"h", bytes: 2 },
    Format { name: c"I", bytes: 4 },
    Format { name: c"i", bytes: 4 },
    Format { name: c"Q", bytes: 8 },
    Format { name: c"q", bytes: 8 },
    Format { name: c"f", bytes: 4 },
    Format { name: c"d", bytes: 8 },
];

fn format_named(name: &str) -> PyResult<&'static Format> {
    FORMATS.iter().find(|format| format.name.to_bytes() == name.as_bytes()).ok_or_else(|| {
        raise(Kind::Invalid, format_args!("format `{name}`, expected one of B, b, H, h, I, i, Q, q, f, d"))
    })
}

/// What a lock of Python's takes for a flag.
fn truth(flag: &Bound<'_, PyAny>) -> PyResult<bool> {
    flag.is_truthy()
}

/// A mutex with the data that it protects.
#[pyclass(frozen, module = "retrial")]
pub(crate) struct Mutex {
    named: Arc<Named>,
    /// What `with mutex` and `acquire` hold: X, of one thread at a time, by any object of the mutex.
    own: Py<Hold>,
}

impl Mutex {
    pub(crate) fn new(
        py: Python<'_>,
        shared: &Arc<Shared>,
        name: &str,
        mutex_type: &str,
        size: usize,
        format: &str,
    ) -> PyResult<Self> {
        let format = format_named(format)?;
        if !size.is_multiple_of(format.bytes) {
            let (bytes, name) = (format.bytes, format.name.to_string_lossy());
            return Err(raise(
                Kind::Invalid,
                format_args!("size {size}, expected a multiple of {bytes}, for format {name}"),
            ));
        }
        // Another session may be writing the value.
        let made = detached(py, || shared.instance.mutex_bytes(name, mutex_type, size));
        let (mutex, bytes) = made.or_raise()?;
        let record = mutex.record(&shared.instance).map_err(|error| raise(Kind::Error, error))?;
        // One that was there keeps its type.
        let mutex_type = shared.instance.tables().type_name(record.mutex_type());
        let name = name.to_owned();
        let named = Arc::new(Named { record, bytes, size, format, name, mutex_type, shared: Arc::clone(shared) });
        let ask = Ask { mode: Mode::Exclusive, wait: Wait::Endless, at: None, keeps: false };
        let state = shared.own_state(record);
        Ok(Self { own: Py::new(py, Hold::new(Arc::clone(&named), ask, Some(state)))?, named })
    }

    /// A hold that is not entered yet.
    fn asked(
        &self,
        mode: Mode,
        timeout: Option<f64>,
        at: Option<&Bound<'_, PyString>>,
        on_death: &str,
    ) -> PyResult<Hold> {
        self.named.shared.check_open()?;
        let keeps = match on_death {
            "raise" => false,
            "hold" => true,
            _ => return Err(raise(Kind::Invalid, format_args!("on_death `{on_death}`, expected raise or hold"))),
        };
        let at = match at {
            Some(at) => Some(self.named.shared.place(&at.to_cow()?)),
            None => None,
        };
        Ok(Hold::new(Arc::clone(&self.named), Ask { mode, wait: Wait::of(timeout)?, at, keeps }, None))
    }
}

/// A method for each mode.
macro_rules! with_modes {
    ($( $name:ident $mode:ident; )*) => {
        #[pymethods]
        impl Mutex { $(
            #[pyo3(signature = (*, timeout=None, at=None, on_death="raise"))]
            fn $name(&self, timeout: Option<f64>, at: Option<&Bound<'_, PyString>>, on_death: &str) -> PyResult<Hold> {
                self.asked(Mode::$mode, timeout, at, on_death)
            }
        )*

            #[getter]
            fn name(&self) -> &str {
                &self.named.name
            }

            #[getter]
            fn r#type(&self) -> &str {
                &self.named.mutex_type
            }

            #[getter]
            fn size(&self) -> usize {
                self.named.size
            }

            #[getter]
            fn instance(&self) -> Instance {
                Instance { shared: Arc::clone(&self.named.shared) }
            }

            #[getter]
            fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                Hold::view(self.own.bind(py))
            }

            /// Whether any thread of any process holds it.
            fn locked(&self) -> bool {
                self.named.record().load().is_held()
            }

            #[pyo3(signature = (blocking=true, timeout=-1.0))]
            fn acquire(
                &self,
                py: Python<'_>,
                #[pyo3(from_py_with = truth)] blocking: bool,
                timeout: f64,
            ) -> PyResult<bool> {
                let wait = match (blocking, timeout) {
                    (true, -1.0) => Wait::Endless,
                    (true, timeout) => Wait::of(Some(timeout))?,
                    (false, -1.0) => Wait::Once,
                    (false, _) => return Err(raise(Kind::Invalid, "a timeout, expected none where blocking is False")),
                };
                self.own.get().acquire(py, wait)
            }

            fn release(&self, py: Python<'_>) -> PyResult<()> {
                self.own.get().release(py)
            }

            #[inline]
            fn __enter__(&self, py: Python<'_>) -> PyResult<Py<Hold>> {
                self.own.get().enter(py, Wait::Endless)?;
                Ok(self.own.clone_ref(py))
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
                self.own.get().exit(py, exc_type)
            }

            fn __repr__(&self) -> String {
                format!("<retrial.Mutex {} ({}), {} bytes>", self.named.name, self.named.mutex_type, self.named.size)
            }

            fn __reduce__<'py>(
                &self,
                py: Python<'py>,
            ) -> PyResult<(Bound<'py, PyAny>, (&str, &str, usize, std::borrow::Cow<'static, str>))> {
                let instance = Bound::new(py, self.instance())?;
                let named = &self.named;
                Ok((instance.getattr("mutex")?, (&named.name, &named.mutex_type, named.size, named.format.name.to_string_lossy())))
            }
        }
    };
}

with_modes! {
    shared Shared;
    exclusive Exclusive;
    long_exclusive LongExclusive;
    examine Examine;
}
