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
use pyo3::prelude::*;

/// Removes the file of an instance.
#[pyfunction]
fn remove(name: &str) -> PyResult<()> {
    retrial::remove(&instance::address(name)?).or_raise()
}

/// Mutexes in shared memory for many processes.
#[pymodule(name = "retrial", gil_used = true)]
fn retrial_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<instance::Instance>()?;
    module.add_class::<mutex::Mutex>()?;
    module.add_class::<hold::Hold>()?;
    module.add_function(wrap_pyfunction!(remove, module)?)?;
    errors::add(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
