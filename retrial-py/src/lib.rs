//! retrial for Python: the module `retrial`. `retrial.pyi` has its names and says what each does; `docs/PYTHON.md`
//! is the introduction.
//!
//! A panic ends the process, as in every crate of the workspace; its sessions are recovered as after any death.

mod errors;
mod figures;
mod hold;
mod instance;
mod mutex;
mod session;
mod state;
mod wait;

use crate::errors::OrRaise;
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::sync::OnceLock;

/// Removes the file of an instance.
#[pyfunction]
fn remove(name: &str) -> PyResult<()> {
    retrial::remove(&instance::address(name)?).or_raise()
}

/// Refuses all interpreters of the process but the first one that imports the module. They share what it keeps, its
/// types and the sessions of threads, which must not hold objects of an interpreter that is gone.
fn refuse_subinterpreters() -> PyResult<()> {
    static FIRST: OnceLock<i64> = OnceLock::new();
    // SAFETY: this thread is attached to an interpreter.
    let state = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: the state of the running interpreter.
    let id = unsafe { ffi::PyInterpreterState_GetID(state) };
    let first = *FIRST.get_or_init(|| id);
    if id == first {
        return Ok(());
    }
    let why =
        format!("retrial is used by interpreter {first} of this process, this is {id}; use it in one of them alone");
    Err(PyImportError::new_err(why))
}

/// Mutexes in shared memory for many processes.
#[pymodule(name = "retrial", gil_used = true)]
fn retrial_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    refuse_subinterpreters()?;
    module.add_class::<instance::Instance>()?;
    module.add_class::<mutex::Mutex>()?;
    module.add_class::<hold::Hold>()?;
    module.add_function(wrap_pyfunction!(remove, module)?)?;
    errors::add(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
