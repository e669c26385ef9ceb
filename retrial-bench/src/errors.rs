//! From the library's errors to ones with a command to type next.

use crate::output::quoted;
use miette::{Report, miette};
use retrial::{CreateError, NameError, ParamError};
use std::path::Path;

pub fn name_error(error: NameError) -> Report {
    miette!(code = "retrial::instance::name", help = "retrial create demo", "{error}")
}

pub fn shown(path: &Path) -> String {
    quoted(&path.to_string_lossy()).into_owned()
}

/// The directory that a file is in, or is to be in.
pub fn directory(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn directory_of(path: &Path) -> String {
    shown(directory(path))
}

pub fn create_error(error: CreateError) -> Report {
    let (code, help) = match &error {
        CreateError::Exists(name) => {
            return miette!(
                code = "retrial::create::exists",
                help = format!("retrial show -i {0}, or: retrial rm {0}", quoted(name)),
                "{error}, expected a new name"
            );
        }
        CreateError::Name(name) => return name_error(name.clone()),
        CreateError::Capacity { .. } => ("capacity", "retrial create --help".to_owned()),
        CreateError::NoSpace { path, .. } => {
            return miette!(
                code = "retrial::create::no_space",
                help = format!("df -h {}; retrial list shows what could be removed", directory_of(path)),
                "{error}, expected as much free memory"
            );
        }
        CreateError::FileSize { .. } => ("file_size", "ulimit -f unlimited".to_owned()),
        CreateError::Io { path, .. } => ("io", format!("ls -ld {}", directory_of(path))),
        _ => ("io", format!("ls -ld {}", retrial::layout::DIRECTORY)),
    };
    miette!(code = format!("retrial::create::{code}"), help = help, "{error}")
}

pub fn param_error(error: &ParamError) -> Report {
    let (code, help) = match error {
        ParamError::Unknown { .. } => ("unknown", "retrial show params".to_owned()),
        ParamError::Form(_) => ("form", "retrial set mutex_spin_count=255".to_owned()),
        ParamError::Value { name, .. } | ParamError::Unit { name, .. } => {
            ("value", format!("retrial show params {name}"))
        }
        _ => ("value", "retrial show params".to_owned()),
    };
    miette!(code = format!("retrial::param::{code}"), help = help, "{error}")
}
