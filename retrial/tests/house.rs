//! What every source file has to be: short enough to be read in one go.

#![allow(missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};

/// Maximum lines of a file, its tests not counted.
const LINES: usize = 400;

/// Tables, which are longer: a check or an experiment per entry.
const TABLES: [&str; 2] = ["retrial-cli/src/doctor/checks.rs", "retrial-cli/src/experiment/paper.rs"];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_source_file_but_a_table_has_more_than_400_lines() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for part in [
        "retrial",
        "retrial-cache",
        "retrial-c",
        "retrial-model",
        "retrial-preload",
        "retrial-bench",
        "retrial-cli",
        "bench",
    ] {
        sources(&root.join(part).join("src"), &mut files);
    }
    assert!(files.len() > 100, "{} files", files.len());
    let is_test = |name: &str| name.contains("tests") || name.contains("interleavings");
    for file in files {
        let name = file.strip_prefix(root).unwrap().display().to_string();
        let text = fs::read_to_string(&file).unwrap();
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap().lines().count();
        assert!(product <= LINES || is_test(&name) || TABLES.contains(&name.as_str()), "{name}: {product} lines");
    }
}
