//! The exceptions, and which of the library's errors is which of them.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use retrial::{AttachError, ConvertError, CreateError, GetFailure, NameError, ObjectError, ParamError, SessionError};
use std::fmt::Display;

macro_rules! exceptions {
    ($( $id:ident($($base:literal),*) $doc:literal; )*) => {
        /// An exception of the module.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Kind { $( #[doc = $doc] $id ),* }

        /// Name, bases beside `Error` and documentation of each.
        const KINDS: &[(&str, &[&str], &str)] = &[ $( (stringify!($id), &[$($base),*], $doc) ),* ];
    };
}

exceptions! {
    Error() "What all exceptions of retrial are.";
    OwnerDied() "A holder has died since the data were last declared consistent. The mutex was given back.";
    TimedOut("TimeoutError") "Not got before the time was over.";
    Busy("TimeoutError") "Not got at once, and only one try was asked for.";
    Deadlock("RuntimeError") "This thread would wait for itself.";
    NotHeld("RuntimeError") "This thread does not hold the mutex, or holds it in a mode that the call is not for.";
    Closed("ValueError") "The instance was closed.";
    Exists("FileExistsError") "There is an instance of this name.";
    NotFound("FileNotFoundError") "There is no such instance, mutex type or parameter.";
    Denied("PermissionError") "The instance's file belongs to another user.";
    Invalid("ValueError") "An argument out of its range.";
    Full() "A table of the instance is full, or no memory is left.";
}

static TYPES: PyOnceLock<Vec<Py<PyType>>> = PyOnceLock::new();

/// Makes the types, and adds them to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    for (kind, exception) in KINDS.iter().zip(types(py)?) {
        module.add(kind.0, exception)?;
    }
    Ok(())
}

fn types(py: Python<'_>) -> PyResult<&Vec<Py<PyType>>> {
    TYPES.get_or_try_init(py, || {
        let builtins = py.import("builtins")?;
        let mut made: Vec<Py<PyType>> = Vec::new();
        for (name, others, doc) in KINDS {
            let first = made.first().map_or_else(|| py.get_type::<PyException>(), |error| error.bind(py).clone());
            let mut bases = vec![first.into_any()];
            for other in *others {
                bases.push(builtins.getattr(*other)?);
            }
            let namespace = PyDict::new(py);
            namespace.set_item("__module__", "retrial")?;
            namespace.set_item("__doc__", doc)?;
            let made_now = py.get_type::<PyType>().call1((*name, PyTuple::new(py, bases)?, namespace))?;
            made.push(made_now.cast_into::<PyType>()?.unbind());
        }
        Ok(made)
    })
}

/// An exception with a message.
#[cold]
pub(crate) fn raise(kind: Kind, why: impl Display) -> PyErr {
    let why = why.to_string();
    Python::attach(|py| match types(py) {
        Ok(types) => PyErr::from_type(types[kind as usize].bind(py).clone(), why),
        Err(error) => error,
    })
}

/// An error of the library, to be raised.
pub(crate) trait Raised: Display {
    fn kind(&self) -> Kind;
}

/// The value, or the exception that the error is.
pub(crate) trait OrRaise<T> {
    fn or_raise(self) -> PyResult<T>;
}

impl<T, E: Raised> OrRaise<T> for Result<T, E> {
    #[inline]
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| raise(error.kind(), error))
    }
}

macro_rules! raised {
    ($( $error:ident { $( $pattern:pat => $kind:ident ),* $(,)? } )*) => { $(
        impl Raised for $error {
            fn kind(&self) -> Kind {
                #[allow(unreachable_patterns)] // some are exhaustive
                match self { $( $pattern => Kind::$kind, )* _ => Kind::Error }
            }
        }
    )* };
}

raised! {
    NameError { _ => Invalid }
    CreateError {
        Self::Exists(_) => Exists,
        Self::Name(_) | Self::Capacity { .. } => Invalid,
        Self::NoSpace { .. } | Self::FileSize { .. } => Full,
    }
    AttachError {
        Self::NotFound(_) => NotFound,
        Self::Name(_) => Invalid,
        Self::Permission { .. } | Self::Owner { .. } => Denied,
    }
    SessionError { Self::Full { .. } | Self::NoSpace => Full }
    ObjectError {
        Self::Full(_) | Self::TooLarge { .. } | Self::NoSpace(_) | Self::Session(SessionError::Full { .. }) => Full,
        Self::Name { .. } | Self::Shape { .. } | Self::Kind { .. } | Self::Owned { .. } => Invalid,
    }
    ParamError {
        Self::Unknown { .. } => NotFound,
        Self::Value { .. } | Self::Unit { .. } | Self::Form(_) => Invalid,
    }
    GetFailure {
        Self::OwnerDied { .. } => OwnerDied,
        Self::TimedOut => TimedOut,
        Self::Busy => Busy,
        Self::Deadlock { .. } => Deadlock,
        Self::Forked { .. } => NotHeld,
        Self::LogFull { .. } => Full,
    }
    ConvertError {
        Self::TimedOut => TimedOut,
        Self::Busy => Busy,
        Self::Deadlock { .. } => Deadlock,
        Self::Forked { .. } => NotHeld,
    }
}
