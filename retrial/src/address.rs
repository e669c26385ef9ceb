//! Where instances are.

use crate::error::NameError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where instances with a name are.
pub const DIRECTORY: &str = "/dev/shm";
pub(crate) const PREFIX: &str = "retrial.";

/// Where an instance is: by name under [`DIRECTORY`], or at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    text: String,
    pub(crate) path: PathBuf,
}

impl Address {
    /// A name, or a path when there is a `/` in it.
    ///
    /// # Errors
    ///
    /// [`NameError`] for a name that could leave the directory or hide in it.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let error = || NameError { found: text.to_owned() };
        if text.contains('\0') {
            return Err(error());
        }
        let path = if text.contains('/') {
            PathBuf::from(text)
        } else {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            let fits = (1..=64).contains(&text.len()) && text.chars().all(allowed) && !text.starts_with(['.', '-']);
            if !fits {
                return Err(error());
            }
            Path::new(DIRECTORY).join(format!("{PREFIX}{text}"))
        };
        Ok(Self { text: text.to_owned(), path })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.text)
    }
}

/// Names of the instances under [`DIRECTORY`].
///
/// # Errors
///
/// When the directory cannot be read.
pub fn list() -> io::Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(DIRECTORY)?
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix(PREFIX).map(str::to_owned))
        // Every user can make a file there: a name that is not an instance's is not listed, nor written to a
        // terminal.
        .filter(|name| Address::new(name).is_ok())
        .collect();
    names.sort();
    Ok(names)
}
