//! Directories and files of a test's own.

#![allow(dead_code, missing_docs, unreachable_pub)] // each test file uses a part

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// An empty directory that is removed at the end, with all that is in it then.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("retrial-{}-{}-{n}", env!("CARGO_CRATE_NAME"), std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Of what is there or is to be there.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Deref for Directory {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The path of a file in a directory of its own; the test makes the file.
pub struct File {
    path: String,
    _directory: Directory,
}

impl File {
    pub fn new(name: &str) -> Self {
        let directory = Directory::new();
        Self { path: directory.path(name), _directory: directory }
    }
}

impl Deref for File {
    type Target = str;

    fn deref(&self) -> &str {
        &self.path
    }
}
