//! `retrial.Instance`.

use crate::errors::{Kind, OrRaise, raise};
use crate::figures;
use crate::mutex::Mutex;
use crate::session;
use crate::state::State;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyList, PyTuple, PyType};
use retrial::engine::RawMutex;
use retrial::views::{Domain, LocationId, TypeId};
use retrial::{Address, Capacity, CreateError, P};
use std::collections::HashMap;
use std::path::{self, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{self, Arc, PoisonError, Weak};

/// An instance with what this process knows of it. One for each instance, however often it is opened: sessions are
/// of the mapping that a mutex is in.
pub(crate) struct Shared {
    pub(crate) instance: retrial::Instance,
    /// What attaches it from any directory: its name, or the whole path. `None` for an anonymous one.
    lasting: Option<PathBuf>,
    /// Where gets are that do not say where, and do not wait.
    pub(crate) nowhere: LocationId,
    /// Places by name: the library's table is in shared memory, and takes a microsecond.
    places: sync::Mutex<HashMap<String, LocationId>>,
    /// What `with mutex` and `acquire` hold, by the mutex's address: its objects in Python may go meanwhile.
    own: sync::Mutex<HashMap<usize, Arc<State>>>,
    closed: AtomicBool,
}

/// Those that are open. Locked with the interpreter lock held, which a fork has too: no child finds it locked.
static OPEN: sync::Mutex<Vec<Weak<Shared>>> = sync::Mutex::new(Vec::new());

impl Shared {
    /// The one of this instance, with the mapping that was there before.
    fn of(instance: retrial::Instance) -> Arc<Self> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|shared| shared.upgrade().is_some_and(|shared| !shared.is_closed()));
        let of_tables =
            |instance: &retrial::Instance| (instance.tables().created_ns(), instance.tables().creator_pid());
        let found = open.iter().filter_map(Weak::upgrade);
        let mut found = found.filter(|shared| of_tables(&shared.instance) == of_tables(&instance));
        found.next().unwrap_or_else(|| {
            // Now: the current directory may change.
            let lasting = instance.address().map(lasting);
            let nowhere = instance.register_location("python").unwrap_or_default();
            let (places, own, closed) = (sync::Mutex::default(), sync::Mutex::default(), AtomicBool::new(false));
            let shared = Arc::new(Self { instance, lasting, nowhere, places, own, closed });
            open.push(Arc::downgrade(&shared));
            shared
        })
    }

    /// The place of this name; 0 when the instance's table of places is full. As `OPEN`, no child finds it locked.
    pub(crate) fn place(&self, name: &str) -> LocationId {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = places.get(name) {
            return *place;
        }
        let place = self.instance.register_location(name).unwrap_or_default();
        if place != LocationId::default() {
            places.insert(name.to_owned(), place);
        }
        place
    }

    /// What `with mutex` and `acquire` hold of this mutex. As `OPEN`, no child finds the map locked.
    pub(crate) fn own_state(&self, record: *const RawMutex) -> Arc<State> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(own.entry(record.addr()).or_default())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn check_open(&self) -> PyResult<()> {
        if self.is_closed() { Err(raise(Kind::Closed, "the instance is closed; open it again")) } else { Ok(()) }
    }
}

pub(crate) fn address(text: &str) -> PyResult<Address> {
    Address::new(text).or_raise()
}

fn lasting(address: &Address) -> PathBuf {
    let text = address.to_string();
    if text.contains('/') { path::absolute(&text).unwrap_or_else(|_| text.into()) } else { text.into() }
}

/// What it has room for: what is not said is as in the library.
fn capacity(
    sessions: Option<u32>,
    mutexes: Option<u32>,
    locations: Option<u32>,
    rows: Option<u32>,
    arena: Option<u64>,
) -> Capacity {
    let default = Capacity::default();
    Capacity {
        sessions: sessions.unwrap_or(default.sessions),
        mutexes: mutexes.unwrap_or(default.mutexes),
        locations: locations.unwrap_or(default.locations),
        rows: rows.unwrap_or(default.rows),
        arena: arena.unwrap_or(default.arena),
    }
}

/// A segment of shared memory with its mutexes.
#[pyclass(frozen, module = "retrial")]
pub(crate) struct Instance {
    pub(crate) shared: Arc<Shared>,
}

impl Instance {
    fn new(instance: retrial::Instance) -> Self {
        Self { shared: Shared::of(instance) }
    }

    /// The library's, while it is open.
    fn open_one(&self) -> PyResult<&retrial::Instance> {
        self.shared.check_open()?;
        Ok(&self.shared.instance)
    }

    fn type_named(&self, name: Option<&str>) -> PyResult<Option<TypeId>> {
        let Some(name) = name else { return Ok(None) };
        let found = self.open_one()?.tables().type_named(name);
        let unknown = || format!("no mutex type `{name}`; make a mutex of it first, or leave `type` out for all types");
        found.map(Some).ok_or_else(|| raise(Kind::NotFound, unknown()))
    }
}

#[pymethods]
#[allow(clippy::too_many_arguments)] // by name in Python
impl Instance {
    #[classmethod]
    #[pyo3(signature = (name, *, sessions=None, mutexes=None, locations=None, rows=None, arena=None, permissions=0o600))]
    fn create(
        _class: &Bound<'_, PyType>,
        name: &str,
        sessions: Option<u32>,
        mutexes: Option<u32>,
        locations: Option<u32>,
        rows: Option<u32>,
        arena: Option<u64>,
        permissions: u32,
    ) -> PyResult<Self> {
        let capacity = capacity(sessions, mutexes, locations, rows, arena);
        retrial::Instance::create(&address(name)?, capacity, permissions).or_raise().map(Self::new)
    }

    #[classmethod]
    fn attach(_class: &Bound<'_, PyType>, name: &str) -> PyResult<Self> {
        retrial::Instance::attach(&address(name)?).or_raise().map(Self::new)
    }

    #[classmethod]
    #[pyo3(signature = (name, *, sessions=None, mutexes=None, locations=None, rows=None, arena=None, permissions=0o600))]
    fn open(
        _class: &Bound<'_, PyType>,
        name: &str,
        sessions: Option<u32>,
        mutexes: Option<u32>,
        locations: Option<u32>,
        rows: Option<u32>,
        arena: Option<u64>,
        permissions: u32,
    ) -> PyResult<Self> {
        let (address, capacity) = (address(name)?, capacity(sessions, mutexes, locations, rows, arena));
        match retrial::Instance::create_or_attach(&address, capacity, permissions) {
            Err(CreateError::Attach(error)) => Err(error).or_raise(),
            opened => opened.or_raise().map(Self::new),
        }
    }

    #[classmethod]
    #[pyo3(signature = (*, sessions=None, mutexes=None, locations=None, rows=None, arena=None))]
    fn anonymous(
        _class: &Bound<'_, PyType>,
        sessions: Option<u32>,
        mutexes: Option<u32>,
        locations: Option<u32>,
        rows: Option<u32>,
        arena: Option<u64>,
    ) -> PyResult<Self> {
        retrial::Instance::anonymous(capacity(sessions, mutexes, locations, rows, arena)).or_raise().map(Self::new)
    }

    /// Its name or path; `None` for an anonymous one.
    #[getter]
    fn name(&self) -> Option<String> {
        self.shared.instance.address().map(ToString::to_string)
    }

    #[pyo3(signature = (name, r#type="python", size=8, format="B"))]
    fn mutex(&self, py: Python<'_>, name: &str, r#type: &str, size: usize, format: &str) -> PyResult<Mutex> {
        self.shared.check_open()?;
        Mutex::new(py, &self.shared, name, r#type, size, format)
    }

    #[pyo3(signature = (*, by="mutex"))]
    fn figures<'py>(&self, py: Python<'py>, by: &str) -> PyResult<Bound<'py, PyList>> {
        figures::figures(py, self.open_one()?.tables(), by)
    }

    fn sessions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        figures::sessions(py, self.open_one()?.tables())
    }

    #[pyo3(signature = (after=0))]
    fn alerts<'py>(&self, py: Python<'py>, after: u64) -> PyResult<Bound<'py, PyList>> {
        figures::alerts(py, self.open_one()?.tables(), after)
    }

    /// The parameters in force for the instance, by name.
    #[getter]
    fn params<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let params = self.open_one()?.params(None);
        let all = PyDict::new(py);
        for p in P::ALL {
            let value = params.get(*p);
            match p.row().domain {
                Domain::Number(..) => all.set_item(p.row().name, value)?,
                Domain::Names(_) => all.set_item(p.row().name, p.format(value))?,
            }
        }
        Ok(all)
    }

    #[pyo3(signature = (name, value, *, r#type=None))]
    fn set(&self, name: &str, value: &Bound<'_, PyAny>, r#type: Option<&str>) -> PyResult<()> {
        let (instance, param, mutex_type) = (self.open_one()?, P::named(name).or_raise()?, self.type_named(r#type)?);
        if value.is_none() {
            instance.unset(param, mutex_type);
            return Ok(());
        }
        let scheme = usize::try_from(instance.params(mutex_type).get(P::Scheme)).unwrap_or(usize::MAX);
        instance.set(param, mutex_type, param.parse(&value.str()?.to_cow()?, scheme).or_raise()?);
        Ok(())
    }

    fn set_action(&self, py: Python<'_>, action: &str) -> PyResult<()> {
        session::of(py, &self.shared)?.set_action(action);
        Ok(())
    }

    fn close(&self) -> PyResult<()> {
        session::close(&self.shared)?;
        self.shared.closed.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (exc_type, exc, traceback, /))]
    #[allow(unused_variables)] // Python says all three
    fn __exit__(
        &self,
        exc_type: &Bound<'_, PyAny>,
        exc: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close()
    }

    fn __repr__(&self) -> String {
        self.name()
            .map_or_else(|| "<retrial.Instance, anonymous>".to_owned(), |name| format!("<retrial.Instance {name}>"))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        let Some(lasting) = &slf.get().shared.lasting else {
            let why = "an anonymous instance cannot be pickled: only children of fork have it; give it a name";
            return Err(PyTypeError::new_err(why));
        };
        let text = lasting.as_path().into_py_any(py)?.bind(py).str()?;
        Ok((py.get_type::<Self>().getattr("attach")?, PyTuple::new(py, [text])?))
    }
}
